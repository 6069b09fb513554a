// Golden cases through the public API: builds each case's graph, runs it three times, compares with the stored result.
//
//   npm run golden -- DIR [--only PREFIX] [--json FILE] [--device NAME] [--verbose]
//
// DIR holds cases.jsonl and data.bin (__test__/golden/README.md describes them). Every run must give the same bits, and the third takes its
// inputs from device tensors, which must hold the same bits afterwards unless the graph writes into them. The last line is
// `N passed, N failed, N skipped`; skipped are the cases that the device refuses, with its reason in the table. Exit code 1 if any failed.

import { readFileSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

import { isMain } from '../examples/is-main.mjs'
import { Backend, CannError, Graph } from '../index.mjs'
import { dequantize } from '../tools/quants.mjs'
import { commandLine } from './command-line.mjs'

const RUNS = 3
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
const FLT_MAX = 3.4028234663852886e38

/** A folder's cases, and `bytes(datum)` of its data. */
export function readGolden(folder) {
  const cases = readFileSync(join(folder, 'cases.jsonl'), 'utf8').split('\n').filter(Boolean).map((line) => JSON.parse(line))
  const data = new Uint8Array(readFileSync(join(folder, 'data.bin')))
  return { cases, bytes: ({ offset, nbytes }) => data.slice(offset, offset + nbytes) }
}

/** Runs the cases on a backend; resolves to a list of { name, op, group, params, status, detail }. */
export async function runGolden(backend, { cases, bytes }, onCase = () => {}) {
  const results = []
  for (const one of cases) {
    const { name, op, group, params } = one
    let [status, detail] = ['passed', null]
    try {
      const wrong = await runCase(backend, one, bytes)
      if (wrong) [status, detail] = ['failed', wrong]
    } catch (error) {
      if (!(error instanceof CannError)) throw error
      status = error.code === 'ERR_UNSUPPORTED_OP' ? 'skipped' : 'failed'
      detail = status === 'skipped' ? (error.reason ?? error.message) : `${error.code}: ${error.message}`
    }
    const result = { name, op, group, params, status, detail }
    results.push(result)
    onCase(result)
  }
  return results
}

/** null when a case is right, else what is wrong. */
async function runCase(backend, one, bytes) {
  const plan = await backend.prepare(build(one))
  const tensors = []
  try {
    const leaves = one.leaves.map((leaf) => ({ ...leaf, name: leafName(leaf.id), bytes: bytes(leaf.data) }))
    const inputs = Object.fromEntries(leaves.map((leaf) => [leaf.name, typed(leaf.type, leaf.bytes)]))
    const written = writtenLeaves(one)
    let first
    for (let run = 1; run <= RUNS; run++) {
      if (run === RUNS) {
        for (const leaf of leaves) {
          if (written.has(leaf.id) || leaf.bytes.length === 0) continue
          const tensor = await backend.createTensor({ type: leaf.type, ne: leaf.ne })
          tensors.push({ leaf, tensor })
          await tensor.write(inputs[leaf.name])
          inputs[leaf.name] = tensor
        }
      }
      const { out } = await runPlan(plan, inputs, leaves)
      const got = new Uint8Array(out.buffer, out.byteOffset, out.byteLength)
      if (first === undefined) {
        const wrong = compare(one, bytes, got)
        if (wrong) return wrong
        first = got
      } else if (!same(first, got)) return `run ${run} gives other bits than run 1`
    }
    for (const { leaf, tensor } of tensors) {
      const now = await tensor.read()
      if (!same(leaf.bytes, new Uint8Array(now.buffer, now.byteOffset, now.byteLength))) return `the input ${leaf.id} was changed`
    }
    return null
  } finally {
    plan.dispose()
    tensors.forEach(({ tensor }) => tensor.dispose())
  }
}

/** Block types that a device has no layout for cannot be given as a device tensor: then the bytes are. */
async function runPlan(plan, inputs, leaves) {
  try {
    return await plan.run(inputs)
  } catch (error) {
    if (error.code !== 'ERR_UNSUPPORTED') throw error
    return plan.run(Object.fromEntries(leaves.map((leaf) => [leaf.name, typed(leaf.type, leaf.bytes)])))
  }
}

const leafName = (id) => `leaf_${id}`
const same = (a, b) => Buffer.compare(a, b) === 0

function typed(type, bytes) {
  const Class = ARRAYS[type] ?? Uint8Array
  return new Class(bytes.buffer, bytes.byteOffset, bytes.byteLength / Class.BYTES_PER_ELEMENT)
}

/** The leaves whose memory some node writes into: nodes that compute and have a `view_src`. */
function writtenLeaves({ nodes }) {
  const moves = new Set(['VIEW', 'RESHAPE', 'PERMUTE', 'TRANSPOSE'])
  const owner = new Map(nodes.filter((n) => n.view_src !== undefined && n.view_src !== null).map((n) => [n.id, n.view_src]))
  const root = (id) => (owner.has(id) ? root(owner.get(id)) : id)
  return new Set(nodes.filter((n) => owner.has(n.id) && !moves.has(n.op)).map((n) => root(n.id)))
}

/** A case's graph. */
function build({ leaves, nodes, output }) {
  const graph = new Graph()
  const byId = new Map()
  const offsets = new Map()
  for (const { id, type, ne } of leaves) byId.set(id, graph.input(leafName(id), type, ne))
  for (const { id, op, sub, src, params, type, ne, nb, view_offs: offset = 0 } of nodes) {
    const name = op === 'UNARY' || op === 'GLU' ? sub : op
    const given = {}
    for (const [key, value] of Object.entries(params)) if (value !== null) given[key] = number(value)
    // The file counts from the start of the memory, VIEW from the start of its source.
    if (op === 'VIEW') given.offset = offset - (offsets.get(src[0]) ?? 0)
    offsets.set(id, offset)
    byId.set(id, graph.op(name, src.map((s) => (s === null ? null : byId.get(s))), given, { type, ne, nb }))
  }
  graph.output('out', byId.get(output.id))
  return graph
}

const number = (value) => ({ inf: Infinity, '-inf': -Infinity, nan: NaN })[value] ?? value

function compare(one, bytes, got) {
  const { output, tolerance, metric, params } = one
  const reference = bytes(output.data)
  if (reference.length !== got.length) return `${got.length} bytes instead of ${reference.length}`
  const want = dequantize(output.type, reference)
  const have = dequantize(output.type, got)
  if (metric === 'index_set') return compareIndices(one, bytes, want, have, params.includes('ties=1'))
  if (metric === 'nmse_sorted') {
    want.sort()
    have.sort()
  }
  if (tolerance === 0) {
    const at = want.findIndex((x, i) => x !== have[i] && !(Number.isNaN(x) && Number.isNaN(have[i])))
    return at < 0 ? null : `element ${at}: ${have[at]} instead of ${want[at]}`
  }
  const infinite = (x) => Math.abs(x) >= FLT_MAX
  let [error, norm] = [0, 0]
  for (let i = 0; i < want.length; i++) {
    const [x, y] = [want[i], have[i]]
    if (infinite(x) || infinite(y)) {
      if (!(infinite(x) && infinite(y) && Math.sign(x) === Math.sign(y))) return `element ${i}: ${y} instead of ${x}`
      continue
    }
    if (Number.isNaN(y)) return `element ${i}: NaN instead of ${x}`
    error += (x - y) ** 2
    norm += x * x
  }
  if (norm === 0) return error === 0 ? null : 'not all zero'
  const nmse = error / norm
  return nmse <= tolerance ? null : `NMSE ${nmse.toExponential(3)} over ${tolerance}`
}

/** The same indices in each row, order free; where values tie, indices of the same values. */
function compareIndices({ leaves, output }, bytes, want, have, ties) {
  const k = output.ne[0]
  const source = ties ? { width: leaves[0].ne[0], values: dequantize(leaves[0].type, bytes(leaves[0].data)) } : null
  for (let row = 0; row * k < want.length; row++) {
    const part = (list) => list.subarray(row * k, (row + 1) * k)
    const picked = (list) => (source ? part(list).map((i) => source.values[row * source.width + i]) : part(list).slice()).sort()
    if (new Set(part(have)).size !== k) return `row ${row}: an index twice`
    if (picked(want).some((x, i) => x !== picked(have)[i])) return `row ${row}: others were selected`
  }
  return null
}

/** The table of a run: a line per operator, then what failed. */
export function report(results, verbose = false) {
  const rows = new Map()
  for (const { group, op, status, detail } of results) {
    const key = `${group} ${op}`
    const row = rows.get(key) ?? { key, passed: 0, failed: 0, skipped: 0, reasons: new Set() }
    rows.set(key, row)
    row[status]++
    if (status === 'skipped') row.reasons.add(detail)
  }
  const width = Math.max(12, ...[...rows.keys()].map((key) => key.length))
  const column = (text) => String(text).padStart(8)
  const lines = [`${'OPERATOR'.padEnd(width)}${['PASSED', 'FAILED', 'REFUSED'].map(column).join('')}`]
  for (const { key, passed, failed, skipped, reasons } of [...rows.values()].sort((a, b) => (a.key < b.key ? -1 : 1))) {
    lines.push(`${key.padEnd(width)}${[passed, failed, skipped].map(column).join('')}${reasons.size ? `  ${[...reasons].join('; ')}` : ''}`)
  }
  const shown = results.filter(({ status }) => status === 'failed' || (verbose && status === 'skipped'))
  if (shown.length) lines.push('')
  for (const { name, params, status, detail } of shown) lines.push(`${status} ${name} [${params}]: ${detail}`)
  return lines.join('\n')
}

export const count = (results, status) => results.filter((result) => result.status === status).length

async function main() {
  const { values, positionals } = commandLine({
    allowPositionals: true,
    options: {
      only: { type: 'string', default: '' },
      json: { type: 'string' },
      device: { type: 'string' },
      verbose: { type: 'boolean', default: false },
    },
  })
  const folder = resolve(positionals[0] ?? fileURLToPath(new URL('../__test__/golden', import.meta.url)))
  const golden = readGolden(folder)
  golden.cases = golden.cases.filter(({ name }) => name.startsWith(values.only))
  const backend = await Backend.open(values.device === undefined ? {} : { device: values.device })
  console.log(`${golden.cases.length} cases of ${folder} on ${backend.name} (${backend.device.description})`)
  const results = await runGolden(backend, golden).finally(() => backend.close())
  console.log(report(results, values.verbose))
  if (values.json) writeFileSync(values.json, JSON.stringify(results, null, 1))
  console.log(`${count(results, 'passed')} passed, ${count(results, 'failed')} failed, ${count(results, 'skipped')} skipped`)
  process.exitCode = count(results, 'failed') ? 1 : 0
}

if (isMain(import.meta.filename)) await main()
