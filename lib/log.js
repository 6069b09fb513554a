'use strict'

const check = require('./check.js')

const LEVELS = ['error', 'warn', 'info', 'debug', 'trace']

/** An onLog() whose listeners share one source: `setLogListener(level, listener)` says what is wanted of it. */
function logOf(setLogListener) {
  const listeners = new Set()

  function dispatch(record) {
    const rank = LEVELS.indexOf(record.level)
    for (const { most, listener } of [...listeners]) {
      if (rank > most) continue
      try {
        listener(record)
      } catch (error) {
        // The other listeners still get it; the error is the process's, as with an event emitter.
        queueMicrotask(() => {
          throw error
        })
      }
    }
  }

  function refresh() {
    const most = Math.max(-1, ...[...listeners].map((entry) => entry.most))
    if (most < 0) setLogListener(undefined, undefined)
    else setLogListener(LEVELS[most], dispatch)
  }

  return function onLog(level, listener) {
    check.oneOf(level, LEVELS, 'level')
    check.fn(listener, 'listener')
    const entry = { most: LEVELS.indexOf(level), listener }
    listeners.add(entry)
    refresh()
    return () => {
      if (listeners.delete(entry)) refresh()
    }
  }
}

module.exports = { logOf }
