// The package, as the commands use it.

import * as cann from '../../index.mjs'
import { UsageError } from './usage.mjs'

const LEVELS = ['error', 'warn', 'info', 'debug', 'trace']

/** The package, with its log on stderr if CANN_NODE_LOG asks for it. */
export function open() {
  const level = process.env.CANN_NODE_LOG
  if (LEVELS.includes(level)) {
    cann.onLog(level, ({ level, target, message, fields }) => {
      const rest = Object.entries(fields).map(([name, value]) => ` ${name}=${value}`)
      process.stderr.write(`${level} ${target}: ${message}${rest.join('')}\n`)
    })
  }
  return cann
}

/** Options of every command that opens a backend. */
export const BACKEND_OPTIONS = { device: { type: 'string' }, threads: { type: 'string' } }
export const BACKEND_DETAILS = `  --device NAME        a name of \`cann-node devices\` (default: the first)
  --threads N          threads of the embedded device`

export async function openBackend({ device, threads }) {
  const options = {}
  if (device !== undefined) options.device = device
  if (threads !== undefined) options.threads = count(threads, '--threads')
  return open().Backend.open(options)
}

/** A whole number of at least 1 from the command line. */
export function count(text, option) {
  if (!/^[1-9]\d{0,8}$/.test(text)) throw new UsageError(`${option} needs a whole number of at least 1, not '${text}'`)
  return Number(text)
}
