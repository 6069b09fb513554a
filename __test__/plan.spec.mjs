import assert from 'node:assert/strict'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { test } from 'node:test'

import { Backend, Graph } from './helpers/api.mjs'
import { addGraph, rejection, withBackend } from './helpers/index.mjs'

const use = withBackend()
const x = Float32Array.of(1, 2, 3, 4)
const y = Float32Array.of(10, 20, 30, 40)

test('prepare, run, report', async () => {
  const plan = await use.backend.prepare(addGraph())
  assert.deepEqual([plan.inputs, plan.outputs], [['x', 'y'], ['z']])
  assert.equal(typeof plan.scratchBytes, 'number')
  assert.deepEqual(await plan.run({ x, y }), { z: Float32Array.of(11, 22, 33, 44) })
  const [row] = await plan.report()
  assert.deepEqual([row.op, row.device, row.calls, row.note], ['ADD', use.backend.name, ['aclnnAdd'], null])
  assert.equal(await plan.trace(), null)
  await plan.run({ x, y }, { trace: true })
  assert.ok(Array.isArray(JSON.parse(await plan.trace()).traceEvents))
  plan.dispose()
})

test('the plan is of the graph as it was', async () => {
  const graph = addGraph()
  const preparing = use.backend.prepare(graph)
  graph.output('more', graph.nodes[0])
  const plan = await preparing
  assert.deepEqual(plan.outputs, ['z'])
  plan.dispose()
})

test('inputs are the caller\'s again at once, runs keep their order', async () => {
  const plan = await use.backend.prepare(addGraph())
  const given = Float32Array.of(0, 0, 0, 0)
  const runs = []
  for (let i = 0; i < 100; i++) {
    given.fill(i)
    runs.push(plan.run({ x: given, y }))
  }
  given.fill(-1)
  const order = []
  await Promise.all(runs.map((run, i) => run.then(({ z }) => (order.push(i), assert.equal(z[0], i + 10)))))
  assert.deepEqual(order, Array.from({ length: 100 }, (_, i) => i))
  plan.dispose()
})

test('ten thousand runs in the queue: in order, a queue and memory that stay, an event loop that turns', async () => {
  const backend = await Backend.open()
  const plan = await backend.prepare(addGraph())
  await plan.run({ x, y })
  const { capacity } = (await backend.stats()).queue
  const before = await backend.stats()
  const delay = monitorEventLoopDelay({ resolution: 1 })
  const order = []
  let [deepest, largest] = [0, 0]
  const runs = []
  // Called in batches, as a program would that also does something else.
  for (let i = 0; i < 10_000; i++) {
    runs.push(plan.run({ x: Float32Array.of(i, i, i, i), y }).then(({ z }) => {
      assert.equal(z[0], i + 10)
      order.push(i)
    }))
    if (i % 100 === 99) {
      const { queue, pool, buffers } = await backend.stats()
      deepest = Math.max(deepest, queue.depth)
      largest = Math.max(largest, pool.bytesReserved + buffers.bytes)
      await new Promise((resolve) => setImmediate(resolve))
      if (i === 999) delay.enable()
    }
  }
  await Promise.all(runs)
  delay.disable()
  assert.deepEqual(order, Array.from({ length: 10_000 }, (_, i) => i))
  assert.ok(deepest <= capacity, `${deepest} of ${capacity}`)
  assert.equal(largest, before.pool.bytesReserved + before.buffers.bytes)
  // A machine that others use as well adds to this: bench/run-event-loop.mjs measures it.
  assert.ok(delay.percentile(50) < 50e6, `${delay.percentile(50) / 1e6} ms`)
  plan.dispose()
  await backend.close()
})

test('however many promises are ready, other work has its turns in between', async () => {
  const { backend } = use
  const plan = await backend.prepare(addGraph())
  let settled = 0
  const all = Promise.all(Array.from({ length: 500 }, () => plan.run({ x, y }).then(() => (settled += 1))))
  const last = Promise.all(Array.from({ length: 500 }, () => backend.synchronize().then(() => (settled += 1))))
  // Nothing is settled while this thread sleeps, and all of it is ready when it wakes.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1000)
  assert.equal(settled, 0)
  const turns = []
  for (let before = 0; settled < 1000; before = settled) {
    await new Promise((resolve) => setImmediate(resolve))
    turns.push(settled - before)
  }
  await Promise.all([all, last])
  // All of one pipe's content is a turn where the backend lives in a child process.
  assert.ok(Math.max(...turns) <= 400, turns.join(' '))
  plan.dispose()
})

