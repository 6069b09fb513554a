import { open } from './cann.mjs'
import { bytes, json, table } from './format.mjs'

/** Longer lists (vocabularies) are shown by their length. */
const SHOWN_ITEMS = 8

export default {
  summary: 'show what a GGUF file holds',
  usage: 'info FILE [--tensors] [--full]',
  files: ['FILE'],
  details: `Reads the header, the metadata and the tensor table; no weights.

Options
  --tensors            every tensor with its type, extents and bytes
  --full               metadata lists in full (vocabularies are long)`,
  options: { tensors: { type: 'boolean', default: false }, full: { type: 'boolean', default: false } },
  async main({ values, files, out }) {
    const { version, metadata, tensors } = await open().readGguf(files[0])
    const shown = values.full ? metadata : Object.fromEntries(Object.entries(metadata).map(([key, value]) => [key, brief(value)]))
    const types = byType(tensors)
    const total = { tensors: tensors.length, parameters: sum(types, 'parameters'), bytes: sum(types, 'bytes') }
    if (values.json) return void out(json({ file: files[0], version, ...total, types, metadata: shown, tensors }))
    const lines = [`${files[0]}: GGUF v${version}, ${total.tensors} tensors, ${total.parameters.toLocaleString('en')} parameters, ${bytes(total.bytes)}`, '']
    const keys = Object.keys(shown)
    const width = Math.max(0, ...keys.map((key) => key.length))
    for (const key of keys) lines.push(`  ${key.padEnd(width)}  ${line(shown[key])}`)
    lines.push('', table(['TYPE', 'TENSORS', 'BYTES'], types.map((t) => [t.type, t.tensors, bytes(t.bytes)]), ['TENSORS', 'BYTES']))
    if (values.tensors) {
      const rows = tensors.map(({ name, type, ne, nbytes }) => [name, type, ne.join(' × '), bytes(nbytes)])
      lines.push('', table(['TENSOR', 'TYPE', 'EXTENTS', 'BYTES'], rows, ['BYTES']))
    }
    out(lines.join('\n'))
  },
}

const isList = (value) => Array.isArray(value) || ArrayBuffer.isView(value)

function brief(value) {
  if (!isList(value)) return value
  return value.length > SHOWN_ITEMS ? `[${value.length} items]` : [...value]
}

function line(value) {
  const text = isList(value) ? `[${[...value].join(', ')}]` : String(value)
  const flat = text.replace(/\s+/g, ' ')
  return flat.length > 100 ? `${flat.slice(0, 97)}...` : flat
}

function byType(tensors) {
  const rows = new Map()
  for (const { type, ne, nbytes } of tensors) {
    const row = rows.get(type) ?? { type, tensors: 0, parameters: 0, bytes: 0 }
    rows.set(type, row)
    row.tensors++
    row.parameters += ne.reduce((a, b) => a * b, 1)
    row.bytes += nbytes
  }
  return [...rows.values()].sort((a, b) => b.bytes - a.bytes)
}

const sum = (rows, field) => rows.reduce((total, row) => total + row[field], 0)
