//! Sums, means and comparisons along rows: SUM SUM_ROWS MEAN ARGMAX COUNT_EQUAL CUMSUM CROSS_ENTROPY_LOSS.

use acl_sys::*;

use super::operand::axis;
use super::*;
use crate::lower::{Arg, TensorArg};

const FLOATS: &str = "f32, f16, bf16; sums are f32, rounded once";

pub(super) static OPS: &[OpDef] = &[
    OpDef {
        name: "SUM",
        src: &["x"],
        params: &[],
        doc: "the sum of all elements",
        types: FLOATS,
        infer: |cx| {
            cx.float(0)?;
            cx.packed(cx.src(0).ty, [1; 4])
        },
        plan: |cx, lower| sum(cx, lower, (0..4).map(axis).collect()),
    },
    OpDef {
        name: "SUM_ROWS",
        src: &["x"],
        params: &[],
        doc: "the sum of each row",
        types: FLOATS,
        infer: |cx| {
            cx.float(0)?;
            let x = cx.src(0);
            cx.packed(x.ty, [1, x.ne[1], x.ne[2], x.ne[3]])
        },
        plan: |cx, lower| sum(cx, lower, vec![axis(0)]),
    },
    OpDef {
        name: "MEAN",
        src: &["x"],
        params: &[],
        doc: "the mean of each row",
        types: "f32, f16, bf16; the result is f32",
        infer: |cx| {
            cx.float(0)?;
            let x = cx.src(0);
            cx.packed(GgmlType::F32, [1, x.ne[1], x.ne[2], x.ne[3]])
        },
        plan: plan_mean,
    },
    OpDef {
        name: "ARGMAX",
        src: &["x"],
        params: &[],
        doc: "the place of the largest element of each row, [ne1, ne2, ne3]; which of equal ones is the device's choice",
        types: "f32, f16, bf16; the result is i32",
        infer: infer_argmax,
        plan: plan_argmax,
    },
    OpDef {
        name: "COUNT_EQUAL",
        src: &["a", "b"],
        params: &[],
        doc: "how many elements of a and b are equal",
        types: "i32; the result is i64",
        infer: |cx| {
            cx.is(0, &[GgmlType::I32])?;
            cx.is(1, &[GgmlType::I32])?;
            cx.require(cx.src(0).ne == cx.src(1).ne, || "a and b must have the same shape".into())?;
            cx.packed(GgmlType::I64, [1; 4])
        },
        plan: plan_count_equal,
    },
    OpDef {
        name: "CUMSUM",
        src: &["x"],
        params: &[],
        doc: "the sum of each row up to and with each element",
        types: FLOATS,
        infer: |cx| {
            cx.float(0)?;
            cx.like(0)
        },
        plan: plan_cumsum,
    },
    OpDef {
        name: "CROSS_ENTROPY_LOSS",
        src: &["logits", "labels"],
        params: &[],
        doc: "minus the sum of labels log(softmax(logits)), over the number of rows",
        types: "f32",
        infer: infer_cross_entropy,
        plan: plan_cross_entropy,
    },
];

/// Into f32 and rounded once, whatever the type of the result.
fn sum(cx: &NodeCx, lower: &mut Lower, dims: Vec<i64>) -> Result<(), Unsupported> {
    let (x, out) = (cx.src(0).arg()?, cx.dst.arg()?);
    if cx.src(0).is_empty() {
        return lower.fill_scalar(&out, 0.0);
    }
    let total = if out.dtype == ACL_FLOAT { out.clone() } else { lower.scratch_like(&out, ACL_FLOAT) };
    reduce_sum(lower, &x, dims, &total)?;
    if total == out { Ok(()) } else { lower.assign(&out, &total) }
}

