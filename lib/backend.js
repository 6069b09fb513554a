'use strict'

const { abortable, onAbort } = require('./abort.js')
const { native } = require('./binding.js')
const check = require('./check.js')
const { invalid, settle } = require('./errors.js')
const { Handle, backendOf, make, nativeOf } = require('./handle.js')
const { DeviceBuffer, HostBuffer } = require('./buffers.js')
const { Event } = require('./event.js')
const { Graph, GraphTensor } = require('./graph.js')
const { Plan } = require('./plan.js')
const { Tensor } = require('./tensor.js')
const { Turns } = require('./turns.js')
const { Weights, metadataInTurns } = require('./weights.js')

const POOLS = ['auto', 'vmm', 'buffer', 'priority', 'legacy']
const CONVERSIONS = ['auto', 'f16', 'q8_0', 'never']

class Backend extends Handle {
  static shown = ['name', 'closed']
  #turns = new Turns()
  #device
  #closing

  static async open(options) {
    const { device, pool, asyncMode, threads } = check.options(options, ['device', 'pool', 'asyncMode', 'threads'])
    if (device !== undefined && typeof device !== 'string') check.size(device, 'options.device')
    if (pool !== undefined) check.oneOf(pool, POOLS, 'options.pool')
    if (asyncMode !== undefined) check.boolean(asyncMode, 'options.asyncMode')
    if (threads !== undefined) check.threads(threads, 'options.threads')
    return make(Backend, await settle(native().Backend.open({ device, pool, asyncMode, threads })))
  }

  get name() {
    return nativeOf(this).name
  }

  get guid() {
    return nativeOf(this).guid
  }

