// The packages as users of each package manager get them: packed, installed into an empty folder with scripts off and no registry in reach,
// required and imported, one graph run; then without the platform's package, which must end in an exception that says what to do.
//
//   node scripts/installs.mjs [npm pnpm yarn bun]
//
// The managers are those of tools/installs, pinned, and this machine's npm; the addon is the local build or CANN_NODE_BINARY_PATH.

import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { commandLine } from './command-line.mjs'
import { packPlatform, packRoot } from './pack.mjs'
import { PLATFORMS } from './platform.mjs'
import { fail, root, sh } from './setup.mjs'

const { positionals: words } = commandLine({ allowPositionals: true })

const INSTALLED_BYTES = 12e6
// Nothing listens there: what is not in the tarballs cannot be had.
const NO_REGISTRY = 'http://127.0.0.1:9'

const { platformName } = createRequire(import.meta.url)('../native.js')
const here = platformName()
const other = here.startsWith('darwin') ? 'win32-x64-msvc' : 'darwin-arm64'
const tools = join(root, 'tools/installs')
const modules = join(tools, 'node_modules')
const work = mkdtempSync(join(tmpdir(), 'cann-node-installs-'))
const windows = process.platform === 'win32'

const bun = () => {
  const folder = join(modules, '@oven')
  return join(folder, readdirSync(folder)[0], 'bin', windows ? 'bun.exe' : 'bun')
}
const yarn = join(modules, '@yarnpkg/cli-dist/bin/yarn.js')
const json = (value) => JSON.stringify(value, null, 2)
const yaml = (value) => Object.entries(value).map(([key, entry]) => `${key}: ${JSON.stringify(entry)}\n`).join('')

/**
 * Per manager: the files an app needs so that each package comes from its tarball, how to install with and without the platform's package,
 * and what runs the app's programs.
 */
const MANAGERS = {
  npm: {
    files: (dependencies, overrides) => ({ 'package.json': json({ name: 'app', private: true, dependencies, overrides }) }),
    install: ['npm', 'install', '--ignore-scripts', '--no-audit', '--no-fund', '--fetch-retries=0'],
    without: ['--omit=optional'],
    env: { npm_config_registry: NO_REGISTRY, npm_config_cache: join(work, 'npm-cache') },
    runners: { node: [process.execPath] },
    version: ['npm', '--version'],
  },
  pnpm: {
    files: (dependencies, overrides) => ({
      'package.json': json({ name: 'app', private: true, dependencies }),
      'pnpm-workspace.yaml': yaml({ overrides, storeDir: join(work, 'pnpm-store'), cacheDir: join(work, 'pnpm-cache'), fetchRetries: 0 }),
    }),
    install: [process.execPath, join(modules, 'pnpm/bin/pnpm.mjs'), 'install', '--ignore-scripts'],
    without: ['--no-optional'],
    env: { npm_config_registry: NO_REGISTRY },
    runners: { node: [process.execPath] },
    version: [process.execPath, join(modules, 'pnpm/bin/pnpm.mjs'), '--version'],
  },
  'yarn (PnP)': {
    files: (dependencies, overrides, without) => ({
      'package.json': json({ name: 'app', private: true, dependencies, resolutions: overrides }),
      'yarn.lock': '',
      // There is no flag for it; this is a lock file and node_modules from another system.
      '.yarnrc.yml': yaml({
        nodeLinker: 'pnp',
        pnpEnableEsmLoader: true,
        enableScripts: false,
        enableTelemetry: false,
        globalFolder: join(work, 'yarn'),
        ...(without && { supportedArchitectures: { os: [other.split('-')[0]], cpu: [other.split('-')[1]] } }),
      }),
    }),
    install: [process.execPath, yarn, 'install', '--no-immutable'],
    without: [],
    env: { YARN_NPM_REGISTRY_SERVER: NO_REGISTRY },
    runners: { node: [process.execPath, yarn, 'node'] },
    version: [process.execPath, yarn, '--version'],
    // Beside the cache that all apps share.
    places: ['.yarn'],
  },
  bun: {
    files: (dependencies, overrides) => ({ 'package.json': json({ name: 'app', private: true, dependencies, overrides }) }),
    install: () => [bun(), 'install', '--ignore-scripts'],
    without: ['--omit=optional'],
    env: { BUN_CONFIG_REGISTRY: NO_REGISTRY, BUN_INSTALL_CACHE_DIR: join(work, 'bun-cache') },
    runners: () => ({ node: [process.execPath], bun: [bun()] }),
    version: () => [bun(), '--version'],
  },
}

const USE = `
  const devices = await cann.listDevices()
  const backend = await cann.Backend.open()
  const graph = new cann.Graph()
  graph.output('y', graph.add(graph.input('x', 'f32', [2]), graph.input('b', 'f32', [2])))
  const plan = await backend.prepare(graph)
  const { y } = await plan.run({ x: Float32Array.of(1, 2), b: Float32Array.of(3, 4) })
  await backend.close()
  console.log(devices.length > 0, [...y].join())`
