// What docs/bundlers.md says: a program that uses the package, bundled by esbuild, webpack and Vite with the package left out and with its
// binary copied. Left out, it runs beside node_modules; copied, in a folder where there is none.
//
//   node scripts/bundlers.mjs
//
// The bundlers are those of tools/bundlers, pinned; the addon is the local build or CANN_NODE_BINARY_PATH.

import { execFileSync, spawnSync } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { pathToFileURL } from 'node:url'

import { commandLine } from './command-line.mjs'
import { packPlatform, packRoot } from './pack.mjs'
import { fail, root, sh } from './setup.mjs'

commandLine()

const tools = join(root, 'tools/bundlers')
if (!existsSync(join(tools, 'node_modules'))) sh('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], { cwd: tools })
const require = createRequire(join(tools, 'package.json'))
const esbuild = require('esbuild')
const webpack = require('webpack')
const vite = await import(pathToFileURL(join(tools, 'node_modules/vite/dist/node/index.js')).href)

const { platformName } = createRequire(import.meta.url)('../native.js')
const work = mkdtempSync(join(tmpdir(), 'cann-node-bundlers-'))
const app = join(work, 'app')
const elsewhere = join(work, 'elsewhere')

const body = `
  const backend = await Backend.open()
  const graph = new Graph()
  graph.output('y', graph.add(graph.input('x', 'f32', [2]), graph.input('b', 'f32', [2])))
  const plan = await backend.prepare(graph)
  console.log(JSON.stringify([...(await plan.run({ x: Float32Array.of(1, 2), b: Float32Array.of(3, 4) })).y]))
  await backend.close()
`
const BANNER = `import { createRequire } from 'node:module'; const require = createRequire(import.meta.url), __filename = import.meta.filename, __dirname = import.meta.dirname`
const shared = { bundle: true, platform: 'node', logLevel: 'error', absWorkingDir: app }
const asPromise = (options) =>
  new Promise((resolve, reject) =>
    webpack({ mode: 'production', target: 'node', context: app, entry: './app.cjs', ...options }, (error, stats) => {
      const { errors, warnings } = stats?.toJson({ all: false, errors: true, warnings: true }) ?? {}
      const found = error ?? [...errors, ...warnings][0]
      if (found) reject(new Error(found.message))
      else resolve()
    }),
  )

/** How a bundle is made in `out`, and the file to run. */
const WAYS = {
  'esbuild, external': ['app.mjs', (out) => esbuild.build({ ...shared, entryPoints: ['app.mjs'], format: 'esm', packages: 'external', outfile: join(out, 'app.mjs') })],
  'esbuild, copied, CommonJS': ['app.cjs', (out) => esbuild.build({ ...shared, entryPoints: ['app.cjs'], format: 'cjs', loader: { '.node': 'copy' }, outfile: join(out, 'app.cjs') })],
  'esbuild, copied, ESM': [
    'app.mjs',
    (out) => esbuild.build({ ...shared, entryPoints: ['app.mjs'], format: 'esm', loader: { '.node': 'copy' }, banner: { js: BANNER }, outfile: join(out, 'app.mjs') }),
  ],
  'webpack, external': ['app.cjs', (out) => asPromise({ output: { path: out, filename: 'app.cjs' }, externals: { 'cann-node': 'commonjs cann-node' } })],
  'webpack, copied': [
    'app.cjs',
    (out) =>
      asPromise({
        output: { path: out, filename: 'app.cjs' },
        node: { __filename: false, __dirname: false },
        module: { rules: [{ test: /\.node$/, loader: require.resolve('node-loader'), options: { name: '[name].[ext]' } }] },
        ignoreWarnings: [/@cann-node\//],
      }),
  ],
  'vite, external': ['app.mjs', (out) => vite.build({ root: app, configFile: false, logLevel: 'error', build: { ssr: 'app.mjs', outDir: out } })],
}

let failed = 0
try {
  for (const folder of [app, elsewhere]) mkdirSync(folder)
  const binary = process.env.CANN_NODE_BINARY_PATH ?? join(root, `cann-node.${platformName()}.node`)
  const packed = [packRoot(work), packPlatform(platformName(), binary, work)].map(({ path }) => `file:${path}`)
  writeFileSync(join(app, 'package.json'), '{ "name": "app", "private": true }')
  const shell = process.platform === 'win32'
  execFileSync('npm', ['install', '--offline', '--ignore-scripts', '--no-audit', '--no-fund', ...packed], { cwd: app, shell, stdio: ['ignore', 'ignore', 'inherit'] })
  writeFileSync(join(app, 'app.mjs'), `import { Backend, Graph } from 'cann-node'\n${body}`)
  writeFileSync(join(app, 'app.cjs'), `const { Backend, Graph } = require('cann-node');\n(async () => {${body}})()\n`)
  const env = { ...process.env }
  delete env.CANN_NODE_BINARY_PATH
  for (const [name, [file, bundle]] of Object.entries(WAYS)) {
    try {
      let out = join(app, name.replace(/\W+/g, '-'))
      await bundle(out)
      if (name.includes('copied')) {
        cpSync(out, join(elsewhere, basename(out)), { recursive: true })
        out = join(elsewhere, basename(out))
      }
      const { status, stdout, stderr } = spawnSync(process.execPath, [join(out, file)], { env, encoding: 'utf8' })
      if (status !== 0 || stdout !== '[4,6]\n') throw new Error(`${stdout}${stderr}`)
      console.log(`${name}: runs`)
    } catch (error) {
      failed++
      console.error(`${name}: ${error.message}`)
    }
  }
} finally {
  rmSync(work, { recursive: true, force: true })
}
console.log(`${Object.keys(WAYS).length - failed} passed, ${failed} failed, 0 skipped`)
if (failed) fail('not every bundle works')
