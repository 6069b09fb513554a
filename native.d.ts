// Generated from src/ by scripts/build.mjs. Internal: the public types are in index.d.ts.
/* eslint-disable */

export declare class Backend {
  static open(options: BackendOptions): Promise<Backend>
  get name(): string
  get guid(): string
  get device(): DeviceInfo
  get closed(): boolean
  allocBuffer(size: number): Promise<DeviceBuffer>
  allocHostBuffer(size: number): Promise<HostBuffer>
  createTensor(dtype: string, ne: Array<number>, name?: string | undefined | null, buffer?: DeviceBuffer | undefined | null, offset?: number | undefined | null): Promise<Tensor>
  /** `names` are the tensors to upload; without it all are. */
  loadWeights(path: string, names: Array<string> | undefined | null, convert: string | undefined | null, cancel: CancelToken, progress?: ((progress: LoadProgress) => void) | undefined | null): Promise<Weights>
  copy(src: Tensor, dst: Tensor): Promise<void>
  supportsOp(graph: Graph, node: number): boolean
  explainOp(graph: Graph, node: number): string | null
  offloadOp(graph: Graph, node: number): boolean
  supportsBuffer(buffer: DeviceBuffer): boolean
  supportsHostBuffer(buffer: HostBuffer): boolean
  static allocSize(dtype: string, ne: Array<number>): number
  prepare(graph: Graph, fallback?: Backend | undefined | null): Promise<Plan>
  createEvent(): Promise<Event>
  record(event: Event): Promise<void>
  wait(event: Event): Promise<void>
  synchronize(): Promise<void>
  stats(): BackendStats
  close(): Promise<void>
}

/** What a read gave. The facade copies it into an array that V8 owns, piece by piece and on the JavaScript thread. */
export declare class Bytes {
  /** Copies what begins at `offset` into all of `dst`; false when there is not as much. */
  copy(dst: Buffer, offset: number): boolean
  release(): void
}

/**
 * A cancellation request that an upload or a run polls. The facade makes one per AbortSignal; the end of the
 * environment cancels those of uploads.
 */
export declare class CancelToken {
  constructor()
  cancel(): void
}

export declare class DeviceBuffer {
  get size(): number
  get device(): string
  get disposed(): boolean
  clear(value: number): Promise<void>
  dispose(): void
}

export declare class Event {
  query(): boolean
  get disposed(): boolean
  synchronize(): Promise<void>
  dispose(): void
}

/** What a GGUF file says without its data. */
export declare class GgufFile {
  get version(): number
  /** Keys and values by turns; undefined stands for a list of texts. */
  metadata(): Array<unknown>
  /** At most `count` texts of a list, from `start` on. */
  texts(key: string, start: number, count: number): Array<string | Uint8Array>
  tensors(): Array<GgufTensor>
}

export declare class Graph {
  constructor()
  get size(): number
  info(node: number): NodeInfo
  input(name: string, dtype: string, ne: Array<number>): number
  tensor(tensor: Tensor): number
  /** `src` holds node numbers; -1 is none. */
  op(op: string, src: Array<number>, params?: Record<string, number | boolean | string | number[]> | undefined | null, result?: ResultOptions | undefined | null): number
  output(name: string, node: number): void
  /** A copy of the graph as it is now. */
  snapshot(): Graph
  toDot(): string
}

export declare class HostBuffer {
  get size(): number
  get pinned(): boolean
  get disposed(): boolean
  write(data: Uint8Array, offset: number): void
  /** A copy, in memory that V8 owns. */
  read(offset: number, size: number): Uint8Array
  dispose(): void
}

export declare class Plan {
  get scratchBytes(): number
  get inputs(): Array<string>
  get outputs(): Array<string>
  inputInfo(name: string): PlanPort | null
  outputInfo(name: string): PlanPort | null
  /** A run to give inputs and to submit. `spare`, one that was submitted, becomes it; without one it comes back. */
  start(spare?: Run | undefined | null): Run | null
  /** Copies what begins at `offset` of a run's output into all of `dst`; false when it was not read or is shorter. */
  copyOutput(run: number, name: string, dst: Buffer, offset: number): boolean
  /** Gives the staging of a run's outputs back. */
  releaseOutputs(run: number): void
  report(): Array<ReportRow>
  trace(): string | null
  dispose(): void
}

/** One run being set up. Dropping it without `submit` gives its staging back. */
export declare class Run {
  input(name: string, data: Uint8Array): void
  /** A part of an input; parts come in order. */
  inputPart(name: string, offset: number, data: Uint8Array): void
  inputTensor(name: string, tensor: Tensor): void
  outputs(names: Array<string>): void
  outputTo(name: string, tensor: Tensor): void
  cancel(token: CancelToken): void
  trace(on: boolean): void
  /** Queues the run. Resolves to a number for its outputs, until `releaseOutputs`. */
  submit(): Promise<number>
  /** Gives the staging back without running. */
  abandon(): void
}

export declare class Tensor {
  get name(): string
  get type(): string
  get sourceType(): string
  get ne(): Array<number>
  get nb(): Array<number>
  get nbytes(): number
  get disposed(): boolean
  write(data: Uint8Array, offset: number): Promise<void>
  read(offset: number, size: number): Promise<Bytes>
  fill(byte: number): Promise<void>
  dispose(): void
}

