//! ggml blocks read and written by the device itself: types of 32 elements whose fields are whole bytes at fixed places
//! (q4_1, q5_0, q5_1). A block's fields are strided views of the bytes; the arithmetic is exact in f32.
//!
//! Leaves that nothing in the graph writes are dequantised once by the host instead ([`Mem::Dequant`]); this is for memory that
//! changes on the device, such as a quantised KV cache. Other block types have no such lowering.

use acl_sys::*;

use super::quantise::{affine_extremes, signed_extreme};
use super::steps::scalar;
use super::*;
use crate::lower::{Arg, TensorArg};
use crate::refuse;

/// Byte offsets of a block's fields.
struct Fields {
    minimum: Option<i64>,
    high_bits: Option<i64>,
    nibbles: i64,
}

fn fields(ty: GgmlType) -> Result<Fields, Unsupported> {
    Ok(match ty {
        GgmlType::Q4_1 => Fields { minimum: Some(2), high_bits: None, nibbles: 4 },
        GgmlType::Q5_0 => Fields { minimum: None, high_bits: Some(2), nibbles: 6 },
        GgmlType::Q5_1 => Fields { minimum: Some(2), high_bits: Some(4), nibbles: 8 },
        other => refuse!("the device does not read or write {} blocks", other.name()),
    })
}

/// Whether the device reads and writes blocks of this type.
pub(super) fn decodes(ty: GgmlType) -> bool {
    fields(ty).is_ok()
}

/// A field of every block: `[count, groups, ne1, ne2, ne3]`.
fn field(o: &Operand, at: i64, dtype: aclDataType, count: i64) -> Result<TensorArg, Unsupported> {
    let rows = super::copy::block_rows(o)?;
    let block = o.ty.block_bytes() as i64;
    let element = super::operand::dtype_bytes(dtype);
    let ne = [count, rows.ne[0] / block, rows.ne[1], rows.ne[2], rows.ne[3]];
    Ok(rows.with_dtype(dtype).view(&ne, &[element, block, rows.nb[1], rows.nb[2], rows.nb[3]], at))
}

/// `x + by` where `x` is below zero, in place: signed bytes or nibbles to unsigned ones.
fn unsigned(lower: &mut Lower, x: &TensorArg, by: f32) -> Result<(), Unsupported> {
    let below = lower.scratch_like(x, ACL_FLOAT);
    lower.call(AclOp::aclnnGtScalar, [x.clone().into(), scalar(-0.5), below.clone().into()])?;
    lower.sub(x, &below, by, x)?;
    lower.adds(x, by, x)
}

/// `bytes = u` for unsigned `u` below 256.
fn store_bytes(lower: &mut Lower, u: &TensorArg, bytes: &TensorArg) -> Result<(), Unsupported> {
    let above = lower.scratch_like(u, ACL_FLOAT);
    lower.call(AclOp::aclnnGtScalar, [u.clone().into(), scalar(127.5), above.clone().into()])?;
    lower.sub(u, &above, 256.0, u)?;
    lower.assign(bytes, u)
}

/// 2^0, 2^1 … 2^7, or their inverses times `factor`.
fn powers(lower: &mut Lower, rank: usize, power: impl Fn(i32) -> f32) -> TensorArg {
    let values: Vec<f32> = (0..8).map(power).collect();
    let mut ne = vec![1; rank];
    ne[0] = 8;
    lower.constant_f32(&values, &ne)
}

