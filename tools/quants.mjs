// ggml's element and block types in plain JavaScript: what the tests compare with. Nothing of the package is used here, so a
// mistake there cannot hide. Layouts: __test__/golden/README.md and docs of GGUF; only types that tests meet.

/** type: [number in a GGUF file, elements a block, bytes a block] */
export const TYPES = {
  f32: [0, 1, 4],
  f16: [1, 1, 2],
  q4_0: [2, 32, 18],
  q4_1: [3, 32, 20],
  q5_0: [6, 32, 22],
  q5_1: [7, 32, 24],
  q8_0: [8, 32, 34],
  q2_K: [10, 256, 84],
  q3_K: [11, 256, 110],
  q4_K: [12, 256, 144],
  q5_K: [13, 256, 176],
  q6_K: [14, 256, 210],
  iq4_nl: [20, 32, 18],
  iq4_xs: [23, 256, 136],
  i8: [24, 1, 1],
  i16: [25, 1, 2],
  i32: [26, 1, 4],
  i64: [27, 1, 8],
  f64: [28, 1, 8],
  bf16: [30, 1, 2],
}
export const typeName = (number) => Object.keys(TYPES).find((name) => TYPES[name][0] === number)

/** Bytes of `elements` elements (whole blocks) of a type. */
export const bytesFor = (type, elements) => (elements / TYPES[type][1]) * TYPES[type][2]

const bits = new DataView(new ArrayBuffer(4))

/** f32 value of f16 bits, for all of them. */
const F16 = Float32Array.from({ length: 65536 }, (_, h) => {
  const [exponent, mantissa] = [(h >> 10) & 31, h & 1023]
  const sign = h & 0x8000 ? -1 : 1
  if (exponent === 31) return mantissa ? NaN : sign * Infinity
  return sign * (exponent ? (1 + mantissa / 1024) * 2 ** (exponent - 15) : mantissa * 2 ** -24)
})

export const f16ToF32 = (half) => F16[half]

/** Nearest f16 bits, ties to even. */
export function f32ToF16(value) {
  bits.setFloat32(0, value)
  const word = bits.getUint32(0)
  const sign = (word >>> 16) & 0x8000
  const magnitude = word & 0x7fffffff
  if (magnitude > 0x7f800000) return sign | 0x7e00
  if (magnitude >= 0x477ff000) return sign | 0x7c00 // from 65520 on everything rounds to infinity
  if (magnitude < 0x38800000) {
    // A subnormal is a whole number of 2^-24; the sum lets the f32 unit do the rounding.
    bits.setUint32(0, magnitude)
    return sign | roundEven(bits.getFloat32(0) * 2 ** 24)
  }
  return sign | ((magnitude + 0xfff + ((magnitude >> 13) & 1) - 0x38000000) >>> 13)
}

function roundEven(x) {
  const down = Math.floor(x)
  const rest = x - down
  return rest > 0.5 || (rest === 0.5 && down % 2 === 1) ? down + 1 : down
}

const IQ4 = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]

/** Scale and minimum of group g in the 12 bytes of a q4_K or q5_K block. */
function scaleMin(s, at, g) {
  if (g < 4) return [s[at + g] & 63, s[at + g + 4] & 63]
  return [(s[at + g + 4] & 15) | ((s[at + g - 4] >> 6) << 4), (s[at + g + 4] >> 4) | ((s[at + g] >> 6) << 4)]
}

