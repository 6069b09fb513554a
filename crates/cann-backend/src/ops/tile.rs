//! Repeating, joining, padding and rolling: REPEAT CONCAT PAD PAD_REFLECT_1D ROLL.

use acl_sys::*;

use super::operand::axis;
use super::steps::{listed, scalar};
use super::*;
use crate::graph::checked_ne;
use crate::lower::{Arg, TensorArg};

/// Types whose elements operators move as they are.
const PLAIN: &[GgmlType] = &[
    GgmlType::F32,
    GgmlType::F16,
    GgmlType::Bf16,
    GgmlType::I8,
    GgmlType::I16,
    GgmlType::I32,
    GgmlType::I64,
    GgmlType::F64,
];

const TYPES: &str = "f32, f16, bf16, f64, i8, i16, i32, i64";

macro_rules! number {
    ($name:literal, $doc:literal) => {
        ParamDef { name: $name, default: Default::Num(0.0), doc: $doc }
    };
}

pub(super) static OPS: &[OpDef] = &[
    OpDef {
        name: "REPEAT",
        src: &["x", "like?"],
        params: &[],
        doc: "x side by side until it fills the shape of `like`, or `result.ne`: element i is x[i mod x.ne]",
        types: TYPES,
        infer: infer_repeat,
        plan: plan_repeat,
    },
    OpDef {
        name: "CONCAT",
        src: &["a", "b"],
        params: &[ParamDef { name: "dim", default: Default::Required, doc: "dimension along which b follows a" }],
        doc: "a, then b, along one dimension",
        types: TYPES,
        infer: infer_concat,
        plan: plan_concat,
    },
    OpDef {
        name: "PAD",
        src: &["x"],
        params: &[
            number!("lp0", "elements before x in dimension 0"),
            number!("rp0", "elements behind x in dimension 0"),
            number!("lp1", "elements before x in dimension 1"),
            number!("rp1", "elements behind x in dimension 1"),
            number!("lp2", "elements before x in dimension 2"),
            number!("rp2", "elements behind x in dimension 2"),
            number!("lp3", "elements before x in dimension 3"),
            number!("rp3", "elements behind x in dimension 3"),
            ParamDef {
                name: "circular",
                default: Default::Bool(false),
                doc: "x goes on around itself instead of zeros",
            },
        ],
        doc: "x with zeros around it, or with itself if circular",
        types: TYPES,
        infer: infer_pad,
        plan: plan_pad,
    },
    OpDef {
        name: "PAD_REFLECT_1D",
        src: &["x"],
        params: &[number!("p0", "elements before x in dimension 0"), number!("p1", "elements behind x in dimension 0")],
        doc: "rows of x continued by their mirror images, the edge element not repeated",
        types: TYPES,
        infer: infer_reflect,
        plan: plan_reflect,
    },
    OpDef {
        name: "ROLL",
        src: &["x"],
        params: &[
            number!("shift0", "places along dimension 0"),
            number!("shift1", "places along dimension 1"),
            number!("shift2", "places along dimension 2"),
            number!("shift3", "places along dimension 3"),
        ],
        doc: "x moved on by the shifts, what leaves at one end comes in at the other",
        types: TYPES,
        infer: |cx| {
            cx.is(0, PLAIN)?;
            cx.like(0)
        },
        plan: plan_roll,
    },
];

fn infer_repeat(cx: &InferCx) -> Result<Inferred, Error> {
    cx.is(0, PLAIN)?;
    let x = cx.src(0);
    let ne = match (cx.opt(1), &cx.result.ne) {
        (Some(like), _) => like.ne,
        (None, Some(ne)) => checked_ne(ne)?,
        (None, None) => return Err(cx.err("a second source or result.ne must say the shape")),
    };
    let repeats = (0..4).all(|d| if x.ne[d] == 0 { ne[d] == 0 } else { ne[d] % x.ne[d] == 0 });
    cx.require(repeats, || format!("each extent of the result {ne:?} must be a multiple of x's"))?;
    cx.packed(x.ty, ne)
}

