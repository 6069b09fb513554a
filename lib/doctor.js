'use strict'

// Why an Ascend NPU can or cannot be used: the machine looked at from outside, file by file. Each check has what was found and, where
// it fails, one next step. What the libraries answered comes from the addon; nothing here opens one.

const fs = require('node:fs')
const { isAbsolute, join } = require('node:path')
const { libc, platformName } = require('../native.js')

/** Where the checks look: `root` stands for `/`. */
function surroundings() {
  const { platform, arch, env } = process
  return {
    root: env.CANN_NODE_ROOT || '/',
    env,
    platform,
    arch,
    libc: libc(),
    uid: process.getuid?.() ?? null,
    groups: process.getgroups?.() ?? [],
    access: (path) => fs.accessSync(path, fs.constants.R_OK | fs.constants.W_OK),
  }
}

const NO_NPU = 'without an Ascend NPU there is nothing to do: graphs run on HOST0'

const pass = (name, found) => ({ name, ok: true, found, next: null })
const fail = (name, found, next) => ({ name, ok: false, found, next })
const skip = (name, found) => ({ name, ok: null, found, next: null })

/** All checks, causes before what follows from them. `report` is the addon's on CANN, `addon` its { path, version }. */
function checkAll(report, addon, at) {
  const own = at.env.CANN_NODE_ACL_LIB
  const linux = at.platform === 'linux' && at.libc?.abi === 'gnu'
  const machine = [deviceNodes, permissions, driver, container, toolkit, environment]
  const libraries = [librariesOpen, functions, devices]
  const checks = [platform(at), cLibrary(at), binary(addon)]
  for (const check of machine) {
    if (!linux) checks.push(skip(check.label, 'CANN does not exist here'))
    else if (own && check !== environment) checks.push(skip(check.label, 'CANN_NODE_ACL_LIB names a library'))
    else checks.push(unneeded(report, check(at, report)))
  }
  for (const check of libraries) checks.push(linux || own ? check(at, report) : skip(check.label, 'CANN does not exist here'))
  return checks
}

/** Devices that answer need nothing that a look from outside finds missing. */
function unneeded({ available }, check) {
  if (!available || check.ok !== false || check.name === 'environment') return check
  return skip(check.name, `${check.found}; devices answer all the same`)
}

function platform({ platform, arch }) {
  const found = `${platform} ${arch}`
  if (platform === 'linux' && (arch === 'x64' || arch === 'arm64')) return pass('platform', found)
  return fail('platform', found, 'for an NPU use Linux on x64 or arm64; here graphs run on the embedded device, HOST0')
}

function cLibrary({ libc }) {
  if (libc === undefined) return skip('libc', 'not Linux')
  const found = [libc.abi === 'gnu' ? 'glibc' : 'musl', libc.version].filter(Boolean).join(' ')
  if (libc.abi === 'gnu') return pass('libc', found)
  return fail('libc', found, 'for an NPU use a system (or an image) with glibc, such as Debian or openEuler: CANN has no libraries for musl')
}

function binary({ path, version }) {
  return pass('addon', `${version} for ${platformName()}, ${path ?? 'from an unknown place'}`)
}

// ---------------------------------------------------------------- the machine

const NODES = ['davinci_manager', 'devmm_svm', 'hisi_hdc']

/** Device nodes that there are, and those that an NPU needs and there are not. */
function nodes({ root }) {
  const names = list(join(root, 'dev'))
  const chips = names.filter((name) => /^davinci\d+$/.test(name)).sort(byNumber)
  // Boards whose chip is the host itself (310B) have svm0 in place of the last two.
  const board = names.includes('svm0')
  const needed = board ? ['davinci_manager', 'svm0'] : NODES
  const there = [...chips, ...needed.filter((name) => names.includes(name))].map((name) => `/dev/${name}`)
  const missing = [...(chips.length ? [] : ['davinci0']), ...needed.filter((name) => !names.includes(name))].map((name) => `/dev/${name}`)
  return { there, missing }
}

function deviceNodes(at) {
  const { there, missing } = nodes(at)
  if (missing.length === 0) return pass('device-nodes', there.join(', '))
  const found = there.length ? `${there.join(', ')}, but not ${missing.join(', ')}` : `none of /dev/davinci*, ${NODES.map((name) => `/dev/${name}`).join(', ')}`
  if (inContainer(at)) return fail('device-nodes', found, `give the container the nodes: ${missing.map((node) => `--device ${node}`).join(' ')}; ${NO_NPU}`)
  if (there.length) return fail('device-nodes', found, 'restart the machine, and if they are still missing install the driver again; `dmesg` says why a device did not come up')
  return fail('device-nodes', found, `install the NPU's driver and firmware and restart; ${NO_NPU}`)
}
deviceNodes.label = 'device-nodes'

