// examples/electron without Electron: its main process, its preload script and its session run here over a stand-in for the module
// 'electron'; the model, the messages and the child process are real. examples/electron/check.mjs has the page and the types.

import assert from 'node:assert/strict'
import { copyFileSync, cpSync, mkdirSync, readFileSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { basename, join } from 'node:path'
import { after, before, test } from 'node:test'
import { pathToFileURL } from 'node:url'

import { writeTinyLlama } from '../tools/tiny-llama.mjs'
import { utilityProcess } from './helpers/electron.mjs'
import { program, root, withFolder } from './helpers/index.mjs'

const at = withFolder()
const { platformName } = createRequire(import.meta.url)('../native.js')
let electron
let model
let file
const events = []
let child
const quit = () => new Promise((resolve) => electron.app.once('quit', resolve))

before(async () => {
  const app = join(at.folder, 'app')
  cpSync(join(root, 'examples/electron'), app, { recursive: true, filter: (path) => basename(path) !== 'node_modules' })
  mkdirSync(join(app, 'node_modules/electron'), { recursive: true })
  copyFileSync(join(root, '__test__/helpers/fake-electron.cjs'), join(app, 'node_modules/electron/index.js'))
  symlinkSync(root, join(app, 'node_modules/cann-node'), 'junction')
  file = join(at.folder, 'tiny.gguf')
  writeTinyLlama(file)

  const require = createRequire(join(app, 'main.mjs'))
  electron = require('electron')
  electron.utilityProcess = { fork: (...args) => (child = utilityProcess.fork(...args)) }
  await import(pathToFileURL(join(app, 'main.mjs')))
  require('./preload.cjs')
  model = electron.exposed.model
  model.onEvent((event) => events.push(event))
})
after(async () => {
  const done = quit()
  electron.app.quit()
  await done
})

const text = (from = 0) => events.slice(from).filter(({ type }) => type === 'text').map((event) => event.text).join('')

test('the window is closed to the world', () => {
  const { options, url, openHandler } = electron.BrowserWindow.last
  const { contextIsolation, sandbox, nodeIntegration, preload } = options.webPreferences
  assert.deepEqual([contextIsolation, sandbox, nodeIntegration], [true, true, false])
  assert.equal(basename(preload), 'preload.cjs')
  assert.match(url, /^file:.*renderer\/index\.html$/)
  assert.deepEqual(openHandler({ url: 'https://example.org' }), { action: 'deny' })
  assert.match(readFileSync(join(root, 'examples/electron/renderer/index.html'), 'utf8'), /Content-Security-Policy" content="default-src 'self'"/)
})

test('requests of another page are refused', async () => {
  electron.ipcRenderer.url = 'https://example.org/'
  await assert.rejects(model.devices(), /not for this page/)
  electron.ipcRenderer.url = undefined
})

test('devices, an upload with progress, an answer piece by piece', async () => {
  const { value: devices } = await model.devices()
  assert.ok(devices.some(({ name }) => name === 'HOST0'))
  assert.equal(child.serviceName, 'model')
  assert.match((await model.generate('hello')).error.message, /no model/)

  assert.deepEqual(await model.open(), { value: null })
  electron.dialog.showOpenDialog = async () => ({ canceled: false, filePaths: [join(at.folder, 'nothing.gguf')] })
  assert.equal((await model.open()).error.code, 'ERR_IO')
  electron.dialog.showOpenDialog = async () => ({ canceled: false, filePaths: [file] })
  const { value } = await model.open()
  assert.deepEqual([value.name, value.device], ['tiny random weights', devices[0].name])
  const progress = events.filter(({ type }) => type === 'progress')
  assert.equal(progress.at(-1).done, progress.at(-1).total)

  const { value: first } = await model.generate('hello')
  assert.ok(first.tokens > 0 && first.tokensPerSecond > 0 && !first.stopped)
  assert.ok(events.filter(({ type }) => type === 'text').length > 1)
  const before = events.length
  await model.generate('hello')
  assert.equal(text(before), text().slice(0, text(before).length))
})

test('stopped half way, and then it goes on', async () => {
  const before = events.length
  const generating = model.generate('a long story')
  while (text(before).length < 2) await new Promise((resolve) => setTimeout(resolve, 1))
  await model.stop()
  const { value } = await generating
  assert.equal(value.stopped, true)
  assert.ok(value.tokens < 256)
  assert.equal((await model.generate('again')).value.stopped, false)
})

test('a crash of the device\'s process costs a reload', async () => {
  const before = events.length
  const generating = model.generate('a long story')
  while (text(before).length < 2) await new Promise((resolve) => setTimeout(resolve, 1))
  process.kill(child.pid, 'SIGKILL')
  assert.equal((await generating).error.code, 'ERR_DEVICE_LOST')
  assert.match(events.find(({ type }) => type === 'lost').reason, /exit code/)
  const again = events.length
  const { value } = await model.generate('hello')
  assert.ok(value.tokens > 0)
  assert.ok(events.slice(again).some(({ type }) => type === 'progress'))
})

test('the tokenizer gives the ids of the reference', async (t) => {
  const { localModel } = await import('../scripts/model.mjs')
  const path = await localModel()
  if (!path) return t.skip('no model')
  const { readGguf } = await import('../index.mjs')
  const { Tokenizer } = await import('../examples/electron/tokenizer.mjs')
  const tokenizer = new Tokenizer((await readGguf(path)).metadata)
  for (const name of ['completions', 'logits']) {
    const { cases } = JSON.parse(readFileSync(join(root, `__test__/golden/smollm2/${name}.json`), 'utf8'))
    for (const { prompt, prompt_ids } of cases) assert.deepEqual(tokenizer.encode(prompt), prompt_ids, prompt)
  }
  assert.deepEqual(tokenizer.encode('<|im_start|>user\n'), [1, 4093, 198])
})

// ---------------------------------------------------------------- what Electron forbids

test('the package runs from app.asar.unpacked; inside app.asar it says what to do', async () => {
  const binary = process.env.CANN_NODE_BINARY_PATH ?? join(root, `cann-node.${platformName()}.node`)
  const { files } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
  const names = readdirSync(root).filter((name) => files.includes(name) || name === 'package.json')
  const use = `
    const { connect } = await import(process.env.PACKAGE + '/host.mjs')
    const host = await connect()
    const answer = await host.listDevices().then((list) => list.length, (error) => error.code + ' ' + error.message)
    console.log(answer)
    await host.close()`
  for (const [place, expected] of [
    ['app.asar.unpacked', /^[1-9]\n$/],
    ['app.asar', /^ERR_LOAD [\s\S]*asarUnpack/],
  ]) {
    const modules = join(at.folder, place, 'node_modules')
    for (const name of names) cpSync(join(root, name), join(modules, 'cann-node', name), { recursive: true })
    const platform = join(modules, '@cann-node', platformName())
    mkdirSync(platform, { recursive: true })
    writeFileSync(join(platform, 'package.json'), JSON.stringify({ name: `@cann-node/${platformName()}`, main: 'binary.node' }))
    // An archive has no files for the system to open.
    if (place === 'app.asar') writeFileSync(join(platform, 'binary.node'), '')
    else copyFileSync(binary, join(platform, 'binary.node'))
    const env = { PACKAGE: pathToFileURL(join(modules, 'cann-node')).href, CANN_NODE_BINARY_PATH: '' }
    const { code, stdout, stderr } = await program(use, { env })
    assert.equal(code, 0, stderr)
    assert.match(stdout, expected)
  }
})
