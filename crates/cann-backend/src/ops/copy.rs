//! Copies and conversions: DUP CONT CPY.

use acl_sys::*;

use super::*;
use crate::graph::checked_ne;
use crate::lower::{Span, TensorArg};
use crate::refuse;

const TYPES: &str = "any to the same type; f32, f16, bf16, i8, i16, i32, i64 and block types to plain types; floats to q8_0, q4_0 and q4_1";

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
    quantise(lower, &rows, dst)
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
fn block_rows(o: &Operand) -> Result<TensorArg, Unsupported> {
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

/// `dst = x` for f32 rows of `dst`'s shape and a destination that the device keeps as quants and scales.
pub(super) fn quantise(lower: &mut Lower, x: &TensorArg, dst: &Operand) -> Result<(), Unsupported> {
    if dst.layout == Layout::Blocks {
        refuse!("the device does not write {} blocks", dst.ty.name());
    }
    let (quants, scales, offsets) = (dst.packed_quants()?, dst.scales()?, dst.offsets()?);
    let x = lower.contiguous(x)?;
    quantise_groups(lower, dst.layout, &x.split(0, Operand::GROUP), &quants, &scales, offsets.as_ref())
}

/// Quants, scales and offsets of f32 groups `[32, groups, …]`; int4 quants are written as bytes.
pub(super) fn quantise_groups(
    lower: &mut Lower,
    layout: Layout,
    x: &TensorArg,
    quants: &TensorArg,
    scales: &TensorArg,
    offsets: Option<&TensorArg>,
) -> Result<(), Unsupported> {
    match layout {
        Layout::Q8_0 => {
            let t = lower.scratch_like(x, ACL_FLOAT);
            lower.unary(AclOp::aclnnAbs, x, &t)?;
            let largest = group_max(lower, &t)?;
            let inverse = over(lower, 127.0, &largest)?;
            let d = lower.scratch_like(&largest, ACL_FLOAT);
            lower.call(AclOp::aclnnDivs, [largest.into(), super::steps::scalar(127.0), d.clone().into()])?;
            lower.assign(scales, &d)?;
            lower.mul(x, &inverse, &t)?;
            lower.unary(AclOp::aclnnRound, &t, &t)?;
            lower.assign(quants, &t)
        }
        Layout::Q4_0 => {
            let t = lower.scratch_like(x, ACL_FLOAT);
            lower.unary(AclOp::aclnnNeg, x, &t)?;
            let below = group_max(lower, &t)?;
            let above = group_max(lower, x)?;
            // The element of largest magnitude with its sign, over -8; of two that differ in sign, the first.
            let largest = lower.scratch_like(&above, ACL_FLOAT);
            lower.call(AclOp::aclnnMaximum, [above.clone().into(), below.clone().into(), largest.clone().into()])?;
            let positive = first_place(lower, x, &largest)?;
            let negative = first_place(lower, &t, &largest)?;
            lower.sub(&negative, &positive, 1.0, &negative)?;
            let wins = lower.scratch_like(&above, ACL_BOOL);
            lower.call(AclOp::aclnnGtScalar, [negative.into(), super::steps::scalar(0.0), wins.clone().into()])?;
            lower.muls(&above, -1.0, &above)?;
            let d = lower.scratch_like(&above, ACL_FLOAT);
            lower.call(AclOp::aclnnSWhere, [wins.into(), below.into(), above.into(), d.clone().into()])?;
            lower.muls(&d, 0.125, &d)?;
            lower.assign(scales, &d)?;
            let inverse = over(lower, 1.0, &d)?;
            lower.mul(x, &inverse, &t)?;
            lower.adds(&t, 8.5, &t)?;
            pack_nibbles(lower, &t, quants)
        }
        Layout::Int4Affine => {
            let Some(offsets) = offsets else { refuse!("int4 with offsets has no offset region") };
            let t = lower.scratch_like(x, ACL_FLOAT);
            let high = group_max(lower, x)?;
            lower.unary(AclOp::aclnnNeg, x, &t)?;
            let low = group_max(lower, &t)?;
            let d = lower.scratch_like(&high, ACL_FLOAT);
            // low holds the negated minimum.
            lower.add(&high, &low, 1.0, &d)?;
            lower.call(AclOp::aclnnInplaceDivs, [d.clone().into(), super::steps::scalar(15.0)])?;
            let inverse = over(lower, 1.0, &d)?;
            lower.add(x, &low, 1.0, &t)?;
            lower.mul(&t, &inverse, &t)?;
            lower.adds(&t, 0.5, &t)?;
            // A group of equal values m: scale m, quants 0 (nibble 8), offset 1. Others: scale d, offset 8 + min / d.
            let varies = lower.scratch_like(&d, ACL_BOOL);
            lower.call(AclOp::aclnnGtScalar, [d.clone().into(), super::steps::scalar(0.0), varies.clone().into()])?;
            let eights = lower.scratch_like(&t, ACL_FLOAT);
            lower.fill_scalar(&eights, 8.0)?;
            let nibbles = lower.scratch_like(&t, ACL_FLOAT);
            let args = [varies.clone().into(), t.clone().into(), eights.into(), nibbles.clone().into()];
            lower.call(AclOp::aclnnSWhere, args)?;
            let shift = lower.scratch_like(&d, ACL_FLOAT);
            lower.mul(&low, &inverse, &shift)?;
            lower.muls(&shift, -1.0, &shift)?;
            lower.adds(&shift, 8.0, &shift)?;
            let ones = lower.scratch_like(&d, ACL_FLOAT);
            lower.fill_scalar(&ones, 1.0)?;
            let offset = lower.scratch_like(&d, ACL_FLOAT);
            lower
                .call(AclOp::aclnnSWhere, [varies.clone().into(), shift.into(), ones.into(), offset.clone().into()])?;
            lower.assign(offsets, &offset)?;
            let scale = lower.scratch_like(&d, ACL_FLOAT);
            lower.call(AclOp::aclnnSWhere, [varies.into(), d.into(), high.into(), scale.clone().into()])?;
            lower.assign(scales, &scale)?;
            pack_nibbles(lower, &nibbles, quants)
        }
        Layout::Plain | Layout::Blocks => refuse!("no quantised layout"),
    }
}

/// Maximum over the first dimension (32): halves against each other, which is exact and needs no reduction operator.
fn group_max(lower: &mut Lower, x: &TensorArg) -> Result<TensorArg, Unsupported> {
    let mut t = x.clone();
    while t.ne[0] > 1 {
        let half = t.ne[0] / 2;
        let (a, b) = (t.narrow(0, 0, half), t.narrow(0, half, half));
        let out = lower.scratch_like(&a, ACL_FLOAT);
        lower.call(AclOp::aclnnMaximum, [a.into(), b.into(), out.clone().into()])?;
        t = out;
    }
    Ok(t)
}

/// Of each group, 32 minus the place of the first element that equals `value`; 0 if none does.
fn first_place(lower: &mut Lower, x: &TensorArg, value: &TensorArg) -> Result<TensorArg, Unsupported> {
    let ramp: Vec<f32> = (0..Operand::GROUP).map(|i| (Operand::GROUP - i) as f32).collect();
    let mut ne = vec![1; x.ne.len()];
    ne[0] = Operand::GROUP;
    let ramp = lower.constant_f32(&ramp, &ne);
    let t = lower.scratch_like(x, ACL_FLOAT);
    lower.call(AclOp::aclnnEqTensor, [x.clone().into(), value.clone().into(), t.clone().into()])?;
    lower.mul(&t, &ramp, &t)?;
    group_max(lower, &t)
}

/// `v / d`, and `v` where d is 0.
fn over(lower: &mut Lower, v: f32, d: &TensorArg) -> Result<TensorArg, Unsupported> {
    let number = |lower: &mut Lower, v: f32| lower.constant_f32(&[v], &vec![1; d.ne.len()]);
    let (zero, v) = (number(lower, 0.0), number(lower, v));
    let out = lower.scratch_like(d, ACL_FLOAT);
    lower.call(AclOp::aclnnEqTensor, [d.clone().into(), zero.into(), out.clone().into()])?;
    lower.add(d, &out, 1.0, &out)?;
    lower.div(&v, &out, &out)?;
    Ok(out)
}

/// Bytes out of unsigned nibbles `t` in [0, 16), fractions dropped: the device's signed int4, even element low.
fn pack_nibbles(lower: &mut Lower, t: &TensorArg, quants: &TensorArg) -> Result<(), Unsupported> {
    use super::steps::scalar;
    lower.unary(AclOp::aclnnTrunc, t, t)?;
    let n = lower.scratch_like(t, ACL_FLOAT);
    lower.call(AclOp::aclnnClamp, [t.clone().into(), scalar(0.0), scalar(15.0), n.clone().into()])?;
    let every_other = |first: i64| {
        let (mut ne, mut nb) = (n.ne.clone(), n.nb.clone());
        ne[0] /= 2;
        nb[0] *= 2;
        n.view(&ne, &nb, first * 4)
    };
    let (even, odd) = (every_other(0), every_other(1));
    // byte = 16 (odd - 8) + (even - 8 mod 16), and even - 8 mod 16 = even + 8 - 16 (even > 7.5).
    let bytes = lower.scratch_like(&even, ACL_FLOAT);
    lower.call(AclOp::aclnnGtScalar, [even.clone().into(), scalar(7.5), bytes.clone().into()])?;
    lower.sub(&even, &bytes, 16.0, &bytes)?;
    lower.add(&bytes, &odd, 16.0, &bytes)?;
    lower.adds(&bytes, -120.0, &bytes)?;
    lower.assign(quants, &bytes)
}
