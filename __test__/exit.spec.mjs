import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'

import { program, smallModel, withFolder } from './helpers/index.mjs'

const at = withFolder()

const slow = `
  const backend = await cann.Backend.open()
  const graph = new cann.Graph()
  const w = graph.input('w', 'f32', [256, 256])
  let x = graph.input('x', 'f32', [256, 256])
  for (let i = 0; i < 100; i++) x = graph.mulMat(w, x)
  graph.output('y', x)
  const plan = await backend.prepare(graph)
  const data = new Float32Array(65536)
  const run = () => plan.run({ w: data, x: data })`

test('a process that forgot to close ends by itself', async () => {
  const { code, signal, stderr } = await program(`${slow}\nawait run()`)
  assert.deepEqual([code, signal, stderr], [0, null, ''])
})

test('pending work keeps the process until it is done', async () => {
  const { code, stdout } = await program(`${slow}\nrun().then(() => console.log('done'))`)
  assert.deepEqual([code, stdout], [0, 'done\n'])
})

test('process.exit with work pending', async () => {
  const { code, signal, ms } = await program(`${slow}\nfor (let i = 0; i < 50; i++) run().catch(() => {})\nprocess.exit(7)`)
  assert.deepEqual([code, signal], [7, null])
  assert.ok(ms < 20_000)
})

test('process.exit with five hundred promises pending, of every kind', async () => {
  const path = join(at.folder, 'pending.gguf')
  smallModel(path)
  const text = `${slow}
    const tensor = await backend.createTensor({ type: 'f32', ne: [1024] })
    for (let i = 0; i < 100; i++) {
      for (const work of [run(), tensor.fill(1), tensor.read(), backend.loadWeights(${JSON.stringify(path)}), backend.synchronize()]) work.catch(() => {})
    }
    process.exit(0)`
  const { code, signal, stderr, ms } = await program(text)
  assert.deepEqual([code, signal, stderr], [0, null, ''])
  assert.ok(ms < 5000, `${ms.toFixed(0)} ms`)
})

test('an exception with work pending', async () => {
  const { code, signal, stderr } = await program(`${slow}\nrun().catch(() => {})\nthrow new Error('mine')`)
  assert.deepEqual([code, signal], [1, null])
  assert.match(stderr, /error: mine/i)
})

test('process.exit during an upload', async () => {
  const path = join(at.folder, 'small.gguf')
  smallModel(path)
  const text = `
    const backend = await cann.Backend.open()
    for (let i = 0; i < 20; i++) backend.loadWeights(${JSON.stringify(path)}, { onProgress() {} }).catch(() => {})
    setImmediate(() => process.exit(5))`
  const { code, signal } = await program(text)
  assert.deepEqual([code, signal], [5, null])
})

test('nothing is printed, and importing alone does nothing', async () => {
  assert.deepEqual(await program('').then(({ code, stdout, stderr }) => [code, stdout, stderr]), [0, '', ''])
})
