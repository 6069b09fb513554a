// Hours of mixed, random work in one process while calls of the ACL library keep failing, and devices are lost now and then.
//
//   cargo build -p acl-fault-cabi && node scripts/soak.mjs --minutes 120 --seed 1
//
// The work runs in a process of its own: that one loads the binary that ships over the library of acl-fault-cabi, and this one
// sees it crash, hang or end. Judged are
//
// - every rejection: an injected fault, what follows from one, or exactly the reason of an abort;
// - every result: the bytes that a device without faults gave;
// - every round's end, when all backends are closed: the devices have as much memory free as at the start;
// - the process's memory at such ends: see `growth`.
//
// What a seed fixes is the order of the work; which call a fault meets depends on threads as well.

import { spawn } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { parseArgs } from 'node:util'
import { fileURLToPath } from 'node:url'

import { builtLibrary } from './built-library.mjs'

const USAGE = `node scripts/soak.mjs [--minutes N] [--seed N] [--share N] [--every N] [--library FILE]

  --minutes N      how long, default 10; parts of a minute are allowed
  --seed N         of the work's order, default 1
  --share N        how much of one core the work may take, default 0.33
  --every N        calls between two faults, roughly, default 1500
  --library FILE   the library of acl-fault-cabi, default the newest in the target folder`

const root = fileURLToPath(new URL('..', import.meta.url))
const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '10' },
    seed: { type: 'string', default: '1' },
    share: { type: 'string', default: '0.33' },
    every: { type: 'string', default: '1500' },
    library: { type: 'string', default: builtLibrary('ascendcl_fault') },
    help: { type: 'boolean', short: 'h' },
  },
})
if (values.help) {
  console.log(USAGE)
  process.exit(0)
}
const [minutes, seed, share, every] = ['minutes', 'seed', 'share', 'every'].map((name) => Number(values[name]))
if (!(minutes > 0 && Number.isInteger(seed) && share > 0 && every >= 1)) fail(USAGE)
if (!values.library || !existsSync(values.library)) fail('the fault library is not there: cargo build -p acl-fault-cabi')

/** The codes that calls are failed with, and every how many calls. Primes, so that no code always meets the same call. */
const FAULTS = [
  ...[107000, 207001, 200001].map((code, i) => ({ code, nth: prime(Math.ceil(every * (3 + i / 3))) })),
  // A device that is lost takes much with it, so that is rarer.
  ...[507015, 507011, 507018].map((code, i) => ({ code, nth: prime(Math.ceil(every * (9 + i))) })),
]
/** Without a line for so long the work is taken for stuck. */
const SILENCE_MS = 5 * 60_000
const MIB = 2 ** 20
/** Memory that may be more at the end than after the warm-up. */
const ALLOWED = { rss: 16 * MIB, heap: 4 * MIB, external: 4 * MIB }

const folder = mkdtempSync(join(tmpdir(), 'cann-node-soak-'))
const report = join(folder, 'report')
const began = performance.now()
const job = { folder, seed, share, end: Date.now() + minutes * 60_000, codes: FAULTS.map(({ code }) => code) }
const child = spawn(process.execPath, ['--expose-gc', '--unhandled-rejections=strict', join(root, 'scripts/soak-work.mjs')], {
  stdio: ['pipe', 'pipe', 'inherit'],
  env: {
    ...process.env,
    CANN_NODE_ACL_LIB: values.library,
    CANN_NODE_FAULT: FAULTS.map(({ code, nth }) => `nth=${nth},code=${code},mode=every`).join(';'),
    CANN_NODE_FAULT_REPORT: report,
    CANN_NODE_HOST_DEVICES: '2',
    CANN_NODE_HOST_MEMORY: '1G',
    CANN_NODE_HOST_THREADS: '1',
  },
})
child.stdin.end(JSON.stringify(job))

