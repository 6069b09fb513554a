// Prints the list of acl-sys as a C header, for what the published headers lack: the operators and the functions that make their
// descriptors. For C and C++; to be included after "acl/acl.h".
//
//   node tools/abi/header.mjs > aclnn_list.h        operators, descriptors, their types
//     --version 2.7.1 | --headers DIR               and what those runtime headers do not declare either
//     --all                                         everything: a header that needs no other

import { parseArgs } from 'node:util'

import { isMain } from '../../examples/is-main.mjs'
import { declared } from './check.mjs'
import { publishedHeaders } from './headers.mjs'
import { cType, readList } from './list.mjs'

/** The header's text with the items for which `wanted(name, group)` holds. */
export function header(list, wanted, guard = 'CANN_NODE_ACLNN_LIST_H') {
  const out = []
  const section = (title, lines) => lines.length && out.push(`/* ${title} */`, ...lines, '')
  const types = (item) => wanted(item.name, 'types')
  section('Opaque: only ever behind a pointer.', list.opaque.filter((name) => wanted(name, 'types')).map((name) => `typedef struct ${name} ${name};`))
  const enums = []
  for (const { name, type } of list.aliases.filter(types)) {
    const values = list.constants.filter((c) => c.type === name).map((c) => `${c.name} = ${c.value}`)
    // A status is an int in every header, with its codes as constants beside it.
    if (values.length && name !== 'aclError') enums.push(`typedef enum ${name} {`, ...wrap(values), `} ${name};`)
    else enums.push(`typedef ${cType(type)}${cType(type).endsWith('*') ? '' : ' '}${name};`)
  }
  section('Enumerations and handles.', enums)
  const structs = list.structs.filter(types).flatMap(({ name, fields }) => [
    `typedef struct ${name} {`,
    ...fields.map((f) => `    ${cType(f.type)} ${f.name}${f.count ? `[${f.count}]` : ''};`),
    `} ${name};`,
  ])
  section('Structs.', structs)
  const enumerated = new Set(list.aliases.map((a) => a.name).filter((name) => name !== 'aclError'))
  const defines = list.constants.filter((c) => wanted(c.name, c.type) && !(enumerated.has(c.type) && wanted(c.type, 'types')))
  const literal = ({ type, value }) => (type === 'u32' ? `0x${value.toString(16)}u` : enumerated.has(type) ? `((${type})${value})` : value)
  section('Constants.', defines.map((c) => `#define ${c.name} ${literal(c)}`))
  for (const [title, group] of [['The runtime.', 'Ascendcl'], ['Descriptors and executors.', 'Nnopbase'], ['Operators: sizing, then running.', 'Opapi']]) {
    section(title, list.functions.filter((f) => f.group === group && wanted(f.name, group)).map(prototype))
  }
  return `/* Generated from the list of ACL functions of cann-node (tools/abi/header.mjs). MIT licence. */
#ifndef ${guard}
#define ${guard}

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

${out.join('\n')}
#ifdef __cplusplus
}
#endif
#endif
`
}

function prototype({ name, args, ret }) {
  const parameters = args.map(({ name: parameter, type }) => `${cType(type)} ${parameter}`)
  const returns = cType(ret)
  return `${returns}${returns.endsWith('*') ? '' : ' '}${name}(${parameters.join(', ') || 'void'});`
}

function wrap(values) {
  const lines = ['   ']
  for (const value of values) {
    if (lines.at(-1).length + value.length > 118) lines.push('   ')
    lines.push(`${lines.pop()} ${value},`)
  }
  return lines
}

const OPERATOR_TYPES = /^(aclnnStatus|acl(OpExecutor|Tensor|Scalar|IntArray|FloatArray|BoolArray|TensorList|ScalarList))$/

/** What no published runtime header has; `names` are those that the headers at hand declare, null for any. */
export function companion(list, names = null) {
  const lacking = (name, group) => {
    if (names) return !names.has(name)
    return group === 'Nnopbase' || group === 'Opapi' || group === 'i8' || OPERATOR_TYPES.test(name) || name.startsWith('ACLNN_')
  }
  return header(list, lacking)
}

function main() {
  const { values } = parseArgs({ options: { version: { type: 'string' }, headers: { type: 'string' }, all: { type: 'boolean' } } })
  const list = readList()
  if (values.all) return header(list, () => true, 'CANN_NODE_ACL_LIST_H')
  if (!values.version && !values.headers) return companion(list)
  const { folder, skipped } = values.headers ? { folder: values.headers } : publishedHeaders(values.version)
  if (skipped) throw new Error(skipped)
  return companion(list, declared(folder, list).names)
}

if (isMain(import.meta.filename)) {
  try {
    process.stdout.write(main())
  } catch (error) {
    console.error(`error: ${error.message}`)
    process.exitCode = 1
  }
}
