// How cann-node/host is used, compiled and never run.

import { connect, type Host, type HostExit } from '../../host.js'
import type { BackendStats, Tensor, TypedArray } from '../../index.js'

export async function usage(signal: AbortSignal): Promise<TypedArray> {
  await using cann: Host = await connect({ env: { CANN_NODE_HOST_THREADS: '2' } })
  const { Backend, Graph, listDevices, onExit } = cann
  const stop = onExit(({ code, signal, reason }: HostExit) => void [code, signal, reason])
  const [device] = await listDevices()
  await using backend = await Backend.open({ device: device!.name })
  const tensor: Tensor = await backend.createTensor({ type: 'f32', ne: [4, 2] })
  await tensor.write(new Float32Array(8))

  const graph = new Graph()
  const sum = graph.add(graph.input('x', 'f32', [4, 2]), graph.tensor(tensor))
  graph.output('y', sum)
  const supported: boolean = await backend.supportsOp(sum)
  const reason: string | null = supported ? null : await backend.explainOp(sum)
  const stats: BackendStats = await backend.stats()
  void [reason, stats]

  const buffer = await backend.allocHostBuffer(16)
  await buffer.write(new Uint8Array(16))
  const bytes: Uint8Array = await buffer.read()
  const event = await backend.createEvent()
  await backend.record(event)
  const past: boolean = await event.query()
  void [bytes, past]

  const plan = await backend.prepare(graph, { fallback: backend })
  const rows = await plan.report()
  void rows[0]!.op
  const known: unknown = plan
  if (known instanceof cann.Plan) known.dispose()
  const { y } = await plan.run({ x: new Float32Array(8) }, { signal })
  stop()
  return y!
}

export function different(backend: Awaited<ReturnType<Host['Backend']['open']>>): void {
  // @ts-expect-error a promise here
  const supported: BackendStats = backend.stats()
  void supported
}
