// Generated from the op table by scripts/build.mjs.

import type { DType, GraphTensor } from './index.js'

/** What a caller may say about the result of an operator that leaves it open. */
export interface ResultOptions {
  /** Type of the elements. */
  type?: DType
  /** Extents, the fastest dimension first. */
  ne?: number[]
  /** Byte strides. */
  nb?: number[]
}

/** Parameters of ACC. */
export interface AccOptions extends ResultOptions {
  /** byte stride of the window's rows; 0 for a's (default 0) */
  nb1?: number
  /** byte stride of the window's planes; 0 for a's (default 0) */
  nb2?: number
  /** byte stride of the window's batches; 0 for a's (default 0) */
  nb3?: number
  /** byte offset of the window (default 0) */
  offset?: number
  /** whether the result is the memory of a (default false) */
  inplace?: boolean
}

/** Parameters of ARANGE. */
export interface ArangeOptions extends ResultOptions {
  /** first value (default 0) */
  start?: number
  /** values end before this one */
  stop: number
  /** distance of neighbours (default 1) */
  step?: number
}

/** Parameters of ARGSORT. */
export interface ArgsortOptions extends ResultOptions {
  /** 'asc' or 'desc' (default 'asc') */
  order?: string
}

/** Parameters of CLAMP. */
export interface ClampOptions extends ResultOptions {
  /** lower bound (default -inf) */
  min?: number
  /** upper bound (default inf) */
  max?: number
}

/** Parameters of CONCAT. */
export interface ConcatOptions extends ResultOptions {
  /** dimension along which b follows a */
  dim: number
}

/** Parameters of CONV_TRANSPOSE_1D. */
export interface ConvTranspose1dOptions extends ResultOptions {
  /** distance of neighbours of x in the result (default 1) */
  s0?: number
  /** must be 0 (default 0) */
  p0?: number
  /** must be 1 (default 1) */
  d0?: number
}

/** Parameters of DIAG_MASK_INF. */
export interface DiagMaskInfOptions extends ResultOptions {
  /** columns before the diagonal (default 0) */
  nPast?: number
}

/** Parameters of FILL. */
export interface FillOptions extends ResultOptions {
  /** the value */
  c: number
}

/** Parameters of FLASH_ATTN_EXT. */
export interface FlashAttnExtOptions extends ResultOptions {
  /** factor of the products of q and k (default 1) */
  scale?: number
  /** largest ALiBi exponent; 0 for no slopes (default 0) */
  maxBias?: number
  /** c in c tanh(logit / c), before the mask; 0 for none (default 0) */
  logitSoftcap?: number
  /** 'default' or 'f32'; sums are always f32, and with 'f32' no chip rounds b to f16 for a weight in its private format (default 'default') */
  prec?: string
}

/** Parameters of GATED_LINEAR_ATTN. */
export interface GatedLinearAttnOptions extends ResultOptions {
  /** factor of the outputs (default 1) */
  scale?: number
}

/** Parameters of GEGLU. */
export interface GegluOptions extends ResultOptions {
  /** with one source: the function takes the second half (default false) */
  swapped?: boolean
}

/** Parameters of GEGLU_ERF. */
export interface GegluErfOptions extends ResultOptions {
  /** with one source: the function takes the second half (default false) */
  swapped?: boolean
}

/** Parameters of GEGLU_QUICK. */
export interface GegluQuickOptions extends ResultOptions {
  /** with one source: the function takes the second half (default false) */
  swapped?: boolean
}

/** Parameters of GROUP_NORM. */
export interface GroupNormOptions extends ResultOptions {
  /** groups that ne2 is divided into */
  nGroups: number
  /** added to the variance (default 0.000001) */
  eps?: number
}

/** Parameters of IM2COL. */
export interface Im2colOptions extends ResultOptions {
  /** columns from window to window (default 1) */
  s0?: number
  /** rows from window to window (default 1) */
  s1?: number
  /** columns of zeros added on both sides (default 0) */
  p0?: number
  /** rows of zeros added on both sides (default 0) */
  p1?: number
  /** distance of a window's columns (default 1) */
  d0?: number
  /** distance of a window's rows (default 1) */
  d1?: number
  /** x is [w, h, channels, n], else [w, channels, n] (default true) */
  is2d?: boolean
}

/** Parameters of L2_NORM. */
export interface L2NormOptions extends ResultOptions {
  /** least divisor (default 0.00001) */
  eps?: number
}

