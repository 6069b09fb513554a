'use strict'

const { abortable, onAbort } = require('./abort.js')
const { bindingOf, native } = require('./binding.js')
const check = require('./check.js')
const { invalid, settle } = require('./errors.js')
const { Handle, answer, backendOf, checkPeer, homeOf, make, nativeOf } = require('./handle.js')
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

  static open(options) {
    return open(Backend, native, options)
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
    if (buffer !== undefined) checkPeer(buffer, DeviceBuffer, 'spec.buffer', homeOf(this))
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
    const { CancelToken, readGguf } = bindingOf(nativeOf(this))
    const start = async (token = new CancelToken()) => {
      cancel = () => token.cancel()
      const keep = (name) => {
        const answer = filter(name)
        // A promise is truthy: an async filter would keep everything.
        if (typeof answer?.then === 'function') throw invalid('function that answers at once', 'options.filter', filter)
        return answer
      }
      const names = filter && (await readGguf(path)).tensors().map((tensor) => tensor.name).filter(keep)
      if (signal?.aborted) throw signal.reason
      const loaded = await settle(nativeOf(this).loadWeights(path, names, convert, token, onProgress && report))
      return { loaded, metadata: await metadataInTurns(loaded) }
    }
    const off = signal && onAbort(signal, stop)
    try {
      const { loaded, metadata } = await abortable(signal, CancelToken, start, (late) => late.loaded.dispose())
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
    checkPeer(src, Tensor, 'src', homeOf(this))
    checkPeer(dst, Tensor, 'dst', homeOf(this))
    const from = backendOf(src)
    await settle(this.#turns.callAfter(from.turns, () => nativeOf(this).copy(nativeOf(src), nativeOf(dst))))
  }

  supportsOp(node) {
    return answer(this, () => nativeOf(this).supportsOp(...place(node, this)))
  }

  explainOp(node) {
    return answer(this, () => nativeOf(this).explainOp(...place(node, this)))
  }

  offloadOp(node) {
    return answer(this, () => nativeOf(this).offloadOp(...place(node, this)))
  }

  supportsBuffer(buffer) {
    return answer(this, () => {
      const host = buffer instanceof HostBuffer
      const memory = nativeOf(checkPeer(buffer, host ? HostBuffer : DeviceBuffer, 'buffer', homeOf(this)))
      return host ? nativeOf(this).supportsHostBuffer(memory) : nativeOf(this).supportsBuffer(memory)
    })
  }

  allocSize(spec) {
    const { type, ne } = check.object(spec, 'spec')
    return native().Backend.allocSize(check.string(type, 'spec.type'), check.extents(ne, 'spec.ne'))
  }

  async prepare(graph, options) {
    check.instance(graph, Graph, 'graph')
    const { fallback } = check.options(options, ['fallback'])
    if (fallback !== undefined) checkPeer(fallback, Backend, 'options.fallback', homeOf(this))
    // The snapshot is taken now, whenever it is this call's turn.
    const snapshot = Graph.of(graph, nativeOf(this), 'graph').snapshot()
    const other = fallback && nativeOf(fallback)
    const prepared = this.#turns.callAfter(fallback?.turns, () => nativeOf(this).prepare(snapshot, other))
    return Plan.over(make(Plan, await settle(prepared), this), fallback)
  }

  async createEvent() {
    return make(Event, await this.#call((backend) => backend.createEvent()), this)
  }

  async record(event) {
    checkPeer(event, Event, 'event', homeOf(this))
    await this.#call((backend) => backend.record(nativeOf(event)))
  }

  async wait(event) {
    checkPeer(event, Event, 'event', homeOf(this))
    const from = backendOf(event)
    await settle(this.#turns.callAfter(from.turns, () => nativeOf(this).wait(nativeOf(event))))
  }

  async synchronize() {
    await this.#call((backend) => backend.synchronize())
  }

  stats() {
    return answer(this, () => nativeOf(this).stats())
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

/** A node as the native backend takes it: graph and number. */
function place(node, backend) {
  check.instance(node, GraphTensor, 'node')
  const { graph, id } = GraphTensor.place(node)
  return [Graph.of(graph, nativeOf(backend), 'node'), id]
}

// `binding` gives the addon, or what stands for it in another process.

async function open(Class, binding, options) {
  const { device, pool, asyncMode, threads } = check.options(options, ['device', 'pool', 'asyncMode', 'threads'])
  if (device !== undefined && typeof device !== 'string') check.size(device, 'options.device')
  if (pool !== undefined) check.oneOf(pool, POOLS, 'options.pool')
  if (asyncMode !== undefined) check.boolean(asyncMode, 'options.asyncMode')
  if (threads !== undefined) check.threads(threads, 'options.threads')
  return make(Class, await settle(binding().Backend.open({ device, pool, asyncMode, threads })))
}

async function listDevices(binding) {
  return settle(binding().listDevices())
}

async function driverReport(binding) {
  return settle(binding().driverReport())
}

module.exports = { Backend, driverReport, listDevices, open }
