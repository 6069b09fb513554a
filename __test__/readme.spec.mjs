// The README's first example runs as it stands.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))

test('the example of the README runs', () => {
  const [, code] = /```js\n([\s\S]*?)```/.exec(readFileSync(`${root}README.md`, 'utf8').replaceAll('\r\n', '\n'))
  // Standard input is a module of the checkout, so 'cann-node' is the package itself.
  const { status, stdout, stderr } = spawnSync(process.execPath, ['--input-type=module'], { cwd: root, input: code, encoding: 'utf8' })
  assert.equal(status, 0, stderr)
  assert.match(stdout, /HOST0|CANN0/)
  assert.match(stdout, /Float32Array\(6\)/)
})
