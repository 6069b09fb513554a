//! f32 → plain and block types, one value at a time: the definition that faster code is measured against.
//!
//! Here are the simple types: their scale is stored as f16 after the codes were formed with its f32 value, as ggml does, and
//! `q8_0` rounds ties to even. Types whose scale is searched are in `super_block` (the k-quants) and `iq4`. Absent: the types
//! with code-books of whole groups (iq1 … iq3), mxfp4 and tq, and weights of importance.

mod iq4;
mod super_block;

use half::{bf16, f16};

use crate::error::GgufError;
use crate::types::GgmlType;

/// Whether [`quantize`] has a rule for the type.
pub fn can_quantize(ty: GgmlType) -> bool {
    use GgmlType as T;
    let simple = matches!(ty, T::F32 | T::F16 | T::Bf16 | T::Q4_0 | T::Q4_1 | T::Q5_0 | T::Q5_1 | T::Q8_0);
    simple || matches!(ty, T::Q2K | T::Q3K | T::Q4K | T::Q5K | T::Q6K | T::Iq4Nl | T::Iq4Xs)
}

/// Converts values to whole blocks of `ty`.
pub fn quantize(ty: GgmlType, src: &[f32], dst: &mut [u8]) -> Result<(), GgufError> {
    if !can_quantize(ty) {
        return Err(GgufError::NoQuantizer { ty });
    }
    crate::blocks::check_sizes(ty, src.len(), dst.len())?;
    match ty {
        GgmlType::F16 => numbers(src, dst, |x| f16::from_f32(x).to_le_bytes()),
        GgmlType::Bf16 => numbers(src, dst, |x| bf16::from_f32(x).to_le_bytes()),
        GgmlType::Q4_0 => blocks(src, dst, q4_0),
        GgmlType::Q4_1 => blocks(src, dst, q4_1),
        GgmlType::Q5_0 => blocks(src, dst, q5_0),
        GgmlType::Q5_1 => blocks(src, dst, q5_1),
        GgmlType::Q8_0 => blocks(src, dst, q8_0),
        GgmlType::Q2K => blocks(src, dst, super_block::q2_k),
        GgmlType::Q3K => blocks(src, dst, super_block::q3_k),
        GgmlType::Q4K => blocks(src, dst, super_block::q4_k),
        GgmlType::Q5K => blocks(src, dst, super_block::q5_k),
        GgmlType::Q6K => blocks(src, dst, super_block::q6_k),
        GgmlType::Iq4Nl => blocks(src, dst, iq4::iq4_nl),
        GgmlType::Iq4Xs => blocks(src, dst, iq4::iq4_xs),
        // `can_quantize` leaves f32.
        _ => numbers(src, dst, f32::to_le_bytes),
    }
    Ok(())
}

fn numbers<const B: usize>(src: &[f32], dst: &mut [u8], bytes: impl Fn(f32) -> [u8; B]) {
    for (x, out) in src.iter().zip(dst.as_chunks_mut::<B>().0) {
        *out = bytes(*x);
    }
}

fn blocks<const B: usize, const L: usize>(src: &[f32], dst: &mut [u8], block: impl Fn(&[f32; L], &mut [u8; B])) {
    for (x, out) in src.as_chunks().0.iter().zip(dst.as_chunks_mut().0) {
        block(x, out);
    }
}

fn q4_0(x: &[f32; 32], out: &mut [u8; 18]) {
    let d = largest_magnitude(x) / -8.0;
    let inverse = inverse(d);
    let n = x.map(|x| ((x * inverse + 8.5) as u8).min(15));
    out[..2].copy_from_slice(&f16::from_f32(d).to_le_bytes());
    out[2..].copy_from_slice(&nibbles(&n));
}

fn q4_1(x: &[f32; 32], out: &mut [u8; 20]) {
    let (min, max) = range(x);
    let d = (max - min) / 15.0;
    let inverse = inverse(d);
    let n = x.map(|x| (((x - min) * inverse + 0.5) as u8).min(15));
    out[..2].copy_from_slice(&f16::from_f32(d).to_le_bytes());
    out[2..4].copy_from_slice(&f16::from_f32(min).to_le_bytes());
    out[4..].copy_from_slice(&nibbles(&n));
}

