import assert from 'node:assert/strict'
import { test } from 'node:test'

import { Backend } from './helpers/api.mjs'
import { rejection, slowPlan, withBackend } from './helpers/index.mjs'

const use = withBackend()

test('an event is past when the work before it is', async () => {
  const event = await use.backend.createEvent()
  const { plan, inputs } = await slowPlan(use.backend)
  const running = plan.run(inputs)
  const recorded = use.backend.record(event)
  await event.synchronize()
  assert.equal(await event.query(), true)
  await Promise.all([running, recorded])
  plan.dispose()
  event.dispose()
  await rejection(() => use.backend.record(event), 'ERR_DISPOSED')
})

test('another backend waits for it', async () => {
  const second = await Backend.open()
  const event = await use.backend.createEvent()
  const source = await use.backend.createTensor({ type: 'i8', ne: [4] })
  await source.fill(1)
  await use.backend.record(event)
  await second.wait(event)
  await second.synchronize()
  assert.equal(await event.query(), true)
  await second.close()
})
