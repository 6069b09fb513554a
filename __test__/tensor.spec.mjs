import assert from 'node:assert/strict'
import { inspect } from 'node:util'
import { test } from 'node:test'

import { Backend, Graph } from './helpers/api.mjs'
import { rejection, runtime, withBackend } from './helpers/index.mjs'

const use = withBackend()
const make = (type, ne, name) => use.backend.createTensor({ type, ne, name })

test('what it is', async () => {
  const tensor = await make('f32', [4, 3], 'weights')
  assert.equal(tensor.name, 'weights')
  assert.equal(tensor.type, 'f32')
  assert.equal(tensor.sourceType, 'f32')
  assert.deepEqual(tensor.ne, [4, 3, 1, 1])
  assert.deepEqual(tensor.nb, [4, 16, 48, 48])
  assert.equal(tensor.nbytes, 48)
  assert.equal(inspect(tensor), "Tensor { name: 'weights', type: 'f32', ne: [ 4, 3, 1, 1 ] }")
  tensor.dispose()
})

test('every plain type comes back in its array', async () => {
  const cases = [
    ['f32', Float32Array.of(1.5, -2, 0)],
    ['f16', Uint16Array.of(0x3c00, 0x4000, 0)],
    ['bf16', Uint16Array.of(0x3f80, 0xc000, 0)],
    ['i8', Int8Array.of(1, -2, 3)],
    ['i16', Int16Array.of(1, -2, 3)],
    ['i32', Int32Array.of(1, -2, 3)],
    ['i64', BigInt64Array.of(1n, -2n, 2n ** 60n)],
    ['f64', Float64Array.of(1, -2, 0.1)],
  ]
  for (const [type, data] of cases) {
    const tensor = await make(type, [3])
    await tensor.write(data)
    assert.deepEqual(await tensor.read(), data, type)
    assert.deepEqual(await tensor.read(data.BYTES_PER_ELEMENT, data.BYTES_PER_ELEMENT), data.subarray(1, 2).slice(), type)
    tensor.dispose()
  }
})

test('quantised blocks come back bit for bit, whatever the order of writes', async () => {
  for (const [type, bytes] of [['q8_0', 34], ['q4_0', 18], ['q4_1', 20], ['q5_0', 22]]) {
    const tensor = await make(type, [64, 2])
    const data = Uint8Array.from({ length: 4 * bytes }, (_, i) => (i * 7 + 3) & 0x3f)
    await Promise.all([3, 0, 2, 1].map((block) => tensor.write(data.slice(block * bytes, (block + 1) * bytes), block * bytes)))
    assert.deepEqual(await tensor.read(), data, type)
    tensor.dispose()
  }
})

test('two blocks in pieces: cut at every byte, in reverse, twice over, byte by byte', async () => {
  const GUARD = 0xa5
  for (const [type, block, columns] of [['q4_0', 18, 64], ['q8_0', 34, 64], ['f16', 2, 2]]) {
    const data = Uint8Array.from({ length: 2 * block }, (_, i) => (i * 11 + 5) & 0x3f)
    // The bytes of the device, which for quantised types are not in ggml's order, between guards.
    const [room, size] = [use.backend.allocSize({ type, ne: [columns] }), 4096]
    const place = 1024
    const buffer = await use.backend.allocBuffer(size)
    const spec = { buffer, type: 'i8' }
    const all = await use.backend.createTensor({ ...spec, ne: [size], offset: 0 })
    const tensor = await use.backend.createTensor({ buffer, type, ne: [columns], offset: place })
    const bytes = async () => Buffer.from((await all.read()).buffer)
    await buffer.clear(GUARD)
    await tensor.write(data.buffer)
    const whole = await bytes()
    const guards = (found) => found.subarray(0, place).every((byte) => byte === GUARD) && found.subarray(place + room).every((byte) => byte === GUARD)
    assert.ok(guards(whole), `${type}: the guards`)
    const halves = (at) => [[0, at], [at, data.length]]
    const single = Array.from(data, (_, i) => [i, i + 1])
    const ways = [...single.slice(1).map(([at]) => halves(at)), ...single.slice(1).map(([at]) => halves(at).reverse()), single, [...single].reverse(), single.flatMap((one) => [one, one])]
    for (const pieces of ways) {
      await buffer.clear(GUARD)
      await Promise.all(pieces.map(([from, to]) => tensor.write(data.slice(from, to).buffer, from)))
      assert.deepEqual(await bytes(), whole, `${type} in pieces ${JSON.stringify(pieces)}`)
    }
    for (let from = 0; from < data.length; from++) {
      for (const to of [from, from + 1, data.length]) {
        if (type === 'f16' && (to - from) % 2 !== 0) continue
        const read = await tensor.read(from, to - from)
        assert.deepEqual(Buffer.from(read.buffer), Buffer.from(data.subarray(from, to)), `${type} ${from} to ${to}`)
      }
    }
    for (const each of [tensor, all, buffer]) each.dispose()
  }
})

