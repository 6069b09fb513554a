// The list of ACL functions against published headers, and a program of a user's on the stand-in library. What needs g++, pip and a network,
// or the library of `cargo build -p acl-host-cabi`, is skipped without them.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { test } from 'node:test'
import { crc32, deflateRawSync } from 'node:zlib'

import { root, withFolder } from './helpers/index.mjs'
import { builtLibrary } from '../scripts/built-library.mjs'
import { check, compile, hasCompiler } from '../tools/abi/check.mjs'
import { companion, header } from '../tools/abi/header.mjs'
import { VERSIONS, publishedHeaders, zipEntries } from '../tools/abi/headers.mjs'
import { cType, readList } from '../tools/abi/list.mjs'

const at = withFolder()
const list = readList()

// The check speaks of 64-bit Linux, where the vendor's libraries are; other systems' g++ is another compiler.
const noCompiler = process.platform !== 'linux' ? 'Linux only' : hasCompiler() ? false : 'g++ is not here'

/** The headers of a version; skips the test where they cannot be had. */
function headersOf(t, version) {
  const { folder, skipped } = publishedHeaders(version)
  if (skipped) {
    console.log(`skipped: the headers of torch-npu ${version}: ${skipped}`)
    t.skip(skipped)
  }
  return folder
}

const run = (args, env = {}) => spawnSync(process.execPath, [join(root, 'tools/abi/check.mjs'), ...args], { encoding: 'utf8', env: { ...process.env, ...env } })
const count = (items, kind) => items.filter((i) => i.kind === kind).length

test('the list is read', () => {
  const functions = new Map(list.functions.map((f) => [f.name, f]))
  assert.equal(functions.size, list.functions.length)
  assert.equal(functions.get('aclrtMallocPhysical').args.map((a) => cType(a.type)).join(), 'aclrtDrvMemHandle*,size_t,const aclrtPhysicalMemProp*,uint64_t')
  assert.equal(cType('*const *const aclTensor'), 'const aclTensor* const*')
  assert.deepEqual(functions.get('aclnnMm').args.map((a) => a.type), ['*mut c_void', 'u64', '*mut aclOpExecutor', 'aclrtStream'])
  assert.equal(functions.get('aclnnMmGetWorkspaceSize').args.length, 6)
  const prop = list.structs.find((s) => s.name === 'aclrtPhysicalMemProp')
  assert.deepEqual([prop.size, ...prop.fields.map((f) => f.offset)], [32, 0, 4, 8, 12, 24])
  assert.equal(list.constants.find((c) => c.name === 'ACL_EVENT_TIME_LINE').value, 8)
})

test('an archive is read, and its damage found', () => {
  const part = (name, body, method) => {
    const packed = method === 8 ? deflateRawSync(body) : body
    const fields = Buffer.alloc(22)
    fields.writeUInt16LE(method, 4)
    fields.writeUInt32LE(crc32(body), 10)
    fields.writeUInt32LE(packed.length, 14)
    fields.writeUInt32LE(body.length, 18)
    return { name: Buffer.from(name), fields, packed }
  }
  const zip = (parts) => {
    const locals = []
    const directory = []
    let offset = 0
    for (const { name, fields, packed } of parts) {
      const lengths = Buffer.alloc(4)
      lengths.writeUInt16LE(name.length, 0)
      const local = Buffer.concat([Buffer.from('PK\x03\x04'), fields, lengths, name, packed])
      const where = Buffer.alloc(14)
      where.writeUInt32LE(offset, 10)
      directory.push(Buffer.concat([Buffer.from('PK\x01\x02\0\0'), fields, lengths, where.subarray(0, 14), name]))
      locals.push(local)
      offset += local.length
    }
    const end = Buffer.alloc(22)
    end.write('PK\x05\x06', 'latin1')
    end.writeUInt16LE(parts.length, 10)
    end.writeUInt32LE(offset, 16)
    return Buffer.concat([...locals, ...directory, end])
  }
  const text = Buffer.from('#define A 1\n'.repeat(50))
  const archive = zip([part('a.h', text, 8), part('b.h', text, 0)])
  assert.deepEqual([...zipEntries(archive)].map(({ name, read }) => [name, read().equals(text)]), [['a.h', true], ['b.h', true]])
  archive[archive.indexOf('b.h') + 10] ^= 1
  assert.throws(() => [...zipEntries(archive)].map(({ read }) => read()), /b\.h is damaged/)
  assert.throws(() => [...zipEntries(Buffer.from('nothing'))], /no zip archive/)
})

