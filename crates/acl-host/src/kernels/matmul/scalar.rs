//! The building blocks written to be read.

use super::operand::{DenseView, GROUP, GroupedWeights, QuantBits};
use super::{DenseDot, MR, NR, QuantDot, Tile};
use half::f16;

pub fn quantise(x: &[f32], q: &mut [i16], scales: &mut [f32], sums: &mut [f32], split: bool) {
    for (g, x) in x.chunks_exact(GROUP).enumerate() {
        let max = x.iter().fold(0u32, |m, v| m.max(v.to_bits() & 0x7fff_ffff));
        let max = f32::from_bits(max);
        // Below this the reciprocal overflows; no product with a half-precision scale comes near what a float can hold.
        let factor = if max.is_finite() && max >= 1e-30 { 32767.0 / max } else { 0.0 };
        let q = &mut q[g * GROUP..][..GROUP];
        let mut sum = 0;
        for (i, v) in x.iter().enumerate() {
            let value = if factor > 0.0 { (v * factor).round_ties_even() as i16 } else { 0 };
            sum += i32::from(value);
            q[if split { i % 2 * (GROUP / 2) + i / 2 } else { i }] = value;
        }
        scales[g] = if max.is_finite() { max * (1.0 / 32767.0) } else { f32::NAN };
        sums[g] = sum as f32 * scales[g];
    }
}

pub fn dot_quant(d: &QuantDot<'_>, first: usize, out: &mut [f32]) {
    let cols = out.len() / d.m;
    let k = d.w.groups * GROUP;
    for (m, out) in out.chunks_exact_mut(cols).enumerate() {
        for (j, out) in out.iter_mut().enumerate() {
            *out = 0.0;
            for g in 0..d.w.groups {
                let x = &d.x[m * k + g * GROUP..][..GROUP];
                let at = (first + j) * d.w.groups + g;
                let sum: i32 = (0..GROUP)
                    .map(|i| {
                        let place = if d.w.bits == QuantBits::I4 { i % 2 * (GROUP / 2) + i / 2 } else { i };
                        i32::from(x[place]) * i32::from(quant(&d.w, at, i))
                    })
                    .sum();
                let scale = f16::from_bits(d.w.scales[at]).to_f32_const();
                *out += sum as f32 * (scale * d.scales[m * d.padded + g]);
                if let Some(offsets) = d.w.offsets {
                    let offset = f16::from_bits(offsets[at]).to_f32_const();
                    *out += scale * offset * d.sums[m * d.padded + g];
                }
            }
        }
    }
}

pub fn dot_rows(d: &DenseDot<'_>, first: usize, out: &mut [f32]) {
    dot_any(d, first, out);
}

pub fn dot_cols(d: &DenseDot<'_>, first: usize, out: &mut [f32]) {
    dot_any(d, first, out);
}

pub fn pack_dense(w: &DenseView<'_>, n0: usize, k0: usize, depth: usize, panel: &mut [f32]) {
    for k in 0..depth {
        for j in 0..NR {
            panel[k * NR + j] = w.at((n0 + j).min(w.rows - 1), k0 + k);
        }
    }
}

pub fn pack_quant(w: &GroupedWeights<'_>, n0: usize, g0: usize, panel: &mut [i16], scales: &mut [f32]) {
    for j in 0..NR {
        let row = (n0 + j).min(w.n - 1);
        for g in 0..scales.len() / (2 * NR) {
            let at = row * w.groups + g0 + g;
            for i in 0..GROUP {
                panel[(g * GROUP / 2 + i / 2) * 2 * NR + 2 * j + i % 2] = i16::from(quant(w, at, i));
            }
            let scale = f16::from_bits(w.scales[at]).to_f32_const();
            let offset = w.offsets.map_or(0.0, |o| f16::from_bits(o[at]).to_f32_const());
            scales[g * 2 * NR + j] = scale;
            scales[g * 2 * NR + NR + j] = if w.offsets.is_some() { scale * offset } else { 0.0 };
        }
    }
}

pub fn tile_f32(x: &[f32], w: &[f32], tile: &mut Tile) {
    *tile = [0.0; MR * NR];
    for (x, w) in x.chunks_exact(MR).zip(w.chunks_exact(NR)) {
        for (tile, x) in tile.chunks_exact_mut(NR).zip(x) {
            tile.iter_mut().zip(w).for_each(|(t, w)| *t += x * w);
        }
    }
}

pub fn tile_quant(x: &[i16], x_scales: &[f32], w: &[i16], w_scales: &[f32], offsets: bool, tile: &mut Tile) {
    *tile = [0.0; MR * NR];
    for (g, (x_scales, w_scales)) in x_scales.chunks_exact(2 * MR).zip(w_scales.chunks_exact(2 * NR)).enumerate() {
        let (x, w) = (&x[g * GROUP * MR..][..GROUP * MR], &w[g * GROUP * NR..][..GROUP * NR]);
        for (i, t) in tile.iter_mut().enumerate() {
            let (r, j) = (i / NR, i % NR);
            let sum: i32 = (0..GROUP)
                .map(|k| i32::from(x[(k / 2 * MR + r) * 2 + k % 2]) * i32::from(w[(k / 2 * NR + j) * 2 + k % 2]))
                .sum();
            *t += sum as f32 * (w_scales[j] * x_scales[r]);
            if offsets {
                *t += w_scales[NR + j] * x_scales[MR + r];
            }
        }
    }
}

/// Quant `i` of group number `at`, rows counted through.
fn quant(w: &GroupedWeights<'_>, at: usize, i: usize) -> i8 {
    let group = &w.quants[at * w.group_bytes()..][..w.group_bytes()];
    match w.bits {
        QuantBits::I8 => group[i] as i8,
        QuantBits::I4 if i.is_multiple_of(2) => (group[i / 2] as i8) << 4 >> 4,
        QuantBits::I4 => group[i / 2] as i8 >> 4,
    }
}

fn dot_any(d: &DenseDot<'_>, first: usize, out: &mut [f32]) {
    let cols = out.len() / d.m;
    for (x, out) in d.x.chunks_exact(d.w.cols.max(1)).zip(out.chunks_exact_mut(cols)) {
        for (j, out) in out.iter_mut().enumerate() {
            *out = x.iter().enumerate().map(|(k, x)| x * d.w.at(first + j, k)).sum();
        }
    }
}
