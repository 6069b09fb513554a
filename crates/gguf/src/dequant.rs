//! Every type of the format → f32: the definition that faster code is measured against.
//!
//! Layouts are ggml's. Each block type is a function from one block, an array of known size, to an array of values, so
//! that the compiler can unroll and vectorise the common ones: weights go through here once, when they are uploaded.
//! Products are formed in ggml's order and never fused, so results are the same to the bit on every machine. Absent:
//! intrinsics and threads.

use half::f16;
use half::slice::HalfFloatSliceExt;

use crate::blocks::*;
use crate::error::GgufError;
use crate::iq_tables::{
    IQ1, IQ2_S, IQ2_VALUES, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS, IQ3_XXS_VALUES, IQ4_VALUES, MXFP4_VALUES, signs,
};
use crate::types::GgmlType;

/// Converts whole blocks of `ty` to values. i64 and f64 are rounded.
pub fn dequantize(ty: GgmlType, src: &[u8], dst: &mut [f32]) -> Result<(), GgufError> {
    check_sizes(ty, dst.len(), src.len())?;
    match ty {
        GgmlType::F32 => numbers(src, dst, f32::from_le_bytes),
        GgmlType::F16 => halves(src, dst),
        GgmlType::Bf16 => numbers(src, dst, |b| f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16)),
        GgmlType::F64 => numbers(src, dst, |b| f64::from_le_bytes(b) as f32),
        GgmlType::I8 => numbers(src, dst, |b| i8::from_le_bytes(b).into()),
        GgmlType::I16 => numbers(src, dst, |b| i16::from_le_bytes(b).into()),
        GgmlType::I32 => numbers(src, dst, |b| i32::from_le_bytes(b) as f32),
        GgmlType::I64 => numbers(src, dst, |b| i64::from_le_bytes(b) as f32),
        GgmlType::Q4_0 => blocks(src, dst, q4_0),
        GgmlType::Q4_1 => blocks(src, dst, q4_1),
        GgmlType::Q5_0 => blocks(src, dst, q5_0),
        GgmlType::Q5_1 => blocks(src, dst, q5_1),
        GgmlType::Q8_0 => blocks(src, dst, q8_0),
        GgmlType::Q8_1 => blocks(src, dst, q8_1),
        GgmlType::Q2K => blocks(src, dst, q2_k),
        GgmlType::Q3K => blocks(src, dst, q3_k),
        GgmlType::Q4K => blocks(src, dst, q4_k),
        GgmlType::Q5K => blocks(src, dst, q5_k),
        GgmlType::Q6K => blocks(src, dst, q6_k),
        GgmlType::Q8K => blocks(src, dst, q8_k),
        GgmlType::Iq2Xxs => blocks(src, dst, iq2_xxs),
        GgmlType::Iq2Xs => blocks(src, dst, iq2_xs),
        GgmlType::Iq2S => blocks(src, dst, iq2_s),
        GgmlType::Iq3Xxs => blocks(src, dst, iq3_xxs),
        GgmlType::Iq3S => blocks(src, dst, iq3_s),
        GgmlType::Iq1S => blocks(src, dst, iq1_s),
        GgmlType::Iq1M => blocks(src, dst, iq1_m),
        GgmlType::Iq4Nl => blocks(src, dst, iq4_nl),
        GgmlType::Iq4Xs => blocks(src, dst, iq4_xs),
        GgmlType::Tq1_0 => blocks(src, dst, tq1_0),
        GgmlType::Tq2_0 => blocks(src, dst, tq2_0),
        GgmlType::Mxfp4 => blocks(src, dst, mxfp4),
    }
    Ok(())
}

fn numbers<const B: usize>(src: &[u8], dst: &mut [f32], number: impl Fn([u8; B]) -> f32) {
    for (bytes, y) in src.as_chunks().0.iter().zip(dst) {
        *y = number(*bytes);
    }
}

