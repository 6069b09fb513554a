// Looks at the packages as their users' tools do: publint and attw on the tarballs, the declarations under both TypeScripts, the public
// API beside the committed report, the workflows through actionlint. Its tools are in tools/package, pinned; the first run installs them.
//
//   node scripts/package-check.mjs             fails at the first thing that is wrong
//   node scripts/package-check.mjs --update    writes the API reports in etc/ anew

import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

import { commandLine } from './command-line.mjs'
import { packPlatform, packRoot } from './pack.mjs'
import { root, sh } from './setup.mjs'

const { values } = commandLine({ options: { update: { type: 'boolean', default: false } } })
const tools = join(root, 'tools/package')
const modules = join(tools, 'node_modules')
const lock = join(modules, '.package-lock.json')
const wanted = JSON.parse(readFileSync(join(tools, 'package.json'), 'utf8')).devDependencies
const installed = existsSync(lock) ? JSON.parse(readFileSync(lock, 'utf8')).packages : {}
if (Object.entries(wanted).some(([name, version]) => installed[`node_modules/${name}`]?.version !== version.split('@').at(-1))) {
  sh('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], { cwd: tools })
}
const require = createRequire(join(tools, 'package.json'))
const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
const folder = mkdtempSync(join(tmpdir(), 'cann-node-check-'))

/** Runs a command of the tools; its output is shown only when it fails. */
function tool(name, script, args) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [script, ...args], { cwd: root, encoding: 'utf8' })
  if (status !== 0) {
    console.error(`${stdout}${stderr}`)
    throw new Error(`${name} found something`)
  }
}

function packages() {
  const main = packRoot(folder)
  const { platformName } = require(join(root, 'native.js'))
  const binary = process.env.CANN_NODE_BINARY_PATH ?? join(root, `cann-node.${platformName()}.node`)
  const platform = packPlatform(platformName(), binary, folder)
  tool('attw', join(modules, '@arethetypeswrong/cli/dist/index.js'), ['--no-emoji', '--no-color', main.path])
  for (const { path } of [main, platform]) tool('publint', join(modules, 'publint/src/cli.js'), ['run', '--strict', path])
  console.log('attw and publint: nothing')
}

function declarations() {
  for (const path of [join(root, 'node_modules/typescript'), join(modules, 'typescript-5')]) {
    const { version } = require(join(path, 'package.json'))
    tool(`TypeScript ${version}`, join(path, 'bin/tsc'), ['-p', '.'])
    console.log(`TypeScript ${version}: the declarations keep the contract`)
  }
}

/** What each subpath declares, as API Extractor prints it, beside etc/<name>.api.md. */
function reports() {
  const { Extractor, ExtractorConfig } = require('@microsoft/api-extractor')
  // It cannot follow the globals of @types/node; these are the same.
  const compilerOptions = { lib: ['es2022', 'esnext.disposable', 'dom'], types: [] }
  for (const [subpath, target] of Object.entries(manifest.exports)) {
    const types = target.require?.types ?? target.import?.types ?? target.types
    if (!types) continue
    const name = ['cann-node', ...subpath.split('/').slice(1)].join('-')
    mkdirSync(join(root, 'etc'), { recursive: true })
    const config = ExtractorConfig.prepare({
      packageJsonFullPath: join(root, 'package.json'),
      configObjectFullPath: undefined,
      configObject: {
        projectFolder: root,
        mainEntryPointFilePath: join(root, types),
        compiler: { overrideTsconfig: { extends: './tsconfig.json', compilerOptions, files: [types] } },
        apiReport: { enabled: true, reportFileName: name, reportFolder: join(root, 'etc'), reportTempFolder: folder },
        docModel: { enabled: false },
        dtsRollup: { enabled: false },
        tsdocMetadata: { enabled: false },
        newlineKind: 'lf',
        messages: {
          extractorMessageReporting: {
            default: { logLevel: 'error' },
            // Seen in the report.
            'ae-forgotten-export': { logLevel: 'none', addToApiReportFile: true },
            'ae-missing-release-tag': { logLevel: 'none' },
            'ae-undocumented': { logLevel: 'none' },
          },
        },
      },
    })
    const result = Extractor.invoke(config, {
      localBuild: values.update,
      messageCallback: (message) => {
        message.handled = true
        if (message.logLevel === 'error') console.error(message.formatMessageWithLocation(root))
      },
    })
    if (result.errorCount) throw new Error(`the declarations of ${subpath} are not clean`)
    if (result.apiReportChanged && !values.update) {
      throw new Error(`etc/${name}.api.md is not what ${types} declares: node scripts/package-check.mjs --update`)
    }
    console.log(`etc/${name}.api.md: ${result.apiReportChanged ? 'written' : 'fresh'}`)
  }
}

async function workflows() {
  const { createLinter } = await import(pathToFileURL(join(modules, 'actionlint/node.mjs')))
  const lint = await createLinter()
  const names = readdirSync(join(root, '.github/workflows'))
  const findings = names.flatMap((name) =>
    // It is older than the machines that these run on.
    lint(readFileSync(join(root, '.github/workflows', name), 'utf8'), name).filter(({ kind }) => kind !== 'runner-label'),
  )
  for (const { message, line, column } of findings) console.error(`${line}:${column} ${message}`)
  if (findings.length) throw new Error('actionlint found something')
  console.log(`actionlint: ${names.join(', ')} are right`)
}

try {
  packages()
  declarations()
  reports()
  await workflows()
} catch (error) {
  console.error(`error: ${error.message}`)
  process.exitCode = 1
} finally {
  rmSync(folder, { recursive: true, force: true })
}