  get device() {
    return (this.#device ??= nativeOf(this).device)
  }

  /** The order of calls; not for users. */
  get turns() {
    return this.#turns
  }

  get closed() {
    return this.#closing !== undefined || nativeOf(this).closed
  }

  async allocBuffer(size) {
    check.size(size, 'size')
    return make(DeviceBuffer, await this.#call((backend) => backend.allocBuffer(size)), this)
  }

  async allocHostBuffer(size) {
    check.size(size, 'size')
    return make(HostBuffer, await this.#call((backend) => backend.allocHostBuffer(size)), this)
  }

  async createTensor(spec) {
    const { type, ne, name, buffer, offset } = check.options(spec ?? null, ['type', 'ne', 'name', 'buffer', 'offset'], 'spec')
    check.string(type, 'spec.type')
    check.extents(ne, 'spec.ne')
    if (name !== undefined) check.string(name, 'spec.name')
    if (buffer !== undefined) check.instance(buffer, DeviceBuffer, 'spec.buffer')
    if (offset !== undefined) check.size(offset, 'spec.offset')
    if (offset && buffer === undefined) throw invalid('DeviceBuffer when spec.offset is given', 'spec.buffer', buffer)
    const place = buffer && nativeOf(buffer)
    return make(Tensor, await this.#call((backend) => backend.createTensor(type, ne, name, place, offset)), this)
  }

  async loadWeights(path, options) {
    check.string(path, 'path')
    const { onProgress, signal, filter, convert } = check.options(options, ['onProgress', 'signal', 'filter', 'convert'])
    if (onProgress !== undefined) check.fn(onProgress, 'options.onProgress')
    if (signal !== undefined) check.signal(signal)
    if (filter !== undefined) check.fn(filter, 'options.filter')
    if (convert !== undefined) check.oneOf(convert, CONVERSIONS, 'options.convert')
    let open = true
    let last
    let thrown
    let cancel
    const report = (progress) => {
      if (!open) return
      try {
        onProgress((last = progress))
      } catch (error) {
        // As an error of any callback: it ends the load, which rejects with it.
        thrown ??= { error }
        stop()
        cancel()
      }
    }
    const stop = () => {
      open = false
    }
    const start = async (token = new (native().CancelToken)()) => {
      cancel = () => token.cancel()
      const keep = (name) => {
        const answer = filter(name)
        // A promise is truthy: an async filter would keep everything.
        if (typeof answer?.then === 'function') throw invalid('function that answers at once', 'options.filter', filter)
        return answer
      }
      const names = filter && (await namesOf(path)).filter(keep)
      if (signal?.aborted) throw signal.reason
      const loaded = await settle(nativeOf(this).loadWeights(path, names, convert, token, onProgress && report))
      return { loaded, metadata: await metadataInTurns(loaded) }
    }
    const off = signal && onAbort(signal, stop)
    try {
      const { loaded, metadata } = await abortable(signal, start, (late) => late.loaded.dispose())
      if (thrown !== undefined) loaded.dispose()
      else if (onProgress !== undefined && open && !(last && last.bytesDone >= last.bytesTotal)) {
        // The last report was still on its way.
        const { bytes, names } = loaded
        report(last ? { ...last, bytesDone: last.bytesTotal } : { bytesDone: bytes, bytesTotal: bytes, tensor: names.at(-1) ?? '' })
      }
      if (thrown !== undefined) throw thrown.error
      return Weights.over(make(Weights, loaded, this), metadata)
    } catch (error) {
      throw thrown === undefined || signal?.aborted ? error : thrown.error
    } finally {
      stop()
      off?.()
    }
  }

  async copy(src, dst) {
    check.instance(src, Tensor, 'src')
    check.instance(dst, Tensor, 'dst')
    const from = backendOf(src)
    // What was called on the source's backend before has to be handed over first.
    if (from !== this && from.turns.busy) await from.turns.call(async () => {})
    await this.#call((backend) => backend.copy(nativeOf(src), nativeOf(dst)))
  }

  supportsOp(node) {
    const { graph, id } = place(node)
    return nativeOf(this).supportsOp(graph, id)
  }

  explainOp(node) {
    const { graph, id } = place(node)
    return nativeOf(this).explainOp(graph, id)
  }

  offloadOp(node) {
    const { graph, id } = place(node)
    return nativeOf(this).offloadOp(graph, id)
  }

  supportsBuffer(buffer) {
    if (buffer instanceof HostBuffer) return nativeOf(this).supportsHostBuffer(nativeOf(buffer))
    check.instance(buffer, DeviceBuffer, 'buffer')
    return nativeOf(this).supportsBuffer(nativeOf(buffer))
  }

  allocSize(spec) {
    const { type, ne } = check.object(spec, 'spec')
    return native().Backend.allocSize(check.string(type, 'spec.type'), check.extents(ne, 'spec.ne'))
  }

  async prepare(graph, options) {
    check.instance(graph, Graph, 'graph')
    const { fallback } = check.options(options, ['fallback'])
    if (fallback !== undefined) check.instance(fallback, Backend, 'options.fallback')
    // The snapshot is taken now, whenever it is this call's turn.
    const snapshot = Graph.native(graph).snapshot()
    const other = fallback && nativeOf(fallback)
    const prepared = this.#turns.callAfter(fallback?.turns, () => nativeOf(this).prepare(snapshot, other))
    return Plan.over(make(Plan, await settle(prepared), this), fallback)
  }

  async createEvent() {
    return make(Event, await this.#call((backend) => backend.createEvent()), this)
  }

  async record(event) {
    check.instance(event, Event, 'event')
    await this.#call((backend) => backend.record(nativeOf(event)))
  }

  async wait(event) {
    check.instance(event, Event, 'event')
    const from = backendOf(event)
    if (from !== this && from.turns.busy) await from.turns.call(async () => {})
    await this.#call((backend) => backend.wait(nativeOf(event)))
  }

  async synchronize() {
    await this.#call((backend) => backend.synchronize())
  }

  stats() {
    return nativeOf(this).stats()
  }

  close() {
    return (this.#closing ??= this.#call((backend) => backend.close()))
  }

  dispose() {
    // Errors of closing are for those who await close().
    this.close().catch(() => {})
  }

  async [Symbol.asyncDispose]() {
    await this.close()
  }

  async #call(submit) {
    return settle(this.#turns.call(() => submit(nativeOf(this))))
  }
}

function place(node) {
  check.instance(node, GraphTensor, 'node')
  const { graph, id } = GraphTensor.place(node)
  return { graph: Graph.native(graph), id }
}

async function namesOf(path) {
  const file = await native().readGguf(path)
  return file.tensors().map((tensor) => tensor.name)
}

async function listDevices() {
  return settle(native().listDevices())
}

async function driverReport() {
  return settle(native().driverReport())
}

module.exports = { Backend, listDevices, driverReport }
