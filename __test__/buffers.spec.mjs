import assert from 'node:assert/strict'
import { test } from 'node:test'

import { failure, rejection, withBackend } from './helpers/index.mjs'

const use = withBackend()

test('device buffers', async () => {
  const buffer = await use.backend.allocBuffer(1000)
  assert.equal(buffer.size, 1000)
  assert.equal(buffer.device, use.backend.name)
  assert.equal(await use.backend.supportsBuffer(buffer), true)
  await buffer.clear(7)
  const tensor = await use.backend.createTensor({ type: 'i8', ne: [8], buffer })
  assert.deepEqual(await tensor.read(), new Int8Array(8).fill(7))
  await rejection(() => buffer.clear(-1), 'ERR_INVALID_ARG')
  buffer.dispose()
  buffer.dispose()
  await rejection(() => buffer.clear(0), 'ERR_DISPOSED')
})

test('host buffers', async () => {
  const buffer = await use.backend.allocHostBuffer(16)
  assert.equal(buffer.size, 16)
  assert.equal(typeof buffer.pinned, 'boolean')
  assert.equal(await use.backend.supportsBuffer(buffer), true)
  await buffer.write(Float32Array.of(1, 2), 4)
  assert.deepEqual(new Float32Array((await buffer.read(4, 8)).buffer), Float32Array.of(1, 2))
  assert.equal((await buffer.read()).byteLength, 16)
  await failure(() => buffer.write(new Uint8Array(17)), 'ERR_INVALID_ARG')
  await failure(() => buffer.read(0, 17), 'ERR_INVALID_ARG')
  await failure(() => buffer.read(0, 2 ** 52), 'ERR_INVALID_ARG')
  for (const wrong of [4n, Symbol('4'), NaN, 17]) await failure(() => buffer.read(wrong), 'ERR_INVALID_ARG')
  buffer.dispose()
  await failure(() => buffer.read(), 'ERR_DISPOSED')
})

test('more host memory than there is', async () => {
  const error = await failure(() => use.backend.allocHostBuffer(2 ** 50), 'ERR_OUT_OF_MEMORY')
  assert.equal(error.requestedBytes, 2 ** 50)
})
