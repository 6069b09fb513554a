// A model of k-quants: Gemma 3 270M in Q4_K_M. Every tensor uploads, says what it became, and what is read back is within the
// stated error of the file's values. Needs the file (CANN_NODE_GEMMA); skipped without it.

import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { test } from 'node:test'

import { Backend } from '../index.mjs'
import { readGguf } from '../tools/gguf.mjs'
import { dequantize, f16ToF32 } from '../tools/quants.mjs'

const path = process.env.CANN_NODE_GEMMA
const skip = path && existsSync(path) ? false : 'CANN_NODE_GEMMA names no file'

/** Scale and minimum of group g of a q4_K super-block. */
function q4kGroup(block, g) {
  const s = block.subarray(4, 16)
  const [scale, minimum] =
    g < 4 ? [s[g] & 63, s[g + 4] & 63] : [(s[g + 4] & 15) + 16 * (s[g - 4] >> 6), (s[g + 4] >> 4) + 16 * (s[g] >> 6)]
  const half = (at) => f16ToF32(block[at] | (block[at + 1] << 8))
  return { d: half(0) * scale, m: -half(2) * minimum }
}

/** What a file's type is stored as, and how far a group of 32 values may be off (README, "Types"). */
const STORED = {
  f32: { type: 'f32', bound: () => 0 },
  q8_0: { type: 'q8_0', bound: () => 0 },
  q5_0: { type: 'q8_0', bound: () => 0 },
  q4_K: {
    type: 'q4_1',
    bound: ({ data, group }) => {
      const { d, m } = q4kGroup(data.subarray((group >> 3) * 144), group & 7)
      // The last term: what is read back are q4_1 blocks, which round the minimum once more.
      return Math.abs(d) / 250 + Math.abs(8 * d + m) / 1600 + 2 ** -21 + Math.abs(m) / 2048
    },
  },
  q6_K: { type: 'q8_0', bound: ({ largest }) => largest / 253 + 2 ** -24 },
}

test('Gemma 3 270M Q4_K_M', { skip }, async () => {
  const file = readGguf(path)
  const backend = await Backend.open()
  const weights = await backend.loadWeights(path)
  assert.equal(weights.names.length, file.tensors.size)
  const kinds = new Map()
  for (const source of file.tensors.values()) {
    const tensor = weights.get(source.name)
    assert.equal(tensor.sourceType, source.type, source.name)
    const rule = STORED[source.type]
    assert.ok(rule, `no rule for ${source.type}`)
    assert.equal(tensor.type, rule.type, source.name)
    kinds.set(source.type, (kinds.get(source.type) ?? 0) + 1)

    const n = source.ne.reduce((a, b) => a * b, 1)
    const [expected, got] = [new Float32Array(n), new Float32Array(n)]
    dequantize(source.type, source.data, expected)
    const read = await tensor.read()
    dequantize(tensor.type, new Uint8Array(read.buffer, read.byteOffset, read.byteLength), got)
    for (let start = 0; start < n; start += 32) {
      let [largest, off] = [0, 0]
      for (let i = start; i < Math.min(start + 32, n); i++) {
        largest = Math.max(largest, Math.abs(expected[i]))
        off = Math.max(off, Math.abs(expected[i] - got[i]))
      }
      const bound = rule.bound({ data: source.data, group: start / 32, largest })
      if (off > bound) assert.fail(`${source.name}: off by ${off} in the group at ${start}, at most ${bound} stated`)
    }
  }
  console.log('  ' + [...kinds].map(([type, count]) => `${count} ${type}`).join(', '))
  weights.dispose()
  await backend.close()
})
