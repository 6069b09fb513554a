//! Operators of one tensor.
//!
//! Floating tensors compute in their own type (16-bit ones in f32, rounded once at the end). Integers compute as integers where
//! the function keeps them (`Abs`, `Relu`, `Floor`) and in f32 where it does not (`Exp`, `Sqrt`).

use super::check::*;
use super::elementwise::map;
use crate::executor::{Checked, Op};
use crate::kernels::elementwise::{self as kernel, UnaryOp};
use crate::tensor::{DType, Domain, Scalar, Tensor, promote_scalar};

/// `out = f(x)` computed in type `result`.
pub(super) fn apply(
    x: &Tensor,
    out: &Tensor,
    result: DType,
    f32s: impl Fn(&[f32], &mut [f32]) + Send + Sync + 'static,
    f64: impl Fn(f64) -> f64 + Send + Sync + 'static,
    i64: impl Fn(i64) -> i64 + Send + Sync + 'static,
) -> Checked {
    not_packed("self", x)?;
    not_packed("out", out)?;
    shape_is("out", out, x.dims())?;
    convertible(result, out)?;
    if out.is_empty() {
        return Ok(Op::nothing());
    }
    let (x, out) = (x.view(), out.view());
    Ok(match result.domain() {
        Domain::F32 => Op::new(0, move |run| map::<f32>(run, x, out, &f32s)),
        Domain::F64 => Op::new(0, move |run| map::<f64>(run, x, out, each(&f64))),
        Domain::I64 => Op::new(0, move |run| map::<i64>(run, x, out, each(&i64))),
    })
}

/// A function of one element as a function of a block.
pub(super) fn each<N: Copy>(f: impl Fn(N) -> N) -> impl Fn(&[N], &mut [N]) {
    move |x, out| {
        for (o, x) in out.iter_mut().zip(x) {
            *o = f(*x);
        }
    }
}

/// A block function of the kernels.
fn kernel(op: UnaryOp) -> impl Fn(&[f32], &mut [f32]) + Send + Sync {
    let fns = kernel::current();
    move |x, out| fns.unary(op, x, out)
}

/// What a function that leaves the integers computes `x` in.
pub(super) fn float_type(x: &Tensor) -> DType {
    if x.dtype().is_float() { x.dtype() } else { DType::F32 }
}

