//! Operators of one tensor that give a tensor of the same type and shape, element by element.

use acl_sys::*;

use super::steps::{ONE, scalar};
use super::*;
use crate::lower::{Arg, ScalarArg, TensorArg};

const FLOATS: &str = "f32, f16, bf16";

/// A row whose lowering is one operator.
macro_rules! direct {
    ($name:literal, $op:ident, $doc:literal) => {
        row!($name, $doc, |cx, lower| one(cx, lower, AclOp::$op))
    };
}

macro_rules! row {
    ($name:literal, $doc:literal, $plan:expr) => {
        row!($name, &[], $doc, $plan)
    };
    ($name:literal, $params:expr, $doc:literal, $plan:expr) => {
        OpDef { name: $name, src: &["x"], params: $params, doc: $doc, types: FLOATS, infer: like, plan: $plan }
    };
}

pub(super) static OPS: &[OpDef] = &[
    direct!("ABS", aclnnAbs, "|x|"),
    direct!("NEG", aclnnNeg, "-x"),
    direct!("SGN", aclnnSign, "-1, 0 or 1 by the sign of x"),
    row!("STEP", "1 where x > 0, else 0", |cx, lower| {
        lower.call(AclOp::aclnnGtScalar, [cx.src(0).arg()?.into(), scalar(0.0), cx.dst.arg()?.into()])
    }),
    direct!("TANH", aclnnTanh, "tanh(x)"),
    row!("ELU", "x > 0 ? x : exp(x) - 1", |cx, lower| {
        lower.call(AclOp::aclnnElu, [cx.src(0).arg()?.into(), ONE, ONE, ONE, cx.dst.arg()?.into()])
    }),
    direct!("RELU", aclnnRelu, "max(x, 0)"),
    direct!("SIGMOID", aclnnSigmoid, "1 / (1 + exp(-x))"),
    row!("GELU", "0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))", |cx, lower| activation(
        cx,
        lower,
        Activation::Gelu
    )),
    row!("GELU_ERF", "0.5 x (1 + erf(x / sqrt(2)))", |cx, lower| activation(cx, lower, Activation::GeluErf)),
    row!("GELU_QUICK", "x / (1 + exp(-1.702 x))", |cx, lower| activation(cx, lower, Activation::GeluQuick)),
    row!("SILU", "x / (1 + exp(-x))", |cx, lower| activation(cx, lower, Activation::Silu)),
    direct!("HARDSWISH", aclnnHardswish, "x min(max(x + 3, 0), 6) / 6"),
    direct!("HARDSIGMOID", aclnnHardsigmoid, "min(max((x + 3) / 6, 0), 1)"),
    direct!("EXP", aclnnExp, "exp(x)"),
    row!("EXPM1", "exp(x) - 1", |cx, lower| {
        if lower.caps.api.has_op(AclOp::aclnnExpm1) {
            return one(cx, lower, AclOp::aclnnExpm1);
        }
        let (x, out) = (cx.src(0).f32(lower)?, cx.dst.arg()?);
        let t = lower.scratch_like(&x, ACL_FLOAT);
        lower.unary(AclOp::aclnnExp, &x, &t)?;
        lower.adds(&t, -1.0, &out)
    }),
    row!("SOFTPLUS", "x > 20 ? x : ln(1 + exp(x))", |cx, lower| {
        lower.call(AclOp::aclnnSoftplus, [cx.src(0).arg()?.into(), ONE, scalar(20.0), cx.dst.arg()?.into()])
    }),
    row!(
        "XIELU",
        &[
            ParamDef { name: "alpha_n_eff", default: Default::Required, doc: "effective alpha for x <= 0" },
            ParamDef { name: "alpha_p_eff", default: Default::Required, doc: "effective alpha for x > 0" },
            ParamDef { name: "beta", default: Default::Required, doc: "slope of the linear part" },
            ParamDef { name: "eps", default: Default::Required, doc: "upper bound of the exponent" },
        ],
        "x > 0 ? alpha_p x^2 + beta x : (expm1(min(x, eps)) - x) alpha_n + beta x",
        xielu
    ),
    direct!("FLOOR", aclnnFloor, "largest integer <= x"),
    direct!("CEIL", aclnnCeil, "smallest integer >= x"),
    direct!("TRUNC", aclnnTrunc, "x without its fraction"),
    row!("ROUND", "nearest integer, halves away from zero", round),
    row!("SQR", "x^2", |cx, lower| {
        let x = cx.src(0).arg()?;
        lower.mul(&x, &x, &cx.dst.arg()?)
    }),
    direct!("SQRT", aclnnSqrt, "sqrt(x)"),
    direct!("LOG", aclnnLog, "natural logarithm of x"),
    direct!("SIN", aclnnSin, "sin(x)"),
    direct!("COS", aclnnCos, "cos(x)"),
    row!(
        "LEAKY_RELU",
        &[ParamDef { name: "negative_slope", default: Default::Num(0.01), doc: "slope for x < 0" }],
        "x > 0 ? x : negative_slope x",
        |cx, lower| {
            let slope = scalar(cx.params().f32("negative_slope"));
            lower.call(AclOp::aclnnLeakyRelu, [cx.src(0).arg()?.into(), slope, cx.dst.arg()?.into()])
        }
    ),
    row!(
        "CLAMP",
        &[
            ParamDef { name: "min", default: Default::Num(f64::NEG_INFINITY), doc: "lower bound" },
            ParamDef { name: "max", default: Default::Num(f64::INFINITY), doc: "upper bound" },
        ],
        "max(min(x, max), min); x itself is left alone",
        |cx, lower| {
            let (min, max) = (scalar(cx.params().f32("min")), scalar(cx.params().f32("max")));
            lower.call(AclOp::aclnnClamp, [cx.src(0).arg()?.into(), min, max, cx.dst.arg()?.into()])
        }
    ),
    row!(
        "SCALE",
        &[
            ParamDef { name: "s", default: Default::Num(1.0), doc: "factor" },
            ParamDef { name: "b", default: Default::Num(0.0), doc: "bias" },
        ],
        "s x + b",
        |cx, lower| {
            let (out, b) = (cx.dst.arg()?, cx.params().f32("b"));
            lower.muls(&cx.src(0).arg()?, cx.params().f32("s"), &out)?;
            if b == 0.0 { Ok(()) } else { lower.call(AclOp::aclnnInplaceAdds, [out.into(), scalar(b), ONE]) }
        }
    ),
];

