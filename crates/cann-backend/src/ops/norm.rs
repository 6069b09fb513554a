//! Normalisation: RMS_NORM NORM L2_NORM GROUP_NORM.

use acl_sys::*;

use super::operand::axis;
use super::steps::scalar;
use super::*;
use crate::lower::{Arg, TensorArg};
use crate::refuse;

const EPS: ParamDef =
    ParamDef { name: "eps", default: Default::Num(1e-5), doc: "added to the mean square or variance" };

pub(super) static OPS: &[OpDef] = &[
    OpDef {
        name: "RMS_NORM",
        src: &["x"],
        params: &[EPS],
        doc: "x / sqrt(mean(x^2) + eps) along ne0",
        types: "f32",
        infer,
        plan: plan_rms_norm,
    },
    OpDef {
        name: "NORM",
        src: &["x"],
        params: &[EPS],
        doc: "(x - mean) / sqrt(variance + eps) along ne0",
        types: "f32",
        infer,
        plan: plan_norm,
    },
    OpDef {
        name: "L2_NORM",
        src: &["x"],
        params: &[ParamDef { name: "eps", default: Default::Num(1e-5), doc: "least divisor" }],
        doc: "x / max(sqrt(sum(x^2)), eps) along ne0",
        types: "f32",
        infer,
        plan: plan_l2_norm,
    },
    OpDef {
        name: "GROUP_NORM",
        src: &["x"],
        params: &[
            ParamDef { name: "n_groups", default: Default::Required, doc: "groups that ne2 is divided into" },
            ParamDef { name: "eps", default: Default::Num(1e-6), doc: "added to the variance" },
        ],
        doc: "(x - mean) / sqrt(variance + eps) over ne0, ne1 and ceil(ne2 / n_groups) channels",
        types: "f32",
        infer: |cx| {
            cx.require(cx.params.i64("n_groups") >= 1, || "n_groups must be at least 1".into())?;
            infer(cx)
        },
        plan: plan_group_norm,
    },
];

fn infer(cx: &InferCx) -> Result<Inferred, Error> {
    cx.is(0, &[GgmlType::F32])?;
    cx.require(cx.params.f64("eps") >= 0.0, || format!("eps must be at least 0, not {}", cx.params.f64("eps")))?;
    cx.like(0)
}

fn eps(cx: &NodeCx) -> f64 {
    f64::from(cx.params().f32("eps"))
}

fn plan_rms_norm(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let x = cx.src(0).arg()?;
    let ones = ones(lower, x.ne[0])?;
    rms_norm(lower, &x, &ones, eps(cx), &cx.dst.arg()?)
}

/// A row of ones, for operators that insist on a weight. All rows of one length in a plan are one constant.
fn ones(lower: &mut Lower, len: i64) -> Result<TensorArg, Unsupported> {
    super::steps::listed(len)?;
    Ok(lower.constant_f32(&vec![1.0; len as usize], &[len]))
}

fn rms_norm(lower: &mut Lower, x: &TensorArg, gamma: &TensorArg, eps: f64, out: &TensorArg) -> Result<(), Unsupported> {
    let rstd = lower.scratch(ACL_FLOAT, &[1, x.ne[1], x.ne[2], x.ne[3]]);
    lower.call(
        AclOp::aclnnRmsNorm,
        [x.clone().into(), gamma.clone().into(), Arg::F64(eps), out.clone().into(), rstd.into()],
    )
}

/// An RMS_NORM and the MUL by a packed f32 row of weights that is its only reader, as one call into the result of MUL.
pub fn rms_norm_mul(
    norm: &Node,
    x: &Operand,
    weight: &Operand,
    dst: &Operand,
    lower: &mut Lower,
) -> Result<(), Unsupported> {
    rms_norm(lower, &x.arg()?, &gamma(weight)?, f64::from(norm.params.f32("eps")), &dst.arg()?)
}

