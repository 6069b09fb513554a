'use strict'

// The addon, opened at first use: importing the package neither fails nor costs anything where it is never called.

const { setImmediate } = require('node:timers')

const { CannError, fromNative } = require('./errors.js')
const { load } = require('../native.js')

let binding

/** The addon. Throws ERR_LOAD with the whole story when it cannot be opened. */
function native() {
  if (binding === undefined) {
    let opened
    try {
      opened = load()
    } catch (error) {
      const { hint, attempts } = error
      throw new CannError('ERR_LOAD', error.message, { hint, attempts }, { cause: error.cause })
    }
    // Some promises in each turn of the event loop, however many are ready.
    const settle = () => {
      let more = true
      try {
        more = opened.settleReady()
      } finally {
        if (more) setImmediate(settle)
      }
    }
    opened.init(fromNative, settle)
    binding = opened
  }
  return binding
}

/** What makes native objects where this one lives: the addon, or what stands for it in another process. */
const bindingOf = (nativeObject) => nativeObject.home?.binding ?? native()

module.exports = { bindingOf, native }
