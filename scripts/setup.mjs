// What a fresh clone needs before anything runs: a fit Node, Rust, and the addon. Node's own modules only.
//
//   node scripts/setup.mjs        builds the addon if it is older than its sources

import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

import { isMain } from '../examples/is-main.mjs'

export const root = fileURLToPath(new URL('..', import.meta.url))

/** Stops the program with a message. */
export function fail(message) {
  console.error(`error: ${message}`)
  process.exit(1)
}

/** Runs a command in the checkout, its output visible (on `stdout`); stops the program when it fails. */
export function sh(command, args, { cwd = root, stdout = 'inherit' } = {}) {
  // npm is a script on Windows, which only a shell starts.
  const shell = process.platform === 'win32' && command === 'npm'
  const done = spawnSync(command, args, { cwd, stdio: ['inherit', stdout, 'inherit'], shell })
  if (done.error?.code === 'ENOENT') fail(`${command} was not found`)
  if (done.status !== 0) fail(`${[command, ...args].join(' ')} failed${done.signal ? ` (${done.signal})` : ''}`)
}

export function checkNode() {
  const [major, minor] = process.versions.node.split('.').map(Number)
  if (major < 20 || (major === 20 && minor < 17)) fail(`Node ${process.versions.node} is too old: 20.17 or later is needed`)
}

export function checkCargo() {
  const found = spawnSync('cargo', ['--version'], { cwd: root, encoding: 'utf8' })
  if (found.status !== 0) fail('Rust was not found: install it from https://rustup.rs, then run this again')
  return found.stdout.trim()
}

/** Builds the addon, optimised. Cargo knows what is fresh, so this is quick when nothing changed. */
export function build(options) {
  if (process.env.CANN_NODE_BINARY_PATH) {
    console.error(`using the addon of CANN_NODE_BINARY_PATH: ${process.env.CANN_NODE_BINARY_PATH}`)
    return
  }
  checkCargo()
  sh(process.execPath, [join(root, 'scripts/build.mjs')], options)
}

/** Installs what the type test and the documentation need. The package itself depends on nothing. */
export function installTools() {
  if (['typescript', 'typedoc'].every((name) => existsSync(join(root, 'node_modules', name)))) return
  const command = existsSync(join(root, 'package-lock.json')) ? 'ci' : 'install'
  sh('npm', [command, '--no-audit', '--no-fund', '--omit=optional'])
}

if (isMain(import.meta.filename)) {
  checkNode()
  build()
}
