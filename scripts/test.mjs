// `npm test`: everything, from a fresh clone on a machine with Node and Rust. Stops at the first section that fails.
//
//   npm test                      all sections
//   npm test -- --only js         one section (set-up included); see SECTIONS for the names
//   npm test -- --only installs   one of the sections that run only when they are named
//   npm test -- --list            their names
//
// Environment variables that change what the package does are taken out, so that a developer's settings cannot turn a test red
// or green; those that name files stay.

import { spawn } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'

import { builtLibrary } from './built-library.mjs'
import { commandLine } from './command-line.mjs'
import { fetchModel } from './model.mjs'
import { build, checkCargo, checkNode, installTools, root } from './setup.mjs'

const KEPT = new Set([
  'CANN_NODE_MODEL', 'CANN_NODE_CACHE', 'CANN_NODE_BINARY_PATH', 'CANN_NODE_ISA', 'CANN_NODE_TEST_ISAS', 'CANN_NODE_ACL_LIB', 'CANN_NODE_GOLDEN',
  'CANN_NODE_GEMMA',
])
for (const name of Object.keys(process.env)) if (/^(CANN_NODE|GGML_CANN)_/.test(name) && !KEPT.has(name)) delete process.env[name]

const totals = { passed: 0, failed: 0, skipped: 0 }
const SCALAR = { CANN_NODE_ISA: 'scalar' }

/** name: what it does. Each stops the run by throwing. */
const SECTIONS = {
  format: () => run('cargo', ['fmt', '--all', '--check']),
  lint: () => run('cargo', ['clippy', '--workspace', '--all-targets', '--locked', '--', '-D', 'warnings']),
  rust: () => run('cargo', ['test', '--workspace', '--locked', '--no-fail-fast']),
  // What runs on the kernels that define the answers, which a processor with vectors would never choose.
  scalar: async () => {
    // With --workspace nothing is built again.
    const suites = ['ops', 'ops_nn', 'golden', 'ops_property', 'backend', 'defects']
    await run('cargo', ['test', '--workspace', '--locked', ...suites.flatMap((name) => ['--test', name])], SCALAR)
    await run('cargo', ['test', '--workspace', '--locked', '--lib', 'kernels'], SCALAR)
  },
  // By the rules of each family of chips: right, or refused before anything is launched.
  chips: async () => {
    for (const soc of ['910A', '910B', '910_93', '310P', '310B']) {
      await run('cargo', ['test', '--workspace', '--locked', '--test', 'golden', '--test', 'private', '--', '--nocapture'], { CANN_NODE_HOST_SOC: soc })
    }
  },
  // The backend and the golden cases once more, on a library that is opened as the vendor's would be.
  dlopen: async () => {
    const env = { CANN_NODE_ACL_LIB: await standIn() }
    const suites = ['backend', 'plan', 'pool', 'upload', 'golden', 'split', 'ops_property', 'graph', 'repack', 'defects']
    await run('cargo', ['test', '--workspace', '--locked', ...suites.flatMap((name) => ['--test', name])], env)
    await run(process.execPath, ['scripts/golden.mjs', '--device', 'CANN0'], env)
  },
  // In checked mode, where every access is watched. The suites of crates/cann-backend that share a device are in it anyway.
  checked: async () => {
    const env = { CANN_NODE_HOST_CHECK: '1' }
    const suites = ['anomaly', 'anomaly_lost', 'anomaly_rounds', 'defects', 'golden', 'models', 'upload']
    await run('cargo', ['test', '--workspace', '--locked', ...suites.flatMap((name) => ['--test', name])], env)
    const specs = ['abort', 'backend', 'buffers', 'dispose', 'events', 'graph', 'plan', 'tensor', 'weights']
    await run(process.execPath, ['--expose-gc', '--test', '--test-concurrency=1', '--test-reporter=spec', ...specs.map((name) => `__test__/${name}.spec.mjs`)], env)
  },
  // As many executions of each target as ever, from the same seed.
  fuzz: () => run('cargo', ['run', '--locked', '--manifest-path', 'fuzz/Cargo.toml', '--target-dir', process.env.CARGO_TARGET_DIR ?? 'target', '--', '--smoke']),
  types: () => run(process.execPath, [join(root, 'node_modules/typescript/bin/tsc'), '-p', 'tsconfig.json']),
  tidy: () => run(process.execPath, ['scripts/tidy.mjs']),
  package: async () => {
    await run(process.execPath, ['scripts/package-check.mjs'])
    await run(process.execPath, ['examples/electron/check.mjs', 'types'])
  },
  docs: () => run(process.execPath, ['scripts/docs.mjs']),
  golden: async () => {
    const cases = process.env.CANN_NODE_GOLDEN || '__test__/golden'
    // Each way to run must give the right values: other kernels, every call checked, one run as one item.
    for (const env of [{}, SCALAR, { CANN_NODE_HOST_CHECK: '1' }, { GGML_CANN_ASYNC_MODE: 'off' }]) {
      await run(process.execPath, ['scripts/golden.mjs', cases], env)
    }
  },
  js: async () => {
    await whatSpecsNeed()
    const files = readdirSync(join(root, '__test__')).filter((name) => name.endsWith('.spec.mjs')).sort()
    // One file at a time: each has the processor for itself, and the embedded device's memory is the machine's.
    await run(process.execPath, ['--expose-gc', '--test', '--test-concurrency=1', '--test-reporter=spec', ...files.map((name) => join('__test__', name))])
  },
}

