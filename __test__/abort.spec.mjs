import assert from 'node:assert/strict'
import { getEventListeners } from 'node:events'
import { test } from 'node:test'

import { addGraph, slowPlan, withBackend } from './helpers/index.mjs'

const use = withBackend()
const inputs = { x: Float32Array.of(1, 2, 3, 4), y: Float32Array.of(1, 1, 1, 1) }
const isReason = (reason) => (error) => error === reason

test('aborted before: exactly the reason, and nothing is queued', async () => {
  const plan = await use.backend.prepare(addGraph())
  const before = (await use.backend.stats()).queue.submitted
  for (const reason of [new Error('no'), 'text', 0, null]) {
    await assert.rejects(
      plan.run(inputs, { signal: AbortSignal.abort(reason) }),
      (error) => error === (reason === undefined ? error : reason),
    )
  }
  await assert.rejects(plan.run(inputs, { signal: AbortSignal.abort() }), { name: 'AbortError' })
  assert.equal((await use.backend.stats()).queue.submitted, before)
  plan.dispose()
})

test('aborted during: at once, and what follows is right', async () => {
  const { plan, inputs: slow } = await slowPlan(use.backend)
  const quick = await use.backend.prepare(addGraph())
  const control = new AbortController()
  const reason = new Error('stop')
  const running = plan.run(slow, { signal: control.signal })
  const after = quick.run(inputs)
  setTimeout(() => control.abort(reason), 5)
  await assert.rejects(running, isReason(reason))
  assert.deepEqual([...(await after).z], [2, 3, 4, 5])
  plan.dispose()
  quick.dispose()
})

test('aborted while it waits behind others: it never starts', async () => {
  const { plan, inputs: slow } = await slowPlan(use.backend)
  const control = new AbortController()
  const first = plan.run(slow)
  const second = plan.run(slow, { signal: control.signal })
  control.abort('gone')
  await assert.rejects(second, isReason('gone'))
  await first
  plan.dispose()
})

test('aborted after: nothing happens, no listener is left, one signal serves many', async () => {
  const plan = await use.backend.prepare(addGraph())
  const { signal, abort } = (() => {
    const control = new AbortController()
    return { signal: control.signal, abort: () => control.abort() }
  })()
  const many = Array.from({ length: 20 }, () => plan.run(inputs, { signal }))
  // More than ten would be a warning of Node's.
  assert.equal(getEventListeners(signal, 'abort').length, 1)
  await Promise.all(many)
  await plan.run(inputs, { signal })
  assert.equal(getEventListeners(signal, 'abort').length, 0)
  abort()
  plan.dispose()
})

test('AbortSignal.timeout', async () => {
  const { plan, inputs: slow } = await slowPlan(use.backend, 256, 400)
  await assert.rejects(plan.run(slow, { signal: AbortSignal.timeout(1) }), { name: 'TimeoutError' })
  plan.dispose()
})
