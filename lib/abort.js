'use strict'

// AbortSignal: rejects at once and with exactly the signal's reason; the native side stops where it can.

/** What is called when a signal fires. One listener for all: a signal may well be shared by a thousand runs. */
const watchers = new WeakMap()

/** Calls `callback` once when the signal fires, unless the function that comes back is called before. */
function onAbort(signal, callback) {
  let watcher = watchers.get(signal)
  if (watcher === undefined) {
    const callbacks = new Set()
    const fire = () => {
      watchers.delete(signal)
      for (const each of callbacks) each()
    }
    watcher = { callbacks, fire }
    watchers.set(signal, watcher)
    signal.addEventListener('abort', fire, { once: true })
  }
  // Its own identity: a callback may be given twice.
  const entry = () => callback()
  watcher.callbacks.add(entry)
  return () => {
    watcher.callbacks.delete(entry)
    if (watcher.callbacks.size > 0 || watchers.get(signal) !== watcher) return
    watchers.delete(signal)
    signal.removeEventListener('abort', watcher.fire)
  }
}

/**
 * Runs `start(token)` under a signal; `CancelToken` is the class of tokens that `start` wants. `discard` gets what it gave when
 * that came too late.
 */
async function abortable(signal, CancelToken, start, discard) {
  if (signal === undefined) return start(undefined)
  if (signal.aborted) throw signal.reason
  const token = new CancelToken()
  return new Promise((resolve, reject) => {
    let aborted = false
    const off = onAbort(signal, () => {
      aborted = true
      token.cancel()
      reject(signal.reason)
    })
    let work
    try {
      work = start(token)
    } catch (error) {
      work = Promise.reject(error)
    }
    work.then(
      (value) => {
        off()
        if (aborted) discard?.(value)
        else resolve(value)
      },
      (error) => {
        off()
        reject(error)
      },
    )
  })
}

module.exports = { abortable, onAbort }
