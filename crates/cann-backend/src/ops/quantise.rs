//! Quantising in f32 and with ggml's rounding: what CPY and SET_ROWS into block types are made of.
//!
//! The simple types are quantised on the device. Types whose scales are searched (the k-quants, iq4_nl, iq4_xs) are quantised by
//! the host between two launches: no operator does the search, and rows of a cache are few.

use acl_sys::*;

use super::operand::dtype_bytes;
use super::steps::scalar;
use super::*;
use crate::lower::{Span, TensorArg};
use crate::refuse;

/// `dst = x` for f32 rows of `dst`'s shape and a destination of a block type.
pub(super) fn quantise(lower: &mut Lower, x: &TensorArg, dst: &Operand) -> Result<(), Unsupported> {
    let x = lower.contiguous(x)?;
    if dst.layout == Layout::Blocks {
        return match dst.ty {
            ty if super::blocks::decodes(ty) => super::blocks::encode(lower, &x, dst),
            ty if gguf::can_quantize(ty) => by_the_host(lower, &x, dst),
            ty => refuse!("nothing here quantises to {}", ty.name()),
        };
    }
    let (quants, scales, offsets) = (dst.packed_quants()?, dst.scales()?, dst.offsets()?);
    quantise_groups(lower, dst.layout, &x.split(0, Operand::GROUP), &quants, &scales, offsets.as_ref())
}

/// Blocks that the host makes of packed f32 rows, put where they belong as bytes.
fn by_the_host(lower: &mut Lower, x: &TensorArg, dst: &Operand) -> Result<(), Unsupported> {
    lower.note(format!("quantised to {} by the host; not captured", dst.ty.name()));
    let bytes = dst.packed_bytes();
    let src = Span { mem: x.mem, offset: x.offset, bytes: (x.numel() * dtype_bytes(ACL_FLOAT)) as u64 };
    if dst.is_contiguous() {
        lower.quantize(Span { mem: dst.mem, offset: dst.offset, bytes }, src, dst.ty);
        return Ok(());
    }
    let Some(nb) = contiguous_nb(dst.ty, dst.ne) else { refuse!("rows of {} that do not fill blocks", dst.ty.name()) };
    let into = super::copy::block_rows(dst)?;
    let packed = Operand { mem: lower.temp(bytes), offset: 0, nb, leaf: false, ..dst.clone() };
    lower.quantize(Span { mem: packed.mem, offset: 0, bytes }, src, dst.ty);
    lower.assign(&into, &super::copy::block_rows(&packed)?)
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
            lower.call(AclOp::aclnnDivs, [largest.into(), scalar(127.0), d.clone().into()])?;
            lower.assign(scales, &d)?;
            lower.mul(x, &inverse, &t)?;
            lower.unary(AclOp::aclnnRound, &t, &t)?;
            lower.assign(quants, &t)
        }
        Layout::Q4_0 => {
            let (scale, inverse) = signed_extreme(lower, x, 8.0)?;
            lower.assign(scales, &scale)?;
            let t = lower.scratch_like(x, ACL_FLOAT);
            lower.mul(x, &inverse, &t)?;
            lower.adds(&t, 8.5, &t)?;
            pack_nibbles(lower, &t, quants)
        }
        Layout::Int4Affine => {
            let Some(offsets) = offsets else { refuse!("int4 with offsets has no offset region") };
            let Extremes { high, negated_low, scale: d, inverse } = affine_extremes(lower, x, 15.0)?;
            let t = lower.scratch_like(x, ACL_FLOAT);
            lower.add(x, &negated_low, 1.0, &t)?;
            lower.mul(&t, &inverse, &t)?;
            lower.adds(&t, 0.5, &t)?;
            // A group of equal values m: scale m, quants 0 (nibble 8), offset 1. Others: scale d, offset 8 + min / d.
            let varies = lower.scratch_like(&d, ACL_BOOL);
            lower.call(AclOp::aclnnGtScalar, [d.clone().into(), scalar(0.0), varies.clone().into()])?;
            let either = |lower: &mut Lower, yes: &TensorArg, no: &TensorArg, like: &TensorArg| {
                let out = lower.scratch_like(like, ACL_FLOAT);
                let args = [varies.clone().into(), yes.clone().into(), no.clone().into(), out.clone().into()];
                lower.call(AclOp::aclnnSWhere, args).map(|()| out)
            };
            let shift = lower.scratch_like(&d, ACL_FLOAT);
            lower.mul(&negated_low, &inverse, &shift)?;
            lower.muls(&shift, -1.0, &shift)?;
            lower.adds(&shift, 8.0, &shift)?;
            let (one, eight) = (number(lower, 1.0, &d), number(lower, 8.0, &d));
            let offset = either(lower, &shift, &one, &d)?;
            lower.assign(offsets, &offset)?;
            let scale = either(lower, &d, &high, &d)?;
            lower.assign(scales, &scale)?;
            let nibbles = either(lower, &t, &eight, &t)?;
            pack_nibbles(lower, &nibbles, quants)
        }
        Layout::Plain | Layout::Blocks => refuse!("no quantised layout"),
    }
}

