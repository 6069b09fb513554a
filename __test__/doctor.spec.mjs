// `driverReport()` and `cann-node doctor` on machines that are laid out in folders: real files, real libraries, really opened. What is
// looked for below `/` is looked for in CANN_NODE_ROOT instead.
//
// The libraries are the stand-in's (`cargo build -p acl-host-cabi`); without it the tests that need it are skipped. One that lacks a
// function, or needs a library that is not there, is a copy with one name in its table of names changed.

import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import fs, { chmodSync, copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { after, describe, test } from 'node:test'

import { root } from './helpers/index.mjs'
import { builtLibrary } from '../scripts/built-library.mjs'

const { checkAll } = createRequire(import.meta.url)('../lib/doctor.js')
const { platformName } = createRequire(import.meta.url)('../native.js')

const NAMES = ['libascendcl.so', 'libnnopbase.so', 'libopapi.so']
const glibc = process.platform === 'linux' && platformName().endsWith('gnu')
const standIn = builtLibrary('ascendcl_host')
const skip = !glibc ? 'CANN is for Linux with glibc' : standIn ? false : 'libascendcl_host.so is not built (cargo build -p acl-host-cabi)'
if (glibc && skip) console.log(`skipped: ${skip}`)

const made = []
after(() => made.forEach((folder) => rmSync(folder, { recursive: true, force: true })))

/** A file system of these files: a string is a text, a function makes the file. */
function machine(files = {}) {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'cann-node-doctor-')))
  made.push(folder)
  for (const [name, content] of Object.entries({ 'etc/os-release': 'NAME=test\n', ...files })) {
    const path = join(folder, name)
    mkdirSync(dirname(path), { recursive: true })
    if (typeof content === 'function') content(path)
    else writeFileSync(path, content)
  }
  return folder
}

const link = (path) => symlinkSync(standIn, path)
const toolkit = (folder, names, content = link) => Object.fromEntries(names.map((name) => [`${folder}/lib64/${name}`, content]))

/** A copy of a library in which names are others of the same length. */
const copy = (names, from = standIn) => (path) => {
  const bytes = readFileSync(from)
  for (const [name, other] of Object.entries(names)) {
    assert.equal(name.length, other.length)
    const [find, put] = [name, other].map((text) => Buffer.from(`\0${text}\0`))
    let changed = 0
    for (let at = bytes.indexOf(find); at >= 0; at = bytes.indexOf(find, at + 1), changed++) put.copy(bytes, at)
    assert.ok(changed > 0, `${name} is in ${from}`)
  }
  writeFileSync(path, bytes)
}

const DRIVER = {
  'dev/davinci0': '', 'dev/davinci1': '', 'dev/davinci10': '', 'dev/davinci_manager': '', 'dev/devmm_svm': '', 'dev/hisi_hdc': '',
  'usr/local/Ascend/driver/version.info': 'Version=24.1.rc1\nascendhal_version=7.35.19\n',
  'usr/local/Ascend/driver/lib64/driver/libascend_hal.so': 'not opened',
  'etc/ascend_install.info': 'UserName=HwHiAiUser\nUserGroup=HwHiAiUser\nDriver_Install_Path_Param=/usr/local/Ascend\n',
}

/** The doctor on such a machine, as text and as JSON: { code, text, json, cann, check(name) }. */
async function doctor(folder, env = {}) {
  const [text, json] = await Promise.all([run([], folder, env), run(['--json'], folder, env)])
  assert.equal(text.code, json.code)
  const parsed = JSON.parse(json.stdout)
  const cann = parsed.drivers.find(({ driver }) => driver === 'cann')
  const check = (name) => {
    const found = cann.checks.find((one) => one.name === name)
    // Both ways say the same.
    const mark = { true: '✔', false: '✘', null: '-' }[found.ok]
    assert.ok(text.stdout.includes(`  ${mark} ${name.padEnd(12)} ${found.found}\n`), `${name}: ${found.found}\n${text.stdout}`)
    assert.equal(found.ok === false, found.next !== null)
    if (found.next) assert.ok(text.stdout.includes(`next: ${found.next}\n`), `${found.next}\n${text.stdout}`)
    return found
  }
  return { code: text.code, text: text.stdout, json: parsed, cann, check }
}

