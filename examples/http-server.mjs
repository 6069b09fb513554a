/**
 * A server that streams what a model generates, with node:http and nothing else. Each client has a sequence of its own over the same
 * weights; their steps take turns on the device. When a client goes away its run is aborted and its memory freed.
 *
 *   node examples/http-server.mjs [MODEL.gguf] [PORT]
 *   curl -N localhost:8080/generate -d '{ "ids": [1604, 3987, 46477, 24, 94, 727, 198], "maxTokens": 20 }'
 *   curl localhost:8080/status
 *
 * The answer is server-sent events: `data: { "id": 28, "text": "," }` for each token, then `event: done`, or `event: error` with
 * `code` and `message`. The package has no tokenizer, so a prompt is token ids.
 */
import { once } from 'node:events'
import { createServer } from 'node:http'
import { StringDecoder } from 'node:string_decoder'
import { Backend } from 'cann-node'
import { isMain } from './is-main.mjs'
import { Llama } from './llama-graph.mjs'
import { findModel } from './model.mjs'

const MAX_BODY_BYTES = 1 << 20

/** Resolves to { server, port, close } when the server listens. `clients` is how many may generate at once. */
export async function serve(backend, path, { port = 0, host = 'localhost', context = 512, clients = 8 } = {}) {
  const model = await Llama.load(backend, path, { context })
  const running = new Set()
  let tokens = 0

  async function generate(request, response) {
    const { ids, maxTokens } = await question(request, model.config.vocab)
    if (running.size >= clients) throw new Refusal(503, 'too many clients: try again later')
    // Comes after a complete answer as well, when there is nothing left to stop.
    const gone = new AbortController()
    response.on('close', () => gone.abort())
    running.add(gone)
    let sequence
    try {
      sequence = await model.fork()
      response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' })
      const decoder = new StringDecoder('utf8') // a character may be spread over tokens
      for await (const id of sequence.generate(ids, { maxTokens, signal: gone.signal })) {
        tokens++
        const event = JSON.stringify({ id, text: decoder.write(model.tokenBytes(id)) })
        // A client that reads slowly is waited for.
        if (!response.write(`data: ${event}\n\n`)) await once(response, 'drain', { signal: gone.signal })
      }
      response.end('event: done\ndata: {}\n\n')
    } catch (error) {
      if (gone.signal.aborted) return
      if (!response.headersSent) throw error
      response.end(`event: error\ndata: ${JSON.stringify({ code: error.code, message: error.message })}\n\n`)
    } finally {
      running.delete(gone)
      sequence?.dispose()
    }
  }

  const status = () => ({ running: running.size, tokens, bytes: backend.stats().buffers.bytes })

  const server = createServer(async (request, response) => {
    const json = (code, value) => response.writeHead(code, { 'content-type': 'application/json' }).end(`${JSON.stringify(value)}\n`)
    try {
      const { pathname } = new URL(request.url, 'http://localhost')
      if (request.method === 'POST' && pathname === '/generate') await generate(request, response)
      else if (request.method === 'GET' && pathname === '/status') json(200, status())
      else throw new Refusal(404, 'POST /generate or GET /status')
    } catch (error) {
      // Running out of device memory is no fault of the question: there may be room later.
      const code = error.status ?? (error.code === 'ERR_OUT_OF_MEMORY' ? 503 : 500)
      json(code, { code: error.code, message: error.message })
    }
  })
  server.listen(port, host)
  await once(server, 'listening')

  /** Stops every run, then listening. */
  async function close() {
    for (const gone of running) gone.abort()
    server.closeAllConnections()
    server.close()
    model.dispose()
  }
  return { server, port: server.address().port, close }
}

class Refusal extends Error {
  constructor(status, message) {
    super(message)
    this.status = status
  }
}

/** The body of a request, checked. */
async function question(request, vocab) {
  const chunks = []
  let bytes = 0
  // One that is too long is read to its end, which is when the client looks for the answer, but not kept.
  for await (const chunk of request) if ((bytes += chunk.length) <= MAX_BODY_BYTES) chunks.push(chunk)
  if (bytes > MAX_BODY_BYTES) throw new Refusal(413, `more than ${MAX_BODY_BYTES} bytes`)
  let body
  try {
    body = JSON.parse(Buffer.concat(chunks))
  } catch (error) {
    throw new Refusal(400, error.message)
  }
  const { ids, maxTokens = 48 } = body ?? {}
  const isId = (id) => Number.isInteger(id) && id >= 0 && id < vocab
  if (!Array.isArray(ids) || ids.length === 0 || !ids.every(isId)) throw new Refusal(400, `ids: token ids from 0 to ${vocab - 1}`)
  if (!Number.isInteger(maxTokens) || maxTokens < 1) throw new Refusal(400, 'maxTokens: a whole number from 1 on')
  return { ids, maxTokens }
}

if (isMain(import.meta.filename)) {
  const model = findModel(process.argv[2])
  const backend = await Backend.open()
  const { port, close } = await serve(backend, model.path, { port: Number(process.argv[3] ?? 8080) })
  console.log(`listening on port ${port}; ${backend.device.name} computes; Ctrl-C ends`)
  console.log(`curl -N localhost:${port}/generate -d '{ "ids": ${JSON.stringify(model.prompt)}, "maxTokens": 20 }'`)
  process.on('SIGINT', async () => {
    await close()
    await backend.close()
    model.dispose()
    process.exit()
  })
}