/// A packed f32 row of weights as its operator wants it.
fn gamma(weight: &Operand) -> Result<TensorArg, Unsupported> {
    let weight = weight.arg()?;
    Ok(weight.view(&weight.ne[..1], &weight.nb[..1], 0))
}

/// The sum of two packed f32 tensors of one shape, and an RMS_NORM of it (times a row of weights), as one call.
pub fn add_rms_norm(
    norm: &Node,
    [a, b]: [&Operand; 2],
    weight: Option<&Operand>,
    [sum, dst]: [&Operand; 2],
    lower: &mut Lower,
) -> Result<(), Unsupported> {
    let (a, b, sum, out) = (a.arg()?, b.arg()?, sum.arg()?, dst.arg()?);
    let gamma = match weight {
        Some(weight) => gamma(weight)?,
        None => ones(lower, a.ne[0])?,
    };
    let rstd = lower.scratch(ACL_FLOAT, &[1, a.ne[1], a.ne[2], a.ne[3]]);
    let eps = Arg::F64(f64::from(norm.params.f32("eps")));
    lower.call(AclOp::aclnnAddRmsNorm, [a.into(), b.into(), gamma.into(), eps, out.into(), rstd.into(), sum.into()])
}

fn plan_norm(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let x = cx.src(0).arg()?;
    layer_norm(lower, &x, eps(cx), &cx.dst.arg()?)
}

fn layer_norm(lower: &mut Lower, x: &TensorArg, eps: f64, out: &TensorArg) -> Result<(), Unsupported> {
    let shape = Arg::Ints(vec![x.ne[0]]);
    let none = || Arg::NoTensor;
    let (x, out) = (x.clone().into(), out.clone().into());
    lower.call(AclOp::aclnnLayerNorm, [x, shape, none(), none(), Arg::F64(eps), out, none(), none()])
}

fn plan_l2_norm(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let (x, out) = (cx.src(0).arg()?, cx.dst.arg()?);
    let norm = lower.scratch(ACL_FLOAT, &[1, x.ne[1], x.ne[2], x.ne[3]]);
    let along = Arg::Ints(vec![axis(0)]);
    lower.call(AclOp::aclnnNorm, [x.clone().into(), scalar(2.0), along, Arg::Bool(true), norm.clone().into()])?;
    let least = lower.scratch_like(&norm, ACL_FLOAT);
    lower.call(AclOp::aclnnClampMin, [norm.into(), scalar(cx.params().f32("eps")), least.clone().into()])?;
    lower.div(&x, &least, &out)
}

fn plan_group_norm(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let (x, out) = (cx.src(0).arg()?, cx.dst.arg()?);
    let x = lower.contiguous(&x)?;
    let (channels, batch, groups) = (x.ne[2], x.ne[3], cx.params().i64("n_groups"));
    let plane = x.ne[0] * x.ne[1];
    if channels % groups == 0 && eps(cx) > 0.0 {
        let [mean, rstd] = [(); 2].map(|()| lower.scratch(ACL_FLOAT, &[groups, batch]));
        let sizes = [batch, channels, plane, groups].map(Arg::I64);
        let args = [x.into(), Arg::NoTensor, Arg::NoTensor].into_iter().chain(sizes);
        let results = [Arg::F64(eps(cx)), out.into(), mean.into(), rstd.into()];
        return lower.call(AclOp::aclnnGroupNorm, args.chain(results));
    }
    // The last group is short or there is none: the vendor's operator has equal groups only.
    let per_group = (channels - 1) / groups + 1;
    let used = (channels + per_group - 1) / per_group;
    if used > 1024 {
        refuse!("{used} groups of unequal size");
    }
    for g in 0..used {
        let first = g * per_group;
        let len = per_group.min(channels - first) * plane;
        let group = |t: &TensorArg| t.view(&[len, batch], &[t.nb[0], t.nb[3]], first * plane * 4);
        layer_norm(lower, &group(&x), eps(cx), &group(&out))?;
    }
    Ok(())
}
