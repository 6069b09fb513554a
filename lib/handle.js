'use strict'

// What every class of the package has: a native object that users cannot reach, the backend whose order it keeps, and
// disposal in three spellings.

const { inspect } = require('node:util')

const check = require('./check.js')
const { invalid } = require('./errors.js')

const KEY = Symbol('cann-node')

class Handle {
  #native
  #backend

  constructor(key, native, backend) {
    if (key !== KEY) throw new TypeError(`${new.target.name} objects are made by the package, not by new`)
    this.#native = native
    this.#backend = backend
  }

  static native(handle) {
    return handle.#native
  }

  static backend(handle) {
    return handle.#backend
  }

  /** Marks at once; memory goes back when the last task that uses it is past. */
  dispose() {
    this.#native.dispose()
  }

  [Symbol.dispose]() {
    this.dispose()
  }

  /** As dispose(), and resolves when the memory has gone back. */
  async [Symbol.asyncDispose]() {
    this.dispose()
    try {
      await this.#backend?.synchronize()
    } catch (error) {
      // A backend that is closed or closing takes the memory of what is left.
      if (error.code !== 'ERR_DISPOSED') throw error
    }
  }

  [inspect.custom](depth, options) {
    const shown = {}
    for (const name of this.constructor.shown ?? []) shown[name] = this[name]
    return `${this.constructor.name} ${inspect(shown, { ...options, depth: 1 })}`
  }
}

/** The only way to an object of these classes. */
const make = (Class, native, backend) => new Class(KEY, native, backend)

const nativeOf = Handle.native

/** The other process that a native object lives in (see host/); undefined is this one. */
const homeOf = (handle) => nativeOf(handle).home

/** An argument of a class, in the same process as `home`. */
function checkPeer(value, Class, name, home) {
  check.instance(value, Class, name)
  if (homeOf(value) !== home) throw invalid(`${Class.name} of the same process`, name, value)
  return value
}

/** What this process knows at once, another is asked for: then it comes as a promise, and so does what the call throws. */
function answer(handle, call) {
  return homeOf(handle) === undefined ? call() : (async () => call())()
}

module.exports = { Handle, answer, backendOf: Handle.backend, checkPeer, homeOf, make, nativeOf }
