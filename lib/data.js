'use strict'

// Typed arrays and bytes. Memory is always V8's: native code copies into it or out of it while a call runs.

const { types } = require('node:util')
const { invalid } = require('./errors.js')
const { SLICE_BYTES, nextTurn } = require('./turns.js')

const ARRAYS = {
  f32: Float32Array,
  f64: Float64Array,
  f16: Uint16Array,
  bf16: Uint16Array,
  i8: Int8Array,
  i16: Int16Array,
  i32: Int32Array,
  i64: BigInt64Array,
}

/** The class that holds data of a dtype; ggml's blocks are bytes. */
const arrayOf = (dtype) => ARRAYS[dtype] ?? Uint8Array

/** A Uint8Array over the memory of a view or buffer. */
function bytesOf(data, name) {
  try {
    return ArrayBuffer.isView(data) ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength) : new Uint8Array(data)
  } catch {
    throw invalid('memory that is not detached', name, data)
  }
}

function accepts(dtype, data) {
  if (types.isAnyArrayBuffer(data)) return true
  const Class = arrayOf(dtype)
  if (data instanceof Class) return true
  // Another realm's array has the same tag.
  const tag = ArrayBuffer.isView(data) ? data[Symbol.toStringTag] : undefined
  return tag === Class.name || (dtype === 'f16' && tag === 'Float16Array')
}

/** The bytes of `data`, which must suit `dtype`. They alias the caller's memory, except for shared memory, which is copied. */
function toBytes(data, dtype, name) {
  if (!accepts(dtype, data)) throw invalid(`${arrayOf(dtype).name} or ArrayBuffer (${dtype})`, name, data)
  const view = bytesOf(data, name)
  // Another thread may write shared memory while native code reads it.
  return types.isSharedArrayBuffer(view.buffer) ? new Uint8Array(view) : view
}

/** Bytes of any view or buffer, whatever its element type. */
function rawBytes(data, name) {
  if (types.isAnyArrayBuffer(data)) return toBytes(data, 'i8', name)
  if (!ArrayBuffer.isView(data)) throw invalid('TypedArray or ArrayBuffer', name, data)
  const view = bytesOf(data, name)
  return types.isSharedArrayBuffer(view.buffer) ? new Uint8Array(view) : view
}

/** New memory for `nbytes` of a dtype. */
function allocate(dtype, nbytes, name = 'size') {
  const Class = arrayOf(dtype)
  if (nbytes % Class.BYTES_PER_ELEMENT !== 0) {
    throw invalid(`multiple of ${Class.BYTES_PER_ELEMENT} bytes (${dtype})`, name, nbytes)
  }
  return new Class(nbytes / Class.BYTES_PER_ELEMENT)
}

/**
 * Fills a typed array, a slice in a turn of the event loop: `copy(buffer, offset)` fills a Buffer with the bytes from `offset` on.
 * Resolves to whether all of them came; not when the array's memory was detached meanwhile.
 */
async function fill(target, size, copy) {
  for (let at = 0; ; ) {
    const end = Math.min(at + SLICE_BYTES, size)
    if (!fillAtOnce(target, size, at, end, copy)) return false
    if (end === size) return true
    at = end
    await nextTurn()
  }
}

/** The same for the bytes from `at` to `end`, at once. */
function fillAtOnce(target, size, at, end, copy) {
  if (target.byteLength !== size) return false
  return end === at || copy(Buffer.from(target.buffer, target.byteOffset + at, end - at), at)
}

/** Refuses an array that results cannot be read into. */
function checkTarget(target, dtype, name) {
  if (!ArrayBuffer.isView(target) || !accepts(dtype, target)) throw invalid(`${arrayOf(dtype).name} (${dtype})`, name, target)
  if (types.isSharedArrayBuffer(target.buffer)) throw invalid('memory that is not shared', name, target)
  bytesOf(target, name)
  return target
}

module.exports = { arrayOf, toBytes, rawBytes, allocate, fill, fillAtOnce, checkTarget }
