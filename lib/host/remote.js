'use strict'

// The classes of the addon (native.d.ts) for objects in another process. The package's own classes work over these as over the
// addon's; only what the addon answers at once comes as a promise here, and `home` says that it is not in this process.

const { CannError, invalid } = require('../errors.js')
const { SLICE_BYTES } = require('../turns.js')
const { PARTS } = require('./wire.js')

/** Asks for what gives an object. */
async function make(session, Class, name, on, args, options) {
  const as = session.newId()
  return new Class(session, as, await session.call(name, on, args, { ...options, as }))
}

/** An object in a child process; `about` is what does not change, told when it was made. */
class Remote {
  #disposed = false

  constructor(session, id, about) {
    this.session = session
    this.id = id
    this.about = about
    if (id !== undefined) session.watch(this)
  }

  get home() {
    return this.session.home
  }

  get disposed() {
    return this.#disposed || !this.session.alive
  }

  /** How it is named in messages. */
  place() {
    return { ref: this.id }
  }

  call(name, args = [], options = undefined) {
    return this.session.call(name, this, args, options)
  }

  /** As call(), for what gives an object. */
  make(Class, name, args, options) {
    return make(this.session, Class, name, this, args, options)
  }

  dispose() {
    this.#disposed = true
    this.session.post('dispose', this)
  }
}

class RemoteBackend extends Remote {
  get name() {
    return this.about.name
  }

  get guid() {
    return this.about.guid
  }

  get device() {
    return this.about.device
  }

  get closed() {
    return !this.session.alive
  }

  allocBuffer(size) {
    return this.make(RemoteBuffer, 'allocBuffer', [size])
  }

  allocHostBuffer(size) {
    return this.make(RemoteHostBuffer, 'allocHostBuffer', [size])
  }

  createTensor(...args) {
    return this.make(RemoteTensor, 'createTensor', args)
  }

  loadWeights(path, names, convert, token, progress) {
    return this.make(RemoteWeights, 'loadWeights', [this.home.path(path), names, convert, token, progress !== undefined], { progress })
  }

  copy(src, dst) {
    return this.call('copy', [src, dst])
  }

  /** What the addon's methods take where they take a graph. */
  graph(graph, steps) {
    return this.session.graph(graph, steps, RemoteGraph)
  }

  supportsOp(graph, node) {
    return this.call('supportsOp', [graph, node])
  }

  explainOp(graph, node) {
    return this.call('explainOp', [graph, node])
  }

  offloadOp(graph, node) {
    return this.call('offloadOp', [graph, node])
  }

  supportsBuffer(buffer) {
    return this.call('supportsBuffer', [buffer])
  }

  supportsHostBuffer(buffer) {
    return this.call('supportsHostBuffer', [buffer])
  }

  prepare(graph, fallback) {
    return this.make(RemotePlan, 'prepare', [graph, fallback])
  }

  createEvent() {
    return this.make(RemoteEvent, 'createEvent', [])
  }

  record(event) {
    return this.call('record', [event])
  }

  wait(event) {
    return this.call('wait', [event])
  }

  synchronize() {
    return this.call('synchronize')
  }

  stats() {
    return this.call('stats')
  }

  async close() {
    // A process that has ended holds nothing.
    if (this.session.alive) await this.call('close')
  }
}

/** A graph in the other process, which has as many steps of the one here. */
class RemoteGraph extends Remote {
  steps = 0

  snapshot() {
    const copy = new RemoteGraph(this.session, this.session.newId())
    this.session.post('snapshot', this, [], copy.id)
    return copy
  }
}

class RemoteBuffer extends Remote {
  get size() {
    return this.about.size
  }

  get device() {
    return this.about.device
  }

  clear(value) {
    return this.call('clear', [value])
  }
}

class RemoteHostBuffer extends Remote {
  get size() {
    return this.about.size
  }

  get pinned() {
    return this.about.pinned
  }

  /** All of it is sent now: the data is the caller's again when this returns. */
  async write(data, offset) {
    const { byteLength } = data
    if (offset + byteLength > this.size) throw invalid(`at most ${this.size} bytes with the offset`, 'data', data)
    const sent = []
    let at = 0
    do {
      const some = data.subarray(at, Math.min(at + SLICE_BYTES, byteLength))
      sent.push(this.call('write', [this.session.bytes(some), offset + at]))
      at += SLICE_BYTES
    } while (at < byteLength)
    await Promise.all(sent)
  }

  async read(offset, size) {
    const bytes = new Bytes()
    await this.call('readHost', [offset, size], { part: bytes.part })
    const all = new Uint8Array(bytes.size)
    bytes.copy(all, 0)
    return all
  }
}

class RemoteEvent extends Remote {
  query() {
    return this.call('query')
  }

  synchronize() {
    return this.call('synchronize')
  }
}

class RemoteTensor extends Remote {
  get name() {
    return this.about.name
  }

  get type() {
    return this.about.type
  }

  get sourceType() {
    return this.about.sourceType
  }

  get ne() {
    return [...this.about.ne]
  }

  get nb() {
    return [...this.about.nb]
  }

  get nbytes() {
    return this.about.nbytes
  }

  write(data, offset) {
    return this.call('write', [this.session.bytes(data), offset])
  }

  async read(offset, size) {
    const bytes = new Bytes()
    await this.call('read', [offset, size], { part: bytes.part })
    return bytes
  }

  fill(byte) {
    return this.call('fill', [byte])
  }
}

/** A tensor of weights: known there by its name, and gone with them. */
class RemoteWeight extends RemoteTensor {
  #weights

