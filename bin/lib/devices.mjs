import { open } from './cann.mjs'
import { bytes, json, table } from './format.mjs'

export default {
  summary: 'list the devices that can be used',
  usage: 'devices',
  details: 'Options',
  async main({ values, out }) {
    const devices = await open().listDevices()
    if (values.json) return void out(json(devices))
    const rows = devices.map(({ name, driver, type, description, memory }) => [
      name,
      driver,
      type,
      bytes(memory.free),
      bytes(memory.total),
      description,
    ])
    out(table(['NAME', 'DRIVER', 'TYPE', 'FREE', 'TOTAL', 'DESCRIPTION'], rows, ['FREE', 'TOTAL']))
  },
}
