//! Arithmetic between a tensor and a scalar. The tensor's type decides, unless the scalar is of a higher kind.

use super::binary::int_pow;
use super::check::*;
use super::unary::{apply, each};
use crate::executor::{Checked, Refusal};
use crate::kernels::elementwise as kernel;
use crate::tensor::{DType, Scalar, Tensor, promote_scalar};

fn add(x: &Tensor, other: &Scalar, alpha: &Scalar, sign: f64, out: &Tensor) -> Checked {
    let result = promote_scalar(x.dtype(), other.dtype());
    ensure(!alpha.dtype().is_float() || result.is_float(), || {
        format!("alpha is {:?}, the tensor computes in {result:?}", alpha.dtype())
    })?;
    let by = other.f64() * alpha.f64() * sign;
    let int = other.i64().wrapping_mul(alpha.i64()).wrapping_mul(sign as i64);
    let fns = kernel::current();
    apply(
        x,
        out,
        result,
        move |x, out| fns.add_scalar(x, by as f32, out),
        move |x| x + by,
        move |x| x.wrapping_add(int),
    )
}

pub(crate) fn aclnnAdds(self_: &Tensor, other: &Scalar, alpha: &Scalar, out: &Tensor) -> Checked {
    add(self_, other, alpha, 1.0, out)
}

pub(crate) fn aclnnInplaceAdds(self_ref: &Tensor, other: &Scalar, alpha: &Scalar) -> Checked {
    add(self_ref, other, alpha, 1.0, self_ref)
}

pub(crate) fn aclnnSubs(self_: &Tensor, other: &Scalar, alpha: &Scalar, out: &Tensor) -> Checked {
    add(self_, other, alpha, -1.0, out)
}

pub(crate) fn aclnnInplaceSubs(self_ref: &Tensor, other: &Scalar, alpha: &Scalar) -> Checked {
    add(self_ref, other, alpha, -1.0, self_ref)
}

pub(crate) fn aclnnMuls(self_: &Tensor, other: &Scalar, out: &Tensor) -> Checked {
    let result = promote_scalar(self_.dtype(), other.dtype());
    let (by, by32, int) = (other.f64(), other.f32(), other.i64());
    let fns = kernel::current();
    apply(self_, out, result, move |x, out| fns.mul_scalar(x, by32, out), move |x| x * by, move |x| x.wrapping_mul(int))
}

pub(crate) fn aclnnInplaceMuls(self_ref: &Tensor, other: &Scalar) -> Checked {
    aclnnMuls(self_ref, other, self_ref)
}

pub(crate) fn aclnnDivs(self_: &Tensor, other: &Scalar, out: &Tensor) -> Checked {
    let promoted = promote_scalar(self_.dtype(), other.dtype());
    let result = if promoted.is_float() { promoted } else { DType::F32 };
    let (by, by32) = (other.f64(), other.f32());
    apply(self_, out, result, each(move |x: f32| x / by32), move |x| x / by, |x| x)
}

pub(crate) fn aclnnInplaceDivs(self_ref: &Tensor, other: &Scalar) -> Checked {
    aclnnDivs(self_ref, other, self_ref)
}

/// Where the lower bound is above the upper one it wins; NaN stays.
fn clamp(x: &Tensor, low: Option<&Scalar>, high: Option<&Scalar>, out: &Tensor) -> Checked {
    let mut result = x.dtype();
    for bound in [low, high].into_iter().flatten() {
        result = promote_scalar(result, bound.dtype());
    }
    macro_rules! bounded {
        ($ty:ty, $read:ident, $min:expr, $max:expr) => {{
            let (low, high) = (low.map_or($min, Scalar::$read), high.map_or($max, Scalar::$read));
            move |x: $ty| {
                let below = if x > high { high } else { x };
                if below < low { low } else { below }
            }
        }};
    }
    let f32 = bounded!(f32, f32, f32::NEG_INFINITY, f32::INFINITY);
    let f64 = bounded!(f64, f64, f64::NEG_INFINITY, f64::INFINITY);
    let i64 = bounded!(i64, i64, i64::MIN, i64::MAX);
    apply(x, out, result, each(f32), f64, i64)
}

pub(crate) fn aclnnClamp(
    self_: &Tensor,
    clip_value_min: Option<&Scalar>,
    clip_value_max: Option<&Scalar>,
    out: &Tensor,
) -> Checked {
    if clip_value_min.is_none() && clip_value_max.is_none() {
        return Err(Refusal::null("clipValueMin and clipValueMax"));
    }
    clamp(self_, clip_value_min, clip_value_max, out)
}

pub(crate) fn aclnnClampMin(self_: &Tensor, clip_value_min: &Scalar, out: &Tensor) -> Checked {
    clamp(self_, Some(clip_value_min), None, out)
}

pub(crate) fn aclnnInplaceClampMax(self_ref: &Tensor, clip_value_max: &Scalar) -> Checked {
    clamp(self_ref, None, Some(clip_value_max), self_ref)
}

pub(crate) fn aclnnPowTensorScalar(self_: &Tensor, exponent: &Scalar, out: &Tensor) -> Checked {
    let result = promote_scalar(self_.dtype(), exponent.dtype());
    let (by, by32, int) = (exponent.f64(), exponent.f32(), exponent.i64());
    if by == 2.0 {
        return apply(self_, out, result, each(|x: f32| x * x), |x| x * x, |x| x.wrapping_mul(x));
    }
    apply(self_, out, result, each(move |x: f32| x.powf(by32)), move |x| x.powf(by), move |x| int_pow(x, int))
}

pub(crate) fn aclnnPowScalarTensor(self_: &Scalar, exponent: &Tensor, out: &Tensor) -> Checked {
    let result = promote_scalar(exponent.dtype(), self_.dtype());
    let (base, base32, int) = (self_.f64(), self_.f32(), self_.i64());
    apply(exponent, out, result, each(move |x: f32| base32.powf(x)), move |x| base.powf(x), move |x| int_pow(int, x))
}
