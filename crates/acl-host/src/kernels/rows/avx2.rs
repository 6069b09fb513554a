//! Rows in vectors of eight; sums keep four vectors in flight and add them in a fixed order.

use super::super::elementwise::exp8;
use super::{MaskRow, scalar};
use std::arch::x86_64::*;

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load(x: &[f32; 8]) -> __m256 {
    // SAFETY: the array holds eight elements.
    unsafe { _mm256_loadu_ps(x.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn store(x: &mut [f32; 8], v: __m256) {
    // SAFETY: the array holds eight elements.
    unsafe { _mm256_storeu_ps(x.as_mut_ptr(), v) }
}

/// The elements of `x`, with `fill` behind them.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_tail(x: &[f32], fill: f32) -> __m256 {
    let mut buffer = [fill; 8];
    buffer[..x.len()].copy_from_slice(x);
    load(&buffer)
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn horizontal_sum(v: __m256) -> f32 {
    let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
    let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn horizontal_max(v: __m256) -> f32 {
    let v = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
    let v = _mm_max_ps(v, _mm_movehl_ps(v, v));
    _mm_cvtss_f32(_mm_max_ss(v, _mm_movehdup_ps(v)))
}

#[target_feature(enable = "avx2,fma,f16c")]
pub fn sum(x: &[f32]) -> f32 {
    let mut acc = [_mm256_setzero_ps(); 4];
    let (whole, tail) = x.as_chunks::<8>();
    for (i, v) in whole.iter().enumerate() {
        acc[i % 4] = _mm256_add_ps(acc[i % 4], load(v));
    }
    acc[0] = _mm256_add_ps(acc[0], load_tail(tail, 0.0));
    horizontal_sum(_mm256_add_ps(_mm256_add_ps(acc[0], acc[1]), _mm256_add_ps(acc[2], acc[3])))
}

#[target_feature(enable = "avx2,fma,f16c")]
pub fn max(x: &[f32]) -> f32 {
    let mut acc = _mm256_set1_ps(f32::NEG_INFINITY);
    let mut nan = _mm256_setzero_ps();
    let (whole, tail) = x.as_chunks::<8>();
    for v in whole.iter().map(|v| load(v)).chain([load_tail(tail, f32::NEG_INFINITY)]) {
        acc = _mm256_max_ps(acc, v);
        nan = _mm256_or_ps(nan, _mm256_cmp_ps::<_CMP_UNORD_Q>(v, v));
    }
    if _mm256_movemask_ps(nan) != 0 { f32::NAN } else { horizontal_max(acc) }
}

#[target_feature(enable = "avx2,fma,f16c")]
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut acc = [_mm256_setzero_ps(); 4];
    let ((a8, a_tail), (b8, b_tail)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    for (i, (a, b)) in a8.iter().zip(b8).enumerate() {
        acc[i % 4] = _mm256_fmadd_ps(load(a), load(b), acc[i % 4]);
    }
    acc[0] = _mm256_fmadd_ps(load_tail(a_tail, 0.0), load_tail(b_tail, 0.0), acc[0]);
    horizontal_sum(_mm256_add_ps(_mm256_add_ps(acc[0], acc[1]), _mm256_add_ps(acc[2], acc[3])))
}

#[target_feature(enable = "avx2,fma,f16c")]
pub fn square_sum(x: &[f32], mean: f32) -> f32 {
    let mut acc = [_mm256_setzero_ps(); 4];
    let m = _mm256_set1_ps(mean);
    let (whole, tail) = x.as_chunks::<8>();
    for (i, v) in whole.iter().enumerate() {
        let d = _mm256_sub_ps(load(v), m);
        acc[i % 4] = _mm256_fmadd_ps(d, d, acc[i % 4]);
    }
    let d = _mm256_sub_ps(load_tail(tail, mean), m);
    acc[0] = _mm256_fmadd_ps(d, d, acc[0]);
    horizontal_sum(_mm256_add_ps(_mm256_add_ps(acc[0], acc[1]), _mm256_add_ps(acc[2], acc[3])))
}

#[target_feature(enable = "avx2,fma,f16c")]
pub fn scores(x: &[f32], scale: f32, mask: Option<MaskRow<'_>>, slope: f32, out: &mut [f32]) -> f32 {
    let whole = x.len() & !7;
    let (s, slope8) = (_mm256_set1_ps(scale), _mm256_set1_ps(slope));
    let mut max = _mm256_set1_ps(f32::NEG_INFINITY);
    let (x8, _) = x.as_chunks::<8>();
    let (out8, out_tail) = out.as_chunks_mut::<8>();
    for (i, (x, out)) in x8.iter().zip(out8).enumerate() {
        let mut v = _mm256_mul_ps(load(x), s);
        match mask {
            None => (),
            Some(MaskRow::F32(m)) => v = _mm256_fmadd_ps(slope8, load(&m.as_chunks::<8>().0[i]), v),
            Some(MaskRow::F16(m)) => {
                // SAFETY: chunk `i` of the mask holds eight elements of two bytes.
                let m = unsafe { _mm256_cvtph_ps(_mm_loadu_si128(m.as_chunks::<8>().0[i].as_ptr().cast())) };
                v = _mm256_fmadd_ps(slope8, m, v);
            }
        }
        max = _mm256_max_ps(v, max);
        store(out, v);
    }
    let mask = mask.map(|m| match m {
        MaskRow::F32(m) => MaskRow::F32(&m[whole..]),
        MaskRow::F16(m) => MaskRow::F16(&m[whole..]),
    });
    scalar::scores(&x[whole..], scale, mask, slope, out_tail).max(horizontal_max(max))
}

#[target_feature(enable = "avx2,fma,f16c")]
pub fn exp_sum(x: &mut [f32], shift: f32) -> f32 {
    let s = _mm256_set1_ps(shift);
    let mut acc = [_mm256_setzero_ps(); 2];
    let (whole, tail) = x.as_chunks_mut::<8>();
    for (i, v) in whole.iter_mut().enumerate() {
        let e = exp8(_mm256_sub_ps(load(v), s));
        acc[i % 2] = _mm256_add_ps(acc[i % 2], e);
        store(v, e);
    }
    let mut sum = horizontal_sum(_mm256_add_ps(acc[0], acc[1]));
    let mut buffer = [0.0; 8];
    let e = exp8(_mm256_sub_ps(load_tail(tail, 0.0), s));
    store(&mut buffer, e);
    for (t, b) in tail.iter_mut().zip(buffer) {
        *t = b;
        sum += b;
    }
    sum
}

#[target_feature(enable = "avx2,fma,f16c")]
pub fn scale(x: &mut [f32], s: f32) {
    let (whole, tail) = x.as_chunks_mut::<8>();
    for v in whole {
        let scaled = _mm256_mul_ps(load(v), _mm256_set1_ps(s));
        store(v, scaled);
    }
    scalar::scale(tail, s);
}

#[target_feature(enable = "avx2,fma,f16c")]
pub fn affine(x: &[f32], mean: f32, factor: f32, weight: Option<&[f32]>, bias: Option<&[f32]>, out: &mut [f32]) {
    let whole = x.len() & !7;
    let (m, f) = (_mm256_set1_ps(mean), _mm256_set1_ps(factor));
    let (x8, x_tail) = x.as_chunks::<8>();
    let (out8, out_tail) = out.as_chunks_mut::<8>();
    for (i, (x, out)) in x8.iter().zip(out8).enumerate() {
        let mut v = _mm256_mul_ps(_mm256_sub_ps(load(x), m), f);
        if let Some(w) = weight {
            v = _mm256_mul_ps(v, load(&w.as_chunks::<8>().0[i]));
        }
        if let Some(b) = bias {
            v = _mm256_add_ps(v, load(&b.as_chunks::<8>().0[i]));
        }
        store(out, v);
    }
    scalar::affine(x_tail, mean, factor, weight.map(|w| &w[whole..]), bias.map(|b| &b[whole..]), out_tail);
}

#[target_feature(enable = "avx2,fma,f16c")]
pub fn rope_half(x: &[f32], cos: &[f32], sin: &[f32], out: &mut [f32]) {
    let h = x.len() / 2;
    let ((xa, xb), (ca, cb), (sa, sb)) = (x.split_at(h), cos.split_at(h), sin.split_at(h));
    let (oa, ob) = out.split_at_mut(h);
    for i in 0..h / 8 {
        let at = |row: &[f32]| load(&row.as_chunks::<8>().0[i]);
        let (a, b) = (at(xa), at(xb));
        store(&mut oa.as_chunks_mut::<8>().0[i], _mm256_fnmadd_ps(b, at(sa), _mm256_mul_ps(a, at(ca))));
        store(&mut ob.as_chunks_mut::<8>().0[i], _mm256_fmadd_ps(a, at(sb), _mm256_mul_ps(b, at(cb))));
    }
    for i in h & !7..h {
        oa[i] = xa[i] * ca[i] - xb[i] * sa[i];
        ob[i] = xb[i] * cb[i] + xa[i] * sb[i];
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
pub fn rope_interleaved(x: &[f32], cos: &[f32], sin: &[f32], out: &mut [f32]) {
    let whole = x.len() & !7;
    let (x8, x_tail) = x.as_chunks::<8>();
    let (out8, out_tail) = out.as_chunks_mut::<8>();
    for (i, (x, out)) in x8.iter().zip(out8).enumerate() {
        let at = |row: &[f32]| load(&row.as_chunks::<8>().0[i]);
        let v = load(x);
        let swapped = _mm256_permute_ps::<0b10_11_00_01>(v);
        store(out, _mm256_addsub_ps(_mm256_mul_ps(v, at(cos)), _mm256_mul_ps(swapped, at(sin))));
    }
    scalar::rope_interleaved(x_tail, &cos[whole..], &sin[whole..], out_tail);
}
