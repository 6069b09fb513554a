//! Operators of two tensors, element by element, the second repeated over the first: ADD SUB MUL DIV ADD1 ADD_ID.

use acl_sys::*;

use super::operand::repeat_split;
use super::*;
use crate::lower::TensorArg;

macro_rules! row {
    ($name:literal, $doc:literal, $infer:expr, $call:expr) => {
        OpDef {
            name: $name,
            src: &["a", "b"],
            params: &[],
            doc: $doc,
            types: "f32, f16, bf16, i32 in any mix (the result has the type of a); b may be quantised",
            infer: $infer,
            plan: |cx, lower| plan(cx, lower, $call),
        }
    };
}

pub(super) static OPS: &[OpDef] = &[
    row!("ADD", "a + b, b repeated over a", infer, |l, a, b, out| l.add(a, b, 1.0, out)),
    row!("SUB", "a - b, b repeated over a", infer, |l, a, b, out| l.sub(a, b, 1.0, out)),
    row!("MUL", "a b element by element, b repeated over a", infer, |l, a, b, out| l.mul(a, b, out)),
    row!("DIV", "a / b element by element, b repeated over a", infer, |l, a, b, out| l.div(a, b, out)),
    row!("ADD1", "a + the single number b", infer_add1, |l, a, b, out| l.add(a, b, 1.0, out)),
    OpDef {
        name: "ADD_ID",
        src: &["a", "b", "ids"],
        params: &[],
        doc: "a[:, e, t] + b[:, ids[e, t]]",
        types: "f32; ids i32",
        infer: infer_add_id,
        plan: plan_add_id,
    },
];

const TYPES: &[GgmlType] = &[GgmlType::F32, GgmlType::F16, GgmlType::Bf16, GgmlType::I32];

fn infer(cx: &InferCx) -> Result<Inferred, Error> {
    cx.is(0, TYPES)?;
    let (a, b) = (cx.src(0), cx.src(1));
    let repeats = (0..4).all(|d| if b.ne[d] == 0 { a.ne[d] == 0 } else { a.ne[d] % b.ne[d] == 0 });
    cx.require(repeats || a.is_empty(), || "each extent of a must be a multiple of b's".into())?;
    cx.like(0)
}

fn infer_add1(cx: &InferCx) -> Result<Inferred, Error> {
    cx.is(0, TYPES)?;
    cx.require(cx.src(1).nelements() == 1, || "b must be a single number".into())?;
    cx.like(0)
}

fn plan(
    cx: &NodeCx,
    lower: &mut Lower,
    call: fn(&mut Lower, &TensorArg, &TensorArg, &TensorArg) -> Result<(), Unsupported>,
) -> Result<(), Unsupported> {
    let (a, out) = (cx.src(0).arg()?, cx.dst.arg()?);
    let b = cx.src(1).values(lower)?;
    let [a, b, out] = repeat_split(&a, &b, &out);
    call(lower, &a, &b, &out)
}

fn infer_add_id(cx: &InferCx) -> Result<Inferred, Error> {
    cx.is(0, &[GgmlType::F32])?;
    cx.is(1, &[GgmlType::F32])?;
    cx.is(2, &[GgmlType::I32])?;
    let (a, b, ids) = (cx.src(0), cx.src(1), cx.src(2));
    cx.require(a.ne[0] == b.ne[0], || "a and b must have rows of the same length".into())?;
    cx.require(a.ne[3] == 1 && b.ne[2] == 1 && b.ne[3] == 1, || "a has up to 3 dimensions, b up to 2".into())?;
    cx.require(ids.ne == [a.ne[1], a.ne[2], 1, 1], || "ids must be [a.ne1, a.ne2]".into())?;
    cx.like(0)
}

/// The bias rows are gathered into the result, then `a` is added: the index tensor gives the gathered rows their shape.
fn plan_add_id(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let (a, b, ids, out) = (cx.src(0).arg()?, cx.src(1).arg()?, cx.src(2).arg()?, cx.dst.arg()?);
    let flat = |t: &TensorArg, rank: usize| t.view(&t.ne[..rank], &t.nb[..rank], 0);
    let rows = lower.scratch(ACL_FLOAT, &a.ne[..3]);
    lower.gather(&flat(&b, 2), &flat(&ids, 2), &rows)?;
    lower.add(&flat(&a, 3), &rows, 1.0, &flat(&out, 3))
}
