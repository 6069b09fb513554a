import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'

import { Backend, CannError, Graph, readGguf } from './helpers/api.mjs'
import { failure, rejection, root, withBackend } from './helpers/index.mjs'

const use = withBackend()
const { load } = createRequire(import.meta.url)('../native.js')

test('the codes of the addon are those of the declarations', () => {
  const declared = readFileSync(join(root, '__test__/types/contract.d.ts'), 'utf8')
  const union = declared.slice(declared.indexOf('CannErrorCode ='), declared.indexOf('class CannError'))
  assert.deepEqual(load().errorCodes(), union.match(/'ERR_\w+'/g).map((code) => code.slice(1, -1)))
})

test('a rejection is a CannError with the stack of its caller', async () => {
  async function asksForTooMuch() {
    await use.backend.createTensor({ type: 'nope', ne: [4] })
  }
  const error = await rejection(asksForTooMuch, 'ERR_INVALID_ARG')
  assert.equal(error.name, 'CannError')
  assert.ok(error instanceof Error)
  assert.match(error.stack, /asksForTooMuch/)
  assert.match(error.message, /^Expected one of f32, .* for spec\.type$/)
})

test('wrong arguments are named, with what was expected and received', async () => {
  const { backend } = use
  const graph = new Graph()
  const cases = [
    [() => Backend.open({ device: -1 }), /^Expected non-negative integer for options\.device but received -1 of type number$/],
    [() => Backend.open({ device: {} }), /options\.device but received \{\} of type object/],
    [() => Backend.open({ pool: 'big' }), /^Expected one of: auto, vmm, .* for options\.pool but received 'big' of type string$/],
    [() => Backend.open({ thread: 1 }), /^Expected one of device, pool, asyncMode, threads for a name in options but received 'thread'/],
    [() => backend.allocBuffer(-1), /for size but received -1/],
    [() => backend.allocBuffer('1'), /for size but received '1' of type string/],
    [() => backend.createTensor(), /Expected object for spec but received null/],
    [() => backend.createTensor({ type: 'f32', ne: [1, 2, 3, 4, 5] }), /1 to 4 non-negative integers for spec\.ne/],
    [() => backend.createTensor({ type: 'f32', ne: [1], offset: 4 }), /spec\.buffer/],
    [() => backend.loadWeights(7), /Expected string for path but received 7 of type number/],
    [() => backend.loadWeights('x', { signal: {} }), /Expected AbortSignal for options\.signal/],
    [() => backend.prepare({}), /Expected Graph for graph/],
    [() => backend.copy(1, 2), /Expected Tensor for src/],
    [() => readGguf(), /Expected string for path but received undefined$/],
  ]
  for (const [call, message] of cases) assert.match((await rejection(call, 'ERR_INVALID_ARG')).message, message)
  for (const [call, message] of [
    [() => graph.input('x', 'f32', [-1]), /for ne but received \[ -1 \] of type array/],
    [() => graph.output('x', {}), /Expected GraphTensor for t/],
    [() => graph.tensor({}), /Expected Tensor for t/],
  ]) {
    assert.match((await failure(call, 'ERR_INVALID_ARG')).message, message)
  }
})

test('a missing file carries the error of Node', async () => {
  const error = await rejection(() => use.backend.loadWeights('/nonexistent/model.gguf'), 'ERR_IO')
  assert.equal(error.cause.code, 'ENOENT')
  assert.equal(error.cause.errno, -2)
  assert.equal(error.cause.path, '/nonexistent/model.gguf')
})

test('no such device lists those there are', async () => {
  const error = await rejection(() => Backend.open({ device: 'CANN77' }), 'ERR_NOT_FOUND')
  assert.match(error.message, /CANN77.*HOST0/)
})

test('running out of memory leaves the backend usable', async () => {
  const error = await rejection(() => use.backend.allocBuffer(2 ** 50), 'ERR_OUT_OF_MEMORY')
  assert.ok(error.requestedBytes >= 2 ** 50)
  assert.equal(error.device, 'HOST0')
  assert.equal(typeof error.hint, 'string')
  const buffer = await use.backend.allocBuffer(1024)
  assert.equal(buffer.size, 1024)
  buffer.dispose()
})

test('classes of the package are not made by new', () => {
  assert.throws(() => new Backend(), TypeError)
  assert.equal(new CannError('ERR_IO', 'text').message, 'text')
})
