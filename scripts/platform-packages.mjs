// The manifests of the eight platform packages, in npm/<platform>/.
//
//   node scripts/platform-packages.mjs            writes npm/<platform>/package.json and README.md
//   node scripts/platform-packages.mjs --check    fails if they are not what it would write

import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

import { commandLine } from './command-line.mjs'
import { PLATFORMS } from './platform.mjs'
import { root } from './setup.mjs'

const { values } = commandLine({ options: { check: { type: 'boolean' } } })
const main = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))

function manifest({ name, os, cpu, libc }) {
  const file = `cann-node.${name}.node`
  return {
    name: `@cann-node/${name}`,
    version: main.version,
    description: `The binary of cann-node for ${name}`,
    license: main.license,
    type: 'commonjs',
    engines: main.engines,
    os: [os],
    cpu: [cpu],
    ...(libc && { libc: [libc] }),
    ...(libc === 'glibc' && { config: main.config }),
    main: file,
    exports: { '.': `./${file}`, [`./${file}`]: `./${file}`, './package.json': './package.json' },
    files: [file, 'LICENSE', 'NOTICE', 'THIRD-PARTY-LICENSES'],
    preferUnplugged: true,
  }
}

let stale = false
for (const platform of PLATFORMS) {
  const folder = join(root, 'npm', platform.name)
  const title = `@cann-node/${platform.name}`
  const files = {
    'package.json': `${JSON.stringify(manifest(platform), null, 2)}\n`,
    'README.md': `# ${title}\n\nThe binary of cann-node for ${platform.target}. Install \`cann-node\`: it brings this.\n`,
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
if (stale) process.exit(1)
