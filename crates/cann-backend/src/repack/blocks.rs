//! Whole blocks into the device's layout and back.
//!
//! Plain loops over arrays of known size: nibbles move eight at a time in a `u64`, the rest the compiler vectorises. A caller
//! may cut the blocks anywhere between two of them and do the pieces in parallel.

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::{Layout, NotFinite};

/// Groups whose scales are worked out together.
const BATCH: usize = 64;

/// Writes whole ggml blocks in the device's layout: to the front of `quants`, `scales` and `offsets`, which must have room
/// for them (verbatim layouts use `quants` only).
///
/// Only `Int4Affine` can fail. It stores scale d and offset f16(8 + m / d) over q - 8. Where d is zero, or the offset has no
/// f16, every value of the group is m to f16 precision: then scale = 8 d + m, offset = 1, q = 0.
pub fn to_device(
    layout: Layout,
    blocks: &[u8],
    quants: &mut [u8],
    scales: &mut [u8],
    offsets: &mut [u8],
) -> Result<(), NotFinite> {
    match layout {
        Layout::Plain | Layout::Blocks => quants[..blocks.len()].copy_from_slice(blocks),
        Layout::Q8_0 => {
            let parts = quants.as_chunks_mut::<32>().0.iter_mut().zip(scales.as_chunks_mut::<2>().0);
            for (block, (q, scale)) in whole::<34>(blocks).iter().zip(same(blocks.len() / 34, parts)) {
                scale.copy_from_slice(&block[..2]);
                q.copy_from_slice(&block[2..]);
            }
        }
        Layout::Q4_0 => {
            let parts = quants.as_chunks_mut::<16>().0.iter_mut().zip(scales.as_chunks_mut::<2>().0);
            for (block, (q, scale)) in whole::<18>(blocks).iter().zip(same(blocks.len() / 18, parts)) {
                scale.copy_from_slice(&block[..2]);
                *q = pack(tail(block));
            }
        }
        Layout::Int4Affine => {
            let n = blocks.len() / 20;
            let batches = whole::<20>(blocks).chunks(BATCH).enumerate();
            let parts = quants[..n * 16].chunks_mut(BATCH * 16).zip(scales[..n * 2].chunks_mut(BATCH * 2));
            for ((i, blocks), ((q, scales), offsets)) in batches.zip(parts.zip(offsets[..n * 2].chunks_mut(BATCH * 2)))
            {
                let (mut d, mut m) = ([0.0; BATCH], [0.0; BATCH]);
                floats(blocks, 0, &mut d);
                floats(blocks, 2, &mut m);
                for (block, q) in blocks.iter().zip(q.as_chunks_mut::<16>().0) {
                    *q = pack(tail(block));
                }
                affine(&d[..blocks.len()], &m[..blocks.len()], q, scales, offsets)
                    .map_err(|e| NotFinite { block: i * BATCH + e.block })?;
            }
        }
    }
    Ok(())
}

