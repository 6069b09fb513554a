/**
 * A llama-architecture language model, written with cann-node's graph API and nothing else.
 *
 * Read it from top to bottom: (1) weights go to the device, (2) the KV cache is two device tensors per layer, (3) one
 * function builds the graph of a forward pass, (4) a plan per (tokens, cache) shape is prepared once and run many times, so
 * that a decode step prepares nothing, (5) a loop picks the likeliest token.
 *
 * Shapes are ggml's: ne[0] is the fastest dimension. A weight matrix [in, out] times activations [in, tokens] gives
 * [out, tokens]: mulMat(weight, x).
 *
 *   node examples/llama-graph.mjs MODEL.gguf 504 2817 ...     (token ids of the prompt)
 */
import { Backend, Graph } from 'cann-node'
import { isMain } from './is-main.mjs'

/** Cache lengths that plans are prepared for: a plan reads a whole multiple of this many cache rows and masks the rest. */
const KV_BUCKET = 256
/** Longest run of prompt tokens that goes through one plan. */
const MAX_BATCH = 512
/** A token that steers (end of text and the like) and has no text, in tokenizer.ggml.token_type. */
const CONTROL = 3

export class Llama {
  #backend
  #weights
  #plans = new Map()
  #caches = []
  #forked = false
  #pieces
  #kinds

  /** Uploads the weights and makes the cache. `context` is the most tokens a sequence may have. */
  static async load(backend, path, { context = 2048, cacheType = 'f16', ...loadOptions } = {}) {
    const model = new Llama()
    model.#backend = backend
    model.#weights = await backend.loadWeights(path, loadOptions)
    try {
      await model.#init(context, cacheType)
    } catch (error) {
      model.dispose()
      throw error
    }
    return model
  }

  /** Another sequence over the same weights, with a cache of its own. Dispose of it before the model it comes from. */
  async fork() {
    const other = new Llama()
    other.#backend = this.#backend
    other.#weights = this.#weights
    other.#forked = true
    other.config = this.config
    try {
      await other.#makeCache(this.#caches[0].k.type)
    } catch (error) {
      other.dispose()
      throw error
    }
    return other
  }