const PROGRAMS = {
  'esm.mjs': `import * as cann from 'cann-node'\n${USE}\n`,
  'cjs.cjs': `const cann = require('cann-node');\n(async () => {${USE}\n})()\n`,
  'bare.mjs': `import { listDevices } from 'cann-node'\nawait listDevices()\n`,
}

const made = (value) => (typeof value === 'function' ? value() : value)

/** Runs a command in an app; answers with { status, signal, stdout, stderr }. */
function run(cwd, [command, ...args], env = {}) {
  const own = { ...process.env, ...env }
  delete own.CANN_NODE_BINARY_PATH
  return spawnSync(command, args, { cwd, env: own, encoding: 'utf8', shell: windows && command === 'npm' })
}

function app(manager, name, without) {
  const folder = join(work, `${manager.replace(/\W/g, '')}-${name}`)
  mkdirSync(folder)
  const { files, install, without: flags, env } = MANAGERS[manager]
  const texts = { ...files(dependencies, overrides, without), ...PROGRAMS }
  for (const [file, text] of Object.entries(texts)) writeFileSync(join(folder, file), text)
  const { status, stdout, stderr } = run(folder, [...made(install), ...(without ? flags : [])], env)
  if (status !== 0) throw new Error(`${manager} did not install:\n${stdout}${stderr}`)
  return folder
}

/** Bytes of the files below a folder, each once however many links lead to it. */
function bytes(folder) {
  if (!existsSync(folder)) return 0
  const files = readdirSync(folder, { recursive: true }).map((name) => statSync(join(folder, name))).filter((stat) => stat.isFile())
  return [...new Map(files.map(({ dev, ino, size }) => [`${dev}:${ino}`, size])).values()].reduce((a, b) => a + b, 0)
}

function check(manager) {
  const { runners, version, env, places = ['node_modules'] } = MANAGERS[manager]
  const folder = app(manager, 'app', false)
  for (const [runner, command] of Object.entries(made(runners))) {
    for (const program of ['esm.mjs', 'cjs.cjs']) {
      const { status, stdout, stderr } = run(folder, [...command, program], env)
      if (status !== 0 || stdout !== 'true 4,6\n') throw new Error(`${manager}: ${runner} ${program}: ${status}, ${stdout}${stderr}`)
    }
  }
  const installed = places.reduce((sum, place) => sum + bytes(join(folder, place)), 0)
  if (installed > INSTALLED_BYTES) throw new Error(`${manager}: ${installed} bytes were installed`)

  const bare = app(manager, 'bare', true)
  for (const [runner, command] of Object.entries(made(runners))) {
    const { status, signal, stdout, stderr } = run(bare, [...command, 'bare.mjs'], env)
    const text = `${stdout}${stderr}`
    const told = /could not load its binary for [\s\S]*(The optional dependency is missing|Installed is the binary of)/.test(text)
    if (status !== 1 || signal || !told) throw new Error(`${manager}: without a binary ${runner}: ${signal ?? status}, ${text}`)
  }
  const names = Object.keys(made(runners)).join(', ')
  const size = `${(installed / 1e6).toFixed(2)} MB`
  return [`${manager} ${run(folder, made(version), env).stdout.trim()}`, `required and imported by ${names}`, size, 'told']
}

if (!existsSync(join(modules, 'pnpm'))) sh('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], { cwd: tools })
const chosen = Object.keys(MANAGERS).filter((name) => words.length === 0 || words.includes(name.split(' ')[0]))
if (chosen.length === 0) fail(`there are ${Object.keys(MANAGERS).join(', ')}`)

// Each platform has a tarball, so that the manager itself has to choose; only this one's has a binary in it.
const placeholder = join(work, 'placeholder.node')
writeFileSync(placeholder, 'of another platform')
const local = process.env.CANN_NODE_BINARY_PATH ?? join(root, `cann-node.${here}.node`)
const tarballs = PLATFORMS.map(({ name }) => packPlatform(name, name === here ? local : placeholder, work))
const overrides = Object.fromEntries(tarballs.map(({ name, path }) => [name, `file:${path}`]))
const dependencies = { 'cann-node': `file:${packRoot(work).path}` }

let failed = 0
try {
  const rows = [['manager', 'with the binary', 'installed', 'without it']]
  for (const manager of chosen) {
    try {
      rows.push(check(manager))
    } catch (error) {
      failed += 1
      console.error(`error: ${error.message}`)
    }
  }
  const widths = rows[0].map((_, i) => Math.max(...rows.map((row) => row[i].length)))
  for (const row of rows) console.log(row.map((cell, i) => cell.padEnd(widths[i])).join('  ').trimEnd())
  console.log(`${chosen.length - failed} passed, ${failed} failed, 0 skipped`)
} finally {
  rmSync(work, { recursive: true, force: true })
}
process.exitCode = failed ? 1 : 0
