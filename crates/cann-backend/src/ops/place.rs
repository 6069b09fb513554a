//! A tensor with another added to, or put into, a window of it: ACC SET.

use acl_sys::*;

use super::steps::ONE;
use super::*;
use crate::lower::TensorArg;

const PARAMS: &[ParamDef] = &[
    ParamDef { name: "nb1", default: Default::Num(0.0), doc: "byte stride of the window's rows; 0 for a's" },
    ParamDef { name: "nb2", default: Default::Num(0.0), doc: "byte stride of the window's planes; 0 for a's" },
    ParamDef { name: "nb3", default: Default::Num(0.0), doc: "byte stride of the window's batches; 0 for a's" },
    ParamDef { name: "offset", default: Default::Num(0.0), doc: "byte offset of the window" },
    ParamDef { name: "inplace", default: Default::Bool(false), doc: "whether the result is the memory of a" },
];

pub(super) static OPS: &[OpDef] = &[
    OpDef {
        name: "ACC",
        src: &["a", "b"],
        params: PARAMS,
        doc: "a with b added to the window of b's shape at `offset`",
        types: "f32",
        infer: |cx| {
            cx.is(0, &[GgmlType::F32])?;
            infer(cx)
        },
        plan: |cx, lower| {
            let window = prepare(cx, lower)?;
            lower.call(AclOp::aclnnInplaceAdd, [window.into(), cx.src(1).arg()?.into(), ONE])
        },
    },
    OpDef {
        name: "SET",
        src: &["a", "b"],
        params: PARAMS,
        doc: "a with b put into the window of b's shape at `offset`",
        types: "f32, f16, bf16, i8, i16, i32, i64",
        infer,
        plan: |cx, lower| {
            let window = prepare(cx, lower)?;
            lower.assign(&window, &cx.src(1).arg()?)
        },
    },
];

/// Byte strides of the window.
fn strides(params: &Params, element: u64, a: [u64; 4]) -> [u64; 4] {
    let given = |name: &str, own: u64| if params.f64(name) > 0.0 { params.i64(name) as u64 } else { own };
    [element, given("nb1", a[1]), given("nb2", a[2]), given("nb3", a[3])]
}

fn infer(cx: &InferCx) -> Result<Inferred, Error> {
    let (a, b) = (cx.src(0), cx.src(1));
    cx.require(a.ty == b.ty && !a.ty.is_quantized(), || "a and b must have the same plain type".into())?;
    cx.require(a.is_contiguous(), || "a must be packed".into())?;
    let element = a.ty.block_bytes() as u64;
    let nb = strides(cx.params, element, a.nb);
    let offset = cx.params.f64("offset");
    let whole = (0.0..2f64.powi(53)).contains(&offset)
        && offset % element as f64 == 0.0
        && nb.iter().all(|n| n.is_multiple_of(element));
    cx.require(whole, || format!("offset {offset} and strides {nb:?} must be multiples of {element} bytes"))?;
    let span: u128 = (0..4).map(|d| (b.ne[d] as u128).saturating_sub(1) * u128::from(nb[d])).sum();
    let last = offset as u128 + if b.is_empty() { 0 } else { span + u128::from(element) };
    cx.require(last <= u128::from(a.span_bytes()), || format!("the window ends at byte {last} of a, outside of it"))?;
    let out = cx.like(0)?;
    Ok(Inferred { view: cx.params.bool("inplace").then_some((0, 0)), ..out })
}

/// Puts `a` into the result, unless it is that memory, and gives the window.
fn prepare(cx: &NodeCx, lower: &mut Lower) -> Result<TensorArg, Unsupported> {
    let (a, b, out) = (cx.src(0).arg()?, cx.src(1).arg()?, cx.dst.arg()?);
    if a.mem != out.mem || a.offset != out.offset {
        lower.assign(&out, &a)?;
    }
    let element = cx.dst.ty.block_bytes() as u64;
    let nb = strides(cx.params(), element, cx.dst.nb).map(|n| n as i64);
    Ok(out.view(&b.ne, &nb, cx.params().i64("offset")))
}
