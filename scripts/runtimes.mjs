// The JavaScript tests with one binary on every runtime the package is for.

import { spawn, spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'

import { cacheFolder } from './model.mjs'
import { fail, root } from './setup.mjs'

const HELP = `The JavaScript tests with one binary on every runtime: Node 20, 22, 24 and 26, Bun, Deno.

  node scripts/runtimes.mjs                       all of them
  node scripts/runtimes.mjs --only bun,node@24    some of them
  node scripts/runtimes.mjs exit dispose          these specs only (__test__/NAME.spec.mjs)
  node scripts/runtimes.mjs --verbose             what the runtimes print, too

The runtimes come from npm, in the versions below, and are kept in the cache folder (CANN_NODE_CACHE). Prints each test that
failed, and a table; exits 1 when a test failed or did not run on a runtime while it ran on another.`

/** A spec that takes longer than this hangs. */
const LIMIT_MS = 30 * 60_000

const { platform, arch } = process
const exe = platform === 'win32' ? '.exe' : ''
const node = (version) => ({
  // One package per platform; the one for Apple's processors could not have the name.
  packages: [`node-${platform === 'darwin' && arch === 'arm64' ? 'bin-darwin' : platform === 'win32' ? 'win' : platform}-${arch}@${version}`],
  // In this process alone, without --test: a crash or a hang at the end is the test's.
  test: (spec, report) => [
    ...['--test-reporter=spec', '--test-reporter-destination=stdout'],
    ...['--test-reporter=junit', `--test-reporter-destination=${report}`],
    spec,
  ],
})
const RUNTIMES = {
  'node@20': node('20.20.2'),
  'node@22': node('22.23.5'),
  'node@24': node('24.22.3'),
  'node@26': node('26.12.1'),
  bun: {
    packages: ['bun@1.4.5'],
    // Its limit for a test is 5 s otherwise.
    test: (spec, report) => ['test', `--timeout=${LIMIT_MS}`, '--reporter=junit', `--reporter-outfile=${report}`, `./${spec}`],
  },
  deno: {
    packages: ['deno@2.9.6'],
    test: (spec, report) => ['test', '-A', '--no-check', '--no-lock', `--junit-path=${report}`, spec],
  },
}

/** Specs of what is for Node alone. */
const NODE_ONLY = { electron: 'Electron has Node inside', host: 'cann-node/host is for Node and Electron' }

/** The program of a runtime, fetched if need be. Its packages' install scripts do not run: what they would fetch are dependencies. */
function fetchRuntime(name, { packages }) {
  const folder = join(cacheFolder(), 'runtimes', packages.join('+').replaceAll('/', '-'))
  const found = programIn(folder)
  if (found) return found
  mkdirSync(folder, { recursive: true })
  console.error(`fetching ${packages.join(' ')}`)
  const args = ['install', '--prefix', folder, '--no-save', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error', ...packages]
  const { status, stderr } = spawnSync('npm', args, { encoding: 'utf8', shell: platform === 'win32' })
  const program = status === 0 && programIn(folder)
  if (!program) fail(`${name} cannot be had from npm: ${stderr?.trim().split('\n').pop() || 'no program in its package runs here'}`)
  return program
}

/** Path and version of the first program in the packages of a folder that runs here. */
function programIn(folder) {
  if (!existsSync(folder)) return undefined
  const names = new Set(['node', 'bun', 'deno'].map((name) => name + exe))
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile() || !names.has(entry.name)) continue
    const path = join(entry.parentPath ?? entry.path, entry.name)
    const { status, stdout } = spawnSync(path, ['--version'], { encoding: 'utf8' })
    if (status === 0) return { path, version: /\d+\.\d+\.\d+/.exec(stdout)[0] }
  }
  return undefined
}

/** Runs one spec; what became of each test, by name, and what was printed. */
async function runSpec({ path }, { test }, spec, verbose) {
  const folder = mkdtempSync(join(tmpdir(), 'cann-node-runtimes-'))
  const report = join(folder, 'junit.xml')
  try {
    const child = spawn(path, test(`__test__/${spec}.spec.mjs`, report), {
      cwd: root,
      env: { ...process.env, NO_COLOR: '1', DENO_NO_UPDATE_CHECK: '1' },
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: LIMIT_MS,
      killSignal: 'SIGKILL',
    })
    let printed = ''
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (text) => {
        printed += text
        if (verbose) process.stdout.write(text)
      })
    }
    const end = await new Promise((resolve, reject) => child.on('error', reject).on('close', (code, signal) => resolve(signal ?? code)))
    const tests = existsSync(report) ? readReport(readFileSync(report, 'utf8')) : new Map()
    const failed = [...tests.values()].includes('failed')
    if (end !== 0 && !failed) tests.set(`(the process ended with ${end})`, 'failed')
    return { tests, printed }
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

