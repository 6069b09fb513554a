// A small GGUF reader and writer for tests and the demo's stand-in model. It trusts its input: files from elsewhere are read by
// the package, which does not.

import { closeSync, openSync, readFileSync, writeSync } from 'node:fs'
import { TYPES, bytesFor, typeName } from './quants.mjs'

const ALIGNMENT = 32
/** Value types of metadata: [name, bytes], in the order of their numbers. */
const SCALARS = ['Uint8', 'Int8', 'Uint16', 'Int16', 'Uint32', 'Int32', 'Float32', 'bool', 'string', 'array', 'BigUint64', 'BigInt64', 'Float64']
const SIZES = { Uint8: 1, Int8: 1, Uint16: 2, Int16: 2, Uint32: 4, Int32: 4, Float32: 4, BigUint64: 8, BigInt64: 8, Float64: 8 }

/**
 * { metadata, metadataBytes, metadataCount, tensors }: metadata as an object, as the bytes it has in the file, and
 * `tensors` a Map of name to { name, type, ne, data } with `data` a view into the file.
 */
export function readGguf(path) {
  const file = readFileSync(path)
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength)
  let at = 4
  const number = (kind) => {
    const value = view[`get${kind}`](at, true)
    at += SIZES[kind]
    return typeof value === 'bigint' ? Number(value) : value
  }
  const string = () => {
    const length = number('BigUint64')
    at += length
    return file.toString('utf8', at - length, at)
  }
  const value = (kind) => {
    if (kind === 'string') return string()
    if (kind === 'bool') return number('Uint8') !== 0
    if (kind !== 'array') return number(kind)
    const inner = SCALARS[number('Uint32')]
    return Array.from({ length: number('BigUint64') }, () => value(inner))
  }
  if (file.toString('latin1', 0, 4) !== 'GGUF') throw new Error(`${path} is no GGUF file`)
  number('Uint32')
  const tensorCount = number('BigUint64')
  const metadataCount = number('BigUint64')
  const start = at
  const metadata = {}
  for (let i = 0; i < metadataCount; i++) {
    const key = string()
    metadata[key] = value(SCALARS[number('Uint32')])
  }
  const metadataBytes = file.subarray(start, at)
  const table = Array.from({ length: tensorCount }, () => {
    const name = string()
    const ne = Array.from({ length: number('Uint32') }, () => number('BigUint64'))
    return { name, ne, type: typeName(number('Uint32')), offset: number('BigUint64') }
  })
  const alignment = metadata['general.alignment'] ?? ALIGNMENT
  const data = Math.ceil(at / alignment) * alignment
  const tensors = new Map()
  for (const { name, ne, type, offset } of table) {
    const size = bytesFor(type, ne.reduce((a, b) => a * b, 1))
    tensors.set(name, { name, ne, type, data: file.subarray(data + offset, data + offset + size) })
  }
  return { metadata, metadataBytes, metadataCount, tensors }
}

/**
 * Writes a file. `metadata` is a list of [key, type name, value] with the type names above and 'string[]' and the like for
 * arrays, or { bytes, count } as readGguf gives them. `tensors` is a list of { name, ne, type, data: () => Uint8Array }: the data of
 * one is made when it is written.
 */
export function writeGguf(path, metadata, tensors) {
  const chunks = []
  const scalar = (kind, x) => {
    const chunk = Buffer.alloc(SIZES[kind])
    new DataView(chunk.buffer, chunk.byteOffset)[`set${kind}`](0, kind.startsWith('Big') ? BigInt(x) : x, true)
    chunks.push(chunk)
  }
  const string = (text) => {
    scalar('BigUint64', Buffer.byteLength(text))
    chunks.push(Buffer.from(text))
  }
  const plain = (kind, x) => (kind === 'string' ? string(x) : kind === 'bool' ? scalar('Uint8', x ? 1 : 0) : scalar(kind, x))
  const raw = Array.isArray(metadata) ? null : metadata
  chunks.push(Buffer.from('GGUF'))
  scalar('Uint32', 3)
  scalar('BigUint64', tensors.length)
  scalar('BigUint64', raw ? raw.count : metadata.length)
  if (raw) chunks.push(raw.bytes)
  for (const [key, kind, x] of raw ? [] : metadata) {
    string(key)
    if (kind.endsWith('[]')) {
      scalar('Uint32', SCALARS.indexOf('array'))
      scalar('Uint32', SCALARS.indexOf(kind.slice(0, -2)))
      scalar('BigUint64', x.length)
      for (const item of x) plain(kind.slice(0, -2), item)
    } else {
      scalar('Uint32', SCALARS.indexOf(kind))
      plain(kind, x)
    }
  }
  const padded = (n) => Math.ceil(n / ALIGNMENT) * ALIGNMENT
  let offset = 0
  for (const { name, ne, type } of tensors) {
    string(name)
    scalar('Uint32', ne.length)
    for (const extent of ne) scalar('BigUint64', extent)
    scalar('Uint32', TYPES[type][0])
    scalar('BigUint64', offset)
    offset += padded(bytesFor(type, ne.reduce((a, b) => a * b, 1)))
  }
  const file = openSync(path, 'w')
  try {
    const write = (bytes) => {
      for (let done = 0; done < bytes.length; ) done += writeSync(file, bytes, done)
      const rest = padded(bytes.length) - bytes.length
      if (rest) writeSync(file, Buffer.alloc(rest))
    }
    write(Buffer.concat(chunks))
    for (const tensor of tensors) write(tensor.data())
  } finally {
    closeSync(file)
  }
}
