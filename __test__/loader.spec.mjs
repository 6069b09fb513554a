import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { copyFileSync, cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { test } from 'node:test'

import { program, root, runtime, withFolder } from './helpers/index.mjs'

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
  assert.match(message, new RegExp(`could not load its binary for .+ \\(${runtime} \\d`))
  assert.ok(message.includes(`CANN_NODE_BINARY_PATH=${path}: ERR_DLOPEN_FAILED`))
})

test('another version is refused', () => {
  const places = [['somewhere', () => ({ version: () => '0.0.0' })]]
  assert.throws(() => load('linux-x64-gnu', places), /somewhere: the binary is version 0\.0\.0 but this is.*[\s\S]*Two versions are mixed/)
})

/** An app with the package installed, whose platform package holds `binary` (nothing: it is not there). Answers with the app's folder. */
function install(name, binary, { version, platform = platformName() } = {}) {
  const modules = join(at.folder, name, 'node_modules')
  const main = join(modules, 'cann-node')
  for (const file of ['index.js', 'lib', 'native.js', 'package.json']) cpSync(join(root, file), join(main, file), { recursive: true })
  if (version) {
    const manifest = JSON.parse(readFileSync(join(main, 'package.json'), 'utf8'))
    writeFileSync(join(main, 'package.json'), JSON.stringify({ ...manifest, version }))
  }
  if (binary) {
    const folder = join(modules, '@cann-node', platform)
    cpSync(join(root, 'npm', platform), folder, { recursive: true })
    writeFileSync(join(folder, `cann-node.${platform}.node`), binary)
  }
  return join(at.folder, name)
}

/** What `listDevices()` rejects with in an app: { code, message, hint }. The process must end by itself. */
function story(app, { args = [], env = {} } = {}) {
  const text = `
    const done = (error) => console.log(JSON.stringify({ ...error, message: error?.message }))
    require('cann-node').listDevices().then(() => done(), done)`
  const own = { ...process.env, ...env }
  if (!env.CANN_NODE_BINARY_PATH) delete own.CANN_NODE_BINARY_PATH
  const { status, signal, stdout, stderr } = spawnSync(process.execPath, [...args, '-e', text], { cwd: app, env: own, encoding: 'utf8' })
  assert.deepEqual([status, signal], [0, null], stderr)
  return JSON.parse(stdout)
}

/** A file's text replaced in place by one that is not longer. */
function patched(binary, from, to) {
  const copy = Buffer.from(binary)
  const where = copy.indexOf(from, 0, 'latin1')
  assert.ok(where > 0, `${JSON.stringify(from)} is in the binary`)
  copy.write(to.padEnd(from.length, '\0'), where, 'latin1')
  return copy
}

const binary = readFileSync(process.env.CANN_NODE_BINARY_PATH ?? join(root, `cann-node.${platformName()}.node`))
const glibc = platformName().endsWith('-gnu')
const elf = process.platform === 'linux'

test('an installed package loads', () => {
  assert.deepEqual(story(install('good', binary)), {})
})

test('the error names platform, runtime, C library and each place', () => {
  const { code, message, attempts } = story(install('none'))
  assert.equal(code, 'ERR_LOAD')
  const system = glibc ? ', glibc \\d+\\.\\d+' : elf ? ', musl' : ''
  assert.match(message, new RegExp(`for ${platformName()} \\(${runtime} ${process.versions[runtime.toLowerCase()].replaceAll('.', '\\.')}${system}\\)`))
  assert.deepEqual(attempts.map(({ where }) => where), [`@cann-node/${platformName()}`])
  assert.match(attempts[0].error, /^MODULE_NOT_FOUND: Cannot find module/)
})

