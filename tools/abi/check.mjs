// Compares acl-sys with published ACL headers: sizes, offsets, constants and signatures become static_asserts of a C++ file that g++ reads
// together with the headers. Nothing is linked or run.
//
//   node tools/abi/check.mjs                     the versions that CI checks
//   node tools/abi/check.mjs --version 2.7.1     the headers in that version of torch-npu
//   node tools/abi/check.mjs --headers DIR       an include folder, such as that of an installed CANN (which has the operators too)
//     --break NAME     changes what is expected of one name, which must make the check fail
//     --print          prints the C++ file instead
//     --require        headers that cannot be fetched are a failure
//
// Exits 0 when all that the headers declare agrees, or (with a line that says so) when there is no compiler or no headers; else 1.

import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { join, relative } from 'node:path'
import { parseArgs } from 'node:util'

import { isMain } from '../../examples/is-main.mjs'
import { VERSIONS, publishedHeaders } from './headers.mjs'
import { cType, readList } from './list.mjs'

const COMPILER = 'g++'
const FLAGS = ['-std=c++14', '-w', '-x', 'c++']
const RUNTIME = ['acl/acl.h', 'acl/acl_mdl.h', 'aclnn/acl_meta.h', 'aclnn/aclnn_base.h']
// A pointer's const is no part of a binary interface: for operators, whose headers differ in it from release to release, it is dropped.
const PRELUDE = `#include <cstddef>
#include <cstdint>
#include <type_traits>
template <class T> struct Loose { typedef T type; };
template <class T> struct Loose<T*> { typedef typename Loose<typename std::remove_const<T>::type>::type* type; };
template <class A, class B> struct Same : std::false_type {};
template <class R, class S, class... A, class... B> struct Same<R (*)(A...), S (*)(B...)>
    : std::is_same<typename Loose<R>::type (*)(typename Loose<A>::type...), typename Loose<S>::type (*)(typename Loose<B>::type...)> {};
`

export const hasCompiler = () => spawnSync(COMPILER, ['--version'], { stdio: 'ignore' }).status === 0

/**
 * Everything of the list that can be compared: { kind, name, owner, group, asserts(broken) }. `owner` is the identifier that a header has to
 * declare; an assert is [C++ condition, what it says].
 */
export function comparisons(list) {
  const items = []
  const add = (kind, name, group, asserts, owner = name) => items.push({ kind, name, owner, group, asserts })
  for (const { name, type } of list.aliases) {
    add('type', name, 'types', (broken) => {
      const expected = broken ? 'char' : cType(type)
      const condition = type.startsWith('*') ? '' : `std::is_enum<${name}>::value && sizeof(${name}) == sizeof(${expected}) || `
      return [[`${condition}std::is_same<${name}, ${expected}>::value`, `${name} is ${expected}${condition && ' or an enumeration of its size'}`]]
    })
  }
  for (const name of list.opaque) add('type', name, 'types', (broken) => [[`std::is_class<${name}${broken ? '*' : ''}>::value`, `${name} is a struct`]])
  for (const { name, size, align, fields } of list.structs) {
    add('struct', name, 'types', (broken) => [
      [`sizeof(${name}) == ${size + Number(broken)}`, `${name} has ${size + Number(broken)} bytes`],
      [`alignof(${name}) == ${align}`, `${name} is aligned to ${align} bytes`],
    ])
    for (const field of fields) {
      const path = `${name}.${field.name}`
      const type = cType(field.type) + (field.count ? `[${field.count}]` : '')
      const asserts = (broken) => [
        [`offsetof(${name}, ${field.name}) == ${field.offset + Number(broken)}`, `${path} is at ${field.offset + Number(broken)}`],
        [`std::is_same<decltype(${name}::${field.name}), ${type}>::value`, `${path} is ${type}`],
      ]
      add('field', path, 'types', asserts, name)
    }
  }
  const aliases = new Set(list.aliases.map((a) => a.name))
  for (const { name, type, value } of list.constants) {
    add('constant', name, type, (broken) => {
      const asserts = [[`${name} == ${value + Number(broken)}`, `${name} is ${value + Number(broken)}`]]
      // Flags are macros in the headers, and a macro has no type.
      if (aliases.has(type)) asserts.push([`std::is_same<std::decay<decltype(${name})>::type, ${type}>::value`, `${name} is of ${type}`])
      return asserts
    })
  }
  for (const { name, group, args, ret } of list.functions) {
    add('function', name, group, (broken) => {
      const parameters = [...args.map((a) => cType(a.type)), ...(broken ? ['int'] : [])].join(', ')
      const trait = group === 'Ascendcl' ? 'std::is_same' : 'Same'
      return [[`${trait}<decltype(&${name}), ${cType(ret)} (*)(${parameters})>::value`, `${name} is ${cType(ret)} (${parameters})`]]
    })
  }
  return items
}

