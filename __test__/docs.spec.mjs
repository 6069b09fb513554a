// What the documents show is true: JavaScript and TypeScript is type-checked, and run where nothing else is needed; commands name scripts,
// files, crates and subcommands that exist. A block may use what an earlier block of its page declares.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { before, test } from 'node:test'

import { localModel } from '../scripts/model.mjs'
import { root, withFolder } from './helpers/index.mjs'

const ts = createRequire(import.meta.url)('typescript')
const at = withFolder()

/** Pages that are run: the blocks, all where none is named, and what they leave open. The others need what is not here. */
const RUN = {
  'README.md': { blocks: [0] },
  'docs/concepts.md': { open: 'backend' },
  'docs/getting-started.md': { open: 'backend' },
  'docs/host.md': { blocks: [0], open: 'cann' },
}

function* markdown(folder) {
  for (const entry of readdirSync(join(root, folder), { withFileTypes: true })) {
    const path = folder === '.' ? entry.name : `${folder}/${entry.name}`
    if (entry.isDirectory() && !['node_modules', 'target', '.git', 'etc', 'site'].includes(entry.name)) yield* markdown(path)
    else if (entry.name.endsWith('.md')) yield path
  }
}

const pages = [...markdown('.')].map((path) => {
  const text = readFileSync(join(root, path), 'utf8').replaceAll('\r\n', '\n')
  return { path, blocks: [...text.matchAll(/^```(\w*)\n([\s\S]*?)^```$/gm)].map(([, language, code]) => ({ language, code })) }
})
const isCode = ({ language }) => /^([jt]s|typescript|javascript|mjs|mts)$/.test(language)

/** What a block declares at its top. */
function declared(code) {
  const names = []
  const bind = (name) => (ts.isIdentifier(name) ? names.push(name.text) : name.elements.forEach((each) => each.name && bind(each.name)))
  for (const statement of ts.createSourceFile('block.mts', code, ts.ScriptTarget.ES2022, true).statements) {
    if (ts.isVariableStatement(statement)) statement.declarationList.declarations.forEach(({ name }) => bind(name))
    else if (ts.isFunctionDeclaration(statement) || ts.isClassDeclaration(statement)) bind(statement.name)
    else if (ts.isImportDeclaration(statement) && statement.importClause) {
      const { name, namedBindings } = statement.importClause
      if (name) bind(name)
      if (namedBindings && ts.isNamedImports(namedBindings)) namedBindings.elements.forEach((each) => bind(each.name))
      else if (namedBindings) bind(namedBindings.name)
    }
  }
  return names
}

/** The code blocks of a page as modules that import what they use from the ones before. */
function modules({ path, blocks }) {
  const stem = path.replace(/\W/g, '_')
  const owners = new Map()
  return blocks.filter(isCode).map(({ code }, i) => {
    const own = declared(code)
    const used = new Set(code.match(/[\w$]+/g))
    const earlier = [...owners].filter(([name]) => used.has(name) && !own.includes(name))
    const imports = earlier.map(([name, file]) => `import { ${name} } from './${file}.mjs'\n`)
    const file = `${stem}_${i}`
    for (const name of own) owners.set(name, file)
    const rest = own.filter((name) => !new RegExp(`^export .*\\b${name}\\b`, 'm').test(code))
    return { file, own, text: `${imports.join('')}${code}\nexport { ${rest.join(', ')} }\n` }
  })
}

before(() => {
  mkdirSync(join(at.folder, 'node_modules'))
  symlinkSync(root, join(at.folder, 'node_modules/cann-node'), 'junction')
  writeFileSync(join(at.folder, 'package.json'), '{ "private": true }')
})

