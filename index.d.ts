/// <reference lib="esnext.disposable" />

/**
 * cann-node: Ascend NPU (or CPU) compute for Node.js and Electron.
 *
 * - Shapes are ggml's `ne`: `ne[0]` is the fastest-varying dimension; strides `nb` are in bytes.
 * - Sizes are bytes in a `number` (exact to 2^53). i64 data travels as `BigInt64Array`.
 * - What may touch a device, a file or a lock returns a promise and never blocks the event loop.
 * - Every rejection is a {@link CannError}, or exactly `signal.reason` when an AbortSignal fired. Nothing aborts the process.
 * - Memory handed to JavaScript is always V8's own.
 *
 * @example
 * ```js
 * import { Backend, Graph } from 'cann-node'
 * await using backend = await Backend.open()
 * const graph = new Graph()
 * const x = graph.input('x', 'f32', [4])
 * graph.output('y', graph.silu(x))
 * const plan = await backend.prepare(graph)
 * const { y } = await plan.run({ x: Float32Array.of(-1, 0, 1, 2) })
 * ```
 */

import type { OpMethods } from './ops.js'
export type * from './ops.js'

/** ggml element types in GGUF spelling. Device-native: f32 f16 bf16 i32 i64 i8 q4_0 q8_0; the rest are read from GGUF. */
export type DType =
  | 'f32'
  | 'f16'
  | 'bf16'
  | 'f64'
  | 'i8'
  | 'i16'
  | 'i32'
  | 'i64'
  | 'q4_0'
  | 'q4_1'
  | 'q5_0'
  | 'q5_1'
  | 'q8_0'
  | 'q2_K'
  | 'q3_K'
  | 'q4_K'
  | 'q5_K'
  | 'q6_K'
  | (string & {})

/** The typed arrays that {@link TensorData} is given in and read back as. */
export type TypedArray =
  | Float32Array
  | Float64Array
  | Int8Array
  | Int16Array
  | Int32Array
  | BigInt64Array
  | Uint8Array
  | Uint16Array

/**
 * How each dtype is given and returned: f32 `Float32Array`, f64 `Float64Array`, i8 `Int8Array`, i16 `Int16Array`, i32 `Int32Array`,
 * i64 `BigInt64Array`, f16 and bf16 `Uint16Array` (bits; a `Float16Array` is taken for f16 where the runtime has it),
 * quantised types `Uint8Array` (ggml blocks). An `ArrayBuffer` is taken for any.
 */
export type TensorData = TypedArray | ArrayBuffer

// ---------------------------------------------------------------- devices

/** A device, as {@link listDevices} and `backend.device` describe it. */
export interface DeviceInfo {
  /** Its place in {@link listDevices}; `Backend.open({ device })` takes it. */
  index: number
  /** "CANN0", "CANN1", … for Ascend NPUs; "HOST0", … for the embedded device. */
  name: string
  /** SoC name ("Ascend910B3"), or the CPU, the SIMD level in use and the threads. */
  description: string
  /** 'cann' is an NPU, or whatever `CANN_NODE_ACL_LIB` names; 'host' the embedded device. */
  driver: 'cann' | 'host'
  /** ggml's device type. */
  type: 'cpu' | 'gpu' | 'accel'
  /** Bytes, as of the call. */
  memory: {
    /** Bytes that can still be allocated. */
    free: number
    /** Bytes there are. */
    total: number
  }
  /** Whether virtual address ranges can be reserved, and in steps of how many bytes. */
  vmm: {
    /** Whether the pool 'vmm' can be had. */
    supported: boolean
    /** Bytes; 0 where it is not supported. */
    granularity: number
  }
  /** What ggml calls the device's capabilities. */
  caps: {
    /** Whether backends compute beside the caller: ggml's flag, which its CANN backend leaves off. Promises never block either way. */
    async: boolean
    /** Whether host memory can be pinned. */
    hostBuffer: boolean
    /** Whether host memory can be used as device memory without a copy. */
    bufferFromHostPtr: boolean
    /** Whether there are events. */
    events: boolean
  }
}

/** Every usable device, NPUs first. Never rejects because CANN is missing. */
export function listDevices(): Promise<DeviceInfo[]>

