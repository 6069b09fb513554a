// Builds the addon for this machine (or --target) and refreshes what is generated from it. Node's own modules only: it has
// to work in a fresh clone.
//
//   node scripts/build.mjs [--debug] [--target <rust target>] [--no-generate] [--cargo "<command>"]

import { spawnSync } from 'node:child_process'
import { copyFileSync, existsSync, mkdirSync, renameSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

import { commandLine } from './command-line.mjs'
import { nativeTypes } from './native-types.mjs'
import { writeOps } from './ops.mjs'
import { libraryName, PLATFORMS } from './platform.mjs'

const root = fileURLToPath(new URL('..', import.meta.url))
const { values } = commandLine({
  options: {
    debug: { type: 'boolean', default: false },
    target: { type: 'string' },
    generate: { type: 'boolean', default: true },
    cargo: { type: 'string', default: 'cargo build' },
  },
  allowNegative: true,
})

const { platformName } = createRequire(import.meta.url)('../native.js')
const platform = values.target
  ? PLATFORMS.find((p) => values.target.startsWith(p.target))
  : { ...PLATFORMS.find((p) => p.name === platformName()), name: platformName() }
if (!platform) fail(`no platform has the target ${values.target}; known: ${PLATFORMS.map((p) => p.target).join(', ')}`)

const targetFolder = process.env.CARGO_TARGET_DIR ?? join(root, 'target')
const notes = join(targetFolder, 'napi-types')
mkdirSync(notes, { recursive: true })
// The notes are written while the crate is compiled: without them it has to be compiled again.
if (!existsSync(join(notes, 'cann-node'))) {
  const now = new Date()
  utimesSync(join(root, 'src/lib.rs'), now, now)
}

const [command, ...words] = values.cargo.split(' ')
const args = [...words, '--package', 'cann-node', '--lib', '--locked']
if (!values.debug) args.push('--release')
if (values.target) args.push('--target', values.target)
console.log(`> ${command} ${args.join(' ')}`)
const built = spawnSync(command, args, {
  cwd: root,
  stdio: 'inherit',
  env: { ...process.env, NAPI_TYPE_DEF_TMP_FOLDER: notes },
})
if (built.error?.code === 'ENOENT') fail('cargo was not found: install Rust from https://rustup.rs, then run this again')
if (built.status !== 0) process.exit(built.status ?? 1)

// A target may carry a glibc version ("…-gnu.2.17") that its folder has not.
const folder = values.target ? join(targetFolder, platform.target) : targetFolder
const library = join(folder, values.debug ? 'debug' : 'release', libraryName(platform.os ?? process.platform))
const binary = join(root, `cann-node.${platform.name}.node`)
// By rename: a process that has the old file open keeps it.
const fresh = `${binary}.${process.pid}.tmp`
copyFileSync(library, fresh)
try {
  renameSync(fresh, binary)
} catch (error) {
  rmSync(fresh, { force: true })
  throw error
}
console.log(`built ${binary}`)

if (values.generate) {
  writeFileSync(join(root, 'native.d.ts'), nativeTypes(join(notes, 'cann-node')))
  if (platform.name === platformName()) writeOps(binary)
  console.log('refreshed native.d.ts, lib/ops.js, ops.d.ts')
}

function fail(message) {
  console.error(message)
  process.exit(1)
}
