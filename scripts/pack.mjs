// Makes the tarballs that are published: the root package and a platform package for each binary there is.
//
//   node scripts/pack.mjs [--out dist] [--binaries .] [--all]
//
// --binaries is a folder with cann-node.<platform>.node files; with --all each of the eight must be there. The root's
// optionalDependencies are written here and not committed: the packages of a version do not exist before it is published, so a clone that
// named them could not be installed.

import { execFileSync } from 'node:child_process'
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'

import { isMain } from '../examples/is-main.mjs'
import { commandLine } from './command-line.mjs'
import { PLATFORMS } from './platform.mjs'
import { fail, root } from './setup.mjs'

const readJson = (path) => JSON.parse(readFileSync(path, 'utf8'))

function npmPack(cwd, ...args) {
  const options = { cwd, encoding: 'utf8', shell: process.platform === 'win32' }
  return JSON.parse(execFileSync('npm', ['pack', '--json', '--ignore-scripts', ...args], options))[0]
}

/** Where the sources are, which provenance wants in each manifest; known in a workflow only. */
function repository({ GITHUB_SERVER_URL, GITHUB_REPOSITORY } = process.env) {
  return GITHUB_REPOSITORY && { repository: { type: 'git', url: `git+${GITHUB_SERVER_URL}/${GITHUB_REPOSITORY}.git` } }
}

/** What a user gets of the root manifest: nothing of the development, and the platform packages at exactly this version. */
export function publishedManifest(main) {
  const { scripts, devDependencies, ...rest } = main
  const optionalDependencies = Object.fromEntries(PLATFORMS.map(({ name }) => [`@cann-node/${name}`, main.version]))
  return { ...rest, ...repository(), optionalDependencies }
}

/** Packs `files` ({ name in the package: where it is }) under a manifest. */
function pack(manifest, files, out) {
  const stage = mkdtempSync(join(tmpdir(), 'cann-node-pack-'))
  try {
    for (const [name, from] of Object.entries(files)) {
      mkdirSync(dirname(join(stage, name)), { recursive: true })
      copyFileSync(from, join(stage, name))
    }
    writeFileSync(join(stage, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`)
    const made = npmPack(stage, '--pack-destination', out)
    const packed = made.files.map(({ path }) => path)
    const absent = Object.keys(files).find((name) => !packed.includes(name))
    if (absent) throw new Error(`${manifest.name}: ${absent} did not get into the package`)
    return { name: made.name, version: made.version, bytes: made.size, installedBytes: made.unpackedSize, path: join(out, made.filename) }
  } finally {
    rmSync(stage, { recursive: true, force: true })
  }
}

export function packRoot(out) {
  const main = readJson(join(root, 'package.json'))
  const names = npmPack(root, '--dry-run').files.map(({ path }) => path)
  const files = Object.fromEntries(names.filter((name) => name !== 'package.json').map((name) => [name, join(root, name)]))
  return pack(publishedManifest(main), files, out)
}

export function packPlatform(platform, binary, out) {
  const folder = join(root, 'npm', platform)
  const manifest = { ...readJson(join(folder, 'package.json')), ...repository() }
  const { version } = readJson(join(root, 'package.json'))
  if (manifest.version !== version) fail(`npm/${platform} is not version ${version}: node scripts/platform-packages.mjs`)
  const files = Object.fromEntries(manifest.files.map((name) => [name, join(root, name)]))
  return pack(manifest, { ...files, [manifest.main]: binary, 'README.md': join(folder, 'README.md') }, out)
}

if (isMain(import.meta.filename)) {
  const { values } = commandLine({
    options: {
      out: { type: 'string', default: 'dist' },
      binaries: { type: 'string', default: root },
      all: { type: 'boolean', default: false },
    },
  })
  const out = resolve(values.out)
  mkdirSync(out, { recursive: true })
  const made = [packRoot(out)]
  for (const { name } of PLATFORMS) {
    const binary = join(resolve(values.binaries), `cann-node.${name}.node`)
    if (existsSync(binary) && statSync(binary).size > 0) made.push(packPlatform(name, binary, out))
    else if (values.all) fail(`there is no ${binary}`)
  }
  const mb = (bytes) => `${(bytes / 1e6).toFixed(2)} MB`
  for (const { name, version, bytes, installedBytes, path } of made) {
    console.log(`${name}@${version}: ${mb(bytes)} packed, ${mb(installedBytes)} installed: ${path}`)
  }
}