function permissions(at) {
  const { there } = nodes(at)
  if (there.length === 0) return skip('permissions', 'there are no device nodes')
  // Not every runtime's access() follows a link.
  const nowhere = there.find((node) => !fs.existsSync(join(at.root, node)))
  if (nowhere) return fail('permissions', `${nowhere} is a link that leads nowhere`, `give the container ${nowhere} itself, or remove the link`)
  const refused = there.filter((node) => {
    try {
      at.access(join(at.root, node))
      return false
    } catch {
      return true
    }
  })
  const user = nameOf(at, 'passwd', at.uid)
  if (refused.length === 0) return pass('permissions', `${user} may read and write all ${there.length} nodes`)
  const { gid, uid, mode } = fs.statSync(join(at.root, refused[0]))
  const group = nameOf(at, 'group', gid)
  const owner = `${nameOf(at, 'passwd', uid)}:${group} ${(mode & 0o777).toString(8).padStart(4, '0')}`
  const member = at.groups.includes(gid)
  const found = `${user} ${member ? 'is' : 'is not'} in the group ${group} and may not use ${refused.join(', ')} (${owner})`
  if ((mode & 0o060) !== 0o060) return fail('permissions', found, `let the group ${group} use them: sudo chmod g+rw ${refused.join(' ')}`)
  if (member) return fail('permissions', found, 'look at what else keeps the process from them: a control group, SELinux or AppArmor')
  if (inContainer(at)) return fail('permissions', found, `start the container with --group-add ${gid}, or as the user ${nameOf(at, 'passwd', uid)}`)
  return fail('permissions', found, `sudo usermod -aG ${group} ${user}, then log in again`)
}
permissions.label = 'permissions'

/** The folder below which the driver was installed, as its installer noted it. */
function driverFolder({ root }) {
  const base = value(read(join(root, 'etc/ascend_install.info')), 'Driver_Install_Path_Param')
  return `${base ?? '/usr/local/Ascend'}/driver`
}

function driver(at, report) {
  const folder = driverFolder(at)
  const version = value(read(join(at.root, folder, 'version.info')), 'Version') ?? report.driverVersion ?? 'of an unknown version'
  const lib64 = `${folder}/lib64`
  const hal = ['driver', 'common', '.'].some((place) => fs.existsSync(join(at.root, lib64, place, 'libascend_hal.so')))
  if (hal) return pass('driver', `${version} in ${folder}`)
  const found = fs.existsSync(join(at.root, folder)) ? `${version} in ${folder}, without libascend_hal.so in lib64` : `not in ${folder}`
  if (inContainer(at)) return fail('driver', found, `mount the host's: -v ${folder}:${folder}:ro`)
  return fail('driver', found, `install the NPU's driver; ${NO_NPU}`)
}
driver.label = 'driver'

function inContainer({ root, env }) {
  if (['.dockerenv', 'run/.containerenv'].some((file) => fs.existsSync(join(root, file)))) return true
  return env.KUBERNETES_SERVICE_HOST !== undefined || /docker|kubepods|containerd|lxc|libpod/.test(read(join(root, 'proc/1/cgroup')))
}

function container(at) {
  if (!inContainer(at)) return skip('container', 'not in one')
  const folder = driverFolder(at)
  const devices = nodes(at).missing.map((node) => `--device ${node}`)
  const mounts = [`${folder}/lib64`, `${folder}/version.info`, '/etc/ascend_install.info'].filter((path) => !fs.existsSync(join(at.root, path)))
  if (devices.length + mounts.length === 0) return pass('container', 'has the device nodes and the driver')
  const options = [...devices, ...mounts.map((path) => `-v ${path}:${path}:ro`)].join(' ')
  const missing = [...nodes(at).missing, ...mounts].join(', ')
  return fail('container', `lacks ${missing}`, `start it with ${options}; ${NO_NPU}`)
}
container.label = 'container'

function toolkit(at, report) {
  if (report.toolkit !== null) {
    const version = report.version === null ? 'of an unknown version' : report.version
    const face = report.interfaceVersion === null ? '' : `, ACL ${report.interfaceVersion}`
    return pass('toolkit', `${version}${face} in ${report.toolkit}`)
  }
  const [first] = report.libraries.filter(({ path }) => path !== null)
  if (first) return pass('toolkit', `a library of it is there: ${first.path}`)
  return fail('toolkit', 'none where one is looked for', 'install the CANN toolkit and the operator package of your chip, or set ASCEND_HOME_PATH to where they are')
}
toolkit.label = 'toolkit'

