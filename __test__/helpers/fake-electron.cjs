// As much of Electron as examples/electron uses, in one process: what is sent between main and window is cloned.

const { EventEmitter } = require('node:events')

const handlers = new Map()
const listeners = new Map()

class BrowserWindow extends EventEmitter {
  constructor(options) {
    super()
    BrowserWindow.last = this
    this.options = options
    this.webContents = new EventEmitter()
    this.webContents.setWindowOpenHandler = (handler) => (this.openHandler = handler)
    this.webContents.send = (channel, data) => listeners.get(channel)?.({}, structuredClone(data))
  }

  async loadURL(url) {
    this.url = url
  }
}

const app = new EventEmitter()
app.whenReady = async () => {}
app.quit = () => {
  const event = { prevented: false, preventDefault: () => (event.prevented = true) }
  app.emit('before-quit', event)
  if (!event.prevented) app.emit('quit')
}

exports.app = app
exports.BrowserWindow = BrowserWindow
exports.dialog = { showOpenDialog: async () => ({ canceled: true, filePaths: [] }) }
exports.utilityProcess = undefined
exports.ipcMain = { handle: (name, work) => handlers.set(name, work) }
exports.ipcRenderer = {
  url: undefined,
  invoke: async (name, ...args) => {
    const event = { senderFrame: { url: exports.ipcRenderer.url ?? BrowserWindow.last.url } }
    return structuredClone(await handlers.get(name)(event, ...structuredClone(args)))
  },
  on: (channel, listener) => listeners.set(channel, listener),
}
exports.exposed = {}
exports.contextBridge = {
  exposeInMainWorld: (name, api) => {
    exports.exposed[name] = api
  },
}
