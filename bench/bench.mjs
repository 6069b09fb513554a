// `npm run bench`: this package beside node-llama-cpp on the same file with the same number of threads, in interleaved runs, each run
// in a process of its own; then what the package does to the event loop and to memory.
//
//   npm run bench -- [--model FILE]... [--threads 1,2] [--rounds 3] [--prompt 128] [--generate 64] [--alone] [--json]
//
// The peer is installed into bench/peers at the first run. Ratios are ours over theirs, best of all rounds on both sides.

import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { cpus } from 'node:os'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'

import { bytes, json, table } from '../bin/lib/format.mjs'
import { commandLine } from '../scripts/command-line.mjs'
import { fetchModel } from '../scripts/model.mjs'
import { build, checkNode, fail, sh } from '../scripts/setup.mjs'

const here = (path) => fileURLToPath(new URL(path, import.meta.url))
const { values } = commandLine({
  options: {
    model: { type: 'string', multiple: true },
    threads: { type: 'string', default: '1,2' },
    rounds: { type: 'string', default: '3' },
    prompt: { type: 'string', default: '128' },
    generate: { type: 'string', default: '64' },
    alone: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
  },
})
// Text goes to stderr when stdout is to be JSON.
const say = values.json ? (text) => console.error(text) : (text) => console.log(text)

checkNode()
build({ stdout: values.json ? process.stderr : 'inherit' })
const models = values.model ?? [await fetchModel(say)]
if (models[0] === null) fail('there is no model to measure with: set CANN_NODE_MODEL')

const engines = [{ name: 'cann-node', script: here('run-cann-node.mjs') }]
if (!values.alone) {
  const peers = here('peers')
  if (!existsSync(join(peers, 'node_modules/node-llama-cpp'))) sh('npm', ['install', '--no-save', '--no-audit', '--no-fund', '--ignore-scripts'], { cwd: peers, stdout: process.stderr })
  engines.push({ name: 'node-llama-cpp', script: join(peers, 'run-node-llama-cpp.mjs') })
}

/** The last line of a script's output, parsed. */
function measure(script, args) {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [script, ...args], { stdio: ['ignore', 'pipe', 'inherit'] })
    let text = ''
    child.stdout.on('data', (data) => (text += data))
    child.on('error', reject)
    child.on('close', (code) => {
      if (code !== 0) return reject(new Error(`${basename(script)} ended with ${code}`))
      resolve(JSON.parse(text.trim().split('\n').pop()))
    })
  })
}

const cores = cpus().length
const threadCounts = values.threads.split(',').map(Number).filter((n) => n <= cores)
const report = {
  machine: { cpu: cpus()[0]?.model, cores, node: process.versions.node, platform: `${process.platform} ${process.arch}` },
  work: { promptTokens: Number(values.prompt), generatedTokens: Number(values.generate), rounds: Number(values.rounds) },
  speed: [],
}
for (const model of models) {
  for (const threads of threadCounts) {
    const best = new Map(engines.map(({ name }) => [name, { prompt: 0, generate: 0 }]))
    for (let round = 0; round < report.work.rounds; round++) {
      for (const { name, script } of engines) {
        const run = await measure(script, [model, threads, values.prompt, values.generate].map(String))
        const so = best.get(name)
        best.set(name, { prompt: Math.max(so.prompt, run.prompt), generate: Math.max(so.generate, run.generate) })
        say(`round ${round + 1}, ${threads} threads, ${name}: prompt ${run.prompt.toFixed(1)}, generation ${run.generate.toFixed(1)} tokens/s`)
      }
    }
    for (const [engine, speed] of best) report.speed.push({ model: basename(model), threads, engine, ...speed })
  }
}
report.eventLoop = await measure(here('run-event-loop.mjs'), [models[0]])

/** The best of an engine over the thread counts. */
const bestOf = (model, engine, what) => Math.max(...report.speed.filter((s) => s.model === model && s.engine === engine).map((s) => s[what]))
report.best = models.map((path) => {
  const model = basename(path)
  const pair = (what) => {
    const [ours, theirs] = ['cann-node', 'node-llama-cpp'].map((engine) => bestOf(model, engine, what))
    return { ours, theirs: values.alone ? null : theirs, ratio: values.alone ? null : ours / theirs }
  }
  return { model, prompt: pair('prompt'), generate: pair('generate') }
})

if (values.json) console.log(json(report))
else {
  const { machine, work, eventLoop } = report
  say(`\n${machine.cpu}, ${machine.cores} cores, Node ${machine.node}; prompt of ${work.promptTokens} tokens, then ${work.generatedTokens}; best of ${work.rounds} rounds\n`)
  const fixed = (x) => (x === null ? '–' : x.toFixed(1))
  const rows = report.speed.map((s) => [s.model, s.threads, s.engine, fixed(s.prompt), fixed(s.generate)])
  say(table(['MODEL', 'THREADS', 'ENGINE', 'PROMPT t/s', 'GENERATION t/s'], rows, ['THREADS', 'PROMPT t/s', 'GENERATION t/s']))
  for (const { model, prompt, generate } of report.best) {
    if (prompt.ratio) say(`${model}, best of all: ${prompt.ratio.toFixed(2)} × its prompt speed, ${generate.ratio.toFixed(2)} × its generation speed`)
  }
  const { idle, upload, compute, queued } = eventLoop.delayP99Ms
  say(`\nevent loop delay, p99: idle ${idle.toFixed(2)} ms, during upload ${upload.toFixed(2)} ms, during compute ${compute.toFixed(2)} ms, 10,000 runs queued ${queued.toFixed(2)} ms`)
  say(`upload: ${bytes(eventLoop.upload.bytesPerSecond)}/s, ${bytes(Math.max(0, eventLoop.upload.extraBytes))} of memory beyond the weights' own ${bytes(eventLoop.upload.bytes)}`)
}
