// How the package is used, compiled and never run.

import { Backend, CannError, Graph, listDevices, onLog, type DeviceInfo, type Tensor, type TypedArray } from '../../index.js'

export async function usage(signal: AbortSignal): Promise<TypedArray> {
  const devices: DeviceInfo[] = await listDevices()
  await using backend = await Backend.open({ device: devices[0]!.name, pool: 'vmm', asyncMode: true, threads: 2 })
  using tensor = await backend.createTensor({ type: 'f32', ne: [4, 2], name: 't' })
  await tensor.write(new Float32Array(8))
  const filled: Float32Array = await tensor.readInto(new Float32Array(8))

  const graph = new Graph()
  const x = graph.input('x', 'f32', [4, 2])
  const sum = graph.add(x, graph.tensor(tensor))
  const normed = graph.rmsNorm(sum, { eps: 1e-5 })
  const weights = graph.softMax(normed, null, { scale: 0.5 })
  const flat = graph.reshape(graph.permute(graph.view(weights, [4], null, 16), 0, 1, 2, 3), [2, 2])
  graph.output('y', graph.op('SCALE', [flat], { s: 2 }))

  const plan = await backend.prepare(graph)
  const result = await plan.run({ x: filled }, { signal, outputs: ['y'], trace: true })
  const stop = onLog('warn', (record) => void record.fields)
  stop()
  const loaded = await backend.loadWeights('model.gguf', { signal, onProgress: (p) => void p.bytesDone, convert: 'auto' })
  const named: Tensor = loaded.get('token_embd.weight')
  named.dispose()
  return result.y!
}

export function refused(error: unknown): string | undefined {
  return error instanceof CannError && error.code === 'ERR_UNSUPPORTED_OP' ? error.reason : undefined
}

// @ts-expect-error a dtype has no such array
export const wrong: TypedArray = new Map()