/// `half` converts slices with the CPU's instructions where it has them; single numbers would each ask for them again.
fn halves(src: &[u8], dst: &mut [f32]) {
    const PART: usize = 512;
    let mut part = [f16::ZERO; PART];
    for (bytes, y) in src.chunks(2 * PART).zip(dst.chunks_mut(PART)) {
        let part = &mut part[..y.len()];
        for (half, bytes) in part.iter_mut().zip(bytes.as_chunks().0) {
            *half = f16::from_le_bytes(*bytes);
        }
        part.convert_to_f32_slice(y);
    }
}

fn blocks<const B: usize, const L: usize>(src: &[u8], dst: &mut [f32], block: impl Fn(&[u8; B], &mut [f32; L])) {
    for (bytes, y) in src.as_chunks().0.iter().zip(dst.as_chunks_mut().0) {
        block(bytes, y);
    }
}

fn q4_0(block: &[u8; 18], y: &mut [f32; QK]) {
    let block = BlockQ4_0::new(block);
    let d = f16_field(block.d);
    for (j, &q) in block.qs.iter().enumerate() {
        y[j] = d * (i32::from(q & 15) - 8) as f32;
        y[j + 16] = d * (i32::from(q >> 4) - 8) as f32;
    }
}

fn q4_1(block: &[u8; 20], y: &mut [f32; QK]) {
    let block = BlockQ4_1::new(block);
    let (d, m) = (f16_field(block.d), f16_field(block.m));
    for (j, &q) in block.qs.iter().enumerate() {
        y[j] = d * i32::from(q & 15) as f32 + m;
        y[j + 16] = d * i32::from(q >> 4) as f32 + m;
    }
}

/// 16 where bit `j` is set. A comparison, because not every CPU can shift lanes by different amounts.
#[inline(always)]
fn fifth_bit(qh: u32, j: usize) -> i32 {
    if qh & (1 << j) == 0 { 0 } else { 16 }
}

fn q5_0(block: &[u8; 22], y: &mut [f32; QK]) {
    let block = BlockQ5_0::new(block);
    let d = f16_field(block.d);
    let qh = u32::from_le_bytes(*block.qh);
    for (j, &q) in block.qs.iter().enumerate() {
        y[j] = d * ((i32::from(q & 15) | fifth_bit(qh, j)) - 16) as f32;
        y[j + 16] = d * ((i32::from(q >> 4) | fifth_bit(qh, j + 16)) - 16) as f32;
    }
}

fn q5_1(block: &[u8; 24], y: &mut [f32; QK]) {
    let block = BlockQ5_1::new(block);
    let (d, m) = (f16_field(block.d), f16_field(block.m));
    let qh = u32::from_le_bytes(*block.qh);
    for (j, &q) in block.qs.iter().enumerate() {
        y[j] = d * (i32::from(q & 15) | fifth_bit(qh, j)) as f32 + m;
        y[j + 16] = d * (i32::from(q >> 4) | fifth_bit(qh, j + 16)) as f32 + m;
    }
}

fn q8_0(block: &[u8; 34], y: &mut [f32; QK]) {
    let block = BlockQ8_0::new(block);
    signed_bytes(f16_field(block.d), block.qs, y);
}

fn q8_1(block: &[u8; 36], y: &mut [f32; QK]) {
    let block = BlockQ8_1::new(block);
    signed_bytes(f16_field(block.d), block.qs, y);
}

fn q8_k(block: &[u8; 292], y: &mut [f32; QK_K]) {
    let block = BlockQ8K::new(block);
    signed_bytes(f32::from_le_bytes(*block.d), block.qs, y);
}

#[inline(always)]
fn signed_bytes<const N: usize>(d: f32, qs: &[u8; N], y: &mut [f32; N]) {
    for (y, &q) in y.iter_mut().zip(qs) {
        *y = d * f32::from(q as i8);
    }
}

