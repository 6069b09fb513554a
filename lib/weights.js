'use strict'

const { native } = require('./binding.js')
const check = require('./check.js')
const { settle } = require('./errors.js')
const { Handle, backendOf, make, nativeOf } = require('./handle.js')
const { Tensor } = require('./tensor.js')

/** An object of keys and values by turns. Keys come from a file: '__proto__' is a name like any other. */
function toObject(list) {
  const entries = []
  for (let i = 0; i < list.length; i += 2) entries.push([list[i], list[i + 1]])
  return Object.fromEntries(entries)
}

class Weights extends Handle {
  static shown = ['bytes']
  #metadata
  #names
  #tensors = new Map()

  /** Read from the native side at first use: a vocabulary is large. */
  get metadata() {
    return (this.#metadata ??= toObject(nativeOf(this).metadata()))
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

async function readGguf(path) {
  check.string(path, 'path')
  const file = await settle(native().readGguf(path))
  return { version: file.version, metadata: toObject(file.metadata()), tensors: file.tensors() }
}

module.exports = { Weights, readGguf }
