// A real model end to end, through examples/llama-graph.mjs: what it says must be what others computed
// (__test__/golden/smollm2/README.md), and its other quantisations must be as close to their own weights.

import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'

import { Backend } from './helpers/api.mjs'
import { Llama, argmax } from '../examples/llama-graph.mjs'
import { localModel } from '../scripts/model.mjs'
import { readGguf } from '../tools/gguf.mjs'
import { logprobs, referenceLogprobs } from '../tools/reference-llama.mjs'
import { requant } from '../tools/requant.mjs'

const fixture = (name) => JSON.parse(readFileSync(new URL(`golden/smollm2/${name}`, import.meta.url), 'utf8')).cases
const completions = fixture('completions.json')
const tops = fixture('logits.json')
const END = 2

const path = await localModel()
if (!path) console.log('skipped: no model (node scripts/model.mjs fetches it)')

const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length
const rows = (all, vocab) => Array.from({ length: all.length / vocab }, (_, t) => all.subarray(t * vocab, (t + 1) * vocab))

describe('SmolLM2-135M-Instruct', { skip: !path, timeout: 1_800_000 }, () => {
  let backend
  const folder = path && mkdtempSync(join(tmpdir(), 'cann-node-smollm2-'))

  before(async () => {
    backend = await Backend.open()
  })
  after(async () => {
    await backend?.close()
    if (folder) rmSync(folder, { recursive: true, force: true })
  })

  /** Loads a file, hands the model over, and frees it. */
  async function withModel(file, use) {
    const model = await Llama.load(backend, file, { context: 256 })
    try {
      return await use(model)
    } finally {
      model.dispose()
    }
  }

  /** Log-probabilities of each generated token of a completion with the reference's tokens before it, and the likeliest ids. */
  async function forced(model, { prompt_ids, ids }) {
    const all = await model.eval([...prompt_ids, ...ids.slice(0, -1)], 0, { all: true })
    const steps = rows(all, model.config.vocab).slice(prompt_ids.length - 1)
    return ids.map((id, i) => ({ logprob: logprobs(steps[i])[id], best: argmax(steps[i]) }))
  }

  /** Mean absolute difference from the exact log-probabilities, over all completions. */
  async function distance(model) {
    const differences = []
    for (const one of completions) {
      const steps = await forced(model, one)
      steps.forEach(({ logprob }, i) => differences.push(Math.abs(logprob - one.exact_logprobs[i])))
    }
    return mean(differences)
  }

  test('log-probabilities are as close to the exact ones as the reference engine comes', async (t) => {
    const engine = mean(completions.flatMap((c) => c.logprobs.map((p, i) => Math.abs(p - c.exact_logprobs[i]))))
    const ours = await withModel(path, distance)
    t.diagnostic(`mean difference ${ours.toFixed(5)}, the engine's ${engine.toFixed(5)}`)
    assert.ok(ours <= 1.1 * engine, `${ours} is more than 1.1 × ${engine}`)
  })

  test('greedy generation gives the same tokens', async (t) => {
    const different = []
    await withModel(path, async (model) => {
      for (const { prompt, prompt_ids, ids, stable_prefix, exact_margins } of completions) {
        const got = []
        for await (const id of model.generate(prompt_ids, { maxTokens: stable_prefix })) got.push(id)
        const at = ids.slice(0, stable_prefix).findIndex((id, i) => id !== got[i])
        if (at < 0) continue
        different.push(prompt)
        t.diagnostic(`${JSON.stringify(prompt)} differs at step ${at}, margin ${exact_margins[at]}`)
        assert.ok(exact_margins[at] < 0.3, `step ${at} of ${JSON.stringify(prompt)} is no near tie`)
      }
    })
    assert.ok(different.length <= 1, `${different.length} of ${completions.length} differ`)
  })

  test('decoding token by token gives the logits of one pass', async () => {
    const ids = completions[0].prompt_ids
    await withModel(path, async (model) => {
      const once = logprobs(await model.eval(ids, 0))
      let last
      for (let i = 0; i < ids.length; i++) last = await model.eval([ids[i]], i)
      const stepped = logprobs(last)
      const best = argmax(once)
      assert.equal(argmax(stepped), best)
      assert.ok(Math.abs(once[best] - stepped[best]) < 0.1, `${once[best]} and ${stepped[best]}`)
    })
  })

  test('the ten likeliest next tokens are those of the exact computation', async (t) => {
    const differences = []
    const engine = []
    await withModel(path, async (model) => {
      for (const { prompt, prompt_ids, exact_top10, engine_top10, exact_logprob_of_engine_top10 } of tops) {
        const ours = logprobs(await model.eval(prompt_ids, 0))
        for (const { id, logprob } of exact_top10) differences.push(Math.abs(ours[id] - logprob))
        engine_top10.forEach(({ logprob }, i) => engine.push(Math.abs(logprob - exact_logprob_of_engine_top10[i])))
        assert.equal(argmax(ours), exact_top10[0].id, prompt)
      }
    })
    t.diagnostic(`mean difference ${mean(differences).toFixed(5)}, the engine's ${mean(engine).toFixed(5)}`)
    assert.ok(mean(differences) <= 1.1 * mean(engine))
  })

  test('text comes back through the vocabulary', async () => {
    await withModel(path, (model) => {
      for (const { ids, text } of completions) assert.equal(model.detokenize(ids.filter((id) => id !== END)), text)
    })
  })

  test('with f16 weights the difference is small', async (t) => {
    const file = join(folder, 'f16.gguf')
    requant(path, file, 'f16')
    const ours = await withModel(file, distance)
    t.diagnostic(`mean difference ${ours.toFixed(5)}`)
    assert.ok(ours < 0.02, `${ours}`)
  })

  // The exact log-probabilities above are the q4_1 file's; other weights are compared with themselves, dequantised.
  test('q8_0 and q4_0 come as close to their own weights as q4_1 does', async (t) => {
    const { prompt_ids, ids } = completions[0]
    const tokens = [...prompt_ids, ...ids.slice(0, 9)]
    const own = async (file) => {
      const expected = referenceLogprobs(readGguf(file), tokens)
      return withModel(file, async (model) => {
        const got = rows(await model.eval(tokens, 0, { all: true }), model.config.vocab).map(logprobs)
        return mean(
          expected.flatMap((exact, i) => {
            const ten = [...exact.keys()].sort((a, b) => exact[b] - exact[a]).slice(0, 10)
            return ten.map((id) => Math.abs(got[i][id] - exact[id]))
          }),
        )
      })
    }
    const distances = { q4_1: await own(path) }
    for (const type of ['q8_0', 'q4_0']) {
      const file = join(folder, `${type}.gguf`)
      requant(path, file, type)
      distances[type] = await own(file)
    }
    t.diagnostic(Object.entries(distances).map(([type, d]) => `${type} ${d.toFixed(5)}`).join(', '))
    // Each type has rounding errors of its own, so equal quality is equal up to the spread of 160 samples.
    for (const type of ['q8_0', 'q4_0']) assert.ok(distances[type] <= 1.25 * distances.q4_1, `${type}: ${distances[type]}`)
  })
})