fn q5_0(x: &[f32; 32], out: &mut [u8; 22]) {
    let d = largest_magnitude(x) / -16.0;
    let inverse = inverse(d);
    let n = x.map(|x| ((x * inverse + 16.5) as u8).min(31));
    out[..2].copy_from_slice(&f16::from_f32(d).to_le_bytes());
    out[2..6].copy_from_slice(&fifth_bits(&n));
    out[6..].copy_from_slice(&nibbles(&n));
}

fn q5_1(x: &[f32; 32], out: &mut [u8; 24]) {
    let (min, max) = range(x);
    let d = (max - min) / 31.0;
    let inverse = inverse(d);
    let n = x.map(|x| (((x - min) * inverse + 0.5) as u8).min(31));
    out[..2].copy_from_slice(&f16::from_f32(d).to_le_bytes());
    out[2..4].copy_from_slice(&f16::from_f32(min).to_le_bytes());
    out[4..8].copy_from_slice(&fifth_bits(&n));
    out[8..].copy_from_slice(&nibbles(&n));
}

fn q8_0(x: &[f32; 32], out: &mut [u8; 34]) {
    let max = x.iter().fold(0.0f32, |max, x| max.max(x.abs()));
    // Not 1/d: the quotient is rounded once, and ties fall where ggml's do.
    let inverse = if max == 0.0 { 0.0 } else { 127.0 / max };
    out[..2].copy_from_slice(&f16::from_f32(max / 127.0).to_le_bytes());
    for (x, out) in x.iter().zip(&mut out[2..]) {
        *out = (x * inverse).round_ties_even() as i8 as u8;
    }
}

/// A searched group whose values stay below this is zero.
const TINY: f32 = 1e-15;

/// The nearest integer, ties to even. What does not fit 23 bits becomes the last that does; NaN becomes 0.
fn nearest(x: f32) -> i32 {
    // At 1.5 * 2^23 a step of f32 is 1: the sum is rounded as wanted, without the call that `round_ties_even` is on older CPUs.
    const STEP_1: f32 = 12_582_912.0;
    ((x.clamp(-4_194_303.0, 4_194_303.0) + STEP_1) - STEP_1) as i32
}

/// The first element of largest magnitude, sign kept.
fn largest_magnitude(x: &[f32]) -> f32 {
    x.iter().fold(0.0f32, |best, &x| if x.abs() > best.abs() { x } else { best })
}

fn range(x: &[f32; 32]) -> (f32, f32) {
    x.iter().fold((x[0], x[0]), |(min, max), &x| (min.min(x), max.max(x)))
}

