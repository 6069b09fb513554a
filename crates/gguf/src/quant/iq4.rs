//! f32 → iq4_nl and iq4_xs: four bits that name one of sixteen uneven values.
//!
//! As for the k-quants, scales are weighted least squares fits and follow ggml's reference conversions: iq4_nl fits once,
//! iq4_xs tries fifteen candidates for each group of 32.

use half::f16;

use super::{TINY, largest_magnitude, nearest, nibbles};
use crate::blocks::{QK, QK_K};
use crate::iq_tables::IQ4_VALUES;

pub(super) fn iq4_nl(x: &[f32; QK], out: &mut [u8; 18]) {
    let extreme = largest_magnitude(x);
    let mut d = 0.0;
    let mut codes = [0; QK];
    if extreme.abs() >= TINY {
        let inverse = 1.0 / (extreme / IQ4_VALUES[0]);
        codes = x.map(|x| code(inverse * x));
        let (sum_qx, sum_q2) = fit(x, inverse);
        d = sum_qx / sum_q2;
    }
    out[..2].copy_from_slice(&f16::from_f32(d).to_le_bytes());
    out[2..].copy_from_slice(&nibbles(&codes));
}

pub(super) fn iq4_xs(x: &[f32; QK_K], out: &mut [u8; 136]) {
    let groups = x.as_chunks::<QK>().0;
    let scales: [f32; 8] = std::array::from_fn(|g| search(&groups[g]));
    let d = -largest_magnitude(&scales) / 32.0;
    let inverse = if d != 0.0 { 1.0 / d } else { 0.0 };
    let (head, quants) = out.split_at_mut(8);
    let mut high = 0u16;
    head[4..].fill(0);
    for (g, (x, quants)) in groups.iter().zip(quants.as_chunks_mut::<16>().0).enumerate() {
        let scale = nearest(inverse * scales[g]).clamp(-32, 31);
        // With the factor before it is rounded to f16, as ggml does.
        let step = d * scale as f32;
        let inverse = if step != 0.0 { 1.0 / step } else { 0.0 };
        *quants = nibbles(&x.map(|x| code(inverse * x)));
        let stored = (scale + 32) as u8;
        head[4 + g / 2] |= (stored & 15) << (g % 2 * 4);
        high |= u16::from(stored >> 4) << (2 * g);
    }
    head[..2].copy_from_slice(&f16::from_f32(d).to_le_bytes());
    head[2..4].copy_from_slice(&high.to_le_bytes());
}

/// Scale of a group: the extreme value is put on the last of the sixteen values, then on numbers around it on the other side.
fn search(x: &[f32; QK]) -> f32 {
    let extreme = largest_magnitude(x);
    if extreme.abs() < TINY {
        return 0.0;
    }
    let (sum_qx, sum_q2) = fit(x, 1.0 / (-extreme / IQ4_VALUES[0]));
    let mut scale = sum_qx / sum_q2;
    let mut score = scale * sum_qx;
    for step in -7..=7 {
        let (sum_qx, sum_q2) = fit(x, (step as f32 + IQ4_VALUES[0]) / extreme);
        if sum_q2 > 0.0 && sum_qx * sum_qx > score * sum_q2 {
            scale = sum_qx / sum_q2;
            score = scale * sum_qx;
        }
    }
    scale
}

/// Sums of a fit to the codes that `inverse` gives, weighted with the values' squares.
fn fit(x: &[f32; QK], inverse: f32) -> (f32, f32) {
    x.iter().fold((0.0, 0.0), |(sum_qx, sum_q2), &x| {
        let (w, q) = (x * x, IQ4_VALUES[usize::from(code(inverse * x))]);
        (sum_qx + w * q * x, sum_q2 + w * q * q)
    })
}

/// The nearest of the sixteen values; of two as near, the upper.
fn code(x: f32) -> u8 {
    let above = 1 + IQ4_VALUES[1..15].iter().map(|v| u8::from(*v <= x)).sum::<u8>();
    let (low, high) = (IQ4_VALUES[usize::from(above) - 1], IQ4_VALUES[usize::from(above)]);
    if x - low < high - x { above - 1 } else { above }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_nearest_and_ties_go_up() {
        for (k, v) in IQ4_VALUES.iter().enumerate() {
            assert_eq!(usize::from(code(*v)), k);
        }
        assert_eq!((code(-4.5), code(-4.6), code(1e9), code(-1e9)), (8, 7, 15, 0));
        assert_eq!((code(f32::INFINITY), code(f32::NEG_INFINITY)), (15, 0));
    }
}