/** The headers of a folder that have to do with the list, as include lines. */
export function includes(folder, list) {
  const files = RUNTIME.filter((file) => existsSync(join(folder, file)))
  const operators = new Set(list.functions.filter((f) => f.group === 'Opapi').map((f) => f.name))
  const walk = (at) => readdirSync(at, { withFileTypes: true }).flatMap((e) => (e.isDirectory() ? walk(join(at, e.name)) : e.name.endsWith('.h') ? [join(at, e.name)] : []))
  if (existsSync(join(folder, 'aclnnop'))) {
    for (const path of walk(join(folder, 'aclnnop')).sort()) {
      const names = [...readFileSync(path, 'utf8').matchAll(/\b(aclnn\w+)\s*\(/g)]
      if (names.some(([, name]) => operators.has(name))) files.push(relative(folder, path))
    }
  }
  return files.map((file) => `#include "${file}"\n`).join('')
}

/** Identifiers that the headers declare or define, and the declarations as text. */
export function declared(folder, list) {
  const source = includes(folder, list)
  const text = compile(folder, source, ['-E', '-P'])
  const macros = compile(folder, source, ['-E', '-dM'])
  if (text.status !== 0) throw new Error(`the headers do not compile:\n${text.stderr}`)
  const names = new Set(text.stdout.match(/\b[A-Za-z_]\w*\b/g))
  for (const [, name] of macros.stdout.matchAll(/^#define (\w+)/gm)) names.add(name)
  return { names, text: text.stdout }
}

export function compile(folder, source, flags) {
  return spawnSync(COMPILER, [...FLAGS, ...flags, `-I${folder}`, '-'], { input: source, encoding: 'utf8', maxBuffer: 1 << 28 })
}

/** The C++ file for a folder of headers, with what it covers and what it cannot. */
export function assertions(folder, broken = null) {
  const list = readList()
  const { names, text } = declared(folder, list)
  const items = comparisons(list)
  if (broken && !items.some((i) => i.name === broken && names.has(i.owner))) throw new Error(`the headers do not declare ${broken}, so it cannot be broken`)
  const checked = items.filter((i) => names.has(i.owner))
  const lines = checked.flatMap((i) => i.asserts(i.name === broken).map(([condition, says]) => `static_assert(${condition}, "${i.kind} ${i.name}: ${says}");\n`))
  return { source: includes(folder, list) + PRELUDE + lines.join(''), checked, missing: items.filter((i) => !names.has(i.owner)), asserts: lines.length, text }
}

/** { checked, missing, asserts, failures: [text] } of comparing the list with the headers of a folder. */
export function check(folder, broken = null) {
  const { source, text, ...result } = assertions(folder, broken)
  const { status, stderr } = compile(folder, source, ['-fsyntax-only', '-fmax-errors=0'])
  const failures = []
  let unknown = ''
  for (const line of stderr.split('\n')) {
    const [, kind, name, says] = /error: static assertion failed: (\w+) ([\w.]+): (.*)/.exec(line) ?? []
    const reduced = /note: the comparison reduces to '?‘?\(?(\S+) == /.exec(line)
    if (kind) failures.push(`${kind} ${name}: acl-sys says ${says}${kind === 'function' ? `; the header says ${declaration(text, name)}` : ''}`)
    else if (reduced && failures.length) failures[failures.length - 1] += `; the header says ${reduced[1]}`
    else if (/error:/.test(line)) unknown += `${line}\n`
  }
  if (unknown || (status !== 0 && failures.length === 0)) failures.push(`the compiler says:\n${unknown || stderr}`)
  return { ...result, failures }
}

const declaration = (text, name) => new RegExp(`[\\w *]*\\b${name}\\s*\\([^;]*`).exec(text)?.[0].replace(/\s+/g, ' ').trim() ?? 'nothing'

function report(title, { checked, missing, asserts, failures }) {
  const count = (items, kind) => items.filter((i) => i.kind === kind).length
  const parts = ['type', 'struct', 'field', 'constant', 'function'].map((kind) => `${count(checked, kind)} of ${count(checked, kind) + count(missing, kind)} ${kind}s`)
  console.log(`${title}: ${asserts} assertions cover ${parts.join(', ')}`)
  const operators = missing.filter((i) => i.group === 'Opapi')
  const groups = new Map()
  for (const item of missing.filter((i) => i.kind !== 'field' && (operators.length < 20 || i.group !== 'Opapi'))) {
    groups.set(item.group, [...(groups.get(item.group) ?? []), item.name])
  }
  if (missing.length) console.log('  not declared there:')
  for (const [group, names] of groups) console.log(`    ${group}: ${names.join(' ')}`)
  if (operators.length >= 20) console.log(`    Opapi: ${operators.length} functions, ${operators.slice(0, 3).map((i) => i.name).join(' ')} …`)
  for (const failure of failures) console.log(`  error: ${failure}`)
  console.log(failures.length ? `  ${failures.length} disagree` : '  all agree')
}

function main() {
  const options = { version: { type: 'string', multiple: true }, headers: { type: 'string' }, break: { type: 'string' }, print: { type: 'boolean' }, require: { type: 'boolean' } }
  const { values } = parseArgs({ options })
  const skip = (reason) => {
    console.log(`skipped: ${reason}`)
    return values.require === true
  }
  if (!hasCompiler()) return skip(`${COMPILER} is not here`)
  const sources = values.headers
    ? [[values.headers, () => ({ folder: values.headers })]]
    : (values.version ?? Object.keys(VERSIONS)).map((version) => [`torch-npu ${version}`, () => publishedHeaders(version)])
  let failed = false
  for (const [title, find] of sources) {
    const { folder, skipped } = find()
    if (skipped) {
      failed = skip(`${title}: ${skipped}`) || failed
    } else if (values.print) {
      process.stdout.write(assertions(folder, values.break).source)
    } else {
      const result = check(folder, values.break)
      report(title, result)
      failed ||= result.failures.length > 0
    }
  }
  return failed
}

if (isMain(import.meta.filename)) {
  try {
    process.exitCode = main() ? 1 : 0
  } catch (error) {
    console.error(`error: ${error.message}`)
    process.exitCode = 1
  }
}