/** Parameters of LEAKY_RELU. */
export interface LeakyReluOptions extends ResultOptions {
  /** slope for x < 0 (default 0.01) */
  negativeSlope?: number
}

/** Parameters of MUL_MAT. */
export interface MulMatOptions extends ResultOptions {
  /** 'default' or 'f32'; sums are always f32, and with 'f32' no chip rounds b to f16 for a weight in its private format (default 'default') */
  prec?: string
  /** ggml's remark about a; not used (default 0) */
  hint?: number
}

/** Parameters of MUL_MAT_ID. */
export interface MulMatIdOptions extends ResultOptions {
  /** 'default' or 'f32'; sums are always f32, and with 'f32' no chip rounds b to f16 for a weight in its private format (default 'default') */
  prec?: string
}

/** Parameters of NORM. */
export interface NormOptions extends ResultOptions {
  /** added to the mean square or variance (default 0.00001) */
  eps?: number
}

/** Parameters of PAD. */
export interface PadOptions extends ResultOptions {
  /** elements before x in dimension 0 (default 0) */
  lp0?: number
  /** elements behind x in dimension 0 (default 0) */
  rp0?: number
  /** elements before x in dimension 1 (default 0) */
  lp1?: number
  /** elements behind x in dimension 1 (default 0) */
  rp1?: number
  /** elements before x in dimension 2 (default 0) */
  lp2?: number
  /** elements behind x in dimension 2 (default 0) */
  rp2?: number
  /** elements before x in dimension 3 (default 0) */
  lp3?: number
  /** elements behind x in dimension 3 (default 0) */
  rp3?: number
  /** x goes on around itself instead of zeros (default false) */
  circular?: boolean
}

/** Parameters of PAD_REFLECT_1D. */
export interface PadReflect1dOptions extends ResultOptions {
  /** elements before x in dimension 0 (default 0) */
  p0?: number
  /** elements behind x in dimension 0 (default 0) */
  p1?: number
}

/** Parameters of POOL_2D. */
export interface Pool2dOptions extends ResultOptions {
  /** 'max' or 'avg' (default 'max') */
  op?: string
  /** columns of a window */
  k0: number
  /** rows of a window */
  k1: number
  /** columns from window to window */
  s0: number
  /** rows from window to window */
  s1: number
  /** columns added on both sides (default 0) */
  p0?: number
  /** rows added on both sides (default 0) */
  p1?: number
}

/** Parameters of REGLU. */
export interface RegluOptions extends ResultOptions {
  /** with one source: the function takes the second half (default false) */
  swapped?: boolean
}

/** Parameters of RMS_NORM. */
export interface RmsNormOptions extends ResultOptions {
  /** added to the mean square or variance (default 0.00001) */
  eps?: number
}

/** Parameters of ROLL. */
export interface RollOptions extends ResultOptions {
  /** places along dimension 0 (default 0) */
  shift0?: number
  /** places along dimension 1 (default 0) */
  shift1?: number
  /** places along dimension 2 (default 0) */
  shift2?: number
  /** places along dimension 3 (default 0) */
  shift3?: number
}

/** Parameters of ROPE. */
export interface RopeOptions extends ResultOptions {
  /** rotated dimensions of a row; 0 for all (default 0) */
  nDims?: number
  /** 0 normal, 2 neox, 8 mrope, 24 vision, 40 imrope (default 0) */
  mode?: number
  /** the mode by name, instead of its number (default '') */
  modeName?: string
  /** context length of training, for YaRN (default 0) */
  nCtxOrig?: number
  /** base of the frequencies (default 10000) */
  freqBase?: number
  /** factor of the angles (default 1) */
  freqScale?: number
  /** share of YaRN's extrapolation; 0 for none (default 0) */
  extFactor?: number
  /** factor of the result (default 1) */
  attnFactor?: number
  /** YaRN's upper number of rotations (default 32) */
  betaFast?: number
  /** YaRN's lower number of rotations (default 1) */
  betaSlow?: number
  /** pairs for each of the four position streams (mrope, vision, imrope) (default [0.0, 0.0, 0.0, 0.0]) */
  sections?: number[]
  /** first rotated dimension (default 0) */
  nOffs?: number
}

/** Parameters of SCALE. */
export interface ScaleOptions extends ResultOptions {
  /** factor (default 1) */
  s?: number
  /** bias (default 0) */
  b?: number
}

