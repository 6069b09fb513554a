// A short run of scripts/soak.mjs: random work in one process while calls fail and devices are lost. What it judges is said there.
//
// The library is built by `cargo build -p acl-fault-cabi`; without it this file is skipped.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { test } from 'node:test'

import { root } from './helpers/index.mjs'

const skip = 'bun' in process.versions || 'deno' in process.versions ? 'the script is for Node' : false

test('a third of a minute of random work under faults', { skip }, async (t) => {
  const child = spawn(process.execPath, ['scripts/soak.mjs', '--minutes', '0.33', '--share', '1', '--every', '500'], { cwd: root })
  let output = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (output += chunk))
  const code = await new Promise((resolve) => child.on('close', resolve))
  if (code === 2 && output.includes('the fault library is not there')) return t.skip(output.trim())
  assert.equal(code, 0, output)
  const calls = /ACL calls=\d+ failed=[1-9]\d*/.exec(output)
  assert.ok(calls, output)
  t.diagnostic(calls[0])
})
