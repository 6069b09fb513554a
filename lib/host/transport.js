'use strict'

// A child process and the way to it: Node's child_process.fork, or Electron's utilityProcess in Electron's main process.

const { fork } = require('node:child_process')
const { join } = require('node:path')

const SCRIPT = join(__dirname, 'child.js')

/** Electron's utilityProcess where this is its main process; a utility process has none and forks as Node does. */
function electron() {
  return process.versions.electron && process.type === 'browser' ? require('electron').utilityProcess : undefined
}

/** Starts a child. `message(data)` and `exit({ code, signal, error })` are called; nothing comes after exit. */
function start({ utilityProcess = electron(), env, ...options }, message, exit) {
  const given = { ...options, env: { ...process.env, ...env } }
  try {
    return utilityProcess === undefined ? forked(given, message, exit) : utility(utilityProcess, given, message, exit)
  } catch (error) {
    process.nextTick(exit, { code: null, signal: null, error })
    return { copiesViews: true, send() {}, end() {}, kill() {}, ref() {}, unref() {} }
  }
}

function forked({ execArgv = [], cwd, env }, message, exit) {
  // The parent's own options (--input-type, --test …) are not meant for the child.
  const child = fork(SCRIPT, [], { serialization: 'advanced', execArgv, cwd, env, stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
  child.on('message', message)
  let ended
  // What the child said before its end is still read after it.
  const end = () => ended && !child.connected && exit(ended)
  child.on('exit', (code, signal) => {
    ended ??= { code, signal }
    end()
  })
  child.on('disconnect', end)
  child.on('error', (error) => {
    if (child.pid !== undefined) return
    ended = { code: null, signal: null, error }
    exit(ended)
  })
  return {
    pid: child.pid,
    // A typed array is written as its own bytes, whatever memory it looks into.
    copiesViews: true,
    // A failure to send is the child's end, which is told apart.
    send: (data) => void child.send(data, () => {}),
    end: () => child.disconnect(),
    kill: () => void child.kill('SIGKILL'),
    // Bun's channel has neither: there it goes with the child.
    ref() {
      child.ref()
      child.channel?.ref?.()
    },
    unref() {
      child.unref()
      child.channel?.unref?.()
    },
  }
}

function utility(utilityProcess, { execArgv, cwd, env, serviceName = 'cann-node' }, message, exit) {
  const child = utilityProcess.fork(SCRIPT, [], { serviceName, execArgv, cwd, env, stdio: 'inherit' })
  child.on('message', message)
  child.once('exit', (code) => exit({ code, signal: null }))
  // A fatal error of V8: the exit that follows says enough, and an 'error' that nobody hears would end this process.
  child.on('error', () => {})
  return {
    get pid() {
      return child.pid
    },
    // Structured clone takes all the memory that a typed array looks into.
    copiesViews: false,
    send: (data) => child.postMessage(data),
    end: () => void child.kill(),
    kill: () => void child.kill(),
    // Electron's main process ends when its app says so, and its utility processes with it.
    ref() {},
    unref() {},
  }
}

module.exports = { start }