test('a part of a block of a converted type is written right or refused', async () => {
  for (const [type, block] of [['q4_1', 20], ['q5_0', 22], ['q5_1', 24]]) {
    const tensor = await make(type, [64])
    let data = Uint8Array.from({ length: 2 * block }, (_, i) => (i * 11 + 5) & 0x3f)
    await tensor.write(data)
    for (let from = 0; from < data.length; from += 3) {
      for (const to of [from + 1, Math.min(from + block, data.length)]) {
        const piece = data.slice(from, to).map((byte) => byte ^ 1)
        try {
          await tensor.write(piece, from)
          data = data.slice()
          data.set(piece, from)
        } catch (error) {
          assert.equal(error.code, 'ERR_INVALID_ARG', error.message)
        }
        assert.deepEqual(await tensor.read(), data, `${type} ${from} to ${to}`)
      }
    }
    tensor.dispose()
  }
})

test('arrays of another kind are refused, buffers and Float16Array are taken', async () => {
  const tensor = await make('f32', [2])
  const error = await rejection(() => tensor.write(Float64Array.of(1, 2)), 'ERR_INVALID_ARG')
  assert.match(error.message, /Expected Float32Array or ArrayBuffer \(f32\) for data but received Float64Array/)
  await tensor.write(Float32Array.of(1, 2).buffer)
  assert.deepEqual([...(await tensor.read())], [1, 2])
  const shared = new Float32Array(new SharedArrayBuffer(8))
  shared.set([3, 4])
  await tensor.write(shared)
  assert.deepEqual([...(await tensor.read())], [3, 4])
  await rejection(() => tensor.readInto(shared), 'ERR_INVALID_ARG')
  if (globalThis.Float16Array) {
    const half = await make('f16', [2])
    await half.write(globalThis.Float16Array.of(1, 2))
    assert.deepEqual([...(await half.read())], [0x3c00, 0x4000])
  }
})

test('the caller may change the array as soon as the call returned', async () => {
  const tensor = await make('f32', [4])
  const data = Float32Array.of(1, 2, 3, 4)
  const writing = tensor.write(data)
  data.fill(9)
  await writing
  assert.deepEqual([...(await tensor.read())], [1, 2, 3, 4])
})

test('a large write takes turns, and what is called meanwhile waits', async () => {
  const n = 4 << 20
  const tensor = await make('f32', [n])
  const other = await make('f32', [2])
  const data = Float32Array.from({ length: n }, (_, i) => i)
  let turns = 0
  const timer = setInterval(() => turns++, 0)
  const writing = tensor.write(data)
  const small = Float32Array.of(5, 6)
  const after = other.write(small)
  small.fill(0)
  const read = tensor.read((n - 1) * 4, 4)
  await writing
  clearInterval(timer)
  await after
  assert.ok(turns > 0)
  assert.equal((await read)[0], n - 1)
  assert.deepEqual([...(await other.read())], [5, 6])
  assert.deepEqual(await tensor.read(), data)
  tensor.dispose()
})

