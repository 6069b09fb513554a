//! The building blocks with AVX2, FMA and F16C.
//!
//! Quantised products run on `vpmaddwd`: 16-bit pairs multiplied and added to 32 bits, exactly, twice the rate of `f32`.

// Loops over the rows and vectors of a block index several arrays at once.
#![allow(clippy::needless_range_loop)]

use super::operand::{DenseType, DenseView, GROUP, GroupedWeights, QuantBits};
use super::{DenseDot, MR, NR, QuantDot, Tile, scalar};
use std::arch::x86_64::*;

/// Pairs of a group.
const PAIRS: usize = GROUP / 2;

/// Number types as constants, so that loops are compiled for each.
const F32: u8 = 0;
const F16: u8 = 1;
const BF16: u8 = 2;

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn horizontal_sum(v: __m256) -> f32 {
    let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
    let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
}

/// Eight numbers of type `TY` as floats.
///
/// # Safety
/// `p` is valid for reading eight of them.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn load8<const TY: u8>(p: *const u8) -> __m256 {
    // SAFETY: the caller's duty.
    unsafe {
        match TY {
            F32 => _mm256_loadu_ps(p.cast()),
            F16 => _mm256_cvtph_ps(_mm_loadu_si128(p.cast())),
            _ => {
                let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
            }
        }
    }
}

const fn bytes_of(ty: u8) -> usize {
    if ty == F32 { 4 } else { 2 }
}

/// Eight half-precision numbers from index `at` on, with zeros beyond the end. It has no branch: a call or a copy in the loops
/// that use it would cost them their registers.
///
/// # Safety
/// `all` holds at least eight numbers and `at` is an index of it.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn halves(all: &[u16], at: usize) -> __m256 {
    /// Sixteen places, then sixteen times nothing.
    static SHIFT: [u8; 32] = [
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,
        128, 128, 128, 128, 128,
    ];
    let start = at.min(all.len().wrapping_sub(8));
    // SAFETY: eight numbers from `start` on are inside the slice; `at - start` is at most seven.
    unsafe {
        let shift = _mm_loadu_si128(SHIFT.as_ptr().add(2 * (at - start)).cast());
        _mm256_cvtph_ps(_mm_shuffle_epi8(_mm_loadu_si128(all.as_ptr().add(start).cast()), shift))
    }
}

