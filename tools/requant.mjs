// Rewrites a GGUF file with every quantised weight in another type:
//
//   node tools/requant.mjs IN.gguf OUT.gguf f16|q8_0|q4_0
//
// f32 tensors (norms) and the metadata stay as they are. It makes the variants of one real model that tests and benchmarks compare.

import { isMain } from '../examples/is-main.mjs'
import { readGguf, writeGguf } from './gguf.mjs'
import { dequantize, quantize } from './quants.mjs'

export function requant(from, to, type) {
  const { metadataBytes, metadataCount, tensors } = readGguf(from)
  const changed = [...tensors.values()].map(({ name, ne, type: had, data }) =>
    had === 'f32' || had === type
      ? { name, ne, type: had, data: () => data }
      : { name, ne, type, data: () => quantize(type, dequantize(had, data)) },
  )
  writeGguf(to, { bytes: metadataBytes, count: metadataCount }, changed)
}

if (isMain(import.meta.filename)) {
  const [from, to, type] = process.argv.slice(2)
  if (!['f16', 'q8_0', 'q4_0'].includes(type)) {
    console.error('usage: node tools/requant.mjs IN.gguf OUT.gguf f16|q8_0|q4_0')
    process.exit(2)
  }
  requant(from, to, type)
}
