// The examples do what their heads say: each as a process, as a reader runs it, and what matters about it through what it exports.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { request } from 'node:http'
import { join } from 'node:path'
import { before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import { serve } from '../examples/http-server.mjs'
import { FILTERS, filter, formatImage, parseImage } from '../examples/image-filter.mjs'
import { Llama } from '../examples/llama-graph.mjs'
import { Spirals, spirals } from '../examples/mlp-spirals.mjs'
import { Pool } from '../examples/worker-pool.mjs'
import { tinyTokens, writeTinyLlama } from '../tools/tiny-llama.mjs'
import { root, withBackend, withFolder } from './helpers/index.mjs'

const at = withFolder()
const use = withBackend()
let tiny

before(() => {
  tiny = join(at.folder, 'tiny.gguf')
  writeTinyLlama(tiny)
})

/** Runs an example to its end, or until `onOutput(text, child)` ends it. */
function example(name, args = [], { env = {}, onOutput } = {}) {
  const child = spawn(process.execPath, [join(root, 'examples', name), ...args], { env: { ...process.env, CANN_NODE_MODEL: '', ...env } })
  let [stdout, stderr] = ['', '']
  child.stdout.on('data', (data) => {
    stdout += data
    onOutput?.(stdout, child)
  })
  child.stderr.on('data', (data) => (stderr += data))
  return new Promise((resolve) => child.on('close', (code, signal) => resolve({ code, signal, stdout, stderr })))
}

/** What a model of its own goes on with: what any other way to run it must give. */
async function expected(prompt, maxTokens) {
  const model = await Llama.load(use.backend, tiny, { context: 512 })
  const ids = []
  for await (const id of model.generate(prompt, { maxTokens })) ids.push(id)
  model.dispose()
  return ids
}

test('llama-graph', async () => {
  const { code, stdout, stderr } = await example('llama-graph.mjs', [tiny, ...tinyTokens('Hello').map(String)])
  assert.equal(code, 0, stderr)
  assert.deepEqual(stdout.split('\n')[0].split(' ').map(Number), await expected(tinyTokens('Hello'), 48))
})

describe('mlp-spirals', () => {
  test('the trained network classifies points it never saw', async () => {
    const model = await Spirals.load(use.backend, 128)
    const { points, labels } = spirals(1000, model.turns)
    const found = await model.classify(points)
    assert.equal(found.length, labels.length)
    const right = found.filter((spiral, i) => spiral === labels[i]).length
    assert.ok(right / labels.length > 0.99, `${right} of ${labels.length}`)
    // Turned the other way round the picture is another one: the accuracy above is no accident.
    const mirrored = await model.classify(points.map((x, i) => (i % 2 ? -x : x)))
    assert.ok(mirrored.filter((spiral, i) => spiral === labels[i]).length / labels.length < 0.8)
    model.dispose()
  })

  test('as a program', async () => {
    const { code, stdout, stderr } = await example('mlp-spirals.mjs')
    assert.equal(code, 0, stderr)
    assert.match(stdout, /^99\d of 1000 points right, on (HOST|CANN)0$/m)
  })
})

describe('image-filter', () => {
  /** The same in plain JavaScript. */
  function plain({ width, height, channels, data }, kernels) {
    const within = (i, n) => Math.min(Math.max(i, 0), n - 1)
    return data.map((_, i) => {
      const channel = i % channels
      const [x, y] = [Math.floor(i / channels) % width, Math.floor(i / channels / width)]
      const sums = kernels.map((kernel) => {
        let sum = 0
        for (let k = 0; k < 9; k++) {
          const [column, row] = [within(x + (k % 3) - 1, width), within(y + Math.floor(k / 3) - 1, height)]
          sum += kernel[k] * data[(row * width + column) * channels + channel]
        }
        return sum
      })
      return Math.round(Math.min(Math.max(sums.length > 1 ? Math.hypot(...sums) : sums[0], 0), 255))
    })
  }

  const image = (width, height, channels) => {
    const data = Buffer.from(Array.from({ length: width * height * channels }, (_, i) => (i * i * 7 + i * 31) % 256))
    return { width, height, channels, data }
  }

  test('filters are convolutions, whatever the size', async () => {
    // One band, several, one that overlaps the last, less than a window.
    for (const [width, height, channels] of [[40, 30, 1], [17, 150, 3], [64, 128, 1], [1, 2, 3]]) {
      for (const [name, kernels] of Object.entries(FILTERS)) {
        const given = image(width, height, channels)
        const { data } = await filter(use.backend, given, kernels)
        const right = plain(given, kernels)
        // A value half way between two may be rounded either way.
        const worst = data.reduce((worst, value, i) => Math.max(worst, Math.abs(value - right[i])), 0)
        assert.ok(worst <= 1, `${name} of ${width} x ${height} x ${channels}: off by ${worst}`)
        assert.ok(data.filter((value, i) => value !== right[i]).length <= data.length / 100)
      }
    }
  })

  test('files', async () => {
    for (const [channels, ending] of [[1, 'pgm'], [3, 'ppm']]) {
      const given = image(30, 20, channels)
      const [from, to] = [join(at.folder, `in.${ending}`), join(at.folder, `out.${ending}`)]
      writeFileSync(from, formatImage(given))
      const { code, stderr } = await example('image-filter.mjs', ['sharpen', from, to])
      assert.equal(code, 0, stderr)
      const result = parseImage(readFileSync(to))
      assert.deepEqual([result.width, result.height, result.channels], [30, 20, channels])
      assert.deepEqual([...result.data], [...plain(given, FILTERS.sharpen)])
    }
    const comment = Buffer.from('P5 # made by hand\n2\t1\n255\nab')
    assert.equal(parseImage(comment).data.toString(), 'ab')
    assert.throws(() => parseImage(Buffer.from('P5 2 2 255\nabc')), /cut short/)
    assert.throws(() => parseImage(Buffer.from(`P6${' '.repeat(4000)}`)), /not a binary/)
    assert.equal((await example('image-filter.mjs', ['swirl', 'a', 'b'])).code, 2)
  })

  test('without a file', async () => {
    const { code, stdout, stderr } = await example('image-filter.mjs')
    assert.equal(code, 0, stderr)
    for (const name of ['as it is', ...Object.keys(FILTERS)]) assert.match(stdout, new RegExp(`^${name}$`, 'm'))
  })
})

test('two-devices: two halves give what one device gives', async () => {
  const { code, stdout, stderr } = await example('two-devices.mjs', [], { env: { CANN_NODE_HOST_DEVICES: '2' } })
  assert.equal(code, 0, stderr)
  const times = [...stdout.matchAll(/batch \d left \w+ after +([\d.]+) ms, \w+ after +([\d.]+) ms/g)].map(([, left, right]) => [Number(left), Number(right)])
  assert.equal(times.length, 8)
  for (const [i, [left, right]] of times.entries()) {
    assert.ok(left <= right)
    if (i > 0) assert.ok(times[i - 1][0] <= left && times[i - 1][1] <= right, 'in order')
  }
  assert.match(stdout, /copies between the devices: 8 direct, 0 through host memory; largest difference to one device: 0$/m)
})

describe('worker-pool', { timeout: 120_000 }, () => {
  test('a worker that ends is replaced and its job done by another', async (t) => {
    const prompt = tinyTokens('Hello')
    const right = await expected(prompt, 300)
    const pool = new Pool(2, tiny)
    t.after(() => pool.close())
    // The worker that did the first job is free, so it has one as soon as there are more.
    const { worker: lost } = await pool.run(prompt, 1)
    const jobs = Array.from({ length: 6 }, (_, i) => pool.run(prompt, 300 - i))
    assert.equal(await pool.terminate(lost), true)
    const results = await Promise.all(jobs)
    for (const [i, { ids }] of results.entries()) assert.deepEqual(ids, right.slice(0, 300 - i))
    // The replacement works as well, once it is ready.
    const seen = new Set()
    while (seen.size < 2) for (const { worker } of await Promise.all([1, 2].map(() => pool.run(prompt, 20)))) seen.add(worker)
    await pool.close()
    await assert.rejects(pool.run(prompt, 1), /closed/)
  })

  test('a job that fails and a pool that cannot start reject', async (t) => {
    const pool = new Pool(1, tiny)
    t.after(() => pool.close())
    await assert.rejects(pool.run(Array(600).fill(1), 1), /the cache holds 512 tokens/)
    assert.equal((await pool.run([1], 2)).ids.length, 2)
    await assert.rejects(new Pool(2, join(at.folder, 'none.gguf')).run([1], 1), { code: 'ERR_IO' })
  })

  test('as a program', async () => {
    const { code, stdout, stderr } = await example('worker-pool.mjs')
    assert.equal(code, 0, stderr)
    assert.equal(stdout.match(/^job \d, worker \d: /gm).length, 9)
    assert.match(stdout, /^worker 0 terminated /m)
  })
})

describe('http-server', { timeout: 120_000 }, () => {
  /** Asks and reads events until the end, or until `until(events)` says to go away. */
  function ask(port, body, { until, path = '/generate', method = 'POST' } = {}) {
    return new Promise((resolve, reject) => {
      const asked = request({ port, path, method }, (response) => {
        let text = ''
        const events = () => [...text.matchAll(/^data: (.*)\n\n/gm)].map(([, json]) => JSON.parse(json))
        response.on('data', (data) => {
          text += data
          if (until?.(events())) asked.destroy()
        })
        response.on('error', () => {})
        response.on('close', () => resolve({ status: response.statusCode, text, events: events() }))
      })
      asked.on('error', reject)
      asked.end(typeof body === 'string' ? body : JSON.stringify(body))
    })
  }
  const ids = (events) => events.filter(({ id }) => id !== undefined).map(({ id }) => id)

  async function withServer(options, act) {
    const { port, close } = await serve(use.backend, tiny, options)
    try {
      await act({ port, status: async () => JSON.parse((await ask(port, '', { path: '/status', method: 'GET' })).text) })
    } finally {
      await close()
    }
  }

  test('several clients at once each get their own stream', () =>
    withServer({}, async ({ port, status }) => {
      const before = await status()
      const prompts = ['Hello', 'two', 'a third one'].map(tinyTokens)
      const answers = await Promise.all(prompts.map((prompt) => ask(port, { ids: prompt, maxTokens: 40 })))
      for (const [i, { status, text, events }] of answers.entries()) {
        assert.equal(status, 200)
        assert.deepEqual(ids(events), await expected(prompts[i], 40))
        assert.match(text, /event: done\ndata: {}\n\n$/)
      }
      await use.backend.synchronize()
      const after = await status()
      assert.deepEqual([after.running, after.tokens, after.bytes], [0, 120, before.bytes])
    }))

  test('a client that goes away stops its run and frees its memory; others go on', () =>
    withServer({}, async ({ port, status }) => {
      const before = await status()
      const prompt = tinyTokens('Hello')
      const other = ask(port, { ids: prompt, maxTokens: 120 })
      const { events } = await ask(port, { ids: prompt, maxTokens: 480 }, { until: (events) => events.length >= 3 })
      assert.ok(events.length >= 3 && events.length < 480)
      assert.deepEqual(ids((await other).events), await expected(prompt, 120))
      for (let i = 0; i < 100 && (await status()).running > 0; i++) await sleep(20)
      const stopped = await status()
      assert.equal(stopped.running, 0)
      assert.ok(stopped.tokens < 120 + 480, `${stopped.tokens} tokens`)
      await use.backend.synchronize()
      await sleep(100)
      const after = await status()
      assert.equal(after.tokens, stopped.tokens)
      assert.equal(after.bytes, before.bytes)
    }))

  test('what cannot be answered is said', () =>
    withServer({ clients: 1, context: 256 }, async ({ port }) => {
      const refused = async (status, body, options) => assert.equal((await ask(port, body, options)).status, status)
      await refused(404, '', { path: '/', method: 'GET' })
      for (const body of ['', '{', 'null', { ids: [] }, { ids: [-1] }, { ids: [9999] }, { ids: [1], maxTokens: 0 }]) await refused(400, body)
      await refused(413, ' '.repeat(2 << 20))
      const [first, second] = await Promise.all([1, 2].map(() => ask(port, { ids: [1], maxTokens: 100 })))
      assert.deepEqual([first.status, second.status].sort(), [200, 503])
      const { text } = await ask(port, { ids: Array(300).fill(1) })
      assert.match(text, /^event: error\ndata: {"message":"the cache holds 256 tokens"}\n\n$/)
    }))

  test('as a program', { skip: process.platform === 'win32' && 'no signals there' }, async () => {
    let answer
    const { code, stderr } = await example('http-server.mjs', [tiny, '0'], {
      onOutput(text, child) {
        const port = /listening on port (\d+)/.exec(text)?.[1]
        if (!port || answer) return
        answer = ask(port, { ids: [1], maxTokens: 5 }).finally(() => process.kill(child.pid, 'SIGINT'))
      },
    })
    assert.equal(code, 0, stderr)
    assert.equal(ids((await answer).events).length, 5)
  })
})