fn plan_repeat(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let (x, out) = (cx.src(0).arg()?, cx.dst.arg()?);
    if x.ne == out.ne {
        return lower.assign(&out, &x);
    }
    let repeats = (0..4).rev().map(|d| out.ne[d] / x.ne[d]).collect();
    lower.call(AclOp::aclnnRepeat, [x.into(), Arg::Ints(repeats), out.into()])
}

fn infer_concat(cx: &InferCx) -> Result<Inferred, Error> {
    cx.is(0, PLAIN)?;
    let (a, b, dim) = (cx.src(0), cx.src(1), cx.params.f64("dim"));
    cx.require([0.0, 1.0, 2.0, 3.0].contains(&dim), || format!("dim must be 0 to 3, not {dim}"))?;
    let dim = dim as usize;
    cx.require(a.ty == b.ty, || "a and b must have the same type".into())?;
    cx.require((0..4).all(|d| d == dim || a.ne[d] == b.ne[d]), || {
        format!("a and b must have the same extents in all dimensions but {dim}")
    })?;
    let mut ne = a.ne;
    ne[dim] = extended(cx, ne[dim], b.ne[dim], 0)?;
    cx.packed(a.ty, ne)
}

fn extended(cx: &InferCx, n: i64, before: i64, behind: i64) -> Result<i64, Error> {
    let sum = n.checked_add(before).and_then(|n| n.checked_add(behind));
    sum.ok_or_else(|| cx.err(format!("{n} + {before} + {behind} elements are too many")))
}

fn plan_concat(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let (a, b, out) = (cx.src(0).arg()?, cx.src(1).arg()?, cx.dst.arg()?);
    let dim = cx.params().i64("dim") as usize;
    // An empty part has nothing to add, and an operator's list need not bear one.
    if a.ne[dim] == 0 || b.ne[dim] == 0 {
        return lower.assign(&out, if a.ne[dim] == 0 { &b } else { &a });
    }
    lower.call(AclOp::aclnnCat, [Arg::Tensors(vec![a, b]), Arg::I64(axis(dim)), out.into()])
}

/// Elements before and behind in each dimension.
fn pads(params: &Params) -> [(i64, i64); 4] {
    let names = [("lp0", "rp0"), ("lp1", "rp1"), ("lp2", "rp2"), ("lp3", "rp3")];
    names.map(|(before, behind)| (params.i64(before), params.i64(behind)))
}

fn infer_pad(cx: &InferCx) -> Result<Inferred, Error> {
    cx.is(0, PLAIN)?;
    let mut ne = cx.src(0).ne;
    for (n, (before, behind)) in ne.iter_mut().zip(pads(cx.params)) {
        cx.require(before >= 0 && behind >= 0, || format!("paddings must be 0 or more, not {before} and {behind}"))?;
        let around_nothing = cx.params.bool("circular") && *n == 0 && (before, behind) != (0, 0);
        cx.require(!around_nothing, || "nothing goes around in an empty dimension".into())?;
        *n = extended(cx, *n, before, behind)?;
    }
    cx.packed(cx.src(0).ty, ne)
}

fn plan_pad(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let (x, out) = (cx.src(0).arg()?, cx.dst.arg()?);
    let pads = pads(cx.params());
    if cx.params().bool("circular") {
        (0..4).filter(|d| x.ne[*d] != out.ne[*d]).try_for_each(|d| listed(out.ne[d]))?;
        let sources = |d: usize| {
            let (n, before) = (x.ne[d], pads[d].0);
            (x.ne[d] != out.ne[d]).then(|| (0..out.ne[d]).map(|i| (i - before).rem_euclid(n) as i32).collect())
        };
        return pick(lower, &x, [0, 1, 2, 3].map(sources), &out);
    }
    if cx.src(0).is_empty() {
        return lower.fill_scalar(&out, 0.0);
    }
    pad_constant(lower, &x, &pads, 0.0, &out)
}

