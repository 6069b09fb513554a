'use strict'

const { abortable } = require('./abort.js')
const { bindingOf } = require('./binding.js')
const check = require('./check.js')
const { invalid, traced } = require('./errors.js')
const { allocate, checkTarget, fill, fillAtOnce, toBytes } = require('./data.js')
const { Handle, answer, backendOf, checkPeer, homeOf, nativeOf } = require('./handle.js')
const { Tensor } = require('./tensor.js')
const { AT_ONCE_BYTES, SLICE_BYTES, nextTurn } = require('./turns.js')

const NONE = Object.freeze({})

const list = (names) => (names.length ? names.map((name) => `'${name}'`).join(', ') : 'none')

const byName = (parts) => Object.fromEntries(parts.map(({ name, target }) => [name, target]))

function attached(filled, name, target) {
  if (!filled) throw invalid('memory that stays attached until the run is over', `options.into.${name}`, target)
}

/** Gives a run its large inputs, a slice in a turn of the event loop, then queues it: the promise of its output, in an array. */
async function handOver(run, large, signal) {
  try {
    for (const { name, bytes, nbytes } of large) {
      for (let at = 0; at < nbytes; at += SLICE_BYTES) {
        if (at > 0) await nextTurn()
        if (signal?.aborted) throw signal.reason
        if (bytes.byteLength !== nbytes) throw invalid('data that stays attached until the run is over', `inputs.${name}`, bytes)
        await run.inputPart(name, at, bytes.subarray(at, Math.min(at + SLICE_BYTES, nbytes)))
      }
      await nextTurn()
    }
    return [run.submit()]
  } catch (error) {
    run.abandon()
    throw error
  }
}

class Plan extends Handle {
  static shown = ['inputs', 'outputs', 'scratchBytes']
  #inputs
  #outputs
  /** What a run without options reads back. */
  #all
  /** A native run that was submitted: the next one. Thousands may be queued, and an object each is much for the garbage collector. */
  #spare
  /** The backend that parts of it may run on. */
  #fallback

  static over(plan, fallback) {
    plan.#fallback = fallback
    return plan
  }

  get scratchBytes() {
    return nativeOf(this).scratchBytes
  }

  get inputs() {
    return [...this.#inputPorts().keys()]
  }

  get outputs() {
    return [...this.#outputPorts().keys()]
  }

  #inputPorts() {
    const plan = nativeOf(this)
    return (this.#inputs ??= new Map(plan.inputs.map((name) => [name, plan.inputInfo(name)])))
  }

  #outputPorts() {
    const plan = nativeOf(this)
    return (this.#outputs ??= new Map(plan.outputs.map((name) => [name, plan.outputInfo(name)])))
  }

  // Thousands of runs may wait at a time, and the garbage collector carries all that belongs to one: no async function here.
  run(inputs = {}, options) {
    try {
      return this.#run(inputs, options)
    } catch (error) {
      return Promise.reject(error)
    }
  }

  #run(inputs, options) {
    check.object(inputs, 'inputs')
    const { signal, outputs, into = NONE, outputTo = NONE, trace = false } = check.options(options, [
      'signal',
      'outputs',
      'into',
      'outputTo',
      'trace',
    ])
    if (signal !== undefined) check.signal(signal)
    check.boolean(trace, 'options.trace')
    check.object(into, 'options.into')
    check.object(outputTo, 'options.outputTo')
    const targets = this.#targets(outputs, into, outputTo)
    if (signal?.aborted) throw signal.reason

    const plan = nativeOf(this)
    const spare = this.#spare
    this.#spare = undefined
    const run = plan.start(spare) ?? spare
    let large
    try {
      large = this.#giveInputs(run, inputs)
      run.outputs([...targets.keys()])
      for (const [name, tensor] of Object.entries(outputTo)) run.outputTo(name, nativeOf(tensor))
      if (trace) run.trace(true)
    } catch (error) {
      run.abandon()
      throw error
    }
    const { turns } = backendOf(this)
    const submit = (token) => {
      if (token !== undefined) run.cancel(token)
      const other = this.#fallback?.turns
      const handed = large.length
        ? turns.holdAfter(other, () => handOver(run, large, signal)).then(([result]) => result)
        : turns.callAfter(other, () => {
            const output = run.submit()
            this.#spare = run
            return output
          })
      return this.#outcome(handed, targets)
    }
    return signal === undefined ? submit() : abortable(signal, bindingOf(nativeOf(this)).CancelToken, submit)
  }

  #outcome(handed, targets) {
    const collect = (output) => this.#collect(output, targets)
    return handed.then(collect, (error) => {
      throw traced(error, collect)
    })
  }

