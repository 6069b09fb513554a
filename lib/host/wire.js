'use strict'

// What the two processes say to each other. Messages are arrays.
//
//   parent to child  [id, name, on, args, as]   do `name` with object `on`; the result is called `as`. Without id nobody waits.
//   child to parent  [id, 'value' | 'error', x] the end of a call
//                    [id, 'part', x]            some of its result; acknowledged, so that few are under way
//                    [id, 'progress', x]        how far it is
//                    [0, 'ready'], [0, 'log', record]
//
// Both sides do what they are told in the order in which it comes. Objects are numbers that the parent chooses; where one is an
// argument it is { ref } or, of a tensor of weights, { ref, name }.

const { CannError } = require('../errors.js')

/** Parts of a result, or of an input, under way at a time. */
const PARTS = 4
/** Log records under way at a time; what comes meanwhile is counted. */
const RECORDS = 1024

/** An error as plain data. */
function packError(error) {
  if (!(error instanceof CannError)) return { message: String(error?.message ?? error) }
  const { message, code, cause, ...fields } = error
  return { message, code, fields, cause: cause && { ...cause, message: cause.message } }
}

/** The same error in this process. */
function unpackError({ message, code = 'ERR_INTERNAL', fields, cause }) {
  const options = cause && { cause: Object.assign(new Error(cause.message), cause) }
  return new CannError(code, message, fields, options)
}

module.exports = { PARTS, RECORDS, packError, unpackError }
