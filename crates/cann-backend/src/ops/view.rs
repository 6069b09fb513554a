//! Other looks at the same memory: NONE RESHAPE VIEW PERMUTE TRANSPOSE. They infer and write no steps.

use super::*;
use crate::graph::checked_ne;

pub(super) static OPS: &[OpDef] = &[
    OpDef {
        name: "NONE",
        src: &[],
        params: &[],
        doc: "A graph input or a device tensor.",
        types: "all",
        infer: |cx| Err(cx.err("leaves are made by input() and tensor()")),
        plan: no_steps,
    },
    OpDef {
        name: "RESHAPE",
        src: &["x"],
        params: &[],
        doc: "The elements of a packed x under the extents given as `result.ne`.",
        types: "all",
        infer: reshape,
        plan: no_steps,
    },
    OpDef {
        name: "VIEW",
        src: &["x"],
        params: &[ParamDef { name: "offset", default: Default::Num(0.0), doc: "bytes from the start of x" }],
        doc: "A window into x: extents `result.ne`, byte strides `result.nb` (packed if left out), from byte `offset` on.",
        types: "all",
        infer: view,
        plan: no_steps,
    },
    OpDef {
        name: "PERMUTE",
        src: &["x"],
        params: &[ParamDef {
            name: "axes",
            default: Default::Nums(&[0.0, 1.0, 2.0, 3.0]),
            doc: "dimension i of x becomes dimension axes[i] of the result",
        }],
        doc: "x with its dimensions in another order.",
        types: "all",
        infer: permute,
        plan: no_steps,
    },
    OpDef {
        name: "TRANSPOSE",
        src: &["x"],
        params: &[],
        doc: "x with dimensions 0 and 1 exchanged.",
        types: "all",
        infer: |cx| {
            let x = cx.src(0);
            let swap = |d: usize| [1, 0, 2, 3][d];
            Ok(Inferred {
                ty: x.ty,
                ne: std::array::from_fn(|d| x.ne[swap(d)]),
                nb: std::array::from_fn(|d| x.nb[swap(d)]),
                view: Some((0, 0)),
            })
        },
        plan: no_steps,
    },
];

fn no_steps(_: &NodeCx, _: &mut Lower) -> Result<(), Unsupported> {
    Ok(())
}

fn result_ne(cx: &InferCx) -> Result<[i64; 4], Error> {
    match &cx.result.ne {
        Some(ne) => checked_ne(ne),
        None => Err(cx.err("the extents of the result must be given as result.ne")),
    }
}

fn reshape(cx: &InferCx) -> Result<Inferred, Error> {
    let x = cx.src(0);
    let ne = result_ne(cx)?;
    cx.require(x.is_contiguous(), || "x must be packed; CONT makes it so".into())?;
    cx.require(ne.iter().product::<i64>() == x.nelements(), || {
        format!("x and the result {ne:?} must have as many elements")
    })?;
    Ok(Inferred { view: Some((0, 0)), ..cx.packed(x.ty, ne)? })
}

fn view(cx: &InferCx) -> Result<Inferred, Error> {
    let x = cx.src(0);
    let ne = result_ne(cx)?;
    let ty = cx.result.ty.unwrap_or(x.ty);
    cx.require(ty == x.ty, || format!("a view has the type of x, not {}", ty.name()))?;
    let offset = cx.params.f64("offset");
    cx.require(offset >= 0.0 && offset.fract() == 0.0 && offset < 2f64.powi(53), || {
        format!("offset {offset} is no byte offset")
    })?;
    let offset = offset as u64;
    let mut out = cx.packed(ty, ne)?;
    if let Some(nb) = &cx.result.nb {
        cx.require(nb.len() <= 4, || format!("at most 4 strides, not {nb:?}"))?;
        // Strides may be given for all dimensions, or as ggml's constructors take them: without the first.
        let rank = cx.result.ne.as_ref().map_or(4, |ne| ne.len());
        let first = usize::from(nb.len() < rank);
        for (d, n) in nb.iter().enumerate().map(|(i, n)| (i + first, *n)) {
            out.nb[d] = n;
        }
        for d in nb.len() + first..4 {
            out.nb[d] = out.nb[d - 1].saturating_mul(if d == 1 {
                ne[0] as u64 / ty.block_len() as u64
            } else {
                ne[d - 1] as u64
            });
        }
    }
    let block = ty.block_bytes() as u64;
    // A stride that is never taken may be any number; no arithmetic is to meet it.
    let extent = |d: usize| if d == 0 { ne[0] as u64 / ty.block_len() as u64 } else { ne[d] as u64 };
    for d in 0..4 {
        if extent(d) <= 1 && (out.nb[d] > x.span_bytes() || !out.nb[d].is_multiple_of(block)) {
            out.nb[d] = if d == 0 { block } else { out.nb[d - 1].saturating_mul(extent(d - 1).max(1)) };
        }
    }
    let aligned = (1..4).all(|d| ne[d] == 1 || out.nb[d].is_multiple_of(block)) && offset.is_multiple_of(block);
    cx.require(aligned && (out.nb[0] == block || ty.block_len() == 1 && out.nb[0].is_multiple_of(block)), || {
        format!("offset {offset} and strides {:?} must be multiples of {block} bytes ({})", out.nb, ty.name())
    })?;
    let wide = |d: usize| (ne[d] as u128).saturating_sub(1) * u128::from(out.nb[d]);
    let row = (ne[0] as u128 / ty.block_len() as u128).saturating_sub(1) * u128::from(out.nb[0]);
    let last = if ne.contains(&0) { 0 } else { row + wide(1) + wide(2) + wide(3) + u128::from(block) };
    // ggml lets a view reach past its source as long as it stays inside the memory behind it; here it is held to the source.
    let room = u128::from(x.span_bytes());
    cx.require(u128::from(offset) + last <= room, || {
        format!("the view ends {} bytes into x, which spans {room}", u128::from(offset) + last)
    })?;
    out.view = Some((0, offset));
    Ok(out)
}

fn permute(cx: &InferCx) -> Result<Inferred, Error> {
    let x = cx.src(0);
    let axes = cx.params.nums("axes");
    let mut sorted = axes.to_vec();
    sorted.sort_by(f64::total_cmp);
    cx.require(sorted == [0.0, 1.0, 2.0, 3.0], || format!("axes must be 0, 1, 2, 3 in some order, not {axes:?}"))?;
    let (mut ne, mut nb) = ([0; 4], [0; 4]);
    for (d, axis) in axes.iter().enumerate() {
        ne[*axis as usize] = x.ne[d];
        nb[*axis as usize] = x.nb[d];
    }
    Ok(Inferred { ty: x.ty, ne, nb, view: Some((0, 0)) })
}
