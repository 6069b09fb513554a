// Gives a forked process what an Electron utility process has.

const { EventEmitter } = require('node:events')

const { send } = process
const port = new EventEmitter()
port.postMessage = (message) => send.call(process, structuredClone(message), () => {})
process.on('message', (data) => port.emit('message', { data, ports: [] }))
process.on('disconnect', () => process.exit())
process.parentPort = port
// A utility process has no channel of Node's.
process.send = undefined
