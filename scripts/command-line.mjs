// The command line of a script. `--help` prints the comment that the script begins with; what is not understood ends with exit code 2.

import { readFileSync } from 'node:fs'
import { parseArgs } from 'node:util'

export function commandLine({ options, ...config } = {}) {
  let parsed
  try {
    parsed = parseArgs({ ...config, options: { ...options, help: { type: 'boolean', short: 'h' } } })
  } catch (error) {
    console.error(`error: ${error.message}\nhint: --help says what there is`)
    process.exit(2)
  }
  if (!parsed.values.help) return parsed
  const lines = readFileSync(process.argv[1], 'utf8').split('\n')
  const comment = lines.slice(0, lines.findIndex((line) => !line.startsWith('//')))
  console.log(comment.map((line) => line.replace(/^\/\/ ?/, '')).join('\n'))
  process.exit(0)
}