/// Eight lanes as they lie, transposed: lane `j` of row `i` becomes lane `i` of row `j`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn transpose8(r: [__m256i; 8]) -> [__m256i; 8] {
    let pair = |a, b| (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let ((a0, a1), (a2, a3)) = (pair(r[0], r[1]), pair(r[2], r[3]));
    let ((a4, a5), (a6, a7)) = (pair(r[4], r[5]), pair(r[6], r[7]));
    let quad = |a, b| (_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    let ((b0, b1), (b2, b3)) = (quad(a0, a2), quad(a1, a3));
    let ((b4, b5), (b6, b7)) = (quad(a4, a6), quad(a5, a7));
    let low = |a, b| _mm256_permute2x128_si256::<0x20>(a, b);
    let high = |a, b| _mm256_permute2x128_si256::<0x31>(a, b);
    [low(b0, b4), low(b1, b5), low(b2, b6), low(b3, b7), high(b0, b4), high(b1, b5), high(b2, b6), high(b3, b7)]
}

/// How far ahead of its use memory is asked for, beyond the rows in work.
const AHEAD: usize = 2048;

/// Asks for weights before they are needed. `R` rows from `base` on, `block` bytes in all, are read side by side, a pattern the
/// processor's own prefetching loses; seen as one run of bytes, the next rows are fetched in step with the progress
/// (`done` bytes of each row, `step` more now).
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn ahead<const R: usize>(base: *const u8, block: usize, done: usize, step: usize) {
    let from = base.wrapping_add(block + AHEAD + R * done);
    for line in 0..(R * step).div_ceil(64) {
        _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(64 * line).cast());
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
pub fn quantise(x: &[f32], q: &mut [i16], scales: &mut [f32], sums: &mut [f32], split: bool) {
    assert!(q.len() == x.len() && scales.len() == x.len() / GROUP && sums.len() == scales.len());
    let (groups, _) = x.as_chunks::<GROUP>();
    let (q, _) = q.as_chunks_mut::<GROUP>();
    for (g, (x, q)) in groups.iter().zip(q).enumerate() {
        // SAFETY: a group is four vectors.
        let v: [__m256; 4] = std::array::from_fn(|i| unsafe { _mm256_loadu_ps(x.as_ptr().add(8 * i)) });
        // Without their signs, floats are ordered like the integers they are made of, NaN last.
        let magnitude = _mm256_set1_epi32(0x7fff_ffff);
        let m = v.map(|v| _mm256_and_si256(_mm256_castps_si256(v), magnitude));
        let m = _mm256_max_epu32(_mm256_max_epu32(m[0], m[1]), _mm256_max_epu32(m[2], m[3]));
        let m = _mm_max_epu32(_mm256_castsi256_si128(m), _mm256_extracti128_si256::<1>(m));
        let m = _mm_max_epu32(m, _mm_shuffle_epi32::<0b01_00_11_10>(m));
        let m = _mm_max_epu32(m, _mm_shuffle_epi32::<0b00_00_00_01>(m));
        let max = f32::from_bits(_mm_cvtsi128_si32(m) as u32);
        let usable = max.is_finite() && max >= 1e-30;
        let factor = _mm256_set1_ps(if usable { 32767.0 / max } else { 0.0 });
        // NaN times nothing is NaN, which converts to the least integer: such groups are zeroed by the mask.
        let keep = _mm256_set1_epi32(-i32::from(usable));
        let i = v.map(|v| _mm256_and_si256(_mm256_cvtps_epi32(_mm256_mul_ps(v, factor)), keep));
        let sum = _mm256_add_epi32(_mm256_add_epi32(i[0], i[1]), _mm256_add_epi32(i[2], i[3]));
        let sum = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256::<1>(sum));
        let sum = _mm_add_epi32(sum, _mm_shuffle_epi32::<0b01_00_11_10>(sum));
        let sum = _mm_add_epi32(sum, _mm_shuffle_epi32::<0b00_00_00_01>(sum));
        scales[g] = if max.is_finite() { max * (1.0 / 32767.0) } else { f32::NAN };
        sums[g] = _mm_cvtsi128_si32(sum) as f32 * scales[g];
        let pack = |a, b| _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(a, b));
        let (low, high) = if split {
            // Even dwords of two vectors, then odd ones; the halves' order is mended like that of `pack`.
            let even = |a, b| {
                let s = _mm256_shuffle_ps::<0b10_00_10_00>(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b));
                _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_castps_si256(s))
            };
            let odd = |a, b| {
                let s = _mm256_shuffle_ps::<0b11_01_11_01>(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b));
                _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_castps_si256(s))
            };
            (pack(even(i[0], i[1]), even(i[2], i[3])), pack(odd(i[0], i[1]), odd(i[2], i[3])))
        } else {
            (pack(i[0], i[1]), pack(i[2], i[3]))
        };
        // SAFETY: a group is two vectors of 16.
        unsafe {
            _mm256_storeu_si256(q.as_mut_ptr().cast(), low);
            _mm256_storeu_si256(q.as_mut_ptr().add(16).cast(), high);
        }
    }
}