/// f32 values of an operand in blocks, packed.
pub(super) fn decode(lower: &mut Lower, o: &Operand) -> Result<TensorArg, Unsupported> {
    let at = fields(o.ty)?;
    let bytes = lower.to_dtype(&field(o, at.nibbles, ACL_INT8, 16)?, ACL_FLOAT)?;
    let mut ne = bytes.ne.clone();
    ne[0] = 32;
    let out = lower.scratch(ACL_FLOAT, &ne);
    let (low, high) = (out.narrow(0, 0, 16), out.narrow(0, 16, 16));
    let sixteenth = lower.scratch_like(&bytes, ACL_FLOAT);
    lower.muls(&bytes, 1.0 / 16.0, &sixteenth)?;
    lower.unary(AclOp::aclnnFloor, &sixteenth, &high)?;
    lower.sub(&bytes, &high, 16.0, &low)?;
    unsigned(lower, &high, 16.0)?;
    if let Some(first) = at.high_bits {
        let words = lower.to_dtype(&field(o, first, ACL_INT8, 4)?, ACL_FLOAT)?;
        unsigned(lower, &words, 256.0)?;
        // Bit k of u is floor(u / 2^k) - 2 floor(u / 2^(k+1)).
        let words = words.split(0, 1);
        let mut ne = words.ne.clone();
        ne[0] = 8;
        let [bits, rest] = [(); 2].map(|()| lower.scratch(ACL_FLOAT, &ne));
        for (t, shift) in [(&bits, 0), (&rest, 1)] {
            let factors = powers(lower, ne.len(), |k| 0.5f32.powi(k + shift));
            lower.mul(&words, &factors, t)?;
            lower.unary(AclOp::aclnnFloor, t, t)?;
        }
        lower.sub(&bits, &rest, 2.0, &bits)?;
        let bits = bits.merged(0).expect("packed");
        lower.add(&out, &bits, 16.0, &out)?;
    }
    if o.ty == GgmlType::Q5_0 {
        lower.adds(&out, -16.0, &out)?;
    }
    lower.call(AclOp::aclnnInplaceMul, [out.clone().into(), field(o, 0, ACL_FLOAT16, 1)?.into()])?;
    if let Some(m) = at.minimum {
        let args = [out.clone().into(), field(o, m, ACL_FLOAT16, 1)?.into(), super::steps::ONE];
        lower.call(AclOp::aclnnInplaceAdd, args)?;
    }
    Ok(out.reshaped(&o.ne))
}

/// Writes packed f32 rows of `dst`'s shape as blocks.
pub(super) fn encode(lower: &mut Lower, x: &TensorArg, dst: &Operand) -> Result<(), Unsupported> {
    let at = fields(dst.ty)?;
    let levels = if at.high_bits.is_some() { 32.0 } else { 16.0 };
    let x = x.split(0, Operand::GROUP);
    let t = lower.scratch_like(&x, ACL_FLOAT);
    let scale = match at.minimum {
        Some(m) => {
            let extremes = affine_extremes(lower, &x, levels - 1.0)?;
            lower.add(&x, &extremes.negated_low, 1.0, &t)?;
            lower.mul(&t, &extremes.inverse, &t)?;
            lower.adds(&t, 0.5, &t)?;
            let low = lower.scratch_like(&extremes.scale, ACL_FLOAT);
            lower.muls(&extremes.negated_low, -1.0, &low)?;
            lower.assign(&field(dst, m, ACL_FLOAT16, 1)?, &low)?;
            extremes.scale
        }
        None => {
            let (scale, inverse) = signed_extreme(lower, &x, levels / 2.0)?;
            lower.mul(&x, &inverse, &t)?;
            lower.adds(&t, levels / 2.0 + 0.5, &t)?;
            scale
        }
    };
    lower.assign(&field(dst, 0, ACL_FLOAT16, 1)?, &scale)?;
    lower.unary(AclOp::aclnnTrunc, &t, &t)?;
    let n = lower.scratch_like(&t, ACL_FLOAT);
    lower.call(AclOp::aclnnClamp, [t.clone().into(), scalar(0.0), scalar(levels - 1.0), n.clone().into()])?;
    if let Some(first) = at.high_bits {
        let bits = t;
        lower.call(AclOp::aclnnGtScalar, [n.clone().into(), scalar(15.5), bits.clone().into()])?;
        lower.sub(&n, &bits, 16.0, &n)?;
        let bits = bits.split(0, 8);
        let weights = powers(lower, bits.ne.len(), |k| 2f32.powi(k));
        lower.mul(&bits, &weights, &bits)?;
        let mut ne = bits.ne.clone();
        ne[0] = 1;
        let words = lower.scratch(ACL_FLOAT, &ne);
        let along = Arg::Ints(vec![super::operand::axis(0)]);
        let args = [bits.into(), along, Arg::Bool(true), Arg::DType(ACL_FLOAT), words.clone().into()];
        lower.call(AclOp::aclnnReduceSum, args)?;
        let words = words.merged(0).expect("packed");
        store_bytes(lower, &words, &field(dst, first, ACL_INT8, 4)?)?;
    }
    let (low, high) = (n.narrow(0, 0, 16), n.narrow(0, 16, 16));
    let bytes = lower.scratch_like(&low, ACL_FLOAT);
    lower.add(&low, &high, 16.0, &bytes)?;
    store_bytes(lower, &bytes, &field(dst, at.nibbles, ACL_INT8, 16)?)
}
