import assert from 'node:assert/strict'
import { test } from 'node:test'

import { Backend, Graph } from './helpers/api.mjs'
import { addGraph, program, rejection, withBackend } from './helpers/index.mjs'

const use = withBackend()

test('name, guid and device', () => {
  const { backend } = use
  assert.equal(backend.name, backend.device.name)
  assert.match(backend.guid, /^[0-9a-f]{32}$/)
  assert.equal(backend.closed, false)
})

test('by name and by index', async () => {
  const { name, index } = use.backend.device
  for (const device of [name, index]) {
    const backend = await Backend.open({ device })
    assert.equal(backend.name, name)
    await backend.close()
  }
})

test('a number of threads that is none', async () => {
  for (const threads of [0, -1, 1.5, NaN, 2 ** 32, '2']) await rejection(() => Backend.open({ threads }), 'ERR_INVALID_ARG')
})

test('stats add up', async () => {
  const { backend } = use
  const before = await backend.stats()
  const buffer = await backend.allocBuffer(4096)
  const during = await backend.stats()
  assert.equal(during.buffers.count, before.buffers.count + 1)
  assert.ok(during.buffers.bytes >= before.buffers.bytes + 4096)
  buffer.dispose()
  await backend.synchronize()
  assert.equal((await backend.stats()).buffers.count, before.buffers.count)
  assert.equal(during.queue.capacity, 1024)
})

test('bytes of a tensor', () => {
  const { backend } = use
  assert.equal(backend.allocSize({ type: 'f32', ne: [4, 3] }), 48)
  assert.ok(backend.allocSize({ type: 'q8_0', ne: [32, 1] }) >= 34)
})

test('what is supported, and why not', async () => {
  const { backend } = use
  const graph = new Graph()
  const sum = graph.add(graph.input('x', 'f32', [64]), graph.input('y', 'f32', [64]))
  assert.equal(await backend.supportsOp(sum), true)
  assert.equal(await backend.explainOp(sum), null)
  assert.equal(await backend.offloadOp(sum), false)
})

test('pools of every kind run the same graph', async () => {
  for (const pool of ['auto', 'vmm', 'buffer', 'priority', 'legacy']) {
    const backend = await Backend.open({ pool })
    const plan = await backend.prepare(addGraph())
    const { z } = await plan.run({ x: Float32Array.of(1, 2, 3, 4), y: Float32Array.of(4, 3, 2, 1) })
    assert.deepEqual([...z], [5, 5, 5, 5], pool)
    await backend.close()
  }
})

test('close finishes what was submitted, refuses what comes, and may be called again', async () => {
  const backend = await Backend.open()
  const plan = await backend.prepare(addGraph())
  const running = plan.run({ x: new Float32Array(4), y: Float32Array.of(1, 2, 3, 4) })
  const closing = backend.close()
  assert.equal(backend.closed, true)
  assert.deepEqual([...(await running).z], [1, 2, 3, 4])
  await closing
  await backend.close()
  await rejection(() => backend.allocBuffer(16), 'ERR_DISPOSED')
  await rejection(() => backend.synchronize(), 'ERR_DISPOSED')
})

test('threads are fixed at first use', async () => {
  const text = `
    const backend = await cann.Backend.open({ threads: 1 })
    console.log(backend.device.description)
    await backend.close()
    await cann.Backend.open({ threads: 1 })
    await cann.Backend.open({ threads: 7 }).catch((e) => console.log(e.code, e.message))
    process.exit()`
  const { stdout, code } = await program(text)
  assert.equal(code, 0)
  assert.match(stdout, /, 1 thread\n/)
  assert.match(stdout, /ERR_INVALID_ARG .*options\.threads/)
})

test('the event loop turns while the device works', async () => {
  const { backend } = use
  const n = 512
  const graph = new Graph()
  const w = graph.input('w', 'f32', [n, n])
  let x = graph.input('x', 'f32', [n, n])
  for (let i = 0; i < 20; i++) x = graph.mulMat(w, x)
  graph.output('y', x)
  const plan = await backend.prepare(graph)
  const inputs = { w: new Float32Array(n * n), x: new Float32Array(n * n) }
  let ticks = 0
  const timer = setInterval(() => ticks++, 1)
  const began = performance.now()
  const runs = Promise.all([plan.run(inputs), plan.run(inputs), plan.run(inputs)])
  const handedOver = performance.now() - began
  await runs
  const took = performance.now() - began
  clearInterval(timer)
  plan.dispose()
  assert.ok(handedOver < took / 2 + 20, `calls took ${handedOver} of ${took} ms`)
  if (took > 100) assert.ok(ticks > 5, `${ticks} ticks in ${took} ms`)
})
