import { BACKEND_DETAILS, BACKEND_OPTIONS, openBackend } from './cann.mjs'
import { bytes, json, table } from './format.mjs'
import { UsageError } from './usage.mjs'
import { progress } from './progress.mjs'

const CONVERSIONS = ['auto', 'f16', 'q8_0', 'never']

export default {
  summary: "upload a GGUF file's weights to a device",
  usage: 'upload FILE [--device NAME]',
  files: ['FILE'],
  details: `Uploads every tensor, says what it became, and frees it. Ctrl-C stops the upload and frees what was there.

Options
${BACKEND_DETAILS}
  --convert HOW        auto (default), f16, q8_0 or never: what becomes of types that the device has no layout for`,
  options: { ...BACKEND_OPTIONS, convert: { type: 'string', default: 'auto' } },
  async main({ values, files, signal, out }) {
    const { convert } = values
    if (!CONVERSIONS.includes(convert)) throw new UsageError(`--convert needs one of ${CONVERSIONS.join(', ')}, not '${convert}'`)
    const backend = await openBackend(values)
    const bar = values.json ? null : progress()
    try {
      const start = performance.now()
      const weights = await backend
        .loadWeights(files[0], { convert, signal, onProgress: bar?.update })
        .finally(() => bar?.end())
      const seconds = (performance.now() - start) / 1000
      const stored = byType(weights)
      const result = { file: files[0], device: backend.name, tensors: weights.names.length, bytes: weights.bytes, seconds, types: stored }
      weights.dispose()
      if (values.json) return void out(json(result))
      out(`${result.tensors} tensors, ${bytes(result.bytes)} on ${result.device} in ${seconds.toFixed(2)} s (${bytes(result.bytes / seconds)}/s)`)
      out(table(['IN THE FILE', 'ON THE DEVICE', 'TENSORS', 'BYTES'], stored.map((t) => [t.from, t.type, t.tensors, bytes(t.bytes)]), ['TENSORS', 'BYTES']))
    } finally {
      await backend.close()
    }
  },
}

function byType(weights) {
  const rows = new Map()
  for (const name of weights.names) {
    const { sourceType: from, type, nbytes } = weights.get(name)
    const row = rows.get(`${from} ${type}`) ?? { from, type, tensors: 0, bytes: 0 }
    rows.set(`${from} ${type}`, row)
    row.tensors++
    row.bytes += nbytes
  }
  return [...rows.values()].sort((a, b) => b.bytes - a.bytes)
}
