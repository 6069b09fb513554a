// @ts-check
// What the page sees of the app: four functions and a listener. It has no Node and no Electron.

const { contextBridge, ipcRenderer } = require('electron')

contextBridge.exposeInMainWorld('model', {
  open: () => ipcRenderer.invoke('model:open'),
  devices: () => ipcRenderer.invoke('model:devices'),
  /** @param {string} prompt */
  generate: (prompt) => ipcRenderer.invoke('model:generate', prompt),
  stop: () => ipcRenderer.invoke('model:stop'),
  /** @param {(event: unknown) => void} listener */
  onEvent: (listener) => {
    ipcRenderer.on('model:event', (_, event) => listener(event))
  },
})
