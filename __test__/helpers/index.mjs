// What the specs share: a backend per file, small graphs, programs in processes of their own.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { after, before } from 'node:test'

import { Backend, CannError, Graph } from './api.mjs'
import { writeGguf } from '../../tools/gguf.mjs'

export const root = fileURLToPath(new URL('../..', import.meta.url))
export const packageUrl = pathToFileURL(join(root, 'index.mjs')).href

/** One backend for the tests of a file: `const use = withBackend()`, then `use.backend`. */
export function withBackend(options) {
  const use = {}
  before(async () => {
    use.backend = await Backend.open(options)
  })
  after(async () => {
    await use.backend?.close()
  })
  return use
}

/** A folder that is gone afterwards. */
export function withFolder() {
  const use = {}
  before(() => {
    use.folder = mkdtempSync(join(tmpdir(), 'cann-node-test-'))
  })
  after(() => {
    if (use.folder) rmSync(use.folder, { recursive: true, force: true })
  })
  return use
}

/** The CannError that `call` throws or rejects with, checked for its code. */
export async function failure(call, code) {
  let value
  try {
    value = await call()
  } catch (error) {
    assert.ok(error instanceof CannError, `a CannError, not ${error?.stack ?? error}`)
    assert.equal(error.code, code, error.message)
    return error
  }
  assert.fail(`expected ${code}, got ${value}`)
}

/** As failure(), for a call that returns a promise: it must not throw. */
export async function rejection(call, code) {
  const promise = call()
  assert.ok(promise instanceof Promise, 'a promise')
  return failure(() => promise, code)
}

/** z = x + y over `n` values. */
export function addGraph(n = 4) {
  const graph = new Graph()
  graph.output('z', graph.add(graph.input('x', 'f32', [n]), graph.input('y', 'f32', [n])))
  return graph
}

/** A plan whose run takes a noticeable while: a chain of matrix products. */
export async function slowPlan(backend, n = 256, steps = 60) {
  const graph = new Graph()
  const w = graph.input('w', 'f32', [n, n])
  let x = graph.input('x', 'f32', [n, n])
  for (let i = 0; i < steps; i++) x = graph.mulMat(w, x)
  graph.output('y', x)
  const plan = await backend.prepare(graph)
  return { plan, inputs: { w: new Float32Array(n * n), x: new Float32Array(n * n) } }
}

/** Which runtime this is, in the words of the loader's message. */
export const runtime = process.versions.bun ? 'Bun' : process.versions.deno ? 'Deno' : 'Node'

/**
 * Runs a module's text in another process of this runtime, with the package imported as `cann`. It is a file in a folder where the
 * package is installed: what Node's -e and --input-type do, others do otherwise. `gc` gives it a function gc(); `closed` is an output
 * that nobody reads.
 */
export function program(text, { env = {}, gc = false, timeout = 60_000, closed } = {}) {
  const folder = mkdtempSync(join(tmpdir(), 'cann-node-program-'))
  mkdirSync(join(folder, 'node_modules'))
  symlinkSync(root, join(folder, 'node_modules/cann-node'), 'junction')
  writeFileSync(join(folder, 'package.json'), '{ "private": true }')
  writeFileSync(join(folder, 'program.mjs'), `import * as cann from 'cann-node'\n${text}`)
  // Bun takes this flag as it is, and Deno's child_process translates it.
  const child = spawn(process.execPath, [...(gc ? ['--expose-gc'] : []), 'program.mjs'], {
    cwd: folder,
    env: { ...process.env, NO_COLOR: '1', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout,
  })
  let stdout = ''
  let stderr = ''
  child.stdout.on('data', (chunk) => (stdout += chunk))
  child.stderr.on('data', (chunk) => (stderr += chunk))
  if (closed) child[closed].destroy()
  const began = performance.now()
  return new Promise((resolve) => {
    child.on('close', (code, signal) => {
      rmSync(folder, { recursive: true, force: true })
      resolve({ code, signal, stdout, stderr, ms: performance.now() - began })
    })
  })
}

/** A GGUF file with an f32, an f16, an i32 and a q8_0 tensor. */
export function smallModel(path) {
  const floats = Float32Array.from({ length: 64 }, (_, i) => i / 4)
  const tensors = [
    { name: 'a', ne: [32, 2], type: 'f32', data: () => new Uint8Array(floats.buffer) },
    { name: 'b', ne: [32], type: 'f16', data: () => new Uint8Array(Uint16Array.from({ length: 32 }, () => 0x3c00).buffer) },
    { name: 'blk.0.c', ne: [32, 1], type: 'q8_0', data: () => Uint8Array.from({ length: 34 }, (_, i) => (i === 1 ? 0x3c : i)) },
  ]
  const metadata = [
    ['general.architecture', 'string', 'test'],
    ['general.alignment', 'Uint32', 32],
    ['test.count', 'BigUint64', 7n],
    ['test.large', 'BigUint64', 2n ** 60n],
    ['test.flag', 'bool', true],
    ['test.scale', 'Float32', 0.5],
    ['test.words', 'string[]', ['one', 'zwei', '三']],
    ['test.ids', 'Int32[]', [1, -2, 3]],
    ['__proto__', 'string', 'a name like any other'],
  ]
  writeGguf(path, metadata, tensors)
  return { floats }
}
