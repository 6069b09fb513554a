// The eight platform packages, and the root's dependency on them.
//
//   node scripts/platform-packages.mjs            writes npm/<platform>/package.json and README.md
//   node scripts/platform-packages.mjs --check    fails if they are not what it would write
//   node scripts/platform-packages.mjs --link     adds optionalDependencies to package.json: only in a tree that is to be published,
//                                                 because the packages of a version do not exist before it is

import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'

import { PLATFORMS } from './platform.mjs'

const root = fileURLToPath(new URL('..', import.meta.url))
const { values } = parseArgs({ options: { check: { type: 'boolean' }, link: { type: 'boolean' } } })
const main = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))

export function platformPackage({ name, os, cpu, libc }) {
  const file = `cann-node.${name}.node`
  return {
    name: `@cann-node/${name}`,
    version: main.version,
    description: `The binary of cann-node for ${name}`,
    license: main.license,
    engines: main.engines,
    os: [os],
    cpu: [cpu],
    ...(libc && { libc: [libc] }),
    main: file,
    exports: { '.': `./${file}`, [`./${file}`]: `./${file}`, './package.json': './package.json' },
    files: [file],
    preferUnplugged: true,
  }
}

let stale = false
for (const platform of PLATFORMS) {
  const folder = join(root, 'npm', platform.name)
  const files = {
    'package.json': `${JSON.stringify(platformPackage(platform), null, 2)}\n`,
    'README.md': `# @cann-node/${platform.name}\n\nThe binary of cann-node for ${platform.target}. Install \`cann-node\`; it brings this.\n`,
  }
  for (const [name, text] of Object.entries(files)) {
    const path = join(folder, name)
    if (existsSync(path) && readFileSync(path, 'utf8') === text) continue
    if (values.check) {
      console.error(`stale: npm/${platform.name}/${name}`)
      stale = true
      continue
    }
    mkdirSync(folder, { recursive: true })
    writeFileSync(path, text)
  }
}
if (values.link) {
  main.optionalDependencies = Object.fromEntries(PLATFORMS.map(({ name }) => [`@cann-node/${name}`, main.version]))
  writeFileSync(join(root, 'package.json'), `${JSON.stringify(main, null, 2)}\n`)
}
if (stale) process.exit(1)
