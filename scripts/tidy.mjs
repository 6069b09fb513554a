// Rules about the repository that no compiler knows: links in the documents lead somewhere, and what the sources can say or read is
// documented. Prints each breach and exits 1.

import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { commandLine } from './command-line.mjs'
import { root } from './setup.mjs'

commandLine()

const breaches = []
const read = (path) => readFileSync(join(root, path), 'utf8')

/** Files below a folder of the checkout whose name ends so, without what is built or installed. */
function* files(folder, endings) {
  for (const entry of readdirSync(join(root, folder), { withFileTypes: true })) {
    if (['target', 'node_modules', '.git', 'site'].includes(entry.name)) continue
    const path = join(folder, entry.name)
    if (entry.isDirectory()) yield* files(path, endings)
    else if (endings.some((ending) => entry.name.endsWith(ending))) yield path
  }
}

for (const path of files('.', ['.md'])) {
  for (const [, target] of read(path).matchAll(/\]\(([^)#\s]+)(?:#[^)]*)?\)/g)) {
    if (/^[a-z]+:/.test(target)) continue
    if (!existsSync(join(root, dirname(path), target))) breaches.push(`${path}: the link to ${target} leads nowhere`)
  }
}

const sources = ['src', 'crates', 'lib', 'bin', 'scripts', 'native.js'].flatMap((place) =>
  place.endsWith('.js') ? [place] : [...files(place, ['.rs', '.js', '.mjs'])],
)
const environment = read('docs/environment.md')
const variables = new Set(sources.flatMap((path) => [...read(path).matchAll(/\b(?:CANN_NODE|GGML_CANN)_[A-Z0-9_]*[A-Z0-9]\b/g)].map(([name]) => name)))
for (const name of variables) {
  if (!environment.includes(`\`${name}\``)) breaches.push(`docs/environment.md does not have ${name}`)
}

// Electron forbids memory that V8 does not own, and its allocator ends the process at a gigabyte of aligned memory: what native code
// hands to JavaScript is a copy, and what is as large as a model is mapped.
const forbidden = [
  [['src'], /\b(?:from_external|from_data|with_external_data|external_arraybuffer|(?:Uint|Int|BigUint|BigInt|Float)\w*Array::(?:new|from)\b|Buffer::(?:new|from)\b|ArrayBuffer::from)/],
  [['src', 'crates'], /\b(?:from_size_align\w*|alloc_zeroed|posix_memalign|memalign|aligned_alloc|global_allocator)\b/],
]
for (const [folders, pattern] of forbidden) {
  for (const path of folders.flatMap((folder) => [...files(folder, ['.rs'])])) {
    const found = read(path).match(pattern)
    if (found) breaches.push(`${path}: ${found[0]}: not in Electron (docs/electron.md)`)
  }
}

// What Git would change on Windows: scripts that bash reads there, and texts that tests compare.
const listed = spawnSync('git', ['ls-files', '--eol'], { cwd: root, encoding: 'utf8' }).stdout ?? ''
for (const line of listed.split('\n').filter(Boolean)) {
  if (!line.includes('attr/-text')) breaches.push(`${line.split('\t')[1]}: Git may change its ends of lines`)
}

const errors = read('docs/errors.md')
const codes = new Set([...read('index.d.ts').matchAll(/'(ERR_[A-Z_]+)'/g)].map(([, code]) => code))
for (const code of codes) if (!errors.includes(`## ${code}`)) breaches.push(`docs/errors.md has no section ${code}`)

for (const breach of breaches) console.log(breach)
console.log(breaches.length ? `${breaches.length} breaches` : 'tidy')
process.exitCode = breaches.length ? 1 : 0