test('advice: the optional dependency was left out', () => {
  assert.match(story(install('omitted')).hint, /--omit=optional[\s\S]*npm\/cli#4828/)
})

test('advice: installed, or locked, on another system', () => {
  const platform = platformName() === 'darwin-arm64' ? 'win32-x64-msvc' : 'darwin-arm64'
  const { hint } = story(install('other', binary, { platform }))
  assert.match(hint, new RegExp(`Installed is the binary of ${platform}.*npm/cli#4828.*npm install --os=`))
})

test('advice: the two packages are of different versions', () => {
  const { message, hint } = story(install('stale', binary, { version: '99.0.0' }))
  assert.match(message, /the binary is version \S+ but this is cann-node 99\.0\.0/)
  assert.match(hint, /Two versions are mixed/)
})

test('advice: addons are switched off', { skip: runtime !== 'Node' && 'the options are those of Node' }, () => {
  const app = install('no-addons', binary)
  assert.match(story(app, { args: ['--no-addons'] }).message, /ERR_DLOPEN_DISABLED[\s\S]*without --no-addons/)
  const flag = process.allowedNodeEnvironmentFlags.has('--permission') ? '--permission' : '--experimental-permission'
  // Node's own error for whatever may not be read differs; the addon's does not.
  const { code, hint } = story(app, { args: [flag, '--allow-fs-read=*', '--no-warnings'] })
  assert.equal(code, 'ERR_LOAD')
  assert.match(hint, /--allow-addons under --permission/)
})

test('advice: a folder mounted noexec', (t) => {
  const folder = join(at.folder, 'mounted')
  mkdirSync(folder)
  const mounted = elf && spawnSync('mount', ['-t', 'tmpfs', '-o', 'noexec,size=64m', 'tmpfs', folder])
  if (mounted?.status !== 0) return t.skip('no tmpfs can be mounted here')
  try {
    assert.match(story(install('mounted', binary)).hint, /mounted noexec/)
  } finally {
    spawnSync('umount', [folder])
  }
})

test('advice: inside an asar archive', () => {
  // What a plain process sees of an archive: a path that leads to nothing.
  const { hint } = story(install(join('app.asar', 'app')))
  assert.match(hint, /inside an asar archive.*asarUnpack/)
  assert.doesNotMatch(story(install(join('app.asar.unpacked', 'app'))).hint, /asar/)
})

test('advice: the binary is for another C library', (t) => {
  if (!glibc) return t.skip('what glibc says')
  const { hint } = story(install('musl', patched(binary, '\0libc.so.6\0', '\0libc.so')))
  assert.match(hint, /another C library: npm install --os=linux --cpu=\w+ --libc=glibc/)
})

test('advice: the binary wants a newer glibc', (t) => {
  if (!glibc) return t.skip('what glibc says')
  const [name] = /\0GLIBC_2\.\d\d\0/.exec(binary.toString('latin1'))
  const { message, hint } = story(install('new', patched(binary, name, '\0GLIBC_2.99')))
  assert.match(message, /GLIBC_2\.99' not found/)
  assert.match(hint, /The system's glibc \(2\.\d+\) is older than this binary needs; the published ones need >=2\.17/)
  assert.doesNotMatch(hint, /another C library/)
})

test('advice: the binary is for another processor', (t) => {
  if (!elf) return t.skip('ELF only')
  const other = Buffer.from(binary)
  other.writeUInt16LE(process.arch === 'x64' ? 183 : 62, 18)
  assert.match(story(install('machine', other)).hint, /for another processor.*npm install --os=linux/)
})

test('advice: a damaged file, which the system would end the process for', () => {
  const sizes = elf ? [0, 10, 100_000, binary.length >> 1] : [10]
  for (const size of sizes) assert.match(story(install(`cut${size}`, binary.subarray(0, size))).hint, /not what was published/)
})

test('advice: the file that is named is not there, or not of this package', () => {
  const app = install('named', binary)
  const { hint } = story(app, { env: { CANN_NODE_BINARY_PATH: 'nowhere.node' } })
  assert.equal(hint, 'CANN_NODE_BINARY_PATH names a file that is not there.')
  writeFileSync(join(app, 'other.cjs'), "exports.version = () => '0.0.0'")
  assert.match(story(app, { env: { CANN_NODE_BINARY_PATH: 'other.cjs' } }).message, /the binary is version 0\.0\.0/)
})

test('advice for what other systems answer', () => {
  const advice = (platform, message) => {
    const open = () => {
      throw Object.assign(new Error(message), { code: 'ERR_DLOPEN_FAILED' })
    }
    try {
      load(platform, [['place', open]])
    } catch (error) {
      return error.hint
    }
    return assert.fail('it loaded')
  }
  const cases = [
    ['linux-x64-musl', 'Error loading shared library ld-linux-x86-64.so.2: No such file or directory', /--libc=musl/],
    ['linux-x64-musl', 'Error relocating /a/b.node: __memcpy_chk: symbol not found', /--libc=musl/],
    ['linux-arm64-gnu', 'libc.musl-aarch64.so.1: cannot open shared object file', /--cpu=arm64 --libc=glibc/],
    ['darwin-arm64', "(mach-o file, but is an incompatible architecture (have 'x86_64', need 'arm64'))", /--os=darwin --cpu=arm64/],
    ['win32-x64-msvc', '\\\\?\\C:\\a.node is not a valid Win32 application.', /--os=win32 --cpu=x64/],
  ]
  for (const [platform, message, expected] of cases) assert.match(advice(platform, message), expected)
  assert.throws(() => load('sunos-sparc', []), /for sunos-sparc[\s\S]*no prebuilt binary/)
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
