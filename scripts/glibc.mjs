// Says which glibc a Linux binary needs, and fails if that is newer than the packages promise (package.json, config.glibc).
//
//   node scripts/glibc.mjs FILE.node…

import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { fail, root } from './setup.mjs'

const parts = (version) => version.split('.').map(Number)
const newer = (a, b) => parts(a).map((n, i) => n - (parts(b)[i] ?? 0)).find((n) => n !== 0) > 0

const promised = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')).config.glibc.replace('>=', '')
const files = process.argv.slice(2)
if (files.length === 0) fail('name the binaries to look at')
for (const file of files) {
  // The version names are strings of the dynamic section; nothing else in a binary looks like them.
  const versions = [...readFileSync(file, 'latin1').matchAll(/\0GLIBC_(\d+\.[\d.]+)(?=\0)/g)].map(([, version]) => version)
  if (versions.length === 0) fail(`${file} names no version of glibc: is it a binary for it?`)
  const needed = versions.reduce((a, b) => (newer(a, b) ? a : b))
  console.log(`${file}: glibc ${needed}, promised ${promised}`)
  if (newer(needed, promised)) fail(`${file} needs glibc ${needed}, but the package says ${promised}`)
}
