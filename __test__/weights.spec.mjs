import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { test } from 'node:test'

import { readGguf } from './helpers/api.mjs'
import { writeGguf } from '../tools/gguf.mjs'
import { failure, rejection, smallModel, withBackend, withFolder } from './helpers/index.mjs'

const use = withBackend()
const at = withFolder()
const model = () => {
  const path = join(at.folder, 'small.gguf')
  return { path, ...smallModel(path) }
}

test('a file\'s table without its data', async () => {
  const { version, metadata, tensors } = await readGguf(model().path)
  assert.equal(version, 3)
  assert.equal(metadata['general.architecture'], 'test')
  assert.equal(metadata['test.count'], 7)
  assert.equal(metadata['test.large'], 2n ** 60n)
  assert.equal(metadata['test.flag'], true)
  assert.equal(metadata['test.scale'], 0.5)
  assert.deepEqual(metadata['test.words'], ['one', 'zwei', '三'])
  assert.deepEqual(metadata['test.ids'], Int32Array.of(1, -2, 3))
  assert.equal(Object.getOwnPropertyDescriptor(metadata, '__proto__').value, 'a name like any other')
  assert.equal(Object.getPrototypeOf(metadata), Object.prototype)
  assert.deepEqual(tensors.map(({ name, type, ne, nbytes }) => [name, type, ne, nbytes]), [
    ['a', 'f32', [32, 2], 256],
    ['b', 'f16', [32], 64],
    ['blk.0.c', 'q8_0', [32, 1], 34],
  ])
})

test('long lists of texts are whole, and the event loop turns while they are made', async () => {
  const path = join(at.folder, 'texts.gguf')
  const texts = (n) => Array.from({ length: n }, (_, i) => `token ${i}`)
  const lists = { none: texts(0), one: texts(1), 'a slice': texts(4096), 'two and a bit': texts(8193) }
  const tensor = { name: 'a', ne: [1], type: 'f32', data: () => new Uint8Array(4) }
  writeGguf(path, Object.entries(lists).map(([key, list]) => [key, 'string[]', list]), [tensor])
  let turns = 0
  let reading = true
  const count = () => {
    turns++
    if (reading) setImmediate(count)
  }
  const file = readGguf(path).finally(() => (reading = false))
  setImmediate(count)
  const { metadata } = await file
  assert.deepEqual(metadata, lists)
  assert.ok(turns >= 3, `${turns} turns`)
  const weights = await use.backend.loadWeights(path)
  assert.deepEqual(weights.metadata, lists)
  weights.dispose()
})

test('upload, progress and lookup', async () => {
  const { path, floats } = model()
  const seen = []
  const weights = await use.backend.loadWeights(path, { onProgress: (p) => seen.push(p) })
  assert.deepEqual(weights.names, ['a', 'b', 'blk.0.c'])
  assert.equal(weights.has('a') && !weights.has('z'), true)
  assert.equal(weights.get('a'), weights.get('a'))
  assert.deepEqual([...(await weights.get('a').read())], [...floats])
  assert.equal(weights.get('blk.0.c').type, 'q8_0')
  assert.equal(weights.metadata['test.count'], 7)
  assert.ok(weights.bytes >= 256)
  assert.match((await failure(() => weights.get('z'), 'ERR_NOT_FOUND')).message, /'z'/)
  assert.ok(seen.length >= 1)
  assert.equal(seen.at(-1).bytesDone, seen.at(-1).bytesTotal)
  const tensor = weights.get('a')
  weights.dispose()
  await rejection(() => tensor.read(), 'ERR_DISPOSED')
})

test('a filter chooses', async () => {
  const weights = await use.backend.loadWeights(model().path, { filter: (name) => name.startsWith('blk') })
  assert.deepEqual(weights.names, ['blk.0.c'])
  weights.dispose()
})

test('a filter answers at once', async () => {
  await rejection(() => use.backend.loadWeights(model().path, { filter: async () => false }), 'ERR_INVALID_ARG')
})

test('an error of the filter is passed on as it is', async () => {
  const mine = new Error('mine')
  const filter = () => {
    throw mine
  }
  await assert.rejects(use.backend.loadWeights(model().path, { filter }), (error) => error === mine)
})

test('files that are none are refused and take no memory', async () => {
  const { backend } = use
  await backend.synchronize()
  const before = (await backend.stats()).buffers
  const path = join(at.folder, 'bad.gguf')
  writeFileSync(path, 'no model at all')
  assert.equal((await rejection(() => backend.loadWeights(path), 'ERR_GGUF')).offset, 0)
  await rejection(() => readGguf(path), 'ERR_GGUF')
  const whole = readFileSync(model().path)
  for (const length of [0, 3, 24, 200, whole.length - 40]) {
    writeFileSync(path, whole.subarray(0, length))
    await rejection(() => backend.loadWeights(path), 'ERR_GGUF')
  }
  await rejection(() => backend.loadWeights(at.folder), 'ERR_IO')
  await backend.synchronize()
  assert.deepEqual((await backend.stats()).buffers, before)
})

test('a signal ends an upload with its reason', async () => {
  const { path } = model()
  const reason = new Error('enough')
  await assert.rejects(use.backend.loadWeights(path, { signal: AbortSignal.abort(reason) }), (error) => error === reason)
  const control = new AbortController()
  const loading = use.backend.loadWeights(path, { signal: control.signal })
  control.abort(reason)
  await assert.rejects(loading, (error) => error === reason)
  const weights = await use.backend.loadWeights(path, { signal: new AbortController().signal })
  weights.dispose()
})

test('an error of the progress listener ends the load and is what it rejects with', async () => {
  const mine = new Error('mine')
  const onProgress = () => {
    throw mine
  }
  await assert.rejects(use.backend.loadWeights(model().path, { onProgress }), (error) => error === mine)
  await use.backend.synchronize()
})

test('a larger upload leaves the event loop alone, and can be ended half way', async () => {
  const { backend } = use
  const path = join(at.folder, 'large.gguf')
  const data = () => new Uint8Array(16 << 20)
  const tensors = ['a', 'b', 'c', 'd'].map((name) => ({ name, ne: [2048, 2048], type: 'f32', data }))
  writeGguf(path, [['general.architecture', 'string', 'test']], tensors)

  const delay = monitorEventLoopDelay({ resolution: 1 })
  delay.enable()
  const seen = []
  const weights = await backend.loadWeights(path, { onProgress: ({ bytesDone }) => seen.push(bytesDone) })
  delay.disable()
  assert.equal(seen.at(-1), 64 << 20)
  assert.deepEqual(seen, seen.toSorted((a, b) => a - b))
  // Generous: the machine may be busy. Reading the file here would take longer than this.
  assert.ok(delay.percentile(90) / 1e6 < 25, `${delay.percentile(90) / 1e6} ms`)
  weights.dispose()
  await backend.synchronize()
  const before = (await backend.stats()).buffers

  const control = new AbortController()
  const reason = new Error('half way')
  const onProgress = ({ bytesDone }) => bytesDone > 0 && control.abort(reason)
  await assert.rejects(backend.loadWeights(path, { signal: control.signal, onProgress }), (error) => error === reason)
  for (let i = 0; i < 100 && (await backend.stats()).buffers.count > before.count; i++) {
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
  assert.deepEqual((await backend.stats()).buffers, before)
})
