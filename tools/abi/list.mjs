// The one list of acl-sys as data: what crates/acl-sys/src/{types,functions}.rs declare, read as text, so that the check runs without a
// Rust tool chain. The reader is strict: a line of the list or a public item that it does not understand is an error, never left out.

import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

export const root = fileURLToPath(new URL('../..', import.meta.url))

/** Rust's scalars: the C spelling and the size in bytes on a 64-bit machine. */
const SCALARS = {
  c_void: ['void', 0], c_char: ['char', 1], bool: ['bool', 1], i8: ['int8_t', 1], u8: ['uint8_t', 1], i32: ['int32_t', 4], u32: ['uint32_t', 4],
  i64: ['int64_t', 8], u64: ['uint64_t', 8], usize: ['size_t', 8], f32: ['float', 4], f64: ['double', 8],
}
/** Public items of types.rs that are no part of the C interface. */
const OURS = new Set(['status_name', 'aclnnRun'])

/**
 * { aliases: [{ name, type }], opaque: [name], structs: [{ name, size, fields: [{ name, type, count, offset }] }],
 *   constants: [{ name, type, value }], functions: [{ name, group, args: [{ name, type }], ret, phase }] }
 * with types as Rust spells them. `phase` is 1 or 2 for an operator's functions.
 */
export function readList() {
  const source = (file) => readFileSync(new URL(`../../crates/acl-sys/src/${file}`, import.meta.url), 'utf8')
  const types = parseTypes(uncommented(source('types.rs').split('#[cfg(test)]')[0]))
  return { ...types, functions: parseFunctions(uncommented(source('functions.rs'))) }
}

const uncommented = (text) => text.replace(/\/\/.*$/gm, '')
const words = (text) => text.split(',').map((word) => word.trim()).filter(Boolean)

/** Every match of `pattern` from the start of `text`, which has to be nothing else. */
function rows(text, pattern, what) {
  const found = []
  let at = 0
  while (text.slice(at).trim()) {
    pattern.lastIndex = at
    const match = pattern.exec(text)
    if (!match) throw new Error(`${what}: not understood: ${text.slice(at).trim().split('\n')[0].slice(0, 100)}`)
    found.push(match)
    at = pattern.lastIndex
  }
  return found
}

function parseArgs(text, what) {
  return rows(text, /\s*(\w+):\s*([^,]+?)\s*(?:,|$)/gy, what).map(([, name, type]) => ({ name, type }))
}

function parseFunctions(text) {
  const [, plain, operators] = /\bfunctions \{([^]*?)\}\s*operators \{([^]*?)\}/.exec(text) ?? []
  if (!operators) throw new Error('functions.rs: no list of functions and operators')
  const functions = rows(plain, /\s*fn (\w+) (\w+)\(([^)]*)\) -> ([^;]+);/gy, 'functions.rs').map(([, group, name, args, ret]) => ({
    name, group, args: parseArgs(args, name), ret, phase: 0,
  }))
  const run = [
    { name: 'workspace', type: '*mut c_void' }, { name: 'workspace_size', type: 'u64' },
    { name: 'executor', type: '*mut aclOpExecutor' }, { name: 'stream', type: 'aclrtStream' },
  ]
  const sizing = [{ name: 'workspace_size', type: '*mut u64' }, { name: 'executor', type: '*mut *mut aclOpExecutor' }]
  for (const [, name, size, args] of rows(operators, /\s*op (\w+) (\w+)\(([^)]*)\);/gy, 'functions.rs')) {
    if (size !== `${name}GetWorkspaceSize`) throw new Error(`functions.rs: the phases of ${name} do not belong together`)
    functions.push({ name: size, group: 'Opapi', args: [...parseArgs(args, size), ...sizing], ret: 'aclnnStatus', phase: 1 })
    functions.push({ name, group: 'Opapi', args: run, ret: 'aclnnStatus', phase: 2 })
  }
  return functions
}

