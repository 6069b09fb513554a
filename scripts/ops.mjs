// lib/ops.js and ops.d.ts from the addon's op table: the typed methods of Graph and their documentation.

import { createRequire } from 'node:module'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const RESERVED = new Set(['NONE', 'VIEW', 'RESHAPE', 'PERMUTE'])
const camel = (name) => name.toLowerCase().replace(/_([a-z0-9])/g, (_, c) => c.toUpperCase())

/** { runtime, types } as text. */
export function generateOps(table) {
  const rows = table
    .filter((row) => row.name && !RESERVED.has(row.name))
    .map((row) => ({
      ...row,
      method: camel(row.name),
      sources: row.src.map((name) => camel(name.replace('?', ''))),
      required: row.src.filter((name) => !name.endsWith('?')).length,
    }))
    .sort((a, b) => (a.method < b.method ? -1 : 1))

  const runtime = rows.map((row) => {
    const params = Object.fromEntries(row.params.map((p) => [camel(p.name), p.name]))
    return `  ${JSON.stringify({ op: row.name, method: row.method, sources: row.sources, required: row.required, params })},`
  })
  const types = rows.map((row) => {
    const docs = [row.doc, row.types && `Types: ${row.types}.`].filter(Boolean)
    const sources = row.sources.map((name, i) => (i < row.required ? `${name}: GraphTensor` : `${name}?: GraphTensor | null`))
    const options = row.params.map((p) => {
      const note = p.required ? p.doc : `${p.doc} (default ${p.default})`
      return `      /** ${clean(note)} */\n      ${camel(p.name)}${p.required ? '' : '?'}: ${p.kind}\n`
    })
    const optional = row.sources.slice(row.required)
    const named = optional.map((name) => `      ${name}?: GraphTensor\n`)
    const need = row.params.some((p) => p.required)
    const shape = `{\n${options.join('')}    }`
    const all = `{\n${options.join('')}${named.join('')}    }`
    const doc = `  /** ${docs.map(clean).join(' ')} */\n`
    const result = '  GraphTensor'.trim()
    const type = (body) => (options.length || named.length ? `${body} & ResultOptions` : 'ResultOptions')
    const full = [...sources.map((s) => (need ? s.replace('?:', ': undefined |').replace(': undefined | GraphTensor', ': undefined | GraphTensor') : s)), `options${need ? '' : '?'}: ${type(shape)}`]
    const lines = [`${doc}  ${row.method}(${full.join(', ')}): ${result}`]
    if (optional.length) {
      const short = [...sources.slice(0, row.required), `options${need ? '' : '?'}: ${type(all)}`]
      lines.push(`${doc}  ${row.method}(${short.join(', ')}): ${result}`)
    }
    return lines.join('\n')
  })
  return {
    runtime: `'use strict'\n\n// Generated from the op table by scripts/build.mjs.\n\nmodule.exports = [\n${runtime.join('\n')}\n]\n`,
    types: `// Generated from the op table by scripts/build.mjs.\n\nimport type { DType, GraphTensor } from './index.js'\n\n/** What a caller may say about the result of an operator that leaves it open. */\nexport interface ResultOptions {\n  type?: DType\n  ne?: number[]\n  nb?: number[]\n}\n\n/** One method per operator: sources in ggml's order, then its parameters in camelCase. */\nexport interface OpMethods {\n${types.join('\n')}\n}\n`,
  }
}

const clean = (text) => text.replaceAll('*/', '* /').replace(/\s+/g, ' ')

/** Writes both files with the addon that is built. */
export function writeOps(binary) {
  const { opTable } = createRequire(import.meta.url)(binary)
  const { runtime, types } = generateOps(opTable())
  writeFileSync(join(root, 'lib/ops.js'), runtime)
  writeFileSync(join(root, 'ops.d.ts'), types)
}