fn inverse(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

/// Low four bits: elements 0 … 15 in the low nibbles, 16 … 31 in the high ones.
fn nibbles(n: &[u8; 32]) -> [u8; 16] {
    std::array::from_fn(|j| n[j] & 15 | n[j + 16] << 4)
}

/// Bit four of element j as bit j.
fn fifth_bits(n: &[u8; 32]) -> [u8; 4] {
    let bits = n.iter().enumerate().fold(0u32, |bits, (j, n)| bits | u32::from(n >> 4) << j);
    bits.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dequant::dequantize;

    #[test]
    fn q8_0_rounds_ties_to_even() {
        let mut x = [0.0; 32];
        x[..5].copy_from_slice(&[127.0, 0.5, 1.5, -0.5, -2.5]);
        let mut out = [0; 34];
        quantize(GgmlType::Q8_0, &x, &mut out).unwrap();
        assert_eq!(out[2..7].iter().map(|&q| q as i8).collect::<Vec<_>>(), [127, 0, 2, 0, -2]);
        assert_eq!(out[..2], f16::ONE.to_le_bytes());
    }

    #[test]
    fn error_is_within_a_step() {
        let x: Vec<f32> = (0..96).map(|i| ((i * 37 % 96) as f32 - 40.0) * 0.37).collect();
        let largest = x.iter().fold(0.0f32, |m, x| m.max(x.abs()));
        for (ty, steps) in [
            (GgmlType::F32, f32::INFINITY),
            (GgmlType::F16, 2048.0),
            (GgmlType::Bf16, 256.0),
            (GgmlType::Q4_0, 8.0),
            (GgmlType::Q4_1, 7.0),
            (GgmlType::Q5_0, 16.0),
            (GgmlType::Q5_1, 15.0),
            (GgmlType::Q8_0, 127.0),
        ] {
            let mut bytes = vec![0; ty.row_bytes(96).unwrap() as usize];
            quantize(ty, &x, &mut bytes).unwrap();
            let mut back = vec![0.0; 96];
            dequantize(ty, &bytes, &mut back).unwrap();
            for (a, b) in x.iter().zip(&back) {
                assert!((a - b).abs() <= largest / steps * 1.01, "{ty}: {a} became {b}");
            }
        }
    }

    #[test]
    fn nearest_rounds_ties_to_even() {
        for (x, n) in [(0.5, 0), (1.5, 2), (-0.5, 0), (-2.5, -2), (2.4999998, 2), (1e30, 4_194_303), (f32::NAN, 0)] {
            assert_eq!(nearest(x), n, "{x}");
        }
    }

    /// Root mean square of the error over that of the values, for values that are spread evenly.
    #[test]
    fn searched_types_lose_what_their_bits_say() {
        let x: Vec<f32> =
            (0..2048u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / 8_388_608.0 - 1.0).collect();
        for (ty, bound) in [
            (GgmlType::Q2K, 0.3),
            (GgmlType::Q3K, 0.15),
            (GgmlType::Q4K, 0.07),
            (GgmlType::Q5K, 0.035),
            (GgmlType::Q6K, 0.02),
            (GgmlType::Iq4Nl, 0.09),
            (GgmlType::Iq4Xs, 0.09),
        ] {
            let mut bytes = vec![0xaa; ty.row_bytes(2048).unwrap() as usize];
            quantize(ty, &x, &mut bytes).unwrap();
            let mut back = vec![0.0; 2048];
            dequantize(ty, &bytes, &mut back).unwrap();
            let square = |values: &mut dyn Iterator<Item = f32>| values.map(|v| f64::from(v).powi(2)).sum::<f64>();
            let error = square(&mut x.iter().zip(&back).map(|(a, b)| a - b)) / square(&mut x.iter().copied());
            assert!(error.sqrt() < bound, "{ty}: {}", error.sqrt());
        }
    }

    #[test]
    fn a_step_in_every_group_comes_back() {
        // Two values a group lie on every type's grid: only scales are rounded.
        let x: [f32; 256] = std::array::from_fn(|i| ((i % 16) / 8) as f32 * (1 + i / 32) as f32);
        for ty in [GgmlType::Q2K, GgmlType::Q4K, GgmlType::Q5K, GgmlType::Q6K, GgmlType::Iq4Xs, GgmlType::Q3K] {
            let mut bytes = vec![0; ty.block_bytes()];
            quantize(ty, &x, &mut bytes).unwrap();
            let mut back = [0.0; 256];
            dequantize(ty, &bytes, &mut back).unwrap();
            for (i, (a, b)) in x.iter().zip(&back).enumerate() {
                assert!((a - b).abs() <= 0.3, "{ty} {i}: {a} became {b}");
            }
        }
    }

    #[test]
    fn zeros_and_extremes_do_not_panic() {
        for fill in [0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN_POSITIVE] {
            for &ty in GgmlType::ALL.iter().filter(|&&ty| can_quantize(ty)) {
                let mut bytes = vec![0xaa; ty.row_bytes(512).unwrap() as usize];
                // Alone, and once among ordinary values.
                let mut x = [fill; 512];
                x[257..].fill(1.5);
                quantize(ty, &x, &mut bytes).unwrap();
                let mut back = [1.0; 512];
                dequantize(ty, &bytes, &mut back).unwrap();
                if fill == 0.0 {
                    assert_eq!(back[..256], [0.0; 256], "{ty}");
                }
            }
        }
    }

    #[test]
    fn sizes_and_types_are_checked() {
        let error = quantize(GgmlType::Iq2Xxs, &[0.0; 256], &mut [0; 66]);
        assert!(matches!(error, Err(GgufError::NoQuantizer { ty: GgmlType::Iq2Xxs })));
        let error = quantize(GgmlType::Q4_0, &[0.0; 31], &mut [0; 18]);
        assert!(matches!(error, Err(GgufError::NotWholeBlocks { values: 31, .. })));
        let error = quantize(GgmlType::Q4_0, &[0.0; 32], &mut [0; 17]);
        assert!(matches!(error, Err(GgufError::BlockBytes { expected_bytes: 18, found_bytes: 17, .. })));
    }
}
