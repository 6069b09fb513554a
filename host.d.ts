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

/** What {@link connect} may be told. */
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
  /** Starts a child. */
  fork(
    modulePath: string,
    args?: string[],
    options?: { env?: { [name: string]: string | undefined }; execArgv?: string[]; cwd?: string; stdio?: 'inherit'; serviceName?: string },
  ): {
    /** Its process id, once it runs. */
    readonly pid: number | undefined
    /** Sends it a message. */
    postMessage(message: unknown): void
    /** Ends it. */
    kill(): boolean
    /** Receives its messages. */
    on(event: 'message', listener: (message: any) => void): unknown
    /** Learns that it cannot go on. */
    on(event: 'error', listener: () => void): unknown
    /** Learns of its end. */
    once(event: 'exit', listener: (code: number) => void): unknown
  }
}

/** How a child ended. */
export interface HostExit {
  /** Its process id, if it came so far. */
  pid: number | undefined
  /** Its exit code; null when a signal ended it. */
  code: number | null
  /** The signal that ended it, such as 'SIGSEGV'. */
  signal: string | null
  /** As in the errors: 'signal SIGSEGV', 'exit code 1'. */
  reason: string
}

/** Starts a child process. Rejects with ERR_DEVICE_LOST when it ends before it is ready. */
export function connect(options?: ConnectOptions): Promise<Host>

/** A class for `instanceof`. */
export type Class<T> = abstract new (...args: never) => T

/** One connection. Its members need no `this`. */
export interface Host {
  /** The package's own class. */
  readonly CannError: typeof cann.CannError
  /** The package's own class. */
  readonly DeviceBuffer: typeof cann.DeviceBuffer
  /** The package's own class: graphs are built in this process. */
  readonly Graph: typeof cann.Graph
  /** The package's own class. */
  readonly GraphTensor: typeof cann.GraphTensor
  /** The package's own class. */
  readonly Tensor: typeof cann.Tensor
  /** The package's own class. */
  readonly Weights: typeof cann.Weights
  /** Backends of the child. */
  readonly Backend: Class<Backend> & {
    /** As the package's own, in the child; starts one if none lives. */
    open(options?: cann.BackendOptions): Promise<Backend>
  }
  /** Events of the child. */
  readonly Event: Class<Event>
  /** Host memory of the child. */
  readonly HostBuffer: Class<HostBuffer>
  /** Plans of the child. */
  readonly Plan: Class<Plan>
  /** The child's devices, as the package's function lists them. */
  listDevices(): Promise<cann.DeviceInfo[]>
  /** Why the child uses an NPU or does not. */
  driverReport(): Promise<cann.DriverReport[]>
  /** Header, metadata and tensor table of a GGUF file, which the child reads. */
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
  /** What `using` calls: dispose(). */
  [Symbol.dispose](): void
  /** What `await using` calls: close(). */
  [Symbol.asyncDispose](): Promise<void>
}

/** Methods of a backend that are answered at once there and by a promise here. */
export type Asked = 'supportsOp' | 'explainOp' | 'offloadOp' | 'supportsBuffer' | 'stats'
/** Methods of a backend that take or give objects of the child. */
export type Made = 'allocHostBuffer' | 'prepare' | 'createEvent' | 'record' | 'wait'

/** A backend of the child: the package's, but for what its process answers by a promise. */
export interface Backend extends Omit<cann.Backend, Asked | Made> {
  /** Whether the device takes the node. */
  supportsOp(node: cann.GraphTensor): Promise<boolean>
  /** null when supported, else the rule that refuses it. */
  explainOp(node: cann.GraphTensor): Promise<string | null>
  /** Whether ggml's scheduler rule would offload this node. */
  offloadOp(node: cann.GraphTensor): Promise<boolean>
  /** Whether operators of this backend can use the buffer. */
  supportsBuffer(buffer: cann.DeviceBuffer | HostBuffer): Promise<boolean>
  /** Memory, queue and copies when the child answers. */
  stats(): Promise<cann.BackendStats>
  /** Pinned memory of the child; plain memory when it cannot be pinned. */
  allocHostBuffer(size: number): Promise<HostBuffer>
  /** Snapshots the graph and makes it ready to run in the child; a `fallback` is another backend of the same child. */
  prepare(graph: cann.Graph, options?: { fallback?: Backend }): Promise<Plan>
  /** An event of this backend, not recorded yet. */
  createEvent(): Promise<Event>
  /** Records the event after everything submitted so far. */
  record(event: Event): Promise<void>
  /** Makes this backend's stream wait for the event; resolves when the wait has been enqueued. */
  wait(event: Event): Promise<void>
}

/** Memory of the child that its devices copy from and to without staging. */
export interface HostBuffer extends Omit<cann.HostBuffer, 'read' | 'write'> {
  /** Copies `data` to byte `offset` (default 0). The array is the caller's again when the call returns. */
  write(data: cann.TensorData, offset?: number): Promise<void>
  /** A copy of `size` bytes from `offset` on; default all to the end. */
  read(offset?: number, size?: number): Promise<Uint8Array>
}

/** A point in the work of a backend of the child. */
export interface Event extends Omit<cann.Event, 'query'> {
  /** Whether the work before its last record is done; true when it was never recorded. */
  query(): Promise<boolean>
}

/** A plan of the child. */
export interface Plan extends Omit<cann.Plan, 'report' | 'trace'> {
  /** What runs where, by which calls, and what was refused or converted and why. */
  report(): Promise<ReturnType<cann.Plan['report']>>
  /** Chrome/Perfetto trace-event JSON of the last run with `trace: true`. */
  trace(): Promise<string | null>
}
