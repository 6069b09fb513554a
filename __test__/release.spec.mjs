import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'

import { PLATFORMS } from '../scripts/platform.mjs'
import { root, withFolder } from './helpers/index.mjs'

const at = withFolder()
const release = (...args) => spawnSync(process.execPath, [join(root, 'scripts/release.mjs'), '--dry-run', ...args], { encoding: 'utf8' })

test('a release is refused for another tag and for each binary that is missing', () => {
  const [first, ...others] = PLATFORMS
  writeFileSync(join(at.folder, `cann-node.${first.name}.node`), 'there')
  const { status, stderr } = release('--tag', 'v99.0.0', '--binaries', at.folder)
  assert.equal(status, 1)
  assert.match(stderr, /the tag v99\.0\.0 is not v\d+\.\d+\.\d+/)
  assert.doesNotMatch(stderr, new RegExp(`no binary for ${first.name}`))
  for (const { name } of others) assert.match(stderr, new RegExp(`no binary for ${name}\n`))
})
