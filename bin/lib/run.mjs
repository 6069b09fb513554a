import { StringDecoder } from 'node:string_decoder'
import { BACKEND_DETAILS, BACKEND_OPTIONS, count, openBackend } from './cann.mjs'
import { json } from './format.mjs'
import { UsageError } from './usage.mjs'
import { progress } from './progress.mjs'

export default {
  summary: 'generate from token ids with a llama model',
  usage: 'run FILE --prompt-ids 1,2,3 [--max-tokens N]',
  files: ['FILE'],
  details: `Takes the likeliest token at each step, through examples/llama-graph.mjs. The prompt is token ids: the package has no tokenizer
yet. Text comes back through the file's vocabulary. Figures go to stderr, text to stdout.

Options
  --prompt-ids IDS     token ids of the prompt, with commas
  --max-tokens N       stop after so many tokens (default 48)
  --context N          tokens that prompt and answer may have together, rounded up to 256s (default 2048)
${BACKEND_DETAILS}`,
  options: {
    ...BACKEND_OPTIONS,
    'prompt-ids': { type: 'string' },
    'max-tokens': { type: 'string', default: '48' },
    context: { type: 'string', default: '2048' },
  },
  async main({ values, files, signal, out }) {
    const prompt = ids(values['prompt-ids'])
    const maxTokens = count(values['max-tokens'], '--max-tokens')
    const context = count(values.context, '--context')
    const { Llama } = await import('../../examples/llama-graph.mjs')
    const backend = await openBackend(values)
    const bar = values.json || !process.stderr.isTTY ? null : progress()
    let model
    try {
      model = await Llama.load(backend, files[0], { context, signal, onProgress: bar?.update }).finally(() => bar?.end())
      const beyond = prompt.find((id) => id >= model.config.vocab)
      if (beyond !== undefined) throw new UsageError(`--prompt-ids: ${beyond} is not in the vocabulary of ${model.config.vocab} tokens`)
      const decoder = new StringDecoder('utf8')
      const generated = []
      let text = ''
      const start = performance.now()
      let first = start
      for await (const id of model.generate(prompt, { maxTokens, signal })) {
        if (generated.push(id) === 1) first = performance.now()
        const piece = decoder.write(model.tokenBytes(id))
        text += piece
        if (!values.json) process.stdout.write(piece)
      }
      const end = performance.now()
      const rest = decoder.end()
      text += rest
      const seconds = { prompt: (first - start) / 1000, generation: (end - first) / 1000 }
      // The first token comes with the prompt.
      const speed = { prompt: prompt.length / seconds.prompt, generation: generated.length > 1 ? (generated.length - 1) / seconds.generation : null }
      if (values.json) return void out(json({ file: files[0], device: backend.name, ids: generated, text, seconds, tokensPerSecond: speed }))
      out(rest)
      const after = speed.generation === null ? '' : `, ${generated.length} tokens at ${speed.generation.toFixed(1)}/s`
      process.stderr.write(`prompt of ${prompt.length} tokens at ${speed.prompt.toFixed(1)}/s${after} on ${backend.name}\n`)
    } finally {
      model?.dispose()
      await backend.close()
    }
  },
}

function ids(text) {
  if (!text) throw new UsageError('missing --prompt-ids')
  return text.split(/[\s,]+/).filter(Boolean).map((word) => {
    if (!/^\d{1,9}$/.test(word)) throw new UsageError(`--prompt-ids needs token ids, not '${word}'`)
    return Number(word)
  })
}
