// @ts-check
// Electron's main process: one window, the model behind it, and the messages between the two.

import { fileURLToPath } from 'node:url'
import { BrowserWindow, app, dialog, ipcMain, utilityProcess } from 'electron'

import { ModelSession } from './session.mjs'

const path = (name) => fileURLToPath(new URL(name, import.meta.url))
const page = new URL('renderer/index.html', import.meta.url).href

/** @type {BrowserWindow | undefined} */
let window
/** @type {Promise<ModelSession> | undefined} */
let session

/** The model's process starts with the first request. */
function model() {
  const emit = (event) => window?.webContents.send('model:event', event)
  return (session ??= ModelSession.start(emit, { utilityProcess, serviceName: 'model' }))
}

/** Lets the user choose the file: the window never names a path. */
async function open() {
  const filters = [{ name: 'GGUF models', extensions: ['gguf'] }]
  const { canceled, filePaths } = await dialog.showOpenDialog({ properties: ['openFile'], filters })
  const [file] = filePaths
  if (canceled || file === undefined) return { value: null }
  try {
    return { value: await (await model()).load(file) }
  } catch (error) {
    return { error: { message: error.message, code: error.code, hint: error.hint } }
  }
}

function createWindow() {
  window = new BrowserWindow({
    width: 860,
    height: 720,
    webPreferences: { preload: path('preload.cjs'), contextIsolation: true, sandbox: true, nodeIntegration: false },
  })
  // The page is this app's own; it opens nothing and goes nowhere.
  window.webContents.setWindowOpenHandler(() => ({ action: 'deny' }))
  window.webContents.on('will-navigate', (event) => event.preventDefault())
  window.on('closed', () => (window = undefined))
  return window.loadURL(page)
}

/** Answers the window's requests, and nobody else's. */
function handle(name, work) {
  ipcMain.handle(`model:${name}`, (event, ...args) => {
    if (event.senderFrame?.url !== page) throw new Error('not for this page')
    return work(...args)
  })
}

handle('open', open)
for (const name of ['devices', 'generate', 'stop']) {
  handle(name, async (...args) => (await model()).handlers()[name](...args))
}

app.on('window-all-closed', () => app.quit())
app.on('before-quit', (event) => {
  if (session === undefined) return
  // Finishes what the device does, frees it, then quits.
  const closing = session.then((each) => each.close())
  session = undefined
  event.preventDefault()
  closing.catch(() => {}).finally(() => app.quit())
})

await app.whenReady()
await createWindow()
