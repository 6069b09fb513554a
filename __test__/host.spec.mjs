// cann-node/host: the specs of the package over a child process, and what only a child process can do.

import assert from 'node:assert/strict'
import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { EventEmitter, once } from 'node:events'
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { after, before, test } from 'node:test'
import { pathToFileURL } from 'node:url'
import { Worker } from 'node:worker_threads'

import * as local from '../index.mjs'
import { connect } from '../host.mjs'
import { writeGguf } from '../tools/gguf.mjs'
import { utilityProcess } from './helpers/electron.mjs'
import { failure, program, rejection, root, slowPlan, withFolder } from './helpers/index.mjs'

const at = withFolder()
const hostUrl = JSON.stringify(pathToFileURL(join(root, 'host.mjs')).href)
const windows = process.platform === 'win32'
let cann
before(async () => {
  cann = await connect()
})
after(async () => {
  await cann.close()
})

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

function lives(pid) {
  try {
    process.kill(pid, 0)
    // Ended, but nobody asked how: what a terminated worker leaves behind.
    return process.platform !== 'linux' || !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))
  } catch {
    return false
  }
}

async function ended(pid) {
  for (let i = 0; i < 1500; i++) {
    if (!lives(pid)) return
    await sleep(10)
  }
  assert.fail(`process ${pid} still lives`)
}

/** Eight tensors of 16 MiB. */
function largeModel() {
  const path = join(at.folder, 'large.gguf')
  const data = () => new Uint8Array(16 << 20).fill(1)
  const tensors = [...'abcdefgh'].map((name) => ({ name, ne: [2048, 2048], type: 'f32', data }))
  if (!existsSync(path)) writeGguf(path, [['general.architecture', 'string', 'test']], tensors)
  return path
}

