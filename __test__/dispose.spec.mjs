import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'

import { Backend, Graph } from './helpers/api.mjs'
import { addGraph, failure, program, rejection, slowPlan, smallModel, withFolder } from './helpers/index.mjs'

const at = withFolder()

test('every class has dispose, Symbol.dispose and Symbol.asyncDispose, twice', async () => {
  const backend = await Backend.open()
  const objects = [
    await backend.allocBuffer(64),
    await backend.allocHostBuffer(64),
    await backend.createTensor({ type: 'f32', ne: [4] }),
    await backend.createEvent(),
    await backend.prepare(addGraph()),
  ]
  for (const object of objects) {
    object.dispose()
    object[Symbol.dispose]()
    await object[Symbol.asyncDispose]()
  }
  assert.deepEqual((await backend.stats()).buffers, { count: 0, bytes: 0 })
  await backend[Symbol.asyncDispose]()
  backend[Symbol.dispose]()
})

test('disposing of what a run uses: new use is refused, the run finishes, memory goes back', async () => {
  const backend = await Backend.open()
  const { plan, inputs } = await slowPlan(backend)
  const target = await backend.createTensor({ type: 'f32', ne: [256, 256] })
  const running = plan.run(inputs, { outputTo: { y: target } })
  target.dispose()
  await rejection(() => target.read(), 'ERR_DISPOSED')
  await running
  await backend.synchronize()
  assert.equal((await backend.stats()).buffers.count, 0)
  await backend.close()
})

test('nothing begins with what was disposed of', async () => {
  const backend = await Backend.open()
  const tensor = await backend.createTensor({ type: 'f32', ne: [4] })
  const buffer = await backend.allocBuffer(64)
  const placed = await backend.createTensor({ type: 'f32', ne: [4], buffer })
  const graph = new Graph()
  graph.output('y', graph.silu(graph.tensor(tensor)))
  tensor.dispose()
  buffer.dispose()
  await failure(() => new Graph().tensor(tensor), 'ERR_DISPOSED')
  await rejection(() => backend.prepare(graph), 'ERR_DISPOSED')
  assert.match((await rejection(() => placed.read(), 'ERR_DISPOSED')).message, /buffer/)
  await backend.close()
})

test('a tensor that a disposed plan wrote into is freed at once', async () => {
  const backend = await Backend.open()
  const cache = await backend.createTensor({ type: 'f32', ne: [4, 8] })
  const graph = new Graph()
  const [rows, at] = [graph.input('rows', 'f32', [4, 1]), graph.input('at', 'i64', [1])]
  graph.output('y', graph.setRows(rows, at, graph.tensor(cache)))
  const plan = await backend.prepare(graph)
  await plan.run({ rows: new Float32Array(4), at: BigInt64Array.of(1n) })
  cache.dispose()
  await plan[Symbol.asyncDispose]()
  assert.equal((await backend.stats()).buffers.count, 0)
  await rejection(() => plan.run({ rows: new Float32Array(4), at: BigInt64Array.of(1n) }), 'ERR_DISPOSED')
  await backend.close()
})

test('what outlives its backend answers ERR_DISPOSED', async () => {
  const backend = await Backend.open()
  const tensor = await backend.createTensor({ type: 'f32', ne: [4] })
  const plan = await backend.prepare(addGraph())
  await backend.close()
  await rejection(() => tensor.read(), 'ERR_DISPOSED')
  await rejection(() => plan.run({ x: new Float32Array(4), y: new Float32Array(4) }), 'ERR_DISPOSED')
  tensor.dispose()
  plan.dispose()
  await tensor[Symbol.asyncDispose]()
})

// Where the language has it: Node 24, Bun and Deno.
const AsyncFunction = (async () => {}).constructor
let scope
try {
  scope = new AsyncFunction('backend', `
    using tensor = await backend.createTensor({ type: 'f32', ne: [4] })
    await using plan = await backend.prepare(this)
    await plan.run({ x: new Float32Array(4), y: new Float32Array(4) })
    return { tensor, plan }`)
} catch {
  scope = undefined
}

test('using and await using', { skip: scope ? false : 'this runtime does not know using' }, async () => {
  const backend = await Backend.open()
  const { tensor, plan } = await scope.call(addGraph(), backend)
  await rejection(() => tensor.read(), 'ERR_DISPOSED')
  await rejection(() => plan.run(), 'ERR_DISPOSED')
  await backend.synchronize()
  assert.deepEqual((await backend.stats()).buffers, { count: 0, bytes: 0 })
  await backend.close()
})

test('what is forgotten is freed by the garbage collector', async () => {
  const path = join(at.folder, 'small.gguf')
  smallModel(path)
  const text = `
    const backend = await cann.Backend.open()
    const graph = new cann.Graph()
    graph.output('y', graph.silu(graph.input('x', 'f32', [1024])))
    for (let i = 0; i < 100; i++) {
      await backend.createTensor({ type: 'f32', ne: [1024] })
      await backend.allocBuffer(4096)
      await backend.createEvent()
      if (i % 5 > 0) continue
      await backend.loadWeights(${JSON.stringify(path)})
      const plan = await backend.prepare(graph)
      await plan.run({ x: new Float32Array(1024) })
      await cann.Backend.open()
    }
    for (let i = 0; i < 20; i++) {
      await new Promise((r) => setTimeout(r, 10))
      gc()
    }
    await backend.synchronize()
    console.log((await backend.stats()).buffers.count)
    await backend.close()`
  const { stdout, code, stderr } = await program(text, { gc: true })
  assert.equal(code, 0, stderr)
  // Some runtimes take what a register still holds for used.
  assert.ok(Number(stdout) < 20, `${stdout.trim()} buffers are left`)
})
