import cann from './index.js'

export const {
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
  driverReport,
  listDevices,
  onLog,
  readGguf,
} = cann
export default cann
