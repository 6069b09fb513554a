import assert from 'node:assert/strict'
import { test } from 'node:test'

import { driverReport, listDevices } from './helpers/api.mjs'
import { program } from './helpers/index.mjs'

test('the embedded device is always there', async () => {
  const devices = await listDevices()
  const host = devices.find((device) => device.driver === 'host')
  assert.equal(host.name, 'HOST0')
  assert.match(host.description, /^Host: .+, (scalar|avx2|neon|dotprod), \d+ threads?$/)
  assert.equal(host.type, 'cpu')
  assert.ok(host.memory.total > 0 && host.memory.free <= host.memory.total)
  assert.deepEqual(Object.keys(host.caps), ['async', 'hostBuffer', 'bufferFromHostPtr', 'events'])
  devices.forEach((device, i) => assert.equal(device.index, i))
})

test('the report has both drivers and says what was looked for', async () => {
  const [cann, host] = await driverReport()
  assert.equal(cann.driver, 'cann')
  assert.equal(host.driver, 'host')
  assert.equal(host.available, true)
  assert.equal(host.hint, null)
  if (!cann.available) {
    assert.equal(typeof cann.hint, 'string')
    for (const library of cann.libraries) assert.ok(library.error !== null || library.path !== null)
  }
})

test('several virtual devices, and a list while others are listed', async () => {
  const text = `
    const lists = await Promise.all([cann.listDevices(), cann.listDevices(), cann.listDevices()])
    console.log(JSON.stringify(lists.map((list) => list.map((d) => d.name))))`
  const { stdout, code } = await program(text, { env: { CANN_NODE_HOST_DEVICES: '2' } })
  assert.equal(code, 0)
  for (const names of JSON.parse(stdout)) assert.deepEqual(names.filter((n) => n.startsWith('HOST')), ['HOST0', 'HOST1'])
})

test('a library that is none is reported, and the embedded device stays', async () => {
  const text = `
    const [cann_] = await cann.driverReport()
    console.log(JSON.stringify([cann_, (await cann.listDevices()).map((d) => d.driver)]))`
  const { stdout, code } = await program(text, { env: { CANN_NODE_ACL_LIB: '/nonexistent/libacl.so' } })
  assert.equal(code, 0)
  const [report, drivers] = JSON.parse(stdout)
  assert.equal(report.available, false)
  assert.equal(report.libraries[0].path, '/nonexistent/libacl.so')
  assert.notEqual(report.libraries[0].error, null)
  assert.deepEqual(drivers, ['host'])
})