  constructor(weights, about) {
    super(weights.session, undefined, about)
    this.#weights = weights
  }

  get disposed() {
    return super.disposed || this.#weights.disposed
  }

  place() {
    return { ...this.#weights.place(), name: this.name }
  }
}

/** What a GGUF file says; its lists of texts are asked for piece by piece. */
class RemoteFile extends Remote {
  get version() {
    return this.about.version
  }

  tensors() {
    return this.about.tensors
  }

  metadata() {
    return this.about.metadata.map(own)
  }

  async texts(key, start, count) {
    return (await this.call('texts', [key, start, count])).map(own)
  }
}

class RemoteWeights extends RemoteFile {
  #tensors

  constructor(session, id, about) {
    super(session, id, about)
    this.#tensors = new Map(about.tensors.map((tensor) => [tensor.name, tensor]))
  }

  get bytes() {
    return this.about.bytes
  }

  get names() {
    return [...this.#tensors.keys()]
  }

  has(name) {
    return this.#tensors.has(name)
  }

  get(name) {
    if (this.disposed && !this.session.alive) throw this.session.gone()
    const about = this.#tensors.get(name)
    if (about === undefined) throw new CannError('ERR_NOT_FOUND', `there is no tensor '${name}'`, { tensor: name })
    return new RemoteWeight(this, about)
  }
}

class RemotePlan extends Remote {
  get scratchBytes() {
    return this.about.scratchBytes
  }

  get inputs() {
    return this.about.inputs.map(([name]) => name)
  }

  get outputs() {
    return this.about.outputs.map(([name]) => name)
  }

  inputInfo(name) {
    return new Map(this.about.inputs).get(name)
  }

  outputInfo(name) {
    return new Map(this.about.outputs).get(name)
  }

  start() {
    return new RemoteRun(this)
  }

  copyOutput(outputs, name, dst, offset) {
    return outputs.get(name)?.copy(dst, offset) ?? false
  }

  releaseOutputs(outputs) {
    outputs.clear()
  }

  report() {
    return this.call('report')
  }

  trace() {
    return this.call('trace')
  }
}

/** A run being set up: all of it is one message, but for what is large. */
class RemoteRun {
  #plan
  #steps = []
  #token
  /** The run there, and parts of inputs on their way to it. */
  #run
  #parts = []

  constructor(plan) {
    this.#plan = plan
  }

  input(name, data) {
    // The caller's again when the call returns, which may be before the message is made.
    this.#steps.push(['input', name, data.slice()])
  }

  /** Resolves when few enough parts are on their way. */
  inputPart(name, offset, data) {
    const { session } = this.#plan
    if (this.#run === undefined) {
      this.#run = new Remote(session, session.newId())
      session.post('start', this.#plan, [], this.#run.id)
    }
    const sent = this.#run.call('inputPart', [name, offset, session.bytes(data)])
    sent.catch(() => {})
    this.#parts.push(sent)
    return this.#parts.at(-PARTS)
  }

  inputTensor(name, tensor) {
    this.#steps.push(['inputTensor', name, tensor])
  }

  outputs(names) {
    this.#steps.push(['outputs', names])
  }

  outputTo(name, tensor) {
    this.#steps.push(['outputTo', name, tensor])
  }

  cancel(token) {
    this.#token = token
  }

  trace(on) {
    this.#steps.push(['trace', on])
  }

  async submit() {
    const outputs = new Map()
    const part = ([name, bytes]) => {
      if (!outputs.has(name)) outputs.set(name, new Bytes())
      outputs.get(name).part(bytes)
    }
    const small = await this.#plan.call('run', [this.#token, this.#steps, this.#run], { part })
    for (const each of small ?? []) part(each)
    return outputs
  }

  abandon() {
    if (this.#run !== undefined) this.#plan.session.post('abandon', this.#run)
  }
}

/** What came in parts. */
class Bytes {
  #parts = []
  size = 0

  part = (bytes) => {
    this.#parts.push(bytes)
    this.size += bytes.byteLength
  }

  /** Fills `dst` with what begins at `offset`; false when there is not as much. */
  copy(dst, offset) {
    if (offset + dst.byteLength > this.size) return false
    // All parts but the last are of one size.
    for (let done = 0; done < dst.byteLength; ) {
      const at = offset + done
      const some = this.#parts[Math.floor(at / SLICE_BYTES)].subarray(at % SLICE_BYTES, (at % SLICE_BYTES) + dst.byteLength - done)
      dst.set(some, done)
      done += some.byteLength
    }
    return true
  }

  release() {
    this.#parts = []
    this.size = 0
  }
}

/** An array in memory of its own, not a window into the message. */
const own = (value) => (ArrayBuffer.isView(value) ? value.slice() : value)

/** A request to stop a call. */
class CancelToken {
  #cancelled = false

  place(session) {
    this.session = session
    this.id ??= session.newId()
    return { token: this.id, cancelled: this.#cancelled }
  }

  cancel() {
    this.#cancelled = true
    this.session?.post('cancel', undefined, [this.id])
  }
}

/** The functions of the addon, over a function that gives a session. */
function bindingOver(session) {
  const ask = async (name) => (await session()).call(name, undefined, [])
  return {
    CancelToken,
    Backend: {
      open: async (options) => make(await session(), RemoteBackend, 'open', undefined, [options]),
    },
    listDevices: () => ask('listDevices'),
    driverReport: () => ask('driverReport'),
    async readGguf(path) {
      const child = await session()
      return make(child, RemoteFile, 'readGguf', undefined, [child.home.path(path)])
    },
  }
}

module.exports = { bindingOver }
