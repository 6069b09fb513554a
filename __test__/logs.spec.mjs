import assert from 'node:assert/strict'
import { test } from 'node:test'

import { Backend, onLog } from './helpers/api.mjs'
import { addGraph, failure, program } from './helpers/index.mjs'

const settled = () => new Promise((resolve) => setTimeout(resolve, 50))
const work = async () => {
  const backend = await Backend.open()
  const plan = await backend.prepare(addGraph())
  await plan.run({ x: new Float32Array(4), y: new Float32Array(4) })
  await backend.close()
  await settled()
}
const RANKS = ['error', 'warn', 'info', 'debug', 'trace']

test('records reach every listener at its level until it is stopped', async () => {
  const all = []
  const few = []
  const stopAll = onLog('trace', (record) => all.push(record))
  const stopFew = onLog('info', (record) => few.push(record))
  await work()
  stopAll()
  stopFew()
  stopFew()
  const seen = all.length
  await work()
  assert.equal(all.length, seen)
  for (const { level, target, message, fields } of all) {
    assert.ok(RANKS.includes(level))
    assert.equal(typeof target, 'string')
    assert.equal(typeof message, 'string')
    assert.equal(typeof fields, 'object')
  }
  assert.ok(few.every(({ level }) => RANKS.indexOf(level) <= 2))
  assert.deepEqual(few, all.filter(({ level }) => RANKS.indexOf(level) <= 2))
})

test('wrong arguments', async () => {
  await failure(() => onLog('loud', () => {}), 'ERR_INVALID_ARG')
  await failure(() => onLog('info'), 'ERR_INVALID_ARG')
})

test('a listener keeps no process alive, and its error is the process\'s', async () => {
  const quiet = await program("cann.onLog('trace', () => {})\nawait cann.listDevices()")
  assert.equal(quiet.code, 0)
  const told = "cann.onLog('info', () => { throw new Error('mine') })\nconst backend = await cann.Backend.open()\nawait backend.close()"
  const loud = await program(told)
  assert.equal(loud.code, 1)
  assert.match(loud.stderr, /mine/)
})

test('CANN_NODE_LOG prints to stderr', async () => {
  const text = 'const backend = await cann.Backend.open()\nawait backend.close()'
  const { code, stdout, stderr } = await program(text, { env: { CANN_NODE_LOG: 'trace' } })
  assert.deepEqual([code, stdout], [0, ''])
  assert.match(stderr, /async operator submission is ON/)
  for (const line of stderr.trim().split('\n')) assert.match(line, /^cann-node (error|warn|info|debug|trace) /)
})

test('a log that nobody reads fails no call', async () => {
  const text = 'const backend = await cann.Backend.open()\nawait backend.close()\nconsole.log("done")'
  const { code, stdout } = await program(text, { env: { CANN_NODE_LOG: 'trace' }, closed: 'stderr' })
  assert.deepEqual([code, stdout], [0, 'done\n'])
})