/** What was found of one driver, and why not more. */
export interface DriverReport {
  /** 'cann' for NPUs, 'host' for the embedded device. */
  driver: 'cann' | 'host'
  /** Whether its devices can be used. */
  available: boolean
  /** Its version where it is known: CANN's, or the package's. */
  version: string | null
  /** Each shared library looked for: where it was found, or why it was not. */
  libraries: {
    /** File name, such as 'libascendcl.so'. */
    name: string
    /** Where it was found; null when it was not. */
    path: string | null
    /** The system's words when it was not found or could not be opened. */
    error: string | null
  }[]
  /** Functions that the libraries lack: what needs them is refused with ERR_UNSUPPORTED_OP or ERR_UNSUPPORTED. */
  missingSymbols: string[]
  /** The toolkit's folder, where its libraries are open. */
  toolkit: string | null
  /** The version of the ACL interface, as the library says. */
  interfaceVersion: string | null
  /** The version of the NPU's driver, where the library says. */
  driverVersion: string | null
  /** What a look at the machine finds, causes before what follows from them. Empty for the embedded device. */
  checks: DriverCheck[]
  /**
   * One sentence a person can act on when `available` is false: the next step of the first check that fails. Of the embedded
   * device: which of its environment variables were not understood, and what holds instead.
   */
  hint: string | null
}

/** One check of the machine: what was found and, where it fails, what to do. */
export interface DriverCheck {
  /** What is checked; docs/ascend.md has a row about each. */
  name:
    | 'platform' | 'libc' | 'addon' | 'device-nodes' | 'permissions' | 'driver'
    | 'container' | 'toolkit' | 'environment' | 'libraries' | 'functions' | 'devices'
  /** `null` where it does not apply. */
  ok: boolean | null
  /** What there is, or what is wrong. */
  found: string
  /** What to do, where `ok` is false. */
  next: string | null
}

/** Why an NPU is or is not used on this machine. */
export function driverReport(): Promise<DriverReport[]>

// ---------------------------------------------------------------- errors and logs

/** What kind of failure a {@link CannError} is. The page "Errors and troubleshooting" says what to do about each. */
export type CannErrorCode =
  /** An ACL call failed; `aclCode`, `aclName` and `call` say which and how. */
  | 'ERR_ACL'
  /** Device or pinned memory; `requestedBytes` and `device` are set. The backend stays usable. */
  | 'ERR_OUT_OF_MEMORY'
  /** A sticky device fault: every pending promise of the backend rejects with it. */
  | 'ERR_DEVICE_LOST'
  /** `op` and `reason` (types, shapes, SoC rule, missing library function). */
  | 'ERR_UNSUPPORTED_OP'
  /** Anything else this device, file or platform cannot do. */
  | 'ERR_UNSUPPORTED'
  /** Tensors that do not fit together; the message names operator, operand and shapes. */
  | 'ERR_SHAPE_MISMATCH'
  /** An argument of the wrong kind or size; nothing was queued. */
  | 'ERR_INVALID_ARG'
  /** A malformed or hostile file; `offset` says where. */
  | 'ERR_GGUF'
  /** A missing or unreadable file; `cause` is Node's error. */
  | 'ERR_IO'
  /** No device or tensor of that name. */
  | 'ERR_NOT_FOUND'
  /** Used after `dispose()` or `close()`. */
  | 'ERR_DISPOSED'
  /** The addon could not be loaded; the message lists each attempt and what may help. */
  | 'ERR_LOAD'
  /** A mistake in this package. */
  | 'ERR_INTERNAL'

/** Synchronous calls throw it; calls that return a promise always reject with it and never throw. */
export class CannError extends Error {
  /** What kind of failure it is: the only thing a program should decide by. */
  readonly code: CannErrorCode
  /** Numeric aclError. */
  readonly aclCode?: number
  /** Its name, such as 'ACL_ERROR_RT_MEMORY_ALLOCATION'. */
  readonly aclName?: string
  /** The ACL function that failed. */
  readonly call?: string
  /** The name of the device, such as 'HOST0'. */
  readonly device?: string
  /** The operator, in ggml's spelling. */
  readonly op?: string
  /** The tensor, in the file's spelling. */
  readonly tensor?: string
  /** Why it was refused, or the library's own message. */
  readonly reason?: string
  /** Bytes that could not be had. */
  readonly requestedBytes?: number
  /** Bytes that were free at the time. */
  readonly freeBytes?: number
  /** Position in the file. */
  readonly offset?: number
  /** What to do about it, where that is known. */
  readonly hint?: string
}

/** From the few that matter most to every detail. */
export type LogLevel = 'error' | 'warn' | 'info' | 'debug' | 'trace'