function environment(at, report) {
  const { env } = at
  const set = ['ASCEND_HOME_PATH', 'ASCEND_TOOLKIT_HOME', 'ASCEND_OPP_PATH', 'CANN_NODE_ACL_LIB'].filter((name) => env[name])
  const nowhere = set.filter((name) => !fs.existsSync(env[name]))
  if (nowhere.length) {
    const found = nowhere.map((name) => `${name}=${env[name]} does not exist`).join('; ')
    return fail('environment', found, `unset ${nowhere.join(' and ')}, or point ${nowhere.length > 1 ? 'them' : 'it'} to what is there`)
  }
  const relative = ['ASCEND_HOME_PATH', 'ASCEND_TOOLKIT_HOME'].filter((name) => env[name] && !isAbsolute(env[name]))
  if (relative.length) {
    const found = relative.map((name) => `${name}=${env[name]} is relative, and so not looked at`).join('; ')
    return fail('environment', found, `make ${relative.join(' and ')} absolute`)
  }
  const folders = (env.LD_LIBRARY_PATH ?? '').split(':').filter((folder) => /ascend|cann/i.test(folder))
  const lost = folders.filter((folder) => !fs.existsSync(folder))
  if (folders.length && lost.length === folders.length) {
    return fail('environment', `LD_LIBRARY_PATH has ${lost.join(', ')}, which ${lost.length > 1 ? 'do' : 'does'} not exist`, 'take it out, then source the set_env.sh of the toolkit that is there')
  }
  const script = report.toolkit && [report.toolkit, join(report.toolkit, '..')].map((folder) => join(folder, 'set_env.sh')).find((file) => fs.existsSync(file))
  if (script && !env.ASCEND_OPP_PATH) {
    return fail('environment', 'ASCEND_OPP_PATH is not set, so operators do not find their kernels', `source ${script} before the program starts`)
  }
  const named = [...set, ...['ASCEND_RT_VISIBLE_DEVICES', 'CANN_NODE_ROOT'].filter((name) => env[name])].map((name) => `${name}=${env[name]}`)
  return pass('environment', named.join(', ') || 'no variable of CANN is set')
}
environment.label = 'environment'

// ---------------------------------------------------------------- what the addon answered

function librariesOpen(at, { libraries, toolkit, hint }) {
  const opened = libraries.filter(({ error }) => error === null)
  if (toolkit !== null) return pass('libraries', opened.map(({ path }) => path).join(', '))
  const errors = libraries
    .filter(({ path, error }) => error !== null && (path !== null || error.startsWith('not beside')))
    .map(({ name, path, error }) => (path !== null && error.startsWith(path) ? error : `${path ?? name}: ${error}`))
  return fail('libraries', errors.join('; ') || 'none was found', hint)
}
librariesOpen.label = 'libraries'

function functions(at, { toolkit, missingSymbols, essentialMissing, hint }) {
  if (toolkit === null) return skip('functions', 'no library is open')
  if (essentialMissing.length) return fail('functions', `missing: ${essentialMissing.join(', ')}`, hint)
  if (missingSymbols.length === 0) return pass('functions', 'all are there')
  return pass('functions', `all that a device needs; what needs these is refused or done otherwise: ${missingSymbols.join(', ')}`)
}
functions.label = 'functions'

function devices(at, { available, toolkit, essentialMissing, hint }) {
  if (toolkit === null || essentialMissing.length) return skip('devices', 'no library can be asked')
  return available ? pass('devices', 'answer') : fail('devices', 'none answers', hint)
}
devices.label = 'devices'

// ---------------------------------------------------------------- files

const byNumber = (a, b) => Number(a.replace(/\D/g, '')) - Number(b.replace(/\D/g, ''))

function list(folder) {
  try {
    return fs.readdirSync(folder)
  } catch {
    return []
  }
}

function read(path) {
  try {
    return fs.readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}

/** The value of `key=` in the vendor's files. */
function value(text, key) {
  const line = text.split('\n').find((one) => one.startsWith(`${key}=`))
  return line?.slice(key.length + 1).trim() || null
}

/** The name of a user or group id, the number where it has none. */
function nameOf({ root }, file, id) {
  const line = read(join(root, 'etc', file)).split('\n').find((one) => one.split(':')[2] === String(id))
  return line?.split(':')[0] ?? String(id)
}

// ---------------------------------------------------------------- the report

/** The addon's reports, with the checks of this machine. */
async function diagnosed(binding, at = surroundings()) {
  const reports = await binding.driverReport()
  const path = Object.values(require.cache ?? {}).find((loaded) => loaded?.exports === binding)?.filename
  return reports.map(({ essentialMissing, ...report }) => {
    if (report.driver !== 'cann') return { ...report, checks: [] }
    const checks = checkAll({ ...report, essentialMissing }, { path, version: binding.version() }, at)
    const cause = checks.find(({ ok }) => ok === false)
    return { ...report, hint: report.available ? null : (cause?.next ?? report.hint), checks }
  })
}

module.exports = { checkAll, diagnosed, surroundings }
