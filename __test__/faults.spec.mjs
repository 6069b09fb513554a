// Faults in the very binary that ships: a library between it and the embedded device fails chosen ACL calls, in processes of
// their own. crates/cann-backend/tests/anomaly.rs fails every call; here it is a sample, and what JavaScript sees of it.
//
// The library is built by `cargo build -p acl-fault-cabi -p acl-host-cabi`; without it this file is skipped.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'

import { program, root, smallModel, withFolder } from './helpers/index.mjs'
import { builtLibrary } from '../scripts/built-library.mjs'

const fault = builtLibrary('ascendcl_fault')
const host = builtLibrary('ascendcl_host')
const skip = fault && host ? false : 'the libraries of acl-fault-cabi and acl-host-cabi are not built'
if (skip) console.log(`skipped: ${skip} (cargo build -p acl-fault-cabi -p acl-host-cabi)`)

const at = withFolder()
const TOGETHER = 4
const SAMPLES = 40
const CODES = { 107000: 'ERR_ACL', 207001: 'ERR_OUT_OF_MEMORY', 507015: 'ERR_DEVICE_LOST', 200001: 'ERR_ACL' }

/** Does everything once per round, prints each round's outcome, and must end by itself whatever fails. */
const everything = (model) => `
  async function round() {
    if (!(await cann.listDevices()).some((device) => device.name === 'CANN0')) return { code: 'NO_DEVICE' }
    const backend = await cann.Backend.open({ device: 'CANN0' })
    try {
      const weights = await backend.loadWeights(${JSON.stringify(model)})
      const weight = await backend.createTensor({ type: 'q8_0', ne: [32, 4] })
      await weight.write(new Uint8Array(136).fill(1))
      const graph = new cann.Graph()
      const product = graph.mulMat(graph.tensor(weight), graph.input('x', 'f32', [32, 2]))
      graph.output('y', graph.softMax(product))
      const plan = await backend.prepare(graph)
      const inputs = { x: new Float32Array(64).fill(0.5) }
      const [{ y }] = await Promise.all([plan.run(inputs), plan.run(inputs), plan.run(inputs)])
      const a = await weights.get('a').read()
      const copy = await backend.createTensor({ type: 'q8_0', ne: [32, 4] })
      await backend.copy(weight, copy)
      const event = await backend.createEvent()
      await backend.record(event)
      await event.synchronize()
      await backend.synchronize()
      return { code: 'OK', sum: Array.from(y).reduce((s, v) => s + v, 0).toFixed(3), bytes: (await copy.read()).length }
    } finally {
      await backend.close()
    }
  }
  const outcomes = []
  for (let i = 0; i < 2; i++) {
    try {
      outcomes.push(await round())
    } catch (error) {
      const typed = error instanceof cann.CannError
      outcomes.push({ typed, code: error.code, aclCode: error.aclCode, call: error.call, message: String(error.message) })
    }
  }
  console.log(JSON.stringify(outcomes))`

/** Runs the program with a fault; the process must end in order and say nothing on stderr. */
async function run(spec, model, report) {
  const env = { CANN_NODE_ACL_LIB: fault, CANN_NODE_FAULT: spec, CANN_NODE_HOST_THREADS: '1' }
  if (report) env.CANN_NODE_FAULT_REPORT = report
  const { code, signal, stdout, stderr, ms } = await program(everything(model), { env })
  assert.deepEqual([code, signal, stderr], [0, null, ''], `${spec} after ${ms.toFixed(0)} ms: ${stdout}`)
  return JSON.parse(stdout)
}

/** Calls `work` for each item, a few at a time. */
async function several(items, work) {
  const waiting = [...items]
  const lane = async () => {
    while (waiting.length > 0) await work(waiting.shift())
  }
  await Promise.all(Array.from({ length: TOGETHER }, lane))
}

test('a sample of calls fails, each code once and from there on', { skip }, async (t) => {
  const model = join(at.folder, 'small.gguf')
  smallModel(model)
  const report = join(at.folder, 'report')
  const clean = await run('mode=never', model, report)
  const right = clean[0]
  assert.deepEqual(clean, [right, right])
  assert.equal(right.code, 'OK', right.message)
  const counted = /^calls=(\d+) failed=0\n$/.exec(readFileSync(report, 'utf8'))
  assert.ok(counted, 'a report of the calls')
  // Both rounds were counted: the second half is where a device was open before.
  const calls = Number(counted[1])
  const specs = []
  for (let i = 0; i < SAMPLES; i++) {
    const nth = 1 + Math.floor((i * (calls - 1)) / (SAMPLES - 1))
    const code = Object.keys(CODES)[i % 4]
    specs.push({ nth, code, mode: 'once' }, { nth, code: Object.keys(CODES)[(i + 1) % 4], mode: 'from' })
  }
  let rejected = 0
  await several(specs, async ({ nth, code, mode }) => {
    const spec = `nth=${nth},code=${code},mode=${mode}`
    const outcomes = await run(spec, model)
    const failed = outcomes.filter((outcome) => outcome.code !== 'OK')
    rejected += failed.length
    for (const outcome of failed) {
      if (outcome.code === 'NO_DEVICE') continue
      assert.equal(outcome.typed, true, `${spec}: ${outcome.message}`)
      const allowed = new Set([CODES[code], 'ERR_ACL', 'ERR_NOT_FOUND'])
      assert.ok(allowed.has(outcome.code), `${spec}: ${outcome.code} ${outcome.message}`)
      if (outcome.code === 'ERR_ACL' && !outcome.call.startsWith('aclCreate')) assert.equal(outcome.aclCode, Number(code), spec)
    }
    for (const outcome of outcomes.filter((one) => one.code === 'OK')) assert.deepEqual(outcome, right, spec)
    // A fault that goes away costs one round at most.
    if (mode === 'once') assert.ok(failed.length <= 1, `${spec}: ${JSON.stringify(outcomes)}`)
  })
  t.diagnostic(`${calls} calls in two rounds; ${specs.length} faults, ${rejected} rounds rejected, none crashed`)
})

