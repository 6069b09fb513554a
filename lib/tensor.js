'use strict'

const { native } = require('./binding.js')
const check = require('./check.js')
const { invalid, settle } = require('./errors.js')
const { allocate, checkTarget, fill, toBytes } = require('./data.js')
const { Handle, nativeOf, backendOf } = require('./handle.js')
const { AT_ONCE_BYTES, SLICE_BYTES, nextTurn } = require('./turns.js')

/** Slices on their way at a time. */
const SLICES = 4

let blocks

/** Bytes of a dtype's block; slices are whole blocks, so none is read back to be completed. */
function blockBytes(dtype) {
  blocks ??= new Map(native().dtypes().map((row) => [row.name, row.blockBytes]))
  return blocks.get(dtype)
}

class Tensor extends Handle {
  static shown = ['name', 'type', 'ne']

  get name() {
    return nativeOf(this).name
  }

  get type() {
    return nativeOf(this).type
  }

  get sourceType() {
    return nativeOf(this).sourceType
  }

  get ne() {
    return nativeOf(this).ne
  }

  get nb() {
    return nativeOf(this).nb
  }

  get nbytes() {
    return nativeOf(this).nbytes
  }

  async write(data, offset = 0) {
    check.size(offset, 'offset')
    const bytes = toBytes(data, this.type, 'data')
    const { turns } = backendOf(this)
    if (bytes.byteLength > AT_ONCE_BYTES) {
      await settle(turns.hold(() => this.#writeSlices(bytes, offset)).then(([arrival]) => arrival))
      return
    }
    const owned = turns.busy ? bytes.slice() : bytes
    await settle(turns.call(() => nativeOf(this).write(owned, offset)))
  }

  /** Hands over slice by slice. Resolves, when all are handed over, to the promise (in an array) of their arrival. */
  async #writeSlices(bytes, offset) {
    const total = bytes.byteLength
    const block = blockBytes(this.type)
    const step = Math.max(block, SLICE_BYTES - (SLICE_BYTES % block))
    const pending = []
    let failure
    const watch = (error) => {
      failure ??= { error }
    }
    for (let at = 0; at < total && failure === undefined; at += step) {
      if (at > 0) await nextTurn()
      if (bytes.byteLength !== total) throw invalid('data that stays attached until the write is over', 'data', bytes)
      if (pending.length >= SLICES) await pending[pending.length - SLICES]
      const slice = bytes.subarray(at, Math.min(at + step, total))
      pending.push(nativeOf(this).write(slice, offset + at).catch(watch))
    }
    const arrival = Promise.all(pending).then(() => {
      if (failure !== undefined) throw failure.error
    })
    return [arrival]
  }

  async read(offset = 0, size = undefined) {
    const { nbytes } = this
    check.size(offset, 'offset')
    const bytes = size === undefined ? Math.max(0, nbytes - offset) : check.size(size, 'size')
    if (bytes > nbytes) throw invalid(`at most the tensor's ${nbytes} bytes`, 'size', size)
    return this.#readInto(allocate(this.type, bytes), offset)
  }

  async readInto(dst, offset = 0) {
    check.size(offset, 'offset')
    return this.#readInto(checkTarget(dst, this.type, 'dst'), offset)
  }

  async #readInto(target, offset) {
    const { turns } = backendOf(this)
    const size = target.byteLength
    const bytes = await settle(turns.call(() => nativeOf(this).read(offset, size)))
    try {
      if (await fill(target, size, (part, at) => bytes.copy(part, at))) return target
      throw invalid('memory that stays attached until the read is over', 'dst', target)
    } finally {
      bytes.release()
    }
  }

  async fill(byte) {
    check.byte(byte, 'byte')
    await settle(backendOf(this).turns.call(() => nativeOf(this).fill(byte)))
  }
}

module.exports = { Tensor }