fn like(cx: &InferCx) -> Result<Inferred, Error> {
    cx.float(0)?;
    cx.like(0)
}

fn one(cx: &NodeCx, lower: &mut Lower, op: AclOp) -> Result<(), Unsupported> {
    lower.unary(op, &cx.src(0).arg()?, &cx.dst.arg()?)
}

/// Functions that are operators here and the first half of a gated unit in `glu.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activation {
    Relu,
    Gelu,
    GeluErf,
    GeluQuick,
    Silu,
}

fn activation(cx: &NodeCx, lower: &mut Lower, f: Activation) -> Result<(), Unsupported> {
    activate(lower, f, &cx.src(0).arg()?, &cx.dst.arg()?)
}

/// `out = f(x)`; they may be the same memory.
pub(super) fn activate(lower: &mut Lower, f: Activation, x: &TensorArg, out: &TensorArg) -> Result<(), Unsupported> {
    match f {
        Activation::Relu => lower.unary(AclOp::aclnnRelu, x, out),
        Activation::Gelu => lower.unary(AclOp::aclnnGelu, x, out),
        Activation::Silu => lower.unary(AclOp::aclnnSilu, x, out),
        Activation::GeluErf => lower.call(AclOp::aclnnGeluV2, [x.clone().into(), Arg::I64(0), out.clone().into()]),
        Activation::GeluQuick if lower.caps.api.has_op(AclOp::aclnnFastGelu) => {
            lower.unary(AclOp::aclnnFastGelu, x, out)
        }
        Activation::GeluQuick => {
            let t = lower.scratch_like(x, ACL_FLOAT);
            lower.muls(x, 1.702, &t)?;
            lower.unary(AclOp::aclnnSigmoid, &t, &t)?;
            lower.mul(x, &t, out)
        }
    }
}

fn xielu(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let p = cx.params();
    let x = cx.src(0).f32(lower)?;
    let positive = lower.scratch_like(&x, ACL_FLOAT);
    lower.mul(&x, &x, &positive)?;
    lower.muls(&positive, p.f32("alpha_p_eff"), &positive)?;
    let negative = lower.scratch_like(&x, ACL_FLOAT);
    let bounds = [scalar(f32::NEG_INFINITY), scalar(p.f32("eps"))];
    let [low, high] = bounds;
    lower.call(AclOp::aclnnClamp, [x.clone().into(), low, high, negative.clone().into()])?;
    lower.unary(AclOp::aclnnExpm1, &negative, &negative)?;
    lower.sub(&negative, &x, 1.0, &negative)?;
    lower.muls(&negative, p.f32("alpha_n_eff"), &negative)?;
    let above = lower.scratch_like(&x, ACL_BOOL);
    lower.call(AclOp::aclnnGtScalar, [x.clone().into(), scalar(0.0), above.clone().into()])?;
    let chosen = lower.scratch_like(&x, ACL_FLOAT);
    lower.call(AclOp::aclnnSWhere, [above.into(), positive.into(), negative.into(), chosen.clone().into()])?;
    let beta = Arg::Scalar(ScalarArg::F32(p.f32("beta")));
    lower.call(AclOp::aclnnAdd, [chosen.into(), x.into(), beta, cx.dst.arg()?.into()])
}

/// The vendor's Round takes halves to even. The fraction and its double are exact, so this rounds as C's `round` does.
fn round(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let (x, out) = (cx.src(0).arg()?, cx.dst.arg()?);
    let whole = lower.scratch_like(&x, x.dtype);
    let rest = lower.scratch_like(&x, x.dtype);
    lower.unary(AclOp::aclnnTrunc, &x, &whole)?;
    lower.sub(&x, &whole, 1.0, &rest)?;
    lower.muls(&rest, 2.0, &rest)?;
    lower.unary(AclOp::aclnnTrunc, &rest, &rest)?;
    lower.add(&whole, &rest, 1.0, &out)
}
