// Weights in a chip's private format, seen from JavaScript: nothing of it but the report. Under a chip's name the embedded device has it
// unasked, linked in or as a library that is opened (`cargo build -p acl-host-cabi`).

import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'

import { program, withFolder } from './helpers/index.mjs'
import { builtLibrary } from '../scripts/built-library.mjs'
import { writeGguf } from '../tools/gguf.mjs'
import { quantize } from '../tools/quants.mjs'

const at = withFolder()
const [K, M, ROWS] = [96, 48, 5]
const values = (n, k) => Float32Array.from({ length: n }, (_, i) => Math.sin(i * k))
const library = builtLibrary('ascendcl_host')

const SOURCE = `
const backend = await cann.Backend.open()
const weights = await backend.loadWeights(process.env.MODEL)
const w = weights.get('w')
const graph = new cann.Graph()
graph.output('y', graph.mulMat(graph.tensor(w), graph.input('x', 'f32', [${K}, ${ROWS}])))
const plan = await backend.prepare(graph)
const before = Buffer.from((await w.read()).buffer).toString('hex')
const run = async () => [...(await plan.run({ x: Float32Array.from({ length: ${K * ROWS} }, (_, i) => Math.sin(i * 0.7)) })).y]
const y = await run()
await w.fill(0)
const zero = await run()
console.log(JSON.stringify({ note: plan.report()[0].note, before, y, zero }))
await backend.close()
`

for (const [soc, env, note] of [
  ['Host', {}, null],
  ['Host', { GGML_CANN_WEIGHT_NZ: '1' }, /FRACTAL_NZ/],
  ['910A', {}, null],
  ['910B', {}, /FRACTAL_NZ/],
  ['310P', {}, /FRACTAL_NZ/],
  ['310P', { GGML_CANN_WEIGHT_NZ: 'off' }, null],
]) {
  for (const opened of [false, true]) {
    const name = [soc, ...Object.entries(env).map((pair) => pair.join('=')), ...(opened ? ['opened as a library'] : [])].join(', ')
    test(name, { skip: opened && !library && 'the library of acl-host-cabi is not built' }, async () => {
      const path = join(at.folder, 'w.gguf')
      const bytes = quantize('f16', values(K * M, 0.37))
      writeGguf(path, [['general.architecture', 'string', 'test']], [{ name: 'w', ne: [K, M], type: 'f16', data: () => bytes }])
      const settings = { ...env, CANN_NODE_HOST_SOC: soc, CANN_NODE_HOST_CHECK: '1', ...(opened ? { CANN_NODE_ACL_LIB: library } : {}) }
      const { code, stdout, stderr } = await program(SOURCE, { env: { ...settings, MODEL: path } })
      assert.equal(code, 0, stderr)
      const got = JSON.parse(stdout)
      if (note) assert.match(got.note, note)
      else assert.equal(got.note, null)
      assert.equal(got.before, Buffer.from(bytes).toString('hex'))
      const [w, x] = [values(K * M, 0.37), values(K * ROWS, 0.7)]
      got.y.forEach((y, i) => {
        const [row, column] = [Math.floor(i / M), i % M]
        let sum = 0
        for (let k = 0; k < K; k++) sum += w[column * K + k] * x[row * K + k]
        assert.ok(Math.abs(y - sum) < 0.05, `${i}: ${y}, not ${sum}`)
      })
      assert.ok(got.zero.every((v) => v === 0))
    })
  }
}