/// `out = x` with `value` around it; a pair is what comes before and behind, by dimension.
pub(super) fn pad_constant(
    lower: &mut Lower,
    x: &TensorArg,
    pads: &[(i64, i64)],
    value: f32,
    out: &TensorArg,
) -> Result<(), Unsupported> {
    if pads.iter().all(|pair| *pair == (0, 0)) {
        return lower.assign(out, x);
    }
    let pads = pads.iter().flat_map(|(before, behind)| [*before, *behind]).collect();
    lower.call(AclOp::aclnnConstantPadNd, [x.clone().into(), Arg::Ints(pads), scalar(value), out.clone().into()])
}

/// Element i of `out` in a dimension is element `sources[i]` of `x`; dimensions without a list are taken over as they are.
pub(super) fn pick(
    lower: &mut Lower,
    x: &TensorArg,
    sources: [Option<Vec<i32>>; 4],
    out: &TensorArg,
) -> Result<(), Unsupported> {
    let mut left = sources.iter().flatten().count();
    if left == 0 {
        return lower.assign(out, x);
    }
    let mut x = x.clone();
    // Outer dimensions first: their rows move as a whole.
    for (d, list) in sources.iter().enumerate().rev() {
        let Some(list) = list else { continue };
        left -= 1;
        let to = if left == 0 {
            out.clone()
        } else {
            let mut ne = x.ne.clone();
            ne[d] = list.len() as i64;
            lower.scratch(x.dtype, &ne)
        };
        let index = lower.constant_i32(list, &[list.len() as i64]);
        lower.call(AclOp::aclnnIndexSelect, [x.into(), Arg::I64(axis(d)), index.into(), to.clone().into()])?;
        x = to;
    }
    Ok(())
}

fn infer_reflect(cx: &InferCx) -> Result<Inferred, Error> {
    cx.is(0, PLAIN)?;
    let (before, behind) = (cx.params.i64("p0"), cx.params.i64("p1"));
    let mut ne = cx.src(0).ne;
    let inside = |p: i64| p >= 0 && (p < ne[0] || p == 0);
    cx.require(inside(before) && inside(behind), || {
        format!("p0 and p1 must be 0 or more and less than ne0, not {before} and {behind}")
    })?;
    ne[0] = extended(cx, ne[0], before, behind)?;
    cx.packed(cx.src(0).ty, ne)
}

fn plan_reflect(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let (x, out) = (cx.src(0).arg()?, cx.dst.arg()?);
    let x = lower.as_rows(&x)?;
    let out = out.reshaped(&[out.ne[0], x.ne[1]]);
    let pads = Arg::Ints(vec![cx.params().i64("p0"), cx.params().i64("p1")]);
    lower.call(AclOp::aclnnReflectionPad1d, [x.into(), pads, out.into()])
}

/// A shift cuts a dimension in two runs; each block of runs is one copy.
fn plan_roll(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let (x, out) = (cx.src(0).arg()?, cx.dst.arg()?);
    let mut blocks = vec![(x.clone(), out.clone())];
    for (d, name) in ["shift0", "shift1", "shift2", "shift3"].into_iter().enumerate() {
        let n = x.ne[d];
        let shift = cx.params().i64(name).rem_euclid(n);
        if shift == 0 {
            continue;
        }
        blocks = (blocks.iter())
            .flat_map(|(x, out)| {
                [
                    (x.narrow(d, 0, n - shift), out.narrow(d, shift, n - shift)),
                    (x.narrow(d, n - shift, shift), out.narrow(d, 0, shift)),
                ]
            })
            .collect();
    }
    blocks.iter().try_for_each(|(x, out)| lower.assign(out, x))
}