/// The inverse of [`to_device`]: fills `blocks`, whole ggml blocks, from the front of the device's parts.
///
/// `Int4Affine` gives q4_1 blocks with d = scale and m = f16((offset - 8) * scale), saturated.
pub fn from_device(layout: Layout, quants: &[u8], scales: &[u8], offsets: &[u8], blocks: &mut [u8]) {
    match layout {
        Layout::Plain | Layout::Blocks => blocks.copy_from_slice(&quants[..blocks.len()]),
        Layout::Q8_0 => {
            let n = blocks.len() / 34;
            let parts = quants.as_chunks::<32>().0.iter().zip(scales.as_chunks::<2>().0);
            for (block, (q, scale)) in whole_mut::<34>(blocks).iter_mut().zip(same(n, parts)) {
                block[..2].copy_from_slice(scale);
                block[2..].copy_from_slice(q);
            }
        }
        Layout::Q4_0 => {
            let n = blocks.len() / 18;
            let parts = quants.as_chunks::<16>().0.iter().zip(scales.as_chunks::<2>().0);
            for (block, (q, scale)) in whole_mut::<18>(blocks).iter_mut().zip(same(n, parts)) {
                block[..2].copy_from_slice(scale);
                block[2..].copy_from_slice(&unpack(q));
            }
        }
        Layout::Int4Affine => {
            let n = blocks.len() / 20;
            let batches = whole_mut::<20>(blocks).chunks_mut(BATCH);
            let parts = quants[..n * 16].chunks(BATCH * 16).zip(scales[..n * 2].chunks(BATCH * 2));
            for (blocks, ((q, scales), offsets)) in batches.zip(parts.zip(offsets[..n * 2].chunks(BATCH * 2))) {
                let (mut scale, mut m) = ([0.0; BATCH], [0.0; BATCH]);
                floats(scales.as_chunks::<2>().0, 0, &mut scale);
                floats(offsets.as_chunks::<2>().0, 0, &mut m);
                for (m, scale) in m.iter_mut().zip(&scale) {
                    *m = saturated((*m - 8.0) * scale);
                }
                let mut halves = [f16::ZERO; BATCH];
                halves.convert_from_f32_slice(&m);
                let parts =
                    q.as_chunks::<16>().0.iter().zip(scales.as_chunks::<2>().0.iter().zip(offsets.as_chunks::<2>().0));
                for ((block, (q, (scale, offset))), m) in blocks.iter_mut().zip(parts).zip(&halves) {
                    if *offset == f16::ONE.to_le_bytes() && *q == [0; 16] {
                        // One value for the whole group. Its m as above would be seven times as large and might not fit.
                        *block = [0; 20];
                        block[2..4].copy_from_slice(scale);
                        continue;
                    }
                    block[..2].copy_from_slice(scale);
                    block[2..4].copy_from_slice(&m.to_le_bytes());
                    block[4..].copy_from_slice(&unpack(q));
                }
            }
        }
    }
}

/// Scales and offsets of groups whose values are d * n + m, for n from 0 to 15, when n - 8 is stored in `quants`. Clears the
/// quants of groups that are one value.
///
/// The offset is f16(8 d / s + m / s), where s = f16(d): that is 8 + m / d for a d that is an f16, and keeps the middle of the
/// group's range where it was for one that is not.
pub(super) fn affine(
    d: &[f32],
    m: &[f32],
    quants: &mut [u8],
    scales: &mut [u8],
    offsets: &mut [u8],
) -> Result<(), NotFinite> {
    let n = d.len();
    assert!(n <= BATCH && m.len() == n);
    let (mut s, mut s16, mut off, mut off16) = ([0f32; BATCH], [f16::ZERO; BATCH], [0f32; BATCH], [f16::ZERO; BATCH]);
    s16[..n].convert_from_f32_slice(d);
    s16.convert_to_f32_slice(&mut s);
    for (off, ((d, m), s)) in off.iter_mut().zip(d.iter().zip(m).zip(&s)) {
        *off = 8.0 * (d / s) + m / s;
    }
    off16.convert_from_f32_slice(&off);
    for k in 0..n {
        let (mut scale, mut offset) = (s16[k], off16[k]);
        if !scale.is_finite() || !m[k].is_finite() {
            return Err(NotFinite { block: k });
        }
        if scale.to_bits() << 1 == 0 || !offset.is_finite() {
            scale = f16::from_f32(8.0 * d[k] + m[k]);
            offset = f16::ONE;
            quants[k * 16..][..16].fill(0);
            if !scale.is_finite() {
                return Err(NotFinite { block: k });
            }
        }
        scales[k * 2..][..2].copy_from_slice(&scale.to_le_bytes());
        offsets[k * 2..][..2].copy_from_slice(&offset.to_le_bytes());
    }
    Ok(())
}

/// Nibbles of a block in ggml's order (byte j: element j low, element j + 16 high) as signed int4 in element order.
#[inline(always)]
fn pack(qs: &[u8; 16]) -> [u8; 16] {
    let [a, b] = halves(qs);
    let low = |x: u64| u64::from(join(x & NIBBLES));
    let high = |x: u64| u64::from(join(x >> 4 & NIBBLES));
    both((low(a) | low(b) << 32) ^ SIGNS, (high(a) | high(b) << 32) ^ SIGNS)
}

