//! f32 → the k-quants: 256 values share f16 factors, groups of 16 or 32 have small integer scales (and minima) of their own.
//!
//! The scale of a group is searched: some candidates give codes, a weighted least squares fit to the codes gives the scale, the
//! best fit wins. The search is ggml's reference one (no importance weights), operation for operation, because its choices
//! hang on the last bits of sums. The codes are then formed anew with the scale as it is stored.

use half::f16;

use super::{TINY, largest_magnitude, nearest};
use crate::blocks::{QK_K, f16_field, k4_scale_min, q3k_scale};

/// How the scale and minimum of a group are searched.
struct AffineSearch {
    /// The largest code.
    top: f32,
    /// The candidates spread the group's range over `top + first`, `top + first + 0.1` … steps.
    first: f32,
    candidates: u32,
    /// Errors count by magnitude instead of squared.
    by_magnitude: bool,
}

const Q2_SEARCH: AffineSearch = AffineSearch { top: 3.0, first: -0.5, candidates: 16, by_magnitude: true };
const Q4_SEARCH: AffineSearch = AffineSearch { top: 15.0, first: -1.0, candidates: 21, by_magnitude: false };
const Q5_SEARCH: AffineSearch = AffineSearch { top: 31.0, first: -0.5, candidates: 16, by_magnitude: false };

pub(super) fn q2_k(x: &[f32; QK_K], out: &mut [u8; 84]) {
    let mut codes = [0; QK_K];
    let (mut scales, mut minima) = ([0.0; 16], [0.0; 16]);
    let (groups, code_groups) = (x.as_chunks::<16>().0, codes.as_chunks_mut::<16>().0);
    for (g, (x, codes)) in groups.iter().zip(code_groups).enumerate() {
        (scales[g], minima[g]) = Q2_SEARCH.run(x, &x.map(f32::abs), codes);
    }
    let (d, scale_codes) = shared_factor(&scales, 15.0);
    let (dmin, minimum_codes) = shared_factor(&minima, 15.0);
    let packed: [u8; 16] = std::array::from_fn(|g| scale_codes[g] | minimum_codes[g] << 4);
    let (d, dmin) = (d.to_le_bytes(), dmin.to_le_bytes());
    for (g, (x, codes)) in groups.iter().zip(codes.as_chunks_mut::<16>().0).enumerate() {
        let scale = f16_field(&d) * f32::from(packed[g] & 15);
        affine_codes(x, scale, f16_field(&dmin) * f32::from(packed[g] >> 4), 3, codes);
    }
    out[..16].copy_from_slice(&packed);
    out[16..80].copy_from_slice(&two_bits(&codes));
    out[80..82].copy_from_slice(&d);
    out[82..].copy_from_slice(&dmin);
}

pub(super) fn q3_k(x: &[f32; QK_K], out: &mut [u8; 110]) {
    let mut codes = [0; QK_K];
    let mut scales = [0.0; 16];
    let groups = x.as_chunks::<16>().0;
    for (scale, (x, codes)) in scales.iter_mut().zip(groups.iter().zip(codes.as_chunks_mut::<16>().0)) {
        *scale = signed_descent(x, 4, codes);
    }
    let largest = largest_magnitude(&scales);
    let mut packed = [0u8; 12];
    let mut d = [0; 2];
    if largest != 0.0 {
        let inverse = -32.0 / largest;
        for (k, scale) in scales.iter().enumerate() {
            let code = (nearest(inverse * scale).clamp(-32, 31) + 32) as u8;
            packed[k % 8] |= (code & 15) << (k / 8 * 4);
            packed[8 + k % 4] |= code >> 4 << (2 * (k / 4));
        }
        d = f16::from_f32(1.0 / inverse).to_le_bytes();
    }
    for (k, (x, codes)) in groups.iter().zip(codes.as_chunks_mut::<16>().0).enumerate() {
        signed_codes(x, f16_field(&d) * f32::from(q3k_scale(&packed, k)), 4, codes);
    }
    let (hmask, rest) = out.split_at_mut(32);
    hmask.fill(0);
    for (i, code) in codes.iter_mut().enumerate() {
        hmask[i % 32] |= *code >> 2 << (i / 32);
        *code &= 3;
    }
    rest[..64].copy_from_slice(&two_bits(&codes));
    rest[64..76].copy_from_slice(&packed);
    rest[76..].copy_from_slice(&d);
}

