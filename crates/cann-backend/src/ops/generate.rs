//! Tensors out of parameters: ARANGE FILL TIMESTEP_EMBEDDING.

use acl_sys::*;

use super::*;
use crate::lower::{Arg, ScalarArg};

pub(super) static OPS: &[OpDef] = &[
    OpDef {
        name: "ARANGE",
        src: &[],
        params: &[
            ParamDef { name: "start", default: Default::Num(0.0), doc: "first value" },
            ParamDef { name: "stop", default: Default::Required, doc: "values end before this one" },
            ParamDef { name: "step", default: Default::Num(1.0), doc: "distance of neighbours" },
        ],
        doc: "start + i step for i from 0 to ceil((stop - start) / step) - 1",
        types: "f32",
        infer: infer_arange,
        plan: plan_arange,
    },
    OpDef {
        name: "FILL",
        src: &["x"],
        params: &[ParamDef { name: "c", default: Default::Required, doc: "the value" }],
        doc: "a packed tensor of the type and shape of x with the value c everywhere",
        types: "f32, f16, bf16, i32",
        infer: |cx| {
            cx.is(0, &[GgmlType::F32, GgmlType::F16, GgmlType::Bf16, GgmlType::I32])?;
            cx.like(0)
        },
        plan: plan_fill,
    },
    OpDef {
        name: "TIMESTEP_EMBEDDING",
        src: &["timesteps"],
        params: &[
            ParamDef { name: "dim", default: Default::Required, doc: "length of an embedding" },
            ParamDef { name: "max_period", default: Default::Num(10000.0), doc: "the slowest wave's period over 2 pi" },
        ],
        doc: "with h = dim / 2 and f(j) = exp(-ln(max_period) j / h): cos(t f(j)) for j < h, then sin(t f(j)); an odd dim ends in 0",
        types: "f32",
        infer: infer_timestep,
        plan: plan_timestep,
    },
];

/// Whole numbers stay exact in tensors of whole numbers.
fn plan_fill(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let out = cx.dst.arg()?;
    if out.dtype != ACL_INT32 {
        return lower.fill_scalar(&out, cx.params().f32("c"));
    }
    let value = Arg::Scalar(ScalarArg::I64(cx.params().i64("c")));
    lower.call(AclOp::aclnnInplaceFillScalar, [out.into(), value])
}

/// Indices up to here are whole numbers in f32.
const EXACT: i64 = 1 << 24;

fn infer_arange(cx: &InferCx) -> Result<Inferred, Error> {
    let (start, stop, step) = (cx.params.f32("start"), cx.params.f32("stop"), cx.params.f32("step"));
    let count = ((stop - start) / step).ceil();
    cx.require(step != 0.0 && (0.0..=EXACT as f32).contains(&count), || {
        format!("start {start}, stop {stop}, step {step} must give 0 to {EXACT} values")
    })?;
    cx.packed(GgmlType::F32, [count as i64, 1, 1, 1])
}

/// Whole numbers first, because the operator's own count of values is subject to rounding.
fn plan_arange(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let out = cx.dst.arg()?;
    let n = out.ne[0];
    let out = out.view(&[n], &out.nb[..1], 0);
    let (start, step) = (cx.params().f32("start"), cx.params().f32("step"));
    let bounds = [0.0, n as f32, 1.0].map(|v| Arg::Scalar(ScalarArg::F32(v)));
    lower.call(AclOp::aclnnArange, bounds.into_iter().chain([out.clone().into()]))?;
    if step != 1.0 {
        lower.muls(&out, step, &out)?;
    }
    if start != 0.0 {
        lower.adds(&out, start, &out)?;
    }
    Ok(())
}

fn infer_timestep(cx: &InferCx) -> Result<Inferred, Error> {
    cx.is(0, &[GgmlType::F32])?;
    let (dim, max_period) = (cx.params.i64("dim"), cx.params.f64("max_period"));
    cx.require(cx.src(0).ne[1..] == [1, 1, 1], || "timesteps must have one dimension".into())?;
    cx.require((1..=EXACT).contains(&dim), || format!("dim must be 1 to {EXACT}, not {dim}"))?;
    cx.require(max_period > 0.0, || format!("max_period must be greater than 0, not {max_period}"))?;
    cx.packed(GgmlType::F32, [dim, cx.src(0).ne[0], 1, 1])
}

fn plan_timestep(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let (t, out) = (cx.src(0).arg()?, cx.dst.arg()?);
    let (dim, n) = (out.ne[0], out.ne[1]);
    let half = dim / 2;
    let out = out.view(&[dim, n], &out.nb[..2], 0);
    if dim % 2 == 1 {
        lower.fill_scalar(&out.narrow(0, dim - 1, 1), 0.0)?;
    }
    if half == 0 {
        return Ok(());
    }
    let slope = -cx.params().f32("max_period").ln();
    let frequencies: Vec<f32> = (0..half).map(|j| (slope * j as f32 / half as f32).exp()).collect();
    let frequencies = lower.constant_f32(&frequencies, &[half, 1]);
    let angles = lower.scratch(ACL_FLOAT, &[half, n]);
    lower.mul(&t.view(&[1, n], &[t.nb[0], t.nb[0]], 0), &frequencies, &angles)?;
    lower.unary(AclOp::aclnnCos, &angles, &out.narrow(0, 0, half))?;
    lower.unary(AclOp::aclnnSin, &angles, &out.narrow(0, half, half))
}
