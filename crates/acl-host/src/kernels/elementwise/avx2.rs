//! Eight numbers at a time. A tail goes through the same vector function with masked loads and stores, so a number's result
//! does not depend on where it stands.

use std::arch::x86_64::*;

macro_rules! unary {
    ($($name:ident = $f:ident;)*) => {$(
        /// # Safety
        /// The processor has the features; `x` is valid for reading and `out` for writing `n` elements; they are equal or
        /// do not overlap.
        #[target_feature(enable = "avx2,fma,f16c")]
        pub unsafe fn $name(n: usize, x: *const f32, out: *mut f32) {
            let whole = n & !7;
            for i in (0..whole).step_by(8) {
                // SAFETY: `i + 8 <= n`.
                unsafe { _mm256_storeu_ps(out.add(i), $f(_mm256_loadu_ps(x.add(i)))) }
            }
            if whole < n {
                let mask = lanes(n - whole);
                // SAFETY: masked lanes touch no memory; the others are below `n`.
                unsafe { _mm256_maskstore_ps(out.add(whole), mask, $f(_mm256_maskload_ps(x.add(whole), mask))) }
            }
        }
    )*};
}

macro_rules! binary {
    ($($name:ident($($scalar:ident)?) = $f:ident;)*) => {$(
        /// # Safety
        /// The processor has the features; `a` and `b` are valid for reading and `out` for writing `n` elements; `out`
        /// equals each input or does not overlap it.
        #[target_feature(enable = "avx2,fma,f16c")]
        pub unsafe fn $name(n: usize, a: *const f32, b: *const f32, $($scalar: f32,)? out: *mut f32) {
            let whole = n & !7;
            for i in (0..whole).step_by(8) {
                // SAFETY: `i + 8 <= n`.
                let (va, vb) = unsafe { (_mm256_loadu_ps(a.add(i)), _mm256_loadu_ps(b.add(i))) };
                let v = $f(va, vb $(, _mm256_set1_ps($scalar))?);
                // SAFETY: as above.
                unsafe { _mm256_storeu_ps(out.add(i), v) }
            }
            if whole < n {
                let mask = lanes(n - whole);
                // SAFETY: masked lanes touch no memory; the others are below `n`.
                let (va, vb) = unsafe { (_mm256_maskload_ps(a.add(whole), mask), _mm256_maskload_ps(b.add(whole), mask)) };
                let v = $f(va, vb $(, _mm256_set1_ps($scalar))?);
                // SAFETY: as above.
                unsafe { _mm256_maskstore_ps(out.add(whole), mask, v) }
            }
        }
    )*};
}

unary! {
    silu = silu8;
    gelu = gelu8;
    gelu_erf = gelu_erf8;
    gelu_quick = gelu_quick8;
    sigmoid = sigmoid8;
    exp = exp8;
    tanh = tanh8;
    relu = relu8;
}

binary! {
    add() = _mm256_add_ps;
    sub() = _mm256_sub_ps;
    mul() = _mm256_mul_ps;
    div() = _mm256_div_ps;
    swiglu() = swiglu8;
    add_scaled(scale) = add_scaled8;
}

/// # Safety
/// As the unary functions.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn mul_scalar(n: usize, x: *const f32, s: f32, out: *mut f32) {
    let whole = n & !7;
    for i in (0..whole).step_by(8) {
        // SAFETY: `i + 8 <= n`.
        unsafe { _mm256_storeu_ps(out.add(i), _mm256_mul_ps(_mm256_loadu_ps(x.add(i)), _mm256_set1_ps(s))) }
    }
    // SAFETY: `i < n`.
    (whole..n).for_each(|i| unsafe { *out.add(i) = *x.add(i) * s });
}

/// # Safety
/// As the unary functions.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn add_scalar(n: usize, x: *const f32, s: f32, out: *mut f32) {
    let whole = n & !7;
    for i in (0..whole).step_by(8) {
        // SAFETY: `i + 8 <= n`.
        unsafe { _mm256_storeu_ps(out.add(i), _mm256_add_ps(_mm256_loadu_ps(x.add(i)), _mm256_set1_ps(s))) }
    }
    // SAFETY: `i < n`.
    (whole..n).for_each(|i| unsafe { *out.add(i) = *x.add(i) + s });
}

/// The mask of the first `n` lanes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn lanes(n: usize) -> __m256i {
    _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
}

/// `exp`: `2^n * p(r)` with `x = n ln 2 + r`. The power is applied in two halves so that neither overflows early nor
/// flushes denormal results; the clamp keeps NaN because `min` and `max` return their second operand for it.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn exp8(x: __m256) -> __m256 {
    let x = _mm256_max_ps(_mm256_set1_ps(-105.0), _mm256_min_ps(_mm256_set1_ps(89.0), x));
    let n = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(_mm256_mul_ps(
        x,
        _mm256_set1_ps(std::f32::consts::LOG2_E),
    ));
    // ln 2 as a float with trailing zeros, so that n times it is exact, and the rest.
    let r = _mm256_fnmadd_ps(n, _mm256_set1_ps(355.0 / 512.0), x);
    let r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.121_944_4e-4), r);
    let p = poly(r, &[1.392_617_6e-3, 8.363_173e-3, 4.166_655_5e-2, 0.166_665_77, 0.5]);
    let p = _mm256_fmadd_ps(_mm256_mul_ps(r, r), p, r);
    let p = _mm256_add_ps(p, _mm256_set1_ps(1.0));
    let n = _mm256_cvtps_epi32(n);
    let low = _mm256_srai_epi32::<1>(n);
    let high = _mm256_sub_epi32(n, low);
    _mm256_mul_ps(_mm256_mul_ps(p, power_of_two(low)), power_of_two(high))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn power_of_two(n: __m256i) -> __m256 {
    _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(n, _mm256_set1_epi32(127))))
}