pub(super) fn q4_k(x: &[f32; QK_K], out: &mut [u8; 144]) {
    let (header, codes) = affine_groups(&Q4_SEARCH, x);
    out[..16].copy_from_slice(&header);
    out[16..].copy_from_slice(&paired_nibbles(&codes));
}

pub(super) fn q5_k(x: &[f32; QK_K], out: &mut [u8; 176]) {
    let (header, codes) = affine_groups(&Q5_SEARCH, x);
    out[..16].copy_from_slice(&header);
    let high = &mut out[16..48];
    high.fill(0);
    for (i, code) in codes.iter().enumerate() {
        high[i % 32] |= code >> 4 << (i / 32);
    }
    out[48..].copy_from_slice(&paired_nibbles(&codes));
}

pub(super) fn q6_k(x: &[f32; QK_K], out: &mut [u8; 210]) {
    let mut codes = [0; QK_K];
    let mut scales = [0.0; 16];
    let groups = x.as_chunks::<16>().0;
    for (scale, (x, codes)) in scales.iter_mut().zip(groups.iter().zip(codes.as_chunks_mut::<16>().0)) {
        *scale = signed_search(x, 32, codes);
    }
    let largest = largest_magnitude(&scales);
    out.fill(0);
    if largest.abs() < TINY {
        return;
    }
    let inverse = -128.0 / largest;
    let d = f16::from_f32(1.0 / inverse).to_le_bytes();
    let scales = scales.map(|scale| nearest(inverse * scale).clamp(-128, 127) as i8);
    for ((x, codes), scale) in groups.iter().zip(codes.as_chunks_mut::<16>().0).zip(scales) {
        signed_codes(x, f16_field(&d) * f32::from(scale), 32, codes);
    }
    for (half, codes) in codes.as_chunks::<128>().0.iter().enumerate() {
        for l in 0..32 {
            let [a, b, c, d] = [codes[l], codes[l + 32], codes[l + 64], codes[l + 96]];
            out[64 * half + l] = a & 15 | c << 4;
            out[64 * half + 32 + l] = b & 15 | d << 4;
            out[128 + 32 * half + l] = a >> 4 | b >> 4 << 2 | c >> 4 << 4 | d >> 4 << 6;
        }
    }
    out[192..208].copy_from_slice(&scales.map(|scale| scale as u8));
    out[208..].copy_from_slice(&d);
}

/// What q4_K and q5_K have in common: both factors and the packed scales and minima, then the codes.
fn affine_groups(search: &AffineSearch, x: &[f32; QK_K]) -> ([u8; 16], [u8; QK_K]) {
    let mut codes = [0; QK_K];
    let (mut scales, mut minima) = ([0.0; 8], [0.0; 8]);
    let groups = x.as_chunks::<32>().0;
    for (g, (x, codes)) in groups.iter().zip(codes.as_chunks_mut::<32>().0).enumerate() {
        let squares = x.iter().fold(0.0, |sum, x| sum + x * x);
        let level = (squares / 32.0f32).sqrt();
        (scales[g], minima[g]) = search.run(x, &x.map(|x| level + x.abs()), codes);
    }
    let (d, scale_codes) = shared_factor(&scales, 63.0);
    let (dmin, minimum_codes) = shared_factor(&minima, 63.0);
    let mut packed = [0; 12];
    for g in 0..4 {
        packed[g] = scale_codes[g] | scale_codes[g + 4] >> 4 << 6;
        packed[g + 4] = minimum_codes[g] | minimum_codes[g + 4] >> 4 << 6;
        packed[g + 8] = scale_codes[g + 4] & 15 | minimum_codes[g + 4] << 4;
    }
    let (d, dmin) = (d.to_le_bytes(), dmin.to_le_bytes());
    for (g, (x, codes)) in groups.iter().zip(codes.as_chunks_mut::<32>().0).enumerate() {
        let (scale, minimum) = k4_scale_min(&packed, g);
        let (scale, minimum) = (f16_field(&d) * f32::from(scale), f16_field(&dmin) * f32::from(minimum));
        affine_codes(x, scale, minimum, search.top as i32, codes);
    }
    let mut header = [0; 16];
    header[..2].copy_from_slice(&d);
    header[2..4].copy_from_slice(&dmin);
    header[4..].copy_from_slice(&packed);
    (header, codes)
}