/** One event of the library, as {@link onLog} receives it. Values of tensors are never in it. */
export interface LogRecord {
  /** How much it matters. */
  level: LogLevel
  /** The part of the library it comes from, such as 'cann_backend::queue'. */
  target: string
  /** What happened, such as 'use vmm pool'. */
  message: string
  /** Figures that belong to it, by name. `droppedRecords` counts the records that did not fit before this one. */
  fields: Record<string, unknown>
}

/**
 * Receives the library's events of `level` and worse; returns a function that stops it. Nothing is printed by default
 * (`CANN_NODE_LOG=debug` prints to stderr). A listener does not keep the process alive.
 */
export function onLog(level: LogLevel, listener: (record: LogRecord) => void): () => void

// ---------------------------------------------------------------- backend

/** What {@link Backend.open} may be told. */
export interface BackendOptions {
  /** Name or index; default the first of {@link listDevices}. */
  device?: string | number
  /** Scratch-memory pool; 'auto' follows the `GGML_CANN_*` environment variables. */
  pool?: 'auto' | 'vmm' | 'buffer' | 'priority' | 'legacy'
  /** true (default, unless `GGML_CANN_ASYNC_MODE` is off): each launch is a queue item; false: one run is one item. */
  asyncMode?: boolean
  /** Threads of the embedded device, fixed at its first use (another value later is ERR_INVALID_ARG); ignored on an NPU. */
  threads?: number
}

/** A device opened for work: one worker thread, first in first out. Open several for work side by side. */
export class Backend {
  /** Rejects with ERR_NOT_FOUND when there is no such device, and lists those there are. */
  static open(options?: BackendOptions): Promise<Backend>
  /** The name of its device, such as 'HOST0'. */
  readonly name: string
  /** The backend's GUID, 32 hex digits. */
  readonly guid: string
  /** The device as it was when the backend was opened. */
  readonly device: DeviceInfo
  /** Whether close() was called. */
  readonly closed: boolean
  /** Device memory of `size` bytes. Rejects with ERR_OUT_OF_MEMORY. */
  allocBuffer(size: number): Promise<DeviceBuffer>
  /** Pinned host memory; falls back to plain memory when it cannot be pinned (`buffer.pinned` tells). */
  allocHostBuffer(size: number): Promise<HostBuffer>
  /** A tensor in a buffer of its own, or placed at byte `offset` in `buffer`. Its content is undefined until written. */
  createTensor(spec: { type: DType; ne: number[]; name?: string; buffer?: DeviceBuffer; offset?: number }): Promise<Tensor>
  /** Uploads the weights of a GGUF file, or of the split files that begin with it. */
  loadWeights(path: string, options?: LoadOptions): Promise<Weights>
  /** Copies between tensors of this backend, or from another backend's tensor (peer access where there is, else staged). */
  copy(src: Tensor, dst: Tensor): Promise<void>
  /** Whether this device takes the node: what {@link Backend.prepare} goes by. */
  supportsOp(node: GraphTensor): boolean
  /** null when supported, else the rule that refuses it (types, shapes, SoC, missing library function). */
  explainOp(node: GraphTensor): string | null
  /** Whether ggml's scheduler rule would offload this node (batch of 32 or more, not GET_ROWS). */
  offloadOp(node: GraphTensor): boolean
  /** Whether operators of this backend can use the buffer: its own ones, device or host. */
  supportsBuffer(buffer: DeviceBuffer | HostBuffer): boolean
  /** Bytes a tensor takes in this backend's buffers (rows of quantised types padded to 512 elements). */
  allocSize(spec: { type: DType; ne: number[] }): number
  /**
   * Snapshots the graph, checks every node, places intermediates in the backend's shared scratch arena, and gives something
   * that can run many times. Rejects with ERR_UNSUPPORTED_OP for a node that the device refuses, unless `fallback` takes it: the
   * plan then runs in parts on either backend, and `report()` says where and what is copied between them.
   */
  prepare(graph: Graph, options?: { fallback?: Backend }): Promise<Plan>
  /** An event of this backend, not recorded yet. */
  createEvent(): Promise<Event>
  /** Records the event after everything submitted so far. */
  record(event: Event): Promise<void>
  /** Makes this backend's stream wait for the event; resolves when the wait has been enqueued. */
  wait(event: Event): Promise<void>
  /** Resolves when everything submitted before has finished. */
  synchronize(): Promise<void>
  /** Memory, queue and copies at this moment; asks no device and may be called as often as wanted. */
  stats(): BackendStats
  /** Rejects new calls, finishes what was submitted, frees everything. Idempotent. */
  close(): Promise<void>
  /** close() without waiting. */
  dispose(): void
  /** What `using` calls: dispose(). */
  [Symbol.dispose](): void
  /** What `await using` calls: close(). */
  [Symbol.asyncDispose](): Promise<void>
}