fn q2_k(block: &[u8; 84], y: &mut [f32; QK_K]) {
    let block = BlockQ2K::new(block);
    let (d, dmin) = (f16_field(block.d), f16_field(block.dmin));
    for (k, y) in y.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let scale = block.scales[k];
        let (dl, ml) = (d * f32::from(scale & 15), dmin * f32::from(scale >> 4));
        let shift = k / 2 % 4 * 2;
        for (y, &q) in y.iter_mut().zip(&block.qs[k / 8 * 32 + k % 2 * 16..]) {
            *y = dl * i32::from(q >> shift & 3) as f32 - ml;
        }
    }
}

fn q3_k(block: &[u8; 110], y: &mut [f32; QK_K]) {
    let block = BlockQ3K::new(block);
    let d = f16_field(block.d);
    for (k, y) in y.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let dl = d * f32::from(q3k_scale(block.scales, k));
        let shift = k / 2 % 4 * 2;
        let first = k % 2 * 16;
        let qs = &block.qs[k / 8 * 32 + first..];
        for ((y, &q), &mask) in y.iter_mut().zip(qs).zip(&block.hmask[first..]) {
            // A set bit means that nothing is taken off.
            let high = i32::from(mask >> (k / 2) & 1) * 4 - 4;
            *y = dl * (i32::from(q >> shift & 3) + high) as f32;
        }
    }
}

fn q4_k(block: &[u8; 144], y: &mut [f32; QK_K]) {
    let block = BlockQ4K::new(block);
    let (d, dmin) = (f16_field(block.d), f16_field(block.dmin));
    let groups = y.as_chunks_mut::<64>().0.iter_mut().zip(block.qs.as_chunks::<32>().0);
    for (pair, (y, qs)) in groups.enumerate() {
        let (scale, min) = k4_scale_min(block.scales, 2 * pair);
        let (d0, m0) = (d * f32::from(scale), dmin * f32::from(min));
        let (scale, min) = k4_scale_min(block.scales, 2 * pair + 1);
        let (d1, m1) = (d * f32::from(scale), dmin * f32::from(min));
        for (l, &q) in qs.iter().enumerate() {
            y[l] = d0 * i32::from(q & 15) as f32 - m0;
            y[l + 32] = d1 * i32::from(q >> 4) as f32 - m1;
        }
    }
}

fn q5_k(block: &[u8; 176], y: &mut [f32; QK_K]) {
    let block = BlockQ5K::new(block);
    let (d, dmin) = (f16_field(block.d), f16_field(block.dmin));
    let groups = y.as_chunks_mut::<64>().0.iter_mut().zip(block.qs.as_chunks::<32>().0);
    for (pair, (y, qs)) in groups.enumerate() {
        let (scale, min) = k4_scale_min(block.scales, 2 * pair);
        let (d0, m0) = (d * f32::from(scale), dmin * f32::from(min));
        let (scale, min) = k4_scale_min(block.scales, 2 * pair + 1);
        let (d1, m1) = (d * f32::from(scale), dmin * f32::from(min));
        for (l, (&q, &high)) in qs.iter().zip(block.qh).enumerate() {
            let high = high >> (2 * pair);
            y[l] = d0 * i32::from(q & 15 | (high & 1) << 4) as f32 - m0;
            y[l + 32] = d1 * i32::from(q >> 4 | (high & 2) << 3) as f32 - m1;
        }
    }
}

fn q6_k(block: &[u8; 210], y: &mut [f32; QK_K]) {
    let block = BlockQ6K::new(block);
    let d = f16_field(block.d);
    for (k, y) in y.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let dl = d * f32::from(block.scales[k] as i8);
        // 32 elements in a row share both shifts; `k` counts halves of them.
        let (half, row, first) = (k / 8, k / 2 % 4, k % 2 * 16);
        let ql = &block.ql[64 * half + 32 * (row % 2) + first..];
        let qh = &block.qh[32 * half + first..];
        let (low_shift, high_shift) = (row / 2 * 4, row * 2);
        for ((y, &low), &high) in y.iter_mut().zip(ql).zip(qh) {
            *y = dl * (i32::from(low >> low_shift & 15 | (high >> high_shift & 3) << 4) - 32) as f32;
        }
    }
}

