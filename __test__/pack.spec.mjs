import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { before, test } from 'node:test'

import { packPlatform, packRoot } from '../scripts/pack.mjs'
import { PLATFORMS } from '../scripts/platform.mjs'
import { root, runtime, withFolder } from './helpers/index.mjs'

const at = withFolder()
const { platformName } = createRequire(import.meta.url)('../native.js')
const platform = platformName()
const binary = process.env.CANN_NODE_BINARY_PATH ?? join(root, `cann-node.${platform}.node`)
const shell = process.platform === 'win32'
const npm = (args, cwd) => execFileSync('npm', args, { cwd, encoding: 'utf8', shell, stdio: ['ignore', 'pipe', 'pipe'] })

const readJson = (path) => JSON.parse(readFileSync(path, 'utf8'))

// Deno needs this one permission, docs/runtimes.md says; a child process needs others.
const permissions = runtime === 'Deno' ? ['run', '--no-prompt', '--allow-ffi=node_modules'] : []

const use = `
  const backend = await cann.Backend.open()
  const graph = new cann.Graph()
  graph.output('y', graph.add(graph.input('x', 'f32', [2]), graph.input('b', 'f32', [2])))
  const plan = await backend.prepare(graph)
  console.log(JSON.stringify([...(await plan.run({ x: Float32Array.of(1, 2), b: Float32Array.of(3, 4) })).y]))
  await backend.close()`

/** The most that an installed package may take: what it says on the box is "a few MB". */
const INSTALLED_BYTES = 12e6

let packed
before(() => {
  packed = [packRoot(at.folder), packPlatform(platform, binary, at.folder)]
})

function* sizes(folder) {
  for (const entry of readdirSync(folder, { withFileTypes: true, recursive: true })) {
    if (entry.isFile()) yield statSync(join(entry.parentPath ?? entry.path, entry.name)).size
  }
}

test('packed, installed into an empty folder without scripts, required and imported', (t) => {
  const app = join(at.folder, 'app')
  mkdirSync(app)
  writeFileSync(join(app, 'package.json'), '{ "name": "app", "private": true }')
  npm(['install', '--offline', '--ignore-scripts', '--no-audit', '--no-fund', ...packed.map(({ path }) => `file:${path}`)], app)
  const env = { ...process.env }
  delete env.CANN_NODE_BINARY_PATH
  const run = (name, text) => {
    writeFileSync(join(app, name), text)
    const { status, stdout, stderr } = spawnSync(process.execPath, [...(name.startsWith('host') ? [] : permissions), name], { cwd: app, env, encoding: 'utf8' })
    assert.equal(status, 0, stderr)
    return stdout
  }
  assert.equal(run('esm.mjs', `import * as cann from 'cann-node'\n${use}`), '[4,6]\n')
  assert.equal(run('cjs.cjs', `const cann = require('cann-node');\n(async () => {${use}})()`), '[4,6]\n')
  const hosted = `const cann = await connect()\n${use}\nawait cann.close()`
  assert.equal(run('host.mjs', `import { connect } from 'cann-node/host'\n${hosted}`), '[4,6]\n')
  assert.equal(run('host.cjs', `const { connect } = require('cann-node/host');\n(async () => {${hosted}})()`), '[4,6]\n')

  const installed = join(app, 'node_modules/cann-node')
  const total = [...sizes(join(app, 'node_modules'))].reduce((a, b) => a + b)
  for (const { name, bytes } of [...packed, { name: 'installed', bytes: total }]) t.diagnostic(`${name}: ${(bytes / 1e6).toFixed(2)} MB`)
  assert.ok(total < INSTALLED_BYTES, `${total} bytes`)
  const manifest = readJson(join(installed, 'package.json'))
  // The examples need nothing that is not in the package, a model included.
  for (const [name, expected] of [['mlp-spirals.mjs', /of 1000 points right/], ['worker-pool.mjs', /^job 8, worker \d: /m]]) {
    const { status, stdout, stderr } = spawnSync(process.execPath, [join(installed, 'examples', name)], { env: { ...env, CANN_NODE_MODEL: '' }, encoding: 'utf8' })
    assert.equal(status, 0, stderr)
    assert.match(stdout, expected)
  }
  assert.equal(manifest.dependencies, undefined)
  assert.equal(manifest.scripts, undefined)
  assert.equal(manifest.devDependencies, undefined)
  const platforms = PLATFORMS.map(({ name }) => [`@cann-node/${name}`, manifest.version])
  assert.deepEqual(manifest.optionalDependencies, Object.fromEntries(platforms))
  const files = readdirSync(installed, { recursive: true }).map(String)
  assert.ok(!files.some((name) => name.endsWith('.node') || name.endsWith('.rs') || name.includes('__test__')), files.join(' '))

  const tsc = join(root, 'node_modules/typescript/bin/tsc')
  const compilerOptions = { noEmit: true, strict: true, module: 'nodenext', target: 'es2022', lib: ['es2022', 'dom'], types: [] }
  writeFileSync(join(app, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['use.mts', 'use.cts'] }))
  writeFileSync(join(app, 'use.mts'), `import { connect } from 'cann-node/host'\nexport const host = connect()\nimport { Backend, type Tensor } from 'cann-node'\nexport const f = async (b: Backend): Promise<Tensor> => b.createTensor({ type: 'f32', ne: [1] })\n`)
  writeFileSync(join(app, 'use.cts'), `import cann = require('cann-node')\nexport const g = (e: unknown): boolean => e instanceof cann.CannError && e.code === 'ERR_IO'\n`)
  const { status, stdout } = spawnSync(process.execPath, [tsc, '-p', '.'], { cwd: app, encoding: 'utf8' })
  assert.equal(status, 0, stdout)
})

