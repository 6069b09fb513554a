// From the words of a command line to a command, and from what it throws to an exit code: 0 done, 1 failed, 2 wrong usage,
// 130 interrupted. The package's addon is opened by the commands, not here: --help works without it.

import { createRequire } from 'node:module'
import { parseArgs } from 'node:util'

import devices from './devices.mjs'
import doctor from './doctor.mjs'
import info from './info.mjs'
import run from './run.mjs'
import upload from './upload.mjs'
import { UsageError } from './usage.mjs'

/** A command: { summary, usage, details, options, files, main({ values, files, signal, out }) }. */
const COMMANDS = { devices, doctor, info, upload, run }
const COMMON = {
  json: { type: 'boolean', default: false },
  help: { type: 'boolean', short: 'h', default: false },
}

export async function main(words, { out = (text) => process.stdout.write(`${text}\n`), err = (text) => process.stderr.write(`${text}\n`) } = {}) {
  const [name, ...rest] = words
  if (name === undefined || name === '--help' || name === '-h' || name === 'help') {
    const topic = rest[0] && Object.hasOwn(COMMANDS, rest[0]) ? rest[0] : undefined
    const text = topic ? commandHelp(topic) : overview()
    if (name === undefined) err(text)
    else out(text)
    return name === undefined ? 2 : 0
  }
  if (name === '--version' || name === '-v') {
    out(createRequire(import.meta.url)('../../package.json').version)
    return 0
  }
  if (!Object.hasOwn(COMMANDS, name)) {
    err(`error: there is no command '${name}'\nhint: the commands are ${Object.keys(COMMANDS).join(', ')}; see cann-node --help`)
    return 2
  }

  const command = COMMANDS[name]
  const controller = new AbortController()
  const interrupt = () => {
    // A second Ctrl-C does not wait for the cleaning up.
    if (controller.signal.aborted) process.exit(130)
    controller.abort(new Error('interrupted'))
  }
  try {
    const { values, positionals } = parse(command, rest)
    if (values.help) {
      out(commandHelp(name))
      return 0
    }
    const needed = command.files?.length ?? 0
    if (positionals.length < needed) throw new UsageError(`missing ${command.files[positionals.length]}`)
    if (positionals.length > needed) throw new UsageError(`unexpected '${positionals[needed]}'`)
    process.on('SIGINT', interrupt)
    return (await command.main({ values, files: positionals, signal: controller.signal, out })) ?? 0
  } catch (error) {
    if (error instanceof UsageError) {
      err(`error: ${error.message}\nusage: cann-node ${command.usage}`)
      return 2
    }
    if (controller.signal.aborted) {
      err('interrupted')
      return 130
    }
    err(describe(error))
    return 1
  } finally {
    process.off('SIGINT', interrupt)
  }
}

function parse(command, args) {
  try {
    return parseArgs({ args, options: { ...COMMON, ...command.options }, allowPositionals: true })
  } catch (error) {
    throw new UsageError(error.message.split('. ')[0])
  }
}

/** `error CODE: message` and a line per hint; the stack only for those who debug. */
export function describe(error) {
  const code = error?.code ? ` ${error.code}` : ''
  const lines = [`error${code}: ${error?.message ?? error}`]
  if (error?.hint && !lines[0].includes(error.hint)) lines.push(`hint: ${error.hint}`)
  if (process.env.CANN_NODE_LOG === 'debug' || process.env.CANN_NODE_LOG === 'trace') lines.push(error?.stack ?? '')
  return lines.join('\n')
}

function overview() {
  const rows = Object.values(COMMANDS).map(({ usage, summary }) => `  ${usage.padEnd(46)} ${summary}`)
  return `Ascend NPU (or CPU) compute for GGUF models.

Usage: cann-node COMMAND [options]

${rows.join('\n')}

Options
  --json           of any command: one JSON document on stdout instead of text
  -h, --help       this text; cann-node COMMAND --help for a command's
  -v, --version    the version

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
CANN_NODE_LOG=warn (error, info, debug, trace) prints the library's log to stderr.`
}

function commandHelp(name) {
  const { summary, usage, details } = COMMANDS[name]
  return `${summary}

Usage: cann-node ${usage}

${details}
  --json               one JSON document on stdout instead of text
  -h, --help           this text`
}