/// Eight elements of an iq2 code-book, negated where a bit of `minus` is set.
#[inline(always)]
fn iq2_group(y: &mut [f32; 8], scale: f32, code: u16, minus: u8) {
    for (i, y) in y.iter_mut().enumerate() {
        let value = scale * IQ2_VALUES[usize::from(code >> (2 * i) & 3)];
        *y = if minus >> i & 1 == 0 { value } else { -value };
    }
}

/// Eight elements of an iq3 code-book: two entries of four.
#[inline(always)]
fn iq3_group(y: &mut [f32; 8], scale: f32, codes: [u16; 2], minus: u8, value: impl Fn(u16) -> f32) {
    for (i, y) in y.iter_mut().enumerate() {
        let value = scale * value(codes[i / 4] >> (i % 4 * 4) & 15);
        *y = if minus >> i & 1 == 0 { value } else { -value };
    }
}

fn u16_at(bytes: &[u8], i: usize) -> u16 {
    u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]])
}

fn u32_at(bytes: &[u8], i: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|k| bytes[4 * i + k]))
}

/// Nibble `i` of packed four-bit scales.
fn nibble(bytes: &[u8], i: usize) -> u8 {
    bytes[i / 2] >> (i % 2 * 4) & 15
}

fn iq2_xxs(block: &[u8; 66], y: &mut [f32; QK_K]) {
    let block = BlockIq2Xxs::new(block);
    let d = f16_field(block.d);
    for (g, y) in y.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let word = u32_at(block.qs, g / 4 * 2 + 1);
        let scale = d * (0.5 + (word >> 28) as f32) * 0.25;
        let code = IQ2_XXS[usize::from(block.qs[g / 4 * 8 + g % 4])];
        iq2_group(y, scale, code, signs(word >> (7 * (g % 4))));
    }
}

fn iq2_xs(block: &[u8; 74], y: &mut [f32; QK_K]) {
    let block = BlockIq2Xs::new(block);
    let d = f16_field(block.d);
    for (g, y) in y.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let scale = d * (0.5 + f32::from(nibble(block.scales, g / 2))) * 0.25;
        let q = u16_at(block.qs, g);
        iq2_group(y, scale, IQ2_XS[usize::from(q & 511)], signs((q >> 9).into()));
    }
}

fn iq2_s(block: &[u8; 82], y: &mut [f32; QK_K]) {
    let block = BlockIq2S::new(block);
    let d = f16_field(block.d);
    for (g, y) in y.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let scale = d * (0.5 + f32::from(nibble(block.scales, g / 2))) * 0.25;
        let high = block.qh[g / 4] >> (g % 4 * 2) & 3;
        let code = IQ2_S[usize::from(block.qs[g]) | usize::from(high) << 8];
        iq2_group(y, scale, code, block.signs[g]);
    }
}

fn iq3_xxs(block: &[u8; 98], y: &mut [f32; QK_K]) {
    let block = BlockIq3Xxs::new(block);
    let d = f16_field(block.d);
    for (g, y) in y.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let word = u32_at(block.scales_signs, g / 4);
        let scale = d * (0.5 + (word >> 28) as f32) * 0.5;
        let codes = [0, 1].map(|i| IQ3_XXS[usize::from(block.qs[2 * g + i])]);
        iq3_group(y, scale, codes, signs(word >> (7 * (g % 4))), |i| IQ3_XXS_VALUES[usize::from(i & 7)]);
    }
}

