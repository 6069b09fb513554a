//! Copies and conversions: DUP CONT CPY.

use acl_sys::*;

use super::*;
use crate::graph::checked_ne;
use crate::lower::{Span, TensorArg};
use crate::refuse;

const TYPES: &str = "any to the same type; f32, f16, bf16, i8, i16, i32, i64 and block types to plain types; floats to q8_0, q4_0, q4_1, q5_0, q5_1, and by the host q2_K, q3_K, q4_K, q5_K, q6_K, iq4_nl and iq4_xs";

pub(super) static OPS: &[OpDef] = &[
    OpDef {
        name: "DUP",
        src: &["x"],
        params: &[],
        doc: "A packed copy of x, of type `result.type` if given.",
        types: TYPES,
        infer: |cx| cx.packed(cx.result.ty.unwrap_or(cx.src(0).ty), cx.src(0).ne),
        plan: |cx, lower| convert(lower, cx.src(0), &cx.dst),
    },
    OpDef {
        name: "CONT",
        src: &["x"],
        params: &[],
        doc: "A packed copy of x, under other extents if `result.ne` is given.",
        types: TYPES,
        infer: |cx| {
            let ne = cx.result.ne.as_ref().map_or(Ok(cx.src(0).ne), |ne| checked_ne(ne))?;
            same_count(cx, ne)?;
            cx.packed(cx.result.ty.unwrap_or(cx.src(0).ty), ne)
        },
        plan: |cx, lower| convert(lower, cx.src(0), &cx.dst),
    },
    OpDef {
        name: "CPY",
        src: &["x", "into?"],
        params: &[],
        doc: "x written into the memory of `into`, converted to its type; without `into` a packed copy of type `result.type`.",
        types: TYPES,
        infer: |cx| match cx.opt(1) {
            Some(into) => {
                same_count(cx, into.ne)?;
                Ok(Inferred { ty: into.ty, ne: into.ne, nb: into.nb, view: Some((1, 0)) })
            }
            None => cx.packed(cx.result.ty.unwrap_or(cx.src(0).ty), cx.src(0).ne),
        },
        plan: |cx, lower| convert(lower, cx.src(0), &cx.dst),
    },
];

fn same_count(cx: &InferCx, ne: [i64; 4]) -> Result<(), Error> {
    let count: i64 = ne.iter().product();
    cx.require(cx.src(0).nelements() == count, || format!("x and the result {ne:?} must have as many elements"))
}

/// `dst = x` in the order of elements, whatever types, strides and shapes.
pub(super) fn convert(lower: &mut Lower, x: &Operand, dst: &Operand) -> Result<(), Unsupported> {
    if x.ty == dst.ty && x.layout == dst.layout && x.layout != Layout::Plain {
        return copy_blocks(lower, x, dst);
    }
    let values = x.values(lower)?;
    if dst.layout == Layout::Plain {
        return assign_any_shape(lower, &dst.arg()?, &values);
    }
    let rows = if x.ne == dst.ne {
        lower.to_dtype(&values, ACL_FLOAT)?
    } else {
        let rows = lower.scratch(ACL_FLOAT, &dst.ne);
        assign_any_shape(lower, &rows, &values)?;
        rows
    };
    lower.note(format!("quantised to {} on the device", dst.ty.name()));
    super::quantise::quantise(lower, &rows, dst)
}

/// A packed copy of an operand with gaps, in scratch and in the same layout.
pub fn packed_copy(x: &Operand, lower: &mut Lower) -> Result<Operand, Unsupported> {
    let Some(nb) = contiguous_nb(x.ty, x.ne) else { refuse!("rows of {} that do not fill blocks", x.ty.name()) };
    let elements = x.nelements() as u64;
    let Some(bytes) = x.layout.device_bytes(x.ty, elements) else {
        refuse!("{} in another type's layout", x.ty.name())
    };
    let mem = lower.temp(bytes.max(1));
    let copy = Operand { mem, offset: 0, nb, root_elements: elements, leaf: false, ..x.clone() };
    convert(lower, x, &copy)?;
    Ok(copy)
}

/// As [`Lower::assign`] where only the number of elements is the same: one side must be packed, or a temporary is.
fn assign_any_shape(lower: &mut Lower, dst: &TensorArg, x: &TensorArg) -> Result<(), Unsupported> {
    if dst.ne == x.ne {
        lower.assign(dst, x)
    } else if dst.is_packed() {
        lower.assign(&dst.reshaped(&x.ne), x)
    } else if x.is_packed() {
        lower.assign(dst, &x.reshaped(&dst.ne))
    } else {
        let t = lower.contiguous(x)?;
        lower.assign(dst, &t.reshaped(&dst.ne))
    }
}

/// A copy between operands of one block type and layout.
fn copy_blocks(lower: &mut Lower, x: &Operand, dst: &Operand) -> Result<(), Unsupported> {
    if x.is_contiguous() && dst.is_contiguous() {
        let spans: Vec<(Span, Span)> = regions(dst)?.into_iter().zip(regions(x)?).collect();
        for (to, from) in spans.into_iter().filter(|(to, from)| to != from) {
            lower.copy(to, from);
        }
        return Ok(());
    }
    if x.ne != dst.ne {
        // Only the order of elements is the same: through a packed copy with the other shape.
        let Some(nb) = contiguous_nb(x.ty, dst.ne) else { refuse!("rows of {} that do not fill blocks", x.ty.name()) };
        let packed = packed_copy(x, lower)?;
        return copy_blocks(lower, &Operand { ne: dst.ne, nb, ..packed }, dst);
    }
    if x.layout == Layout::Blocks {
        return lower.assign(&block_rows(dst)?, &block_rows(x)?);
    }
    lower.assign(&dst.packed_quants()?, &x.packed_quants()?)?;
    lower.assign(&dst.scales()?, &x.scales()?)?;
    if let (Some(to), Some(from)) = (dst.offsets()?, x.offsets()?) {
        lower.assign(&to, &from)?;
    }
    Ok(())
}

/// The byte ranges of a packed operand of a block type.
fn regions(o: &Operand) -> Result<Vec<Span>, Unsupported> {
    if o.layout == Layout::Blocks {
        return Ok(vec![Span { mem: o.mem, offset: o.offset, bytes: o.packed_bytes() }]);
    }
    let elements = o.nelements() as u64;
    let span = |t: TensorArg, bytes: u64| Span { mem: t.mem, offset: t.offset, bytes };
    let quants = if o.layout == Layout::Q8_0 { elements } else { elements / 2 };
    let scales = elements / Operand::GROUP as u64 * 2;
    let mut all = vec![span(o.quants()?, quants), span(o.scales()?, scales)];
    all.extend(o.offsets()?.map(|t| span(t, scales)));
    Ok(all)
}

/// Rows of ggml blocks as bytes.
pub(super) fn block_rows(o: &Operand) -> Result<TensorArg, Unsupported> {
    if o.nb[0] != o.ty.block_bytes() as u64 {
        refuse!("a {} operand whose rows are not runs of whole blocks", o.ty.name());
    }
    let row = o.ne[0] / o.ty.block_len() as i64 * o.ty.block_bytes() as i64;
    Ok(TensorArg {
        mem: o.mem,
        offset: o.offset,
        dtype: ACL_INT8,
        ne: vec![row, o.ne[1], o.ne[2], o.ne[3]],
        nb: vec![1, o.nb[1] as i64, o.nb[2] as i64, o.nb[3] as i64],
        format: ACL_FORMAT_ND,
    })
}