test('a large array that is detached on the way is an error, and the backend goes on', async () => {
  const tensor = await make('i8', [12 << 20])
  const data = new Int8Array(12 << 20)
  const writing = tensor.write(data)
  structuredClone(data.buffer, { transfer: [data.buffer] })
  await rejection(() => writing, 'ERR_INVALID_ARG')
  await tensor.fill(1)
  assert.equal((await tensor.read(0, 1))[0], 1)
  tensor.dispose()
})

test('large inputs of a run take turns; order, the caller\'s memory and errors are as with small ones', async () => {
  const n = 4 << 20
  const graph = new Graph()
  const [a, b] = [graph.input('a', 'f32', [n]), graph.input('b', 'f32', [n])]
  const rows = graph.input('rows', 'i32', [2 << 20])
  graph.output('sum', graph.view(graph.add(a, b), [2], undefined, (n - 2) * 4))
  graph.output('picked', graph.view(graph.op('GET_ROWS', [graph.reshape(a, [1, n]), rows]), [2], undefined, 0))
  const plan = await use.backend.prepare(graph)
  const given = (value) => ({ a: new Float32Array(n).fill(value), b: new Float32Array(n).fill(1), rows: new Int32Array(2 << 20).fill(5) })
  const small = new Graph()
  small.output('y', small.scale(small.input('x', 'f32', [2]), { s: 2 }))
  const next = await use.backend.prepare(small)

  const order = []
  let turns = 0
  const timer = setInterval(() => turns++, 0)
  const x = Float32Array.of(3, 4)
  const runs = [plan.run(given(1)), next.run({ x }), plan.run(given(2))].map((run, i) => run.finally(() => order.push(i)))
  x.fill(0)
  const [first, middle, last] = await Promise.all(runs)
  clearInterval(timer)
  assert.ok(turns > 0)
  // On Deno one promise may overtake another that was settled with it (docs/runtimes.md); the values below tell the runs' order.
  assert.deepEqual(runtime === 'Deno' ? order.toSorted() : order, [0, 1, 2])
  assert.deepEqual([...first.sum, ...first.picked, ...middle.y, ...last.sum], [2, 2, 1, 1, 6, 8, 3, 3])

  const gone = given(3)
  const lost = plan.run(gone)
  structuredClone(gone.b.buffer, { transfer: [gone.b.buffer] })
  await rejection(() => lost, 'ERR_INVALID_ARG')
  const wrong = given(3)
  wrong.rows[wrong.rows.length - 1] = n
  await rejection(() => plan.run(wrong), 'ERR_INVALID_ARG')
  const reason = new Error('enough')
  const abort = new AbortController()
  const aborted = plan.run(given(3), { signal: abort.signal })
  abort.abort(reason)
  await assert.rejects(aborted, (error) => error === reason)
  assert.deepEqual([...(await plan.run(given(4))).sum], [5, 5])
  plan.dispose()
  next.dispose()
})

test('large results take turns, from tensors and from plans', async () => {
  const n = 6 << 20
  const tensor = await make('i32', [n])
  await tensor.write(Int32Array.from({ length: n }, (_, i) => i))
  const graph = new Graph()
  graph.output('y', graph.tensor(tensor))
  const plan = await use.backend.prepare(graph)
  const target = new Int32Array(n)
  const gone = new Int32Array(n)
  const reads = [tensor.read(), tensor.readInto(target), plan.run().then(({ y }) => y), plan.run({}, { into: { y: gone } })]
  const lost = rejection(() => reads.pop(), 'ERR_INVALID_ARG')
  structuredClone(gone.buffer, { transfer: [gone.buffer] })
  for (const values of await Promise.all(reads)) assert.ok(values.length === n && values.every((value, i) => value === i))
  await lost
  plan.dispose()
  tensor.dispose()
})

test('readInto fills the caller\'s memory', async () => {
  const tensor = await make('i32', [4])
  await tensor.write(Int32Array.of(1, 2, 3, 4))
  const memory = new Int32Array(6)
  const view = memory.subarray(2, 5)
  assert.equal(await tensor.readInto(view, 4), view)
  assert.deepEqual([...memory], [0, 0, 2, 3, 4, 0])
})

