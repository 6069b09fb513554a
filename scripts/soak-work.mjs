// The work of scripts/soak.mjs, which starts this file in a process of its own and says on stdin what to do. Each line of stdout is a
// message in JSON: a sample, the totals, a failure. The first failure ends it.

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'
import { fileURLToPath } from 'node:url'

import { Backend, CannError, Graph, listDevices } from '../index.mjs'
import { Llama } from '../examples/llama-graph.mjs'
import { writeGguf } from '../tools/gguf.mjs'
import { bytesFor, quantize } from '../tools/quants.mjs'
import { writeTinyLlama } from '../tools/tiny-llama.mjs'

const DEVICES = ['CANN0', 'CANN1']
/** An awaited piece of work that takes longer hangs. */
const STUCK_MS = 120_000
/** How long memory may take to come back once nobody holds it. */
const BACK_MS = 30_000
const job = isMainThread ? JSON.parse(readFileSync(0, 'utf8')) : workerData

// ---------------------------------------------------------------- chance

/** Numbers from 0 to 1 by mulberry32. */
function generator(seed) {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = state
    t = Math.imul(t ^ (t >>> 15), t | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
}
const random = generator(job.seed)
const below = (n) => Math.floor(random() * n)
const pick = (list) => list[below(list.length)]
const chance = (p) => random() < p
const randomBytes = (n) => Uint8Array.from({ length: n }, () => below(256))

// ---------------------------------------------------------------- what may be rejected

class Wrong extends Error {}

/** What an expected rejection is counted as; undefined for one that nothing explains. */
function explained(error, also = []) {
  if (!(error instanceof CannError)) return undefined
  const { code, aclCode, call, requestedBytes, freeBytes } = error
  if (also.includes(code)) return code
  // A constructor gives null instead of a code.
  if (code === 'ERR_ACL') return job.codes.includes(aclCode) || call?.startsWith('aclCreate') ? `${code} ${aclCode}` : undefined
  // With more free than asked for it was the fault; less would be memory that did not come back.
  if (code === 'ERR_OUT_OF_MEMORY') return freeBytes === undefined || requestedBytes <= freeBytes ? `${code} injected` : undefined
  if (code === 'ERR_DEVICE_LOST') {
    const cause = job.codes.find((each) => each >= 507000 && error.reason?.includes(String(each)))
    return cause && `${code} ${cause}`
  }
  return undefined
}

const wrong = (what, error) => new Wrong(`${what}: ${error instanceof Error ? (error.stack ?? error.message) : String(error)} ${JSON.stringify(error)}`)

function same(a, b, what) {
  const [left, right] = [a, b].map((data) => Buffer.from(data.buffer, data.byteOffset, data.byteLength))
  if (!left.equals(right)) throw new Wrong(`${what}: other bytes than without faults`)
}

/** Ends everything when `promise` takes too long. */
async function timely(promise, what) {
  const stop = new AbortController()
  const late = sleep(STUCK_MS, undefined, { signal: stop.signal, ref: true }).then(
    () => Promise.reject(new Wrong(`${what}: no end after ${STUCK_MS / 1000} s`)),
    () => {},
  )
  try {
    return await Promise.race([promise, late])
  } finally {
    stop.abort()
  }
}

// ---------------------------------------------------------------- graphs

const floats = (n, scale = 1) => Float32Array.from({ length: n }, (_, i) => (((i * 7919) % 201) / 100 - 1) * scale)

/** A graph that remembers the type and shape of what goes in and comes out. */
class Ported extends Graph {
  specs = {}

  input(name, type, ne) {
    this.specs[name] = { type, ne }
    return super.input(name, type, ne)
  }

  output(name, tensor) {
    this.specs[name] = { type: tensor.type, ne: [...tensor.ne] }
    super.output(name, tensor)
  }
}

/** A graph over weights that `tensor` finds by name, with inputs for it. */
const GRAPHS = {
  product(g, tensor) {
    const x = g.input('x', 'f32', [128, 3])
    g.output('y', g.mulMat(tensor(g, 'blk.0.attn_q.weight'), x))
    return { x: floats(384) }
  },
  feedForward(g, tensor) {
    const x = g.input('x', 'f32', [128, 2])
    const h = g.mul(g.rmsNorm(x, { eps: 1e-5 }), tensor(g, 'blk.0.ffn_norm.weight'))
    const [gate, up] = ['gate', 'up'].map((name) => g.mulMat(tensor(g, `blk.0.ffn_${name}.weight`), h))
    g.output('y', g.mulMat(tensor(g, 'blk.0.ffn_down.weight'), g.swiglu(gate, up)))
    g.output('gate', g.silu(gate))
    return { x: floats(256) }
  },
  soft(g) {
    const [x, mask] = [g.input('x', 'f32', [64, 8, 2]), g.input('mask', 'f32', [64, 8])]
    g.output('y', g.softMax(x, mask, { scale: 0.5, maxBias: 0 }))
    return { x: floats(1024, 4), mask: floats(512) }
  },
  rows(g, tensor) {
    const [ids, positions] = [g.input('ids', 'i32', [5]), g.input('positions', 'i32', [5])]
    const rows = g.reshape(g.getRows(tensor(g, 'token_embd.weight'), ids), [32, 4, 5])
    g.output('y', g.rope(rows, positions, null, { nDims: 32, mode: 0, freqBase: 10000 }))
    return { ids: Int32Array.of(1, 200, 3, 4, 258), positions: Int32Array.of(0, 1, 2, 30, 4) }
  },
  chain(g) {
    const [x, z] = [g.input('x', 'f32', [96, 17]), g.input('z', 'f32', [96, 17])]
    let y = g.add(x, z)
    for (let i = 0; i < 12; i++) y = i % 3 ? g.mul(y, z) : g.add(g.cont(g.transpose(g.cont(g.transpose(y)))), x)
    g.output('y', y)
    return { x: floats(1632), z: floats(1632, 0.5) }
  },
}

async function prepare(backend, name, weights) {
  const graph = new Ported()
  const inputs = GRAPHS[name](graph, (g, tensor) => g.tensor(weights.get(tensor)))
  return { plan: await backend.prepare(graph), inputs, specs: graph.specs }
}

// ---------------------------------------------------------------- models, and what a device without faults makes of them

const TYPES = ['f32', 'f16', 'q4_0', 'q8_0', 'q4_1', 'q5_0', 'q5_1', 'q2_K', 'q3_K', 'q4_K', 'q5_K', 'q6_K', 'bf16']
const llamaPath = join(job.folder, 'llama.gguf')
const typesPath = join(job.folder, 'types.gguf')
const PROMPT = [72, 101, 108, 108, 111]

function writeModels() {
  writeTinyLlama(llamaPath)
  const tensor = (type, i) => {
    const ne = [256 * (1 + (i % 3)), 5 + i]
    const elements = ne[0] * ne[1]
    const plain = ['f32', 'f16', 'q4_0', 'q8_0'].includes(type)
    // Small bytes: whatever the layout, every scale in them is a finite number.
    const data = () => (plain ? quantize(type, floats(elements)) : Uint8Array.from({ length: bytesFor(type, elements) }, (_, n) => (n * 31) % 60))
    return { name: `t.${type}`, ne, type, data }
  }
  writeGguf(typesPath, [['general.architecture', 'string', 'test']], TYPES.map(tensor))
}

const CONVERSIONS = ['auto', 'f16', 'q8_0']

async function references() {
  const backend = await Backend.open({ device: 'HOST0', threads: 1 })
  const llama = await backend.loadWeights(llamaPath)
  const outputs = {}
  for (const name of Object.keys(GRAPHS)) {
    const { plan, inputs } = await prepare(backend, name, llama)
    outputs[name] = await plan.run(inputs)
  }
  const tensors = {}
  for (const convert of CONVERSIONS) {
    const weights = await backend.loadWeights(typesPath, { convert })
    for (const name of weights.names) tensors[`${convert} ${name}`] = await weights.get(name).read()
  }
  const text = await generate(await Llama.load(backend, llamaPath, { context: 256 }))
  await backend.close()
  return { outputs, tensors, text }
}

/** The logits after a prompt and of one more token. */
async function generate(model) {
  const first = Float32Array.from(await model.eval(PROMPT, 0))
  const second = Float32Array.from(await model.eval([46], PROMPT.length))
  model.dispose()
  return [first, second]
}

// ---------------------------------------------------------------- tasks

/** What a round has: one backend per device, and things that were left to live. */
class Round {
  backends = new Map()
  kept = []

  async backend(device = pick(DEVICES)) {
    const open = this.backends.get(device)
    if (open) return open
    const options = { device, pool: pick(['auto', 'vmm', 'buffer', 'priority']), asyncMode: chance(0.7), threads: 1 }
    const backend = await Backend.open(options)
    // Another task may have been faster.
    if (this.backends.has(device)) {
      await backend.close()
      return this.backends.get(device)
    }
    this.backends.set(device, backend)
    return backend
  }

  /** Disposes, or leaves alive until the round ends, or forgets. */
  release(...things) {
    for (const thing of things) {
      const fate = random()
      if (fate < 0.6) thing.dispose()
      else if (fate < 0.8) this.kept.push(thing)
    }
  }
}

const TASKS = {
  async load(round) {
    const backend = await round.backend()
    const convert = pick(CONVERSIONS)
    const only = chance(0.5) ? pick(TYPES) : undefined
    const weights = await backend.loadWeights(typesPath, {
      convert,
      ...(only && { filter: (name) => name === `t.${only}` }),
      ...(chance(0.5) && { onProgress() {} }),
    })
    for (const name of only ? weights.names : [pick(weights.names), pick(weights.names)]) {
      same(await weights.get(name).read(), reference.tensors[`${convert} ${name}`], `load ${convert} ${name}`)
    }
    round.release(weights)
  },

  async abortedLoad(round) {
    const backend = await round.backend()
    const control = new AbortController()
    const reason = new Error('the reason')
    const abort = () => control.abort(reason)
    const when = below(4)
    if (when === 0) abort()
    const loading = backend.loadWeights(typesPath, { signal: control.signal, onProgress: when === 1 ? abort : undefined })
    if (when === 2) setTimeout(abort, below(8))
    try {
      const weights = await loading
      if (when === 3) abort()
      weights.dispose()
    } catch (error) {
      if (error !== reason) throw error
      if (when === 3) throw new Wrong('abortedLoad: rejected with a reason that was not given yet')
    }
  },

  async text(round) {
    const backend = await round.backend()
    const model = await Llama.load(backend, llamaPath, { context: 256 })
    const logits = await generate(model)
    logits.forEach((each, i) => same(each, reference.text[i], 'text'))
  },

  async runs(round) {
    const backend = await round.backend()
    const name = pick(Object.keys(GRAPHS))
    const weights = await backend.loadWeights(llamaPath, { filter: (tensor) => !/output|attn_[kvo]/.test(tensor) })
    const { plan, inputs, specs } = await prepare(backend, name, weights)
    const right = reference.outputs[name]
    if (chance(0.2)) weights.dispose()
    await everyOne(Array.from({ length: 1 + below(8) }, () => oneRun(backend, plan, inputs, specs, right, name)))
    if (chance(0.3)) plan.report()
    round.release(plan, weights)
  },

  async copy(round) {
    const source = await round.backend()
    const target = await round.backend()
    const type = pick(['f32', 'f16', 'q8_0', 'q4_0'])
    const spec = { type, ne: [256, 1 + below(40)] }
    const [a, b] = [await source.createTensor(spec), await target.createTensor(spec)]
    const bytes = quantize(type, floats(spec.ne[0] * spec.ne[1], 1 + random()))
    await a.write(bytes.buffer)
    await target.copy(a, b)
    if (chance(0.5)) a.dispose()
    same(await b.read(), bytes, `copy of ${type}`)
    round.release(a, b)
  },

  async events(round) {
    const [a, b] = [await round.backend(), await round.backend()]
    const event = await a.createEvent()
    const tensor = await a.createTensor({ type: 'f32', ne: [64] })
    await everyOne([tensor.fill(1), a.record(event), b.wait(event), event.synchronize()])
    event.query()
    await b.synchronize()
    round.release(event, tensor)
  },

  async ranges(round) {
    const backend = await round.backend()
    const type = pick(['f32', 'f16', 'q4_0', 'q8_0'])
    const [block, size] = { f32: [1, 4], f16: [1, 2], q4_0: [32, 18], q8_0: [32, 34] }[type]
    const tensor = await backend.createTensor({ type, ne: [block * 8, 1 + below(9)] })
    const model = new Uint8Array(tensor.nbytes)
    const work = [tensor.fill(0)]
    for (let i = below(12); i >= 0; i--) {
      const from = below(tensor.nbytes / size) * size
      const bytes = randomBytes((1 + below((tensor.nbytes - from) / size)) * size)
      model.set(bytes, from)
      work.push(tensor.write(bytes.buffer, from))
    }
    await everyOne(work)
    const [from, to] = [below(tensor.nbytes + 1), below(tensor.nbytes + 1)].map((at) => at - (at % size)).sort((x, y) => x - y)
    same(await tensor.read(from, to - from), model.subarray(from, to), `ranges of ${type}`)
    round.release(tensor)
  },

  async buffers(round) {
    const backend = await round.backend()
    const buffer = await backend.allocBuffer(1 + below(200_000))
    await buffer.clear(below(256))
    const host = await backend.allocHostBuffer(1024)
    const bytes = randomBytes(1024)
    host.write(bytes)
    same(host.read(), bytes, 'host buffer')
    backend.stats()
    const order = chance(0.5) ? [buffer, host] : [host, buffer]
    round.release(...order)
    for (const each of order) if (chance(0.3)) each.dispose()
  },

  async forgotten(round) {
    const backend = await round.backend()
    await everyOne(Array.from({ length: 20 }, () => backend.createTensor({ type: 'f32', ne: [2000] })))
    const event = await backend.createEvent()
    void backend.record(event).catch(note)
    // Work that nobody waits for, over a tensor that nobody holds.
    void (await backend.createTensor({ type: 'f32', ne: [64] })).fill(1).catch(note)
  },

  async tooMuch(round) {
    const backend = await round.backend()
    try {
      await backend.allocBuffer(2 ** 33)
    } catch (error) {
      if (error.code === 'ERR_OUT_OF_MEMORY' && error.requestedBytes >= 2 ** 33) return
      throw error
    }
    throw new Wrong('8 GiB of 1 were given')
  },

  async disposedEarly(round) {
    const backend = await round.backend()
    const tensor = await backend.createTensor({ type: 'f32', ne: [4096] })
    const data = floats(4096)
    const [written, read] = [tensor.write(data), tensor.read()]
    tensor.dispose()
    const [, bytes] = await everyOne([written, read])
    same(bytes, data, 'disposedEarly')
    await tensor.fill(0).then(
      () => Promise.reject(new Wrong('a disposed tensor was filled')),
      (error) => error.code === 'ERR_DISPOSED' || Promise.reject(error),
    )
  },

  /** A backend of its own, closed while its work is on its way. */
  async closed() {
    const backend = await Backend.open({ device: pick(DEVICES), threads: 1 })
    const work = Array.from({ length: 1 + below(6) }, async () => {
      const tensor = await backend.createTensor({ type: 'f32', ne: [1024] })
      await tensor.fill(1)
      same(await tensor.read(0, 4), Float32Array.of(2.3694278e-38), 'closed')
    })
    const closing = sleep(below(3)).then(() => (chance(0.3) ? backend[Symbol.asyncDispose]() : backend.close()))
    await everyOne([...work, closing], ['ERR_DISPOSED'])
  },

  /** A backend that nobody closes. */
  async forgottenBackend() {
    const backend = await Backend.open({ device: pick(DEVICES), threads: 1 })
    const tensor = await backend.createTensor({ type: 'f32', ne: [1024] })
    void tensor.fill(1).catch(note)
  },
}

/** What all resolve to; when they have settled, the first rejection that nothing explains wins, else the first. */
async function everyOne(promises, also) {
  const ends = await Promise.allSettled(promises)
  const reasons = ends.filter((end) => end.status === 'rejected').map((end) => end.reason)
  const unexplained = reasons.find((reason) => explained(reason, also) === undefined)
  if (unexplained !== undefined) throw unexplained
  const rest = reasons.find((reason) => !also?.includes(reason.code))
  if (rest !== undefined) throw rest
  return ends.map((end) => end.value)
}

/** One run in one of its forms. */
async function oneRun(backend, plan, inputs, specs, right, name) {
  const check = (outputs) => {
    for (const [output, data] of Object.entries(outputs)) same(data, right[output], `${name}.${output}`)
  }
  const form = below(6)
  if (form === 0) return check(await plan.run(inputs))
  if (form === 1) {
    const y = new Float32Array(right.y.length)
    await plan.run(inputs, { into: { y }, outputs: [] })
    return check({ y })
  }
  if (form === 2) {
    const tensor = await backend.createTensor(specs.y)
    try {
      await plan.run(inputs, { outputs: [], outputTo: { y: tensor } })
      check({ y: await tensor.read() })
    } finally {
      tensor.dispose()
    }
    return undefined
  }
  if (form === 3) {
    const [input] = plan.inputs
    const tensor = await backend.createTensor(specs[input])
    try {
      await tensor.write(inputs[input])
      check(await plan.run({ ...inputs, [input]: tensor }, { trace: chance(0.3) }))
    } finally {
      tensor.dispose()
    }
    return undefined
  }
  const control = new AbortController()
  const reason = { name }
  if (form === 4) control.abort(reason)
  else setTimeout(() => control.abort(reason), below(4))
  try {
    check(await plan.run(inputs, { signal: control.signal }))
  } catch (error) {
    if (error !== reason) throw error
  }
  return undefined
}

// ---------------------------------------------------------------- counts

const counts = { rounds: 0, tasks: {}, errors: {}, rejected: 0, lost: 0, workers: 0 }
let fatal

/** Counts a rejection, or makes it the failure that ends the soak. */
function note(error, what = 'nobody waited for it', also = []) {
  const reason = explained(error, also)
  if (reason === undefined) fatal ??= error instanceof Wrong ? error : wrong(what, error)
  else {
    counts.rejected++
    counts.errors[reason] = (counts.errors[reason] ?? 0) + 1
  }
  return reason
}

async function attempt(name, work, also) {
  const row = (counts.tasks[name] ??= { done: 0, rejected: 0 })
  try {
    await timely(work(), name)
    row.done++
    return undefined
  } catch (error) {
    row.rejected++
    note(error, name, also)
    return error
  }
}

// ---------------------------------------------------------------- rounds

/** Never more than the share of a core that was given. */
const pace = (() => {
  const [cpu, wall] = [process.cpuUsage(), performance.now()]
  return async () => {
    const { user, system } = process.cpuUsage(cpu)
    const ahead = (user + system) / 1000 / job.share - (performance.now() - wall)
    await sleep(Math.min(Math.max(ahead, 1), 5000))
  }
})()

/** A thread with a backend of its own, ended in the middle of its work. */
async function worker() {
  const thread = new Worker(fileURLToPath(import.meta.url), { workerData: { ...job, seed: below(2 ** 31) }, execArgv: [] })
  counts.workers++
  const gone = new Promise((resolve) => thread.once('exit', resolve))
  thread.once('error', (error) => (fatal ??= wrong('a worker thread', error)))
  const started = new Promise((resolve) => {
    thread.on('message', (message) => {
      if (message.wrong) fatal ??= new Wrong(`in a worker thread: ${message.wrong}`)
      resolve()
    })
  })
  await Promise.race([started, gone])
  await sleep(below(60))
  await thread.terminate()
}

/** After synchronize() the queue is empty; the last task is counted a moment after it resolved its promise. */
async function drained(backend) {
  for (let tries = 0; ; tries++) {
    const { depth, capacity, submitted, completed } = backend.stats().queue
    if (depth === 0 && submitted === completed) return
    if (depth > capacity || tries === 100) throw new Wrong(`queue ${depth} of ${capacity}, ${submitted} submitted, ${completed} completed`)
    await sleep(5)
  }
}

async function round() {
  const current = new Round()
  const open = ['ERR_NOT_FOUND']
  for (let tasks = 4 + below(12); tasks > 0 && !fatal; ) {
    const together = Math.min(tasks, 1 + below(4))
    tasks -= together
    const names = Array.from({ length: together }, () => pick(Object.keys(TASKS)))
    const ends = await Promise.all(names.map((name) => attempt(name, () => TASKS[name](current), open)))
    // A backend whose device is lost is opened again, now and then while handles of before are held.
    if (ends.some((error) => error?.code === 'ERR_DEVICE_LOST')) {
      counts.lost++
      if (chance(0.5)) current.kept = []
      const backends = [...current.backends.values()]
      current.backends.clear()
      for (const backend of backends) await attempt('close', () => backend.close())
    }
    if (chance(0.1)) globalThis.gc()
    await pace()
  }
  if (chance(0.25)) await attempt('worker', worker)
  for (const thing of current.kept.sort(() => random() - 0.5)) if (chance(0.5)) thing.dispose()
  for (const backend of current.backends.values()) {
    if ((await attempt('synchronize', () => backend.synchronize())) === undefined) await attempt('queue', () => drained(backend))
    if (chance(0.9)) await attempt('close', () => backend.close())
  }
  counts.rounds++
}

/** Bytes that are live on the devices; undefined when a fault hid one. */
async function live() {
  const devices = (await listDevices()).filter((device) => DEVICES.includes(device.name))
  if (devices.length < DEVICES.length || devices.some(({ memory }) => memory.total !== 2 ** 30)) return undefined
  return devices.reduce((sum, { memory }) => sum + memory.total - memory.free, 0)
}

/** Waits until everything that nobody holds is back; what is left after a while is a leak. */
async function quiet(start) {
  const end = performance.now() + BACK_MS
  for (;;) {
    globalThis.gc()
    await sleep(20)
    const bytes = await live()
    if (bytes === start) return bytes - start
    if (performance.now() > end) throw new Wrong(`${bytes} bytes are live on the devices after everything was closed, ${start} were before`)
  }
}

function say(message) {
  process.stdout.write(`${JSON.stringify(message)}\n`)
}

let reference

async function main() {
  writeModels()
  reference = await references()
  let start
  for (let i = 0; i < 100 && start === undefined; i++) start = await live()
  if (start === undefined) throw new Wrong('the devices CANN0 and CANN1 are not there')
  const delay = monitorEventLoopDelay({ resolution: 10 })
  delay.enable()
  const begun = performance.now()
  let [next, cpu, wall] = [performance.now() + 5000, process.cpuUsage(), performance.now()]
  while (Date.now() < job.end && !fatal) {
    await round()
    if (fatal) break
    const freed = await quiet(start)
    if (performance.now() < next && Date.now() < job.end) continue
    next = performance.now() + 60_000
    const { user, system } = process.cpuUsage(cpu)
    const { rss, heapUsed: heap, external } = process.memoryUsage()
    const tasks = Object.values(counts.tasks).reduce((sum, { done, rejected }) => sum + done + rejected, 0)
    const { rounds, rejected, lost, workers } = counts
    say({
      sample: {
        seconds: (performance.now() - begun) / 1000,
        ...{ rounds, tasks, rejected, lost, workers, rss, heap, external, freed },
        delayMs: [50, 99].map((p) => delay.percentile(p) / 1e6),
        cpu: (user + system) / 1000 / (performance.now() - wall),
      },
    })
    delay.reset()
    ;[cpu, wall] = [process.cpuUsage(), performance.now()]
  }
  say({ totals: counts })
}

/** Works until it is terminated. */
async function toil() {
  const graph = 'chain'
  parentPort.postMessage({})
  for (;;) {
    try {
      const backend = await Backend.open({ device: pick(DEVICES), threads: 1 })
      const { plan, inputs } = await prepare(backend, graph)
      await everyOne([backend.loadWeights(typesPath), ...Array.from({ length: 30 }, () => plan.run(inputs))])
      await backend.close()
    } catch (error) {
      if (explained(error, ['ERR_NOT_FOUND']) === undefined) {
        parentPort.postMessage({ wrong: wrong('work', error).message })
        return
      }
    }
    await sleep(1)
  }
}

if (isMainThread) {
  for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => (job.end = 0))
  process.on('unhandledRejection', (error) => (fatal ??= wrong('unhandled', error)))
  try {
    await main()
  } catch (error) {
    fatal ??= error
  }
  if (fatal) say({ failure: fatal.message + (fatal instanceof Wrong ? '' : `\n${fatal.stack}`) })
  // Threads of a soak that failed may be stuck.
  process.exit(fatal ? 1 : 0)
} else await toil()
