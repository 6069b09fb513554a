// Generated from the op table by scripts/build.mjs.

import type { DType, GraphTensor } from './index.js'

/** What a caller may say about the result of an operator that leaves it open. */
export interface ResultOptions {
  type?: DType
  ne?: number[]
  nb?: number[]
}

/** One method per operator: sources in ggml's order, then its parameters in camelCase. */
export interface OpMethods {
  /** |x| Types: f32, f16, bf16. */
  abs(x: GraphTensor, options?: ResultOptions): GraphTensor
  /** a with b added to the window of b's shape at `offset` Types: f32. */
  acc(a: GraphTensor, b: GraphTensor, options?: {
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
    } & ResultOptions): GraphTensor
  /** a + b, b repeated over a Types: f32, f16, bf16, i32 in any mix (the result has the type of a); b may be quantised. */
  add(a: GraphTensor, b: GraphTensor, options?: ResultOptions): GraphTensor
  /** a + the single number b Types: f32, f16, bf16, i32 in any mix (the result has the type of a); b may be quantised. */
  add1(a: GraphTensor, b: GraphTensor, options?: ResultOptions): GraphTensor
  /** a[:, e, t] + b[:, ids[e, t]] Types: f32; ids i32. */
  addId(a: GraphTensor, b: GraphTensor, ids: GraphTensor, options?: ResultOptions): GraphTensor
  /** smallest integer >= x Types: f32, f16, bf16. */
  ceil(x: GraphTensor, options?: ResultOptions): GraphTensor
  /** max(min(x, max), min); x itself is left alone Types: f32, f16, bf16. */
  clamp(x: GraphTensor, options?: {
      /** lower bound (default -inf) */
      min?: number
      /** upper bound (default inf) */
      max?: number
    } & ResultOptions): GraphTensor
  /** A packed copy of x, under other extents if `result.ne` is given. Types: any to the same type; f32, f16, bf16, i8, i16, i32, i64 and block types to plain types; floats to q8_0, q4_0, q4_1, q5_0 and q5_1. */
  cont(x: GraphTensor, options?: ResultOptions): GraphTensor
  /** cos(x) Types: f32, f16, bf16. */
  cos(x: GraphTensor, options?: ResultOptions): GraphTensor
  /** x written into the memory of `into`, converted to its type; without `into` a packed copy of type `result.type`. Types: any to the same type; f32, f16, bf16, i8, i16, i32, i64 and block types to plain types; floats to q8_0, q4_0, q4_1, q5_0 and q5_1. */
  cpy(x: GraphTensor, into?: GraphTensor | null, options?: {
    } & ResultOptions): GraphTensor
  /** x written into the memory of `into`, converted to its type; without `into` a packed copy of type `result.type`. Types: any to the same type; f32, f16, bf16, i8, i16, i32, i64 and block types to plain types; floats to q8_0, q4_0, q4_1, q5_0 and q5_1. */
  cpy(x: GraphTensor, options?: {
      into?: GraphTensor
    } & ResultOptions): GraphTensor
  /** x with minus infinity where column > n_past + row Types: f32. */
  diagMaskInf(x: GraphTensor, options?: {
      /** columns before the diagonal (default 0) */
      nPast?: number
    } & ResultOptions): GraphTensor
  /** a / b element by element, b repeated over a Types: f32, f16, bf16, i32 in any mix (the result has the type of a); b may be quantised. */
  div(a: GraphTensor, b: GraphTensor, options?: ResultOptions): GraphTensor
  /** A packed copy of x, of type `result.type` if given. Types: any to the same type; f32, f16, bf16, i8, i16, i32, i64 and block types to plain types; floats to q8_0, q4_0, q4_1, q5_0 and q5_1. */
  dup(x: GraphTensor, options?: ResultOptions): GraphTensor
  /** x > 0 ? x : exp(x) - 1 Types: f32, f16, bf16. */
  elu(x: GraphTensor, options?: ResultOptions): GraphTensor
  /** exp(x) Types: f32, f16, bf16. */
  exp(x: GraphTensor, options?: ResultOptions): GraphTensor
  /** exp(x) - 1 Types: f32, f16, bf16. */
  expm1(x: GraphTensor, options?: ResultOptions): GraphTensor
  /** softmax(scale q k + slope(head) mask) v for q [d, n, heads, batch], k and v [d, kv, kv_heads, batch]; the result is [d_v, heads, n, batch] Types: q f32; k, v any float or block type; mask f16, f32; sinks f32. */
  flashAttnExt(q: GraphTensor, k: GraphTensor, v: GraphTensor, mask?: GraphTensor | null, sinks?: GraphTensor | null, options?: {
      /** factor of the products of q and k (default 1) */
      scale?: number
      /** largest ALiBi exponent; 0 for no slopes (default 0) */
      maxBias?: number
      /** c in c tanh(logit / c), before the mask; 0 for none (default 0) */
      logitSoftcap?: number
      /** 'default' or 'f32'; products here are always f32 (default 'default') */
      prec?: string
    } & ResultOptions): GraphTensor
  /** softmax(scale q k + slope(head) mask) v for q [d, n, heads, batch], k and v [d, kv, kv_heads, batch]; the result is [d_v, heads, n, batch] Types: q f32; k, v any float or block type; mask f16, f32; sinks f32. */
  flashAttnExt(q: GraphTensor, k: GraphTensor, v: GraphTensor, options?: {
      /** factor of the products of q and k (default 1) */
      scale?: number
      /** largest ALiBi exponent; 0 for no slopes (default 0) */
      maxBias?: number
      /** c in c tanh(logit / c), before the mask; 0 for none (default 0) */
      logitSoftcap?: number
      /** 'default' or 'f32'; products here are always f32 (default 'default') */
      prec?: string
      mask?: GraphTensor
      sinks?: GraphTensor
    } & ResultOptions): GraphTensor
  /** largest integer <= x Types: f32, f16, bf16. */
  floor(x: GraphTensor, options?: ResultOptions): GraphTensor
  /** gelu(x) gate (tanh form); with one source x and gate are its halves along ne0 Types: f32, f16, bf16. */
  geglu(x: GraphTensor, gate?: GraphTensor | null, options?: {
      /** with one source: the function takes the second half (default false) */
      swapped?: boolean
    } & ResultOptions): GraphTensor
  /** gelu(x) gate (tanh form); with one source x and gate are its halves along ne0 Types: f32, f16, bf16. */
  geglu(x: GraphTensor, options?: {
      /** with one source: the function takes the second half (default false) */
      swapped?: boolean
      gate?: GraphTensor
    } & ResultOptions): GraphTensor
  /** gelu(x) gate (erf form); with one source x and gate are its halves along ne0 Types: f32, f16, bf16. */
  gegluErf(x: GraphTensor, gate?: GraphTensor | null, options?: {
      /** with one source: the function takes the second half (default false) */
      swapped?: boolean
    } & ResultOptions): GraphTensor
  /** gelu(x) gate (erf form); with one source x and gate are its halves along ne0 Types: f32, f16, bf16. */
  gegluErf(x: GraphTensor, options?: {
      /** with one source: the function takes the second half (default false) */
      swapped?: boolean
      gate?: GraphTensor
    } & ResultOptions): GraphTensor
  /** x / (1 + exp(-1.702 x)) gate; with one source x and gate are its halves along ne0 Types: f32, f16, bf16. */
  gegluQuick(x: GraphTensor, gate?: GraphTensor | null, options?: {
      /** with one source: the function takes the second half (default false) */
      swapped?: boolean
    } & ResultOptions): GraphTensor
  /** x / (1 + exp(-1.702 x)) gate; with one source x and gate are its halves along ne0 Types: f32, f16, bf16. */
  gegluQuick(x: GraphTensor, options?: {
      /** with one source: the function takes the second half (default false) */
      swapped?: boolean
      gate?: GraphTensor
    } & ResultOptions): GraphTensor
  /** 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) Types: f32, f16, bf16. */
  gelu(x: GraphTensor, options?: ResultOptions): GraphTensor
  /** 0.5 x (1 + erf(x / sqrt(2))) Types: f32, f16, bf16. */
  geluErf(x: GraphTensor, options?: ResultOptions): GraphTensor
  /** x / (1 + exp(-1.702 x)) Types: f32, f16, bf16. */
  geluQuick(x: GraphTensor, options?: ResultOptions): GraphTensor
  /** table[:, ids[i, j, k], j, k]; block types and 16-bit floats come out as f32 Types: any; ids i32. */
  getRows(table: GraphTensor, ids: GraphTensor, options?: ResultOptions): GraphTensor
  /** (x - mean) / sqrt(variance + eps) over ne0, ne1 and ceil(ne2 / n_groups) channels Types: f32. */
  groupNorm(x: GraphTensor, options: {
      /** groups that ne2 is divided into */
      nGroups: number
      /** added to the variance (default 0.000001) */
      eps?: number
    } & ResultOptions): GraphTensor
  /** min(max((x + 3) / 6, 0), 1) Types: f32, f16, bf16. */
  hardsigmoid(x: GraphTensor, options?: ResultOptions): GraphTensor
  /** x min(max(x + 3, 0), 6) / 6 Types: f32, f16, bf16. */
  hardswish(x: GraphTensor, options?: ResultOptions): GraphTensor
  /** x / max(sqrt(sum(x^2)), eps) along ne0 Types: f32. */
  l2Norm(x: GraphTensor, options?: {
      /** least divisor (default 0.00001) */
      eps?: number
    } & ResultOptions): GraphTensor
  /** x > 0 ? x : negative_slope x Types: f32, f16, bf16. */
  leakyRelu(x: GraphTensor, options?: {
      /** slope for x < 0 (default 0.01) */
      negativeSlope?: number
    } & ResultOptions): GraphTensor
  /** natural logarithm of x Types: f32, f16, bf16. */
  log(x: GraphTensor, options?: ResultOptions): GraphTensor
  /** a b element by element, b repeated over a Types: f32, f16, bf16, i32 in any mix (the result has the type of a); b may be quantised. */
  mul(a: GraphTensor, b: GraphTensor, options?: ResultOptions): GraphTensor
  /** sum over k of a[k, i, s/r2, t/r3] b[k, j, s, t] at [i, j, s, t], with r2 = b.ne2/a.ne2, r3 = b.ne3/a.ne3 Types: a any float or block type; b f32, f16, bf16; the result is f32. */
  mulMat(a: GraphTensor, b: GraphTensor, options?: {
      /** 'default' or 'f32'; products here are always f32 (default 'default') */
      prec?: string
      /** ggml's remark about a; not used (default 0) */
      hint?: number
    } & ResultOptions): GraphTensor
  /** experts[:, :, ids[e, t]] times b[:, e mod b.ne1, t] at [:, e, t] Types: experts any float or block type; b f32, f16, bf16; ids i32; the result is f32. */
  mulMatId(experts: GraphTensor, b: GraphTensor, ids: GraphTensor, options?: {
      /** 'default' or 'f32'; products here are always f32 (default 'default') */
      prec?: string
    } & ResultOptions): GraphTensor
  /** -x Types: f32, f16, bf16. */
  neg(x: GraphTensor, options?: ResultOptions): GraphTensor
  /** (x - mean) / sqrt(variance + eps) along ne0 Types: f32. */
  norm(x: GraphTensor, options?: {
      /** added to the mean square or variance (default 0.00001) */
      eps?: number
    } & ResultOptions): GraphTensor
  /** sum over k of a[i, k, s/r2, t/r3] b[j, k, s, t] at [i, j, s, t], with r2 = b.ne2/a.ne2, r3 = b.ne3/a.ne3 Types: a any float or block type; b f32, f16, bf16; the result is f32. */
  outProd(a: GraphTensor, b: GraphTensor, options?: ResultOptions): GraphTensor
  /** relu(x) gate; with one source x and gate are its halves along ne0 Types: f32, f16, bf16. */
  reglu(x: GraphTensor, gate?: GraphTensor | null, options?: {
      /** with one source: the function takes the second half (default false) */
      swapped?: boolean
    } & ResultOptions): GraphTensor
  /** relu(x) gate; with one source x and gate are its halves along ne0 Types: f32, f16, bf16. */
  reglu(x: GraphTensor, options?: {
      /** with one source: the function takes the second half (default false) */
      swapped?: boolean
      gate?: GraphTensor
    } & ResultOptions): GraphTensor
  /** max(x, 0) Types: f32, f16, bf16. */
  relu(x: GraphTensor, options?: ResultOptions): GraphTensor
  /** x / sqrt(mean(x^2) + eps) along ne0 Types: f32. */
  rmsNorm(x: GraphTensor, options?: {
      /** added to the mean square or variance (default 0.00001) */
      eps?: number
    } & ResultOptions): GraphTensor
  /** Pairs of x rotated by position * freq_base^(-2 i / n_dims) / freq_factors[i], with YaRN's mix if ext_factor is not 0 Types: x f32, f16; positions i32; freq_factors f32. */
  rope(x: GraphTensor, positions: GraphTensor, freqFactors?: GraphTensor | null, options?: {
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
    } & ResultOptions): GraphTensor
  /** Pairs of x rotated by position * freq_base^(-2 i / n_dims) / freq_factors[i], with YaRN's mix if ext_factor is not 0 Types: x f32, f16; positions i32; freq_factors f32. */
  rope(x: GraphTensor, positions: GraphTensor, options?: {
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
      freqFactors?: GraphTensor
    } & ResultOptions): GraphTensor
  /** nearest integer, halves away from zero Types: f32, f16, bf16. */
  round(x: GraphTensor, options?: ResultOptions): GraphTensor
  /** s x + b Types: f32, f16, bf16. */
  scale(x: GraphTensor, options?: {
      /** factor (default 1) */
      s?: number
      /** bias (default 0) */
      b?: number
    } & ResultOptions): GraphTensor
  /** a with b put into the window of b's shape at `offset` Types: f32, f16, bf16, i8, i16, i32, i64. */
  set(a: GraphTensor, b: GraphTensor, options?: {
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
    } & ResultOptions): GraphTensor
  /** row ids[i, j mod ids.ne1, k mod ids.ne2] of into[:, :, j, k] becomes rows[:, i, j, k]; the result is `into` Types: rows f32, f16, bf16; ids i64, i32; into f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1. */
  setRows(rows: GraphTensor, ids: GraphTensor, into: GraphTensor, options?: ResultOptions): GraphTensor
  /** -1, 0 or 1 by the sign of x Types: f32, f16, bf16. */
  sgn(x: GraphTensor, options?: ResultOptions): GraphTensor
  /** 1 / (1 + exp(-x)) Types: f32, f16, bf16. */
  sigmoid(x: GraphTensor, options?: ResultOptions): GraphTensor
  /** x / (1 + exp(-x)) Types: f32, f16, bf16. */
  silu(x: GraphTensor, options?: ResultOptions): GraphTensor
  /** sin(x) Types: f32, f16, bf16. */
  sin(x: GraphTensor, options?: ResultOptions): GraphTensor
  /** softmax along ne0 of scale x + slope(head) mask; a sink is one more logit of its head, in the denominator only Types: x f32; mask f32, f16; sinks f32. */
  softMax(x: GraphTensor, mask?: GraphTensor | null, sinks?: GraphTensor | null, options?: {
      /** factor of x (default 1) */
      scale?: number
      /** largest ALiBi exponent; 0 for no slopes (default 0) */
      maxBias?: number
    } & ResultOptions): GraphTensor
  /** softmax along ne0 of scale x + slope(head) mask; a sink is one more logit of its head, in the denominator only Types: x f32; mask f32, f16; sinks f32. */
  softMax(x: GraphTensor, options?: {
      /** factor of x (default 1) */
      scale?: number
      /** largest ALiBi exponent; 0 for no slopes (default 0) */
      maxBias?: number
      mask?: GraphTensor
      sinks?: GraphTensor
    } & ResultOptions): GraphTensor
  /** x > 20 ? x : ln(1 + exp(x)) Types: f32, f16, bf16. */
  softplus(x: GraphTensor, options?: ResultOptions): GraphTensor
  /** x^2 Types: f32, f16, bf16. */
  sqr(x: GraphTensor, options?: ResultOptions): GraphTensor
  /** sqrt(x) Types: f32, f16, bf16. */
  sqrt(x: GraphTensor, options?: ResultOptions): GraphTensor
  /** 1 where x > 0, else 0 Types: f32, f16, bf16. */
  step(x: GraphTensor, options?: ResultOptions): GraphTensor
  /** a - b, b repeated over a Types: f32, f16, bf16, i32 in any mix (the result has the type of a); b may be quantised. */
  sub(a: GraphTensor, b: GraphTensor, options?: ResultOptions): GraphTensor
  /** silu(x) gate; with one source x and gate are its halves along ne0 Types: f32, f16, bf16. */
  swiglu(x: GraphTensor, gate?: GraphTensor | null, options?: {
      /** with one source: the function takes the second half (default false) */
      swapped?: boolean
    } & ResultOptions): GraphTensor
  /** silu(x) gate; with one source x and gate are its halves along ne0 Types: f32, f16, bf16. */
  swiglu(x: GraphTensor, options?: {
      /** with one source: the function takes the second half (default false) */
      swapped?: boolean
      gate?: GraphTensor
    } & ResultOptions): GraphTensor
  /** a / (1 + exp(-alpha a)) (b + 1) with a = min(x, limit), b = clamp(gate, -limit, limit) Types: f32, f16, bf16. */
  swigluOai(x: GraphTensor, gate?: GraphTensor | null, options?: {
      /** with one source: the function takes the second half (default false) */
      swapped?: boolean
      /** factor inside the sigmoid (default 1.702) */
      alpha?: number
      /** bound of x from above and of gate on both sides (default 7) */
      limit?: number
    } & ResultOptions): GraphTensor
  /** a / (1 + exp(-alpha a)) (b + 1) with a = min(x, limit), b = clamp(gate, -limit, limit) Types: f32, f16, bf16. */
  swigluOai(x: GraphTensor, options?: {
      /** with one source: the function takes the second half (default false) */
      swapped?: boolean
      /** factor inside the sigmoid (default 1.702) */
      alpha?: number
      /** bound of x from above and of gate on both sides (default 7) */
      limit?: number
      gate?: GraphTensor
    } & ResultOptions): GraphTensor
  /** tanh(x) Types: f32, f16, bf16. */
  tanh(x: GraphTensor, options?: ResultOptions): GraphTensor
  /** x with dimensions 0 and 1 exchanged. Types: all. */
  transpose(x: GraphTensor, options?: ResultOptions): GraphTensor
  /** x without its fraction Types: f32, f16, bf16. */
  trunc(x: GraphTensor, options?: ResultOptions): GraphTensor
  /** x > 0 ? alpha_p x^2 + beta x : (expm1(min(x, eps)) - x) alpha_n + beta x Types: f32, f16, bf16. */
  xielu(x: GraphTensor, options: {
      /** effective alpha for x <= 0 */
      alphaNEff: number
      /** effective alpha for x > 0 */
      alphaPEff: number
      /** slope of the linear part */
      beta: number
      /** upper bound of the exponent */
      eps: number
    } & ResultOptions): GraphTensor
}
