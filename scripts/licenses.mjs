// THIRD-PARTY-LICENSES: the licences of what is compiled into the addon, shipped in each platform package.
//
//   node scripts/licenses.mjs            writes it with cargo-about (cargo install cargo-about --locked --features cli)
//   node scripts/licenses.mjs --check    fails unless it names exactly the crates of Cargo.lock that are compiled in; needs only cargo

import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { commandLine } from './command-line.mjs'
import { PLATFORMS } from './platform.mjs'
import { fail, root, sh } from './setup.mjs'

const FILE = 'THIRD-PARTY-LICENSES'
const { values } = commandLine({ options: { check: { type: 'boolean', default: false } } })

/** 'name version' of each crate that is no one of ours, for any platform. */
function crates() {
  const targets = PLATFORMS.flatMap(({ target }) => ['--target', target])
  const args = ['tree', '--package', 'cann-node', '--edges', 'normal', '--prefix', 'none', '--format', '{p}', '--locked', ...targets]
  const { status, stdout, stderr } = spawnSync('cargo', args, { cwd: root, encoding: 'utf8' })
  if (status !== 0) fail(stderr)
  const names = stdout.split('\n').map((line) => /^(\S+) v(\S+)(?: \((.*)\))?/.exec(line))
  return new Set(names.filter((found) => found && !/[\\/]/.test(found[3] ?? '')).map(([, name, version]) => `${name} ${version}`))
}

if (values.check) {
  const text = readFileSync(join(root, FILE), 'utf8')
  const named = new Set([...text.matchAll(/^ {2}([\w-]+ \d+\.\d+\.\S+)\r?$/gm)].map(([, name]) => name))
  const used = crates()
  const wrong = [...used].filter((name) => !named.has(name)).concat([...named].filter((name) => !used.has(name)))
  if (wrong.length) fail(`${FILE} is stale for ${wrong.join(', ')}: node scripts/licenses.mjs`)
  console.log(`${FILE}: ${used.size} crates`)
} else {
  // Offline, so that the result depends on the locked sources alone.
  sh('cargo', ['about', 'generate', '--locked', '--offline', '--fail', '--output-file', FILE, 'about.hbs'])
}