/** Parameters of SET. */
export interface SetOptions extends ResultOptions {
  /** byte stride of the window's rows; 0 for a's (default 0) */
  nb1?: number
  /** byte stride of the window's planes; 0 for a's (default 0) */
  nb2?: number
  /** byte stride of the window's batches; 0 for a's (default 0) */
  nb3?: number
  /** byte offset of the window (default 0) */
  offset?: number
  /** whether the result is the memory of a (default false) */
  inplace?: boolean
}

/** Parameters of SOFT_MAX. */
export interface SoftMaxOptions extends ResultOptions {
  /** factor of x (default 1) */
  scale?: number
  /** largest ALiBi exponent; 0 for no slopes (default 0) */
  maxBias?: number
}

/** Parameters of SWIGLU. */
export interface SwigluOptions extends ResultOptions {
  /** with one source: the function takes the second half (default false) */
  swapped?: boolean
}

/** Parameters of SWIGLU_OAI. */
export interface SwigluOaiOptions extends ResultOptions {
  /** with one source: the function takes the second half (default false) */
  swapped?: boolean
  /** factor inside the sigmoid (default 1.702) */
  alpha?: number
  /** bound of x from above and of gate on both sides (default 7) */
  limit?: number
}

/** Parameters of TIMESTEP_EMBEDDING. */
export interface TimestepEmbeddingOptions extends ResultOptions {
  /** length of an embedding */
  dim: number
  /** the slowest wave's period over 2 pi (default 10000) */
  maxPeriod?: number
}

/** Parameters of TOP_K. */
export interface TopKOptions extends ResultOptions {
  /** how many */
  k: number
}

/** Parameters of TRI. */
export interface TriOptions extends ResultOptions {
  /** 'lower', 'lower_diag', 'upper' or 'upper_diag' (default 'lower') */
  type?: string
}

/** Parameters of UPSCALE. */
export interface UpscaleOptions extends ResultOptions {
  /** 'nearest', 'bilinear' or 'bicubic' (default 'nearest') */
  mode?: string
  /** corner elements keep their places (default false) */
  alignCorners?: boolean
  /** bilinear only: each result weighs all of x that it covers (default false) */
  antialias?: boolean
}

/** Parameters of XIELU. */
export interface XieluOptions extends ResultOptions {
  /** effective alpha for x <= 0 */
  alphaNEff: number
  /** effective alpha for x > 0 */
  alphaPEff: number
  /** slope of the linear part */
  beta: number
  /** upper bound of the exponent */
  eps: number
}