const samples = []
const failures = []
let totals
let silence
const heard = () => {
  clearTimeout(silence)
  silence = setTimeout(() => {
    failures.push(`nothing was heard for ${SILENCE_MS / 1000} s`)
    child.kill('SIGKILL')
  }, SILENCE_MS)
}
heard()
createInterface({ input: child.stdout }).on('line', (line) => {
  heard()
  const message = JSON.parse(line)
  if (message.failure) failures.push(message.failure)
  if (message.totals) totals = message.totals
  if (message.sample) {
    samples.push(message.sample)
    console.log(progress(message.sample))
  }
})
child.on('close', (code, signal) => {
  clearTimeout(silence)
  if (code !== 0 || signal) failures.push(`the work ended with ${signal ?? `code ${code}`}`)
  const calls = existsSync(report) ? readFileSync(report, 'utf8').trim() : 'no report of the calls'
  rmSync(folder, { recursive: true, force: true })
  const judged = growth(samples)
  failures.push(...judged.failures)
  console.log(table(calls, judged.lines))
  for (const failure of failures) console.log(`failure: ${failure}`)
  console.log(failures.length === 0 ? 'passed' : 'failed')
  process.exit(failures.length === 0 ? 0 : 1)
})
// The first one asks for the round at work to be the last.
let asked = false
for (const signal of ['SIGINT', 'SIGTERM']) {
  process.on(signal, () => {
    child.kill(asked ? 'SIGKILL' : 'SIGTERM')
    asked = true
  })
}

/**
 * Whether memory grew: medians of the last third of the samples against the first third after the warm-up, which is a quarter of
 * the time and at most 15 minutes. Below nine samples nothing is judged.
 */
function growth(all) {
  const warm = all.filter(({ seconds }) => seconds >= Math.min(all.at(-1).seconds / 4, 900))
  if (warm.length < 9) return { failures: [], lines: ['memory: too few samples to be judged'] }
  const third = Math.floor(warm.length / 3)
  const result = { failures: [], lines: [] }
  for (const [name, allowed] of Object.entries(ALLOWED)) {
    const middle = (part) => part.map((sample) => sample[name]).sort((a, b) => a - b)[part.length >> 1]
    const [first, last] = [middle(warm.slice(0, third)), middle(warm.slice(-third))]
    const text = `${name} ${mib(first)} -> ${mib(last)} MiB (${mib(last - first)}, ${allowed / MIB} are allowed)`
    result.lines.push(text)
    if (last - first > allowed) result.failures.push(`memory grew: ${text}`)
  }
  return result
}

function progress(sample) {
  const { seconds, rounds, tasks, rejected, lost, workers, rss, heap, external, freed, delayMs, cpu } = sample
  return [
    `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, '0')}`,
    `${rounds} rounds, ${tasks} tasks, ${rejected} rejections, ${lost} lost devices, ${workers} workers`,
    `rss ${mib(rss)}, heap ${mib(heap)}, external ${mib(external)} MiB, on the devices ${freed} bytes`,
    `delay p50 ${delayMs[0].toFixed(1)}, p99 ${delayMs[1].toFixed(1)} ms, ${(cpu * 100).toFixed(0)} % of a core`,
  ].join(' | ')
}

function table(calls, lines) {
  const rows = Object.entries(totals?.tasks ?? {}).map(([name, { done, rejected }]) => [name, done, rejected])
  const errors = Object.entries(totals?.errors ?? {}).sort((a, b) => b[1] - a[1])
  const text = (cells) => `  ${String(cells[0]).padEnd(34)} ${cells.slice(1).map((cell) => String(cell).padStart(9)).join('')}`
  return [
    '',
    `${((performance.now() - began) / 60_000).toFixed(1)} minutes, seed ${seed}, ACL ${calls}`,
    text(['work', 'went well', 'rejected']),
    ...rows.map(text),
    text(['rejections by reason', 'count']),
    ...errors.map(text),
    ...lines,
    '',
  ].join('\n')
}

const mib = (bytes) => (bytes / MIB).toFixed(1)

function prime(from) {
  const isPrime = (n) => n > 1 && Array.from({ length: Math.floor(Math.sqrt(n)) - 1 }, (_, i) => i + 2).every((d) => n % d !== 0)
  while (!isPrime(from)) from++
  return from
}

function fail(message) {
  console.error(message)
  process.exit(2)
}