/// Two groups of q4_K (32 bytes: one group in the low nibbles, the next in the high ones) as signed int4 in element order.
#[inline(always)]
pub(super) fn pack_row(qs: &[u8; 32]) -> [u8; 32] {
    let mut packed = [0; 32];
    let (low, high) = packed.split_at_mut(16);
    let out = low.as_chunks_mut::<4>().0.iter_mut().zip(high.as_chunks_mut::<4>().0);
    for (bytes, (low, high)) in qs.as_chunks::<8>().0.iter().zip(out) {
        let x = u64::from_le_bytes(*bytes);
        *low = (join(x & NIBBLES) ^ SIGNS as u32).to_le_bytes();
        *high = (join(x >> 4 & NIBBLES) ^ SIGNS as u32).to_le_bytes();
    }
    packed
}

/// The inverse of [`pack`].
#[inline(always)]
fn unpack(q: &[u8; 16]) -> [u8; 16] {
    let [first, last] = halves(q).map(|x| x ^ SIGNS);
    both(
        spread(first as u32) | spread(last as u32) << 4,
        spread((first >> 32) as u32) | spread((last >> 32) as u32) << 4,
    )
}

const NIBBLES: u64 = 0x0f0f_0f0f_0f0f_0f0f;
/// Turns unsigned codes 0..15 into signed -8..7 and back, in two's complement nibbles.
const SIGNS: u64 = 0x8888_8888_8888_8888;

/// Eight nibbles in eight bytes → eight nibbles in four.
#[inline(always)]
fn join(x: u64) -> u32 {
    let x = (x | x >> 4) & 0x00ff_00ff_00ff_00ff;
    let x = (x | x >> 8) & 0x0000_ffff_0000_ffff;
    (x | x >> 16) as u32
}

#[inline(always)]
fn spread(x: u32) -> u64 {
    let x = u64::from(x);
    let x = (x | x << 16) & 0x0000_ffff_0000_ffff;
    let x = (x | x << 8) & 0x00ff_00ff_00ff_00ff;
    (x | x << 4) & NIBBLES
}

#[inline(always)]
fn halves(bytes: &[u8; 16]) -> [u64; 2] {
    let x = u128::from_le_bytes(*bytes);
    [x as u64, (x >> 64) as u64]
}

#[inline(always)]
fn both(first: u64, last: u64) -> [u8; 16] {
    (u128::from(first) | u128::from(last) << 64).to_le_bytes()
}

/// The last 16 bytes of a block.
#[inline(always)]
fn tail<const N: usize>(block: &[u8; N]) -> &[u8; 16] {
    block.last_chunk().expect("blocks are longer than 16 bytes")
}

/// The f16 at byte `at` of each item, as f32.
fn floats<const N: usize>(items: &[[u8; N]], at: usize, out: &mut [f32; BATCH]) {
    let mut values = [f16::ZERO; BATCH];
    for (value, item) in values.iter_mut().zip(items) {
        *value = f16::from_le_bytes([item[at], item[at + 1]]);
    }
    values.convert_to_f32_slice(out);
}

/// The nearest value that an f16 can hold; NaN stays.
#[inline(always)]
pub(super) fn saturated(x: f32) -> f32 {
    x.clamp(-65504.0, 65504.0)
}

fn whole<const N: usize>(blocks: &[u8]) -> &[[u8; N]] {
    let (blocks, rest) = blocks.as_chunks();
    assert!(rest.is_empty(), "whole blocks");
    blocks
}

fn whole_mut<const N: usize>(blocks: &mut [u8]) -> &mut [[u8; N]] {
    let (blocks, rest) = blocks.as_chunks_mut();
    assert!(rest.is_empty(), "whole blocks");
    blocks
}

