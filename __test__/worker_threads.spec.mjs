import assert from 'node:assert/strict'
import { once } from 'node:events'
import { join } from 'node:path'
import { test } from 'node:test'
import { Worker } from 'node:worker_threads'

import { Backend } from '../index.mjs'
import { addGraph, packageUrl, program, smallModel, withFolder } from './helpers/index.mjs'

const at = withFolder()

const source = (text) => `
  const { parentPort } = require('node:worker_threads')
  import(${JSON.stringify(packageUrl)}).then(async (cann) => { ${text} })`
const worker = (text) => new Worker(source(text), { eval: true })

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

test('terminated at any moment: importing, opening, uploading, running, logging', async () => {
  const backend = await Backend.open()
  const path = join(at.folder, 'small.gguf')
  smallModel(path)
  const busy = `
    cann.onLog('trace', () => {})
    ${run}
    const large = await backend.createTensor({ type: 'f32', ne: [1 << 20] })
    const data = new Float32Array(1 << 20)
    for (;;) {
      const { signal } = new AbortController()
      void backend.createTensor({ type: 'f32', ne: [1024] })
      await Promise.all([
        ...Array.from({ length: 20 }, () => plan.run({ x: ones, y: ones }, { signal })),
        backend.loadWeights(${JSON.stringify(path)}, { onProgress() {} }).then((weights) => weights.dispose()),
        large.write(data),
        large.read(),
        cann.listDevices(),
      ])
    }`
  const rounds = Number(process.env.CANN_NODE_STRESS ?? 12)
  for (let i = 0; i < rounds; i++) {
    const pair = [worker(busy), worker(busy)]
    // From before the first line to well inside the loop, whatever the runtime needs to start a worker.
    await new Promise((resolve) => setTimeout(resolve, (i * 400) / rounds))
    await Promise.all(pair.map((each) => each.terminate()))
    const tensor = await backend.createTensor({ type: 'f32', ne: [4] })
    await tensor.write(Float32Array.of(1, 2, 3, i))
    assert.deepEqual(await tensor.read(), Float32Array.of(1, 2, 3, i))
    tensor.dispose()
  }
  await backend.close()
})

/** A program that starts one worker or more, each with this text. */
const starts = (text, then) => `
  const { Worker } = await import('node:worker_threads')
  const start = () => new Worker(${JSON.stringify(source(text))}, { eval: true })
  ${then}`

test('an uncaught error in a worker with work pending is that worker\'s end', async () => {
  const text = `${run}
    void Promise.all(Array.from({ length: 50 }, () => plan.run({ x: ones, y: ones })))
    setTimeout(() => { throw new Error('mine') })`
  // In a program: the test runner of Bun has errors of workers for its own.
  const then = "start().on('error', (error) => console.log(error.message)).on('exit', (code) => console.log(code))"
  const { code, signal, stdout } = await program(starts(text, then))
  assert.deepEqual([code, signal, stdout], [0, null, 'mine\n1\n'])
})

test('process.exit while workers work', async () => {
  const text = `${run}
    parentPort.postMessage('ready')
    for (;;) await Promise.all(Array.from({ length: 50 }, () => plan.run({ x: ones, y: ones })))`
  const then = `
    let ready = 0
    for (let i = 0; i < 3; i++) start().on('message', () => ++ready === 3 && setTimeout(() => process.exit(9), 5))`
  const { code, signal, stderr } = await program(starts(text, then))
  assert.deepEqual([code, signal, stderr], [9, null, ''])
})

test('ended without closing', async () => {
  const each = worker(`${run}
    cann.onLog('trace', () => {})
    void plan.run({ x: ones, y: ones })
    parentPort.postMessage('ready')
    process.exit(3)`)
  assert.deepEqual(await once(each, 'exit'), [3])
})
