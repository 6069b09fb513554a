// Speed of node-llama-cpp on one GGUF file, as one line of JSON: tokens per second of a prompt and of greedy generation.
//   node run-node-llama-cpp.mjs MODEL.gguf THREADS PROMPT_TOKENS GENERATED_TOKENS
import { getLlama } from 'node-llama-cpp'

const [path, threads, promptTokens, generatedTokens] = process.argv.slice(2).map((a, i) => (i ? Number(a) : a))
const llama = await getLlama({ gpu: false, build: 'never', logLevel: 'error' })
const model = await llama.loadModel({ modelPath: path, gpuLayers: 0 })
const context = await model.createContext({ contextSize: 1024, batchSize: 512, threads })
const sequence = context.getSequence()
const prompt = Array.from({ length: promptTokens }, (_, i) => 300 + ((i * 37) % 40000))

/** Evaluates the prompt and then generates; resolves to the seconds of each part. */
async function once() {
  await sequence.clearHistory()
  const start = performance.now()
  let first = 0
  let count = 0
  for await (const _ of sequence.evaluate(prompt, { temperature: 0, yieldEogToken: true })) {
    if (count === 0) first = performance.now()
    if (++count > generatedTokens) break
  }
  return { prompt: (first - start) / 1000, generate: (performance.now() - first) / 1000 }
}

await once()
let best = { prompt: Infinity, generate: Infinity }
for (let i = 0; i < 3; i++) {
  const run = await once()
  best = { prompt: Math.min(best.prompt, run.prompt), generate: Math.min(best.generate, run.generate) }
}
console.log(JSON.stringify({ prompt: promptTokens / best.prompt, generate: generatedTokens / best.generate }))
process.exit(0)
