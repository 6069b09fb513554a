'use strict'

const { Backend, listDevices } = require('./lib/backend.js')
const { native } = require('./lib/binding.js')
const { DeviceBuffer, HostBuffer } = require('./lib/buffers.js')
const { diagnosed } = require('./lib/doctor.js')
const { CannError, settle } = require('./lib/errors.js')
const { Event } = require('./lib/event.js')
const { Graph, GraphTensor } = require('./lib/graph.js')
const { logOf } = require('./lib/log.js')
const { Plan } = require('./lib/plan.js')
const { Tensor } = require('./lib/tensor.js')
const { Weights, readGguf } = require('./lib/weights.js')

module.exports = {
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
  driverReport: async () => settle(diagnosed(native())),
  listDevices: () => listDevices(native),
  onLog: logOf((level, listener) => native().setLogListener(level, listener)),
  readGguf: (path) => readGguf(native, path),
}
