'use strict'

const check = require('./check.js')
const { settle } = require('./errors.js')
const { Handle, backendOf, make, nativeOf } = require('./handle.js')
const { Tensor } = require('./tensor.js')
const { nextTurn } = require('./turns.js')

/** Texts that are turned into strings at a time: one or two milliseconds. */
const SLICE_TEXTS = 4096

/** Metadata as an object. A vocabulary is large: the event loop turns between pieces. Keys are a file's: '__proto__' is one like any other. */
async function metadataInTurns(file) {
  const list = file.metadata()
  const entries = []
  for (let i = 0; i < list.length; i += 2) {
    const key = list[i]
    entries.push([key, list[i + 1] ?? (await textsInTurns(file, key))])
  }
  return Object.fromEntries(entries)
}

async function textsInTurns(file, key) {
  const all = []
  for (;;) {
    const some = await file.texts(key, all.length, SLICE_TEXTS)
    all.push(...some)
    if (some.length < SLICE_TEXTS) return all
    await nextTurn()
  }
}

class Weights extends Handle {
  static shown = ['bytes']
  #metadata
  #names
  #tensors = new Map()

  static over(weights, metadata) {
    weights.#metadata = metadata
    return weights
  }

  get metadata() {
    return this.#metadata
  }

  get names() {
    return [...(this.#names ??= nativeOf(this).names)]
  }

  get bytes() {
    return nativeOf(this).bytes
  }

  has(name) {
    return nativeOf(this).has(check.string(name, 'name'))
  }

  get(name) {
    check.string(name, 'name')
    let tensor = this.#tensors.get(name)
    if (tensor === undefined) {
      tensor = make(Tensor, nativeOf(this).get(name), backendOf(this))
      this.#tensors.set(name, tensor)
    }
    return tensor
  }
}

/** `binding` gives the addon, or what stands for it in another process. */
async function readGguf(binding, path) {
  check.string(path, 'path')
  const file = await settle(binding().readGguf(path))
  return { version: file.version, metadata: await metadataInTurns(file), tensors: file.tensors() }
}

module.exports = { Weights, metadataInTurns, readGguf }