/// Sums over ACL axes that stay as dimensions of 1, in the type of `out`.
fn reduce_sum(lower: &mut Lower, x: &TensorArg, dims: Vec<i64>, out: &TensorArg) -> Result<(), Unsupported> {
    let dtype = Arg::DType(out.dtype);
    lower.call(AclOp::aclnnReduceSum, [x.clone().into(), Arg::Ints(dims), Arg::Bool(true), dtype, out.clone().into()])
}

fn plan_mean(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let (x, out) = (cx.src(0).arg()?, cx.dst.arg()?);
    if cx.src(0).is_empty() {
        return lower.fill_scalar(&out, f32::NAN);
    }
    let dims = Arg::Ints(vec![axis(0)]);
    lower.call(AclOp::aclnnMean, [x.into(), dims, Arg::Bool(true), Arg::DType(ACL_FLOAT), out.into()])
}

fn infer_argmax(cx: &InferCx) -> Result<Inferred, Error> {
    cx.float(0)?;
    let x = cx.src(0);
    cx.require((1..=i64::from(i32::MAX)).contains(&x.ne[0]), || "rows must have 1 to 2147483647 elements".into())?;
    cx.packed(GgmlType::I32, [x.ne[1], x.ne[2], x.ne[3], 1])
}

fn plan_argmax(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let (x, out) = (cx.src(0).arg()?, cx.dst.arg()?);
    let out = out.view(&out.ne[..3], &out.nb[..3], 0);
    lower.call(AclOp::aclnnArgMax, [x.into(), Arg::I64(axis(0)), Arg::Bool(false), out.into()])
}

fn plan_count_equal(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let (a, b, out) = (cx.src(0).arg()?, cx.src(1).arg()?, cx.dst.arg()?);
    if cx.src(0).is_empty() {
        return lower.call(AclOp::aclnnInplaceZero, [out.into()]);
    }
    let equal = lower.scratch_like(&a, ACL_INT32);
    lower.call(AclOp::aclnnEqTensor, [a.into(), b.into(), equal.clone().into()])?;
    reduce_sum(lower, &equal, (0..4).map(axis).collect(), &out)
}

fn plan_cumsum(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let (x, out) = (cx.src(0).arg()?, cx.dst.arg()?);
    let sums = if out.dtype == ACL_FLOAT { out.clone() } else { lower.scratch_like(&out, ACL_FLOAT) };
    let args = [x.into(), Arg::I64(axis(0)), Arg::DType(ACL_FLOAT), sums.clone().into()];
    lower.call(AclOp::aclnnCumsum, args)?;
    if sums == out { Ok(()) } else { lower.assign(&out, &sums) }
}

fn infer_cross_entropy(cx: &InferCx) -> Result<Inferred, Error> {
    cx.is(0, &[GgmlType::F32])?;
    cx.is(1, &[GgmlType::F32])?;
    let (logits, labels) = (cx.src(0), cx.src(1));
    cx.require(logits.ne == labels.ne, || "logits and labels must have the same shape".into())?;
    cx.require(!logits.is_empty(), || "there must be at least one logit".into())?;
    cx.packed(GgmlType::F32, [1; 4])
}

fn plan_cross_entropy(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let (logits, labels, out) = (cx.src(0).arg()?, cx.src(1).arg()?, cx.dst.arg()?);
    let (logits, labels) = (lower.as_rows(&logits)?, lower.as_rows(&labels)?);
    let rows = logits.ne[1];
    let losses = lower.scratch(ACL_FLOAT, &[rows]);
    let gradient = lower.scratch_like(&logits, ACL_FLOAT);
    let args = [logits.into(), labels.into(), losses.clone().into(), gradient.into()];
    lower.call(AclOp::aclnnSoftmaxCrossEntropyWithLogits, args)?;
    let out = out.view(&[1], &out.nb[..1], 0);
    let dims = Arg::Ints(vec![axis(0)]);
    lower.call(AclOp::aclnnMean, [losses.into(), dims, Arg::Bool(true), Arg::DType(ACL_FLOAT), out.into()])
}
