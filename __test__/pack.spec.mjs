import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import { copyFileSync, cpSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { test } from 'node:test'

import { root, withFolder } from './helpers/index.mjs'

const at = withFolder()
const { platformName } = createRequire(import.meta.url)('../native.js')
const platform = platformName()
const shell = process.platform === 'win32'
const npm = (args, cwd) => execFileSync('npm', args, { cwd, encoding: 'utf8', shell, stdio: ['ignore', 'pipe', 'pipe'] })

const use = `
  const backend = await cann.Backend.open()
  const graph = new cann.Graph()
  graph.output('y', graph.add(graph.input('x', 'f32', [2]), graph.input('b', 'f32', [2])))
  const plan = await backend.prepare(graph)
  console.log(JSON.stringify([...(await plan.run({ x: Float32Array.of(1, 2), b: Float32Array.of(3, 4) })).y]))
  await backend.close()`

test('packed, installed into an empty folder without scripts, required and imported', () => {
  const packs = join(at.folder, 'packs')
  const binary = join(at.folder, 'binary')
  const app = join(at.folder, 'app')
  for (const folder of [packs, app]) mkdirSync(folder)
  cpSync(join(root, 'npm', platform), binary, { recursive: true })
  const file = `cann-node.${platform}.node`
  copyFileSync(process.env.CANN_NODE_BINARY_PATH ?? join(root, file), join(binary, file))
  npm(['pack', '--ignore-scripts', '--pack-destination', packs], root)
  npm(['pack', '--ignore-scripts', '--pack-destination', packs], binary)
  const tarballs = readdirSync(packs).map((name) => `file:${join(packs, name)}`)
  assert.equal(tarballs.length, 2)

  writeFileSync(join(app, 'package.json'), '{ "name": "app", "private": true }')
  npm(['install', '--offline', '--ignore-scripts', '--no-audit', '--no-fund', ...tarballs], app)
  const env = { ...process.env }
  delete env.CANN_NODE_BINARY_PATH
  const run = (name, text) => {
    writeFileSync(join(app, name), text)
    const { status, stdout, stderr } = spawnSync(process.execPath, [name], { cwd: app, env, encoding: 'utf8' })
    assert.equal(status, 0, stderr)
    return stdout
  }
  assert.equal(run('esm.mjs', `import * as cann from 'cann-node'\n${use}`), '[4,6]\n')
  assert.equal(run('cjs.cjs', `const cann = require('cann-node');\n(async () => {${use}})()`), '[4,6]\n')

  const installed = join(app, 'node_modules/cann-node')
  const manifest = JSON.parse(readFileSync(join(installed, 'package.json'), 'utf8'))
  assert.equal(manifest.dependencies, undefined)
  for (const script of ['install', 'preinstall', 'postinstall', 'prepare']) assert.equal(manifest.scripts?.[script], undefined)
  const files = readdirSync(installed, { recursive: true }).map(String)
  assert.ok(!files.some((name) => name.endsWith('.node') || name.endsWith('.rs') || name.includes('__test__')), files.join(' '))

  const tsc = join(root, 'node_modules/typescript/bin/tsc')
  const compilerOptions = { noEmit: true, strict: true, module: 'nodenext', target: 'es2022', lib: ['es2022', 'dom'], types: [] }
  writeFileSync(join(app, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['use.mts', 'use.cts'] }))
  writeFileSync(join(app, 'use.mts'), `import { Backend, type Tensor } from 'cann-node'\nexport const f = async (b: Backend): Promise<Tensor> => b.createTensor({ type: 'f32', ne: [1] })\n`)
  writeFileSync(join(app, 'use.cts'), `import cann = require('cann-node')\nexport const g = (e: unknown): boolean => e instanceof cann.CannError && e.code === 'ERR_IO'\n`)
  const { status, stdout } = spawnSync(process.execPath, [tsc, '-p', '.'], { cwd: app, encoding: 'utf8' })
  assert.equal(status, 0, stdout)
})

test('without the platform package the error says what to do', () => {
  const app = join(at.folder, 'bare')
  mkdirSync(app)
  const packs = join(at.folder, 'packs')
  writeFileSync(join(app, 'package.json'), '{ "name": "bare", "private": true }')
  const main = readdirSync(packs).find((name) => /^cann-node-\d/.test(name))
  npm(['install', '--offline', '--ignore-scripts', '--no-audit', '--no-fund', `file:${join(packs, main)}`], app)
  const text = "require('cann-node').listDevices().catch((e) => console.log(e.code + ' ' + e.message))"
  const env = { ...process.env }
  delete env.CANN_NODE_BINARY_PATH
  const { status, stdout } = spawnSync(process.execPath, ['-e', text], { cwd: app, env, encoding: 'utf8' })
  assert.equal(status, 0)
  assert.match(stdout, /^ERR_LOAD cann-node could not load its binary/)
  assert.match(stdout, /--omit=optional/)
})
