"""Makes quant.bin: what an independent implementation (PyPI's gguf with numpy) makes of pseudo-random blocks.

Run by hand in this folder: python3 make_quant_fixture.py. Needs gguf >= 0.19 and numpy.

The file is little-endian: two sections, each a u32 count and that many records.
  dequantising: u32 type, u32 n, the bytes of n blocks, their values as f32, u64 hash of the values of blocks made of
                HASHED_BLOCKS * block_bytes pseudo-random bytes with the type number as seed
  quantising:   u32 type, u64 hash of the bytes that HASHED_BLOCKS * 32 pseudo-random values become
Hashes are FNV-1a over u32 words of values (any NaN is 0x7fc00000), or over single bytes.
"""

import struct
import warnings

import gguf
import numpy as np

HASHED_BLOCKS = 512
warnings.simplefilter("ignore")


def random_words(seed, n):
    with np.errstate(over="ignore"):
        z = np.uint64(seed) * np.uint64(0xD1342543DE82EF95) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(
            0x9E3779B97F4A7C15
        )
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def random_bytes(seed, n):
    return random_words(seed, -(-n // 8)).view(np.uint8)[:n].copy()


def random_values(seed, n):
    """Multiples of 2^-20; every block of 32 has its own power of two, every seventeenth is zero."""
    words = random_words(seed, n)
    whole = (words >> np.uint64(40)).astype(np.int64) - (1 << 23)
    block = np.arange(n) // 32
    scale = np.where(block % 17 == 16, 0.0, 2.0 ** (block % 23 - 31))
    return (whole * scale + 0.0).astype(np.float32)  # no negative zeros


def fnv(items):
    h = 0xCBF29CE484222325
    for item in items.tolist():
        h = ((h ^ item) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def bits(values):
    values = np.ascontiguousarray(values, dtype=np.float32).reshape(-1)
    return np.where(np.isnan(values), np.uint32(0x7FC00000), values.view(np.uint32))


def q8_0(values):
    """Not the package's rule: ties go to even, and the inverse is 127 / max."""
    x = values.reshape(-1, 32)
    top = np.abs(x).max(axis=1, keepdims=True)
    inverse = np.where(top == 0, np.float32(0), np.float32(127) / top)
    q = np.rint(x * inverse).astype(np.int8).view(np.uint8)
    d = (top / np.float32(127)).astype(np.float16).view(np.uint8)
    return np.concatenate([d, q], axis=1)


Q = gguf.GGMLQuantizationType
names = "F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S IQ1_S IQ1_M"
names += " IQ4_NL IQ4_XS TQ1_0 TQ2_0 MXFP4"
records = []
for name in names.split():
    ty = Q[name]
    block_len, block_bytes = gguf.GGML_QUANT_SIZES[ty]
    n = 2 if block_len == 256 else 4
    src = random_bytes(ty.value, HASHED_BLOCKS * block_bytes)
    values = bits(gguf.quants.dequantize(src.reshape(HASHED_BLOCKS, block_bytes), ty))
    records.append(
        struct.pack("<II", ty.value, n)
        + src[: n * block_bytes].tobytes()
        + values[: n * block_len].astype("<u4").tobytes()
        + struct.pack("<Q", fnv(values))
    )
out = struct.pack("<I", len(records)) + b"".join(records)

records = []
for name in "F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0".split():
    ty = Q[name]
    x = random_values(ty.value, HASHED_BLOCKS * 32)
    got = q8_0(x) if name == "Q8_0" else gguf.quants.quantize(x.reshape(HASHED_BLOCKS, 32), ty)
    records.append(struct.pack("<IQ", ty.value, fnv(np.ascontiguousarray(got).view(np.uint8).reshape(-1))))
out += struct.pack("<I", len(records)) + b"".join(records)

with open("quant.bin", "wb") as f:
    f.write(out)
print(len(out), "bytes")