  /** What is read back: name to the caller's array, or null for a new one. */
  #targets(outputs, into, outputTo) {
    const ports = this.#outputPorts()
    if (outputs === undefined && into === NONE && outputTo === NONE) {
      return (this.#all ??= new Map([...ports.keys()].map((name) => [name, null])))
    }
    const known = (name, where) => {
      if (!ports.has(name)) throw invalid(`an output (${list([...ports.keys()])})`, where, name)
    }
    if (outputs !== undefined) check.strings(outputs, 'options.outputs')
    for (const [name, tensor] of Object.entries(outputTo)) {
      known(name, 'a name in options.outputTo')
      checkPeer(tensor, Tensor, `options.outputTo.${name}`, homeOf(this))
    }
    const targets = new Map()
    for (const name of outputs ?? ports.keys()) {
      known(name, 'a name in options.outputs')
      if (outputs !== undefined || !Object.hasOwn(outputTo, name)) targets.set(name, null)
    }
    for (const [name, target] of Object.entries(into)) {
      known(name, 'a name in options.into')
      const { type, nbytes } = ports.get(name)
      checkTarget(target, type, `options.into.${name}`)
      if (target.byteLength !== nbytes) throw invalid(`array of ${nbytes} bytes`, `options.into.${name}`, target)
      targets.set(name, target)
    }
    return targets
  }

  /** Gives what is copied at once; what is too much for that comes back. */
  #giveInputs(run, inputs) {
    const large = []
    let atOnce = 0
    const ports = this.#inputPorts()
    for (const name of Object.keys(inputs)) {
      if (!ports.has(name)) throw invalid(`an input (${list([...ports.keys()])})`, 'a name in inputs', name)
    }
    for (const [name, { type, ne, nbytes }] of ports) {
      const value = inputs[name]
      // One that nothing depends on may be left out; the plan knows and says which is missing.
      if (value === undefined) continue
      if (value instanceof Tensor) {
        run.inputTensor(name, nativeOf(checkPeer(value, Tensor, `inputs.${name}`, homeOf(this))))
        continue
      }
      const bytes = toBytes(value, type, `inputs.${name}`)
      if (bytes.byteLength !== nbytes) {
        throw invalid(`${nbytes} bytes (${type} ${ne.join(' × ')})`, `inputs.${name}`, value)
      }
      if (atOnce + nbytes > AT_ONCE_BYTES) {
        large.push({ name, bytes, nbytes })
      } else {
        atOnce += nbytes
        run.input(name, bytes)
      }
    }
    return large
  }

  /** The outputs by name, or a promise of them when there is too much to copy in one turn of the event loop. */
  #collect(output, targets) {
    const ports = this.#outputPorts()
    const plan = nativeOf(this)
    let together = 0
    const parts = []
    for (const [name, given] of targets) {
      const { type, nbytes } = ports.get(name)
      const target = given ?? allocate(type, nbytes)
      together += nbytes
      parts.push({ name, target, nbytes, copy: (part, at) => plan.copyOutput(output, name, part, at) })
    }
    if (together > SLICE_BYTES) return this.#collectInTurns(output, parts)
    try {
      for (const { name, target, nbytes, copy } of parts) attached(fillAtOnce(target, nbytes, 0, nbytes, copy), name, target)
    } finally {
      plan.releaseOutputs(output)
    }
    return byName(parts)
  }

  async #collectInTurns(output, parts) {
    try {
      for (const { name, target, nbytes, copy } of parts) attached(await fill(target, nbytes, copy), name, target)
    } finally {
      nativeOf(this).releaseOutputs(output)
    }
    return byName(parts)
  }

  async [Symbol.asyncDispose]() {
    await super[Symbol.asyncDispose]()
    try {
      // The other backend's share of the memory goes back as well.
      await this.#fallback?.synchronize()
    } catch (error) {
      if (error.code !== 'ERR_DISPOSED') throw error
    }
  }

  report() {
    return answer(this, () => nativeOf(this).report())
  }

  trace() {
    return answer(this, () => nativeOf(this).trace())
  }
}

module.exports = { Plan }
