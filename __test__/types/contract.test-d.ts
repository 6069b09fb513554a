// The declarations satisfy the contract: whatever is promised there is here, with the same meaning.

import type * as Contract from './contract.js'
import type * as Actual from '../../index.js'

declare const actual: typeof Actual
export const promised: typeof Contract = actual

type Same<A, B> = [A] extends [B] ? ([B] extends [A] ? true : never) : never
/** May say more than was promised. */
type Holds<A, B> = [A] extends [B] ? true : never
export const same: [
  Same<Actual.DType, Contract.DType>,
  Same<Actual.CannErrorCode, Contract.CannErrorCode>,
  Same<Actual.TensorData, Contract.TensorData>,
  Same<Actual.LogLevel, Contract.LogLevel>,
  Same<Actual.LoadOptions, Contract.LoadOptions>,
  Same<Actual.BackendOptions, Contract.BackendOptions>,
  Same<Actual.DeviceInfo, Contract.DeviceInfo>,
  Holds<Actual.DriverReport, Contract.DriverReport>,
  Same<Actual.GgufInfo, Contract.GgufInfo>,
] = [true, true, true, true, true, true, true, true, true]
