'use strict'

// One child process as its parent sees it: calls that wait for an answer, and the objects that live there.

const { CannError } = require('../errors.js')
const { start } = require('./transport.js')
const { unpackError } = require('./wire.js')

const HINT = 'the next listDevices(), readGguf() or Backend.open() starts another process; open the backend again'

class Session {
  /** What the objects of this child have in common with those of the children after it. */
  home
  #transport
  #calls = new Map()
  #lastId = 0
  /** How it ended; undefined while it lives. */
  #end
  #closed
  #onExit
  #onLog
  #records = 0
  #graphs = new WeakMap()
  #forgotten = new FinalizationRegistry((id) => this.post('release', undefined, [id]))

  /** `onExit(end)` is called once; `onLog(record)` for each record. */
  constructor(home, options, onExit, onLog) {
    this.home = home
    this.#onLog = onLog
    this.ready = this.#wait(0, 'start')
    this.#onExit = onExit
    // Each in a turn of its own, as the addon's: what follows from one answer comes before the next, which may have arrived with it.
    const message = (data) => setImmediate(() => this.#receive(data))
    this.#transport = start(options, message, (end) => setImmediate(() => this.#exit(end)))
  }

  get alive() {
    return this.#end === undefined
  }

  get pid() {
    return this.#transport.pid
  }

  /** As a crash would end it; what is called from now on is for the next child. */
  kill() {
    this.#transport.kill()
    this.#exit({ code: null, signal: 'SIGKILL' })
  }

  /** Finishes what was submitted, closes everything and ends the child, which may take `exitMs` for the last step. */
  async close(exitMs) {
    if (!this.alive) return
    const closed = new Promise((resolve) => (this.#closed = { resolve, exitMs }))
    this.#transport.ref()
    this.post('end')
    await closed
  }

  newId() {
    return ++this.#lastId
  }

  /** Bytes that may be sent when `data` is looked at later, or its memory is larger. */
  bytes(data) {
    return this.#transport.copiesViews || data.byteLength === data.buffer.byteLength ? data : data.slice()
  }

  /** Asks the child to do something. `part` and `progress` are called with what comes before the answer. */
  async call(name, on, args, { as, part, progress } = {}) {
    if (!this.alive) throw on === undefined ? this.#lost(name) : this.gone()
    const id = this.newId()
    const message = [id, name, this.#place(on), this.#place(args), as]
    const answer = this.#wait(id, name, part, progress)
    try {
      this.#transport.send(message)
    } catch (error) {
      this.#forget(id)
      throw error
    }
    return answer
  }

  /** As call(), when nobody waits for the outcome. What a child that has ended should do is done. */
  post(name, on, args = [], as = undefined) {
    if (this.alive) this.#transport.send([0, name, this.#place(on), this.#place(args), as])
  }

  /** Tells the child when nobody here can reach the object any more. */
  watch(remote) {
    this.#forgotten.register(remote, remote.id)
  }

  /** The child's copy of a graph, up to date. */
  graph(graph, steps, RemoteGraph) {
    let copy = this.#graphs.get(graph)
    if (copy === undefined) this.#graphs.set(graph, (copy = new RemoteGraph(this, this.newId())))
    if (copy.steps < steps.length || copy.steps === 0) {
      this.post('graph', undefined, [steps.slice(copy.steps)], copy.id)
      copy.steps = steps.length
    }
    return copy
  }

  /** Why an object of a child that has ended cannot be used. */
  gone() {
    return new CannError('ERR_DISPOSED', `it was in a process that has ended (${describe(this.#end)})`, { hint: HINT })
  }

  #exit(end) {
    if (!this.alive) return
    this.#end = end
    const calls = [...this.#calls.values()]
    this.#calls.clear()
    this.#transport.unref()
    this.#closed?.resolve()
    this.#onExit(end)
    for (const { reject, name } of calls) reject(this.#lost(name))
  }

  #lost(name) {
    const reason = describe(this.#end)
    const { error: cause } = this.#end
    return new CannError('ERR_DEVICE_LOST', `the host process ended (${reason}) before '${name}' was done`, { reason, hint: HINT }, cause && { cause })
  }

  /** An argument as it is sent. */
  #place(value) {
    if (Array.isArray(value)) return value.map((item) => this.#place(item))
    if (typeof value?.place !== 'function') return value
    if (value.session !== this && value.session !== undefined) throw value.session.gone()
    return value.place(this)
  }

  #wait(id, name, part, progress) {
    const answer = new Promise((resolve, reject) => {
      this.#calls.set(id, { resolve, reject, name, part, progress })
    })
    // Only what somebody waits for keeps this process.
    if (this.#calls.size === 1) this.#transport?.ref()
    return answer
  }

  #receive([id, kind, value]) {
    if (!this.alive) return
    if (kind === 'log') return this.#record(value)
    if (kind === 'ended') return this.#finish()
    const call = this.#calls.get(id)
    if (call === undefined) return
    if (kind === 'part') {
      call.part(value)
      this.post('seen', undefined, [id])
      return
    }
    if (kind === 'progress') return call.progress(value)
    this.#forget(id)
    if (kind === 'error') call.reject(unpackError(value))
    else call.resolve(value)
  }

  #forget(id) {
    this.#calls.delete(id)
    if (this.#calls.size === 0 && this.#closed === undefined) this.#transport.unref()
  }

  #finish() {
    this.#transport.end()
    const timer = setTimeout(() => this.#transport.kill(), this.#closed.exitMs)
    const { resolve } = this.#closed
    this.#closed.resolve = () => {
      clearTimeout(timer)
      resolve()
    }
  }

  #record(record) {
    this.#records += 1
    if (this.#records % 64 === 0) this.post('logged', undefined, [64])
    this.#onLog(record)
  }
}

function describe({ code, signal, error }) {
  if (error !== undefined) return error.message
  return signal === null ? `exit code ${code}` : `signal ${signal}`
}

module.exports = { Session, describe }
