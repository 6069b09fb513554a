//! Gated units: a function of one half, times the other half.

use acl_sys::*;

use super::steps::scalar;
use super::unary::{Activation, activate};
use super::*;
use crate::lower::{Arg, TensorArg};

const SWAPPED: ParamDef = ParamDef {
    name: "swapped",
    default: Default::Bool(false),
    doc: "with one source: the function takes the second half",
};

macro_rules! row {
    ($name:literal, $doc:literal, $f:ident) => {
        OpDef {
            name: $name,
            src: &["x", "gate?"],
            params: &[SWAPPED],
            doc: $doc,
            types: "f32, f16, bf16",
            infer,
            plan: |cx, lower| plan(cx, lower, Activation::$f),
        }
    };
}

pub(super) static OPS: &[OpDef] = &[
    row!("REGLU", "relu(x) gate; with one source x and gate are its halves along ne0", Relu),
    row!("GEGLU", "gelu(x) gate (tanh form); with one source x and gate are its halves along ne0", Gelu),
    row!("GEGLU_ERF", "gelu(x) gate (erf form); with one source x and gate are its halves along ne0", GeluErf),
    row!("GEGLU_QUICK", "x / (1 + exp(-1.702 x)) gate; with one source x and gate are its halves along ne0", GeluQuick),
    row!("SWIGLU", "silu(x) gate; with one source x and gate are its halves along ne0", Silu),
    OpDef {
        name: "SWIGLU_OAI",
        src: &["x", "gate?"],
        params: &[
            SWAPPED,
            ParamDef { name: "alpha", default: Default::Num(1.702), doc: "factor inside the sigmoid" },
            ParamDef {
                name: "limit",
                default: Default::Num(7.0),
                doc: "bound of x from above and of gate on both sides",
            },
        ],
        doc: "a / (1 + exp(-alpha a)) (b + 1) with a = min(x, limit), b = clamp(gate, -limit, limit)",
        types: "f32, f16, bf16",
        infer,
        plan: plan_oai,
    },
];

fn infer(cx: &InferCx) -> Result<Inferred, Error> {
    cx.float(0)?;
    let x = cx.src(0);
    match cx.opt(1) {
        Some(gate) => {
            cx.require(gate.ty == x.ty && gate.ne == x.ne, || "x and gate must have the same type and shape".into())?;
            cx.like(0)
        }
        None => cx.packed(x.ty, [x.ne[0] / 2, x.ne[1], x.ne[2], x.ne[3]]),
    }
}

/// What the function takes, and what it is multiplied with.
fn halves(cx: &NodeCx) -> Result<[TensorArg; 2], Unsupported> {
    let x = cx.src(0).arg()?;
    if let Some(gate) = cx.opt(1) {
        return Ok([x, gate.arg()?]);
    }
    let n = x.ne[0] / 2;
    let (first, second) = (x.narrow(0, 0, n), x.narrow(0, n, n));
    Ok(if cx.params().bool("swapped") { [second, first] } else { [first, second] })
}

/// Both halves as one packed tensor, if that is how they lie.
fn joined(x: &TensorArg, gate: &TensorArg) -> Option<TensorArg> {
    let mut both = x.clone();
    both.ne[0] *= 2;
    let adjacent = x.mem == gate.mem && gate.offset == x.offset + (x.ne[0] * x.nb[0]) as u64;
    (adjacent && x.nb == gate.nb && both.is_packed()).then_some(both)
}

fn plan(cx: &NodeCx, lower: &mut Lower, f: Activation) -> Result<(), Unsupported> {
    let ([x, gate], out) = (halves(cx)?, cx.dst.arg()?);
    if let (Activation::Silu, Some(both)) = (f, joined(&x, &gate))
        && lower.caps.api.has_op(AclOp::aclnnSwiGlu)
    {
        return lower.call(AclOp::aclnnSwiGlu, [both.into(), Arg::I64(-1), out.into()]);
    }
    // 16-bit types are rounded once, at the end.
    let x = lower.to_dtype(&x, ACL_FLOAT)?;
    let t = if out.dtype == ACL_FLOAT { out.clone() } else { lower.scratch_like(&out, ACL_FLOAT) };
    activate(lower, f, &x, &t)?;
    lower.mul(&t, &gate, &out)
}

fn plan_oai(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let [x, gate] = halves(cx)?;
    let (alpha, limit) = (cx.params().f32("alpha"), cx.params().f32("limit"));
    let x = lower.to_dtype(&x, ACL_FLOAT)?;
    let gate = lower.to_dtype(&gate, ACL_FLOAT)?;
    let [a, b, s] = [(); 3].map(|()| lower.scratch_like(&x, ACL_FLOAT));
    lower.call(AclOp::aclnnClamp, [x.into(), scalar(f32::NEG_INFINITY), scalar(limit), a.clone().into()])?;
    lower.call(AclOp::aclnnClamp, [gate.into(), scalar(-limit), scalar(limit), b.clone().into()])?;
    lower.muls(&a, alpha, &s)?;
    lower.unary(AclOp::aclnnSigmoid, &s, &s)?;
    lower.mul(&a, &s, &s)?;
    lower.adds(&b, 1.0, &b)?;
    lower.mul(&s, &b, &cx.dst.arg()?)
}
