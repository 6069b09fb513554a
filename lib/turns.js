'use strict'

// The order of calls on one backend. Native calls are queued in the order they are made, so usually there is nothing to do.
// Only a large write takes several turns of the event loop to hand over; what is called meanwhile waits for its turn.

/** What is copied before a call returns; more is copied in slices, as index.d.ts says. */
const AT_ONCE_BYTES = 4 << 20
/** What one turn of the event loop copies at most: about a millisecond. */
const SLICE_BYTES = 2 << 20

const nothing = () => {}

class Turns {
  /** Settles when the calls before have been handed over; null when there is none to wait for. */
  #last = null

  get busy() {
    return this.#last !== null
  }

  /** Calls `submit` when all earlier calls were handed over: at once, as a rule. Resolves to what it resolves to. */
  call(submit) {
    if (this.#last === null) return submit()
    return this.hold(async () => [submit()]).then(([result]) => result)
  }

  /** As `call`, in order with the calls on another backend as well, if there is one: those before it and those after it. */
  callAfter(other, submit) {
    if (!other || !(other.busy || this.busy)) return this.call(submit)
    return this.holdAfter(other, async () => [submit()]).then(([result]) => result)
  }

  /** As `hold`, in order with the calls on another backend as well: both turns are taken now, so two that cross never wait for each other. */
  holdAfter(other, handOver) {
    if (!other || other === this) return this.hold(handOver)
    let arrive
    let release
    const arrived = new Promise((resolve) => (arrive = resolve))
    const released = new Promise((resolve) => (release = resolve))
    other.hold(() => {
      arrive()
      return released
    })
    return this.hold(async () => {
      await arrived
      return handOver()
    }).finally(release)
  }

  /** Runs `handOver` in its turn; later calls wait until it has settled. */
  hold(handOver) {
    const turn = this.#last === null ? handOver() : this.#last.then(handOver)
    const last = turn.then(nothing, nothing)
    this.#last = last
    last.then(() => {
      if (this.#last === last) this.#last = null
    })
    return turn
  }
}

/** Lets the event loop turn once. */
const nextTurn = () => new Promise((resolve) => setImmediate(resolve))

module.exports = { AT_ONCE_BYTES, SLICE_BYTES, Turns, nextTurn }
