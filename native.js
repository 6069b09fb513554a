'use strict'

// Finds and opens the addon. Every require of a platform package is a literal, so that bundlers see it. When none opens,
// one error says what was tried, what the system answered, and what to do.

const { existsSync } = require('node:fs')
const { join } = require('node:path')
const { version } = require('./package.json')

/** 'gnu', 'musl' or '' where there is no choice. */
function libc() {
  if (process.platform !== 'linux') return ''
  try {
    const report = process.report
    // Without this the report looks up the names of open sockets.
    const network = report.excludeNetwork
    report.excludeNetwork = true
    const { header, sharedObjects } = report.getReport()
    report.excludeNetwork = network
    if (header.glibcVersionRuntime) return 'gnu'
    if (sharedObjects?.some((file) => file.includes('musl'))) return 'musl'
  } catch {
    // No report here; the file below tells.
  }
  return existsSync(`/lib/ld-musl-${process.arch === 'x64' ? 'x86_64' : 'aarch64'}.so.1`) ? 'musl' : 'gnu'
}

/** The name of this platform as the packages have it, such as 'linux-x64-gnu'. */
function platformName() {
  const abi = process.platform === 'win32' ? 'msvc' : libc()
  return [process.platform, process.arch, abi].filter(Boolean).join('-')
}

function requirePackage(platform) {
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
    default:
      throw new Error(`there is no package for ${platform}`)
  }
}

/** The places to look in, best first: [where, how]. */
function candidates(platform) {
  const override = process.env.CANN_NODE_BINARY_PATH
  if (override) return [[`CANN_NODE_BINARY_PATH=${override}`, () => require(override)]]
  const places = []
  const local = join(__dirname, `cann-node.${platform}.node`)
  // A published package has no sources: a binary beside them is a developer's own build.
  if (existsSync(join(__dirname, 'Cargo.toml')) && existsSync(local)) places.push([local, () => require(local)])
  places.push([`@cann-node/${platform}`, () => requirePackage(platform)])
  return places
}

/** What to do about the errors seen. */
function advice(platform, errors) {
  const text = errors.map((error) => `${error.code ?? ''} ${error.message}`).join('\n')
  const has = (pattern) => pattern.test(text)
  const lines = []
  if (has(/there is no package for/)) {
    lines.push('This platform has no prebuilt binary. Build it from the repository and set CANN_NODE_BINARY_PATH.')
  }
  if (has(/ERR_DLOPEN_DISABLED/)) {
    lines.push('Addons are switched off: start Node without --no-addons, or with --allow-addons under --permission.')
  }
  if (has(/GLIBC_[\d.]+.* not found/)) {
    lines.push('The system\'s glibc is older than the binary needs (2.17): update the system, or build from source.')
  }
  if (has(/ld-linux|libc\.musl|__errno_location|musl/) && platform.startsWith('linux')) {
    lines.push(`The binary is for another C library: npm install --os=linux --cpu=${process.arch} --libc=${platform.endsWith('musl') ? 'musl' : 'glibc'} cann-node`)
  }
  if (has(/wrong ELF class|invalid ELF header|incompatible architecture|not a valid Win32/)) {
    lines.push('The binary is for another processor or system. Install on the machine (or with --os, --cpu, --libc for it).')
  }
  if (has(/failed to map segment|Operation not permitted/)) {
    lines.push('The folder is on a file system mounted noexec: install elsewhere.')
  }
  if (__dirname.includes('app.asar') && !__dirname.includes('app.asar.unpacked')) {
    lines.push('The package is inside an asar archive: unpack "node_modules/@cann-node/**" (asarUnpack).')
  }
  if (has(/is version .* but this is/)) {
    lines.push('Two versions are mixed: remove node_modules and the lock file\'s entries of cann-node, then install again.')
  }
  if (has(/Cannot find module/)) {
    lines.push('The optional dependency is missing: install without --omit=optional and --no-optional.')
    lines.push('If the lock file was made on another system (npm/cli#4828), remove it and node_modules, then install again.')
  }
  if (process.env.SNAP) lines.push('Node from a snap is confined: use another installation of Node.')
  return lines
}

function describe(error) {
  const first = String(error?.message ?? error).split('\n')[0]
  return error?.code ? `${error.code}: ${first}` : first
}

/** Opens the addon. Throws an Error whose message is the whole story and whose `attempts` lists each place. */
function load(platform = platformName(), places = candidates(platform)) {
  const attempts = []
  const errors = []
  for (const [where, open] of places) {
    try {
      const binding = open()
      const found = binding.version?.()
      if (found === version) return binding
      throw new Error(`the binary is version ${found} but this is cann-node ${version}`)
    } catch (error) {
      errors.push(error)
      attempts.push({ where, error: describe(error) })
    }
  }
  const runtime = process.versions.bun
    ? `Bun ${process.versions.bun}`
    : process.versions.deno
      ? `Deno ${process.versions.deno}`
      : process.versions.electron
        ? `Electron ${process.versions.electron}`
        : `Node ${process.versions.node}`
  const lines = [`cann-node could not load its binary for ${platform} (${runtime}). Tried:`]
  for (const { where, error } of attempts) lines.push(`  - ${where}: ${error}`)
  const hints = advice(platform, errors)
  if (hints.length) lines.push('What may help:', ...hints.map((line) => `  - ${line}`))
  const error = new Error(lines.join('\n'), { cause: errors.length === 1 ? errors[0] : new AggregateError(errors) })
  error.attempts = attempts
  error.hint = hints.join(' ') || undefined
  throw error
}

module.exports = { load, platformName }
