/// <reference lib="esnext.disposable" />

/**
 * The API of `cann-node` over a child process: what fails in a driver, even by a crash, rejects promises here and nothing else. In
 * Electron's main process the child is a `utilityProcess`, elsewhere one of `child_process.fork`. It is started again when it
 * has ended.
 *
 * The classes are the package's own. What they answer at once in this process is a promise here: `stats`, `supportsOp`,
 * `explainOp`, `offloadOp`, `supportsBuffer`, `query`, `report`, `trace`, and `read` and `write` of a HostBuffer. Objects of one
 * connection cannot be used with another, nor with the package's own (ERR_INVALID_ARG).
 *
 * @example
 * ```js
 * import { connect } from 'cann-node/host'
 * await using cann = await connect()
 * const backend = await cann.Backend.open()
 * ```
 */

import type * as cann from './index.js'

export interface ConnectOptions {
  /** Variables for the child, over those of this process. */
  env?: Record<string, string>
  /** Options of Node for the child; default none. */
  execArgv?: string[]
  /** The child's working directory. Paths given to the API are resolved in this process. */
  cwd?: string
  /** Electron's `utilityProcess`; in Electron's main process it is found without this. */
  utilityProcess?: UtilityProcess
  /** The name that Electron shows for the child; default 'cann-node'. */
  serviceName?: string
}

/** What is used of Electron's `utilityProcess`. */
export interface UtilityProcess {
  fork(
    modulePath: string,
    args?: string[],
    options?: { env?: { [name: string]: string | undefined }; execArgv?: string[]; cwd?: string; stdio?: 'inherit'; serviceName?: string },
  ): {
    readonly pid: number | undefined
    postMessage(message: unknown): void
    kill(): boolean
    on(event: 'message', listener: (message: any) => void): unknown
    on(event: 'error', listener: () => void): unknown
    once(event: 'exit', listener: (code: number) => void): unknown
  }
}

/** How a child ended. */
export interface HostExit {
  pid: number | undefined
  code: number | null
  signal: string | null
  /** As in the errors: 'signal SIGSEGV', 'exit code 1'. */
  reason: string
}

/** Starts a child process. Rejects with ERR_DEVICE_LOST when it ends before it is ready. */
export function connect(options?: ConnectOptions): Promise<Host>

/** For `instanceof`. */
type Class<T> = abstract new (...args: never) => T

/** One connection. Its members need no `this`. */
export interface Host extends Pick<typeof cann, 'CannError' | 'DeviceBuffer' | 'Graph' | 'GraphTensor' | 'Tensor' | 'Weights'> {
  readonly Backend: Class<Backend> & { open(options?: cann.BackendOptions): Promise<Backend> }
  readonly Event: Class<Event>
  readonly HostBuffer: Class<HostBuffer>
  readonly Plan: Class<Plan>
  listDevices(): Promise<cann.DeviceInfo[]>
  driverReport(): Promise<cann.DriverReport[]>
  readGguf(path: string): Promise<cann.GgufInfo>
  /** Records of the child, and of those that follow it. */
  onLog(level: cann.LogLevel, listener: (record: cann.LogRecord) => void): () => void
  /**
   * Calls `listener` when a child has ended by itself or was killed; returns a function that stops it. Every pending promise then
   * rejects with ERR_DEVICE_LOST (`reason`, `hint`), every object of that child is disposed, and the next `listDevices`,
   * `driverReport`, `readGguf` or `Backend.open` starts another child; after a child that lived for less than five seconds
   * it waits first, a quarter of a second at the first time and at most ten.
   */
  onExit(listener: (exit: HostExit) => void): () => void
  /** The child that lives, if one does. */
  readonly pid: number | undefined
  /** Ends the child at once, as a crash would: for a driver that hangs. The connection can be used again. */
  kill(): void
  /** Refuses new calls, finishes what was submitted, closes every backend, ends the child. Idempotent. */
  close(): Promise<void>
  /** close() without waiting. */
  dispose(): void
  [Symbol.dispose](): void
  [Symbol.asyncDispose](): Promise<void>
}

type Asked = 'supportsOp' | 'explainOp' | 'offloadOp' | 'supportsBuffer' | 'stats'
type Made = 'allocHostBuffer' | 'prepare' | 'createEvent' | 'record' | 'wait'

export interface Backend extends Omit<cann.Backend, Asked | Made> {
  supportsOp(node: cann.GraphTensor): Promise<boolean>
  explainOp(node: cann.GraphTensor): Promise<string | null>
  offloadOp(node: cann.GraphTensor): Promise<boolean>
  supportsBuffer(buffer: cann.DeviceBuffer | HostBuffer): Promise<boolean>
  stats(): Promise<cann.BackendStats>
  allocHostBuffer(size: number): Promise<HostBuffer>
  prepare(graph: cann.Graph, options?: { fallback?: Backend }): Promise<Plan>
  createEvent(): Promise<Event>
  record(event: Event): Promise<void>
  wait(event: Event): Promise<void>
}

export interface HostBuffer extends Omit<cann.HostBuffer, 'read' | 'write'> {
  /** The array is the caller's again when the call returns. */
  write(data: cann.TensorData, offset?: number): Promise<void>
  read(offset?: number, size?: number): Promise<Uint8Array>
}

export interface Event extends Omit<cann.Event, 'query'> {
  query(): Promise<boolean>
}

export interface Plan extends Omit<cann.Plan, 'report' | 'trace'> {
  report(): Promise<{ node: string; op: string; device: string; calls: string[]; note: string | null }[]>
  trace(): Promise<string | null>
}
