//! The definitions.

use super::MaskRow;
use half::f16;

pub fn sum(x: &[f32]) -> f32 {
    x.iter().map(|v| f64::from(*v)).sum::<f64>() as f32
}

pub fn max(x: &[f32]) -> f32 {
    x.iter().fold(f32::NEG_INFINITY, |m, &v| if v > m || v.is_nan() { v } else { m })
}

pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>() as f32
}

/// The sum of `(x - mean)^2`.
pub fn square_sum(x: &[f32], mean: f32) -> f32 {
    x.iter().map(|v| f64::from(v - mean).powi(2)).sum::<f64>() as f32
}

pub fn scores(x: &[f32], scale: f32, mask: Option<MaskRow<'_>>, slope: f32, out: &mut [f32]) -> f32 {
    let mut max = f32::NEG_INFINITY;
    for (i, (x, out)) in x.iter().zip(out).enumerate() {
        let mask = match mask {
            None => 0.0,
            Some(MaskRow::F32(m)) => slope * m[i],
            Some(MaskRow::F16(m)) => slope * f16::from_bits(m[i]).to_f32_const(),
        };
        *out = x * scale + mask;
        max = if *out > max { *out } else { max };
    }
    max
}

pub fn exp_sum(x: &mut [f32], shift: f32) -> f32 {
    let mut sum = 0.0;
    for v in x {
        *v = f64::from(*v - shift).exp() as f32;
        sum += f64::from(*v);
    }
    sum as f32
}

pub fn scale(x: &mut [f32], s: f32) {
    x.iter_mut().for_each(|v| *v *= s);
}

/// `out[i] = (x[i] - mean) * factor * weight[i] + bias[i]`.
pub fn affine(x: &[f32], mean: f32, factor: f32, weight: Option<&[f32]>, bias: Option<&[f32]>, out: &mut [f32]) {
    for (i, (x, out)) in x.iter().zip(out).enumerate() {
        *out = (x - mean) * factor * weight.map_or(1.0, |w| w[i]) + bias.map_or(0.0, |b| b[i]);
    }
}

pub fn rope_half(x: &[f32], cos: &[f32], sin: &[f32], out: &mut [f32]) {
    let h = x.len() / 2;
    for i in 0..h {
        out[i] = x[i] * cos[i] - x[i + h] * sin[i];
        out[i + h] = x[i + h] * cos[i + h] + x[i] * sin[i + h];
    }
}

pub fn rope_interleaved(x: &[f32], cos: &[f32], sin: &[f32], out: &mut [f32]) {
    for i in (0..x.len()).step_by(2) {
        out[i] = x[i] * cos[i] - x[i + 1] * sin[i];
        out[i + 1] = x[i + 1] * cos[i + 1] + x[i] * sin[i + 1];
    }
}