test('a kernel fault rejects everything that waits, and the device opens again', { skip }, async () => {
  const text = `
    const [sick, well] = await Promise.all(['CANN0', 'CANN1'].map((device) => cann.Backend.open({ device })))
    const tensor = await sick.createTensor({ type: 'f32', ne: [64] })
    const other = await well.createTensor({ type: 'f32', ne: [64] })
    const fills = await Promise.allSettled(Array.from({ length: 30 }, () => tensor.fill(1)))
    const codes = new Set(fills.filter((f) => f.status === 'rejected').map((f) => f.reason.code))
    await other.fill(2)
    const again = await cann.Backend.open({ device: 'CANN0' })
    const fresh = await again.createTensor({ type: 'f32', ne: [64] })
    await fresh.fill(3)
    const first = async (tensor) => new Uint8Array((await tensor.read()).buffer)[0]
    const bytes = [await first(fresh), await first(other)]
    await Promise.all([sick, well, again].map((backend) => backend.close()))
    console.log(JSON.stringify({ codes: [...codes], bytes, last: fills.at(-1).status }))`
  const env = {
    CANN_NODE_ACL_LIB: fault,
    CANN_NODE_FAULT: 'name=aclrtMemsetAsync,nth=3,code=507015,mode=once',
    CANN_NODE_HOST_DEVICES: '2',
  }
  const { code, signal, stdout, stderr } = await program(text, { env })
  assert.deepEqual([code, signal, stderr], [0, null, ''])
  const { codes, bytes, last } = JSON.parse(stdout)
  assert.deepEqual([codes, last, bytes], [['ERR_DEVICE_LOST'], 'rejected', [3, 2]])
})

test('faults over a library of its own, which is named', { skip }, async () => {
  const text = `
    const [device] = await cann.listDevices()
    const backend = await cann.Backend.open({ device: 'CANN0' })
    const code = await backend.createEvent().then(() => 'OK', (error) => error.call + ' ' + error.aclCode)
    await backend.createEvent()
    await backend.close()
    console.log(device.name, code)`
  const env = {
    CANN_NODE_ACL_LIB: fault,
    CANN_NODE_FAULT_INNER: host,
    CANN_NODE_FAULT: 'name=aclrtCreateEventWithFlag,nth=1,code=207007',
  }
  const { code, stdout, stderr } = await program(text, { env })
  assert.deepEqual([code, stdout, stderr], [0, 'CANN0 aclrtCreateEventWithFlag 207007\n', ''])
  const absent = await program(text, { env: { ...env, CANN_NODE_FAULT_INNER: join(at.folder, 'nothing.so') } })
  assert.match(absent.stderr, /CANN_NODE_FAULT_INNER: .*nothing\.so/)
})

test('a fault that is misspelt fails everything, aloud', { skip }, async () => {
  const text = `console.log((await cann.listDevices()).filter((device) => device.driver === 'cann').length)`
  const env = { CANN_NODE_ACL_LIB: fault, CANN_NODE_FAULT: 'name=aclrtMaloc' }
  const { code, stdout, stderr } = await program(text, { env })
  assert.deepEqual([code, stdout], [0, '0\n'])
  assert.match(stderr, /CANN_NODE_FAULT: 'name=aclrtMaloc'/)
})

test('golden cases through a library that is loaded', { skip }, async () => {
  const args = ['scripts/golden.mjs', '__test__/golden', '--device', 'CANN0', '--only', 'MUL_MAT']
  const child = spawn(process.execPath, args, { cwd: root, env: { ...process.env, CANN_NODE_ACL_LIB: host } })
  let output = ''
  child.stdout.on('data', (chunk) => (output += chunk))
  child.stderr.on('data', (chunk) => (output += chunk))
  const code = await new Promise((resolve) => child.on('close', resolve))
  assert.equal(code, 0, output)
  assert.match(output, /[1-9]\d* passed, 0 failed/)
})