/** One block at byte `p` of `b` into `out` from `o` on. `half(p)` reads an f16. */
const BLOCKS = {
  q4_0(b, p, half, out, o) {
    const d = half(p)
    for (let j = 0; j < 16; j++) {
      out[o + j] = d * ((b[p + 2 + j] & 15) - 8)
      out[o + j + 16] = d * ((b[p + 2 + j] >> 4) - 8)
    }
  },
  q4_1(b, p, half, out, o) {
    const [d, m] = [half(p), half(p + 2)]
    for (let j = 0; j < 16; j++) {
      out[o + j] = d * (b[p + 4 + j] & 15) + m
      out[o + j + 16] = d * (b[p + 4 + j] >> 4) + m
    }
  },
  q5_0(b, p, half, out, o) {
    const d = half(p)
    for (let j = 0; j < 32; j++) out[o + j] = d * (five(b, p + 2, p + 6, j) - 16)
  },
  q5_1(b, p, half, out, o) {
    const [d, m] = [half(p), half(p + 2)]
    for (let j = 0; j < 32; j++) out[o + j] = d * five(b, p + 4, p + 8, j) + m
  },
  q8_0(b, p, half, out, o) {
    const d = half(p)
    for (let j = 0; j < 32; j++) out[o + j] = d * ((b[p + 2 + j] << 24) >> 24)
  },
  q2_K(b, p, half, out, o) {
    const [d, dmin] = [half(p + 80), half(p + 82)]
    for (let i = 0; i < 256; i++) {
      const [h, r] = [i >> 7, i & 127]
      const q = (b[p + 16 + 32 * h + (r & 31)] >> (2 * (r >> 5))) & 3
      const s = b[p + (i >> 4)]
      out[o + i] = d * (s & 15) * q - dmin * (s >> 4)
    }
  },
  q3_K(b, p, half, out, o) {
    const d = half(p + 108)
    for (let i = 0; i < 256; i++) {
      const [h, r, k] = [i >> 7, i & 127, i >> 4]
      const set = (b[p + (r & 31)] >> (4 * h + (r >> 5))) & 1
      const q = ((b[p + 32 + 32 * h + (r & 31)] >> (2 * (r >> 5))) & 3) - (set ? 0 : 4)
      const low = k < 8 ? b[p + 96 + k] & 15 : b[p + 96 + k - 8] >> 4
      const high = (b[p + 104 + (k & 3)] >> (2 * (k >> 2))) & 3
      out[o + i] = d * (low + 16 * high - 32) * q
    }
  },
  q4_K(b, p, half, out, o) {
    const [d, dmin] = [half(p), half(p + 2)]
    for (let g = 0; g < 8; g++) {
      const [sc, mn] = scaleMin(b, p + 4, g)
      for (let l = 0; l < 32; l++) {
        const byte = b[p + 16 + 32 * (g >> 1) + l]
        out[o + 32 * g + l] = d * sc * (g & 1 ? byte >> 4 : byte & 15) - dmin * mn
      }
    }
  },
  q5_K(b, p, half, out, o) {
    const [d, dmin] = [half(p), half(p + 2)]
    for (let g = 0; g < 8; g++) {
      const [sc, mn] = scaleMin(b, p + 4, g)
      for (let l = 0; l < 32; l++) {
        const byte = b[p + 48 + 32 * (g >> 1) + l]
        const q = (g & 1 ? byte >> 4 : byte & 15) + 16 * ((b[p + 16 + l] >> g) & 1)
        out[o + 32 * g + l] = d * sc * q - dmin * mn
      }
    }
  },
  q6_K(b, p, half, out, o) {
    const d = half(p + 208)
    for (let i = 0; i < 256; i++) {
      const [h, k, l] = [i >> 7, (i & 127) >> 5, i & 31]
      const low = (b[p + 64 * h + l + 32 * (k & 1)] >> ((k >> 1) * 4)) & 15
      const high = (b[p + 128 + 32 * h + l] >> (2 * k)) & 3
      const scale = (b[p + 192 + (i >> 4)] << 24) >> 24
      out[o + i] = d * scale * (low + 16 * high - 32)
    }
  },
  iq4_nl(b, p, half, out, o) {
    const d = half(p)
    for (let j = 0; j < 16; j++) {
      out[o + j] = d * IQ4[b[p + 2 + j] & 15]
      out[o + j + 16] = d * IQ4[b[p + 2 + j] >> 4]
    }
  },
  iq4_xs(b, p, half, out, o) {
    const d = half(p)
    const high = b[p + 2] | (b[p + 3] << 8)
    for (let g = 0; g < 8; g++) {
      const scale = (((b[p + 4 + (g >> 1)] >> (4 * (g & 1))) & 15) | (((high >> (2 * g)) & 3) << 4)) - 32
      for (let j = 0; j < 32; j++) {
        const byte = b[p + 8 + 16 * g + (j & 15)]
        out[o + 32 * g + j] = d * scale * IQ4[j < 16 ? byte & 15 : byte >> 4]
      }
    }
  },
}