test('a platform package is its binary and the licences of what is in it', () => {
  const folder = join(at.folder, 'app/node_modules/@cann-node', platform)
  const files = ['LICENSE', 'NOTICE', 'README.md', 'THIRD-PARTY-LICENSES', `cann-node.${platform}.node`, 'package.json']
  assert.deepEqual(readdirSync(folder).sort(), files)
  const { version, os, cpu, libc, config, preferUnplugged } = readJson(join(folder, 'package.json'))
  const main = readJson(join(root, 'package.json'))
  assert.deepEqual([version, os, cpu, preferUnplugged], [main.version, [process.platform], [process.arch], true])
  if (process.platform === 'linux') assert.deepEqual(libc, [platform.endsWith('musl') ? 'musl' : 'glibc'])
  if (platform.endsWith('-gnu')) assert.deepEqual(config, main.config)
  assert.deepEqual(main.napi.targets, PLATFORMS.map(({ target }) => target))
})

test('a clone installs: what is not yet published is named in the tarball only', () => {
  const main = readJson(join(root, 'package.json'))
  assert.equal(main.optionalDependencies, undefined)
  assert.equal(main.dependencies, undefined)
})

test('scripts/glibc.mjs refuses a binary that needs more than is promised', () => {
  const file = join(at.folder, 'lib.so')
  const check = (text) => {
    writeFileSync(file, text)
    return spawnSync(process.execPath, [join(root, 'scripts/glibc.mjs'), file], { encoding: 'utf8' })
  }
  assert.equal(check('a\0GLIBC_2.2.5\0GLIBC_2.17\0GLIBC_2.14\0').status, 0)
  assert.match(check('a\0GLIBC_2.2.5\0GLIBC_2.18\0GLIBC_2.9\0').stderr, /needs glibc 2\.18/)
  assert.match(check('nothing').stderr, /names no version/)
})

test('without the platform package the error says what to do', () => {
  const app = join(at.folder, 'bare')
  mkdirSync(app)
  writeFileSync(join(app, 'package.json'), '{ "name": "bare", "private": true }')
  npm(['install', '--offline', '--ignore-scripts', '--no-audit', '--no-fund', `file:${packed[0].path}`], app)
  const text = "require('cann-node').listDevices().catch((e) => console.log(e.code + ' ' + e.message))"
  const env = { ...process.env }
  delete env.CANN_NODE_BINARY_PATH
  const { status, stdout } = spawnSync(process.execPath, ['-e', text], { cwd: app, env, encoding: 'utf8' })
  assert.equal(status, 0)
  assert.match(stdout, /^ERR_LOAD cann-node could not load its binary/)
  assert.match(stdout, /--omit=optional/)
})