test('the specs of the package, over a child process', () => {
  const specs = ['abort', 'backend', 'buffers', 'devices', 'dispose', 'errors', 'events', 'graph', 'logs', 'plan', 'tensor', 'weights']
  const env = { ...process.env, CANN_NODE_TEST_API: 'host' }
  // Else the runner takes it for a test of this one.
  delete env.NODE_TEST_CONTEXT
  const files = specs.map((name) => join('__test__', `${name}.spec.mjs`))
  const args = ['--expose-gc', '--test', '--test-concurrency=1', '--test-reporter=tap', ...files]
  const { status, stdout } = spawnSync(process.execPath, args, { cwd: root, env, encoding: 'utf8', maxBuffer: 64 << 20 })
  const failed = stdout.split('\n').filter((line, i, lines) => /^not ok/.test(line) || /^not ok/.test(lines[i - 12] ?? '')).join('\n')
  assert.equal(status, 0, failed)
  assert.ok(Number(/^# pass (\d+)$/m.exec(stdout)[1]) >= 80, stdout)
})

test('the example of a llama model runs on it unchanged', async () => {
  const { Llama } = await import('../examples/llama-graph.mjs').catch(() => ({}))
  const { writeTinyLlama, tinyTokens } = await import('../tools/tiny-llama.mjs')
  const path = join(at.folder, 'tiny.gguf')
  writeTinyLlama(path)
  const generate = async ({ Backend }) => {
    const backend = await Backend.open()
    const model = await Llama.load(backend, path, { context: 256 })
    const tokens = []
    for await (const token of model.generate(tinyTokens('hello'), { maxTokens: 8 })) tokens.push(token)
    const text = model.detokenize(tokens)
    model.dispose()
    await backend.close()
    return { tokens, text }
  }
  assert.deepEqual(await generate(cann), await generate(local))
})

test('killed in the middle of an upload: the promise rejects, objects are disposed, the next use starts another', async () => {
  const path = largeModel()
  const backend = await cann.Backend.open()
  const tensor = await backend.createTensor({ type: 'f32', ne: [4] })
  const exits = []
  const stop = cann.onExit((exit) => exits.push(exit))
  const { pid } = cann
  // The first report comes with the first bytes.
  const onProgress = () => lives(pid) && process.kill(pid, 'SIGKILL')
  const error = await rejection(() => backend.loadWeights(path, { onProgress }), 'ERR_DEVICE_LOST')
  stop()
  assert.match(error.message, /host process ended .* before 'loadWeights' was done/)
  assert.match(error.hint, /Backend\.open/)
  if (!windows) assert.equal(error.reason, 'signal SIGKILL')
  assert.deepEqual(exits.map((exit) => exit.pid), [pid])
  assert.deepEqual([backend.closed, cann.pid], [true, undefined])
  assert.match((await rejection(() => tensor.read(), 'ERR_DISPOSED')).message, /process that has ended/)
  await rejection(() => backend.stats(), 'ERR_DISPOSED')
  await failure(() => new local.Graph().tensor(tensor), 'ERR_DISPOSED')
  tensor.dispose()
  await backend.close()

  const again = await cann.Backend.open()
  assert.notEqual(cann.pid, pid)
  const weights = await again.loadWeights(path)
  assert.equal((await weights.get('d').read(0, 4)).length, 1)
  // Of a child that is gone, with one that lives.
  const graph = new local.Graph()
  graph.output('y', graph.tensor(weights.get('a')))
  const pending = again.synchronize()
  cann.kill()
  await rejection(() => pending, 'ERR_DEVICE_LOST')
  await rejection(() => again.synchronize(), 'ERR_DISPOSED')
  const third = await cann.Backend.open()
  await rejection(() => third.prepare(graph), 'ERR_DISPOSED')
  await third.close()
})

test('a segmentation fault in the middle of 100 runs', { skip: windows }, async () => {
  const backend = await cann.Backend.open()
  const { plan, inputs } = await slowPlan(backend)
  const runs = Array.from({ length: 100 }, () => plan.run(inputs))
  await runs[2]
  process.kill(cann.pid, 'SIGSEGV')
  const results = await Promise.allSettled(runs)
  const lost = results.filter(({ status }) => status === 'rejected')
  assert.ok(lost.length > 0 && lost.length < 98, `${lost.length} lost`)
  for (const { reason } of lost) {
    assert.ok(reason instanceof local.CannError)
    assert.deepEqual([reason.code, reason.reason], ['ERR_DEVICE_LOST', 'signal SIGSEGV'])
  }
  await rejection(() => plan.run(inputs), 'ERR_DISPOSED')
  const again = await cann.Backend.open()
  const next = await slowPlan(again, 64, 2)
  assert.equal((await next.plan.run(next.inputs)).y.length, 64 * 64)
  await again.close()
})

test('killed at any moment: whatever waits settles, with one of two codes', async (t) => {
  const path = largeModel()
  const rounds = Number(process.env.CANN_NODE_STRESS ?? 8)
  const outcomes = new Map()
  const tell = async (promise) => {
    const outcome = await promise.then(() => 'done', (error) => (error instanceof local.CannError ? error.code : error))
    outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1)
  }
  const data = new Float32Array(2 << 20).fill(1)
  const work = async ({ Backend }) => {
    const backend = await Backend.open()
    const tensor = await backend.createTensor({ type: 'f32', ne: [data.length] })
    const graph = new local.Graph()
    graph.output('y', graph.add(graph.tensor(tensor), graph.input('x', 'f32', [data.length])))
    const plan = await backend.prepare(graph)
    await Promise.all([
      tell(tensor.write(data)),
      tell(backend.loadWeights(path, { filter: (name) => name !== 'a', onProgress() {} })),
      tell(plan.run({ x: data })),
      tell(tensor.read()),
      tell(backend.allocHostBuffer(4 << 20).then((buffer) => buffer.read())),
      tell(backend.stats()),
    ])
    await backend[Symbol.asyncDispose]()
  }
  for (let i = 0; i < rounds; i++) {
    const other = await connect()
    const { pid } = other
    const working = tell(work(other))
    await sleep((i * 37) % 400)
    process.kill(pid, 'SIGKILL')
    await working
    await ended(pid)
    await other.close()
  }
  t.diagnostic(`${rounds} kills: ${[...outcomes].map(([code, n]) => `${code} ${n}`).join(', ')}`)
  for (const outcome of outcomes.keys()) assert.ok(['done', 'ERR_DEVICE_LOST', 'ERR_DISPOSED'].includes(outcome), String(outcome?.stack ?? outcome))
  assert.ok(outcomes.get('ERR_DEVICE_LOST') > 0)
})

test('a driver that crashes takes nobody with it', { skip: windows }, async (t) => {
  const source = join(at.folder, 'crash.c')
  const library = join(at.folder, 'libcrash.so')
  const mark = join(at.folder, 'crashed')
  // A library without these would not be asked.
  const [, essential] = /const ESSENTIAL[^[]*\[AclFn\] = &\[([^\]]*)\]/.exec(readFileSync(join(root, 'crates/cann-backend/src/device.rs'), 'utf8'))
  const names = Array.from(essential.matchAll(/acl\w+/gi), ([name]) => name).filter((name) => name !== 'AclFn' && name !== 'aclInit')
  // Crashes once; from then on it says that there is no device.
  writeFileSync(source, `
    #include <stdio.h>
    #include <unistd.h>
    int aclInit(const char *config) {
      if (access("${mark}", F_OK) == 0) return 100000;
      FILE *file = fopen("${mark}", "w");
      if (file) fclose(file);
      *(volatile int *)0 = 1;
      return 0;
    }
    ${names.map((name) => `int ${name}(void) { return 100000; }`).join('\n')}`)
  try {
    execFileSync('cc', ['-shared', '-fPIC', '-o', library, source], { stdio: 'pipe' })
  } catch {
    return t.skip('no C compiler here')
  }
  const other = await connect({ env: { CANN_NODE_ACL_LIB: library } })
  const error = await rejection(() => other.listDevices(), 'ERR_DEVICE_LOST')
  assert.equal(error.reason, 'signal SIGSEGV')
  assert.ok(existsSync(mark))
  assert.deepEqual((await other.listDevices()).map(({ driver }) => driver).filter((driver) => driver === 'cann'), [])
  const [report] = (await other.driverReport()).filter(({ driver }) => driver === 'cann')
  assert.ok(report.libraries.some(({ path }) => path === library))
  if (process.platform === 'linux') {
    // Graphs are built in this process, by the addon; no driver comes with it.
    new other.Graph().input('x', 'f32', [1])
    assert.ok(readFileSync(`/proc/${other.pid}/maps`, 'utf8').includes('libcrash.so'))
    const maps = readFileSync('/proc/self/maps', 'utf8')
    assert.ok(maps.includes('.node') && !maps.includes('libcrash.so'))
  }
  await other.close()
})

test('a child that fails at its start is not started again and again', async () => {
  await rejection(() => connect({ execArgv: ['--no-such-option'] }), 'ERR_DEVICE_LOST')
  const mark = join(at.folder, 'broken')
  const preload = join(at.folder, 'preload.cjs')
  writeFileSync(preload, `if (require('node:fs').existsSync(${JSON.stringify(mark)})) process.exit(3)`)
  const other = await connect({ execArgv: ['--require', preload] })
  const exits = []
  other.onExit(({ code, reason }) => exits.push([code, reason]))
  writeFileSync(mark, '')
  const pending = rejection(() => other.listDevices(), 'ERR_DEVICE_LOST')
  await sleep(0)
  other.kill()
  await pending
  const waits = []
  for (let i = 0; i < 3; i++) {
    const began = performance.now()
    const errors = await Promise.all([1, 2].map(() => rejection(() => other.listDevices(), 'ERR_DEVICE_LOST')))
    assert.equal(errors[0].reason, 'exit code 3')
    waits.push(performance.now() - began)
  }
  for (const [i, ms] of waits.entries()) assert.ok(ms >= 245 * 2 ** i, `${waits}`)
  assert.deepEqual(exits.slice(1), Array.from({ length: 3 }, () => [3, 'exit code 3']))
  rmSync(mark)
  assert.ok((await other.listDevices()).length > 0)
  // What waits for another start does not outlive the connection.
  other.kill()
  const waiting = rejection(() => other.listDevices(), 'ERR_DISPOSED')
  await other.close()
  await waiting
})

test('closing finishes what was submitted and refuses what comes', async () => {
  const other = await connect()
  const { pid } = other
  const exits = []
  other.onExit((exit) => exits.push(exit))
  const backend = await other.Backend.open()
  const { plan, inputs } = await slowPlan(backend, 128, 20)
  const runs = Array.from({ length: 10 }, () => plan.run(inputs))
  const closing = other.close()
  assert.equal(other.close(), closing)
  await rejection(() => other.listDevices(), 'ERR_DISPOSED')
  for (const run of runs) assert.equal((await run).y.length, 128 * 128)
  await closing
  assert.equal(lives(pid), false)
  await rejection(() => plan.run(inputs), 'ERR_DISPOSED')
  assert.deepEqual(exits, [])
})

test('closed while a child starts', async () => {
  const other = await connect()
  other.kill()
  const waiting = rejection(() => other.listDevices(), 'ERR_DISPOSED')
  // There is a process, which has not said yet that it is ready.
  while (other.pid === undefined) await sleep(1)
  await other.close()
  await waiting
})

test('a host buffer of several messages', async () => {
  const backend = await cann.Backend.open()
  const n = 5 << 20
  const buffer = await backend.allocHostBuffer(n + 1)
  const data = Uint8Array.from({ length: n }, (_, i) => (i * 7) >> 3)
  const writing = buffer.write(data, 1)
  const expected = data.slice()
  data.fill(0)
  const reading = buffer.read(1)
  await buffer.write(data)
  await writing
  assert.ok(Buffer.from(await reading).equals(expected))
  assert.ok((await buffer.read(0, n)).every((byte) => byte === 0))
  await rejection(() => buffer.write(data, 2), 'ERR_INVALID_ARG')
  await backend.close()
})

test('objects of another process are refused', async () => {
  const [near, far] = [await local.Backend.open(), await cann.Backend.open()]
  const [here, there] = await Promise.all([near, far].map((backend) => backend.createTensor({ type: 'f32', ne: [4], name: 'name "t"' })))
  const [graph, remote] = [here, there].map((tensor) => {
    const each = new local.Graph()
    each.output('y', each.add(each.tensor(tensor), each.input('x', 'f32', [4])))
    return each
  })
  for (const call of [
    () => near.copy(here, there),
    () => far.copy(here, there),
    () => near.prepare(remote),
    () => far.prepare(graph),
    () => near.prepare(graph, { fallback: far }),
    () => near.supportsOp(remote.nodes[2]),
    () => far.supportsOp(graph.nodes[2]),
    () => graph.tensor(there),
    () => remote.tensor(here),
  ]) {
    assert.match((await failure(call, 'ERR_INVALID_ARG')).message, /same process/)
  }
  assert.equal(remote.nodes[0].name, 'name "t"')
  assert.deepEqual(remote.toDot().replaceAll('\n', ' '), graph.toDot().replaceAll('\n', ' '))
  const plan = await far.prepare(remote)
  await rejection(() => plan.run({ x: here }), 'ERR_INVALID_ARG')
  await there.fill(0)
  assert.deepEqual([...(await plan.run({ x: there })).y], [0, 0, 0, 0])
  assert.ok(far instanceof cann.Backend && far instanceof local.Backend && !(near instanceof cann.Backend))
  await Promise.all([near.close(), far.close()])
})

test('what nobody can reach any more is freed in the child', async (t) => {
  let plan
  if (!globalThis.gc) return t.skip('needs --expose-gc')
  const backend = await cann.Backend.open()
  await (async () => {
    for (let i = 0; i < 20; i++) await backend.createTensor({ type: 'f32', ne: [1024] })
    const kept = await backend.createTensor({ type: 'f32', ne: [4] })
    await kept.write(Float32Array.of(1, 2, 3, 4))
    const graph = new local.Graph()
    graph.output('y', graph.scale(graph.tensor(kept), { s: 2 }))
    plan = await backend.prepare(graph)
  })()
  for (let i = 0; i < 200 && (await backend.stats()).buffers.count > 1; i++) {
    globalThis.gc()
    await sleep(20)
  }
  assert.equal((await backend.stats()).buffers.count, 1)
  // A plan holds what it reads.
  assert.deepEqual([...(await plan.run()).y], [2, 4, 6, 8])
  await backend.close()
})

test('large arrays leave the event loop alone', async (t) => {
  const backend = await cann.Backend.open()
  const tensor = await backend.createTensor({ type: 'f32', ne: [16 << 20] })
  const data = new Float32Array(16 << 20).fill(3)
  const graph = new local.Graph()
  graph.output('y', graph.add(graph.input('x', 'f32', [16 << 20]), graph.tensor(tensor)))
  const plan = await backend.prepare(graph)
  const delay = monitorEventLoopDelay({ resolution: 1 })
  const measure = async (what, work) => {
    const began = performance.now()
    delay.reset()
    delay.enable()
    const result = await work()
    delay.disable()
    const ms = performance.now() - began
    t.diagnostic(`${what} 64 MiB: ${ms.toFixed(0)} ms, the loop late by ${(delay.percentile(99) / 1e6).toFixed(1)} ms at most (99 %)`)
    // Generous: the machine may be busy. One message would take longer than this.
    assert.ok(delay.percentile(90) / 1e6 < 25, `${delay.percentile(90) / 1e6} ms`)
    return result
  }
  await measure('writing', () => tensor.write(data))
  assert.ok((await measure('reading', () => tensor.read())).every((value) => value === 3))
  assert.ok((await measure('running with', () => plan.run({ x: data }))).y.every((value) => value === 6))
  await backend.close()
})

test('nothing outlives a process that ends, however it ends', async () => {
  const begin = `
    const { connect } = await import(${hostUrl})
    const host = await connect()
    console.log(host.pid)
    const backend = await host.Backend.open()
    const tensor = await backend.createTensor({ type: 'f32', ne: [1 << 20] })`
  for (const [rest, expected] of [
    ['', 0],
    ['await tensor.fill(1)\nhost.onLog("info", () => {})', 0],
    ['for (let i = 0; i < 50; i++) tensor.fill(1)\nprocess.exit(7)', 7],
    ['tensor.fill(1)\nthrow new Error("mine")', 1],
    ['await host.close()\nprocess.exitCode = 4', 4],
    ['host.dispose()', 0],
    ['host.kill()', 0],
    ['process.kill(host.pid, "SIGKILL")\nawait tensor.fill(1).catch((e) => { process.exitCode = e.code === "ERR_DEVICE_LOST" ? 6 : 1 })', 6],
  ]) {
    const { code, signal, stdout, stderr } = await program(`${begin}\n${rest}`)
    assert.deepEqual([code, signal], [expected, null], `${rest}: ${stderr}`)
    await ended(Number(stdout))
  }
})

test('pending work keeps the process until it is done', async () => {
  const text = `
    const { connect } = await import(${hostUrl})
    const host = await connect()
    host.Backend.open().then((backend) => backend.createTensor({ type: 'f32', ne: [1 << 20] })).then((tensor) => tensor.fill(1)).then(() => console.log('done'))`
  const { code, stdout } = await program(text)
  assert.deepEqual([code, stdout], [0, 'done\n'])
})

test('a parent that is killed takes the child with it; Ctrl-C is for the parent', { skip: windows }, async () => {
  const text = `
    const { connect } = await import(${hostUrl})
    const host = await connect()
    const backend = await host.Backend.open()
    const tensor = await backend.createTensor({ type: 'f32', ne: [1 << 24] })
    process.on('SIGINT', () => {})
    console.log(host.pid)
    for (;;) await tensor.fill(1)`
  const parent = spawn(process.execPath, ['--input-type=module', '-e', text], { stdio: ['ignore', 'pipe', 'inherit'], detached: true })
  const [data] = await once(parent.stdout, 'data')
  const pid = Number(data)
  process.kill(-parent.pid, 'SIGINT')
  await sleep(200)
  assert.deepEqual([lives(parent.pid), lives(pid)], [true, true])
  parent.kill('SIGKILL')
  await once(parent, 'exit')
  await ended(pid)
})

test('in a worker, which may be terminated', async () => {
  const source = `
    const { parentPort } = require('node:worker_threads')
    import(${hostUrl}).then(async ({ connect }) => {
      const host = await connect()
      const backend = await host.Backend.open()
      const tensor = await backend.createTensor({ type: 'f32', ne: [4] })
      await tensor.write(Float32Array.of(1, 2, 3, 4))
      parentPort.postMessage([host.pid, ...(await tensor.read())])
      for (;;) await tensor.fill(1)
    })`
  const worker = new Worker(source, { eval: true })
  const [[pid, ...values]] = await once(worker, 'message')
  assert.deepEqual(values, [1, 2, 3, 4])
  await worker.terminate()
  await ended(pid)
})

test('records of the child, also of the next one', async () => {
  const other = await connect()
  const seen = []
  const stop = other.onLog('debug', (record) => seen.push(record))
  const opened = async () => {
    seen.length = 0
    const backend = await other.Backend.open()
    await backend.synchronize()
    for (let i = 0; i < 100 && seen.length === 0; i++) await sleep(10)
    return seen.length
  }
  assert.ok((await opened()) > 0)
  other.kill()
  assert.ok((await opened()) > 0)
  stop()
  await other.close()
})

test('over Electron\'s utilityProcess', async () => {
  let utility
  const watched = { fork: (...args) => (utility = utilityProcess.fork(...args)) }
  const other = await connect({ utilityProcess: watched, serviceName: 'npu', env: { CANN_NODE_HOST_THREADS: '1' } })
  assert.equal(utility.serviceName, 'npu')
  const backend = await other.Backend.open()
  assert.match(backend.device.description, /, 1 thread$/)
  const n = 3 << 20
  const tensor = await backend.createTensor({ type: 'i64', ne: [n] })
  const data = BigInt64Array.from({ length: n }, (_, i) => BigInt(i))
  await tensor.write(data)
  // A window into larger memory: only the window is sent.
  await tensor.write(data.subarray(1, 2), 0)
  data[0] = 1n
  assert.deepEqual(await tensor.read(), data)
  const weights = await backend.loadWeights(largeModel(), { onProgress() {} })
  assert.equal(weights.metadata['general.architecture'], 'test')
  const running = Array.from({ length: 50 }, () => tensor.fill(1))
  process.kill(other.pid, 'SIGSEGV')
  await assert.rejects(Promise.all(running), { code: 'ERR_DEVICE_LOST' })
  assert.deepEqual(await other.listDevices().then((list) => list.length > 0), true)
  await other.close()
  assert.equal(other.pid, undefined)
})

test('answers that arrive together settle one after the other', async () => {
  const child = new EventEmitter()
  const asked = []
  child.pid = 1
  child.kill = () => child.emit('exit', 0)
  child.postMessage = ([id, name]) => {
    if (name === 'end') child.emit('message', [0, 'ended'])
    if (name !== 'listDevices' || asked.push(id) < 2) return
    for (const each of asked) child.emit('message', [each, 'value', []])
  }
  const fork = () => {
    setImmediate(() => child.emit('message', [0, 'ready']))
    return child
  }
  const other = await connect({ utilityProcess: { fork } })
  const order = []
  const same = (value) => value
  const first = other.listDevices().then(same).then(same).then(same).then(() => order.push(1))
  const second = other.listDevices().then(() => order.push(2))
  await Promise.all([first, second])
  assert.deepEqual(order, [1, 2])
  await other.close()
})

test('what is declared is there', () => {
  const text = readFileSync(join(root, 'host.d.ts'), 'utf8')
  const [, body] = /interface Host \{([\s\S]*?)^\}/m.exec(text)
  const names = [...body.matchAll(/^  (?:readonly )?(\w+)[(:]/gm)].map(([, name]) => name)
  assert.deepEqual(names.sort(), Object.keys(cann).sort())
  for (const name of Object.keys(local).filter((name) => name !== 'default')) assert.ok(name in cann, name)
})

test('wrong options', async () => {
  for (const options of [{ environment: {} }, { env: 1 }, { env: { A: 1 } }, { execArgv: [1] }, { cwd: 7 }, { cwd: '/nowhere' }, { utilityProcess: {} }, null]) {
    await rejection(() => connect(options), 'ERR_INVALID_ARG')
  }
  await failure(() => cann.onExit(1), 'ERR_INVALID_ARG')
})
