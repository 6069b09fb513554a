'use strict'

// The package's API over a child process, which is started again after it ended.

const { existsSync } = require('node:fs')
const { resolve } = require('node:path')
const { setTimeout: sleep } = require('node:timers/promises')
const { inspect } = require('node:util')

const { Backend: Base, driverReport, listDevices, open } = require('../backend.js')
const { DeviceBuffer, HostBuffer } = require('../buffers.js')
const check = require('../check.js')
const { CannError, disposed, invalid } = require('../errors.js')
const { Event } = require('../event.js')
const { Graph, GraphTensor } = require('../graph.js')
const { logOf } = require('../log.js')
const { Plan } = require('../plan.js')
const { Tensor } = require('../tensor.js')
const { Weights, readGguf } = require('../weights.js')
const { bindingOver } = require('./remote.js')
const { Session, describe } = require('./session.js')

/** A child that lived this long did not fail at its start. */
const STEADY_MS = 5000
/** The wait before another start after one that failed; doubled each time. */
const FIRST_WAIT_MS = 250
const MOST_WAIT_MS = 10_000
/** How long a child that has closed everything may take to exit. */
const EXIT_MS = 5000

/** The children of one connection, one after another. */
class Home {
  #options
  #session
  #starting
  /** Starts that failed in a row. */
  #failures = 0
  #closing
  #stop = new AbortController()
  #listeners = new Set()
  #log = {}

  constructor(options) {
    this.#options = options
    this.binding = bindingOver(() => this.session())
  }

  /** A path as the child has to be told it. */
  path(path) {
    return resolve(path)
  }

  get pid() {
    return this.#session?.alive ? this.#session.pid : undefined
  }

  /** The child that lives, or else the next one. */
  async session() {
    if (this.#closing === undefined && !this.#session?.alive) {
      this.#starting ??= this.#start().finally(() => (this.#starting = undefined))
      await this.#starting
    }
    const session = this.#session
    await session?.ready
    // Also what began while the child started.
    if (this.#closing !== undefined) throw disposed('the connection')
    return session
  }

  async #start() {
    if (this.#failures > 0) await this.#wait(Math.min(FIRST_WAIT_MS * 2 ** (this.#failures - 1), MOST_WAIT_MS))
    const began = performance.now()
    const onEnd = (end) => this.#ended(session, end, performance.now() - began)
    const session = new Session(this, this.#options, onEnd, (record) => this.#log.listener?.(record))
    this.#session = session
    if (this.#log.level !== undefined) session.post('log', undefined, [this.#log.level])
    await session.ready
  }

  async #wait(ms) {
    try {
      await sleep(ms, undefined, { signal: this.#stop.signal })
    } catch {
      throw disposed('the connection')
    }
  }

  #ended(session, end, lived) {
    this.#failures = lived < STEADY_MS ? this.#failures + 1 : 0
    if (this.#closing !== undefined) return
    const { code, signal } = end
    for (const listener of [...this.#listeners]) {
      try {
        listener({ pid: session.pid, code, signal, reason: describe(end) })
      } catch (error) {
        queueMicrotask(() => {
          throw error
        })
      }
    }
  }

  setLogListener(level, listener) {
    this.#log = { level, listener }
    if (this.#session?.alive) this.#session.post('log', undefined, [level])
  }

  onExit(listener) {
    check.fn(listener, 'listener')
    // Its own identity: a listener may be given twice.
    const entry = (end) => listener(end)
    this.#listeners.add(entry)
    return () => void this.#listeners.delete(entry)
  }

  close() {
    return (this.#closing ??= this.#close())
  }

  async #close() {
    this.#stop.abort()
    await this.#session?.close(EXIT_MS)
  }

  kill() {
    if (this.#session?.alive) this.#session.kill()
  }
}

const text = (value, name) => value === undefined || check.string(value, name)

/** Starts a child process and gives the package's API over it. */
async function connect(options) {
  const { env, execArgv, cwd, serviceName, utilityProcess } = check.options(options, ['env', 'execArgv', 'cwd', 'serviceName', 'utilityProcess'])
  if (env !== undefined) {
    check.object(env, 'options.env')
    for (const [name, value] of Object.entries(env)) text(value, `options.env.${name}`)
  }
  if (execArgv !== undefined) check.strings(execArgv, 'options.execArgv')
  text(cwd, 'options.cwd')
  // The system would say that the program to start is not there.
  if (cwd !== undefined && !existsSync(cwd)) throw invalid('folder that exists', 'options.cwd', cwd)
  text(serviceName, 'options.serviceName')
  if (utilityProcess !== undefined) check.fn(utilityProcess?.fork, 'options.utilityProcess.fork')

  const home = new Home({ env, execArgv, cwd, serviceName, utilityProcess })
  await home.session()
  const binding = () => home.binding
  const close = () => home.close()
  // Errors of closing are for those who await close().
  const dispose = () => void close().catch(() => {})
  class Backend extends Base {
    static open(options) {
      return open(Backend, binding, options)
    }
  }
  return {
    Backend,
    CannError,
    DeviceBuffer,
    Event,
    Graph,
    GraphTensor,
    HostBuffer,
    Plan,
    Tensor,
    Weights,
    driverReport: () => driverReport(binding),
    listDevices: () => listDevices(binding),
    onLog: logOf((level, listener) => home.setLogListener(level, listener)),
    readGguf: (path) => readGguf(binding, path),
    onExit: (listener) => home.onExit(listener),
    get pid() {
      return home.pid
    },
    kill: () => home.kill(),
    close,
    dispose,
    [Symbol.dispose]: dispose,
    [Symbol.asyncDispose]: close,
    [inspect.custom]: () => `cann-node host ${inspect({ pid: home.pid })}`,
  }
}

module.exports = { connect }
