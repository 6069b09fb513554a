// Publishes what CI built and tested: the eight platform packages, then the root. Run by .github/workflows/release.yml.
//
//   node scripts/release.mjs --tag v1.2.3 --binaries DIR [--dry-run]
//
// A version is published whole or not at all as far as can be told before: it is refused when the tag, package.json, Cargo.toml, the platform
// manifests and the changelog do not agree, when a binary is missing, or when one for glibc needs more than is promised. What is
// already published is passed over, so that an interrupted run can be repeated.

import { spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'

import { commandLine } from './command-line.mjs'
import { packPlatform, packRoot } from './pack.mjs'
import { PLATFORMS } from './platform.mjs'
import { fail, root, sh } from './setup.mjs'

const { values } = commandLine({
  options: { tag: { type: 'string' }, binaries: { type: 'string' }, 'dry-run': { type: 'boolean', default: false } },
})
if (!values.tag || !values.binaries) fail('usage: node scripts/release.mjs --tag v1.2.3 --binaries DIR [--dry-run]')

const read = (path) => readFileSync(join(root, path), 'utf8')
const { version } = JSON.parse(read('package.json'))
const [, cargo] = /^\[workspace\.package\]\r?\nversion = "(.+)"/m.exec(read('Cargo.toml')) ?? []
const wrong = [
  [values.tag !== `v${version}`, `the tag ${values.tag} is not v${version}, the version of package.json`],
  [cargo !== version, `Cargo.toml has version ${cargo}`],
  [!read('CHANGELOG.md').includes(`\n## [${version}]`), `CHANGELOG.md has no section [${version}]`],
].flatMap(([applies, text]) => (applies ? [text] : []))
const binaries = PLATFORMS.map((platform) => ({ ...platform, binary: join(resolve(values.binaries), `cann-node.${platform.name}.node`) }))
for (const { name, binary } of binaries) if (!existsSync(binary)) wrong.push(`there is no binary for ${name}`)
if (wrong.length) fail(wrong.join('\n       '))
sh(process.execPath, ['scripts/platform-packages.mjs', '--check'])
sh(process.execPath, ['scripts/licenses.mjs', '--check'])
sh(process.execPath, ['scripts/glibc.mjs', ...binaries.filter(({ libc }) => libc === 'glibc').map(({ binary }) => binary)])

function isPublished(name) {
  const { stdout } = spawnSync('npm', ['view', `${name}@${version}`, 'version'], { encoding: 'utf8' })
  return stdout.trim() === version
}

const folder = mkdtempSync(join(tmpdir(), 'cann-node-release-'))
try {
  const packages = binaries.map(({ name, binary }) => packPlatform(name, binary, folder))
  // Last: whoever sees it can install the others.
  packages.push(packRoot(folder))
  for (const { name, path } of packages) {
    if (isPublished(name)) {
      console.log(`${name}@${version} is published already`)
      continue
    }
    const tag = version.includes('-') ? 'next' : 'latest'
    sh('npm', ['publish', path, '--access', 'public', '--provenance', '--tag', tag, ...(values['dry-run'] ? ['--dry-run'] : [])])
  }
} finally {
  rmSync(folder, { recursive: true, force: true })
}