/** One method per operator: sources in ggml's order, then its parameters in camelCase. */
export interface OpMethods {
  /**
   * ABS: |x|
   *
   * Types: f32, f16, bf16
   */
  abs(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * ACC: a with b added to the window of b's shape at `offset`
   *
   * Types: f32
   */
  acc(a: GraphTensor, b: GraphTensor, options?: AccOptions): GraphTensor
  /**
   * ADD: a + b, b repeated over a
   *
   * Types: f32, f16, bf16, i32 in any mix (the result has the type of a); b may be quantised
   */
  add(a: GraphTensor, b: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * ADD1: a + the single number b
   *
   * Types: f32, f16, bf16, i32 in any mix (the result has the type of a); b may be quantised
   */
  add1(a: GraphTensor, b: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * ADD_ID: a[:, e, t] + b[:, ids[e, t]]
   *
   * Types: f32; ids i32
   */
  addId(a: GraphTensor, b: GraphTensor, ids: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * ARANGE: start + i step for i from 0 to ceil((stop - start) / step) - 1
   *
   * Types: f32
   */
  arange(options: ArangeOptions): GraphTensor
  /**
   * ARGMAX: the place of the largest element of each row, [ne1, ne2, ne3]; which of equal ones is the device's choice
   *
   * Types: f32, f16, bf16; the result is i32
   */
  argmax(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * ARGSORT: the places of each row's elements in the order of their values; equal ones in any order
   *
   * Types: f32, f16, bf16, i32; the result is i32
   */
  argsort(x: GraphTensor, options?: ArgsortOptions): GraphTensor
  /**
   * CEIL: smallest integer >= x
   *
   * Types: f32, f16, bf16
   */
  ceil(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * CLAMP: max(min(x, max), min); x itself is left alone
   *
   * Types: f32, f16, bf16
   */
  clamp(x: GraphTensor, options?: ClampOptions): GraphTensor
  /**
   * CONCAT: a, then b, along one dimension
   *
   * Types: f32, f16, bf16, f64, i8, i16, i32, i64
   */
  concat(a: GraphTensor, b: GraphTensor, options: ConcatOptions): GraphTensor
  /**
   * CONT: A packed copy of x, under other extents if `result.ne` is given.
   *
   * Types: any to the same type; f32, f16, bf16, i8, i16, i32, i64 and block types to plain types; floats to q8_0, q4_0, q4_1, q5_0, q5_1, and by the host q2_K, q3_K, q4_K, q5_K, q6_K, iq4_nl and iq4_xs
   */
  cont(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * CONV_TRANSPOSE_1D: sum over l, c of kernel[i - l s0, o, c] x[l, c] at [i, o]; kernel [k, out, in], x [l, in]
   *
   * Types: kernel f32, f16, bf16; x f32
   */
  convTranspose1d(kernel: GraphTensor, x: GraphTensor, options?: ConvTranspose1dOptions): GraphTensor
  /**
   * COS: cos(x)
   *
   * Types: f32, f16, bf16
   */
  cos(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * COUNT_EQUAL: how many elements of a and b are equal
   *
   * Types: i32; the result is i64
   */
  countEqual(a: GraphTensor, b: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * CPY: x written into the memory of `into`, converted to its type; without `into` a packed copy of type `result.type`.
   *
   * Types: any to the same type; f32, f16, bf16, i8, i16, i32, i64 and block types to plain types; floats to q8_0, q4_0, q4_1, q5_0, q5_1, and by the host q2_K, q3_K, q4_K, q5_K, q6_K, iq4_nl and iq4_xs
   */
  cpy(x: GraphTensor, into?: GraphTensor | null, options?: ResultOptions): GraphTensor
  /**
   * CPY: x written into the memory of `into`, converted to its type; without `into` a packed copy of type `result.type`.
   *
   * Types: any to the same type; f32, f16, bf16, i8, i16, i32, i64 and block types to plain types; floats to q8_0, q4_0, q4_1, q5_0, q5_1, and by the host q2_K, q3_K, q4_K, q5_K, q6_K, iq4_nl and iq4_xs
   */
  cpy(x: GraphTensor, options: ResultOptions & { into?: GraphTensor }): GraphTensor
  /**
   * CROSS_ENTROPY_LOSS: minus the sum of labels log(softmax(logits)), over the number of rows
   *
   * Types: f32
   */
  crossEntropyLoss(logits: GraphTensor, labels: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * CUMSUM: the sum of each row up to and with each element
   *
   * Types: f32, f16, bf16; sums are f32, rounded once
   */
  cumsum(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * DIAG: each row as the diagonal of a matrix of zeros
   *
   * Types: f32, f16, bf16, i32
   */
  diag(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * DIAG_MASK_INF: x with minus infinity where column > n_past + row
   *
   * Types: f32
   */
  diagMaskInf(x: GraphTensor, options?: DiagMaskInfOptions): GraphTensor
  /**
   * DIV: a / b element by element, b repeated over a
   *
   * Types: f32, f16, bf16, i32 in any mix (the result has the type of a); b may be quantised
   */
  div(a: GraphTensor, b: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * DUP: A packed copy of x, of type `result.type` if given.
   *
   * Types: any to the same type; f32, f16, bf16, i8, i16, i32, i64 and block types to plain types; floats to q8_0, q4_0, q4_1, q5_0, q5_1, and by the host q2_K, q3_K, q4_K, q5_K, q6_K, iq4_nl and iq4_xs
   */
  dup(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * ELU: x > 0 ? x : exp(x) - 1
   *
   * Types: f32, f16, bf16
   */
  elu(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * EXP: exp(x)
   *
   * Types: f32, f16, bf16
   */
  exp(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * EXPM1: exp(x) - 1
   *
   * Types: f32, f16, bf16
   */
  expm1(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * FILL: a packed tensor of the type and shape of x with the value c everywhere
   *
   * Types: f32, f16, bf16, i32
   */
  fill(x: GraphTensor, options: FillOptions): GraphTensor
  /**
   * FLASH_ATTN_EXT: softmax(scale q k + slope(head) mask) v for q [d, n, heads, batch], k and v [d, kv, kv_heads, batch]; the result is [d_v, heads, n, batch]
   *
   * Types: q f32; k, v any float or block type; mask f16, f32; sinks f32
   */
  flashAttnExt(q: GraphTensor, k: GraphTensor, v: GraphTensor, mask?: GraphTensor | null, sinks?: GraphTensor | null, options?: FlashAttnExtOptions): GraphTensor
  /**
   * FLASH_ATTN_EXT: softmax(scale q k + slope(head) mask) v for q [d, n, heads, batch], k and v [d, kv, kv_heads, batch]; the result is [d_v, heads, n, batch]
   *
   * Types: q f32; k, v any float or block type; mask f16, f32; sinks f32
   */
  flashAttnExt(q: GraphTensor, k: GraphTensor, v: GraphTensor, mask: GraphTensor | null | undefined, options: FlashAttnExtOptions & { sinks?: GraphTensor }): GraphTensor
  /**
   * FLASH_ATTN_EXT: softmax(scale q k + slope(head) mask) v for q [d, n, heads, batch], k and v [d, kv, kv_heads, batch]; the result is [d_v, heads, n, batch]
   *
   * Types: q f32; k, v any float or block type; mask f16, f32; sinks f32
   */
  flashAttnExt(q: GraphTensor, k: GraphTensor, v: GraphTensor, options: FlashAttnExtOptions & { mask?: GraphTensor; sinks?: GraphTensor }): GraphTensor
  /**
   * FLOOR: largest integer <= x
   *
   * Types: f32, f16, bf16
   */
  floor(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * GATED_LINEAR_ATTN: per sequence, head and token: S[i, j] = S[i, j] g[i] + k[i] v[j], output scale sum over i of S[i, j] q[i]; the result is the outputs of all tokens, then the final states
   *
   * Types: f32
   */
  gatedLinearAttn(k: GraphTensor, v: GraphTensor, q: GraphTensor, g: GraphTensor, state: GraphTensor, options?: GatedLinearAttnOptions): GraphTensor
  /**
   * GEGLU: gelu(x) gate (tanh form); with one source x and gate are its halves along ne0
   *
   * Types: f32, f16, bf16
   */
  geglu(x: GraphTensor, gate?: GraphTensor | null, options?: GegluOptions): GraphTensor
  /**
   * GEGLU: gelu(x) gate (tanh form); with one source x and gate are its halves along ne0
   *
   * Types: f32, f16, bf16
   */
  geglu(x: GraphTensor, options: GegluOptions & { gate?: GraphTensor }): GraphTensor
  /**
   * GEGLU_ERF: gelu(x) gate (erf form); with one source x and gate are its halves along ne0
   *
   * Types: f32, f16, bf16
   */
  gegluErf(x: GraphTensor, gate?: GraphTensor | null, options?: GegluErfOptions): GraphTensor
  /**
   * GEGLU_ERF: gelu(x) gate (erf form); with one source x and gate are its halves along ne0
   *
   * Types: f32, f16, bf16
   */
  gegluErf(x: GraphTensor, options: GegluErfOptions & { gate?: GraphTensor }): GraphTensor
  /**
   * GEGLU_QUICK: x / (1 + exp(-1.702 x)) gate; with one source x and gate are its halves along ne0
   *
   * Types: f32, f16, bf16
   */
  gegluQuick(x: GraphTensor, gate?: GraphTensor | null, options?: GegluQuickOptions): GraphTensor
  /**
   * GEGLU_QUICK: x / (1 + exp(-1.702 x)) gate; with one source x and gate are its halves along ne0
   *
   * Types: f32, f16, bf16
   */
  gegluQuick(x: GraphTensor, options: GegluQuickOptions & { gate?: GraphTensor }): GraphTensor
  /**
   * GELU: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
   *
   * Types: f32, f16, bf16
   */
  gelu(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * GELU_ERF: 0.5 x (1 + erf(x / sqrt(2)))
   *
   * Types: f32, f16, bf16
   */
  geluErf(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * GELU_QUICK: x / (1 + exp(-1.702 x))
   *
   * Types: f32, f16, bf16
   */
  geluQuick(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * GET_ROWS: table[:, ids[i, j, k], j, k]; block types and 16-bit floats come out as f32
   *
   * Types: any; ids i32
   */
  getRows(table: GraphTensor, ids: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * GROUP_NORM: (x - mean) / sqrt(variance + eps) over ne0, ne1 and ceil(ne2 / n_groups) channels
   *
   * Types: f32
   */
  groupNorm(x: GraphTensor, options: GroupNormOptions): GraphTensor
  /**
   * HARDSIGMOID: min(max((x + 3) / 6, 0), 1)
   *
   * Types: f32, f16, bf16
   */
  hardsigmoid(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * HARDSWISH: x min(max(x + 3, 0), 6) / 6
   *
   * Types: f32, f16, bf16
   */
  hardswish(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * IM2COL: the windows of x that a kernel of this shape sees: [k0 k1 channels, columns, rows, n], or [k0 channels, columns, n]
   *
   * Types: x f32, f16, bf16; the result is of these, x's if `result.type` is not given
   */
  im2col(kernel: GraphTensor, x: GraphTensor, options?: Im2colOptions): GraphTensor
  /**
   * L2_NORM: x / max(sqrt(sum(x^2)), eps) along ne0
   *
   * Types: f32
   */
  l2Norm(x: GraphTensor, options?: L2NormOptions): GraphTensor
  /**
   * LEAKY_RELU: x > 0 ? x : negative_slope x
   *
   * Types: f32, f16, bf16
   */
  leakyRelu(x: GraphTensor, options?: LeakyReluOptions): GraphTensor
  /**
   * LOG: natural logarithm of x
   *
   * Types: f32, f16, bf16
   */
  log(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * MEAN: the mean of each row
   *
   * Types: f32, f16, bf16; the result is f32
   */
  mean(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * MUL: a b element by element, b repeated over a
   *
   * Types: f32, f16, bf16, i32 in any mix (the result has the type of a); b may be quantised
   */
  mul(a: GraphTensor, b: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * MUL_MAT: sum over k of a[k, i, s/r2, t/r3] b[k, j, s, t] at [i, j, s, t], with r2 = b.ne2/a.ne2, r3 = b.ne3/a.ne3
   *
   * Types: a any float or block type; b f32, f16, bf16; the result is f32
   */
  mulMat(a: GraphTensor, b: GraphTensor, options?: MulMatOptions): GraphTensor
  /**
   * MUL_MAT_ID: experts[:, :, ids[e, t]] times b[:, e mod b.ne1, t] at [:, e, t]
   *
   * Types: experts any float or block type; b f32, f16, bf16; ids i32; the result is f32
   */
  mulMatId(experts: GraphTensor, b: GraphTensor, ids: GraphTensor, options?: MulMatIdOptions): GraphTensor
  /**
   * NEG: -x
   *
   * Types: f32, f16, bf16
   */
  neg(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * NORM: (x - mean) / sqrt(variance + eps) along ne0
   *
   * Types: f32
   */
  norm(x: GraphTensor, options?: NormOptions): GraphTensor
  /**
   * OUT_PROD: sum over k of a[i, k, s/r2, t/r3] b[j, k, s, t] at [i, j, s, t], with r2 = b.ne2/a.ne2, r3 = b.ne3/a.ne3
   *
   * Types: a any float or block type; b f32, f16, bf16; the result is f32
   */
  outProd(a: GraphTensor, b: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * PAD: x with zeros around it, or with itself if circular
   *
   * Types: f32, f16, bf16, f64, i8, i16, i32, i64
   */
  pad(x: GraphTensor, options?: PadOptions): GraphTensor
  /**
   * PAD_REFLECT_1D: rows of x continued by their mirror images, the edge element not repeated
   *
   * Types: f32, f16, bf16, f64, i8, i16, i32, i64
   */
  padReflect1d(x: GraphTensor, options?: PadReflect1dOptions): GraphTensor
  /**
   * POOL_2D: the largest of each window, or its sum over k0 k1; what is added counts as 0 for 'avg' and never wins for 'max'
   *
   * Types: f32, f16, bf16; the result is f32
   */
  pool2d(x: GraphTensor, options: Pool2dOptions): GraphTensor
  /**
   * REGLU: relu(x) gate; with one source x and gate are its halves along ne0
   *
   * Types: f32, f16, bf16
   */
  reglu(x: GraphTensor, gate?: GraphTensor | null, options?: RegluOptions): GraphTensor
  /**
   * REGLU: relu(x) gate; with one source x and gate are its halves along ne0
   *
   * Types: f32, f16, bf16
   */
  reglu(x: GraphTensor, options: RegluOptions & { gate?: GraphTensor }): GraphTensor
  /**
   * RELU: max(x, 0)
   *
   * Types: f32, f16, bf16
   */
  relu(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * REPEAT: x side by side until it fills the shape of `like`, or `result.ne`: element i is x[i mod x.ne]
   *
   * Types: f32, f16, bf16, f64, i8, i16, i32, i64
   */
  repeat(x: GraphTensor, like?: GraphTensor | null, options?: ResultOptions): GraphTensor
  /**
   * REPEAT: x side by side until it fills the shape of `like`, or `result.ne`: element i is x[i mod x.ne]
   *
   * Types: f32, f16, bf16, f64, i8, i16, i32, i64
   */
  repeat(x: GraphTensor, options: ResultOptions & { like?: GraphTensor }): GraphTensor
  /**
   * RMS_NORM: x / sqrt(mean(x^2) + eps) along ne0
   *
   * Types: f32
   */
  rmsNorm(x: GraphTensor, options?: RmsNormOptions): GraphTensor
  /**
   * ROLL: x moved on by the shifts, what leaves at one end comes in at the other
   *
   * Types: f32, f16, bf16, f64, i8, i16, i32, i64
   */
  roll(x: GraphTensor, options?: RollOptions): GraphTensor
  /**
   * ROPE: Pairs of x rotated by position * freq_base^(-2 i / n_dims) / freq_factors[i], with YaRN's mix if ext_factor is not 0
   *
   * Types: x f32, f16; positions i32; freq_factors f32
   */
  rope(x: GraphTensor, positions: GraphTensor, freqFactors?: GraphTensor | null, options?: RopeOptions): GraphTensor
  /**
   * ROPE: Pairs of x rotated by position * freq_base^(-2 i / n_dims) / freq_factors[i], with YaRN's mix if ext_factor is not 0
   *
   * Types: x f32, f16; positions i32; freq_factors f32
   */
  rope(x: GraphTensor, positions: GraphTensor, options: RopeOptions & { freqFactors?: GraphTensor }): GraphTensor
  /**
   * ROUND: nearest integer, halves away from zero
   *
   * Types: f32, f16, bf16
   */
  round(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * SCALE: s x + b
   *
   * Types: f32, f16, bf16
   */
  scale(x: GraphTensor, options?: ScaleOptions): GraphTensor
  /**
   * SET: a with b put into the window of b's shape at `offset`
   *
   * Types: f32, f16, bf16, i8, i16, i32, i64
   */
  set(a: GraphTensor, b: GraphTensor, options?: SetOptions): GraphTensor
  /**
   * SET_ROWS: row ids[i, j mod ids.ne1, k mod ids.ne2] of into[:, :, j, k] becomes rows[:, i, j, k]; the result is `into`
   *
   * Types: rows f32, f16, bf16; ids i64, i32; into f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, and by the host q2_K, q3_K, q4_K, q5_K, q6_K, iq4_nl, iq4_xs
   */
  setRows(rows: GraphTensor, ids: GraphTensor, into: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * SGN: -1, 0 or 1 by the sign of x
   *
   * Types: f32, f16, bf16
   */
  sgn(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * SIGMOID: 1 / (1 + exp(-x))
   *
   * Types: f32, f16, bf16
   */
  sigmoid(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * SILU: x / (1 + exp(-x))
   *
   * Types: f32, f16, bf16
   */
  silu(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * SIN: sin(x)
   *
   * Types: f32, f16, bf16
   */
  sin(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * SOFT_MAX: softmax along ne0 of scale x + slope(head) mask; a sink is one more logit of its head, in the denominator only
   *
   * Types: x f32; mask f32, f16; sinks f32
   */
  softMax(x: GraphTensor, mask?: GraphTensor | null, sinks?: GraphTensor | null, options?: SoftMaxOptions): GraphTensor
  /**
   * SOFT_MAX: softmax along ne0 of scale x + slope(head) mask; a sink is one more logit of its head, in the denominator only
   *
   * Types: x f32; mask f32, f16; sinks f32
   */
  softMax(x: GraphTensor, mask: GraphTensor | null | undefined, options: SoftMaxOptions & { sinks?: GraphTensor }): GraphTensor
  /**
   * SOFT_MAX: softmax along ne0 of scale x + slope(head) mask; a sink is one more logit of its head, in the denominator only
   *
   * Types: x f32; mask f32, f16; sinks f32
   */
  softMax(x: GraphTensor, options: SoftMaxOptions & { mask?: GraphTensor; sinks?: GraphTensor }): GraphTensor
  /**
   * SOFTPLUS: x > 20 ? x : ln(1 + exp(x))
   *
   * Types: f32, f16, bf16
   */
  softplus(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * SOLVE_TRI: the matrix X with a X = b, a lower triangular with its rows along ne1
   *
   * Types: f32
   */
  solveTri(a: GraphTensor, b: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * SQR: x^2
   *
   * Types: f32, f16, bf16
   */
  sqr(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * SQRT: sqrt(x)
   *
   * Types: f32, f16, bf16
   */
  sqrt(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * SSM_CONV: sum over k of x[t + k, d, s] w[k, d] at [d, t, s]
   *
   * Types: f32
   */
  ssmConv(x: GraphTensor, w: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * STEP: 1 where x > 0, else 0
   *
   * Types: f32, f16, bf16
   */
  step(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * SUB: a - b, b repeated over a
   *
   * Types: f32, f16, bf16, i32 in any mix (the result has the type of a); b may be quantised
   */
  sub(a: GraphTensor, b: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * SUM: the sum of all elements
   *
   * Types: f32, f16, bf16; sums are f32, rounded once
   */
  sum(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * SUM_ROWS: the sum of each row
   *
   * Types: f32, f16, bf16; sums are f32, rounded once
   */
  sumRows(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * SWIGLU: silu(x) gate; with one source x and gate are its halves along ne0
   *
   * Types: f32, f16, bf16
   */
  swiglu(x: GraphTensor, gate?: GraphTensor | null, options?: SwigluOptions): GraphTensor
  /**
   * SWIGLU: silu(x) gate; with one source x and gate are its halves along ne0
   *
   * Types: f32, f16, bf16
   */
  swiglu(x: GraphTensor, options: SwigluOptions & { gate?: GraphTensor }): GraphTensor
  /**
   * SWIGLU_OAI: a / (1 + exp(-alpha a)) (b + 1) with a = min(x, limit), b = clamp(gate, -limit, limit)
   *
   * Types: f32, f16, bf16
   */
  swigluOai(x: GraphTensor, gate?: GraphTensor | null, options?: SwigluOaiOptions): GraphTensor
  /**
   * SWIGLU_OAI: a / (1 + exp(-alpha a)) (b + 1) with a = min(x, limit), b = clamp(gate, -limit, limit)
   *
   * Types: f32, f16, bf16
   */
  swigluOai(x: GraphTensor, options: SwigluOaiOptions & { gate?: GraphTensor }): GraphTensor
  /**
   * TANH: tanh(x)
   *
   * Types: f32, f16, bf16
   */
  tanh(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * TIMESTEP_EMBEDDING: with h = dim / 2 and f(j) = exp(-ln(max_period) j / h): cos(t f(j)) for j < h, then sin(t f(j)); an odd dim ends in 0
   *
   * Types: f32
   */
  timestepEmbedding(timesteps: GraphTensor, options: TimestepEmbeddingOptions): GraphTensor
  /**
   * TOP_K: the places of the k largest elements of each row, in any order
   *
   * Types: f32, f16, bf16, i32; the result is i32
   */
  topK(x: GraphTensor, options: TopKOptions): GraphTensor
  /**
   * TRANSPOSE: x with dimensions 0 and 1 exchanged.
   *
   * Types: all
   */
  transpose(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * TRI: x where column < row (lower), <= (lower_diag), > (upper) or >= (upper_diag), 0 elsewhere
   *
   * Types: f32, f16, bf16, i32
   */
  tri(x: GraphTensor, options?: TriOptions): GraphTensor
  /**
   * TRUNC: x without its fraction
   *
   * Types: f32, f16, bf16
   */
  trunc(x: GraphTensor, options?: ResultOptions): GraphTensor
  /**
   * UPSCALE: x at other extents, `result.ne`; dimensions 2 and 3 always take the nearest element
   *
   * Types: f32, f16, bf16; nearest also i32
   */
  upscale(x: GraphTensor, options?: UpscaleOptions): GraphTensor
  /**
   * XIELU: x > 0 ? alpha_p x^2 + beta x : (expm1(min(x, eps)) - x) alpha_n + beta x
   *
   * Types: f32, f16, bf16
   */
  xielu(x: GraphTensor, options: XieluOptions): GraphTensor
}
