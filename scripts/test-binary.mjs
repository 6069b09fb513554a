// Tests a binary that was built elsewhere, on a machine without Rust: the JavaScript specs that need nothing else.
//
//   node scripts/test-binary.mjs

import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

import { root } from './setup.mjs'

// What another job runs: it builds libraries with cargo, or takes a model of a hundred megabytes.
const NEEDS_MORE = /cargo|CANN_NODE_MODEL|CANN_NODE_GEMMA|localModel/
const names = readdirSync(join(root, '__test__')).filter((name) => name.endsWith('.spec.mjs')).sort()
const files = names.map((name) => join('__test__', name)).filter((path) => !NEEDS_MORE.test(readFileSync(join(root, path), 'utf8')))
const args = ['--expose-gc', '--test', '--test-concurrency=1', '--test-reporter=spec', ...files]
process.exitCode = spawnSync(process.execPath, args, { cwd: root, stdio: 'inherit' }).status ?? 1