/// Horner's rule, highest coefficient first.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn poly<const N: usize>(x: __m256, coefficients: &[f32; N]) -> __m256 {
    let mut sum = _mm256_set1_ps(coefficients[0]);
    for &c in &coefficients[1..] {
        sum = _mm256_fmadd_ps(sum, x, _mm256_set1_ps(c));
    }
    sum
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn negate(x: __m256) -> __m256 {
    _mm256_xor_ps(x, _mm256_set1_ps(-0.0))
}

/// `1 + exp(-x)`, the divisor of every sigmoid here.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn sigmoid_divisor(x: __m256) -> __m256 {
    _mm256_add_ps(_mm256_set1_ps(1.0), exp8(negate(x)))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn sigmoid8(x: __m256) -> __m256 {
    _mm256_div_ps(_mm256_set1_ps(1.0), sigmoid_divisor(x))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn silu8(x: __m256) -> __m256 {
    _mm256_div_ps(x, sigmoid_divisor(x))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn swiglu8(a: __m256, b: __m256) -> __m256 {
    _mm256_mul_ps(silu8(a), b)
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add_scaled8(a: __m256, b: __m256, scale: __m256) -> __m256 {
    _mm256_fmadd_ps(b, scale, a)
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn gelu_quick8(x: __m256) -> __m256 {
    _mm256_div_ps(x, sigmoid_divisor(_mm256_mul_ps(x, _mm256_set1_ps(1.702))))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn gelu8(x: __m256) -> __m256 {
    // 2 sqrt(2 / pi), and that times 0.044715.
    let c = _mm256_fmadd_ps(_mm256_mul_ps(x, x), _mm256_set1_ps(0.071_354_814), _mm256_set1_ps(1.595_769));
    _mm256_div_ps(x, sigmoid_divisor(_mm256_mul_ps(x, c)))
}

/// `x/2 * erfc(-x/sqrt 2)`, with `erfc(z) = t exp(-z^2) p(t)`, `t = 1 / (1 + z/2)`, for positive `z` (a Chebyshev fit of degree
/// ten, relative error 6e-9). The rounding of `z^2` is put back, or it would cost 1e-5 at the far end.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn gelu_erf8(x: __m256) -> __m256 {
    let one = _mm256_set1_ps(1.0);
    let a = _mm256_andnot_ps(_mm256_set1_ps(-0.0), x);
    let z = _mm256_mul_ps(a, _mm256_set1_ps(std::f32::consts::FRAC_1_SQRT_2));
    let t = _mm256_div_ps(one, _mm256_fmadd_ps(z, _mm256_set1_ps(0.5), one));
    let p = poly(
        t,
        &[
            3.612_875e-2,
            -0.193_876_96,
            0.390_700_53,
            -0.306_404_03,
            -3.109_533_4e-3,
            2.169_613e-2,
            6.143_096e-2,
            0.183_564_07,
            0.245_569_1,
            0.282_210_6,
            0.282_090_42,
        ],
    );
    // z^2 is x^2 / 2, and halving is exact.
    let half = _mm256_mul_ps(a, _mm256_set1_ps(0.5));
    let square = _mm256_mul_ps(half, a);
    let lost = _mm256_fmsub_ps(half, a, square);
    let e = exp8(negate(square));
    let e = _mm256_fnmadd_ps(e, lost, e);
    let tail = _mm256_mul_ps(_mm256_mul_ps(t, p), e);
    let half_x = _mm256_mul_ps(x, _mm256_set1_ps(0.5));
    let negative = _mm256_mul_ps(half_x, tail);
    let positive = _mm256_fnmadd_ps(half_x, tail, x);
    // Infinite squares would make `lost` NaN; beyond 15 the tail is nothing, except that -inf stays NaN by -inf * 0.
    let far = _mm256_cmp_ps::<_CMP_GT_OQ>(a, _mm256_set1_ps(15.0));
    let positive = _mm256_blendv_ps(positive, x, far);
    let negative = _mm256_blendv_ps(negative, _mm256_mul_ps(x, _mm256_setzero_ps()), far);
    _mm256_blendv_ps(positive, negative, x)
}

/// An odd polynomial near zero, where the other form cancels; `1 - 2 / (exp(2|x|) + 1)` elsewhere.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn tanh8(x: __m256) -> __m256 {
    let sign = _mm256_and_ps(x, _mm256_set1_ps(-0.0));
    let a = _mm256_andnot_ps(_mm256_set1_ps(-0.0), x);
    let u = _mm256_mul_ps(x, x);
    let p = poly(u, &[2.269_501_7e-3, -8.323_187e-3, 2.176_250_3e-2, -5.395_846e-2, 0.133_333, -0.333_333_33]);
    let near = _mm256_fmadd_ps(_mm256_mul_ps(x, u), p, x);
    let one = _mm256_set1_ps(1.0);
    let e = _mm256_add_ps(exp8(_mm256_add_ps(a, a)), one);
    let large = _mm256_cmp_ps::<_CMP_GT_OQ>(a, _mm256_set1_ps(0.625));
    let far = _mm256_or_ps(_mm256_sub_ps(one, _mm256_div_ps(_mm256_set1_ps(2.0), e)), sign);
    _mm256_blendv_ps(near, far, large)
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn relu8(x: __m256) -> __m256 {
    // In this order NaN stays.
    _mm256_max_ps(_mm256_setzero_ps(), x)
}
