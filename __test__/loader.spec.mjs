import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { copyFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { test } from 'node:test'

import { program, root, withFolder } from './helpers/index.mjs'

const at = withFolder()
const { load, platformName } = createRequire(import.meta.url)('../native.js')

test('ESM and CommonJS are one package', async () => {
  const esm = await import('../index.mjs')
  const cjs = createRequire(import.meta.url)('../index.js')
  assert.deepEqual(Object.keys(esm).filter((name) => name !== 'default').sort(), Object.keys(cjs).sort())
  for (const name of Object.keys(cjs)) assert.equal(esm[name], cjs[name])
})

test('a binary by path', async () => {
  const path = join(at.folder, 'other.node')
  copyFileSync(process.env.CANN_NODE_BINARY_PATH ?? join(root, `cann-node.${platformName()}.node`), path)
  const { code, stdout } = await program('console.log((await cann.listDevices()).length > 0)', { env: { CANN_NODE_BINARY_PATH: path } })
  assert.deepEqual([code, stdout], [0, 'true\n'])
})

test('importing works without a binary; the first call says what was tried', async () => {
  const path = join(at.folder, 'broken.node')
  writeFileSync(path, 'this is no library')
  const text = `
    const error = await cann.listDevices().catch((e) => e)
    console.log(JSON.stringify([error instanceof cann.CannError, error.code, error.message]))
    try { new cann.Graph() } catch (e) { console.log(e.code) }`
  const { code, stdout } = await program(text, { env: { CANN_NODE_BINARY_PATH: path } })
  assert.equal(code, 0)
  const [first, second] = stdout.trim().split('\n')
  const [isCann, errorCode, message] = JSON.parse(first)
  assert.deepEqual([isCann, errorCode, second], [true, 'ERR_LOAD', 'ERR_LOAD'])
  assert.match(message, /could not load its binary for .+ \(Node/)
  assert.ok(message.includes(`CANN_NODE_BINARY_PATH=${path}: ERR_DLOPEN_FAILED`))
})

test('another version is refused', () => {
  const places = [['somewhere', () => ({ version: () => '0.0.0' })]]
  assert.throws(() => load('linux-x64-gnu', places), /somewhere: the binary is version 0\.0\.0 but this is.*[\s\S]*Two versions are mixed/)
})

test('advice by cause', () => {
  // A binary named from outside would be opened first.
  const named = process.env.CANN_NODE_BINARY_PATH
  delete process.env.CANN_NODE_BINARY_PATH
  const advice = (platform, code, message) => {
    const open = () => {
      throw Object.assign(new Error(message), { code })
    }
    try {
      load(platform, [['place', open]])
    } catch (error) {
      assert.deepEqual(error.attempts.map(({ where }) => where), ['place'])
      return error.message
    }
    return assert.fail('it loaded')
  }
  const cases = [
    ['linux-x64-gnu', 'MODULE_NOT_FOUND', "Cannot find module '@cann-node/linux-x64-gnu'", /--omit=optional[\s\S]*npm\/cli#4828/],
    ['linux-x64-gnu', 'ERR_DLOPEN_FAILED', "/lib/libc.so.6: version `GLIBC_2.34' not found", /glibc is older/],
    ['linux-x64-musl', 'ERR_DLOPEN_FAILED', 'Error loading shared library ld-linux-x86-64.so.2', /--libc=musl/],
    ['linux-x64-gnu', 'ERR_DLOPEN_FAILED', 'invalid ELF header', /another processor or system/],
    ['linux-x64-gnu', 'ERR_DLOPEN_DISABLED', 'Cannot load native addon', /--allow-addons/],
    ['linux-x64-gnu', 'ERR_DLOPEN_FAILED', 'failed to map segment from shared object', /noexec/],
  ]
  for (const [platform, code, message, expected] of cases) assert.match(advice(platform, code, message), expected)
  assert.throws(() => load('sunos-sparc'), /no package for sunos-sparc|Tried/)
  if (named !== undefined) process.env.CANN_NODE_BINARY_PATH = named
})

test('the addon exports no name of ACL: it must never be taken for the vendor\'s library', (t) => {
  if (process.platform !== 'linux') return t.skip('ELF only')
  const binary = process.env.CANN_NODE_BINARY_PATH ?? join(root, `cann-node.${platformName()}.node`)
  const { error, stdout } = spawnSync('nm', ['-D', '--defined-only', binary], { encoding: 'utf8' })
  if (error) return t.skip('no nm here')
  const names = stdout.trim().split('\n').map((line) => line.split(' ').at(-1))
  assert.ok(names.includes('napi_register_module_v1'))
  assert.deepEqual(names.filter((name) => /^_?acl/.test(name)), [])
})
