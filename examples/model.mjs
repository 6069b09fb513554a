/** The model of the examples that need one: the file that is named, else a tiny one with random weights, whose words mean nothing. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { tinyTokens, writeTinyLlama } from '../tools/tiny-llama.mjs'

/** { path, prompt, dispose }: a GGUF file of the llama architecture, token ids to begin with, and what removes the file if it was made here. */
export function findModel(path = process.env.CANN_NODE_MODEL) {
  // 'def fibonacci(n):' and a new line in SmolLM2's vocabulary; in another they are other words.
  if (path) return { path, prompt: [1604, 3987, 46477, 24, 94, 727, 198], dispose() {} }
  const folder = mkdtempSync(join(tmpdir(), 'cann-node-example-'))
  const tiny = join(folder, 'tiny.gguf')
  writeTinyLlama(tiny)
  return { path: tiny, prompt: tinyTokens('Hello'), dispose: () => rmSync(folder, { recursive: true, force: true }) }
}