test('outside of the tensor', async () => {
  const tensor = await make('f32', [4])
  await rejection(() => tensor.write(new Float32Array(4), 4), 'ERR_INVALID_ARG')
  await rejection(() => tensor.read(8, 16), 'ERR_INVALID_ARG')
  await rejection(() => tensor.read(-4), 'ERR_INVALID_ARG')
  await rejection(() => tensor.read(20), 'ERR_INVALID_ARG')
  await rejection(() => tensor.read(0, 2 ** 52), 'ERR_INVALID_ARG')
  for (const wrong of [4n, Symbol('4'), '4', NaN]) await rejection(() => tensor.read(wrong), 'ERR_INVALID_ARG')
  await rejection(() => tensor.fill(256), 'ERR_INVALID_ARG')
})

test('detached memory', async () => {
  const tensor = await make('f32', [4])
  const detach = (array) => {
    structuredClone(array.buffer, { transfer: [array.buffer] })
    return array
  }
  const gone = detach(new Float32Array(4))
  await rejection(() => tensor.write(gone), 'ERR_INVALID_ARG')
  await rejection(() => tensor.write(gone.buffer), 'ERR_INVALID_ARG')
  await rejection(() => tensor.readInto(gone), 'ERR_INVALID_ARG')
  const target = new Float32Array(4)
  const reading = tensor.readInto(target)
  detach(target)
  await rejection(() => reading, 'ERR_INVALID_ARG')
})

test('extents with a hole', async () => {
  await rejection(() => make('f32', new Array(2)), 'ERR_INVALID_ARG')
})

test('fill, placement in a buffer, copies within and between backends', async () => {
  const { backend } = use
  const buffer = await backend.allocBuffer(4096)
  const a = await backend.createTensor({ type: 'i8', ne: [16], buffer, offset: 0 })
  const b = await backend.createTensor({ type: 'i8', ne: [16], buffer, offset: 1024 })
  await a.fill(3)
  await b.fill(0)
  await backend.copy(a, b)
  assert.deepEqual(await b.read(), new Int8Array(16).fill(3))
  await rejection(() => backend.createTensor({ type: 'i8', ne: [16], buffer, offset: 4090 }), 'ERR_INVALID_ARG')

  const second = await Backend.open()
  const c = await second.createTensor({ type: 'i8', ne: [16] })
  await second.copy(b, c)
  assert.deepEqual(await c.read(), new Int8Array(16).fill(3))
  await second.close()
  buffer.dispose()
})

test('writes and reads are done in the order of the calls', async () => {
  const tensor = await make('i32', [1])
  const reads = []
  for (let i = 0; i < 200; i++) {
    void tensor.write(Int32Array.of(i))
    reads.push(tensor.read())
  }
  assert.deepEqual((await Promise.all(reads)).map((r) => r[0]), Array.from({ length: 200 }, (_, i) => i))
})

test('a copy between backends keeps its place beside large writes to either', async () => {
  const other = await Backend.open()
  // Large enough to be handed over in several turns of the event loop.
  const n = 3 << 20
  const ne = [n]
  const [src, behind] = [await make('f32', ne), await make('f32', ne)]
  const [dst, busy] = [await other.createTensor({ type: 'f32', ne }), await other.createTensor({ type: 'f32', ne })]
  const ones = new Float32Array(n).fill(1)

  // Behind a write to its source, before a read of its target.
  await dst.fill(0)
  let done = [src.write(ones), other.copy(src, dst)]
  assert.equal((await dst.read(4 * (n - 1), 4))[0], 1)
  await Promise.all(done)

  // Behind a write to the target's backend, before its source changes.
  await dst.fill(0)
  done = [busy.write(ones), other.copy(src, dst), src.fill(0), behind.fill(0)]
  assert.equal((await dst.read(0, 4))[0], 1)
  await Promise.all(done)

  // Two that cross do not wait for each other.
  done = [behind.write(ones), busy.write(ones), other.copy(behind, dst), use.backend.copy(busy, src)]
  await Promise.all(done)
  assert.deepEqual([(await dst.read(0, 4))[0], (await src.read(0, 4))[0]], [1, 1])
  for (const tensor of [src, behind]) tensor.dispose()
  await other.close()
})