fn iq3_s(block: &[u8; 110], y: &mut [f32; QK_K]) {
    let block = BlockIq3S::new(block);
    let d = f16_field(block.d);
    for (g, y) in y.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let scale = d * f32::from(1 + 2 * nibble(block.scales, g / 4));
        let codes = [2 * g, 2 * g + 1].map(|i| {
            let high = block.qh[i / 8] >> (i % 8) & 1;
            IQ3_S[usize::from(block.qs[i]) | usize::from(high) << 8]
        });
        iq3_group(y, scale, codes, block.signs[g], |i| f32::from(2 * i + 1));
    }
}

/// Eight elements of the iq1 code-book, each -1, 0 or 1, moved by `shift`.
#[inline(always)]
fn iq1_group(y: &mut [f32; 8], scale: f32, low: u8, high: u16, shift: f32) {
    let code = IQ1[usize::from(low) | usize::from(high & 7) << 8];
    for (i, y) in y.iter_mut().enumerate() {
        *y = scale * (f32::from(code >> (2 * i) & 3) - 1.0 + shift);
    }
}

fn iq1_s(block: &[u8; 50], y: &mut [f32; QK_K]) {
    let block = BlockIq1S::new(block);
    let d = f16_field(block.d);
    for (g, y) in y.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let word = u16_at(block.qh, g / 4);
        let scale = d * f32::from(2 * (word >> 12 & 7) + 1);
        let shift = if word & 0x8000 == 0 { 0.125 } else { -0.125 };
        iq1_group(y, scale, block.qs[g], word >> (3 * (g % 4)), shift);
    }
}

fn iq1_m(block: &[u8; 56], y: &mut [f32; QK_K]) {
    let block = BlockIq1M::new(block);
    let words = [0, 1, 2, 3].map(|i| u16_at(block.scales, i));
    let bits = words[0] >> 12 | words[1] >> 12 << 4 | words[2] >> 12 << 8 | words[3] >> 12 << 12;
    let d = f16::from_bits(bits).to_f32();
    for (g, y) in y.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let scale = d * f32::from(2 * (words[g / 8] >> (g / 2 % 4 * 3) & 7) + 1);
        let high = nibble(block.qh, g);
        let shift = if high & 8 == 0 { 0.125 } else { -0.125 };
        iq1_group(y, scale, block.qs[g], high.into(), shift);
    }
}

fn iq4_nl(block: &[u8; 18], y: &mut [f32; QK]) {
    let block = BlockIq4Nl::new(block);
    looked_up(f16_field(block.d), block.qs, &IQ4_VALUES, y);
}

fn iq4_xs(block: &[u8; 136], y: &mut [f32; QK_K]) {
    let block = BlockIq4Xs::new(block);
    let d = f16_field(block.d);
    let high = u16::from_le_bytes(*block.scales_h);
    let groups = y.as_chunks_mut::<32>().0.iter_mut().zip(block.qs.as_chunks::<16>().0);
    for (g, (y, qs)) in groups.enumerate() {
        let scale = i32::from(nibble(block.scales_l, g)) + i32::from(high >> (2 * g) & 3) * 16 - 32;
        looked_up(d * scale as f32, qs, &IQ4_VALUES, y);
    }
}

fn mxfp4(block: &[u8; 17], y: &mut [f32; QK]) {
    let block = BlockMxfp4::new(block);
    // Half of 2^(e - 127), because the table is doubled; the two smallest are subnormal.
    let e = u32::from(block.e[0]);
    let d = f32::from_bits(if e < 2 { 0x0020_0000 << e } else { (e - 1) << 23 });
    looked_up(d, block.qs, &MXFP4_VALUES, y);
}

#[inline(always)]
fn looked_up(d: f32, qs: &[u8; 16], values: &[f32; 16], y: &mut [f32; 32]) {
    for (j, &q) in qs.iter().enumerate() {
        y[j] = d * values[usize::from(q & 15)];
        y[j + 16] = d * values[usize::from(q >> 4)];
    }
}

