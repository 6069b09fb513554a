// native.d.ts from what napi-derive notes while the addon is compiled: one JSON object a line.

import { readFileSync } from 'node:fs'

const HEADER = `// Generated from src/ by scripts/build.mjs. Internal: the public types are in index.d.ts.
/* eslint-disable */
`

const comment = (text, indent = '') => {
  const lines = (text ?? '').trim()
  if (!lines) return ''
  // The notes hold complete comments.
  return lines.split('\n').map((line) => `${indent}${line}`).join('\n') + '\n'
}

const body = (def) =>
  def
    .split('\n')
    .filter((line) => line.trim() !== '')
    .map((line) => `  ${line.trim()}`)
    .join('\n')

export function nativeTypes(file) {
  const rows = readFileSync(file, 'utf8').trim().split('\n').map((line) => JSON.parse(line))
  const classes = new Map()
  const parts = new Map()
  for (const row of rows) {
    if (row.kind === 'struct') {
      classes.set(row.name, { doc: row.js_doc, def: row.def, ...classes.get(row.name) })
    } else if (row.kind === 'impl') {
      const known = classes.get(row.name) ?? { doc: '', def: '' }
      classes.set(row.name, { ...known, members: row.def })
    } else if (row.kind === 'interface') {
      parts.set(`interface ${row.name}`, `${comment(row.js_doc)}export interface ${row.name} {\n${body(row.def)}\n}\n`)
    } else if (row.kind === 'fn') {
      parts.set(`function ${row.name}`, `${comment(row.js_doc)}export declare ${row.def}\n`)
    } else {
      throw new Error(`native-types: a kind that is not handled: ${row.kind}`)
    }
  }
  for (const [name, { doc, def, members }] of classes) {
    const text = [def, members].filter(Boolean).map(body).join('\n')
    parts.set(`class ${name}`, `${comment(doc)}export declare class ${name} {\n${text}\n}\n`)
  }
  const sorted = [...parts].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, text]) => text)
  return `${HEADER}\n${sorted.join('\n')}`
}