function run(args, folder, more) {
  const kept = Object.entries(process.env).filter(([name]) => !/^(ASCEND_|CANN_NODE_HOST_|CANN_NODE_ACL_LIB|KUBERNETES_|LD_LIBRARY_PATH)/.test(name))
  const env = { ...Object.fromEntries(kept), HOME: '/home/me', CANN_NODE_ROOT: folder, ...more }
  const child = spawn(process.execPath, [join(root, 'bin/cann-node.mjs'), 'doctor', ...args], { env, stdio: ['ignore', 'pipe', 'pipe'] })
  let [stdout, stderr] = ['', '']
  child.stdout.on('data', (data) => (stdout += data))
  child.stderr.on('data', (data) => (stderr += data))
  return new Promise((resolve, reject) => {
    child.on('error', reject)
    child.on('close', (code) => (stdout ? resolve({ code, stdout, stderr }) : reject(new Error(`ended with ${code}: ${stderr}`))))
  })
}

describe('the doctor', { skip: glibc ? false : 'CANN is for Linux with glibc' }, () => {
  test('without CANN: what is missing, and that nothing has to be done without an NPU', async () => {
    const { code, cann, check, text } = await doctor(machine())
    assert.equal(code, 0, 'the embedded device computes')
    assert.match(text, /✘ Ascend NPU \(CANN\): not available/)
    assert.match(text, /✔ HOST0 computes/)
    for (const name of ['platform', 'libc', 'addon', 'environment']) assert.equal(check(name).ok, true, name)
    for (const name of ['permissions', 'container', 'functions', 'devices']) assert.equal(check(name).ok, null, name)
    assert.match(check('device-nodes').found, /none of \/dev\/davinci\*/)
    assert.match(check('device-nodes').next, /install the NPU's driver and firmware .* nothing to do: graphs run on HOST0/)
    assert.match(check('driver').found, /^not in \/usr\/local\/Ascend\/driver$/)
    assert.match(check('toolkit').next, /install the CANN toolkit .* ASCEND_HOME_PATH/)
    assert.equal(check('libraries').found, 'none was found')
    assert.match(check('libraries').next, /install the CANN toolkit/)
    assert.match(check('addon').found, /cann-node.*\.node$/)
    assert.equal(cann.hint, check('device-nodes').next)
    // Where it was looked for, in order.
    const places = cann.libraries[0].error.replace('not in ', '').split(', ').map((place) => place.replace(/^.*?\/(usr|home)\//, '/$1/'))
    assert.deepEqual(places.slice(0, 5), ['cann', 'ascend-toolkit/latest', 'latest', 'nnrt/latest'].map((name) => `/usr/local/Ascend/${name}`).concat('/home/me/Ascend/cann'))
  })

  test('a library that is a text file', async () => {
    const folder = machine({ ...DRIVER, ...toolkit('opt/cann', NAMES, 'this is no library, but it is long enough to have the header of one, which it has not\n') })
    const { cann, check } = await doctor(folder, { ASCEND_HOME_PATH: join(folder, 'opt/cann') })
    const file = join(folder, 'opt/cann/lib64/libascendcl.so')
    assert.equal(check('libraries').found, `${file}: invalid ELF header`)
    assert.match(check('libraries').next, /libascendcl\.so is no library for this machine: install the toolkit/)
    // Everything before it is right, so this is the cause.
    assert.equal(cann.hint, check('libraries').next)
    assert.equal(check('driver').found, '24.1.rc1 in /usr/local/Ascend/driver')
    assert.equal(check('device-nodes').found, '/dev/davinci0, /dev/davinci1, /dev/davinci10, /dev/davinci_manager, /dev/devmm_svm, /dev/hisi_hdc')
  })

  test('a toolkit without operators', async () => {
    const folder = machine(toolkit('usr/local/Ascend/cann', NAMES.slice(0, 2), 'not opened'))
    const { cann, check } = await doctor(folder)
    assert.match(check('libraries').found, /^libopapi\.so: not beside .*libascendcl\.so: the installation is incomplete$/)
    assert.match(check('libraries').next, /has no libopapi\.so: install it again, with the operator package/)
    assert.equal(cann.libraries.length, 1)
  })

  test('variables that point nowhere', async () => {
    const { check } = await doctor(machine(), { ASCEND_HOME_PATH: '/nonexistent/cann', ASCEND_OPP_PATH: '/nonexistent/opp' })
    assert.equal(check('environment').found, 'ASCEND_HOME_PATH=/nonexistent/cann does not exist; ASCEND_OPP_PATH=/nonexistent/opp does not exist')
    assert.equal(check('environment').next, 'unset ASCEND_HOME_PATH and ASCEND_OPP_PATH, or point them to what is there')
    const path = await doctor(machine(), { LD_LIBRARY_PATH: '/nonexistent/Ascend/lib64' })
    assert.match(path.check('environment').found, /LD_LIBRARY_PATH has \/nonexistent\/Ascend\/lib64, which does not exist/)
  })
})

describe('the doctor with libraries', { skip, timeout: 300_000 }, () => {
  test('a library that another needs is missing', async () => {
    const needing = copy({ 'libgcc_s.so.1': 'libasc_hal.so' })
    const folder = machine({ ...DRIVER, ...toolkit('usr/local/Ascend/latest', NAMES, needing) })
    const { cann, check } = await doctor(folder)
    const file = join(folder, 'usr/local/Ascend/latest/lib64/libascendcl.so')
    assert.equal(check('libraries').found, `${file}: libasc_hal.so: cannot open shared object file: No such file or directory`)
    assert.equal(check('libraries').next, `${file} needs libasc_hal.so, which is not there: source the toolkit's set_env.sh, or install the toolkit again if that does not help`)
    assert.equal(cann.hint, check('libraries').next)
  })

  const folders = ['/lib/x86_64-linux-gnu', '/lib/aarch64-linux-gnu', '/lib64', '/usr/lib64', '/lib', '/usr/lib']
  const libgcc = folders.map((folder) => join(folder, 'libgcc_s.so.1')).find((file) => existsSync(file))
  test('what lies in the driver\'s folder is found there, without any variable', { skip: !libgcc }, async () => {
    const files = {
      ...toolkit('usr/local/Ascend/latest', ['libascendcl.so'], copy({ 'libgcc_s.so.1': 'libasc_hal.so' })),
      ...Object.fromEntries(NAMES.slice(1).map((name) => [`usr/local/Ascend/latest/lib64/${name}`, (path) => symlinkSync('libascendcl.so', path)])),
      'usr/local/Ascend/driver/lib64/common/libasc_hal.so': copy({ 'libgcc_s.so.1': 'libasc_hal.so' }, libgcc),
    }
    const { cann, check, text } = await doctor(machine(files))
    assert.deepEqual(cann.libraries.map(({ name, error }) => [name, error]), [['libasc_hal.so', null], ...NAMES.map((name) => [name, null])])
    assert.equal(check('devices').ok, true)
    assert.match(text, /✔ CANN0 computes/)
  })

  test('a function that no device does without is missing', async () => {
    const folder = machine({ ...DRIVER, ...toolkit('opt/cann', NAMES, copy({ aclrtSetDevice: 'aclrtSetDevicX' })) })
    const { cann, check } = await doctor(folder, { ASCEND_TOOLKIT_HOME: join(folder, 'opt/cann') })
    assert.equal(cann.available, false)
    assert.equal(check('libraries').ok, true)
    assert.equal(check('functions').found, 'missing: aclrtSetDevice')
    assert.match(check('functions').next, /libascendcl\.so has no aclrtSetDevice: install a toolkit of CANN 7 or later/)
    assert.equal(cann.hint, check('functions').next)
    assert.deepEqual(cann.missingSymbols, ['aclrtSetDevice'])
  })

  test('an operator that is missing costs that operator', async () => {
    const folder = machine({
      ...toolkit('opt/cann', ['libascendcl.so'], copy({ aclnnSilu: 'aclnnSilX' })),
      ...Object.fromEntries(NAMES.slice(1).map((name) => [`opt/cann/lib64/${name}`, (path) => symlinkSync('libascendcl.so', path)])),
    })
    const { cann, check, text } = await doctor(folder, { ASCEND_HOME_PATH: join(folder, 'opt/cann') })
    assert.equal(cann.available, true)
    assert.match(check('functions').found, /refused or done otherwise: aclnnSiluGetWorkspaceSize, aclnnSilu$/)
    assert.match(text, /✔ CANN0 computes/)
  })

  test('the stand-in under the vendor\'s names, in dependency order', async () => {
    const folder = machine({
      ...toolkit('opt/ascend-toolkit/latest', NAMES),
      'opt/ascend-toolkit/latest/version.cfg': '# version: 1.0\nruntime_running_version=[7.6.0.1.220:8.0.0]\ntoolkit_running_version=[7.6.0.1.220:8.0.0]\n',
      'opt/ascend-toolkit/set_env.sh': '',
    })
    const home = join(folder, 'opt/ascend-toolkit/latest')
    const { code, cann, check, text } = await doctor(folder, { ASCEND_HOME_PATH: home, ASCEND_OPP_PATH: home })
    assert.deepEqual([code, cann.available, cann.hint, cann.version, cann.toolkit], [0, true, null, '8.0.0', home])
    assert.deepEqual(cann.libraries, NAMES.map((name) => ({ name, path: join(home, 'lib64', name), error: null })))
    assert.match(check('toolkit').found, /^8\.0\.0, ACL 1\.\d+\.\d+ in /)
    assert.deepEqual(['libraries', 'functions', 'devices', 'environment'].map((name) => check(name).ok), [true, true, true, true])
    // It answers without what an NPU would need.
    assert.equal(check('device-nodes').ok, null)
    assert.match(check('device-nodes').found, /devices answer all the same$/)
    assert.match(text, /✔ Ascend NPU \(CANN\) 8\.0\.0: available/)
    assert.match(text, /✔ CANN0 computes/)
    const unset = await doctor(folder, { ASCEND_HOME_PATH: home })
    assert.equal(unset.check('environment').next, `source ${join(folder, 'opt/ascend-toolkit/set_env.sh')} before the program starts`)
  })

  test('newer names, an architecture\'s own folder, and operators that are split', async () => {
    const split = ['libopapi_math.so', 'libopapi_nn.so', 'libopapi_cv.so', 'libopapi_transformer.so']
    const arch = { x64: 'x86_64', arm64: 'aarch64' }[process.arch]
    const files = Object.fromEntries(['libacl_rt.so', 'libnnopbase.so', ...split].map((name) => [`usr/local/Ascend/cann/${arch}-linux/lib64/${name}`, link]))
    const { cann } = await doctor(machine(files))
    assert.equal(cann.available, true)
    assert.deepEqual(cann.libraries.map(({ name, error }) => [name, error]), ['libacl_rt.so', 'libnnopbase.so', ...split].map((name) => [name, null]))
    // The one library first; the split ones only where it does not open, so that they never meet.
    const broken = { 'usr/local/Ascend/cann/lib64/libopapi.so': 'this is no library, but it is long enough to have the header of one, which it has not\n' }
    const { cann: other } = await doctor(machine({ ...files, ...broken }))
    assert.deepEqual(other.libraries.map(({ name, error }) => [name, error === null]), [
      ['libacl_rt.so', true], ['libnnopbase.so', true], ['libopapi.so', false], ...split.map((name) => [name, true]),
    ])
    const { cann: both } = await doctor(machine({ ...files, 'usr/local/Ascend/cann/lib64/libopapi.so': link }))
    assert.deepEqual(both.libraries.map(({ name }) => name), ['libacl_rt.so', 'libnnopbase.so', 'libopapi.so'])
  })

  test('a library named by CANN_NODE_ACL_LIB, a file or a folder', async () => {
    const folder = machine(toolkit('any', NAMES))
    for (const named of [standIn, join(folder, 'any/lib64')]) {
      const { cann, check } = await doctor(folder, { CANN_NODE_ACL_LIB: named })
      assert.equal(cann.available, true)
      assert.equal(check('device-nodes').found, 'CANN_NODE_ACL_LIB names a library')
      assert.match(check('environment').found, /CANN_NODE_ACL_LIB=/)
    }
    const { cann, check } = await doctor(folder, { CANN_NODE_ACL_LIB: '/nonexistent/libacl.so' })
    assert.equal(check('environment').found, 'CANN_NODE_ACL_LIB=/nonexistent/libacl.so does not exist')
    assert.equal(cann.hint, check('environment').next)
  })
})

describe('the checks', () => {
  const report = {
    driver: 'cann', available: false, version: null, libraries: [], missingSymbols: [], essentialMissing: [],
    toolkit: null, interfaceVersion: null, driverVersion: null, hint: 'install it',
  }
  const me = { platform: 'linux', arch: 'arm64', libc: { abi: 'gnu', version: '2.28' }, env: {}, uid: 1001, groups: [1001], access() {} }
  const look = (at, given = {}) => {
    const checks = checkAll({ ...report, ...given }, { path: '/p/x.node', version: '0.1.0' }, { ...me, ...at })
    return Object.fromEntries(checks.map(({ name, ...rest }) => [name, rest]))
  }
  const refuse = () => {
    throw new Error('EACCES')
  }

  test('permissions: the group of the nodes, by name, and whether the user is in it', () => {
    const folder = machine(DRIVER)
    const { gid, uid } = statSync(join(folder, 'dev/davinci0'))
    writeFileSync(join(folder, 'etc/group'), `root:x:${gid + 1}:\nHwHiAiUser:x:${gid}:\n`)
    writeFileSync(join(folder, 'etc/passwd'), `HwHiAiUser:x:${uid}:${gid}::/home/x:/bin/sh\nnode:x:1001:1001::/home/node:/bin/sh\n`)
    for (const node of ['davinci0', 'davinci1', 'davinci10', 'davinci_manager', 'devmm_svm', 'hisi_hdc']) chmodSync(join(folder, 'dev', node), 0o660)
    assert.deepEqual(look({ root: folder }).permissions, { ok: true, found: 'node may read and write all 6 nodes', next: null })

    const outside = look({ root: folder, access: refuse, groups: [gid + 7] }).permissions
    assert.match(outside.found, /^node is not in the group HwHiAiUser and may not use \/dev\/davinci0, .* \(HwHiAiUser:HwHiAiUser 0660\)$/)
    assert.equal(outside.next, 'sudo usermod -aG HwHiAiUser node, then log in again')

    const member = look({ root: folder, access: refuse, groups: [gid] }).permissions
    assert.match(member.found, /^node is in the group HwHiAiUser/)
    assert.match(member.next, /SELinux/)

    chmodSync(join(folder, 'dev/davinci0'), 0o600)
    assert.match(look({ root: folder, access: refuse, groups: [gid] }).permissions.next, /^let the group HwHiAiUser use them: sudo chmod g\+rw/)

    writeFileSync(join(folder, '.dockerenv'), '')
    chmodSync(join(folder, 'dev/davinci0'), 0o660)
    assert.equal(look({ root: folder, access: refuse, groups: [gid + 7] }).permissions.next, `start the container with --group-add ${gid}, or as the user HwHiAiUser`)
  })

  test('a node that the user may not open is found by trying', { skip: process.platform === 'win32' && 'no such permissions' }, (t) => {
    const folder = machine(DRIVER)
    chmodSync(folder, 0o755)
    chmodSync(join(folder, 'dev/hisi_hdc'), 0o000)
    const code = `
      const { checkAll, surroundings } = require(${JSON.stringify(join(root, 'lib/doctor.js'))})
      const at = { ...surroundings(), platform: 'linux', libc: { abi: 'gnu' }, root: ${JSON.stringify(folder)}, env: {} }
      console.log(JSON.stringify(checkAll(${JSON.stringify(report)}, {}, at)))`
    // Root may everything, so somebody else looks.
    const nobody = process.getuid() === 0 ? { uid: 65534, gid: 65534 } : {}
    const { status, stdout, stderr } = spawnSync(process.execPath, ['-e', code], { ...nobody, cwd: tmpdir(), encoding: 'utf8' })
    if (status !== 0 && /EACCES|Cannot find module/.test(stderr ?? 'EACCES')) return t.skip('others may not read the checkout')
    assert.equal(status, 0, stderr)
    const { found } = JSON.parse(stdout).find(({ name }) => name === 'permissions')
    assert.match(found, /may not use .*\/dev\/hisi_hdc/)
  })

  test('a relative folder in the environment', () => {
    assert.equal(look({ root: machine(), env: { ASCEND_HOME_PATH: '.' } }).environment.next, 'make ASCEND_HOME_PATH absolute')
  })

  test('a device node that leads nowhere', () => {
    const dangling = { 'dev/davinci0': (path) => symlinkSync('nowhere', path), 'dev/davinci_manager': '', 'dev/devmm_svm': '', 'dev/hisi_hdc': '' }
    const { ok, found, next } = look({ root: machine(dangling), access: fs.accessSync }).permissions
    assert.deepEqual([ok, found], [false, '/dev/davinci0 is a link that leads nowhere'])
    assert.match(next, /remove the link/)
  })

  test('device nodes: some, none, and those of a board', () => {
    const some = look({ root: machine({ 'dev/davinci0': '', 'dev/davinci_manager': '' }) })['device-nodes']
    assert.equal(some.found, '/dev/davinci0, /dev/davinci_manager, but not /dev/devmm_svm, /dev/hisi_hdc')
    assert.match(some.next, /dmesg/)
    assert.equal(look({ root: machine({ 'dev/davinci0': '', 'dev/davinci_manager': '', 'dev/svm0': '' }) })['device-nodes'].ok, true)
  })

  test('a container: which nodes and folders it lacks, and the options that give them', () => {
    const { container, 'device-nodes': devices, driver } = look({ root: machine({ '.dockerenv': '', 'dev/davinci3': '', 'dev/davinci_manager': '', 'dev/hisi_hdc': '' }) })
    assert.equal(container.found, 'lacks /dev/devmm_svm, /usr/local/Ascend/driver/lib64, /usr/local/Ascend/driver/version.info, /etc/ascend_install.info')
    assert.match(container.next, /--device \/dev\/devmm_svm -v \/usr\/local\/Ascend\/driver\/lib64:\/usr\/local\/Ascend\/driver\/lib64:ro/)
    assert.match(devices.next, /^give the container the nodes: --device \/dev\/devmm_svm;/)
    assert.match(driver.next, /^mount the host's: -v \/usr\/local\/Ascend\/driver:/)
    for (const sign of [{ 'run/.containerenv': '' }, { 'proc/1/cgroup': '0::/kubepods/besteffort/pod1\n' }]) {
      assert.deepEqual(look({ root: machine({ ...DRIVER, ...sign }) }).container, { ok: true, found: 'has the device nodes and the driver', next: null })
    }
    assert.equal(look({ root: machine(DRIVER) }).container.ok, null)
  })

  test('the driver where its installer says it is', () => {
    const files = {
      'etc/ascend_install.info': 'Driver_Install_Path_Param=/data/npu\n',
      'data/npu/driver/version.info': 'Version=25.0.rc1\n',
      'data/npu/driver/lib64/driver/libascend_hal.so': '',
    }
    assert.equal(look({ root: machine(files) }).driver.found, '25.0.rc1 in /data/npu/driver')
    delete files['data/npu/driver/lib64/driver/libascend_hal.so']
    assert.match(look({ root: machine(files) }).driver.found, /without libascend_hal\.so/)
  })

  test('musl, and systems that CANN does not have', () => {
    const musl = look({ root: machine(), libc: { abi: 'musl' } })
    assert.match(musl.libc.next, /CANN has no libraries for musl/)
    const mac = look({ root: machine(), platform: 'darwin', libc: undefined })
    assert.match(mac.platform.next, /for an NPU use Linux/)
    for (const checks of [musl, mac]) {
      for (const [name, { ok }] of Object.entries(checks)) {
        if (!['platform', 'libc', 'addon'].includes(name)) assert.equal(ok, null, name)
      }
    }
  })
})