export declare class Weights {
  /** Keys and values by turns; undefined stands for a list of texts. */
  metadata(): Array<unknown>
  /** At most `count` texts of a list, from `start` on. */
  texts(key: string, start: number, count: number): Array<string | Uint8Array>
  get names(): Array<string>
  get bytes(): number
  has(name: string): boolean
  get(name: string): Tensor
  dispose(): void
}

/** Why an NPU is or is not used. */
export declare function driverReport(): Promise<Array<DriverReport>>

/** Every dtype. */
export declare function dtypes(): Array<DTypeInfo>

/** The codes that native calls may give, for the test that compares them with the type declarations. */
export declare function errorCodes(): Array<string>

/**
 * Prepares this environment. `errorFactory(code, message, fields)` makes the error objects that calls throw and reject with;
 * `wake()` is called when promises are ready: it calls `settleReady()`, turn by turn, until that returns false.
 */
export declare function init(errorFactory: (code: string, message: string, fields: ErrorFields) => Error, wake: () => void): void

/** Every usable device. */
export declare function listDevices(): Promise<Array<DeviceInfo>>

/** The op table: what the typed methods and their documentation are generated from. */
export declare function opTable(): Array<OpRow>

export declare function readGguf(path: string): Promise<GgufFile>

/** Sends records of `level` and worse to `listener`; null stops. One listener per environment: the facade spreads them. */
export declare function setLogListener(level?: string | undefined | null, listener?: (record: LogRecord) => void): void

/** Settles some of what is ready. True when there may be more, for a later turn of the event loop. */
export declare function settleReady(): boolean

/** The version of this binary; the facade refuses one that is not its own. */
export declare function version(): string

export interface BackendOptions {
  device?: string | number
  pool?: string
  asyncMode?: boolean
  threads?: number
}

export interface BackendStats {
  pool: PoolStats
  queue: QueueStats
  buffers: BufferStats
  copies: CopyStats
}

export interface BufferStats {
  count: number
  bytes: number
}

/** Copies between devices, by how they went. */
export interface CopyStats {
  peer: number
  staged: number
}

/** Block length and bytes of a dtype, for the facade's typed arrays. */
export interface DTypeInfo {
  name: string
  blockLen: number
  blockBytes: number
}

export interface DeviceCaps {
  async: boolean
  hostBuffer: boolean
  bufferFromHostPtr: boolean
  events: boolean
}

export interface DeviceInfo {
  index: number
  name: string
  description: string
  driver: 'cann' | 'host'
  type: 'cpu' | 'gpu' | 'accel'
  memory: DeviceMemory
  vmm: DeviceVmm
  caps: DeviceCaps
}

export interface DeviceMemory {
  free: number
  total: number
}

export interface DeviceVmm {
  supported: boolean
  granularity: number
}

export interface DriverReport {
  driver: 'cann' | 'host'
  available: boolean
  version: string | null
  libraries: Array<LibraryReport>
  missingSymbols: Array<string>
  /** Those of the missing without which no device can be used. */
  essentialMissing: Array<string>
  /** The toolkit's folder. */
  toolkit: string | null
  /** What the library says of its interface, and of the NPU's driver. */
  interfaceVersion: string | null
  driverVersion: string | null
  hint: string | null
}

/** What an error carries besides code and message; the public names are those of `CannError`. */
export interface ErrorFields {
  aclCode?: number
  aclName?: string
  call?: string
  device?: string
  op?: string
  tensor?: string
  reason?: string
  requestedBytes?: number
  freeBytes?: number
  offset?: number
  hint?: string
  /** Of a file error; the facade makes Node's error from these and puts it into `cause`. */
  path?: string
  osCode?: number
}

export interface GgufTensor {
  name: string
  type: string
  ne: Array<number>
  offset: number
  nbytes: number
}

export interface LibraryReport {
  name: string
  path: string | null
  error: string | null
}

/** How far an upload is. */
export interface LoadProgress {
  bytesDone: number
  bytesTotal: number
  tensor: string
}

/** One event. */
export interface LogRecord {
  level: string
  target: string
  message: string
  fields: Record<string, number | boolean | string>
}

export interface NodeInfo {
  name: string
  op: string
  type: string
  ne: Array<number>
  nb: Array<number>
}

export interface OpParam {
  name: string
  kind: 'number' | 'boolean' | 'string' | 'number[]'
  required: boolean
  /** As text, for documentation. */
  default: string
  doc: string
}

export interface OpRow {
  name: string
  /** Names of the sources; one that ends in `?` is optional. */
  src: Array<string>
  params: Array<OpParam>
  doc: string
  types: string
}

export interface PlanPort {
  type: string
  ne: Array<number>
  nbytes: number
}

export interface PoolStats {
  kind: string
  bytesReserved: number
  bytesInUse: number
  peakBytes: number
  allocations: number
  reuses: number
}

export interface QueueStats {
  capacity: number
  depth: number
  submitted: number
  completed: number
}

export interface ReportRow {
  node: string
  op: string
  device: string
  calls: Array<string>
  note: string | null
}

export interface ResultOptions {
  type?: string
  ne?: Array<number>
  nb?: Array<number>
}
