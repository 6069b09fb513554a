'use strict'

// Finds and opens the addon. Every require of a platform package is a literal, so that bundlers see it. When none opens,
// one error says what was tried, what the system answered, and what to do.

const { existsSync } = require('node:fs')
const { createRequire } = require('node:module')
const path = require('node:path')
const { defect } = require('./lib/elf.js')
const { config, version } = require('./package.json')

/** Node's own, for what bundlers shall leave alone. */
const outside = createRequire(__filename)

/** What `look` finds, and undefined where the runtime's permissions forbid to look: Deno throws. */
function permitted(look) {
  try {
    return look()
  } catch {
    return undefined
  }
}

const exists = (file) => permitted(() => existsSync(file))
const variable = (name) => permitted(() => process.env[name])

/** The platforms that have a package. */
const PACKAGES = [
  'linux-x64-gnu',
  'linux-arm64-gnu',
  'linux-x64-musl',
  'linux-arm64-musl',
  'darwin-arm64',
  'darwin-x64',
  'win32-x64-msvc',
  'win32-arm64-msvc',
]

/**
 * A platform's package. Each name is a literal, so that bundlers see it. They look for all eight, and only in a `try` they let the
 * seven that are missing pass.
 */
function requirePackage(platform) {
  try {
    switch (platform) {
      case 'linux-x64-gnu':
        return require('@cann-node/linux-x64-gnu')
      case 'linux-arm64-gnu':
        return require('@cann-node/linux-arm64-gnu')
      case 'linux-x64-musl':
        return require('@cann-node/linux-x64-musl')
      case 'linux-arm64-musl':
        return require('@cann-node/linux-arm64-musl')
      case 'darwin-arm64':
        return require('@cann-node/darwin-arm64')
      case 'darwin-x64':
        return require('@cann-node/darwin-x64')
      case 'win32-x64-msvc':
        return require('@cann-node/win32-x64-msvc')
      case 'win32-arm64-msvc':
        return require('@cann-node/win32-arm64-msvc')
    }
  } catch (error) {
    throw error
  }
}

/** The C library: { abi: 'gnu' | 'musl', version }, the version where it is known; nothing where there is no choice. */
function libc() {
  if (process.platform !== 'linux') return undefined
  try {
    const report = process.report
    // Without this the report looks up the names of open sockets.
    const network = report.excludeNetwork
    report.excludeNetwork = true
    const { header, sharedObjects } = report.getReport()
    report.excludeNetwork = network
    if (header.glibcVersionRuntime) return { abi: 'gnu', version: header.glibcVersionRuntime }
    if (sharedObjects?.some((file) => file.includes('musl'))) return { abi: 'musl' }
  } catch {
    // No report here; the file below tells.
  }
  return { abi: exists(`/lib/ld-musl-${process.arch === 'x64' ? 'x86_64' : 'aarch64'}.so.1`) ? 'musl' : 'gnu' }
}

/** The name of this platform as the packages have it, such as 'linux-x64-gnu'. */
function platformName() {
  const abi = process.platform === 'win32' ? 'msvc' : libc()?.abi
  return [process.platform, process.arch, abi].filter(Boolean).join('-')
}

/** The file that the user names, if any. */
function named() {
  const file = variable('CANN_NODE_BINARY_PATH')
  return file && path.resolve(file)
}

/** The places to look in, best first: [where, how, the file if it is known]. */
function candidates(platform) {
  const override = named()
  if (override) return [[`CANN_NODE_BINARY_PATH=${override}`, () => outside(override), override]]
  const places = []
  const local = path.join(__dirname, `cann-node.${platform}.node`)
  // A published package has no sources: a binary beside them is a developer's own build.
  if (exists(path.join(__dirname, 'Cargo.toml')) && exists(local)) places.push([local, () => outside(local), local])
  if (PACKAGES.includes(platform)) places.push([`@cann-node/${platform}`, () => requirePackage(platform), found(`@cann-node/${platform}`)])
  return places
}

/** The file a package's name leads to, if any. */
const found = (name) => permitted(() => outside.resolve(name))

/** Opens one place and sees that it is this version's. */
function attempt(open, file) {
  if (process.platform === 'linux' && file?.endsWith('.node') && exists(file)) {
    const wrong = permitted(() => defect(file))
    if (wrong) throw Object.assign(new Error(`${file}: ${wrong}`), { code: 'ERR_DLOPEN_FAILED' })
  }
  const binding = open()
  const binary = binding.version?.()
  if (binary !== version) throw new Error(`the binary is version ${binary} but this is cann-node ${version}`)
  return binding
}