// What each version declares; less would mean that the check had gone blind.
const COVERED = { '2.1.0.post8': { constant: 101, field: 7, function: 40 }, '2.7.1': { constant: 111, field: 13, function: 46 } }
for (const version of Object.keys(VERSIONS)) {
  test(`the list agrees with the headers of torch-npu ${version}`, { skip: noCompiler }, (t) => {
    const folder = headersOf(t, version)
    if (!folder) return
    const { failures, checked, missing, asserts } = check(folder)
    assert.deepEqual(failures, [])
    for (const [kind, least] of Object.entries(COVERED[version])) assert.ok(count(checked, kind) >= least, `${count(checked, kind)} ${kind}s`)
    console.log(`${version}: ${asserts} assertions, ${checked.length} of ${checked.length + missing.length} items declared`)
    const { status, stdout } = run(['--version', version])
    assert.equal(status, 0)
    assert.match(stdout, /not declared there:[^]*aclrtMemGetAllocationGranularity[^]*all agree/)
  })
}

test('the check fails when the list is wrong', { skip: noCompiler }, (t) => {
  const folder = headersOf(t, '2.7.1')
  if (!folder) return
  for (const [name, says] of [
    ['ACL_HBM_MEM_HUGE', /constant ACL_HBM_MEM_HUGE: acl-sys says ACL_HBM_MEM_HUGE is 5/],
    ['ACL_EVENT_TIME_LINE', /constant ACL_EVENT_TIME_LINE: .* is 9/],
    ['ACL_ERROR_RT_CONTEXT_NULL', /constant ACL_ERROR_RT_CONTEXT_NULL: .* is 107003/],
    ['aclrtMemLocation.id', /field aclrtMemLocation\.id: .* at 1/],
    ['aclCANNPackageVersion', /struct aclCANNPackageVersion: .* 513 bytes/],
    ['aclrtStream', /type aclrtStream/],
    ['aclrtMemAttr', /type aclrtMemAttr/],
    ['aclmdlRICaptureBegin', /function aclmdlRICaptureBegin: .*the header says .*aclmdlRICaptureBegin\(aclrtStream/],
  ]) {
    const { failures } = check(folder, name)
    assert.equal(failures.length, 1, name)
    assert.match(failures[0], says)
  }
  const { status, stdout } = run(['--version', '2.7.1', '--break', 'ACL_BF16'])
  assert.equal(status, 1)
  assert.match(stdout, /error: constant ACL_BF16[^]*1 disagree/)
  const nowhere = run(['--version', '2.7.1', '--break', 'aclnnAdd'])
  assert.deepEqual([nowhere.status, nowhere.stderr], [1, 'error: the headers do not declare aclnnAdd, so it cannot be broken\n'])
})

test('headers that cannot be fetched are a printed line, and a failure where they are required', { skip: noCompiler }, () => {
  const bin = join(at.folder, 'bin')
  mkdirSync(bin)
  const compiler = process.env.PATH.split(delimiter).map((folder) => join(folder, 'g++')).find(existsSync)
  symlinkSync(compiler, join(bin, 'g++'))
  const env = { PATH: bin, CANN_NODE_CACHE: join(at.folder, 'cache') }
  const { status, stdout } = run(['--version', '2.7.1'], env)
  assert.deepEqual([status, stdout], [0, 'skipped: torch-npu 2.7.1: pip is not here\n'])
  assert.equal(run(['--version', '2.7.1', '--require'], env).status, 1)
  assert.equal(run([], { ...env, PATH: join(at.folder, 'nothing') }).stdout, 'skipped: g++ is not here\n')
})

/** A folder as an installed CANN's, from the generated header: everything is declared there. */
function tree(name, edit = (text) => text) {
  const folder = join(at.folder, name)
  mkdirSync(join(folder, 'acl'), { recursive: true })
  mkdirSync(join(folder, 'aclnnop/level2'), { recursive: true })
  const operator = (_, group) => group === 'Opapi'
  writeFileSync(join(folder, 'acl/acl.h'), edit(header(list, (...item) => !operator(...item), 'RUNTIME_H')))
  writeFileSync(join(folder, 'aclnnop/level2/aclnn_all.h'), edit(header(list, operator, 'OPERATORS_H')))
  writeFileSync(join(folder, 'aclnnop/aclnn_other.h'), '#error "not one of ours"\naclnnStatus aclnnSomethingElse(void);\n')
  return folder
}

test('operators are checked where headers have them', { skip: noCompiler }, () => {
  const same = check(tree('same'))
  assert.deepEqual([same.failures, same.missing], [[], []])
  assert.equal(count(same.checked, 'function'), list.functions.length)
  assert.match(check(tree('same'), 'aclnnAddGetWorkspaceSize').failures.join(), /function aclnnAddGetWorkspaceSize/)

  const mm = /(aclnnMmGetWorkspaceSize\([^;]*)int8_t/
  const wider = check(tree('wider', (text) => text.replace(mm, '$1int64_t')))
  assert.equal(wider.failures.length, 1)
  assert.match(wider.failures[0], /aclnnMmGetWorkspaceSize.*acl-sys says .*int8_t.*the header says .*int64_t/)

  // const behind a pointer does not matter to an operator's callers, and does matter where headers are the proof.
  const constant = (name) => new RegExp(`(\\b${name}\\([^;]*?)(aclTensor|void)(\\*+ (?:out|dev_ptr)\\b)`)
  const loose = tree('loose', (text) => text.replace(constant('aclnnAbsGetWorkspaceSize'), '$1const $2$3').replace(constant('aclrtFree'), '$1const $2$3'))
  assert.match(readFileSync(join(loose, 'aclnnop/level2/aclnn_all.h'), 'utf8'), /aclnnAbsGetWorkspaceSize\(const aclTensor\* self_, const aclTensor\* out/)
  assert.deepEqual(check(loose).failures.map((f) => f.split(':')[0]), ['function aclrtFree'])
})

test('the generated header compiles as C and as C++', { skip: noCompiler }, () => {
  const all = header(list, () => true)
  for (const [language, standard] of [['c', 'c99'], ['c', 'c17'], ['c++', 'c++11'], ['c++', 'c++20']]) {
    const flags = ['-fsyntax-only', `-std=${standard}`, '-Wall', '-Wextra', '-Werror', '-pedantic', '-x', language, '-']
    const { status, stderr } = spawnSync('g++', flags, { input: all, encoding: 'utf8' })
    assert.equal(status, 0, `${standard}: ${stderr}`)
  }
  for (const { name } of list.functions) assert.match(all, new RegExp(`\\b${name}\\(`))
})

test('the generated header does not contradict published ones', { skip: noCompiler }, (t) => {
  for (const version of Object.keys(VERSIONS)) {
    const folder = headersOf(t, version)
    if (!folder) return
    // Every runtime function is declared a second time: another return type or a C++ overload would not compile.
    const published = ['acl_rt.h', 'acl_mdl.h', 'acl.h', 'acl_base.h'].map((file) => readFileSync(join(folder, 'acl', file), 'utf8')).join('')
    const functions = header(list, (name, group) => group === 'Ascendcl' && new RegExp(`\\b${name}\\(`).test(published), 'AGAIN_H')
    const { status, stderr } = compile(folder, `#include "acl/acl.h"\n#include "acl/acl_mdl.h"\n${companion(list)}${functions}`, ['-fsyntax-only'])
    assert.equal(status, 0, stderr)
  }
})

test('a C++ program for ACL runs on the stand-in', { skip: noCompiler }, (t) => {
  const library = builtLibrary('ascendcl_host')
  if (!library) {
    console.log('skipped: there is no libascendcl_host.so; cargo build -p acl-host-cabi makes it')
    return t.skip('no libascendcl_host.so')
  }
  const groups = ['Ascendcl', 'Nnopbase', 'Opapi']
  const [vendor, toolkit] = ['vendor', 'toolkit'].map((name) => join(at.folder, name))
  for (const folder of [vendor, toolkit]) mkdirSync(folder)
  const cc = (args, input = '') => {
    const { status, stderr } = spawnSync('g++', args, { input, encoding: 'utf8' })
    assert.equal(status, 0, stderr)
  }
  for (const group of groups) {
    // As the vendor's: three libraries that call themselves so, each with its names. What these do no program that runs will see.
    const file = `lib${group.toLowerCase()}.so`
    const names = list.functions.filter((f) => f.group === group).map((f) => `void ${f.name}(void) {}\n`)
    cc(['-shared', '-fPIC', `-Wl,-soname,${file}`, '-o', join(vendor, file), '-x', 'c', '-'], names.join(''))
    symlinkSync(library, join(toolkit, file))
  }
  for (const version of Object.keys(VERSIONS)) {
    const folder = headersOf(t, version)
    if (!folder) return
    writeFileSync(join(at.folder, 'aclnn_list.h'), companion(list))
    const program = join(at.folder, `standin-${version}`)
    const link = [`-L${vendor}`, ...groups.map((group) => `-l${group.toLowerCase()}`)]
    cc(['-std=c++14', '-Wall', '-Wextra', '-Werror', `-isystem${folder}`, `-I${at.folder}`, join(root, 'tools/abi/standin.cpp'), ...link, '-o', program])
    const start = (env) => spawnSync(program, { encoding: 'utf8', env: { ...process.env, ...env, LD_LIBRARY_PATH: toolkit } })
    for (const env of [{}, { CANN_NODE_HOST_CHECK: '1' }, { CANN_NODE_HOST_SOC: '910B', CANN_NODE_HOST_DEVICES: '2' }]) {
      const { status, stdout, stderr } = start(env)
      assert.deepEqual([status, stderr], [0, ''])
      assert.match(stdout, env.CANN_NODE_HOST_SOC ? /^2 device\(s\), Ascend910B\d?\nok\n$/ : /^1 device\(s\), Host\nok\n$/)
    }
    // A chip's rules are the library's: the program asks for a product that this one refuses, and hears so.
    const { status, stderr } = start({ CANN_NODE_HOST_SOC: '310P' })
    assert.equal(status, 1)
    assert.match(stderr, /^aclnnMmGetWorkspaceSize\(.*: 161002: aclnnMm: this chip has no product of F32 with cubeMathType 0/)
  }
})
