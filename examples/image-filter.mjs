/**
 * A filter for images, as a convolution on the device: IM2COL lays the window around each pixel out as a column, MUL_MAT multiplies
 * all columns with the weights of the filter.
 *
 * Images are binary PGM or PPM files (P5, P6), which most image programs write. A large one goes through in bands of rows, so that
 * the columns, nine times as large as the image, never need much memory, and one plan serves all bands.
 *
 *   node examples/image-filter.mjs blur|sharpen|edge IN.ppm OUT.ppm
 *   node examples/image-filter.mjs                    (a picture made here, shown before and after)
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { Backend, Graph } from 'cann-node'
import { isMain } from './is-main.mjs'

/** Kernels of 3 x 3, rows from the top. With several their results are combined as the length of a vector. */
export const FILTERS = {
  blur: [[1, 2, 1, 2, 4, 2, 1, 2, 1].map((x) => x / 16)],
  sharpen: [[0, -1, 0, -1, 5, -1, 0, -1, 0]],
  edge: [
    [-1, 0, 1, -2, 0, 2, -1, 0, 1],
    [-1, -2, -1, 0, 0, 0, 1, 2, 1],
  ],
}
const BAND = 64

/** { width, height, channels, data } of a P5 or P6 file: a byte per channel. */
export function parseImage(file) {
  const header = /^P([56])(?:\s|#[^\n]*\n)+(\d+)(?:\s|#[^\n]*\n)+(\d+)(?:\s|#[^\n]*\n)+(\d+)\s/.exec(file.toString('latin1', 0, 4096))
  if (!header) throw new Error('not a binary PGM or PPM file')
  const [width, height, max] = header.slice(2).map(Number)
  if (max > 255) throw new Error('a file with two bytes per value is not taken here')
  const channels = header[1] === '5' ? 1 : 3
  const data = file.subarray(header[0].length, header[0].length + width * height * channels)
  if (data.length < width * height * channels) throw new Error('the file is cut short')
  return { width, height, channels, data }
}

export function formatImage({ width, height, channels, data }) {
  return Buffer.concat([Buffer.from(`P${channels === 1 ? 5 : 6}\n${width} ${height}\n255\n`), data])
}

/** Resolves to the filtered image. Pixels beyond the edge are those at the edge. */
export async function filter(backend, image, kernels) {
  const { width, height, channels } = image
  const band = Math.min(BAND, height)

  // x is [width + 2, band + 2, 1, channels] in ggml's order: a channel is an image of its own in the batch.
  const g = new Graph()
  const x = g.input('x', 'f32', [width + 2, band + 2, 1, channels])
  const shape = g.input('shape', 'f32', [3, 3, 1, 1]) // only its extents count
  const weights = g.input('weights', 'f32', [9, kernels.length])
  const columns = g.im2col(shape, x, { s0: 1, s1: 1, p0: 0, p1: 0, d0: 1, d1: 1, is2d: true }) // [9, width, band, channels]
  let y = g.mulMat(weights, columns) // [kernels, width, band, channels]
  if (kernels.length > 1) y = g.sqrt(g.sumRows(g.sqr(y))) // [1, width, band, channels]
  g.output('y', g.clamp(y, { min: 0, max: 255 }))
  const plan = await backend.prepare(g)

  const given = { shape: new Float32Array(9), weights: Float32Array.from(kernels.flat()) }
  const data = Buffer.alloc(image.data.length)
  for (let top = 0; top < height; top += band) {
    const first = Math.min(top, height - band) // the last band ends with the image
    const { y } = await plan.run({ ...given, x: rows(image, first - 1, band + 2) })
    for (let i = 0; i < y.length; i++) {
      const [pixel, channel] = [i % (width * band), Math.floor(i / (width * band))]
      data[(first * width + pixel) * channels + channel] = Math.round(y[i])
    }
  }
  plan.dispose()
  return { ...image, data }
}

/** `count` rows from `first` on, channel after channel, with a pixel more on each side. */
function rows({ width, height, channels, data }, first, count) {
  const within = (i, n) => Math.min(Math.max(i, 0), n - 1)
  const out = new Float32Array((width + 2) * count * channels)
  let at = 0
  for (let channel = 0; channel < channels; channel++) {
    for (let row = first; row < first + count; row++) {
      const line = within(row, height) * width
      for (let column = -1; column <= width; column++) out[at++] = data[(line + within(column, width)) * channels + channel]
    }
  }
  return out
}

/** A disc with a hole before a gradient. */
function picture(width, height) {
  const data = Buffer.alloc(width * height)
  for (let i = 0; i < data.length; i++) {
    const [x, y] = [((i % width) / width) * 2 - 1, (Math.floor(i / width) / height) * 2 - 1]
    const radius = Math.hypot(x, y)
    data[i] = radius > 0.4 && radius < 0.8 ? 230 : 60 + 50 * x
  }
  return { width, height, channels: 1, data }
}

function show(title, { width, height, data }) {
  const shades = ' .:-=+*#%@'
  console.log(`\n${title}`)
  for (let row = 0; row < height; row++) {
    const line = [...data.subarray(row * width, (row + 1) * width)]
    console.log(line.map((value) => shades[Math.min(9, Math.floor(value / 25.6))]).join(''))
  }
}

if (isMain(import.meta.filename)) {
  const [name, from, to] = process.argv.slice(2)
  if (name && !(FILTERS[name] && from && to)) {
    console.error(`usage: node examples/image-filter.mjs ${Object.keys(FILTERS).join('|')} IN.ppm OUT.ppm`)
    process.exit(2)
  }
  const backend = await Backend.open()
  if (name) {
    const image = parseImage(readFileSync(from))
    const begun = performance.now()
    const result = await filter(backend, image, FILTERS[name])
    console.log(`${image.width} x ${image.height} in ${(performance.now() - begun).toFixed(0)} ms on ${backend.device.name}`)
    writeFileSync(to, formatImage(result))
  } else {
    const image = picture(64, 24)
    show('as it is', image)
    for (const [title, kernels] of Object.entries(FILTERS)) show(title, await filter(backend, image, kernels))
  }
  await backend.close()
}
