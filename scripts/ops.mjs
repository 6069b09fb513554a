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
  const interfaces = []
  const types = rows.map((row) => {
    const need = row.params.some((p) => p.required)
    let options = 'ResultOptions'
    if (row.params.length) {
      options = `${row.method[0].toUpperCase()}${row.method.slice(1)}Options`
      const fields = row.params.map((p) => {
        const note = p.required ? p.doc : `${p.doc} (default ${p.default})`
        return `  /** ${clean(note)} */\n  ${camel(p.name)}${p.required ? '' : '?'}: ${p.kind}\n`
      })
      interfaces.push(`/** Parameters of ${row.name}. */\nexport interface ${options} extends ResultOptions {\n${fields.join('')}}\n`)
    }
    const doc = `  /**\n   * ${row.name}: ${clean(row.doc)}${row.types ? `\n   *\n   * Types: ${clean(row.types)}` : ''}\n   */\n`
    const forms = []
    // Optional sources by position, or by name in the options.
    for (let k = row.sources.length; k >= row.required; k -= 1) {
      const all = k === row.sources.length
      const args = row.sources.slice(0, k).map((name, i) => {
        if (i < row.required) return `${name}: GraphTensor`
        return all && !need ? `${name}?: GraphTensor | null` : `${name}: GraphTensor | null | undefined`
      })
      const named = row.sources.slice(k).map((name) => `${name}?: GraphTensor`)
      const type = named.length ? `${options} & { ${named.join('; ')} }` : options
      args.push(`options${all && !need ? '?' : ''}: ${type}`)
      forms.push(`${doc}  ${row.method}(${args.join(', ')}): GraphTensor`)
    }
    return forms.join('\n')
  })
  return {
    runtime: `'use strict'\n\n// Generated from the op table by scripts/build.mjs.\n\nmodule.exports = [\n${runtime.join('\n')}\n]\n`,
    types: `// Generated from the op table by scripts/build.mjs.\n\nimport type { DType, GraphTensor } from './index.js'\n\n/** What a caller may say about the result of an operator that leaves it open. */\nexport interface ResultOptions {\n  /** Type of the elements. */\n  type?: DType\n  /** Extents, the fastest dimension first. */\n  ne?: number[]\n  /** Byte strides. */\n  nb?: number[]\n}\n\n${interfaces.join('\n')}\n/** One method per operator: sources in ggml's order, then its parameters in camelCase. */\nexport interface OpMethods {\n${types.join('\n')}\n}\n`,
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
