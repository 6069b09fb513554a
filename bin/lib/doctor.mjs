import { release } from 'node:os'
import { createRequire } from 'node:module'
import { open } from './cann.mjs'
import { json } from './format.mjs'

export default {
  summary: 'say why an NPU is or is not used here',
  usage: 'doctor',
  details: `Checks the platform, the NPU's device nodes and who may use them, its driver, the container, the toolkit, the environment, the
libraries and their functions, says what to do next about each that fails, and computes a sum on every device. Exit code 1 if no device
computes.

Options`,
  async main({ values, out }) {
    const cann = open()
    const drivers = await cann.driverReport()
    const checks = []
    for (const { name, description } of await cann.listDevices()) checks.push({ device: name, description, ...(await check(cann, name)) })
    const report = {
      version: createRequire(import.meta.url)('../../package.json').version,
      node: process.versions.node,
      platform: `${process.platform} ${process.arch} ${release()}`,
      environment: Object.fromEntries(Object.entries(process.env).filter(([name]) => /^(CANN_NODE_|GGML_CANN_|ASCEND_|LD_LIBRARY_PATH$)/.test(name))),
      drivers,
      checks,
    }
    out(values.json ? json(report) : text(report))
    return checks.some(({ ok }) => ok) ? 0 : 1
  },
}

/** Adds two vectors on a device. */
async function check(cann, device) {
  try {
    const backend = await cann.Backend.open({ device })
    try {
      const graph = new cann.Graph()
      const a = graph.input('a', 'f32', [4])
      graph.output('sum', graph.op('ADD', [a, a]))
      const plan = await backend.prepare(graph)
      const { sum } = await plan.run({ a: Float32Array.of(1, 2, 3, 4) })
      return { ok: sum.join() === '2,4,6,8', error: null }
    } finally {
      await backend.close()
    }
  } catch (error) {
    return { ok: false, error: `${error.code}: ${error.message}` }
  }
}

function text({ version, node, platform, environment, drivers, checks }) {
  const lines = [`cann-node ${version}, Node ${node}, ${platform}`]
  for (const [name, value] of Object.entries(environment)) lines.push(`  ${name}=${value}`)
  for (const { driver, available, version, libraries, checks, hint } of drivers) {
    const what = driver === 'cann' ? 'Ascend NPU (CANN)' : 'embedded device'
    lines.push('', `${mark(available)} ${what}${version ? ` ${version}` : ''}: ${available ? 'available' : 'not available'}`)
    for (const { name, ok, found, next } of checks) {
      lines.push(`  ${mark(ok)} ${name.padEnd(12)} ${found}`)
      if (next) lines.push(`    ${' '.repeat(12)} next: ${next}`)
    }
    if (libraries.length) lines.push('  libraries looked for:')
    for (const { name, path, error } of libraries) lines.push(`    ${name}: ${path ?? 'not found'}${error ? ` (${error})` : ''}`)
    if (hint) lines.push(`  hint: ${hint}`)
  }
  lines.push('')
  for (const { device, description, ok, error } of checks) {
    lines.push(`${mark(ok)} ${device} computes${ok ? '' : ` not: ${error ?? 'wrong sum'}`} (${description})`)
  }
  return lines.join('\n')
}

/** What does not apply is neither right nor wrong. */
const mark = (ok) => (ok === null ? '-' : ok ? '✔' : '✘')
