'use strict'

const { Backend, driverReport, listDevices } = require('./lib/backend.js')
const { native } = require('./lib/binding.js')
const { DeviceBuffer, HostBuffer } = require('./lib/buffers.js')
const { CannError } = require('./lib/errors.js')
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
  driverReport: () => driverReport(native),
  listDevices: () => listDevices(native),
  onLog: logOf((level, listener) => native().setLogListener(level, listener)),
  readGguf: (path) => readGguf(native, path),
}