/// # Safety
/// As [`super::MatmulFns`] says of lengths.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn dot_quant(d: &QuantDot<'_>, first: usize, out: &mut [f32]) {
    let scales = d.w.n * d.w.groups;
    if scales < 8 {
        return scalar::dot_quant(d, first, out);
    }
    assert!(d.w.scales.len() == scales && d.w.offsets.is_none_or(|o| o.len() == scales));
    if d.m > 4 {
        let k = d.w.groups * GROUP;
        let (out, out_rest) = out.split_at_mut(out.len() / d.m * 4);
        let part = |rows: std::ops::Range<usize>| QuantDot {
            m: rows.len(),
            x: &d.x[rows.start * k..rows.end * k],
            scales: &d.scales[rows.start * d.padded..rows.end * d.padded],
            sums: &d.sums[rows.start * d.padded..rows.end * d.padded],
            ..*d
        };
        // The second pass finds the weights in the cache.
        // SAFETY: handed on, for a part of the rows of `x` and of `out`.
        return unsafe {
            dot_quant(&part(0..4), first, out);
            dot_quant(&part(4..d.m), first, out_rest);
        };
    }
    // SAFETY: handed on.
    unsafe {
        match (d.w.bits, d.w.offsets.is_some()) {
            (QuantBits::I8, false) => dot_quant_rows::<false, false>(d, first, out),
            (QuantBits::I8, true) => dot_quant_rows::<false, true>(d, first, out),
            (QuantBits::I4, false) => dot_quant_rows::<true, false>(d, first, out),
            (QuantBits::I4, true) => dot_quant_rows::<true, true>(d, first, out),
        }
    }
}

/// # Safety
/// As `dot_quant`.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn dot_quant_rows<const I4: bool, const OFFSETS: bool>(d: &QuantDot<'_>, first: usize, out: &mut [f32]) {
    let cols = out.len() / d.m;
    let fours = if d.m <= 2 { cols & !3 } else { 0 };
    let twos = if d.m > 2 { cols & !1 } else { fours };
    // SAFETY: rows `first..first + cols` exist and `out` has that many columns.
    unsafe {
        for j in (0..fours).step_by(4) {
            match d.m {
                1 => dot_quant_block::<I4, OFFSETS, 4, 1>(d, first + j, j, cols, out),
                _ => dot_quant_block::<I4, OFFSETS, 4, 2>(d, first + j, j, cols, out),
            }
        }
        for j in (fours..twos).step_by(2) {
            match d.m {
                3 => dot_quant_block::<I4, OFFSETS, 2, 3>(d, first + j, j, cols, out),
                _ => dot_quant_block::<I4, OFFSETS, 2, 4>(d, first + j, j, cols, out),
            }
        }
        for j in twos..cols {
            match d.m {
                1 => dot_quant_block::<I4, OFFSETS, 1, 1>(d, first + j, j, cols, out),
                2 => dot_quant_block::<I4, OFFSETS, 1, 2>(d, first + j, j, cols, out),
                3 => dot_quant_block::<I4, OFFSETS, 1, 3>(d, first + j, j, cols, out),
                _ => dot_quant_block::<I4, OFFSETS, 1, 4>(d, first + j, j, cols, out),
            }
        }
    }
}

/// `R` rows of `w` from `row` on with all `M` rows of `x`; results go to column `col` of `out`'s rows of `cols`. A result does
/// not depend on `R`.
///
/// # Safety
/// The rows of `w` exist, it has at least eight scales, `d.m` is `M`, and `out` holds `M * cols` elements.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn dot_quant_block<const I4: bool, const OFFSETS: bool, const R: usize, const M: usize>(
    d: &QuantDot<'_>,
    row: usize,
    col: usize,
    cols: usize,
    out: &mut [f32],
) {
    let groups = d.w.groups;
    let mut sum = [[_mm256_setzero_ps(); M]; R];
    let mut offset_sum = [[_mm256_setzero_ps(); M]; R];
    let mut factors = [[[0f32; 8]; M]; R];
    for g8 in (0..groups).step_by(8) {
        let count = 8.min(groups - g8);
        for r in 0..R {
            let at = (row + r) * groups + g8;
            // SAFETY: there are at least eight scales, and `at` is one of them.
            let scale = unsafe { halves(d.w.scales, at) };
            for m in 0..M {
                // SAFETY: scales of `x` come in whole vectors.
                let x = unsafe { _mm256_loadu_ps(d.scales.as_ptr().add(m * d.padded + g8)) };
                // SAFETY: eight factors.
                unsafe { _mm256_storeu_ps(factors[r][m].as_mut_ptr(), _mm256_mul_ps(scale, x)) }
            }
            if OFFSETS && let Some(offsets) = d.w.offsets {
                // Beyond `count` are the next row's.
                let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
                let real = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), lanes));
                // SAFETY: there are as many offsets as scales.
                let offset = unsafe { halves(offsets, at) };
                let offset = _mm256_and_ps(_mm256_mul_ps(scale, offset), real);
                for m in 0..M {
                    // SAFETY: as the scales.
                    let x = unsafe { _mm256_loadu_ps(d.sums.as_ptr().add(m * d.padded + g8)) };
                    offset_sum[r][m] = _mm256_fmadd_ps(offset, x, offset_sum[r][m]);
                }
            }
        }
        // Whole blocks of eight, nearly all, get a loop whose length the compiler knows.
        // SAFETY: groups `g8..g8 + count` exist.
        unsafe {
            if count == 8 {
                for j in 0..8 {
                    dot_quant_group::<I4, R, M>(d, row, g8 + j, j, &factors, &mut sum);
                }
            } else {
                for j in 0..count {
                    dot_quant_group::<I4, R, M>(d, row, g8 + j, j, &factors, &mut sum);
                }
            }
        }
    }
    for r in 0..R {
        for m in 0..M {
            let total = if OFFSETS { _mm256_add_ps(sum[r][m], offset_sum[r][m]) } else { sum[r][m] };
            out[m * cols + col + r] = horizontal_sum(total);
        }
    }
}