test('device tensors in and out, what is read back, and where to', async () => {
  const { backend } = use
  const graph = new Graph()
  const a = graph.input('a', 'f32', [4])
  graph.output('twice', graph.add(a, a))
  graph.output('square', graph.mul(a, a))
  const plan = await backend.prepare(graph)
  const source = await backend.createTensor({ type: 'f32', ne: [4] })
  const target = await backend.createTensor({ type: 'f32', ne: [4] })
  await source.write(x)
  assert.deepEqual(await plan.run({ a: source }, { outputs: [] }), {})
  const into = new Float32Array(4)
  const result = await plan.run({ a: source }, { outputs: ['square'], into: { square: into } })
  assert.deepEqual(Object.keys(result), ['square'])
  assert.equal(result.square, into)
  assert.deepEqual([...into], [1, 4, 9, 16])
  assert.deepEqual(Object.keys(await plan.run({ a: x }, { outputTo: { twice: target } })), ['square'])
  assert.deepEqual([...(await target.read())], [2, 4, 6, 8])
  const chained = await plan.run({ a: target }, { outputs: ['twice'] })
  assert.deepEqual([...chained.twice], [4, 8, 12, 16])
  plan.dispose()
})

test('wrong inputs and options', async () => {
  const plan = await use.backend.prepare(addGraph())
  const cases = [
    [() => plan.run({ x }), /inputs\.y/],
    [() => plan.run({ x, y, w: x }), /Expected an input \('x', 'y'\) for a name in inputs but received 'w'/],
    [() => plan.run({ x, y: new Float32Array(5) }), /Expected 16 bytes \(f32 4 × 1 × 1 × 1\) for inputs\.y/],
    [() => plan.run({ x, y: Int32Array.of(1, 2, 3, 4) }), /inputs\.y but received Int32Array/],
    [() => plan.run({ x, y }, { outputs: ['q'] }), /'z'/],
    [() => plan.run({ x, y }, { into: { z: new Float32Array(3) } }), /16 bytes for options\.into\.z/],
    [() => plan.run({ x, y }, { into: { z: new Int32Array(4) } }), /options\.into\.z/],
    [() => plan.run({ x, y }, { outputTo: { z: x } }), /Expected Tensor for options\.outputTo\.z/],
    [() => plan.run({ x, y }, { output: [] }), /a name in options but received 'output'/],
  ]
  for (const [call, message] of cases) assert.match((await rejection(call, 'ERR_INVALID_ARG')).message, message)
  assert.deepEqual([...(await plan.run({ x, y })).z], [11, 22, 33, 44])
  plan.dispose()
})

test('leaves on the device; operators write into them', async () => {
  const { backend } = use
  const cache = await backend.createTensor({ type: 'f32', ne: [4, 2], name: 'cache' })
  await cache.fill(0)
  const graph = new Graph()
  const leaf = graph.tensor(cache)
  graph.op('CPY', [graph.input('x', 'f32', [4]), graph.view(leaf, [4], null, 16)])
  const plan = await backend.prepare(graph)
  await plan.run({ x })
  assert.deepEqual([...(await cache.read())], [0, 0, 0, 0, 1, 2, 3, 4])
  plan.dispose()
})

test('an input of another backend is refused', async () => {
  const other = await Backend.open()
  const tensor = await other.createTensor({ type: 'f32', ne: [4] })
  const plan = await use.backend.prepare(addGraph())
  await rejection(() => plan.run({ x: tensor, y }), 'ERR_INVALID_ARG')
  plan.dispose()
  await other.close()
})

test('a disposed plan refuses, a run in flight finishes', async () => {
  const plan = await use.backend.prepare(addGraph())
  const running = plan.run({ x, y })
  plan.dispose()
  plan.dispose()
  await rejection(() => plan.run({ x, y }), 'ERR_DISPOSED')
  assert.deepEqual([...(await running).z], [11, 22, 33, 44])
})

test('a graph over two backends', async () => {
  const other = await Backend.open({ device: use.backend.name })
  const graph = new Graph()
  const a = graph.input('a', 'f32', [4])
  const kept = await other.createTensor({ type: 'f32', ne: [4], name: 'kept' })
  const stored = graph.cpy(graph.mul(a, a), graph.tensor(kept))
  graph.output('z', graph.add(stored, a))
  await rejection(() => use.backend.prepare(graph), 'ERR_INVALID_ARG')
  const plan = await use.backend.prepare(graph, { fallback: other })
  assert.deepEqual((await plan.report()).map(({ op, note }) => [op, note]), [
    ['MUL', null],
    ['CPY', `node_1 copied from ${use.backend.name}`],
    ['ADD', `kept copied from ${use.backend.name}`],
  ])
  const runs = [1, 2, 3].map((n) => plan.run({ a: x.map((v) => v * n) }))
  for (const [i, run] of runs.entries()) assert.deepEqual((await run).z, x.map((v) => (v * (i + 1)) ** 2 + v * (i + 1)))
  assert.deepEqual(await kept.read(), x.map((v) => (v * 3) ** 2))
  await plan.run({ a: x }, { trace: true })
  assert.deepEqual(new Set(JSON.parse(await plan.trace()).traceEvents.map((event) => event.pid)), new Set([1, 2]))
  await rejection(() => use.backend.prepare(graph, { fallback: {} }), 'ERR_INVALID_ARG')
  await other.close()
  await rejection(() => plan.run({ a: x }), 'ERR_DISPOSED')
})
