import assert from 'node:assert/strict'
import { test } from 'node:test'

import { Graph, GraphTensor } from './helpers/api.mjs'
import { failure, withBackend } from './helpers/index.mjs'

const use = withBackend()

test('shapes are inferred as nodes are made', () => {
  const graph = new Graph()
  const w = graph.input('w', 'f32', [64, 32])
  const x = graph.input('x', 'f32', [64, 5])
  const y = graph.mulMat(w, x)
  assert.ok(y instanceof GraphTensor)
  assert.deepEqual([y.op, y.type, y.ne], ['MUL_MAT', 'f32', [32, 5, 1, 1]])
  assert.deepEqual(graph.reshape(y, [5, 32]).ne, [5, 32, 1, 1])
  assert.deepEqual(graph.permute(y, 1, 0, 2, 3).ne, [5, 32, 1, 1])
  assert.deepEqual(graph.permute(y, [1, 0, 2, 3]).nb, [128, 4, 640, 640])
  const window = graph.view(y, [8, 2], [128], 16)
  assert.deepEqual([window.ne, window.nb], [[8, 2, 1, 1], [4, 128, 256, 256]])
  assert.equal(graph.nodes.length, 7)
  assert.equal(graph.nodes[2], y)
})

test('typed methods are op() with names in camelCase', () => {
  const graph = new Graph()
  const x = graph.input('x', 'f32', [8, 4])
  const mask = graph.input('mask', 'f32', [8, 4])
  for (const node of [
    graph.softMax(x, mask, { scale: 0.5, maxBias: 0 }),
    graph.softMax(x, { mask, scale: 0.5 }),
    graph.op('SOFT_MAX', [x, mask], { scale: 0.5, max_bias: 0 }),
    graph.op('SOFT_MAX', [x, mask, null]),
  ]) {
    assert.equal(node.op, 'SOFT_MAX')
  }
  assert.equal(graph.softMax(x).op, 'SOFT_MAX')
  assert.equal(graph.rmsNorm(x, { eps: 1e-6 }).op, 'RMS_NORM')
})

test('mistakes are named', async () => {
  const graph = new Graph()
  const x = graph.input('x', 'f32', [8, 4])
  const other = new Graph().input('x', 'f32', [8, 4])
  const cases = [
    ['ERR_INVALID_ARG', () => graph.op('ADDD', [x, x]), /ADD/],
    ['ERR_INVALID_ARG', () => graph.op('ADD', [x, other]), /GraphTensor of this graph for src\[1\]/],
    ['ERR_SHAPE_MISMATCH', () => graph.op('ADD', [x]), /source 1 \(b\) is missing/],
    ['ERR_SHAPE_MISMATCH', () => graph.mulMat(x, graph.input('k', 'f32', [7, 4])), /MUL_MAT.*\[7, 4, 1, 1\]/],
    ['ERR_INVALID_ARG', () => graph.softMax(x, null, { scal: 1 }), /scale, maxBias/],
    ['ERR_INVALID_ARG', () => graph.op('SOFT_MAX', [x], { scal: 1 }), /scal/],
    ['ERR_INVALID_ARG', () => graph.op('SOFT_MAX', [x], { scale: 'x' }), /number/],
    ['ERR_INVALID_ARG', () => graph.op('SOFT_MAX', [x], { scale: {} }), /params\.scale/],
    ['ERR_INVALID_ARG', () => graph.add(x, 5), /GraphTensor/],
    ['ERR_INVALID_ARG', () => graph.input('x', 'f32', [1]), /not in use/],
    ['ERR_INVALID_ARG', () => graph.input('q', 'q9', [1]), /'q9'/],
    ['ERR_SHAPE_MISMATCH', () => graph.input('q', 'q8_0', [33]), /blocks/],
    ['ERR_SHAPE_MISMATCH', () => graph.view(x, [100]), /VIEW/],
  ]
  for (const [code, call, message] of cases) assert.match((await failure(call, code)).message, message)
})

test('a failed node leaves the graph as it was', async () => {
  const graph = new Graph()
  const x = graph.input('x', 'f32', [4])
  await failure(() => graph.op('ADD', [x]), 'ERR_SHAPE_MISMATCH')
  assert.equal(graph.nodes.length, 1)
  graph.output('y', graph.add(x, x))
  const plan = await use.backend.prepare(graph)
  assert.deepEqual([...(await plan.run({ x: Float32Array.of(1, 2, 3, 4) })).y], [2, 4, 6, 8])
})

test('Graphviz', () => {
  const graph = new Graph()
  graph.output('y', graph.add(graph.input('a"b', 'f32', [2]), graph.input('c', 'f32', [2])))
  assert.match(graph.toDot(), /^digraph/)
  assert.match(graph.toDot(), /a\\"b/)
})

test('a graph as one SVG picture', () => {
  const g = new Graph()
  const x = g.input('x <1>', 'f32', [4, 2])
  g.output('y', g.silu(g.mulMat(g.reshape(x, [4, 2]), x)))
  const svg = g.toSvg()
  assert.match(svg, /^<svg xmlns="http:\/\/www\.w3\.org\/2000\/svg"/)
  assert.equal(svg.match(/<rect /g).length, g.nodes.length)
  assert.equal(svg.match(/<path /g).length, 4, 'an edge for each source')
  assert.ok(svg.includes('x &lt;1&gt;') && svg.includes('SILU → y'))
})
