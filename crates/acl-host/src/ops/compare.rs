//! Comparison and selection. Results are 1 and 0 in whatever type the output has.

use super::binary;
use super::check::*;
use super::elementwise::{BLOCK, blocks, load, store};
use super::unary;
use crate::executor::{Checked, Op, Refusal, Run};
use crate::tensor::{DType, Domain, Lane, Scalar, Tensor, View, broadcast_shape, promote_scalar};

pub(crate) fn aclnnEqTensor(self_: &Tensor, other: &Tensor, out: &Tensor) -> Checked {
    let compared = promoted(self_, other)?;
    binary::apply(
        self_,
        other,
        out,
        compared,
        binary::each(|a: f32, b: f32| f32::from(u8::from(a == b))),
        |a, b| f64::from(u8::from(a == b)),
        |a, b| i64::from(a == b),
    )
}

pub(crate) fn aclnnInplaceEqTensor(self_ref: &Tensor, other: &Tensor) -> Checked {
    aclnnEqTensor(self_ref, other, self_ref)
}

pub(crate) fn aclnnGtScalar(self_: &Tensor, other: &Scalar, out: &Tensor) -> Checked {
    let compared = promote_scalar(self_.dtype(), other.dtype());
    let (by, by32, int) = (other.f64(), other.f32(), other.i64());
    // The result is a truth value, which goes into every type.
    let view_as = move |x: f32| f32::from(u8::from(x > by32));
    compare_scalar(self_, out, compared, view_as, move |x| f64::from(u8::from(x > by)), move |x| i64::from(x > int))
}

fn compare_scalar(
    x: &Tensor,
    out: &Tensor,
    compared: DType,
    f32: impl Fn(f32) -> f32 + Send + Sync + 'static,
    f64: impl Fn(f64) -> f64 + Send + Sync + 'static,
    i64: impl Fn(i64) -> i64 + Send + Sync + 'static,
) -> Checked {
    not_packed("self", x)?;
    not_packed("out", out)?;
    shape_is("out", out, x.dims())?;
    if out.is_empty() {
        return Ok(Op::nothing());
    }
    let (x, out) = (x.view(), out.view());
    Ok(match compared.domain() {
        Domain::F32 => Op::new(0, move |run| super::elementwise::map::<f32>(run, x, out, unary::each(&f32))),
        Domain::F64 => Op::new(0, move |run| super::elementwise::map::<f64>(run, x, out, unary::each(&f64))),
        Domain::I64 => Op::new(0, move |run| super::elementwise::map::<i64>(run, x, out, unary::each(&i64))),
    })
}

pub(crate) fn aclnnSWhere(condition: &Tensor, self_: &Tensor, other: &Tensor, out: &Tensor) -> Checked {
    ensure(matches!(condition.dtype(), DType::Bool | DType::U8), || {
        format!("condition is {:?}, needed is BOOL or U8", condition.dtype())
    })?;
    for (name, t) in [("self", self_), ("other", other), ("out", out)] {
        not_packed(name, t)?;
    }
    let result = promoted(self_, other)?;
    convertible(result, out)?;
    let shape = broadcast_shape(self_.dims(), other.dims())
        .and_then(|shape| broadcast_shape(&shape, condition.dims()))
        .ok_or_else(|| Refusal::invalid("condition, self and other do not broadcast"))?;
    shape_is("out", out, &shape)?;
    if out.is_empty() {
        return Ok(Op::nothing());
    }
    let which = broadcast("condition", condition, &shape)?;
    let (a, b) = (broadcast("self", self_, &shape)?, broadcast("other", other, &shape)?);
    let out = out.view();
    Ok(match result.domain() {
        Domain::F32 => Op::new(0, move |run| select::<f32>(run, which, a, b, out)),
        Domain::F64 => Op::new(0, move |run| select::<f64>(run, which, a, b, out)),
        Domain::I64 => Op::new(0, move |run| select::<i64>(run, which, a, b, out)),
    })
}

fn select<N: Lane>(run: &Run, which: View, a: View, b: View, out: View) {
    let alias = [a.overlaps(&out), b.overlaps(&out)];
    let (which, a, b, out) = (which.collapsed(), a.collapsed(), b.collapsed(), out.collapsed());
    run.split_elements(out.numel(), |range| {
        let mut condition = [0i64; BLOCK];
        let (mut as_, mut bs, mut os) = ([N::default(); BLOCK], [N::default(); BLOCK], [N::default(); BLOCK]);
        for (start, len) in blocks(range, &[&which, &a, &b, &out]) {
            which.read_copy(start, &mut condition[..len]);
            let a = load(&a, alias[0], start, &mut as_[..len]);
            let b = load(&b, alias[1], start, &mut bs[..len]);
            store(&out, start, &mut os[..len], |os| {
                for (i, o) in os.iter_mut().enumerate() {
                    *o = if condition[i] != 0 { a[i] } else { b[i] };
                }
            });
        }
    });
}
