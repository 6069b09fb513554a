// `npm run demo` from a fresh clone: builds the addon, lists the devices, gets a real model, uploads its weights with a progress bar, and
// prints what the model makes of a few prompts. Needs Node, Rust and, for the model, one of the sources in model.mjs.

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { StringDecoder } from 'node:string_decoder'

import { commandLine } from './command-line.mjs'
import { fetchModel } from './model.mjs'
import { build, checkNode } from './setup.mjs'

commandLine()

// Token ids, because the package has no tokenizer yet.
const PROMPTS = [
  { text: 'def fibonacci(n):\n', ids: [1604, 3987, 46477, 24, 94, 727, 198] },
  // The chat template around the question is part of the ids.
  {
    text: 'What is the capital of Germany?',
    ids: [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182, 2, 198, 1, 4093, 198, 1780, 314, 260, 3575, 282, 4521, 47, 2, 198, 1, 520, 9531, 198],
  },
  {
    text: 'Explain gravity in one sentence.',
    ids: [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182, 2, 198, 1, 4093, 198, 36971, 9354, 281, 582, 6330, 30, 2, 198, 1, 520, 9531, 198],
  },
]
const MAX_TOKENS = 48

checkNode()
console.log('── the addon')
build()

const { Backend, listDevices } = await import('../index.mjs')
const { Llama } = await import('../examples/llama-graph.mjs')
const { bytes, table } = await import('../bin/lib/format.mjs')
const { progress } = await import('../bin/lib/progress.mjs')

console.log('\n── devices')
const devices = await listDevices()
console.log(table(['NAME', 'DRIVER', 'FREE', 'DESCRIPTION'], devices.map((d) => [d.name, d.driver, bytes(d.memory.free), d.description]), ['FREE']))

console.log('\n── the model')
let path = await fetchModel()
let prompts = PROMPTS
let scrap
if (!path) {
  const { tinyTokens, writeTinyLlama } = await import('../tools/tiny-llama.mjs')
  scrap = mkdtempSync(join(tmpdir(), 'cann-node-demo-'))
  path = join(scrap, 'tiny.gguf')
  writeTinyLlama(path)
  prompts = [{ text: 'Hello', ids: tinyTokens('Hello') }]
  console.log('No source has the model: a tiny one with random weights stands in. What it generates means nothing.')
  console.log('Set CANN_NODE_MODEL to a GGUF file of SmolLM2-135M-Instruct for the real thing.')
}

const backend = await Backend.open()
let model
try {
  console.log(`\n── upload to ${backend.name}`)
  const bar = progress(process.stdout)
  const start = performance.now()
  model = await Llama.load(backend, path, { context: 512, onProgress: bar.update }).finally(() => bar.end())
  const seconds = (performance.now() - start) / 1000
  const size = model.weights.bytes
  console.log(`${model.weights.names.length} tensors, ${bytes(size)} in ${seconds.toFixed(2)} s (${bytes(size / seconds)}/s)`)

  for (const { text, ids } of prompts) {
    console.log(`\n── ${JSON.stringify(text)} (${ids.length} tokens)`)
    const decoder = new StringDecoder('utf8')
    let [first, count] = [0, 0]
    const begun = performance.now()
    for await (const id of model.generate(ids, { maxTokens: MAX_TOKENS })) {
      if (count++ === 0) first = performance.now()
      process.stdout.write(decoder.write(model.tokenBytes(id)))
    }
    const [prompt, rest] = [(first - begun) / 1000, (performance.now() - first) / 1000]
    console.log(decoder.end())
    // The first token comes with the prompt.
    console.log(`   prompt ${(ids.length / prompt).toFixed(0)} tokens/s (plan included), generation ${((count - 1) / rest).toFixed(1)} tokens/s`)
  }
} finally {
  model?.dispose()
  await backend.close()
  if (scrap) rmSync(scrap, { recursive: true, force: true })
}