/// Adds group `g`, number `j` of its eight, of `R` rows from `row` on and all rows of `x` to `sum`.
///
/// # Safety
/// As `dot_quant_block`; the group exists.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn dot_quant_group<const I4: bool, const R: usize, const M: usize>(
    d: &QuantDot<'_>,
    row: usize,
    g: usize,
    j: usize,
    factors: &[[[f32; 8]; M]; R],
    sum: &mut [[__m256; M]; R],
) {
    let groups = d.w.groups;
    let group_bytes = if I4 { GROUP / 2 } else { GROUP };
    let first = d.w.quants.as_ptr().wrapping_add(row * groups * group_bytes);
    ahead::<R>(first, R * groups * group_bytes, g * group_bytes, group_bytes);
    // SAFETY: group `g` of row `m` of `x` is two vectors of 16.
    let x: [[__m256i; 2]; M] = std::array::from_fn(|m| unsafe {
        let x = d.x.as_ptr().add((m * groups + g) * GROUP);
        [_mm256_loadu_si256(x.cast()), _mm256_loadu_si256(x.add(16).cast())]
    });
    for r in 0..R {
        let p = first.wrapping_add((r * groups + g) * group_bytes);
        // SAFETY: group `g` of row `row + r` has `group_bytes` bytes.
        let w = unsafe {
            let low = _mm_loadu_si128(p.cast());
            if I4 {
                // Even elements are the low halves of bytes, odd ones the high halves.
                let wide = _mm256_cvtepi8_epi16(low);
                [_mm256_srai_epi16::<12>(_mm256_slli_epi16::<12>(wide)), _mm256_srai_epi16::<4>(wide)]
            } else {
                [_mm256_cvtepi8_epi16(low), _mm256_cvtepi8_epi16(_mm_loadu_si128(p.add(16).cast()))]
            }
        };
        for m in 0..M {
            let products = _mm256_add_epi32(_mm256_madd_epi16(w[0], x[m][0]), _mm256_madd_epi16(w[1], x[m][1]));
            let factor = _mm256_set1_ps(factors[r][m][j]);
            sum[r][m] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(products), factor, sum[r][m]);
        }
    }
}

/// # Safety
/// As [`super::MatmulFns`] says of lengths; rows of `d.w` are of adjacent elements.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn dot_rows(d: &DenseDot<'_>, first: usize, out: &mut [f32]) {
    if d.m > 4 {
        let (out, out_rest) = out.split_at_mut(out.len() / d.m * 4);
        let (x, x_rest) = d.x.split_at(4 * d.w.cols);
        // SAFETY: handed on, for a part of the rows of `x` and of `out`.
        return unsafe {
            dot_rows(&DenseDot { w: d.w, m: 4, x }, first, out);
            dot_rows(&DenseDot { w: d.w, m: d.m - 4, x: x_rest }, first, out_rest);
        };
    }
    // SAFETY: handed on.
    unsafe {
        match d.w.ty {
            DenseType::F32 => dot_rows_of::<F32>(d, first, out),
            DenseType::F16 => dot_rows_of::<F16>(d, first, out),
            DenseType::Bf16 => dot_rows_of::<BF16>(d, first, out),
        }
    }
}

