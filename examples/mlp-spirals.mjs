/**
 * A network trained elsewhere, run as a graph of your own: it tells two intertwined spirals apart.
 *
 * mlp-spirals.gguf (5 KB) is written by mlp-spirals.train.py with NumPy. Here its weights go to the device, a graph of three layers
 * is prepared once for a whole batch of points, and the result is a map of the plane with a few hundred points to check it by.
 *
 *   node examples/mlp-spirals.mjs
 */
import { fileURLToPath } from 'node:url'
import { Backend, Graph } from 'cann-node'
import { isMain } from './is-main.mjs'

/** The network for `batch` points at a time: classify(points) gives the number of a spiral for each. */
export class Spirals {
  #weights
  #plan
  #batch

  static async load(backend, batch, path = fileURLToPath(new URL('mlp-spirals.gguf', import.meta.url))) {
    const model = new Spirals()
    model.#batch = batch
    model.#weights = await backend.loadWeights(path)
    const g = new Graph()
    const layer = (i, x) => g.add(g.mulMat(g.tensor(model.#weights.get(`${i}.weight`)), x), g.tensor(model.#weights.get(`${i}.bias`)))
    const points = g.input('points', 'f32', [2, batch]) // ne[0] is the fastest: x, y, x, y, …
    const hidden = g.silu(layer(1, g.silu(layer(0, points))))
    g.output('spiral', g.argmax(layer(2, hidden))) // [batch]
    model.#plan = await backend.prepare(g)
    return model
  }

  /** How much the spirals turn. */
  get turns() {
    return this.#weights.metadata['spirals.turns']
  }

  /** `points` is x, y, x, y, …, of any length; resolves to an Int32Array of zeros and ones. */
  async classify(points) {
    const answers = []
    for (let at = 0; at < points.length; at += 2 * this.#batch) {
      const batch = new Float32Array(2 * this.#batch) // the last one is filled up with zeros
      batch.set(points.subarray(at, at + batch.length))
      answers.push(this.#plan.run({ points: batch }))
    }
    const spirals = (await Promise.all(answers)).flatMap(({ spiral }) => [...spiral])
    return Int32Array.from(spirals.slice(0, points.length / 2))
  }

  dispose() {
    this.#plan.dispose()
    this.#weights.dispose()
  }
}

/** `n` points of each spiral, from the middle outwards. */
export function spirals(n, turns) {
  const points = new Float32Array(4 * n)
  for (let i = 0; i < 2 * n; i++) {
    const t = Math.sqrt(((i % n) + 0.5) / n)
    const angle = 2 * Math.PI * turns * t + (i < n ? 0 : Math.PI)
    points.set([t * Math.cos(angle), t * Math.sin(angle)], 2 * i)
  }
  return { points, labels: Int32Array.from({ length: 2 * n }, (_, i) => (i < n ? 0 : 1)) }
}

if (isMain(import.meta.filename)) {
  const backend = await Backend.open()
  const model = await Spirals.load(backend, 256)
  const { points, labels } = spirals(500, model.turns)
  const found = await model.classify(points)
  const right = found.filter((spiral, i) => spiral === labels[i]).length

  // A character of the map for each place of the plane, twice as high as wide.
  const [columns, rows] = [64, 32]
  const places = Float32Array.from({ length: 2 * columns * rows }, (_, i) => {
    const place = i >> 1
    return i % 2 ? (Math.floor(place / columns) / (rows - 1)) * 2.2 - 1.1 : ((place % columns) / (columns - 1)) * 2.2 - 1.1
  })
  const map = [...(await model.classify(places))].map((spiral) => '·#'[spiral]).join('')
  for (let row = 0; row < rows; row++) console.log(map.slice(row * columns, (row + 1) * columns))
  console.log(`${right} of ${labels.length} points right, on ${backend.device.name}`)
  model.dispose()
  await backend.close()
}
