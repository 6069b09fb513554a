// Electron's utilityProcess as far as cann-node/host uses it, over Node's own processes: what is sent is cloned as a MessagePort does
// it, and the child has process.parentPort. Electron itself is no package that tests could install.

import { fork } from 'node:child_process'
import { EventEmitter } from 'node:events'
import { fileURLToPath } from 'node:url'

export const utilityProcess = {
  fork(modulePath, args, { env, execArgv = [], cwd, serviceName }) {
    const preload = fileURLToPath(new URL('parent-port.cjs', import.meta.url))
    const child = fork(modulePath, args, { env, cwd, execArgv: [...execArgv, '--require', preload], serialization: 'advanced' })
    const utility = new EventEmitter()
    utility.serviceName = serviceName
    Object.defineProperty(utility, 'pid', { get: () => child.pid })
    utility.postMessage = (message) => child.send(structuredClone(message), () => {})
    utility.kill = () => child.kill()
    child.on('message', (message) => utility.emit('message', message))
    child.on('exit', (code, signal) => utility.emit('exit', code ?? 128 + (signal === 'SIGSEGV' ? 11 : 15)))
    return utility
  },
}
