//! Arithmetic between two tensors: broadcast to one shape, computed in the promoted type, converted to the output's.

use super::check::*;
use super::elementwise::zip;
use crate::executor::{Checked, Op, Refusal};
use crate::kernels::elementwise::{self as kernel, BinaryOp};
use crate::tensor::{DType, Domain, Scalar, Tensor, broadcast_shape};

/// `out = f(a, b)` computed in type `result`.
pub(super) fn apply(
    a: &Tensor,
    b: &Tensor,
    out: &Tensor,
    result: DType,
    f32s: impl Fn(&[f32], &[f32], &mut [f32]) + Send + Sync + 'static,
    f64: impl Fn(f64, f64) -> f64 + Send + Sync + 'static,
    i64: impl Fn(i64, i64) -> i64 + Send + Sync + 'static,
) -> Checked {
    not_packed("self", a)?;
    not_packed("other", b)?;
    not_packed("out", out)?;
    let shape = broadcast_shape(a.dims(), b.dims())
        .ok_or_else(|| Refusal::invalid(format!("shapes {:?} and {:?} do not broadcast", a.dims(), b.dims())))?;
    shape_is("out", out, &shape)?;
    if out.is_empty() {
        return Ok(Op::nothing());
    }
    let (a, b) = (broadcast("self", a, &shape)?, broadcast("other", b, &shape)?);
    let out = out.view();
    Ok(match result.domain() {
        Domain::F32 => Op::new(0, move |run| zip::<f32>(run, a, b, out, &f32s)),
        Domain::F64 => Op::new(0, move |run| zip::<f64>(run, a, b, out, each(&f64))),
        Domain::I64 => Op::new(0, move |run| zip::<i64>(run, a, b, out, each(&i64))),
    })
}

/// A function of two elements as a function of two blocks.
pub(super) fn each<N: Copy>(f: impl Fn(N, N) -> N) -> impl Fn(&[N], &[N], &mut [N]) {
    move |a, b, out| {
        for ((o, a), b) in out.iter_mut().zip(a).zip(b) {
            *o = f(*a, *b);
        }
    }
}

fn kernel(op: BinaryOp) -> impl Fn(&[f32], &[f32], &mut [f32]) + Send + Sync {
    let fns = kernel::current();
    move |a, b, out| fns.binary(op, a, b, out)
}

fn add(a: &Tensor, b: &Tensor, alpha: &Scalar, sign: f64, out: &Tensor) -> Checked {
    let result = promoted(a, b)?;
    ensure(!alpha.dtype().is_float() || result.is_float(), || {
        format!("alpha is {:?}, the tensors compute in {result:?}", alpha.dtype())
    })?;
    convertible(result, out)?;
    let (scale, int) = (alpha.f64() * sign, alpha.i64().wrapping_mul(sign as i64));
    let f64 = move |a, b| a + scale * b;
    let i64 = move |a: i64, b: i64| a.wrapping_add(int.wrapping_mul(b));
    let fns = kernel::current();
    match scale as f32 {
        1.0 => apply(a, b, out, result, kernel(BinaryOp::Add), f64, i64),
        -1.0 => apply(a, b, out, result, kernel(BinaryOp::Sub), f64, i64),
        scale => apply(a, b, out, result, move |a, b, out| fns.add_scaled(a, b, scale, out), f64, i64),
    }
}

pub(crate) fn aclnnAdd(self_: &Tensor, other: &Tensor, alpha: &Scalar, out: &Tensor) -> Checked {
    add(self_, other, alpha, 1.0, out)
}

pub(crate) fn aclnnInplaceAdd(self_ref: &Tensor, other: &Tensor, alpha: &Scalar) -> Checked {
    add(self_ref, other, alpha, 1.0, self_ref)
}

pub(crate) fn aclnnSub(self_: &Tensor, other: &Tensor, alpha: &Scalar, out: &Tensor) -> Checked {
    add(self_, other, alpha, -1.0, out)
}

pub(crate) fn aclnnInplaceSub(self_ref: &Tensor, other: &Tensor, alpha: &Scalar) -> Checked {
    add(self_ref, other, alpha, -1.0, self_ref)
}

pub(crate) fn aclnnMul(self_: &Tensor, other: &Tensor, out: &Tensor) -> Checked {
    let result = promoted(self_, other)?;
    convertible(result, out)?;
    apply(self_, other, out, result, kernel(BinaryOp::Mul), |a, b| a * b, i64::wrapping_mul)
}

pub(crate) fn aclnnInplaceMul(self_ref: &Tensor, other: &Tensor) -> Checked {
    aclnnMul(self_ref, other, self_ref)
}

pub(crate) fn aclnnDiv(self_: &Tensor, other: &Tensor, out: &Tensor) -> Checked {
    let promoted = promoted(self_, other)?;
    let result = if promoted.is_float() { promoted } else { DType::F32 };
    convertible(result, out)?;
    apply(self_, other, out, result, kernel(BinaryOp::Div), |a, b| a / b, |a, _| a)
}

pub(crate) fn aclnnInplaceDiv(self_ref: &Tensor, other: &Tensor) -> Checked {
    aclnnDiv(self_ref, other, self_ref)
}

pub(crate) fn aclnnMaximum(self_: &Tensor, other: &Tensor, out: &Tensor) -> Checked {
    let result = promoted(self_, other)?;
    convertible(result, out)?;
    // NaN wins from either side.
    let max32 = |a: f32, b: f32| if a > b || a.is_nan() { a } else { b };
    let max64 = |a: f64, b: f64| if a > b || a.is_nan() { a } else { b };
    apply(self_, other, out, result, each(max32), max64, i64::max)
}

pub(crate) fn aclnnInplacePowTensorTensor(self_: &Tensor, exponent: &Tensor) -> Checked {
    let result = promoted(self_, exponent)?;
    convertible(result, self_)?;
    apply(self_, exponent, self_, result, each(f32::powf), f64::powf, int_pow)
}

/// Integer power that wraps; a negative exponent rounds the reciprocal toward zero.
pub(super) fn int_pow(base: i64, exponent: i64) -> i64 {
    match (base, exponent) {
        (1, _) => 1,
        (-1, e) => 1 - 2 * (e & 1),
        (_, e) if e < 0 => 0,
        (b, e) => b.wrapping_pow(u32::try_from(e).unwrap_or(u32::MAX)),
    }
}
