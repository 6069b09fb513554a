/**
 * One network over two devices: the first half of the layers on one, the second half on the other, as a pipeline. While the second
 * device computes a batch, the first one is at the next.
 *
 * Everything is submitted at once and nothing waits in JavaScript between the halves: the first plan leaves its result in a tensor on
 * its device (`outputTo`), `copy` brings it to the other device, in order with what was submitted to either before and after, and the
 * second plan takes it as its input. Events recorded behind each half tell how far the devices are, without stopping them.
 *
 *   node examples/two-devices.mjs       (two NPUs; with fewer, two embedded devices)
 */
import { Backend, Graph, listDevices } from 'cann-node'
import { isMain } from './is-main.mjs'

const WIDTH = 256
const BATCH = 64

/** Blocks of a transformer's feed-forward kind, x + down(silu(gate(x)) * up(x)), with their weights on `backend`. */
export async function blocks(backend, layers) {
  const g = new Graph()
  const weights = []
  const weight = async (seed, inputs, outputs) => {
    const tensor = await backend.createTensor({ type: 'f32', ne: [inputs, outputs] })
    weights.push(tensor)
    await tensor.write(noise(inputs * outputs, seed, 1 / Math.sqrt(inputs)))
    return g.tensor(tensor)
  }
  let x = g.input('x', 'f32', [WIDTH, BATCH])
  for (const layer of layers) {
    const gate = await weight(3 * layer, WIDTH, 2 * WIDTH)
    const up = await weight(3 * layer + 1, WIDTH, 2 * WIDTH)
    const down = await weight(3 * layer + 2, 2 * WIDTH, WIDTH)
    const h = g.rmsNorm(x, { eps: 1e-5 })
    x = g.add(x, g.mulMat(down, g.swiglu(g.mulMat(gate, h), g.mulMat(up, h))))
  }
  g.output('y', x)
  const plan = await backend.prepare(g)
  return { backend, plan, dispose: () => [plan, ...weights].forEach((each) => each.dispose()) }
}

/**
 * Runs all batches through both halves. Resolves to the results in order, and to the times at which each batch had left either half,
 * in milliseconds from the start.
 */
export async function pipeline(first, second, batches) {
  const spec = { type: 'f32', ne: [WIDTH, BATCH] }
  const there = await first.backend.createTensor(spec)
  const here = await second.backend.createTensor(spec)
  const events = await Promise.all(batches.map(async () => [await first.backend.createEvent(), await second.backend.createEvent()]))
  const begun = performance.now()
  const passed = async (half, event) => {
    await half.backend.record(event)
    await event.synchronize()
    return performance.now() - begun
  }
  try {
    const steps = batches.map((x, i) =>
      Promise.all([
        first.plan.run({ x }, { outputTo: { y: there } }),
        passed(first, events[i][0]),
        second.backend.copy(there, here),
        second.plan.run({ x: here }),
        passed(second, events[i][1]),
      ]),
    )
    const done = await Promise.all(steps)
    return { results: done.map(([, , , { y }]) => y), times: done.map(([, left, , , right]) => [left, right]) }
  } finally {
    for (const each of [there, here, ...events.flat()]) each.dispose()
  }
}

/** `n` numbers between -scale and scale, the same for a seed everywhere. */
export function noise(n, seed, scale = 1) {
  let state = seed
  return Float32Array.from({ length: n }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return (state / 2 ** 31 - 1) * scale
  })
}

if (isMain(import.meta.filename)) {
  // How many embedded devices there are is read when the package is first used, which is after this line.
  process.env.CANN_NODE_HOST_DEVICES ??= '2'
  const devices = await listDevices()
  const npus = devices.filter((device) => device.driver === 'cann')
  const [a, b] = npus.length > 1 ? npus : devices.filter((device) => device.driver === 'host')
  if (!b) throw new Error('two devices are needed: CANN_NODE_HOST_DEVICES=2')
  const [one, two] = await Promise.all([a, b].map((device) => Backend.open({ device: device.name })))
  const batches = Array.from({ length: 8 }, (_, i) => noise(WIDTH * BATCH, 1000 + i))

  const first = await blocks(one, [0, 1, 2, 3])
  const second = await blocks(two, [4, 5, 6, 7])
  const { results, times } = await pipeline(first, second, batches)
  console.log(`${batches.length} batches through four layers on ${a.name}, then four on ${b.name}`)
  for (const [i, [left, right]] of times.entries()) {
    console.log(`  batch ${i} left ${a.name} after ${left.toFixed(1).padStart(5)} ms, ${b.name} after ${right.toFixed(1).padStart(5)} ms`)
  }

  // All eight layers on one device must give the same.
  const whole = await blocks(one, [0, 1, 2, 3, 4, 5, 6, 7])
  let difference = 0
  for (const [i, x] of batches.entries()) {
    const { y } = await whole.plan.run({ x })
    y.forEach((value, j) => (difference = Math.max(difference, Math.abs(value - results[i][j]))))
  }
  const { peer, staged } = two.stats().copies
  console.log(`copies between the devices: ${peer} direct, ${staged} through host memory; largest difference to one device: ${difference}`)
  for (const each of [first, second, whole]) each.dispose()
  await Promise.all([one.close(), two.close()])
}
