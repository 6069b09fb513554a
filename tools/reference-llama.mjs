// A llama forward pass in plain JavaScript over dequantised weights: slow, short, and independent of the package. The tests hold the
// package to it.

import { bytesFor, dequantize } from './quants.mjs'

/** Log-probabilities after each token: a list of Float64Array(vocab). `file` is what tools/gguf.mjs reads. */
export function referenceLogprobs({ metadata, tensors }, ids) {
  const get = (key, otherwise) => metadata[`llama.${key}`] ?? otherwise
  const width = get('embedding_length')
  const heads = get('attention.head_count')
  const kvHeads = get('attention.head_count_kv', heads)
  const size = get('attention.key_length', width / heads)
  const eps = get('attention.layer_norm_rms_epsilon', 1e-5)
  const base = get('rope.freq_base', 10000)
  const rotated = get('rope.dimension_count', size)

  /** Row `r` of a matrix as values. */
  const row = ({ type, ne, data }, r, out) => {
    const bytes = bytesFor(type, ne[0])
    return dequantize(type, data.subarray(r * bytes, (r + 1) * bytes), out)
  }
  /** A matrix times each of the columns; weights are dequantised row by row. */
  const product = (name, columns) => {
    const matrix = tensors.get(name)
    const [inner, rows] = matrix.ne
    const out = columns.map(() => new Float32Array(rows))
    const weights = new Float32Array(inner)
    for (let r = 0; r < rows; r++) {
      row(matrix, r, weights)
      for (let c = 0; c < columns.length; c++) out[c][r] = dot(weights, columns[c])
    }
    return out
  }
  const norm = (name, columns) => {
    const gain = row(tensors.get(name), 0)
    return columns.map((x) => {
      const scale = 1 / Math.sqrt(dot(x, x) / width + eps)
      return x.map((value, i) => value * scale * gain[i])
    })
  }
  /** Rotates pairs (2i, 2i + 1) of each head by the token's position. */
  const rope = (x, position) => {
    for (let head = 0; head < x.length; head += size) {
      for (let i = 0; i < rotated; i += 2) {
        const angle = position * base ** (-i / rotated)
        const [a, b, cos, sin] = [x[head + i], x[head + i + 1], Math.cos(angle), Math.sin(angle)]
        x[head + i] = a * cos - b * sin
        x[head + i + 1] = a * sin + b * cos
      }
    }
  }

  let x = ids.map((id) => Float32Array.from(row(tensors.get('token_embd.weight'), id)))
  const addTo = (columns) => columns.forEach((column, t) => column.forEach((value, i) => (x[t][i] += value)))
  for (let layer = 0; layer < get('block_count'); layer++) {
    const name = (part) => `blk.${layer}.${part}.weight`
    const h = norm(name('attn_norm'), x)
    const [q, k, v] = ['attn_q', 'attn_k', 'attn_v'].map((part) => product(name(part), h))
    q.forEach(rope)
    k.forEach(rope)
    const attended = q.map((query, t) => {
      const out = new Float32Array(heads * size)
      for (let head = 0; head < heads; head++) {
        const kv = Math.floor((head * kvHeads) / heads) * size
        const part = query.subarray(head * size, (head + 1) * size)
        const scores = Array.from({ length: t + 1 }, (_, s) => dot(part, k[s].subarray(kv, kv + size)) / Math.sqrt(size))
        const top = Math.max(...scores)
        const weights = scores.map((score) => Math.exp(score - top))
        const total = weights.reduce((a, b) => a + b)
        for (let s = 0; s <= t; s++) for (let i = 0; i < size; i++) out[head * size + i] += (weights[s] / total) * v[s][kv + i]
      }
      return out
    })
    addTo(product(name('attn_output'), attended))
    const f = norm(name('ffn_norm'), x)
    const [gate, up] = ['ffn_gate', 'ffn_up'].map((part) => product(name(part), f))
    addTo(product(name('ffn_down'), gate.map((column, t) => column.map((g, i) => (g / (1 + Math.exp(-g))) * up[t][i]))))
  }
  x = norm('output_norm.weight', x)
  return product(tensors.has('output.weight') ? 'output.weight' : 'token_embd.weight', x).map(logprobs)
}

/** Logits to log-probabilities. */
export function logprobs(logits) {
  let top = -Infinity
  for (const value of logits) if (value > top) top = value
  let total = 0
  for (const value of logits) total += Math.exp(value - top)
  const shift = top + Math.log(total)
  return Float64Array.from(logits, (value) => value - shift)
}

function dot(a, b) {
  let [p, q, r, s] = [0, 0, 0, 0]
  let i = 0
  for (; i + 4 <= a.length; i += 4) {
    p += a[i] * b[i]
    q += a[i + 1] * b[i + 1]
    r += a[i + 2] * b[i + 2]
    s += a[i + 3] * b[i + 3]
  }
  for (; i < a.length; i++) p += a[i] * b[i]
  return p + q + r + s
}