/** Figures of a backend, from {@link Backend.stats}. Sizes are bytes. */
export interface BackendStats {
  /** The scratch memory that plans share. */
  pool: {
    /** Which pool it is: 'vmm', 'buffer', 'priority' or 'legacy'. */
    kind: string
    /** Bytes taken from the device. */
    bytesReserved: number
    /** Bytes of them that plans hold. */
    bytesInUse: number
    /** The most bytes that were ever in use. */
    peakBytes: number
    /** How often memory was asked for. */
    allocations: number
    /** How often it was there already. */
    reuses: number
  }
  /** The calls that wait for the worker. */
  queue: {
    /** How many may wait in it; more wait as promises. */
    capacity: number
    /** How many wait now. */
    depth: number
    /** How many were ever submitted. */
    submitted: number
    /** How many of them are done. */
    completed: number
  }
  /** Memory of tensors, buffers and weights. */
  buffers: {
    /** Allocations that are alive. */
    count: number
    /** Bytes they take on the device, padding included. */
    bytes: number
  }
  /** Copies from other backends' tensors, by how they went. */
  copies: {
    /** From device to device. */
    peer: number
    /** Through host memory. */
    staged: number
  }
}

/**
 * dispose() marks at once (new use throws or rejects with ERR_DISPOSED) and memory goes back when the last task that uses it
 * is past; `[Symbol.asyncDispose]` and backend.synchronize() resolve after that.
 */
export interface Releasable {
  /** Marks it as disposed; more than once is harmless. */
  dispose(): void
  /** What `using` calls: dispose(). */
  [Symbol.dispose](): void
  /** What `await using` calls: dispose(), then waits until the memory has gone back. */
  [Symbol.asyncDispose](): Promise<void>
}

/** Bytes on a device, for tensors placed by hand: {@link Backend.allocBuffer}. */
export class DeviceBuffer implements Releasable {
  /** Bytes. */
  readonly size: number
  /** The name of its device. */
  readonly device: string
  /** Sets every byte to `value`, 0 to 255. */
  clear(value: number): Promise<void>
  /** Marks it as disposed; more than once is harmless. */
  dispose(): void
  /** What `using` calls: dispose(). */
  [Symbol.dispose](): void
  /** What `await using` calls: dispose(), then waits until the memory has gone back. */
  [Symbol.asyncDispose](): Promise<void>
}

/** Bytes in host memory that a device copies from and to without staging: {@link Backend.allocHostBuffer}. */
export class HostBuffer implements Releasable {
  /** Bytes. */
  readonly size: number
  /** Whether the device can copy from and to it without staging. */
  readonly pinned: boolean
  /** Copies `data` to byte `offset` (default 0). */
  write(data: TensorData, offset?: number): void
  /** A copy of `size` bytes from `offset` on; default all to the end. */
  read(offset?: number, size?: number): Uint8Array
  /** Marks it as disposed; more than once is harmless. */
  dispose(): void
  /** What `using` calls: dispose(). */
  [Symbol.dispose](): void
  /** What `await using` calls: dispose(), then waits until the memory has gone back. */
  [Symbol.asyncDispose](): Promise<void>
}

/** A point in the work of a backend: {@link Backend.createEvent}, then {@link Backend.record}. */
export class Event implements Releasable {
  /** Whether the work before its last record is done; true when it was never recorded. */
  query(): boolean
  /** Resolves when it is done. Rejects with the device's error when that work failed for good. */
  synchronize(): Promise<void>
  /** Marks it as disposed; more than once is harmless. */
  dispose(): void
  /** What `using` calls: dispose(). */
  [Symbol.dispose](): void
  /** What `await using` calls: dispose(), then waits until the memory has gone back. */
  [Symbol.asyncDispose](): Promise<void>
}