/// Scale and its inverse of symmetric types: the element of largest magnitude with its sign, over minus `levels`; of two that
/// differ in sign, the first.
pub(super) fn signed_extreme(
    lower: &mut Lower,
    x: &TensorArg,
    levels: f32,
) -> Result<(TensorArg, TensorArg), Unsupported> {
    let negated = lower.scratch_like(x, ACL_FLOAT);
    lower.unary(AclOp::aclnnNeg, x, &negated)?;
    let below = group_max(lower, &negated)?;
    let above = group_max(lower, x)?;
    let largest = lower.scratch_like(&above, ACL_FLOAT);
    lower.call(AclOp::aclnnMaximum, [above.clone().into(), below.clone().into(), largest.clone().into()])?;
    let positive = first_place(lower, x, &largest)?;
    let negative = first_place(lower, &negated, &largest)?;
    lower.sub(&negative, &positive, 1.0, &negative)?;
    let wins = lower.scratch_like(&above, ACL_BOOL);
    lower.call(AclOp::aclnnGtScalar, [negative.into(), scalar(0.0), wins.clone().into()])?;
    lower.muls(&above, -1.0, &above)?;
    let d = lower.scratch_like(&above, ACL_FLOAT);
    lower.call(AclOp::aclnnSWhere, [wins.into(), below.into(), above.into(), d.clone().into()])?;
    lower.muls(&d, 1.0 / levels, &d)?;
    let inverse = over(lower, 1.0, &d)?;
    Ok((d, inverse))
}

/// What types with a minimum are made of.
pub(super) struct Extremes {
    pub high: TensorArg,
    pub negated_low: TensorArg,
    /// (high - low) / steps, and one over it (1 where it is 0).
    pub scale: TensorArg,
    pub inverse: TensorArg,
}

pub(super) fn affine_extremes(lower: &mut Lower, x: &TensorArg, steps: f32) -> Result<Extremes, Unsupported> {
    let negated = lower.scratch_like(x, ACL_FLOAT);
    lower.unary(AclOp::aclnnNeg, x, &negated)?;
    let negated_low = group_max(lower, &negated)?;
    let high = group_max(lower, x)?;
    let scale = lower.scratch_like(&high, ACL_FLOAT);
    lower.add(&high, &negated_low, 1.0, &scale)?;
    lower.call(AclOp::aclnnInplaceDivs, [scale.clone().into(), scalar(steps)])?;
    let inverse = over(lower, 1.0, &scale)?;
    Ok(Extremes { high, negated_low, scale, inverse })
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

/// A constant that broadcasts over `like`.
fn number(lower: &mut Lower, v: f32, like: &TensorArg) -> TensorArg {
    lower.constant_f32(&[v], &vec![1; like.ne.len()])
}

/// `v / d`, and `v` where d is 0.
fn over(lower: &mut Lower, v: f32, d: &TensorArg) -> Result<TensorArg, Unsupported> {
    let (zero, v) = (number(lower, 0.0, d), number(lower, v, d));
    let out = lower.scratch_like(d, ACL_FLOAT);
    lower.call(AclOp::aclnnEqTensor, [d.clone().into(), zero.into(), out.clone().into()])?;
    lower.add(d, &out, 1.0, &out)?;
    lower.div(&v, &out, &out)?;
    Ok(out)
}

/// Bytes out of unsigned nibbles `t` in [0, 16), fractions dropped: the device's signed int4, even element low.
fn pack_nibbles(lower: &mut Lower, t: &TensorArg, quants: &TensorArg) -> Result<(), Unsupported> {
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