const ENTITIES = { lt: '<', gt: '>', quot: '"', apos: "'", amp: '&' }

/** Name and outcome of each test of a JUnit report. Deno's has a group as a test and its tests as "group > test". */
function readReport(xml) {
  const tests = new Map()
  const groups = new Set()
  for (const [, attributes, body] of xml.matchAll(/<testcase((?:\s+[\w:]+="[^"]*")*)\s*(?:\/>|>([^]*?)<\/testcase>)/g)) {
    const name = / name="([^"]*)"/.exec(attributes)[1].replace(/&(?:amp;)?(\w+);/g, (whole, entity) => ENTITIES[entity] ?? whole)
    const [group, inner] = name.split(' > ')
    if (inner) groups.add(group)
    const outcome = /<(?:failure|error)\b/.test(body) ? 'failed' : /<skipped\b/.test(body) ? 'skipped' : 'passed'
    tests.set(inner ?? name, outcome)
  }
  for (const group of groups) tests.delete(group)
  return tests
}

const { values, positionals } = parseArgs({
  options: { only: { type: 'string' }, verbose: { type: 'boolean' }, help: { type: 'boolean', short: 'h' } },
  allowPositionals: true,
})
if (values.help) {
  console.log(`${HELP}\n\n${Object.values(RUNTIMES).flatMap(({ packages }) => packages).join('\n')}`)
  process.exit(0)
}
const names = values.only?.split(',') ?? Object.keys(RUNTIMES)
const unknown = names.find((name) => !Object.hasOwn(RUNTIMES, name))
if (unknown !== undefined) fail(`there is no runtime '${unknown}'; there are ${Object.keys(RUNTIMES).join(', ')}`)
const all = readdirSync(join(root, '__test__')).filter((name) => name.endsWith('.spec.mjs')).map((name) => name.slice(0, -'.spec.mjs'.length)).sort()
const noSpec = positionals.find((name) => !all.includes(name))
if (noSpec !== undefined) fail(`there is no spec '${noSpec}'; there are ${all.join(', ')}`)

const rows = []
for (const name of names) {
  const program = fetchRuntime(name, RUNTIMES[name])
  console.log(`${name} (${program.version})`)
  const row = { name, version: program.version, tests: new Map(), began: performance.now() }
  for (const spec of positionals.length > 0 ? positionals : all) {
    if (NODE_ONLY[spec] && !name.startsWith('node@')) {
      console.log(`  skipped: ${spec}: ${NODE_ONLY[spec]}`)
      row.tests.set(`${spec}: ${NODE_ONLY[spec]}`, 'skipped')
      continue
    }
    const { tests, printed } = await runSpec(program, RUNTIMES[name], spec, values.verbose)
    const failures = [...tests].filter(([, outcome]) => outcome === 'failed')
    if (failures.length > 0 && !values.verbose) console.log(printed)
    for (const [test] of failures) console.log(`  failed: ${spec}: ${test}`)
    for (const [test, outcome] of tests) row.tests.set(`${spec}: ${test}`, outcome)
  }
  row.seconds = (performance.now() - row.began) / 1000
  rows.push(row)
}

// A runner that leaves tests out must not look like one that passes them.
for (const row of rows) {
  for (const other of rows) {
    for (const [test, outcome] of other.tests) {
      if (outcome !== 'passed' || row.tests.has(test) || NODE_ONLY[test.split(':')[0]]) continue
      console.log(`  failed: ${row.name} did not run '${test}', which ${other.name} did`)
      row.tests.set(test, 'failed')
    }
  }
}

const count = (row, outcome) => [...row.tests.values()].filter((one) => one === outcome).length
const table = [
  ['runtime', 'version', 'passed', 'failed', 'skipped', 'time'],
  ...rows.map((row) => [row.name, row.version, ...['passed', 'failed', 'skipped'].map((outcome) => count(row, outcome)), `${row.seconds.toFixed(0)} s`]),
]
console.log()
for (const cells of table) console.log(cells.map((cell, i) => (i < 2 ? String(cell).padEnd(10) : String(cell).padStart(9))).join(''))
const [passed, failed, skipped] = ['passed', 'failed', 'skipped'].map((outcome) => rows.reduce((sum, row) => sum + count(row, outcome), 0))
console.log(`\n${passed} passed, ${failed} failed, ${skipped} skipped`)
process.exitCode = failed > 0 ? 1 : 0
