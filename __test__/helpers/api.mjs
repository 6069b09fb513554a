// The API under test: the package's own, or the same over a child process. host.spec.mjs runs specs with the second.

import { after } from 'node:test'

import * as local from '../../index.mjs'
import { connect } from '../../host.mjs'

export const hosted = process.env.CANN_NODE_TEST_API === 'host'
const cann = hosted ? await connect() : local
if (hosted) after(() => cann.close())

export const { Backend, CannError, Graph, GraphTensor, driverReport, listDevices, onLog, readGguf } = cann