  async #init(context, cacheType) {
    const meta = this.#weights.metadata
    const architecture = meta['general.architecture']
    if (architecture !== 'llama') throw new Error(`this example knows the llama architecture, not '${architecture}'`)
    const get = (key, fallback) => meta[`llama.${key}`] ?? fallback
    const heads = get('attention.head_count')
    const width = get('embedding_length')
    const headSize = get('attention.key_length', width / heads)
    this.config = {
      layers: get('block_count'),
      width,
      heads,
      headSize,
      kvHeads: get('attention.head_count_kv', heads),
      eps: get('attention.layer_norm_rms_epsilon', 1e-5),
      freqBase: get('rope.freq_base', 10000),
      ropeDims: get('rope.dimension_count', headSize),
      vocab: this.#weights.get('token_embd.weight').ne[1],
      context: Math.min(Math.ceil(context / KV_BUCKET) * KV_BUCKET, Math.ceil(get('context_length', context) / KV_BUCKET) * KV_BUCKET),
      eos: meta['tokenizer.ggml.eos_token_id'],
    }
    await this.#makeCache(cacheType)
  }

  async #makeCache(type) {
    const { layers, headSize, kvHeads, context } = this.config
    // One row per position holds the keys (or values) of all heads. Zeroed: masked rows take part in products.
    const ne = [headSize * kvHeads, context]
    for (let i = 0; i < layers; i++) {
      const k = await this.#backend.createTensor({ type, ne, name: `cache_k.${i}` })
      const v = await this.#backend.createTensor({ type, ne, name: `cache_v.${i}` })
      this.#caches.push({ k, v })
      await Promise.all([k.fill(0), v.fill(0)])
    }
  }

  /** The graph for `tokens` new tokens over the first `kv` rows of the cache; `wanted` of the tokens get logits. */
  #build(tokens, kv, wanted) {
    const { layers, heads, kvHeads, headSize, eps, freqBase, ropeDims } = this.config
    const g = new Graph()
    const weight = (name) => g.tensor(this.#weights.get(name))
    const norm = (x, name) => g.mul(g.rmsNorm(x, { eps }), weight(name))

    const ids = g.input('ids', 'i32', [tokens])
    const positions = g.input('positions', 'i32', [tokens])
    const rows = g.input('rows', 'i64', [tokens]) // cache rows the new tokens go to
    const mask = g.input('mask', 'f32', [kv, tokens]) // 0 where a token may look, -Infinity where not
    const wantedIds = g.input('wanted', 'i32', [wanted])

    const embedding = weight('token_embd.weight')
    let x = g.getRows(embedding, ids) // [width, tokens]
    for (let i = 0; i < layers; i++) {
      const w = (name) => weight(`blk.${i}.${name}.weight`)
      const h = norm(x, `blk.${i}.attn_norm.weight`)

      // Queries, keys and values, one column per head; rotary positions on queries and keys.
      const split = (t, n) => g.reshape(t, [headSize, n, tokens])
      const rope = (t) => g.rope(t, positions, null, { nDims: ropeDims, mode: 0, freqBase })
      const q = rope(split(g.mulMat(w('attn_q'), h), heads))
      const k = rope(split(g.mulMat(w('attn_k'), h), kvHeads))
      const v = g.mulMat(w('attn_v'), h)

      // The new keys and values go into the cache; then the first kv rows of it are read as [headSize, kv, kvHeads].
      const cache = this.#caches[i]
      const store = (t, into) => g.setRows(g.reshape(t, [headSize * kvHeads, tokens]), rows, g.tensor(into))
      const load = (t) => {
        const [element, row] = [t.nb[0], t.nb[1]]
        return g.view(t, [headSize, kv, kvHeads], [element, row, element * headSize], 0)
      }
      const keys = load(store(k, cache.k))
      const values = load(store(v, cache.v))

      // softmax(q·k / sqrt(headSize) + mask)·v, heads in groups that share keys and values.
      const attended = g.flashAttnExt(g.permute(q, [0, 2, 1, 3]), keys, values, mask, null, { scale: 1 / Math.sqrt(headSize) })
      x = g.add(x, g.mulMat(w('attn_output'), g.reshape(attended, [headSize * heads, tokens])))

      // Feed-forward: silu(gate) * up, then down.
      const f = norm(x, `blk.${i}.ffn_norm.weight`)
      x = g.add(x, g.mulMat(w('ffn_down'), g.swiglu(g.mulMat(w('ffn_gate'), f), g.mulMat(w('ffn_up'), f))))
    }
    // Logits are only computed for the tokens somebody asks about.
    x = norm(g.getRows(x, wantedIds), 'output_norm.weight')
    const output = this.#weights.has('output.weight') ? weight('output.weight') : embedding
    g.output('logits', g.mulMat(output, x))
    return g
  }

  async #plan(tokens, kv, wanted) {
    const key = `${tokens}/${kv}/${wanted}`
    let plan = this.#plans.get(key)
    if (!plan) this.#plans.set(key, (plan = await this.#backend.prepare(this.#build(tokens, kv, wanted))))
    return plan
  }

  /**
   * Runs new tokens that follow `past` earlier ones. Resolves to the logits after the last token ([vocab]), or after each
   * token ([vocab] times tokens) with `all`.
   */
  async eval(tokens, past, { all = false, signal } = {}) {
    let logits
    const everything = all ? new Float32Array(tokens.length * this.config.vocab) : null
    for (let at = 0; at < tokens.length; at += MAX_BATCH) {
      const ids = Int32Array.from(tokens.slice(at, at + MAX_BATCH))
      const [n, first] = [ids.length, past + at]
      if (first + n > this.config.context) throw new RangeError(`the cache holds ${this.config.context} tokens`)
      const kv = Math.ceil((first + n) / KV_BUCKET) * KV_BUCKET
      const wanted = all ? n : 1
      const plan = await this.#plan(n, kv, wanted)
      const mask = new Float32Array(kv * n).fill(-Infinity)
      for (let i = 0; i < n; i++) mask.fill(0, i * kv, i * kv + first + i + 1)
      const result = await plan.run(
        {
          ids,
          positions: Int32Array.from(ids, (_, i) => first + i),
          rows: BigInt64Array.from(ids, (_, i) => BigInt(first + i)),
          mask,
          wanted: Int32Array.from({ length: wanted }, (_, i) => n - wanted + i),
        },
        { signal },
      )
      logits = result.logits
      everything?.set(logits, at * this.config.vocab)
    }
    return everything ?? logits
  }

  /** Greedy generation: yields token ids until the end token, `maxTokens`, or the end of the cache. */
  async *generate(prompt, { maxTokens = 48, signal } = {}) {
    let logits = await this.eval(prompt, 0, { signal })
    for (let n = 0; n < maxTokens; n++) {
      const token = argmax(logits)
      yield token
      if (token === this.config.eos || n + 1 === maxTokens || prompt.length + n === this.config.context) return
      logits = await this.eval([token], prompt.length + n, { signal })
    }
  }

  /** Text of token ids, through the vocabulary of the GGUF file (byte-level BPE as GPT-2 has it). */
  detokenize(ids) {
    return Buffer.concat(ids.map((id) => this.tokenBytes(id))).toString('utf8')
  }

  /** The bytes of one token: a character may be spread over several tokens. */
  tokenBytes(id) {
    this.#pieces ??= this.#weights.metadata['tokenizer.ggml.tokens']
    this.#kinds ??= this.#weights.metadata['tokenizer.ggml.token_type'] ?? []
    if (this.#kinds[id] === CONTROL) return Buffer.alloc(0)
    return Buffer.concat([...this.#pieces[id]].map((char) => (byteOf.has(char) ? Buffer.of(byteOf.get(char)) : Buffer.from(char))))
  }

  get weights() {
    return this.#weights
  }

  dispose() {
    for (const plan of this.#plans.values()) plan.dispose()
    for (const { k, v } of this.#caches) [k, v].forEach((t) => t.dispose())
    if (!this.#forked) this.#weights?.dispose()
  }
  [Symbol.dispose]() {
    this.dispose()
  }
}

export function argmax(values) {
  let best = 0
  for (let i = 1; i < values.length; i++) if (values[i] > values[best]) best = i
  return best
}

/** GPT-2 writes bytes that are not printable as characters from U+0100 on; this maps each character back to its byte. */
const byteOf = (() => {
  const map = new Map()
  let next = 256
  for (let byte = 0; byte < 256; byte++) {
    const printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255)
    map.set(String.fromCodePoint(printable ? byte : next++), byte)
  }
  return map
})()

if (isMain(import.meta.filename)) {
  const [path, ...ids] = process.argv.slice(2)
  if (!path || ids.length === 0) {
    console.error('usage: node examples/llama-graph.mjs MODEL.gguf TOKEN_ID...')
    process.exit(2)
  }
  const backend = await Backend.open()
  const model = await Llama.load(backend, path)
  const out = []
  for await (const token of model.generate(ids.map(Number))) out.push(token)
  console.log(out.join(' '))
  console.log(model.detokenize(out))
  model.dispose()
  await backend.close()
}
