// @ts-check
// The model of the app, without a line of Electron: what main.mjs offers to the window, and what the tests drive under plain Node.
// The device's driver runs in a process of its own, so that a crash in it costs a reload and not the app.

import { connect } from 'cann-node/host'
// It ships with the package. It takes any `Backend`, this one's too.
import { Llama } from './node_modules/cann-node/examples/llama-graph.mjs'
import { Tokenizer } from './tokenizer.mjs'

const SYSTEM = 'You are a helpful assistant.'

/** @typedef {{ type: 'progress', done: number, total: number } | { type: 'text', text: string } | { type: 'lost', reason: string }} ModelEvent */

export class ModelSession {
  #host
  #emit
  #path
  #backend
  #model
  #tokenizer
  #running = new AbortController()
  /** Requests run one after another. */
  #last = Promise.resolve()

  /**
   * @param {(event: ModelEvent) => void} emit is told what happens while requests run
   * @param {import('cann-node/host').ConnectOptions} [options]
   */
  static async start(emit, options) {
    const session = new ModelSession()
    session.#emit = emit
    session.#host = await connect(options)
    session.#host.onExit(({ reason }) => {
      session.#model = session.#backend = undefined
      emit({ type: 'lost', reason })
    })
    return session
  }

  /** What the window may ask for, by name. Answers are plain data: errors keep their code and hint on the way to it. */
  handlers() {
    return {
      devices: () => answer(() => this.devices()),
      generate: (prompt, options) => answer(() => this.generate(prompt, options)),
      stop: () => answer(async () => this.stop()),
    }
  }

  async devices() {
    const devices = await this.#host.listDevices()
    return devices.map(({ name, description, memory }) => ({ name, description, memory }))
  }

  /** Uploads a model in place of the one there is. */
  load(path) {
    return this.#next(async (signal) => {
      await this.#unload()
      this.#path = undefined
      const loaded = await this.#load(path, signal)
      this.#path = path
      return loaded
    })
  }

  /** Answers a prompt; the text goes out piece by piece as events of type 'text'. A model that was lost is loaded again first. */
  generate(prompt, { maxTokens = 256 } = {}) {
    if (typeof prompt !== 'string' || prompt === '') throw new TypeError('the prompt is a text')
    return this.#next(async (signal) => {
      if (this.#path === undefined) throw new Error('no model is loaded')
      if (this.#model === undefined) await this.#load(this.#path, signal)
      const decoder = new TextDecoder()
      const ids = this.#tokenizer.encode(this.#tokenizer.has('<|im_start|>') ? chat(prompt) : prompt)
      const began = performance.now()
      let tokens = 0
      let stopped = false
      try {
        for await (const id of this.#model.generate(ids, { maxTokens, signal })) {
          tokens += 1
          // A character may be spread over several tokens.
          const text = decoder.decode(this.#model.tokenBytes(id), { stream: true })
          if (text) this.#emit({ type: 'text', text })
        }
      } catch (error) {
        if (!signal.aborted) throw error
        stopped = true
      }
      const rest = decoder.decode()
      if (rest) this.#emit({ type: 'text', text: rest })
      return { tokens, stopped, tokensPerSecond: (tokens * 1000) / (performance.now() - began) }
    })
  }

  /** Ends what runs, be it an upload or an answer. */
  stop() {
    this.#running.abort(new Error('stopped'))
  }

  async close() {
    this.stop()
    await this.#host.close()
  }

  async #load(path, signal) {
    const onProgress = ({ bytesDone, bytesTotal }) => this.#emit({ type: 'progress', done: bytesDone, total: bytesTotal })
    this.#backend = await this.#host.Backend.open()
    try {
      this.#model = await Llama.load(this.#backend, path, { signal, onProgress })
    } catch (error) {
      await this.#unload()
      throw error
    }
    const { metadata } = this.#model.weights
    this.#tokenizer = new Tokenizer(metadata)
    return { name: metadata['general.name'] ?? path, device: this.#backend.device.name }
  }

  async #unload() {
    this.#model?.dispose()
    await this.#backend?.close()
    this.#model = this.#backend = undefined
  }

  #next(work) {
    const result = this.#last.then(() => {
      this.#running = new AbortController()
      return work(this.#running.signal)
    })
    this.#last = result.catch(() => {})
    return result
  }
}

const chat = (prompt) =>
  `<|im_start|>system\n${SYSTEM}<|im_end|>\n<|im_start|>user\n${prompt}<|im_end|>\n<|im_start|>assistant\n`

async function answer(work) {
  try {
    return { value: await work() }
  } catch (error) {
    const { code, hint } = error
    return { error: { message: error.message, code, hint } }
  }
}
