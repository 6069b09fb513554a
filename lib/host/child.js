'use strict'

// The child process: does what its parent says with the addon's objects, in the order in which it comes. It ends with its parent.

const v8 = require('node:v8')
const vm = require('node:vm')

const { native } = require('../binding.js')
const { diagnosed } = require('../doctor.js')
const { SLICE_BYTES } = require('../turns.js')
const { PARTS, RECORDS, packError } = require('./wire.js')

/** How long forgotten objects wait for others before all are collected. */
const COLLECT_MS = 250

const objects = new Map()
/** Cancel tokens of calls that run. */
const tokens = new Map()
/** Calls that run. */
const running = new Set()
/** Of each call that sends parts: how many are under way, and who waits for fewer. */
const windows = new Map()
const records = { underWay: 0, dropped: 0 }
let collecting
let ended = false

const port = process.parentPort ? electronPort(process.parentPort) : nodePort()
const send = (...message) => port.send(message)

function nodePort() {
  return {
    // What cannot be sent has nobody who waits for it.
    send: (message) => process.send(message, () => {}),
    open(receive) {
      process.on('message', receive)
      process.on('disconnect', () => {
        if (ended) process.exit(0)
        // Nobody is left who could want an orderly end, and a driver that hangs must not keep this process.
        process.kill(process.pid, 'SIGKILL')
      })
    },
  }
}

/** Electron ends a utility process with its parent by itself. */
function electronPort(parent) {
  return {
    send: (message) => parent.postMessage(message),
    open: (receive) => parent.on('message', ({ data }) => receive(data)),
  }
}

// ---------------------------------------------------------------- objects

/** Stands for an object that could not be made; who uses it gets the reason. */
class Failure {
  constructor(error) {
    this.error = error
  }
}

function find({ ref, name }) {
  const object = objects.get(ref)
  if (object instanceof Failure) throw object.error
  return name === undefined ? object : object.get(name)
}

/** An argument as the addon takes it; `used` gets the numbers of its tokens. */
function take(value, used) {
  if (Array.isArray(value)) return value.map((item) => take(item, used))
  if (value === null || typeof value !== 'object') return value
  if ('ref' in value) return find(value)
  if (!('token' in value)) return value
  const token = new (native().CancelToken)()
  if (value.cancelled) token.cancel()
  tokens.set(value.token, token)
  used.push(value.token)
  return token
}

const pick = (object, names) => Object.fromEntries(names.map((name) => [name, object[name]]))

/** What the parent keeps of a new object. */
const ABOUT = {
  Backend: (backend) => pick(backend, ['name', 'guid', 'device']),
  DeviceBuffer: (buffer) => pick(buffer, ['size', 'device']),
  HostBuffer: (buffer) => pick(buffer, ['size', 'pinned']),
  Event: () => ({}),
  Tensor: (tensor) => pick(tensor, ['name', 'type', 'sourceType', 'ne', 'nb', 'nbytes']),
  Plan: (plan) => ({
    scratchBytes: plan.scratchBytes,
    inputs: plan.inputs.map((name) => [name, plan.inputInfo(name)]),
    outputs: plan.outputs.map((name) => [name, plan.outputInfo(name)]),
  }),
  Weights: (weights) => ({
    bytes: weights.bytes,
    tensors: weights.names.map((name) => ABOUT.Tensor(weights.get(name))),
    metadata: weights.metadata(),
  }),
  GgufFile: (file) => ({ version: file.version, tensors: file.tensors(), metadata: file.metadata() }),
}

// ---------------------------------------------------------------- results in parts

/** Sends a part of a call's result, when few enough are under way. */
async function part(id, value) {
  const window = windows.get(id) ?? { underWay: 0, resume: undefined }
  windows.set(id, window)
  if (window.underWay >= PARTS) await new Promise((resolve) => (window.resume = resolve))
  window.underWay += 1
  send(id, 'part', value)
}

/** Sends `size` bytes; `copy(buffer, offset)` fills a buffer with those from `offset` on, `wrap` makes the part of it. */
async function bytes(id, size, copy, wrap = (some) => some) {
  for (let at = 0; at < size; at += SLICE_BYTES) {
    const some = Buffer.allocUnsafeSlow(Math.min(SLICE_BYTES, size - at))
    copy(some, at)
    await part(id, wrap(some))
  }
}

// ---------------------------------------------------------------- what the parent says