function parseTypes(text) {
  const aliases = []
  for (const [, name, type] of text.matchAll(/^pub type (\w+) = ([^;]+);/gm)) if (!OURS.has(name)) aliases.push({ name, type })
  const opaque = words(/^opaque!\(([^)]*)\);/m.exec(text)?.[1] ?? '')

  const structs = []
  for (const [, name, body] of text.matchAll(/^pub struct (\w+) \{([^}]*)\}/gm)) {
    const fields = rows(body, /\s*pub (?:r#)?(\w+): ([^,]+),/gy, name).map(([, field, type]) => {
      const [, element, count] = /^\[(\w+); (\d+)\]$/.exec(type) ?? [null, type, null]
      return { name: field, type: element, count: count && Number(count) }
    })
    structs.push({ name, fields })
  }

  const constants = []
  const value = (digits, name) => {
    const number = Number(digits)
    if (!Number.isInteger(number)) throw new Error(`types.rs: the value of ${name} is ${digits}`)
    return number
  }
  const pairs = (body, type) => rows(body, /\s*(\w+) = ([^,}]+?)\s*(?:,|$)/gy, type).map(([, name, digits]) => ({ name, type, value: value(digits, name) }))
  const lists = /^constants! \{([^]*?)^\}/m.exec(text)?.[1] ?? ''
  for (const [, type, body] of rows(lists, /\s*(\w+) \{([^}]*)\}/gy, 'constants!')) constants.push(...pairs(body, type))
  constants.push(...pairs(/^statuses! \{([^]*?)^\}/m.exec(text)?.[1] ?? '', 'aclError'))

  const known = new Set([...OURS, ...aliases.map((a) => a.name), ...structs.map((s) => s.name)])
  for (const [, item] of text.matchAll(/^\s*pub (?:const |unsafe )*(?:type|struct|enum|union|static|const|fn) (\w+)/gm)) {
    if (!known.has(item)) throw new Error(`types.rs: ${item} is public, but of a form that tools/abi does not read`)
  }
  layOut(structs, aliases, text)
  return { aliases, opaque, structs, constants }
}

/** Sizes and offsets by C's rules, compared with those that types.rs asserts and rustc has proven. */
function layOut(structs, aliases, text) {
  const size = (type) => {
    if (type.startsWith('*')) return [8, 8]
    if (SCALARS[type]) return [SCALARS[type][1], SCALARS[type][1]]
    const struct = structs.find((s) => s.name === type)
    if (struct) return [struct.size, struct.align]
    const alias = aliases.find((a) => a.name === type)
    if (!alias) throw new Error(`types.rs: ${type} has no size`)
    return size(alias.type)
  }
  const up = (at, align) => Math.ceil(at / align) * align
  for (const struct of structs) {
    let at = 0
    struct.align = 1
    for (const field of struct.fields) {
      const [bytes, align] = size(field.type)
      field.offset = up(at, align)
      field.size = bytes * (field.count ?? 1)
      at = field.offset + field.size
      struct.align = Math.max(struct.align, align)
    }
    struct.size = up(at, struct.align)
  }
  const expect = (name, ours, theirs) => {
    if (ours !== Number(theirs)) throw new Error(`types.rs asserts ${theirs} for ${name}, tools/abi has ${ours}`)
  }
  const of = (name) => structs.find((s) => s.name === name)
  for (const [, name, bytes] of text.matchAll(/\bsize_of::<(\w+)>\(\) == (\d+)/g)) expect(name, of(name).size, bytes)
  for (const [, name, bytes] of text.matchAll(/\balign_of::<(\w+)>\(\) == (\d+)/g)) expect(name, of(name).align, bytes)
  for (const [, name, field, bytes] of text.matchAll(/offset_of!\((\w+), (?:r#)?(\w+)\) == (\d+)/g)) {
    expect(`${name}.${field}`, of(name).fields.find((f) => f.name === field).offset, bytes)
  }
}

/** A Rust type of the list as C spells it. */
export function cType(type) {
  const pointer = /^\*(const|mut) (.+)$/.exec(type)
  if (!pointer) {
    if (!/^\w+$/.test(type)) throw new Error(`no C type for ${type}`)
    return SCALARS[type]?.[0] ?? type
  }
  const target = cType(pointer[2])
  if (pointer[1] === 'mut') return `${target}*`
  return target.endsWith('*') ? `${target} const*` : `const ${target}*`
}