/** The stand-in library and the one that fails on purpose, as cargo makes them for their own tests: nothing is built twice. */
async function standIn() {
  await run('cargo', ['test', '--workspace', '--locked', '--no-run', '--test', 'cabi'])
  return builtLibrary('ascendcl_host')
}

/** Sections for whoever asks: they take more than the sources and a model. */
const EXTRA = {
  runtimes: async () => {
    await whatSpecsNeed()
    await run(process.execPath, ['scripts/runtimes.mjs'])
  },
  installs: () => run(process.execPath, ['scripts/installs.mjs']),
  bundlers: () => run(process.execPath, ['scripts/bundlers.mjs']),
}

async function whatSpecsNeed() {
  await fetchModel()
  // Some specs load it.
  await standIn()
}

/** Runs a command with its output visible; counts the tests it reports. */
function run(command, args, env = {}) {
  console.log(`> ${Object.entries(env).map(([k, v]) => `${k}=${v} `).join('')}${command === process.execPath ? 'node' : command} ${args.join(' ')}`)
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { cwd: root, env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'inherit'] })
    let rest = ''
    child.stdout.on('data', (data) => {
      process.stdout.write(data)
      const lines = (rest + data).split('\n')
      rest = lines.pop()
      lines.forEach(tally)
    })
    child.on('error', reject)
    child.on('close', (code, signal) => {
      tally(rest)
      if (code === 0) resolve()
      else reject(new Error(`${[command === process.execPath ? 'node' : command, ...args].join(' ')} ended with ${signal ?? code}`))
    })
  })
}

/** Adds the counts of a line of cargo's, of Node's runner or of the scripts. */
function tally(line) {
  const add = (passed, failed, skipped) => {
    totals.passed += Number(passed)
    totals.failed += Number(failed)
    totals.skipped += Number(skipped)
  }
  const cargo = /^test result: .* (\d+) passed; (\d+) failed; (\d+) ignored/.exec(line)
  if (cargo) add(...cargo.slice(1))
  const script = /^(\d+) passed, (\d+) failed, (\d+) skipped$/.exec(line)
  if (script) add(...script.slice(1))
  const node = /^(?:ℹ|#) (pass|fail|skipped) (\d+)$/.exec(line)
  if (node) add(...['pass', 'fail', 'skipped'].map((word) => (word === node[1] ? node[2] : 0)))
}

const { values } = commandLine({ options: { only: { type: 'string', multiple: true }, types: { type: 'boolean' }, list: { type: 'boolean' } } })
const all = { ...SECTIONS, ...EXTRA }
if (values.list) {
  console.log(Object.keys(all).join('\n'))
  process.exit(0)
}
const names = values.types ? ['types'] : (values.only ?? Object.keys(SECTIONS))
const unknown = names.find((name) => !Object.hasOwn(all, name))
if (unknown) {
  console.error(`error: there is no section '${unknown}'; there are ${Object.keys(all).join(', ')}`)
  process.exit(2)
}

const begun = performance.now()
const seconds = (since) => `${((performance.now() - since) / 1000).toFixed(1)} s`
const times = []
async function section(name, work) {
  const start = performance.now()
  console.log(`\n━━ ${name} ${'━'.repeat(Math.max(2, 60 - name.length))}`)
  try {
    await work()
  } catch (error) {
    console.error(`\nerror: ${error.message}`)
    console.log(`━━ ${name} failed after ${seconds(start)}`)
    console.log(`${totals.passed} passed, ${Math.max(1, totals.failed)} failed, ${totals.skipped} skipped`)
    process.exit(1)
  }
  times.push(`  ${name.padEnd(8)} ${seconds(start).padStart(9)}`)
}

await section('set-up', async () => {
  checkNode()
  console.log(`Node ${process.versions.node}, ${checkCargo()}`)
  installTools()
  build()
})
for (const name of names) await section(name, all[name])
console.log(`\n━━ all sections passed in ${seconds(begun)}\n${times.join('\n')}`)
console.log(`${totals.passed} passed, ${totals.failed} failed, ${totals.skipped} skipped`)