/** A tensor in device memory. */
export class Tensor implements Releasable {
  /** The name given to createTensor, or the file's. */
  readonly name: string
  /** What is stored. */
  readonly type: DType
  /** What the file had (differs from `type` after conversion in loadWeights). */
  readonly sourceType: DType
  /** Extents, the fastest dimension first; four of them. */
  readonly ne: number[]
  /** Byte strides in ggml's layout. */
  readonly nb: number[]
  /** Bytes in ggml's layout. */
  readonly nbytes: number
  /**
   * Writes `data` at byte `offset` of the tensor's ggml layout. The array is the caller's again when the call returns; above
   * 4 MiB, when the promise settles (it is copied in slices over several ticks, and must stay attached and unchanged).
   */
  write(data: TensorData, offset?: number): Promise<void>
  /** Reads `size` bytes from `offset` on in the tensor's ggml layout; default all to the end. */
  read(offset?: number, size?: number): Promise<TypedArray>
  /** Reads into memory the caller owns; its byte length says how much. Resolves to the same array. */
  readInto<T extends TypedArray>(dst: T, offset?: number): Promise<T>
  /** Sets every byte of the ggml layout to `byte`, 0 to 255. */
  fill(byte: number): Promise<void>
  /** Marks it as disposed; more than once is harmless. */
  dispose(): void
  /** What `using` calls: dispose(). */
  [Symbol.dispose](): void
  /** What `await using` calls: dispose(), then waits until the memory has gone back. */
  [Symbol.asyncDispose](): Promise<void>
}

// ---------------------------------------------------------------- weights (GGUF)

/** What {@link Backend.loadWeights} may be told. */
export interface LoadOptions {
  /** About 20 times a second, at the first and at the last byte. Never called after the promise settled. */
  onProgress?: (p: { bytesDone: number; bytesTotal: number; tensor: string }) => void
  /** Stops the upload and frees what is there; the promise rejects with `signal.reason`. */
  signal?: AbortSignal
  /** Which tensors to upload (default all). */
  filter?: (name: string) => boolean
  /** What to do with types the device has no layout for: convert on the way (default) or reject. */
  convert?: 'auto' | 'f16' | 'q8_0' | 'never'
}

/** The tensors and metadata of a GGUF file, on a device: {@link Backend.loadWeights}. */
export class Weights implements Releasable {
  /**
   * Numeric arrays are typed arrays; 64-bit integers beyond 2^53 are bigint; text that is not UTF-8 is a Uint8Array. Made at the
   * first use, which takes about 30 ms for a vocabulary of 100,000 texts.
   */
  readonly metadata: Record<string, unknown>
  /** In file order. */
  readonly names: string[]
  /** Bytes of all tensors as stored. */
  readonly bytes: number
  /** The same object each time. Throws ERR_NOT_FOUND. */
  get(name: string): Tensor
  /** Whether a tensor of that name was loaded. */
  has(name: string): boolean
  /** Disposes of every tensor. */
  dispose(): void
  /** What `using` calls: dispose(). */
  [Symbol.dispose](): void
  /** What `await using` calls: dispose(), then waits until the memory has gone back. */
  [Symbol.asyncDispose](): Promise<void>
}

/** Header, metadata and tensor table of a GGUF file (split files included), without reading the weights. */
export function readGguf(path: string): Promise<GgufInfo>

/** What {@link readGguf} finds. */
export interface GgufInfo {
  /** Of the format: 2 or 3. */
  version: number
  /** Keys and values, as {@link Weights.metadata} has them. */
  metadata: Record<string, unknown>
  /** The table of tensors, in file order. */
  tensors: {
    /** Its name, such as 'blk.0.attn_q.weight'. */
    name: string
    /** Its type in the file. */
    type: DType
    /** Extents, the fastest dimension first. */
    ne: number[]
    /** Byte at which its data begin in its file. */
    offset: number
    /** Bytes in the file. */
    nbytes: number
  }[]
}

// ---------------------------------------------------------------- graph

/** A node of a graph being built: no data yet. */
export class GraphTensor {
  /** The name of an input or a device tensor; else its place, such as 'node_2'. */
  readonly name: string
  /** The operator that makes it; 'NONE' for inputs and device tensors. */
  readonly op: OpName
  /** The type of its elements. */
  readonly type: DType
  /** Extents, the fastest dimension first; four of them. */
  readonly ne: number[]
  /** Byte strides; four of them. */
  readonly nb: number[]
}

