'use strict'

// Arguments: each function gives the value back or throws ERR_INVALID_ARG.

const { invalid } = require('./errors.js')

function string(value, name) {
  if (typeof value !== 'string') throw invalid('string', name, value)
  return value
}

function boolean(value, name) {
  if (typeof value !== 'boolean') throw invalid('boolean', name, value)
  return value
}

/** A whole number of bytes, elements or such. */
function size(value, name) {
  if (!Number.isSafeInteger(value) || value < 0) throw invalid('non-negative integer', name, value)
  return value
}

function threads(value, name) {
  if (!Number.isInteger(value) || value < 1 || value >= 2 ** 32) throw invalid('integer between 1 and 2^32 - 1', name, value)
  return value
}

function byte(value, name) {
  if (!Number.isInteger(value) || value < 0 || value > 255) throw invalid('integer between 0 and 255', name, value)
  return value
}

function fn(value, name) {
  if (typeof value !== 'function') throw invalid('function', name, value)
  return value
}

function object(value, name) {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) throw invalid('object', name, value)
  return value
}

/** An options object; undefined is an empty one. Unknown names are refused: a typing mistake must not be a silent default. */
function options(value, known, name = 'options') {
  if (value === undefined) return {}
  object(value, name)
  for (const key of Object.keys(value)) {
    if (!known.includes(key)) throw invalid(`one of ${known.join(', ')}`, `a name in ${name}`, key)
  }
  return value
}

function oneOf(value, values, name) {
  if (!values.includes(value)) throw invalid(`one of: ${values.join(', ')}`, name, value)
  return value
}

/** Whether a value is an array all of whose items pass. Holes are items here, which every() does not look at. */
const arrayOf = (value, passes) => Array.isArray(value) && value.findIndex((item) => !passes(item)) < 0

function strings(value, name) {
  if (!arrayOf(value, (item) => typeof item === 'string')) throw invalid('array of strings', name, value)
  return value
}

/** One to four extents. */
function extents(value, name) {
  const ok = arrayOf(value, (n) => Number.isSafeInteger(n) && n >= 0)
  if (!ok || value.length < 1 || value.length > 4) {
    throw invalid('array of 1 to 4 non-negative integers', name, value)
  }
  return value
}

function instance(value, Class, name) {
  if (!(value instanceof Class)) throw invalid(`${Class.name}`, name, value)
  return value
}

function signal(value, name = 'options.signal') {
  const ok = value !== null && typeof value === 'object' && typeof value.aborted === 'boolean'
  if (!ok || typeof value.addEventListener !== 'function') throw invalid('AbortSignal', name, value)
  return value
}

module.exports = { arrayOf, string, boolean, size, threads, byte, fn, object, options, oneOf, strings, extents, instance, signal }
