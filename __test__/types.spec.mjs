import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { test } from 'node:test'

import * as cann from '../index.mjs'
import { generateOps } from '../scripts/ops.mjs'
import { root } from './helpers/index.mjs'

const native = createRequire(import.meta.url)('../native.js').load()

test('the declarations satisfy the contract', () => {
  const tsc = join(root, 'node_modules/typescript/bin/tsc')
  const { status, stdout } = spawnSync(process.execPath, [tsc, '-p', root], { encoding: 'utf8' })
  assert.equal(status, 0, stdout)
})

test('every declared export exists, and every export is declared', () => {
  const declared = readFileSync(join(root, 'index.d.ts'), 'utf8')
  const names = [...declared.matchAll(/^export (?:class|function) (\w+)/gm)].map(([, name]) => name)
  assert.deepEqual([...new Set(names)].sort(), Object.keys(cann).filter((name) => name !== 'default').sort())
})

test('every declared member exists', () => {
  const declared = readFileSync(join(root, 'index.d.ts'), 'utf8')
  for (const [, name, body] of declared.matchAll(/^export class (\w+)[^{]*\{\n([\s\S]*?)^\}/gm)) {
    if (name === 'CannError') continue
    for (const [, isStatic, member] of body.matchAll(/^  (static )?(?:readonly )?(\w+)[(<:?]/gm)) {
      if (member === 'constructor') continue
      assert.ok(member in (isStatic ? cann[name] : cann[name].prototype), `${name}.${member}`)
    }
  }
})

test('the typed methods are those of the op table', () => {
  const { runtime, types } = generateOps(native.opTable())
  assert.equal(readFileSync(join(root, 'lib/ops.js'), 'utf8'), runtime, 'lib/ops.js is stale: npm run build')
  assert.equal(readFileSync(join(root, 'ops.d.ts'), 'utf8'), types, 'ops.d.ts is stale: npm run build')
})

test('the platform packages are fresh', () => {
  const { status, stderr } = spawnSync(process.execPath, [join(root, 'scripts/platform-packages.mjs'), '--check'], { encoding: 'utf8' })
  assert.equal(status, 0, stderr)
})

test('THIRD-PARTY-LICENSES names the crates that are compiled in', (t) => {
  const { error } = spawnSync('cargo', ['--version'])
  if (error) return t.skip('no cargo here')
  const { status, stderr } = spawnSync(process.execPath, [join(root, 'scripts/licenses.mjs'), '--check'], { encoding: 'utf8' })
  assert.equal(status, 0, stderr)
})