/** ggml's operator names, unary and GLU kinds included ('ADD', 'MUL_MAT', 'SILU', 'SWIGLU', 'ROPE', …). */
export type OpName = string
/** Parameters of an operator by ggml's names. */
export type OpParams = Record<string, number | boolean | string | number[]>

/**
 * A graph being built, with ggml's operators: by name with op(), and as methods with checked types.
 *
 * It is a description only; {@link Backend.prepare} takes it as it is at that moment. Shapes and types are checked as each node is
 * added. A graph belongs to no backend until it names a device tensor.
 */
export class Graph {
  /** An empty graph. */
  constructor()
  /** Data given with each run: elements of `type`, shape `ne` with the fastest dimension first. Throws for a name that is taken. */
  input(name: string, type: DType, ne: number[]): GraphTensor
  /** Uses a device tensor (a weight, a KV cache) as a leaf; operators may write into it through CPY / SET_ROWS views. */
  tensor(t: Tensor): GraphTensor
  /**
   * Any operator by name; parameters under ggml's own names (n_dims, freq_base, …). Shape and type are inferred as ggml
   * does; a wrong arity, shape or type throws ERR_SHAPE_MISMATCH or ERR_INVALID_ARG naming op, operand and shapes.
   */
  op(
    op: OpName,
    src: (GraphTensor | null)[],
    params?: OpParams,
    result?: { type?: DType; ne?: number[]; nb?: number[] },
  ): GraphTensor
  /** A window into x: extents, byte strides (packed if null; ggml's form without the first is taken too), byte offset. */
  view(x: GraphTensor, ne: number[], nb?: number[] | null, offset?: number): GraphTensor
  /** The elements of a packed x under other extents. */
  reshape(x: GraphTensor, ne: number[]): GraphTensor
  /** Dimension i of x becomes dimension axes[i] of the result. */
  permute(x: GraphTensor, axes: number[]): GraphTensor
  permute(x: GraphTensor, axis0: number, axis1: number, axis2: number, axis3: number): GraphTensor
  /**
   * Nodes run in the order they were created. A node runs if an output depends on it, or if it writes into a device tensor
   * given with tensor() (KV caches are written so); others are dropped.
   */
  output(name: string, t: GraphTensor): void
  /** Every node so far, in the order they were made, inputs and device tensors included. */
  readonly nodes: GraphTensor[]
  /** Graphviz text of the graph. */
  toDot(): string
  /** The graph as one self-contained SVG picture: leaves as boxes, views dashed, outputs with a bold edge. */
  toSvg(): string
}
export interface Graph extends OpMethods {}

/** A graph that is ready to run, any number of times: {@link Backend.prepare}. */
export class Plan implements Releasable {
  /** Bytes of scratch memory the plan holds. */
  readonly scratchBytes: number
  /** Names that run() takes data for. */
  readonly inputs: string[]
  /** Names that run() gives back. */
  readonly outputs: string[]
  /**
   * Runs the graph. Runs of one backend execute in the order they were called; inputs are copied before the call returns. What
   * is beyond 4 MiB of them is copied in slices over several ticks, and must stay attached and unchanged until the promise
   * settles, and the plan undisposed. An input may be a device tensor. `outputs` names what is read back ([] for nothing), `into` reads into the caller's arrays,
   * `outputTo` leaves results in device tensors for the next plan. Aborted before its start a run never starts; later,
   * the promise rejects at once with signal.reason and the device finishes the node it is in.
   */
  run(
    inputs?: Record<string, TensorData | Tensor>,
    options?: {
      signal?: AbortSignal
      outputs?: string[]
      into?: Record<string, TypedArray>
      outputTo?: Record<string, Tensor>
      trace?: boolean
    },
  ): Promise<Record<string, TypedArray>>
  /** What ran where, by which ACL calls, and what was refused or converted and why. */
  report(): {
    /** The node's name. */
    node: string
    /** Its operator. */
    op: string
    /** The device it runs on. */
    device: string
    /** The functions of the C interface it became, in order. */
    calls: string[]
    /** What else there is to say: a conversion, a refusal elsewhere, a copy between backends. */
    note: string | null
  }[]
  /** Chrome/Perfetto trace-event JSON of the last run with `trace: true`. */
  trace(): string | null
  /** Marks it as disposed; more than once is harmless. */
  dispose(): void
  /** What `using` calls: dispose(). */
  [Symbol.dispose](): void
  /** What `await using` calls: dispose(), then waits until the memory has gone back. */
  [Symbol.asyncDispose](): Promise<void>
}
