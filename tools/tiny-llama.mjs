// A llama model of a few hundred kilobytes with random weights and a byte for a token: what the demo and tests fall back on where no real
// model can be had. What it generates means nothing.

import { writeGguf } from './gguf.mjs'
import { quantize } from './quants.mjs'

const WIDTH = 128
const LAYERS = 2
const HEADS = 4
const KV_HEADS = 2
const FEED_FORWARD = 256
const VOCAB = 259
const END = 258

/** Weights near zero from a fixed seed: the same file every time. */
function random(seed) {
  let state = seed
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return (state / 2 ** 32 - 0.5) * 0.2
  }
}

/** Token ids of a text: its bytes. */
export const tinyTokens = (text) => [...Buffer.from(text)]

export function writeTinyLlama(path) {
  const next = random(42)
  const tensors = []
  const matrix = (name, type, columns, rows) => {
    const values = Float32Array.from({ length: columns * rows }, next)
    tensors.push({ name: `${name}.weight`, ne: [columns, rows], type, data: () => quantize(type, values) })
  }
  const norm = (name) => {
    const values = new Float32Array(WIDTH).fill(1)
    tensors.push({ name: `${name}.weight`, ne: [WIDTH], type: 'f32', data: () => quantize('f32', values) })
  }
  const keys = (WIDTH / HEADS) * KV_HEADS
  matrix('token_embd', 'q8_0', WIDTH, VOCAB)
  for (let i = 0; i < LAYERS; i++) {
    const name = (part) => `blk.${i}.${part}`
    norm(name('attn_norm'))
    matrix(name('attn_q'), 'q4_0', WIDTH, WIDTH)
    matrix(name('attn_k'), 'q4_0', WIDTH, keys)
    matrix(name('attn_v'), 'q4_0', WIDTH, keys)
    matrix(name('attn_output'), 'q4_0', WIDTH, WIDTH)
    norm(name('ffn_norm'))
    matrix(name('ffn_gate'), 'q4_0', WIDTH, FEED_FORWARD)
    matrix(name('ffn_up'), 'q4_0', WIDTH, FEED_FORWARD)
    matrix(name('ffn_down'), 'q4_0', FEED_FORWARD, WIDTH)
  }
  norm('output_norm')

  // Tokens 0 to 255 are bytes, in the spelling of byte-level vocabularies: what is not printable moves to U+0100 and on.
  let moved = 256
  const printable = (byte) => (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255)
  const bytes = Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(printable(byte) ? byte : moved++))
  writeGguf(
    path,
    [
      ['general.architecture', 'string', 'llama'],
      ['general.name', 'string', 'tiny random weights'],
      ['llama.block_count', 'Uint32', LAYERS],
      ['llama.context_length', 'Uint32', 1024],
      ['llama.embedding_length', 'Uint32', WIDTH],
      ['llama.feed_forward_length', 'Uint32', FEED_FORWARD],
      ['llama.attention.head_count', 'Uint32', HEADS],
      ['llama.attention.head_count_kv', 'Uint32', KV_HEADS],
      ['llama.attention.layer_norm_rms_epsilon', 'Float32', 1e-5],
      ['llama.rope.freq_base', 'Float32', 10000],
      ['tokenizer.ggml.model', 'string', 'gpt2'],
      ['tokenizer.ggml.tokens', 'string[]', [...bytes, '<unk>', '<s>', '</s>']],
      ['tokenizer.ggml.token_type', 'Int32[]', [...bytes.map(() => 1), 3, 3, 3]],
      ['tokenizer.ggml.eos_token_id', 'Uint32', END],
    ],
    tensors,
  )
}
