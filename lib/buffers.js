'use strict'

const check = require('./check.js')
const { settle } = require('./errors.js')
const { rawBytes } = require('./data.js')
const { Handle, answer, nativeOf, backendOf } = require('./handle.js')

class DeviceBuffer extends Handle {
  static shown = ['size', 'device']

  get size() {
    return nativeOf(this).size
  }

  get device() {
    return nativeOf(this).device
  }

  async clear(value) {
    check.byte(value, 'value')
    await settle(backendOf(this).turns.call(() => nativeOf(this).clear(value)))
  }
}

class HostBuffer extends Handle {
  static shown = ['size', 'pinned']

  get size() {
    return nativeOf(this).size
  }

  get pinned() {
    return nativeOf(this).pinned
  }

  write(data, offset = 0) {
    return answer(this, () => nativeOf(this).write(rawBytes(data, 'data'), check.size(offset, 'offset')))
  }

  read(offset = 0, size = undefined) {
    return answer(this, () => {
      check.size(offset, 'offset')
      const bytes = size === undefined ? Math.max(0, this.size - offset) : check.size(size, 'size')
      return nativeOf(this).read(offset, bytes)
    })
  }
}

module.exports = { DeviceBuffer, HostBuffer }