/// Codes from 0 to `top` of scales that are not negative, and the factor that gives the scales back.
fn shared_factor<const N: usize>(scales: &[f32; N], top: f32) -> (f16, [u8; N]) {
    let largest = scales.iter().fold(0.0f32, |max, &scale| if scale > max { scale } else { max });
    let inverse = if largest > 0.0 { top / largest } else { 0.0 };
    let codes = scales.map(|scale| nearest(inverse * scale).clamp(0, top as i32) as u8);
    (f16::from_f32(largest / top), codes)
}

/// Codes for `scale * code - minimum`; those of the search stay where the scale is 0.
fn affine_codes<const N: usize>(x: &[f32; N], scale: f32, minimum: f32, top: i32, codes: &mut [u8; N]) {
    if scale != 0.0 {
        *codes = x.map(|x| nearest((x + minimum) / scale).clamp(0, top) as u8);
    }
}

/// Codes for `scale * (code - levels)`; those of the search stay where the scale is 0.
fn signed_codes(x: &[f32; 16], scale: f32, levels: i32, codes: &mut [u8; 16]) {
    if scale != 0.0 {
        *codes = x.map(|x| (nearest(x / scale).clamp(-levels, levels - 1) + levels) as u8);
    }
}

impl AffineSearch {
    /// Scale, and minimum with its sign turned, such that `scale * code - minimum` is near the values.
    fn run<const N: usize>(&self, x: &[f32; N], weights: &[f32; N], codes: &mut [u8; N]) -> (f32, f32) {
        let (mut low, mut high) = (x[0], x[0]);
        let (mut sum_w, mut sum_x) = (0.0, 0.0);
        for (&x, w) in x.iter().zip(weights) {
            low = if x < low { x } else { low };
            high = if x > high { x } else { high };
            sum_w += w;
            sum_x += w * x;
        }
        // The minimum is stored without a sign.
        low = if low > 0.0 { 0.0 } else { low };
        if high == low {
            *codes = [0; N];
            return (0.0, -low);
        }
        let assign = |inverse: f32, low: f32| -> [u8; N] {
            x.map(|x| nearest(inverse * (x - low)).clamp(0, self.top as i32) as u8)
        };
        let inverse = self.top / (high - low);
        let mut scale = 1.0 / inverse;
        *codes = assign(inverse, low);
        let mut least = self.error(x, weights, codes, scale, low);
        for step in 0..self.candidates {
            // The range starts at the best minimum so far: a fit moves it for the candidates after it.
            let tried = assign((self.first + 0.1 * step as f32 + self.top) / (high - low), low);
            let (mut sum_l, mut sum_l2, mut sum_xl) = (0.0, 0.0, 0.0);
            for ((x, w), &l) in x.iter().zip(weights).zip(&tried) {
                let l = f32::from(l);
                sum_l += w * l;
                sum_l2 += w * l * l;
                sum_xl += w * l * x;
            }
            let determinant = sum_w * sum_l2 - sum_l * sum_l;
            // NaN is no candidate either.
            if determinant.is_nan() || determinant <= 0.0 {
                continue;
            }
            let mut fitted = (sum_w * sum_xl - sum_x * sum_l) / determinant;
            let mut offset = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
            if offset > 0.0 {
                (fitted, offset) = (sum_xl / sum_l2, 0.0);
            }
            let error = self.error(x, weights, &tried, fitted, offset);
            if error < least {
                (*codes, least, scale, low) = (tried, error, fitted, offset);
            }
        }
        (scale, -low)
    }

    fn error<const N: usize>(&self, x: &[f32; N], w: &[f32; N], codes: &[u8; N], scale: f32, offset: f32) -> f32 {
        x.iter().zip(w).zip(codes).fold(0.0, |sum, ((x, w), &l)| {
            let off = scale * f32::from(l) + offset - x;
            sum + w * if self.by_magnitude { off.abs() } else { off * off }
        })
    }
}