/// # Safety
/// As `dot_rows`; `TY` is `d.w.ty`.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn dot_rows_of<const TY: u8>(d: &DenseDot<'_>, first: usize, out: &mut [f32]) {
    let cols = out.len() / d.m;
    let block = if d.m <= 2 { 4 } else { 2 };
    let whole = cols - cols % block;
    // SAFETY: rows `first..first + cols` exist and `out` has that many columns.
    unsafe {
        for j in (0..whole).step_by(block) {
            match d.m {
                1 => dot_rows_block::<TY, 4, 1, 2>(d, first + j, j, cols, out),
                2 => dot_rows_block::<TY, 4, 2, 1>(d, first + j, j, cols, out),
                3 => dot_rows_block::<TY, 2, 3, 1>(d, first + j, j, cols, out),
                _ => dot_rows_block::<TY, 2, 4, 1>(d, first + j, j, cols, out),
            }
        }
        for j in whole..cols {
            match d.m {
                1 => dot_rows_block::<TY, 1, 1, 2>(d, first + j, j, cols, out),
                2 => dot_rows_block::<TY, 1, 2, 1>(d, first + j, j, cols, out),
                3 => dot_rows_block::<TY, 1, 3, 1>(d, first + j, j, cols, out),
                _ => dot_rows_block::<TY, 1, 4, 1>(d, first + j, j, cols, out),
            }
        }
    }
}

/// Like `dot_quant_block`, with `U` vectors of each row in flight.
///
/// # Safety
/// As `dot_quant_block`; `TY` is `d.w.ty`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn dot_rows_block<const TY: u8, const R: usize, const M: usize, const U: usize>(
    d: &DenseDot<'_>,
    row: usize,
    col: usize,
    cols: usize,
    out: &mut [f32],
) {
    let k = d.w.cols;
    let w: [*const u8; R] = std::array::from_fn(|r| d.w.element(row + r, 0));
    let x: [*const f32; M] = std::array::from_fn(|m| d.x[m * k..].as_ptr());
    let mut sum = [[[_mm256_setzero_ps(); U]; M]; R];
    let mut at = 0;
    let row_bytes = d.w.row_stride * bytes_of(TY);
    while at + 8 * U <= k {
        ahead::<R>(w[0], R * row_bytes, at * bytes_of(TY), 8 * U * bytes_of(TY));
        for u in 0..U {
            // SAFETY: `at + 8 * (u + 1) <= k`, in every row.
            let xs: [__m256; M] = std::array::from_fn(|m| unsafe { _mm256_loadu_ps(x[m].add(at + 8 * u)) });
            for r in 0..R {
                // SAFETY: as above.
                let ws = unsafe { load8::<TY>(w[r].add((at + 8 * u) * bytes_of(TY))) };
                for m in 0..M {
                    sum[r][m][u] = _mm256_fmadd_ps(ws, xs[m], sum[r][m][u]);
                }
            }
        }
        at += 8 * U;
    }
    while at + 8 <= k {
        for r in 0..R {
            // SAFETY: `at + 8 <= k`.
            let ws = unsafe { load8::<TY>(w[r].add(at * bytes_of(TY))) };
            for m in 0..M {
                // SAFETY: as above.
                sum[r][m][0] = _mm256_fmadd_ps(ws, unsafe { _mm256_loadu_ps(x[m].add(at)) }, sum[r][m][0]);
            }
        }
        at += 8;
    }
    for r in 0..R {
        for m in 0..M {
            let mut total = sum[r][m][0];
            for u in 1..U {
                total = _mm256_add_ps(total, sum[r][m][u]);
            }
            let mut total = horizontal_sum(total);
            for c in at..k {
                total = d.x[m * k + c].mul_add(d.w.at(row + r, c), total);
            }
            out[m * cols + col + r] = total;
        }
    }
}

