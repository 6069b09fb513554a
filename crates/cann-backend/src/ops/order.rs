//! Sorting: ARGSORT TOP_K.

use acl_sys::*;

use super::operand::axis;
use super::*;
use crate::lower::{Arg, TensorArg};

const TYPES: &[GgmlType] = &[GgmlType::F32, GgmlType::F16, GgmlType::Bf16, GgmlType::I32];
const NAMES: &str = "f32, f16, bf16, i32; the result is i32";

pub(super) static OPS: &[OpDef] = &[
    OpDef {
        name: "ARGSORT",
        src: &["x"],
        params: &[ParamDef { name: "order", default: Default::Str("asc"), doc: "'asc' or 'desc'" }],
        doc: "the places of each row's elements in the order of their values; equal ones in any order",
        types: NAMES,
        infer: |cx| {
            let order = cx.params.str("order").unwrap_or_default();
            cx.require(["asc", "desc"].contains(&order), || format!("order must be 'asc' or 'desc', not '{order}'"))?;
            indices(cx, cx.src(0).ne[0])
        },
        plan: plan_argsort,
    },
    OpDef {
        name: "TOP_K",
        src: &["x"],
        params: &[ParamDef { name: "k", default: Default::Required, doc: "how many" }],
        doc: "the places of the k largest elements of each row, in any order",
        types: NAMES,
        infer: |cx| {
            let k = cx.params.i64("k");
            cx.require((1..=cx.src(0).ne[0]).contains(&k), || format!("k must be 1 to x.ne0, not {k}"))?;
            indices(cx, k)
        },
        plan: plan_top_k,
    },
];

/// Rows of `n` places.
fn indices(cx: &InferCx, n: i64) -> Result<Inferred, Error> {
    cx.is(0, TYPES)?;
    let x = cx.src(0);
    cx.require(x.ne[0] <= i64::from(i32::MAX), || "rows must have up to 2147483647 elements".into())?;
    cx.packed(GgmlType::I32, [n, x.ne[1], x.ne[2], x.ne[3]])
}

/// The vendor's sorting gives 64-bit places.
fn into_places(
    lower: &mut Lower,
    out: &TensorArg,
    call: impl FnOnce(&mut Lower, TensorArg) -> Result<(), Unsupported>,
) -> Result<(), Unsupported> {
    if lower.caps.relaxed {
        return call(lower, out.clone());
    }
    let places = lower.scratch_like(out, ACL_INT64);
    call(lower, places.clone())?;
    lower.assign(out, &places)
}

fn plan_argsort(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let (x, out) = (cx.src(0).arg()?, cx.dst.arg()?);
    let descending = Arg::Bool(cx.params().str("order") == Some("desc"));
    into_places(lower, &out, |lower, places| {
        lower.call(AclOp::aclnnArgsort, [x.into(), Arg::I64(axis(0)), descending, places.into()])
    })
}

fn plan_top_k(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let (x, out) = (cx.src(0).arg()?, cx.dst.arg()?);
    let values = lower.scratch_like(&out, x.dtype);
    let (k, dim, yes) = (Arg::I64(out.ne[0]), Arg::I64(axis(0)), Arg::Bool(true));
    into_places(lower, &out, |lower, places| {
        lower.call(AclOp::aclnnTopk, [x.into(), k, dim, yes.clone(), yes, values.into(), places.into()])
    })
}