/** Five-bit number j: its fifth bit is bit j of the word at `high`. */
function five(b, high, low, j) {
  const nibble = j < 16 ? b[low + j] & 15 : b[low + j - 16] >> 4
  return nibble | (((b[high + (j >> 3)] >> (j & 7)) & 1) << 4)
}

/** Values of whole blocks: a Float64Array for types that f32 cannot hold, else a Float32Array. `bytes` is a Uint8Array. */
export function dequantize(type, bytes, out) {
  const [, length, size] = TYPES[type]
  const count = (bytes.length / size) * length
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const wide = type === 'i32' || type === 'i64' || type === 'f64'
  out ??= wide ? new Float64Array(count) : new Float32Array(count)
  const block = BLOCKS[type]
  if (block) {
    const half = (p) => F16[bytes[p] | (bytes[p + 1] << 8)]
    for (let p = 0, o = 0; o < count; p += size, o += length) block(bytes, p, half, out, o)
    return out
  }
  const read = {
    f32: (i) => view.getFloat32(4 * i, true),
    f16: (i) => F16[view.getUint16(2 * i, true)],
    bf16: (i) => (bits.setUint32(0, view.getUint16(2 * i, true) << 16), bits.getFloat32(0)),
    f64: (i) => view.getFloat64(8 * i, true),
    i8: (i) => view.getInt8(i),
    i16: (i) => view.getInt16(2 * i, true),
    i32: (i) => view.getInt32(4 * i, true),
    i64: (i) => Number(view.getBigInt64(8 * i, true)),
  }[type]
  for (let i = 0; i < count; i++) out[i] = read(i)
  return out
}

const QUANTIZERS = {
  /** d from the element of largest magnitude, sign kept, so that it becomes -8 exactly; product and sum round once. */
  q4_0(x, o, view, p) {
    let largest = 0
    for (let j = 0; j < 32; j++) if (Math.abs(x[o + j]) > Math.abs(largest)) largest = x[o + j]
    const d = Math.fround(largest / -8)
    const inverse = d === 0 ? 0 : Math.fround(1 / d)
    view.setUint16(p, f32ToF16(d), true)
    const q = (value) => Math.min(15, Math.max(0, Math.trunc(Math.fround(value * inverse + 8.5))))
    for (let j = 0; j < 16; j++) view.setUint8(p + 2 + j, q(x[o + j]) | (q(x[o + j + 16]) << 4))
  },
  q8_0(x, o, view, p) {
    let largest = 0
    for (let j = 0; j < 32; j++) largest = Math.max(largest, Math.abs(x[o + j]))
    const d = Math.fround(largest / 127)
    const inverse = d === 0 ? 0 : Math.fround(1 / d)
    view.setUint16(p, f32ToF16(d), true)
    for (let j = 0; j < 32; j++) {
      const scaled = Math.fround(x[o + j] * inverse)
      view.setInt8(p + 2 + j, Math.sign(scaled) * Math.floor(Math.abs(scaled) + 0.5)) // ties away from zero
    }
  },
  f16: (x, o, view, p) => view.setUint16(p, f32ToF16(x[o]), true),
  f32: (x, o, view, p) => view.setFloat32(p, x[o], true),
}

/** Blocks of f32 values (a whole number of blocks), by ggml's rounding rules. */
export function quantize(type, values) {
  const [, length, size] = TYPES[type]
  const out = new Uint8Array(bytesFor(type, values.length))
  const view = new DataView(out.buffer)
  for (let o = 0, p = 0; o < values.length; o += length, p += size) QUANTIZERS[type](values, o, view, p)
  return out
}