/** What to do about the errors seen: each line's condition, then the line. */
function advice(platform, attempts) {
  const text = attempts.map(({ where, error }) => `${where}: ${error.code ?? ''} ${error.message}`).join('\n')
  const has = (pattern) => pattern.test(text)
  const override = named()
  const linux = platform.startsWith('linux')
  const missing = has(/MODULE_NOT_FOUND|Cannot find (module|package)|isn't declared|not installed/)
  const glibc = libc()?.version
  const tooOld = has(/GLIBC_[\d.]+['` ]+not found/)
  const otherLibc = linux && !tooOld && has(/(ld-linux[\w.-]*|libc\.so(\.6)?|libc\.musl[\w.-]*): |Error (loading|relocating)/)
  const others = PACKAGES.filter((name) => name !== platform && found(`@cann-node/${name}`))
  const [os, cpu] = platform.split('-')
  const libcFlag = linux ? ` --libc=${platform.endsWith('musl') ? 'musl' : 'glibc'}` : ''
  const forPlatform = `npm install --os=${os} --cpu=${cpu}${libcFlag} cann-node`
  return [
    [!PACKAGES.includes(platform), 'This platform has no prebuilt binary. Build it from the repository and set CANN_NODE_BINARY_PATH.'],
    [has(/ERR_DLOPEN_DISABLED/), 'Addons are switched off: start Node without --no-addons, or with --allow-addons under --permission.'],
    [has(/ERR_ACCESS_DENIED/), 'The permission model keeps Node from reading the binary: add --allow-fs-read for its folder.'],
    [
      tooOld,
      `The system's glibc${glibc ? ` (${glibc})` : ''} is older than this binary needs; the published ones need ${config.glibc}. ` +
        'Update the system, or build from source.',
    ],
    [otherLibc, `The binary is for another C library: ${forPlatform}`],
    [
      has(/another processor|wrong ELF class|incompatible architecture|not a valid Win32/),
      `The binary is for another processor or system. Install on the machine it runs on, or for it: ${forPlatform}`,
    ],
    [
      !otherLibc && has(/is damaged|invalid ELF header|file too short|Exec format error|not a mach-o file/),
      'The file is not what was published: remove the folder node_modules/@cann-node and install again.',
    ],
    [
      has(/failed to map segment|Operation not permitted/),
      'The folder is on a file system mounted noexec: install elsewhere, or set CANN_NODE_BINARY_PATH to a copy that may be executed.',
    ],
    [
      /\bapp\.asar[\\/]/.test(`${__dirname}/\n${text}`),
      'The package is inside an asar archive, from which no library can be opened: unpack "node_modules/@cann-node/**" (asarUnpack).',
    ],
    [
      has(/is version .* but this is/),
      "Two versions are mixed: remove node_modules and the lock file's entries of cann-node, then install again.",
    ],
    [override && exists(override) === false, 'CANN_NODE_BINARY_PATH names a file that is not there.'],
    [
      !override && missing && others.length,
      `Installed is the binary of ${others.join(' and ')}: node_modules comes from another system, or its lock file does (npm/cli#4828). ` +
        `Remove both and install again, or for this system: ${forPlatform}`,
    ],
    [
      !override && missing && !others.length,
      'The optional dependency is missing: install without --omit=optional and --no-optional. ' +
        'If the lock file was made on another system (npm/cli#4828), remove it and node_modules, then install again.',
    ],
    [variable('SNAP'), 'Node from a snap is confined: use another installation of Node.'],
  ].flatMap(([applies, line]) => (applies ? [line] : []))
}

function runtime() {
  const name = ['bun', 'deno', 'electron'].find((key) => process.versions[key]) ?? 'node'
  const c = libc()
  const system = c && `${c.abi === 'gnu' ? 'glibc' : 'musl'}${c.version ? ` ${c.version}` : ''}`
  return [`${name[0].toUpperCase()}${name.slice(1)} ${process.versions[name]}`, system].filter(Boolean).join(', ')
}

function describe(error) {
  const first = String(error?.message ?? error).split('\n')[0]
  return error?.code ? `${error.code}: ${first}` : first
}

/** Opens the addon. Throws an Error whose message is the whole story and whose `attempts` lists each place. */
function load(platform = platformName(), places = candidates(platform)) {
  const attempts = []
  for (const [where, open, file] of places) {
    try {
      return attempt(open, file)
    } catch (error) {
      attempts.push({ where, error })
    }
  }
  const lines = [`cann-node could not load its binary for ${platform} (${runtime()}).${attempts.length ? ' Tried:' : ''}`]
  for (const { where, error } of attempts) lines.push(`  - ${where}: ${describe(error)}`)
  const hints = advice(platform, attempts)
  if (hints.length) lines.push('What may help:', ...hints.map((line) => `  - ${line}`))
  const errors = attempts.map(({ error }) => error)
  const error = new Error(lines.join('\n'), { cause: errors.length === 1 ? errors[0] : new AggregateError(errors) })
  error.attempts = attempts.map(({ where, error: each }) => ({ where, error: describe(each) }))
  error.hint = hints.join(' ') || undefined
  throw error
}

module.exports = { libc, load, platformName }