/// # Safety
/// As [`super::MatmulFns`] says of lengths; columns of `d.w` are of adjacent elements.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn dot_cols(d: &DenseDot<'_>, first: usize, out: &mut [f32]) {
    if d.m > 4 {
        let (out, out_rest) = out.split_at_mut(out.len() / d.m * 4);
        let (x, x_rest) = d.x.split_at(4 * d.w.cols);
        // SAFETY: handed on, for a part of the rows of `x` and of `out`.
        return unsafe {
            dot_cols(&DenseDot { w: d.w, m: 4, x }, first, out);
            dot_cols(&DenseDot { w: d.w, m: d.m - 4, x: x_rest }, first, out_rest);
        };
    }
    // SAFETY: handed on.
    unsafe {
        match d.w.ty {
            DenseType::F32 => dot_cols_of::<F32>(d, first, out),
            DenseType::F16 => dot_cols_of::<F16>(d, first, out),
            DenseType::Bf16 => dot_cols_of::<BF16>(d, first, out),
        }
    }
}

/// # Safety
/// As `dot_cols`; `TY` is `d.w.ty`.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn dot_cols_of<const TY: u8>(d: &DenseDot<'_>, first: usize, out: &mut [f32]) {
    let cols = out.len() / d.m;
    let mut j = 0;
    // SAFETY: columns `first..first + cols` exist and `out` has that many.
    unsafe {
        while j + 64 <= cols && d.m == 1 {
            dot_cols_block::<TY, 8, 1>(d, first + j, j, cols, out);
            j += 64;
        }
        while j + 16 <= cols {
            match d.m {
                1 => dot_cols_block::<TY, 2, 1>(d, first + j, j, cols, out),
                2 => dot_cols_block::<TY, 2, 2>(d, first + j, j, cols, out),
                3 => dot_cols_block::<TY, 2, 3>(d, first + j, j, cols, out),
                _ => dot_cols_block::<TY, 2, 4>(d, first + j, j, cols, out),
            }
            j += 16;
        }
    }
    let k = d.w.cols;
    for j in j..cols {
        for m in 0..d.m {
            // The vector blocks' order of additions and their rounding.
            out[m * cols + j] = (0..k).fold(0.0, |sum, c| d.x[m * k + c].mul_add(d.w.at(first + j, c), sum));
        }
    }
}

/// `8 * V` adjacent outputs for `M` rows.
///
/// # Safety
/// The outputs exist, `d.m` is `M`, `TY` is `d.w.ty`, and `out` holds `M * cols` elements.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn dot_cols_block<const TY: u8, const V: usize, const M: usize>(
    d: &DenseDot<'_>,
    row: usize,
    col: usize,
    cols: usize,
    out: &mut [f32],
) {
    let k = d.w.cols;
    let mut sum = [[_mm256_setzero_ps(); V]; M];
    for c in 0..k {
        let w = d.w.element(row, c);
        // SAFETY: `8 * V` outputs from `row` on are adjacent.
        let w: [__m256; V] = std::array::from_fn(|v| unsafe { load8::<TY>(w.add(8 * v * bytes_of(TY))) });
        for m in 0..M {
            // SAFETY: `x` has `M` rows of `k`.
            let x = _mm256_set1_ps(unsafe { *d.x.get_unchecked(m * k + c) });
            for v in 0..V {
                sum[m][v] = _mm256_fmadd_ps(w[v], x, sum[m][v]);
            }
        }
    }
    for m in 0..M {
        for v in 0..V {
            let out = &mut out[m * cols + col + 8 * v..][..8];
            // SAFETY: eight elements.
            unsafe { _mm256_storeu_ps(out.as_mut_ptr(), sum[m][v]) }
        }
    }
}

/// # Safety
/// As [`super::MatmulFns`] says of lengths.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn pack_dense(w: &DenseView<'_>, n0: usize, k0: usize, depth: usize, panel: &mut [f32]) {
    assert!(n0 < w.rows && k0 + depth <= w.cols && panel.len() == depth * NR);
    // SAFETY: handed on, with the extents checked.
    unsafe {
        match w.ty {
            DenseType::F32 => pack_dense_of::<F32>(w, n0, k0, depth, panel),
            DenseType::F16 => pack_dense_of::<F16>(w, n0, k0, depth, panel),
            DenseType::Bf16 => pack_dense_of::<BF16>(w, n0, k0, depth, panel),
        }
    }
}

