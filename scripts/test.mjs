// npm test: does its own set-up (tools, addon), then runs the specs and the type test.
//
//   npm test -- [--no-build] [--debug] [--types] [--only NAME]

import { spawnSync } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'

import { build, checkNode, installTools, root, sh } from './setup.mjs'

const { values } = parseArgs({
  options: {
    build: { type: 'boolean', default: true },
    debug: { type: 'boolean', default: false },
    types: { type: 'boolean', default: false },
    only: { type: 'string' },
  },
  allowNegative: true,
})

checkNode()
installTools()
sh(process.execPath, [join(root, 'node_modules/typescript/bin/tsc'), '-p', root])
console.log('the declarations satisfy the contract')
if (values.types) process.exit(0)

if (values.build && values.debug) sh(process.execPath, [join(root, 'scripts/build.mjs'), '--debug'])
else if (values.build) build()

const specs = readdirSync(join(root, '__test__')).filter((name) => name.endsWith('.spec.mjs') && name.includes(values.only ?? ''))
// Files one after the other: some measure time, and each backend takes all cores.
const args = ['--expose-gc', '--test', '--test-concurrency=1', ...specs.map((name) => join(root, '__test__', name))]
const { status } = spawnSync(process.execPath, args, { cwd: root, stdio: 'inherit' })
process.exit(status ?? 1)
