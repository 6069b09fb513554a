// How much the package holds up the event loop, and what an upload costs, as one line of JSON:
//   node run-event-loop.mjs MODEL.gguf
// p99 of the event loop's delay (ms) while idle, during uploads, during computation and with 10,000 runs queued; upload speed; memory taken over the weights' own.
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'

import { Backend, Graph } from '../index.mjs'
import { Llama } from '../examples/llama-graph.mjs'

const path = process.argv[2]
const RESOLUTION_MS = 1
/** Seconds each state is watched at least: a p99 needs samples. */
const WATCH_S = 3
const QUEUED = 10_000
const PER_TICK = 100

/** p99 of the delay beyond the timer's own period, while `work` repeats. */
async function delay(work) {
  const histogram = monitorEventLoopDelay({ resolution: RESOLUTION_MS })
  histogram.enable()
  const end = performance.now() + 1000 * WATCH_S
  while (performance.now() < end) await work()
  histogram.disable()
  return Math.max(0, histogram.percentile(99) / 1e6 - RESOLUTION_MS)
}

/** Bytes of the process that are memory now, and at most so far. */
const rss = () => process.memoryUsage.rss()
const peak = () => process.resourceUsage().maxRSS * 1024

const backend = await Backend.open()
await sleep(200)
const idle = await delay(() => sleep(100))

// The first upload tells about memory: the peak afterwards would be the peak of something else.
const before = rss()
let start = performance.now()
let weights = await backend.loadWeights(path)
const first = (performance.now() - start) / 1000
const { bytes } = weights
const extra = peak() - before - bytes
weights.dispose()
await backend.synchronize()

let best = first
const upload = await delay(async () => {
  start = performance.now()
  weights = await backend.loadWeights(path)
  best = Math.min(best, (performance.now() - start) / 1000)
  weights.dispose()
  await backend.synchronize()
})

const model = await Llama.load(backend, path, { context: 512 })
const prompt = Array.from({ length: 64 }, (_, i) => 300 + i)
await model.eval(prompt, 0)
await model.eval([300], prompt.length)
const compute = await delay(async () => {
  await model.eval(prompt, 0)
  for (let n = 0; n < 16; n++) await model.eval([300 + n], prompt.length + n)
})
model.dispose()

// Ten thousand runs in the queue, called in one go for each tick of the event loop.
const graph = new Graph()
graph.output('z', graph.add(graph.input('x', 'f32', [4]), graph.input('y', 'f32', [4])))
const plan = await backend.prepare(graph)
const inputs = { x: new Float32Array(4), y: new Float32Array(4) }
const queued = await delay(async () => {
  const runs = []
  for (let i = 0; i < QUEUED; i++) {
    runs.push(plan.run(inputs))
    if (i % PER_TICK === PER_TICK - 1) await new Promise((resolve) => setImmediate(resolve))
  }
  await Promise.all(runs)
})
await backend.close()

console.log(
  JSON.stringify({
    delayP99Ms: { idle, upload, compute, queued },
    upload: { bytes, bytesPerSecond: bytes / best, extraBytes: extra },
  }),
)