/// # Safety
/// As `pack_dense`; `TY` is `w.ty`.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn pack_dense_of<const TY: u8>(w: &DenseView<'_>, n0: usize, k0: usize, depth: usize, panel: &mut [f32]) {
    if w.row_stride == 1 && n0 + NR <= w.rows {
        for k in 0..depth {
            let from = w.element(n0, k0 + k);
            let to = panel[k * NR..][..NR].as_mut_ptr();
            // SAFETY: sixteen rows are adjacent.
            unsafe {
                _mm256_storeu_ps(to, load8::<TY>(from));
                _mm256_storeu_ps(to.add(8), load8::<TY>(from.add(8 * bytes_of(TY))));
            }
        }
        return;
    }
    if w.col_stride != 1 {
        return scalar::pack_dense(w, n0, k0, depth, panel);
    }
    let whole = depth & !7;
    for half in [0, 8] {
        let rows: [*const u8; 8] = std::array::from_fn(|i| w.element((n0 + half + i).min(w.rows - 1), k0));
        for k in (0..whole).step_by(8) {
            // SAFETY: `k + 8 <= depth`, and columns are adjacent.
            let lines = rows.map(|row| unsafe { _mm256_castps_si256(load8::<TY>(row.add(k * bytes_of(TY)))) });
            for (i, line) in transpose8(lines).into_iter().enumerate() {
                let to = &mut panel[(k + i) * NR + half..][..8];
                // SAFETY: eight elements.
                unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), line) }
            }
        }
    }
    if whole < depth {
        scalar::pack_dense(w, n0, k0 + whole, depth - whole, &mut panel[whole * NR..]);
    }
}