/** Calls that are more than a method of the object. They hand over what they do before they return. */
const CALLS = {
  listDevices: () => native().listDevices(),
  driverReport: () => diagnosed(native()),
  open: (_, [options]) => native().Backend.open(options),
  readGguf: (_, [path]) => native().readGguf(path),
  loadWeights(backend, [path, names, convert, token, progress], id) {
    return backend.loadWeights(path, names, convert, token, progress ? (report) => send(id, 'progress', report) : undefined)
  },
  async read(tensor, [offset, size], id) {
    const read = await tensor.read(offset, size)
    try {
      await bytes(id, size, (some, at) => read.copy(some, at))
    } finally {
      read.release()
    }
  },
  async readHost(buffer, [offset, size], id) {
    // All of it now: the next message may write into it.
    const all = buffer.read(offset, size)
    await bytes(id, size, (some, at) => some.set(all.subarray(at, at + some.length)))
  },
  async run(plan, [token, steps, run = plan.start()], id) {
    try {
      if (token !== undefined) run.cancel(token)
      for (const [name, ...args] of steps) run[name](...args)
    } catch (error) {
      run.abandon()
      throw error
    }
    const names = steps.find(([name]) => name === 'outputs')[1]
    const output = await run.submit()
    try {
      const sizes = names.map((name) => [name, plan.outputInfo(name).nbytes])
      if (sizes.reduce((sum, [, size]) => sum + size, 0) > SLICE_BYTES) {
        for (const [name, size] of sizes) await bytes(id, size, (some, at) => plan.copyOutput(output, name, some, at), (some) => [name, some])
        return undefined
      }
      return sizes.map(([name, size]) => {
        const all = Buffer.allocUnsafeSlow(size)
        plan.copyOutput(output, name, all, 0)
        return [name, all]
      })
    } finally {
      plan.releaseOutputs(output)
    }
  },
}

/** What nobody waits for. `as` is the number of what is made. */
const NOTES = {
  dispose: (object) => object?.dispose(),
  /** A run that gets its inputs in parts. */
  start: (plan, _, as) => void objects.set(as, plan.start()),
  abandon: (run) => run.abandon(),
  cancel: (_, [token]) => tokens.get(token)?.cancel(),
  seen(_, [id]) {
    const window = windows.get(id)
    if (window === undefined) return
    window.underWay -= 1
    window.resume?.()
    window.resume = undefined
  },
  /** Steps to add to a graph. */
  graph(_, [steps], as) {
    const graph = objects.get(as) ?? new (native().Graph)()
    objects.set(as, graph)
    for (const [name, ...args] of steps) graph[name](...args)
  },
  snapshot(graph, _, as) {
    objects.set(as, graph.snapshot())
  },
  release(_, [id]) {
    objects.delete(id)
    // Nothing else tells the collector how much memory hangs on these.
    collecting ??= setTimeout(collect, COLLECT_MS).unref()
  },
  log(_, [level]) {
    native().setLogListener(level, level && record)
  },
  logged(_, [count]) {
    records.underWay -= count
  },
  end() {
    void end()
  },
}

function receive([id, name, on, args, as]) {
  if (id === 0) return note(name, on, args, as)
  const work = perform(id, name, on, args, as)
  running.add(work)
  void work.finally(() => running.delete(work))
}

function note(name, on, args, as) {
  try {
    NOTES[name](on && find(on), take(args, []), as)
  } catch (error) {
    if (as !== undefined) objects.set(as, new Failure(error))
  }
}

async function perform(id, name, on, args, as) {
  const used = []
  try {
    const object = on && find(on)
    const given = take(args, used)
    let result = await (CALLS[name]?.(object, given, id) ?? object[name](...given))
    if (as !== undefined) {
      objects.set(as, result)
      result = ABOUT[result.constructor.name](result)
    }
    send(id, 'value', result)
  } catch (error) {
    objects.delete(as)
    send(id, 'error', packError(error))
  } finally {
    windows.delete(id)
    for (const token of used) tokens.delete(token)
  }
}

function record(entry) {
  if (records.underWay >= RECORDS) {
    records.dropped += 1
    return
  }
  records.underWay += 1
  if (records.dropped > 0) entry.fields = { ...entry.fields, droppedRecords: (entry.fields.droppedRecords ?? 0) + records.dropped }
  records.dropped = 0
  send(0, 'log', entry)
}

function collect() {
  collecting = undefined
  if (globalThis.Bun) return globalThis.Bun.gc(true)
  v8.setFlagsFromString('--expose-gc')
  vm.runInNewContext('gc')()
}

/** Finishes what was submitted, closes everything, and leaves it to the parent to end this process. */
async function end() {
  do {
    const backends = [...objects.values()].filter((object) => object.constructor.name === 'Backend')
    await Promise.allSettled([...backends.map((backend) => backend.close()), ...running])
  } while (running.size > 0)
  ended = true
  send(0, 'ended')
}

process.title = 'cann-node host'
// Ctrl-C goes to the whole group: what it means is for the parent to say.
process.on('SIGINT', () => {})
port.open(receive)
send(0, 'ready')