/// Digit `n` of five base-3 digits, stored as a fraction of 256, so that a product's high byte is the digit.
#[inline(always)]
fn trit(byte: u8, n: usize) -> f32 {
    const POWERS: [u8; 5] = [1, 3, 9, 27, 81];
    let fraction = byte.wrapping_mul(POWERS[n]);
    (i32::from(fraction) * 3 / 256 - 1) as f32
}

fn tq1_0(block: &[u8; 54], y: &mut [f32; QK_K]) {
    let block = BlockTq1_0::new(block);
    let d = f16_field(block.d);
    let (long, short) = block.qs.split_at(32);
    let parts = [(0, long, 5), (160, short, 5), (240, &block.qh[..], 4)];
    for (start, bytes, digits) in parts {
        for n in 0..digits {
            for (y, &byte) in y[start + n * bytes.len()..].iter_mut().zip(bytes) {
                *y = d * trit(byte, n);
            }
        }
    }
}

fn tq2_0(block: &[u8; 66], y: &mut [f32; QK_K]) {
    let block = BlockTq2_0::new(block);
    let d = f16_field(block.d);
    for (k, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let shift = k % 4 * 2;
        for (y, &q) in y.iter_mut().zip(&block.qs[k / 4 * 32..]) {
            *y = d * (i32::from(q >> shift & 3) - 1) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;

    #[test]
    fn plain_numbers() {
        fn check(ty: GgmlType, bytes: &[u8], expected: &[f32]) {
            let mut y = vec![f32::NAN; expected.len()];
            dequantize(ty, bytes, &mut y).unwrap();
            assert_eq!(y, expected, "{ty}");
        }
        check(GgmlType::F32, &[1.5f32.to_le_bytes(), (-0.25f32).to_le_bytes()].concat(), &[1.5, -0.25]);
        check(GgmlType::Bf16, &bf16::from_f32(-3.0).to_le_bytes(), &[-3.0]);
        check(GgmlType::F64, &2.5f64.to_le_bytes(), &[2.5]);
        check(GgmlType::I8, &[0x80, 0x7f], &[-128.0, 127.0]);
        check(GgmlType::I16, &(-300i16).to_le_bytes(), &[-300.0]);
        check(GgmlType::I32, &70_000i32.to_le_bytes(), &[70_000.0]);
        check(GgmlType::I64, &i64::MIN.to_le_bytes(), &[-9.223_372e18]);
        let halves: Vec<u8> = (0..1100u16).flat_map(|i| f16::from_f32(f32::from(i)).to_le_bytes()).collect();
        check(GgmlType::F16, &halves, &(0..1100u16).map(f32::from).collect::<Vec<_>>());
    }

    #[test]
    fn activation_blocks() {
        let mut block = [0u8; 36];
        block[..2].copy_from_slice(&f16::from_f32(0.5).to_le_bytes());
        block[4] = 0xfe;
        let mut y = [1.0; 32];
        dequantize(GgmlType::Q8_1, &block, &mut y).unwrap();
        assert_eq!(y[..2], [-1.0, 0.0]);

        let mut block = [0u8; 292];
        block[..4].copy_from_slice(&0.5f32.to_le_bytes());
        block[4 + 255] = 3;
        let mut y = [1.0; 256];
        dequantize(GgmlType::Q8K, &block, &mut y).unwrap();
        assert_eq!(y[254..], [0.0, 1.5]);
    }

    #[test]
    fn sizes_are_checked_for_every_type() {
        for &ty in GgmlType::ALL {
            let mut y = vec![0.0; 2 * ty.block_len()];
            let bytes = vec![0; 2 * ty.block_bytes()];
            assert!(dequantize(ty, &bytes, &mut y).is_ok());
            assert!(dequantize(ty, &[], &mut []).is_ok());
            assert!(matches!(dequantize(ty, &bytes[1..], &mut y), Err(GgufError::BlockBytes { .. })));
            if ty.is_quantized() {
                assert!(matches!(dequantize(ty, &bytes, &mut y[1..]), Err(GgufError::NotWholeBlocks { .. })));
            }
        }
    }
}