/// Scale such that `scale * (code - levels)` is near the values: the extreme value is put on `levels` and on 18 places around
/// it, and the best fit wins. Squares of the values are the weights.
fn signed_search(x: &[f32; 16], levels: i32, codes: &mut [u8; 16]) -> f32 {
    let extreme = largest_magnitude(x);
    if extreme.abs() < TINY {
        *codes = [0; 16];
        return 0.0;
    }
    let fit = |inverse: f32| {
        let code = x.map(|x| nearest(inverse * x).clamp(-levels, levels - 1));
        let (mut sum_xl, mut sum_l2) = (0.0, 0.0);
        for (&x, &l) in x.iter().zip(&code) {
            let (w, l) = (x * x, l as f32);
            sum_xl += w * x * l;
            sum_l2 += w * l * l;
        }
        (code, sum_xl, sum_l2)
    };
    let (mut best, sum_xl, sum_l2): (_, f32, f32) = fit(-(levels as f32) / extreme);
    let mut scale = if sum_l2 != 0.0 { sum_xl / sum_l2 } else { 0.0 };
    let mut score = scale * sum_xl;
    for step in (-9..=9).filter(|step| *step != 0) {
        let (code, sum_xl, sum_l2) = fit(-(levels as f32 + 0.1 * step as f32) / extreme);
        if sum_l2 > 0.0 && sum_xl * sum_xl > score * sum_l2 {
            (best, scale) = (code, sum_xl / sum_l2);
            score = scale * sum_xl;
        }
    }
    *codes = best.map(|l| (l + levels) as u8);
    scale
}

/// As [`signed_search`], but from the one start single codes are moved, up to five rounds, as long as that makes the fit better.
fn signed_descent(x: &[f32; 16], levels: i32, codes: &mut [u8; 16]) -> f32 {
    let extreme = largest_magnitude(x);
    if extreme.abs() < TINY {
        *codes = [0; 16];
        return 0.0;
    }
    let inverse = -(levels as f32) / extreme;
    let mut code = x.map(|x| nearest(inverse * x).clamp(-levels, levels - 1));
    let (mut sum_xl, mut sum_l2) = (0.0, 0.0);
    for (&x, &l) in x.iter().zip(&code) {
        let (w, l) = (x * x, l as f32);
        sum_xl += w * x * l;
        sum_l2 += w * l * l;
    }
    for _ in 0..5 {
        let mut moved = false;
        for (&x, code) in x.iter().zip(&mut code) {
            let (w, l) = (x * x, *code as f32);
            // The fit without this value says where its code would be best.
            let (others_xl, others_l2) = (sum_xl - w * x * l, sum_l2 - w * l * l);
            if others_xl.is_nan() || others_xl <= 0.0 {
                continue;
            }
            let better = nearest(x * others_l2 / others_xl).clamp(-levels, levels - 1);
            if better == *code {
                continue;
            }
            let l = better as f32;
            let (new_xl, new_l2) = (others_xl + w * x * l, others_l2 + w * l * l);
            if new_l2 > 0.0 && new_xl * new_xl * sum_l2 > sum_xl * sum_xl * new_l2 {
                (*code, sum_xl, sum_l2, moved) = (better, new_xl, new_l2, true);
            }
        }
        if !moved {
            break;
        }
    }
    *codes = code.map(|l| (l + levels) as u8);
    if sum_l2 > 0.0 { sum_xl / sum_l2 } else { 0.0 }
}

/// Codes below 4: of each 128, four rows of 32 share the bytes of the first.
fn two_bits(codes: &[u8; QK_K]) -> [u8; 64] {
    std::array::from_fn(|i| {
        let row = |r: usize| codes[i / 32 * 128 + i % 32 + 32 * r] << (2 * r);
        row(0) | row(1) | row(2) | row(3)
    })
}

/// The low four bits: of each 64, the first 32 in the low nibbles, the others in the high ones.
fn paired_nibbles(codes: &[u8; QK_K]) -> [u8; 128] {
    std::array::from_fn(|i| {
        let at = i / 32 * 64 + i % 32;
        codes[at] & 15 | codes[at + 32] << 4
    })
}
