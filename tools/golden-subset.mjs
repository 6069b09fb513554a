// Picks the golden cases that live in the repository from a full set in the same format:
//
//   node tools/golden-subset.mjs FULL_DIR [OUT_DIR]
//
// Of each operator and group it takes the smallest case of every kind (types and newer options), then further small ones, within
// a budget. The choice depends on the full set only, so running it again gives the same files.

import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const PER_OPERATOR = 8
const MAX_CASE_BYTES = 20 << 10
const ALIGNMENT = 64

const [from, to = fileURLToPath(new URL('../__test__/golden', import.meta.url))] = process.argv.slice(2)
const data = readFileSync(join(from, 'data.bin'))
const cases = readFileSync(join(from, 'cases.jsonl'), 'utf8').split('\n').filter(Boolean).map((line) => JSON.parse(line))

const blobs = (one) => [...one.leaves.map((leaf) => leaf.data), one.output.data]
const size = (one) => blobs(one).reduce((sum, { nbytes }) => sum + nbytes, 0)
const kind = (one) => JSON.stringify([one.types, one.ops, one.features])

const byOperator = Map.groupBy ? Map.groupBy(cases, keyOf) : groupBy(cases, keyOf)
const chosen = new Set()
for (const list of byOperator.values()) {
  const sorted = [...list].sort((a, b) => size(a) - size(b) || (a.name < b.name ? -1 : 1))
  const kinds = new Set()
  const first = sorted.filter((one) => !kinds.has(kind(one)) && kinds.add(kind(one)))
  const wanted = [...first, ...sorted.filter((one) => !first.includes(one))]
  const small = wanted.filter((one) => size(one) <= MAX_CASE_BYTES)
  for (const one of (small.length ? small : sorted.slice(0, 1)).slice(0, PER_OPERATOR)) chosen.add(one)
}

const parts = []
let end = 0
const places = new Map()
const moved = ({ offset, nbytes }) => {
  const key = `${offset}/${nbytes}`
  if (!places.has(key)) {
    const padding = (ALIGNMENT - (end % ALIGNMENT)) % ALIGNMENT
    parts.push(Buffer.alloc(padding), data.subarray(offset, offset + nbytes))
    places.set(key, end + padding)
    end += padding + nbytes
  }
  return { offset: places.get(key), nbytes }
}
const lines = cases.filter((one) => chosen.has(one)).map((one) => {
  for (const leaf of one.leaves) leaf.data = moved(leaf.data)
  one.output.data = moved(one.output.data)
  return `${JSON.stringify(one)}\n`
})
mkdirSync(to, { recursive: true })
writeFileSync(join(to, 'cases.jsonl'), lines.join(''))
writeFileSync(join(to, 'data.bin'), Buffer.concat(parts))
console.log(`${lines.length} cases of ${byOperator.size} operators, ${lines.join('').length + end} bytes`)

function keyOf({ group, op }) {
  return `${group} ${op}`
}

function groupBy(list, key) {
  const map = new Map()
  for (const item of list) map.set(key(item), [...(map.get(key(item)) ?? []), item])
  return map
}