test('the examples of every page are well typed', () => {
  const files = pages.flatMap(modules)
  assert.ok(files.length >= 7, `${files.length} blocks`)
  for (const { file, text } of files) writeFileSync(join(at.folder, `${file}.mts`), text)
  writeFileSync(join(at.folder, 'electron.d.ts'), "declare module 'electron'\n")
  const options = {
    noEmit: true,
    strict: true,
    noImplicitAny: false,
    module: ts.ModuleKind.NodeNext,
    moduleResolution: ts.ModuleResolutionKind.NodeNext,
    target: ts.ScriptTarget.ESNext,
    lib: ['lib.esnext.d.ts'],
    types: ['node'],
    typeRoots: [join(root, 'node_modules/@types')],
  }
  const names = [...files.map(({ file }) => `${file}.mts`), 'electron.d.ts'].map((name) => join(at.folder, name))
  const program = ts.createProgram(names, options)
  const found = ts.getPreEmitDiagnostics(program)
  const host = { getCurrentDirectory: () => at.folder, getCanonicalFileName: (name) => name, getNewLine: () => '\n' }
  assert.equal(found.length, 0, ts.formatDiagnostics(found, host))
})

for (const [path, { blocks, open }] of Object.entries(RUN)) {
  test(`the examples of ${path} run as they stand`, async (t) => {
    const chosen = modules(pages.find((page) => page.path === path)).filter((_, i) => blocks?.includes(i) ?? true)
    if (chosen.some(({ text }) => text.includes('model.gguf'))) {
      const model = await localModel()
      if (model === null) return t.skip('there is no model here')
      symlinkSync(model, join(at.folder, 'model.gguf'))
    }
    const compilerOptions = { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2022 }
    const entry = []
    for (const { file, text, own } of chosen) {
      writeFileSync(join(at.folder, `${file}.mjs`), ts.transpileModule(text, { compilerOptions }).outputText)
      entry.push(`import './${file}.mjs'`)
      if (own.includes(open)) entry.push(`import { ${open} } from './${file}.mjs'`)
    }
    if (open) entry.push(`await ${open}.close()`)
    writeFileSync(join(at.folder, 'entry.mjs'), entry.join('\n'))
    const { status, signal, stderr } = spawnSync(process.execPath, ['entry.mjs'], { cwd: at.folder, encoding: 'utf8', timeout: 120_000 })
    assert.deepEqual([status, signal], [0, null], stderr)
  })
}

/** A command's words, without the variables set before it and the comment behind. */
function words(line) {
  const all = line.replace(/\s#.*$/, '').trim().split(/\s+/)
  return all.slice(all.findIndex((word) => !/^\w+=/.test(word)))
}

test('the commands of every page exist', () => {
  const help = spawnSync(process.execPath, [join(root, 'bin/cann-node.mjs'), '--help'], { encoding: 'utf8' }).stdout
  const crates = readdirSync(join(root, 'crates'))
  const wrong = []
  for (const { path, blocks } of pages) {
    // A page's commands are for its own folder or the checkout.
    const folders = [join(root, dirname(path)), root]
    const there = (file) => folders.some((folder) => existsSync(join(folder, file)))
    const manifests = folders.map((folder) => join(folder, 'package.json')).filter((file) => existsSync(file))
    const scripts = manifests.flatMap((file) => Object.keys(JSON.parse(readFileSync(file, 'utf8')).scripts ?? {}))
    const rules = {
      npm: ([verb, name]) => (verb === 'run' ? scripts.includes(name) : !['start', 'test'].includes(verb) || scripts.includes(verb)),
      node: ([file]) => !/^[a-z]+\/.*\.mjs$/.test(file) || there(file),
      bash: ([file]) => there(file),
      cargo: (args) => args.every((arg, i) => ({ '-p': crates.includes(arg), '--manifest-path': there(arg) })[args[i - 1]] ?? true),
      'cann-node': ([name]) => name.startsWith('-') || help.includes(`\n  ${name} `),
    }
    for (const { language, code } of blocks) {
      if (!['', 'sh', 'bash', 'console'].includes(language)) continue
      for (const line of code.replaceAll('\\\n', ' ').split(/\n|&&|;/)) {
        const [command, ...args] = words(line)
        if (Object.hasOwn(rules, command) && !rules[command](args)) wrong.push(`${path}: ${line.trim()}`)
      }
    }
  }
  assert.deepEqual(wrong, [])
})