/// Functions to floating results: one formula for both widths.
macro_rules! floats {
    ($($(#[$doc:meta])* $name:ident = |$x:ident| $f:expr;)*) => {$(
        $(#[$doc])*
        pub(crate) fn $name(self_: &Tensor, out: &Tensor) -> Checked {
            apply(self_, out, float_type(self_), each(|$x: f32| $f), |$x: f64| $f, |x| x)
        }
    )*};
}
floats! {
    aclnnCos = |x| x.cos();
    aclnnHardsigmoid = |x| (x / 6.0 + 0.5).clamp(0.0, 1.0);
    aclnnHardswish = |x| x * (x + 3.0).clamp(0.0, 6.0) / 6.0;
    aclnnExpm1 = |x| x.exp_m1();
    aclnnLog = |x| x.ln();
    aclnnReciprocal = |x| 1.0 / x;
    aclnnRsqrt = |x| 1.0 / x.sqrt();
    aclnnSin = |x| x.sin();
    aclnnSqrt = |x| x.sqrt();
}

/// Functions that take integers to integers.
macro_rules! keeping {
    ($($name:ident = |$x:ident| $f:expr, |$i:ident| $int:expr;)*) => {$(
        pub(crate) fn $name(self_: &Tensor, out: &Tensor) -> Checked {
            apply(self_, out, self_.dtype(), each(|$x: f32| $f), |$x: f64| $f, |$i: i64| $int)
        }
    )*};
}
keeping! {
    aclnnAbs = |x| x.abs(), |i| i.wrapping_abs();
    aclnnCeil = |x| x.ceil(), |i| i;
    aclnnFloor = |x| x.floor(), |i| i;
    aclnnNeg = |x| -x, |i| i.wrapping_neg();
    aclnnRound = |x| x.round_ties_even(), |i| i;
    aclnnSign = |x| if x > 0.0 { 1.0 } else if x < 0.0 { -1.0 } else { 0.0 }, |i| i.signum();
    aclnnTrunc = |x| x.trunc(), |i| i;
}

/// Functions with a vector kernel; the formula serves f64.
macro_rules! kernels {
    ($($name:ident = $op:ident, |$x:ident| $f:expr;)*) => {$(
        pub(crate) fn $name(self_: &Tensor, out: &Tensor) -> Checked {
            apply(self_, out, float_type(self_), kernel(UnaryOp::$op), |$x: f64| $f, |x| x)
        }
    )*};
}
kernels! {
    aclnnExp = Exp, |x| x.exp();
    aclnnFastGelu = GeluQuick, |x| x / (1.0 + (-1.702 * x).exp());
    aclnnGelu = Gelu, |x| gelu_tanh(x);
    aclnnSigmoid = Sigmoid, |x| 1.0 / (1.0 + (-x).exp());
    aclnnSilu = Silu, |x| x / (1.0 + (-x).exp());
    aclnnTanh = Tanh, |x| x.tanh();
}

pub(crate) fn aclnnGeluV2(x: &Tensor, approximate: i64, y: &Tensor) -> Checked {
    match approximate {
        0 => apply(x, y, float_type(x), kernel(UnaryOp::GeluErf), gelu_erf, |x| x),
        1 => aclnnGelu(x, y),
        _ => Err(crate::executor::Refusal::invalid(format!("approximate is {approximate}, needed is 0 or 1"))),
    }
}

pub(crate) fn aclnnRelu(self_: &Tensor, out: &Tensor) -> Checked {
    apply(self_, out, self_.dtype(), kernel(UnaryOp::Relu), |x| if x < 0.0 { 0.0 } else { x }, |i| i.max(0))
}

pub(crate) fn aclnnErf(self_: &Tensor, out: &Tensor) -> Checked {
    apply(self_, out, float_type(self_), each(|x: f32| erf(f64::from(x)) as f32), erf, |x| x)
}

pub(crate) fn aclnnElu(self_: &Tensor, alpha: &Scalar, scale: &Scalar, input_scale: &Scalar, out: &Tensor) -> Checked {
    let (alpha, scale, input) = (alpha.f64(), scale.f64(), input_scale.f64());
    let elu = move |x: f64| if x > 0.0 { scale * x } else { alpha * scale * (x * input).exp_m1() };
    let (alpha, scale, input) = (alpha as f32, scale as f32, input as f32);
    let elu32 = move |x: f32| if x > 0.0 { scale * x } else { alpha * scale * (x * input).exp_m1() };
    apply(self_, out, float_type(self_), each(elu32), elu, |x| x)
}

pub(crate) fn aclnnLeakyRelu(self_: &Tensor, negative_slope: &Scalar, out: &Tensor) -> Checked {
    let (slope, slope32) = (negative_slope.f64(), negative_slope.f32());
    apply(
        self_,
        out,
        float_type(self_),
        each(move |x: f32| if x > 0.0 { x } else { slope32 * x }),
        move |x| if x > 0.0 { x } else { slope * x },
        |x| x,
    )
}

pub(crate) fn aclnnSoftplus(self_: &Tensor, beta: &Scalar, threshold: &Scalar, out: &Tensor) -> Checked {
    let (beta, threshold) = (beta.f64(), threshold.f64());
    ensure(beta != 0.0, || "beta is zero".into())?;
    let softplus = move |x: f64| if beta * x > threshold { x } else { (beta * x).exp().ln_1p() / beta };
    let (beta, threshold) = (beta as f32, threshold as f32);
    let softplus32 = move |x: f32| if beta * x > threshold { x } else { (beta * x).exp().ln_1p() / beta };
    apply(self_, out, float_type(self_), each(softplus32), softplus, |x| x)
}

pub(crate) fn aclnnInplaceThreshold(self_ref: &Tensor, threshold: &Scalar, value: &Scalar) -> Checked {
    let result = promote_scalar(self_ref.dtype(), threshold.dtype());
    let (t32, v32) = (threshold.f32(), value.f32());
    let (t64, v64) = (threshold.f64(), value.f64());
    let (ti, vi) = (threshold.i64(), value.i64());
    apply(
        self_ref,
        self_ref,
        result,
        each(move |x: f32| if x > t32 { x } else { v32 }),
        move |x| if x > t64 { x } else { v64 },
        move |x| if x > ti { x } else { vi },
    )
}

macro_rules! in_place {
    ($($name:ident = $op:ident;)*) => {$(
        pub(crate) fn $name(self_ref: &Tensor) -> Checked {
            $op(self_ref, self_ref)
        }
    )*};
}
in_place! {
    aclnnInplaceCos = aclnnCos;
    aclnnInplaceExp = aclnnExp;
    aclnnInplaceSin = aclnnSin;
}

fn gelu_tanh(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
}

fn gelu_erf(x: f64) -> f64 {
    0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2))
}

/// The error function: its power series near zero, where the terms stay small, and the continued fraction of its complement
/// beyond; both to about 1e-15.
fn erf(x: f64) -> f64 {
    let a = x.abs();
    if a.is_nan() {
        return x;
    }
    if a < 2.0 {
        let (mut term, mut sum) = (a, a);
        for n in 1..60 {
            term *= -a * a / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        return (sum * std::f64::consts::FRAC_2_SQRT_PI).copysign(x);
    }
    let mut tail = 0.0;
    for n in (1..=60).rev() {
        tail = f64::from(n) / 2.0 / (a + tail);
    }
    (1.0 - (-a * a).exp() / (a + tail) / std::f64::consts::PI.sqrt()).copysign(x)
}
