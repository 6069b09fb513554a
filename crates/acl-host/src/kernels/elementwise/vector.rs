//! A vector of numbers at a time. A tail goes through the same vector function with partial loads and stores, so a number's
//! result does not depend on where it stands.

use super::super::lanes::*;

macro_rules! unary {
    ($($name:ident($($scalar:ident)?) = $f:ident;)*) => { vectorised! {$(
        /// # Safety
        /// The processor has the features; `x` is valid for reading and `out` for writing `n` elements; they are equal or
        /// do not overlap.
        pub unsafe fn $name(n: usize, x: *const f32, $($scalar: f32,)? out: *mut f32) {
            let whole = n - n % LANES;
            for i in (0..whole).step_by(LANES) {
                // SAFETY: `i + LANES <= n`.
                unsafe { store(out.add(i), $f(load(x.add(i)) $(, splat($scalar))?)) }
            }
            if whole < n {
                // SAFETY: `n - whole` elements are left.
                unsafe {
                    let v = $f(load_first(x.add(whole), n - whole) $(, splat($scalar))?);
                    store_first(out.add(whole), n - whole, v);
                }
            }
        }
    )*}};
}

macro_rules! binary {
    ($($name:ident($($scalar:ident)?) = $f:ident;)*) => { vectorised! {$(
        /// # Safety
        /// The processor has the features; `a` and `b` are valid for reading and `out` for writing `n` elements; `out`
        /// equals each input or does not overlap it.
        pub unsafe fn $name(n: usize, a: *const f32, b: *const f32, $($scalar: f32,)? out: *mut f32) {
            let whole = n - n % LANES;
            for i in (0..whole).step_by(LANES) {
                // SAFETY: `i + LANES <= n`.
                unsafe { store(out.add(i), $f(load(a.add(i)), load(b.add(i)) $(, splat($scalar))?)) }
            }
            if whole < n {
                // SAFETY: `n - whole` elements are left.
                unsafe {
                    let (a, b) = (load_first(a.add(whole), n - whole), load_first(b.add(whole), n - whole));
                    store_first(out.add(whole), n - whole, $f(a, b $(, splat($scalar))?));
                }
            }
        }
    )*}};
}

unary! {
    silu() = silu_of;
    gelu() = gelu_of;
    gelu_erf() = gelu_erf_of;
    gelu_quick() = gelu_quick_of;
    sigmoid() = sigmoid_of;
    exp() = exp_of;
    tanh() = tanh_of;
    relu() = relu_of;
    mul_scalar(s) = times;
    add_scalar(s) = plus;
}

binary! {
    add() = plus;
    sub() = minus;
    mul() = times;
    div() = over;
    swiglu() = swiglu_of;
    add_scaled(scale) = add_scaled_of;
}

vectorised! {
    /// `exp`: `2^n * p(r)` with `x = n ln 2 + r`. The clamp keeps NaN because `least` and `greatest` return their second
    /// operand if it is NaN.
    pub fn exp_of(x: F32s) -> F32s {
        let x = greatest(splat(-105.0), least(splat(89.0), x));
        let n = round(times(x, splat(std::f32::consts::LOG2_E)));
        // ln 2 as a float with trailing zeros, so that n times it is exact, and the rest.
        let r = fnma(n, splat(355.0 / 512.0), x);
        let r = fnma(n, splat(-2.121_944_4e-4), r);
        let p = poly(r, &[1.392_617_6e-3, 8.363_173e-3, 4.166_655_5e-2, 0.166_665_77, 0.5]);
        let p = fma(times(r, r), p, r);
        times_power_of_two(plus(p, splat(1.0)), n)
    }

    /// Horner's rule, highest coefficient first.
    fn poly<const N: usize>(x: F32s, coefficients: &[f32; N]) -> F32s {
        let mut sum = splat(coefficients[0]);
        for &c in &coefficients[1..] {
            sum = fma(sum, x, splat(c));
        }
        sum
    }

    /// `1 + exp(-x)`, the divisor of every sigmoid here.
    fn sigmoid_divisor(x: F32s) -> F32s {
        plus(splat(1.0), exp_of(negate(x)))
    }

    fn sigmoid_of(x: F32s) -> F32s {
        over(splat(1.0), sigmoid_divisor(x))
    }

    fn silu_of(x: F32s) -> F32s {
        over(x, sigmoid_divisor(x))
    }

    fn swiglu_of(a: F32s, b: F32s) -> F32s {
        times(silu_of(a), b)
    }

    fn add_scaled_of(a: F32s, b: F32s, scale: F32s) -> F32s {
        fma(b, scale, a)
    }

    fn gelu_quick_of(x: F32s) -> F32s {
        over(x, sigmoid_divisor(times(x, splat(1.702))))
    }

    fn gelu_of(x: F32s) -> F32s {
        // 2 sqrt(2 / pi), and that times 0.044715.
        let c = fma(times(x, x), splat(0.071_354_814), splat(1.595_769));
        over(x, sigmoid_divisor(times(x, c)))
    }

    /// `x/2 * erfc(-x/sqrt 2)`, with `erfc(z) = t exp(-z^2) p(t)`, `t = 1 / (1 + z/2)`, for positive `z` (a Chebyshev fit of
    /// degree ten, relative error 6e-9). The rounding of `z^2` is put back, or it would cost 1e-5 at the far end.
    fn gelu_erf_of(x: F32s) -> F32s {
        let one = splat(1.0);
        let a = abs(x);
        let z = times(a, splat(std::f32::consts::FRAC_1_SQRT_2));
        let t = over(one, fma(z, splat(0.5), one));
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
        let half = times(a, splat(0.5));
        let square = times(half, a);
        let lost = fms(half, a, square);
        let e = exp_of(negate(square));
        let e = fnma(e, lost, e);
        let tail = times(times(t, p), e);
        let half_x = times(x, splat(0.5));
        let negative = times(half_x, tail);
        let positive = fnma(half_x, tail, x);
        // Infinite squares would make `lost` NaN; beyond 15 the tail is nothing, except that -inf stays NaN by -inf * 0.
        let far = greater(a, splat(15.0));
        let positive = select(far, x, positive);
        let negative = select(far, times(x, zero()), negative);
        select(is_negative(x), negative, positive)
    }

    /// An odd polynomial near zero, where the other form cancels; `1 - 2 / (exp(2|x|) + 1)` elsewhere.
    fn tanh_of(x: F32s) -> F32s {
        let a = abs(x);
        let u = times(x, x);
        let p = poly(u, &[2.269_501_7e-3, -8.323_187e-3, 2.176_250_3e-2, -5.395_846e-2, 0.133_333, -0.333_333_33]);
        let near = fma(times(x, u), p, x);
        let one = splat(1.0);
        let e = plus(exp_of(plus(a, a)), one);
        let far = with_sign_of(minus(one, over(splat(2.0), e)), x);
        select(greater(a, splat(0.625)), far, near)
    }

    fn relu_of(x: F32s) -> F32s {
        // In this order NaN stays.
        greatest(zero(), x)
    }
}
