import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import { Worker } from 'node:worker_threads'

import { Backend } from '../index.mjs'
import { addGraph, packageUrl } from './helpers/index.mjs'

const worker = (text) => {
  const source = `
    const { parentPort } = require('node:worker_threads')
    import(${JSON.stringify(packageUrl)}).then(async (cann) => { ${text} })`
  return new Worker(source, { eval: true })
}

const run = `
  const backend = await cann.Backend.open()
  const graph = new cann.Graph()
  graph.output('z', graph.add(graph.input('x', 'f32', [4]), graph.input('y', 'f32', [4])))
  const plan = await backend.prepare(graph)
  const ones = new Float32Array(4).fill(1)`

test('workers have backends of their own and errors of their own class', async () => {
  const workers = Array.from({ length: 4 }, () =>
    worker(`${run}
      const { z } = await plan.run({ x: ones, y: ones })
      const error = await backend.allocBuffer(2 ** 50).catch((e) => e)
      await backend.close()
      parentPort.postMessage([...z, error instanceof cann.CannError, error.code])`),
  )
  const ends = workers.map((each) => Promise.all([once(each, 'message'), once(each, 'exit')]))
  for (const [[message], [code]] of await Promise.all(ends)) {
    assert.deepEqual(message, [2, 2, 2, 2, true, 'ERR_OUT_OF_MEMORY'])
    assert.equal(code, 0)
  }
})

test('terminated with work pending, again and again; this thread goes on', async () => {
  const backend = await Backend.open()
  const plan = await backend.prepare(addGraph())
  const ones = new Float32Array(4).fill(1)
  const rounds = Number(process.env.CANN_NODE_STRESS ?? 12)
  for (let i = 0; i < rounds; i++) {
    const each = worker(`${run}
      parentPort.postMessage('ready')
      for (;;) await Promise.all(Array.from({ length: 50 }, () => plan.run({ x: ones, y: ones })))`)
    await once(each, 'message')
    await new Promise((resolve) => setTimeout(resolve, (i % 4) * 3))
    const began = performance.now()
    await each.terminate()
    assert.ok(performance.now() - began < 2000)
    assert.deepEqual([...(await plan.run({ x: ones, y: ones })).z], [2, 2, 2, 2])
  }
  await backend.close()
})

test('ended without closing', async () => {
  const each = worker(`${run}
    cann.onLog('trace', () => {})
    void plan.run({ x: ones, y: ones })
    parentPort.postMessage('ready')
    process.exit(3)`)
  assert.deepEqual(await once(each, 'exit'), [3])
})
