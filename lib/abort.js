'use strict'

// AbortSignal: rejects at once and with exactly the signal's reason; the native side stops where it can.

const { native } = require('./binding.js')

/**
 * Runs `start(token)` under a signal. `discard` gets what it gave when that came too late.
 */
async function abortable(signal, start, discard) {
  if (signal === undefined) return start(undefined)
  if (signal.aborted) throw signal.reason
  const token = new (native().CancelToken)()
  return new Promise((resolve, reject) => {
    let aborted = false
    const onAbort = () => {
      aborted = true
      token.cancel()
      reject(signal.reason)
    }
    signal.addEventListener('abort', onAbort, { once: true })
    let work
    try {
      work = start(token)
    } catch (error) {
      work = Promise.reject(error)
    }
    work.then(
      (value) => {
        signal.removeEventListener('abort', onAbort)
        if (aborted) discard?.(value)
        else resolve(value)
      },
      (error) => {
        signal.removeEventListener('abort', onAbort)
        reject(error)
      },
    )
  })
}

module.exports = { abortable }