/// # Safety
/// As [`super::MatmulFns`] says of lengths.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn pack_quant(w: &GroupedWeights<'_>, n0: usize, g0: usize, panel: &mut [i16], scales: &mut [f32]) {
    let groups = scales.len() / (2 * NR);
    assert!(n0 < w.n && g0 + groups <= w.groups && panel.len() == groups * GROUP * NR);
    for half in [0, 8] {
        let rows: [usize; 8] = std::array::from_fn(|i| ((n0 + half + i).min(w.n - 1)) * w.groups + g0);
        for g in 0..groups {
            let panel = &mut panel[g * GROUP * NR..][..GROUP * NR];
            for pair0 in [0, 8] {
                let lines = rows.map(|row| {
                    let group = w.quants[(row + g) * w.group_bytes()..].as_ptr();
                    // SAFETY: eight pairs from `pair0` on are inside the group of 16.
                    unsafe {
                        match w.bits {
                            QuantBits::I8 => _mm256_cvtepi8_epi16(_mm_loadu_si128(group.add(2 * pair0).cast())),
                            QuantBits::I4 => {
                                let bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(group.add(pair0).cast()));
                                let even = _mm256_srai_epi32::<28>(_mm256_slli_epi32::<28>(bytes));
                                let odd = _mm256_srai_epi32::<12>(_mm256_slli_epi32::<24>(bytes));
                                _mm256_blend_epi16::<0b1010_1010>(even, odd)
                            }
                        }
                    }
                });
                for (i, line) in transpose8(lines).into_iter().enumerate() {
                    let to = &mut panel[(pair0 + i) * 2 * NR + 2 * half..][..16];
                    // SAFETY: sixteen elements of two bytes.
                    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), line) }
                }
            }
            let gather = |all: &[u16]| {
                let bits = rows.map(|row| all[row + g]);
                // SAFETY: eight elements.
                unsafe { load8::<F16>(bits.as_ptr().cast()) }
            };
            let scale = gather(w.scales);
            let offset = w.offsets.map_or(_mm256_setzero_ps(), |o| _mm256_mul_ps(scale, gather(o)));
            let to = &mut scales[g * 2 * NR + half..][..NR + 8];
            // SAFETY: eight elements here and sixteen further on.
            unsafe {
                _mm256_storeu_ps(to.as_mut_ptr(), scale);
                _mm256_storeu_ps(to.as_mut_ptr().add(NR), offset);
            }
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
pub fn tile_f32(x: &[f32], w: &[f32], tile: &mut Tile) {
    let mut sum = [[_mm256_setzero_ps(); 2]; MR];
    let (x, _) = x.as_chunks::<MR>();
    let (w, _) = w.as_chunks::<NR>();
    for (x, w) in x.iter().zip(w) {
        // SAFETY: sixteen elements.
        let (w0, w1) = unsafe { (_mm256_loadu_ps(w.as_ptr()), _mm256_loadu_ps(w.as_ptr().add(8))) };
        for r in 0..MR {
            let x = _mm256_set1_ps(x[r]);
            sum[r][0] = _mm256_fmadd_ps(x, w0, sum[r][0]);
            sum[r][1] = _mm256_fmadd_ps(x, w1, sum[r][1]);
        }
    }
    for (to, sum) in tile.as_chunks_mut::<NR>().0.iter_mut().zip(sum) {
        // SAFETY: sixteen elements.
        unsafe {
            _mm256_storeu_ps(to.as_mut_ptr(), sum[0]);
            _mm256_storeu_ps(to.as_mut_ptr().add(8), sum[1]);
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
pub fn tile_quant(x: &[i16], x_scales: &[f32], w: &[i16], w_scales: &[f32], offsets: bool, tile: &mut Tile) {
    if offsets {
        tile_quant_of::<true>(x, x_scales, w, w_scales, tile);
    } else {
        tile_quant_of::<false>(x, x_scales, w, w_scales, tile);
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn tile_quant_of<const OFFSETS: bool>(x: &[i16], x_scales: &[f32], w: &[i16], w_scales: &[f32], tile: &mut Tile) {
    *tile = [0.0; MR * NR];
    let (x, _) = x.as_chunks::<{ GROUP * MR }>();
    let (w, _) = w.as_chunks::<{ GROUP * NR }>();
    let (x_scales, _) = x_scales.as_chunks::<{ 2 * MR }>();
    let (w_scales, _) = w_scales.as_chunks::<{ 2 * NR }>();
    for (((x, w), xs), ws) in x.iter().zip(w).zip(x_scales).zip(w_scales) {
        let mut sum = [[_mm256_setzero_si256(); 2]; MR];
        let (mut px, mut pw) = (x.as_ptr().cast::<i32>(), w.as_ptr().cast::<__m256i>());
        for _ in 0..PAIRS {
            // SAFETY: a group is 16 pairs: of 6 dwords of `x`, and of two vectors of `w`.
            unsafe {
                let (w0, w1) = (_mm256_loadu_si256(pw), _mm256_loadu_si256(pw.add(1)));
                for (r, sum) in sum.iter_mut().enumerate() {
                    let x = _mm256_set1_epi32(px.add(r).read_unaligned());
                    sum[0] = _mm256_add_epi32(sum[0], _mm256_madd_epi16(x, w0));
                    sum[1] = _mm256_add_epi32(sum[1], _mm256_madd_epi16(x, w1));
                }
                px = px.add(MR);
                pw = pw.add(2);
            }
        }
        // SAFETY: rows of `w_scales` hold 32 elements, of the tile 16.
        unsafe {
            let ws: [__m256; 4] = std::array::from_fn(|i| _mm256_loadu_ps(ws.as_ptr().add(8 * i)));
            for r in 0..MR {
                let to = tile.as_mut_ptr().add(r * NR);
                for half in 0..2 {
                    let to = to.add(8 * half);
                    let factor = _mm256_mul_ps(ws[half], _mm256_set1_ps(xs[r]));
                    let mut v = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r][half]), factor, _mm256_loadu_ps(to));
                    if OFFSETS {
                        v = _mm256_fmadd_ps(ws[2 + half], _mm256_set1_ps(xs[MR + r]), v);
                    }
                    _mm256_storeu_ps(to, v);
                }
            }
        }
    }
}
