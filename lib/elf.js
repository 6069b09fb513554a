'use strict'

// A look at a Linux library before the system opens it. glibc answers one for another processor with "No such file or directory", and one
// that is cut off ends the process with SIGBUS.

const { closeSync, fstatSync, openSync, readSync } = require('node:fs')

const MACHINES = { x64: 62, arm64: 183 }
const HEADER_BYTES = 64
const LOADED = 1

/** What keeps the file from being opened on a processor of this kind, or nothing. */
function defect(path, arch = process.arch) {
  const file = openSync(path, 'r')
  try {
    const { size } = fstatSync(file)
    const header = Buffer.alloc(HEADER_BYTES)
    const headerBytes = readSync(file, header, 0, HEADER_BYTES, 0)
    if (headerBytes < HEADER_BYTES || header.toString('latin1', 0, 4) !== '\x7fELF') return 'the file is damaged: it has no ELF header'
    const machine = header.readUInt16LE(18)
    if (header[4] !== 2 || (MACHINES[arch] ?? machine) !== machine) {
      return `the file is for another processor (ELF machine ${machine}, this is ${arch})`
    }
    // What dlopen maps: the loaded segments of the program header table.
    const entryBytes = header.readUInt16LE(54)
    const table = Buffer.alloc(entryBytes * header.readUInt16LE(56))
    readSync(file, table, 0, table.length, Number(header.readBigUInt64LE(32)))
    for (let at = 0; at + 40 <= table.length; at += entryBytes) {
      const end = Number(table.readBigUInt64LE(at + 8) + table.readBigUInt64LE(at + 32))
      if (table.readUInt32LE(at) === LOADED && end > size) return `the file is damaged: it has ${size} of at least ${end} bytes`
    }
    return undefined
  } finally {
    closeSync(file)
  }
}

module.exports = { defect }
