'use strict'

const { settle } = require('./errors.js')
const { Handle, answer, nativeOf, backendOf } = require('./handle.js')

class Event extends Handle {
  query() {
    return answer(this, () => nativeOf(this).query())
  }

  async synchronize() {
    await settle(backendOf(this).turns.call(() => nativeOf(this).synchronize()))
  }
}

module.exports = { Event }
