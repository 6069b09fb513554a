// What the tests of the package do not check of this example, because it needs more than Node. From a checkout of cann-node:
//
//   node examples/electron/check.mjs types              main, preload and session against Electron's own types (from npm)
//   node examples/electron/check.mjs page [FOLDER] [MODEL.gguf]
//                                                       the page in headless Chromium, over a real model; pictures go to FOLDER
//
// CHROMIUM names the browser; else `chromium` is looked for.

import { spawn, spawnSync } from 'node:child_process'
import { cpSync, createReadStream, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { basename, dirname, extname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

const here = dirname(fileURLToPath(import.meta.url))
const root = join(here, '../..')
const folder = mkdtempSync(join(tmpdir(), 'cann-node-electron-'))
process.on('exit', () => rmSync(folder, { recursive: true, force: true }))

/** The app as it is installed: with the package in its node_modules. */
function installApp() {
  const app = join(folder, 'app')
  cpSync(here, app, { recursive: true, filter: (path) => basename(path) !== 'node_modules' })
  mkdirSync(join(app, 'node_modules'))
  symlinkSync(root, join(app, 'node_modules/cann-node'), 'junction')
  return app
}

function run(command, args, cwd) {
  const { status, error } = spawnSync(command, args, { cwd, stdio: 'inherit', shell: process.platform === 'win32' })
  if (error ?? status !== 0) throw error ?? new Error(`${command} ended with ${status}`)
}

function types() {
  const app = installApp()
  const electron = join(folder, 'electron')
  mkdirSync(electron)
  writeFileSync(join(electron, 'package.json'), '{ "private": true }')
  // Without its scripts, which would fetch the browser, it is its types.
  run('npm', ['install', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error', 'electron@45.5.0'], electron)
  for (const name of ['electron', '@types', 'undici-types']) symlinkSync(join(electron, 'node_modules', name), join(app, 'node_modules', name), 'junction')
  const compilerOptions = {
    allowJs: true,
    noEmit: true,
    strict: true,
    // JavaScript has no place for the types of parameters that are left out.
    noImplicitAny: false,
    useUnknownInCatchVariables: false,
    module: 'nodenext',
    target: 'es2022',
    lib: ['es2022', 'esnext.disposable', 'dom'],
    types: ['node'],
    skipLibCheck: true,
  }
  // And that Electron's utilityProcess is what connect() takes, by the types alone.
  const use = `import { utilityProcess } from 'electron'\nimport { connect } from 'cann-node/host'\nexport const cann = connect({ utilityProcess })\n`
  writeFileSync(join(app, 'use.mts'), use)
  writeFileSync(join(app, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['main.mjs', 'preload.cjs', 'session.mjs', 'use.mts'] }))
  run(process.execPath, [join(root, 'node_modules/typescript/bin/tsc'), '-p', '.'], app)
  console.log('types: as Electron has them')
}

// ---------------------------------------------------------------- the page

const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css' }

/** Stands for preload.cjs: the same functions, over a local server. */
const bridge = `
  const ask = (name) => (...args) => fetch('/model/' + name, { method: 'POST', body: JSON.stringify(args) }).then((r) => r.json())
  window.model = {
    open: ask('open'), devices: ask('devices'), generate: ask('generate'), stop: ask('stop'),
    onEvent: (listener) => { new EventSource('/events').onmessage = ({ data }) => listener(JSON.parse(data)) },
  }`

/** Serves the page and the model. */
async function serve(app, path) {
  const { ModelSession } = await import(pathToFileURL(join(app, 'session.mjs')).href)
  const streams = new Set()
  const session = await ModelSession.start((event) => {
    for (const stream of streams) stream.write(`data: ${JSON.stringify(event)}\n\n`)
  })
  const handlers = { ...session.handlers(), open: async () => ({ value: await session.load(path) }) }
  const server = createServer(async (request, response) => {
    const name = basename(request.url)
    if (request.url === '/events') {
      streams.add(response.writeHead(200, { 'content-type': 'text/event-stream' }))
      response.flushHeaders()
    } else if (request.method === 'POST') {
      const body = (await request.toArray()).join('')
      response.end(JSON.stringify(await handlers[name](...JSON.parse(body))))
    } else if (extname(name) in TYPES) {
      response.writeHead(200, { 'content-type': TYPES[extname(name)] })
      createReadStream(join(app, 'renderer', name)).pipe(response)
    } else response.writeHead(name === 'favicon.ico' ? 204 : 404).end()
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  return { session, server, url: `http://127.0.0.1:${server.address().port}/index.html` }
}

/** Chromium by the DevTools protocol, over two pipes. */
function launch() {
  const args = ['--headless', '--no-sandbox', '--disable-gpu', '--hide-scrollbars', '--remote-debugging-pipe', `--user-data-dir=${join(folder, 'profile')}`]
  const browser = spawn(process.env.CHROMIUM ?? 'chromium', args, { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] })
  process.on('exit', () => browser.kill())
  const pending = new Map()
  const errors = []
  let rest = ''
  let id = 0
  browser.on('error', (error) => {
    throw error
  })
  browser.stdio[4].setEncoding('utf8').on('data', (data) => {
    const messages = (rest + data).split('\0')
    rest = messages.pop()
    for (const message of messages.map((text) => JSON.parse(text))) {
      pending.get(message.id)?.(message)
      if (message.method === 'Runtime.exceptionThrown') errors.push(message.params.exceptionDetails.exception?.description)
      if (message.method === 'Log.entryAdded' && message.params.entry.level === 'error') errors.push(message.params.entry.text)
    }
  })
  const send = (method, params = {}, sessionId = undefined) =>
    new Promise((resolve, reject) => {
      pending.set(++id, ({ result, error }) => (error ? reject(new Error(`${method}: ${error.message}`)) : resolve(result)))
      browser.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`)
    })
  return { browser, send, errors }
}

async function page([pictures = folder, given]) {
  const app = installApp()
  let path = given
  if (path === undefined) {
    const { writeTinyLlama } = await import('../../tools/tiny-llama.mjs')
    path = join(folder, 'tiny.gguf')
    writeTinyLlama(path)
  }
  const { session, server, url } = await serve(app, path)
  const { browser, send, errors } = launch()
  const { targetId } = await send('Target.createTarget', { url: 'about:blank' })
  const { sessionId } = await send('Target.attachToTarget', { targetId, flatten: true })
  const call = (method, params) => send(method, params, sessionId)
  const evaluate = async (expression) => (await call('Runtime.evaluate', { expression, awaitPromise: true, returnByValue: true })).result.value
  const until = async (what, expression) => {
    for (let i = 0; i < 600; i++) {
      if (await evaluate(expression)) return console.log(`page: ${what}`)
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
    throw new Error(`the page never came to: ${what}`)
  }
  const picture = async (name) => {
    const { data } = await call('Page.captureScreenshot')
    writeFileSync(join(pictures, `${name}.png`), Buffer.from(data, 'base64'))
  }
  const submit = (text) => `document.getElementById('prompt').value = ${JSON.stringify(text)}; document.getElementById('form').requestSubmit()`
  const status = "document.getElementById('status').textContent"
  const answer = "document.querySelector('.answer:last-of-type').textContent"

  mkdirSync(pictures, { recursive: true })
  for (const domain of ['Page', 'Runtime', 'Log']) await call(`${domain}.enable`)
  await call('Emulation.setDeviceMetricsOverride', { width: 860, height: 720, deviceScaleFactor: 1, mobile: false })
  await call('Page.addScriptToEvaluateOnNewDocument', { source: bridge })
  await call('Page.navigate', { url })
  await until('devices are listed', `${status}.includes('HOST0')`)
  await picture('1-start')
  await evaluate("document.getElementById('open').click()")
  await until('an upload shows how far it is', "document.getElementById('progress').value > 0")
  await picture('2-upload')
  await until('the model is there', "!document.getElementById('send').disabled")
  await evaluate(submit('What is the capital of France?'))
  await until('an answer comes piece by piece', `${answer}.length > 3 && !document.getElementById('stop').disabled`)
  await picture('3-answer')
  await until('the answer is whole', `${status}.includes('tokens,')`)
  await picture('4-done')
  await evaluate(submit('Tell me a very long story.'))
  await until('another begins', `${answer}.length > 3`)
  await evaluate("document.getElementById('stop').click()")
  await until('it is stopped', `${status}.includes('stopped')`)
  await picture('5-stopped')
  if (errors.length > 0) throw new Error(`the page had errors:\n${errors.join('\n')}`)

  server.closeAllConnections()
  server.close()
  await session.close()
  browser.kill()
  console.log(`page: no errors; pictures in ${pictures}`)
}

const [what, ...rest] = process.argv.slice(2)
const checks = { types, page }
if (!Object.hasOwn(checks, what)) {
  console.error('usage: node examples/electron/check.mjs types | page [FOLDER] [MODEL.gguf]')
  process.exit(2)
}
try {
  await checks[what](rest)
} catch (error) {
  console.error(`error: ${error.message}`)
  process.exit(1)
}