/// The first `n` of the parts. Parts that are too short are a mistake of the caller, as a short slice would be.
fn same<I: ExactSizeIterator>(n: usize, parts: I) -> std::iter::Take<I> {
    assert!(parts.len() >= n, "room for {n} blocks");
    parts.take(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// M54.
    #[test]
    fn golden_q4_0_block() {
        let mut block = vec![0x00, 0x3c];
        block.extend((0..16).map(|j| 0x11 * j as u8));
        let (mut q, mut d) = ([0; 16], [0; 2]);
        to_device(Layout::Q4_0, &block, &mut q, &mut d, &mut []).unwrap();
        let half = [0x98, 0xba, 0xdc, 0xfe, 0x10, 0x32, 0x54, 0x76];
        assert_eq!(q, [half, half].concat()[..]);
        assert_eq!(d, [0x00, 0x3c]);
        let mut back = vec![0; 18];
        from_device(Layout::Q4_0, &q, &d, &[], &mut back);
        assert_eq!(back, block);
    }

    #[test]
    fn pack_puts_elements_in_order() {
        // Element e has code e % 13, so that every nibble position is told apart.
        let code = |e: usize| (e % 13) as u8;
        let qs = std::array::from_fn(|j| code(j) | code(j + 16) << 4);
        let packed = pack(&qs);
        for e in 0..32 {
            let nibble = packed[e / 2] >> (e % 2 * 4) & 15;
            assert_eq!(nibble ^ 8, code(e));
        }
        assert_eq!(unpack(&packed), qs);
    }

    fn q4_1(d: f32, m: f32, code: impl Fn(usize) -> u8) -> Vec<u8> {
        let mut block = [f16::from_f32(d).to_le_bytes(), f16::from_f32(m).to_le_bytes()].concat();
        block.extend((0..16).map(|j| code(j) | code(j + 16) << 4));
        block
    }

    fn store(block: &[u8]) -> Result<([u8; 16], f16, f16), NotFinite> {
        let (mut q, mut s, mut o) = ([0x55; 16], [0; 2], [0; 2]);
        to_device(Layout::Int4Affine, block, &mut q, &mut s, &mut o)?;
        Ok((q, f16::from_le_bytes(s), f16::from_le_bytes(o)))
    }

    #[test]
    fn affine_offset_is_eight_plus_m_over_d() {
        let (q, scale, offset) = store(&q4_1(0.5, -3.0, |e| (e % 16) as u8)).unwrap();
        assert_eq!((scale.to_f32(), offset.to_f32()), (0.5, 2.0));
        assert_eq!(q[0], 0x98);
    }

    #[test]
    fn affine_groups_of_one_value() {
        for (d, m) in [(0.0, 3.25), (-0.0, -65504.0), (0.0, 0.0), (6e-8, 1000.0)] {
            let block = q4_1(d, m, |e| e as u8 & 15);
            let (q, scale, offset) = store(&block).unwrap();
            assert_eq!((q, offset), ([0; 16], f16::ONE), "d {d} m {m}");
            assert_eq!(scale.to_f32(), f16::from_f32(m).to_f32());
            let mut back = [1; 20];
            from_device(Layout::Int4Affine, &q, &scale.to_le_bytes(), &offset.to_le_bytes(), &mut back);
            assert_eq!(back, q4_1(0.0, m, |_| 0)[..]);
        }
    }

    #[test]
    fn affine_refuses_what_is_not_finite() {
        for (d, m) in [(f32::INFINITY, 0.0), (1.0, f32::NAN), (f32::NAN, 0.0), (0.0, f32::NEG_INFINITY)] {
            let mut blocks = q4_1(1.0, 1.0, |_| 0).repeat(70);
            blocks.extend(q4_1(d, m, |_| 0));
            let (mut q, mut s, mut o) = (vec![0; 71 * 16], vec![0; 142], vec![0; 142]);
            let result = to_device(Layout::Int4Affine, &blocks, &mut q, &mut s, &mut o);
            assert_eq!(result, Err(NotFinite { block: 70 }));
        }
    }
}
