'use strict'

// The one error class, and how arguments are refused.

const { inspect, getSystemErrorName, getSystemErrorMap } = require('node:util')

class CannError extends Error {
  constructor(code, message, fields = {}, options) {
    super(message, options)
    this.code = code
    for (const [name, value] of Object.entries(fields)) {
      if (value !== undefined && value !== null) this[name] = value
    }
  }
}
// On the prototype, as with Node's own errors: it is no data of one error.
Object.defineProperty(CannError.prototype, 'name', { value: 'CannError', configurable: true, writable: true })

/** Makes the error of a native call: the addon calls it on the JavaScript thread. */
function fromNative(code, message, fields) {
  const { path, osCode, ...shown } = fields
  const text = code === 'ERR_INVALID_ARG' ? message[0].toUpperCase() + message.slice(1) : message
  const cause = code === 'ERR_IO' ? systemError(message, path, osCode) : undefined
  return new CannError(code, text, shown, cause && { cause })
}

/** The error that Node's own file functions would have given. */
function systemError(message, path, osCode) {
  let code
  let text = message
  try {
    if (osCode !== undefined) {
      code = getSystemErrorName(-osCode)
      text = `${code}: ${getSystemErrorMap().get(-osCode)?.[1] ?? message}, open '${path}'`
    }
  } catch {
    // A number this system has no name for (Windows' own): the message says it.
  }
  const error = new Error(text)
  if (osCode !== undefined) error.errno = -osCode
  if (code) error.code = code
  error.syscall = 'open'
  if (path !== undefined) error.path = path
  return error
}

/** A refused argument, in one wording everywhere. */
function invalid(expected, name, actual) {
  const shown = typeof actual === 'string' ? `'${actual}'` : inspect(actual, { depth: 0, maxArrayLength: 4, breakLength: Infinity })
  const type = actual === null ? 'null' : Array.isArray(actual) ? 'array' : typeof actual
  const short = shown.length > 80 ? `${shown.slice(0, 77)}...` : shown
  const received = type === 'undefined' || type === 'null' ? short : `${short} of type ${type}`
  return new CannError('ERR_INVALID_ARG', `Expected ${expected} for ${name} but received ${received}`)
}

function disposed(what) {
  return new CannError('ERR_DISPOSED', `${what} was disposed`)
}

/** A native promise's rejection with the stack of the asynchronous caller, which the native thread has not. */
function traced(error, above) {
  if (error instanceof CannError) Error.captureStackTrace?.(error, above)
  return error
}

/** Awaits a native promise. */
async function settle(promise) {
  try {
    return await promise
  } catch (error) {
    throw traced(error, settle)
  }
}

module.exports = { CannError, fromNative, invalid, disposed, settle, traced }
