// Speed of this package on one GGUF file, as one line of JSON: tokens per second of a prompt and of greedy generation. The same work as
// peers/run-node-llama-cpp.mjs does.
//   node run-cann-node.mjs MODEL.gguf THREADS PROMPT_TOKENS GENERATED_TOKENS
import { Backend } from '../index.mjs'
import { Llama, argmax } from '../examples/llama-graph.mjs'

const [path, threads, promptTokens, generatedTokens] = process.argv.slice(2).map((a, i) => (i ? Number(a) : a))
const backend = await Backend.open({ threads })
const model = await Llama.load(backend, path, { context: 1024 })
const prompt = Array.from({ length: promptTokens }, (_, i) => 300 + ((i * 37) % 40000))

/** Evaluates the prompt and then generates; resolves to the seconds of each part. */
async function once() {
  const start = performance.now()
  let logits = await model.eval(prompt, 0)
  const first = performance.now()
  for (let n = 0; n < generatedTokens; n++) logits = await model.eval([argmax(logits)], promptTokens + n)
  return { prompt: (first - start) / 1000, generate: (performance.now() - first) / 1000 }
}

await once()
let best = { prompt: Infinity, generate: Infinity }
for (let i = 0; i < 3; i++) {
  const run = await once()
  best = { prompt: Math.min(best.prompt, run.prompt), generate: Math.min(best.generate, run.generate) }
}
console.log(JSON.stringify({ prompt: promptTokens / best.prompt, generate: generatedTokens / best.generate }))
model.dispose()
await backend.close()
