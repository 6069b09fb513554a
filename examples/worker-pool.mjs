/**
 * A pool of worker threads, each with a backend and a model of its own: jobs are dealt out as workers become free, and a worker that
 * ends, for whatever reason, is replaced and its job given to another.
 *
 * A backend belongs to the thread that opened it. Workers on one embedded device share its threads and take the memory of the weights
 * each; with several NPUs they take turns in choosing one. Terminating a worker frees all that it had on the device.
 *
 *   node examples/worker-pool.mjs [MODEL.gguf]
 */
import { Worker, isMainThread, parentPort, workerData } from 'node:worker_threads'
import { Backend, listDevices } from 'cann-node'
import { isMain } from './is-main.mjs'
import { Llama } from './llama-graph.mjs'
import { findModel } from './model.mjs'

/** How often a job may be given to a worker that then ends. */
const TRIES = 3

export class Pool {
  #path
  #workers
  #waiting = []
  #closed = false

  constructor(size, path) {
    this.#path = path
    this.#workers = Array.from({ length: size }, (_, number) => this.#start(number))
  }

  /** Resolves to { ids, worker }: what the model goes on with, and the number of the worker that found it. */
  run(prompt, maxTokens) {
    if (this.#closed) return Promise.reject(new Error('the pool is closed'))
    return new Promise((resolve, reject) => {
      this.#waiting.push({ prompt, maxTokens, resolve, reject, tries: 0 })
      this.#deal()
    })
  }

  /** Ends a worker at once, as one does that takes too long. Resolves to whether it had a job. */
  async terminate(number) {
    const { worker, job } = this.#workers[number]
    await worker.terminate()
    return job !== null
  }

  /** Ends all workers; jobs that are not done reject. */
  async close() {
    this.#closed = true
    await Promise.all(this.#workers.map(({ worker }) => worker.terminate()))
    for (const { reject } of this.#waiting.splice(0)) reject(new Error('the pool is closed'))
  }

  #start(number) {
    const worker = new Worker(new URL(import.meta.url), { workerData: { pool: import.meta.url, number, path: this.#path } })
    const place = { worker, job: null, ready: false, error: null }
    worker.on('message', ({ ids, error }) => {
      const cause = error && Object.assign(new Error(error.message), { code: error.code })
      if (place.ready) {
        const { resolve, reject } = place.job
        place.job = null
        if (cause) reject(cause)
        else resolve({ ids, worker: number })
      } else if (cause) {
        // One that cannot even start, for want of a model or of memory, would not start the next time either.
        this.#fail(cause)
        return
      }
      place.ready = true
      this.#deal()
    })
    worker.on('error', (error) => (place.error = error))
    worker.on('exit', () => this.#ended(number, place))
    return place
  }

  #deal() {
    for (const place of this.#workers) {
      if (!place.ready || place.job || this.#waiting.length === 0) continue
      place.job = this.#waiting.shift()
      place.job.tries++
      place.worker.postMessage({ prompt: place.job.prompt, maxTokens: place.job.maxTokens })
    }
  }

  #ended(number, { job, ready, error }) {
    if (job && job.tries < TRIES) this.#waiting.unshift(job)
    else job?.reject(error ?? new Error(`a worker ended ${TRIES} times at this job`))
    if (this.#closed) return
    if (!ready && error) this.#fail(error)
    else this.#workers[number] = this.#start(number)
  }

  #fail(error) {
    for (const { reject } of this.#waiting.splice(0)) reject(error)
    this.close()
  }
}

/** A worker: one message when it is ready or cannot be, then one for each job. */
async function work({ number, path }) {
  const answer = async (act) => {
    try {
      parentPort.postMessage({ ids: await act() })
    } catch ({ message, code }) {
      parentPort.postMessage({ error: { message, code } })
    }
  }
  let model
  await answer(async () => {
    const devices = await listDevices()
    const alike = devices.filter((device) => device.driver === devices[0].driver)
    const backend = await Backend.open({ device: alike[number % alike.length].name })
    model = await Llama.load(backend, path, { context: 512 })
  })
  parentPort.on('message', ({ prompt, maxTokens }) =>
    answer(async () => {
      const ids = []
      for await (const id of model.generate(prompt, { maxTokens })) ids.push(id)
      return ids
    }),
  )
}

if (workerData?.pool === import.meta.url) await work(workerData)

if (isMainThread && isMain(import.meta.filename)) {
  const model = findModel(process.argv[2])
  const pool = new Pool(3, model.path)
  let done = 0
  const jobs = Array.from({ length: 9 }, async (_, job) => {
    const { ids, worker } = await pool.run(model.prompt, 8 + job)
    console.log(`job ${job}, worker ${worker}: ${ids.join(' ')}`)
    // In the middle of it all a worker is lost.
    if (++done === 2) console.log(`worker 0 terminated ${(await pool.terminate(0)) ? 'at its job, which another takes over' : 'between jobs'}`)
  })
  await Promise.all(jobs)
  await pool.close()
  model.dispose()
}
