//! Calls that many plan functions write, in one place: temporaries, conversions, element-wise operators.

use acl_sys::*;

use super::operand::{dtype_bytes, packed_nb};
use super::*;
use crate::lower::{Arg, ScalarArg, Span, TensorArg};
use crate::refuse;

pub(crate) const ONE: Arg = Arg::Scalar(ScalarArg::F32(1.0));

pub(crate) fn scalar(v: f32) -> Arg {
    Arg::Scalar(ScalarArg::F32(v))
}

/// Where the host lists something for each place of a dimension, there are no more places than this.
const LONGEST_LIST: i64 = 1 << 24;

/// Refuses a list for the device that no memory of the host should hold; extents may be any number.
pub(super) fn listed(places: i64) -> Result<(), Unsupported> {
    if places > LONGEST_LIST {
        refuse!("a list of {places} numbers, more than {LONGEST_LIST}");
    }
    Ok(())
}

type Planned<T = ()> = Result<T, Unsupported>;

impl Lower<'_> {
    /// Packed scratch.
    pub fn scratch(&mut self, dtype: aclDataType, ne: &[i64]) -> TensorArg {
        // What overflows is no memory either, and allocating it says so.
        let bytes = ne.iter().fold(dtype_bytes(dtype), |bytes, n| bytes.saturating_mul(*n));
        let mem = self.temp(bytes.max(1) as u64);
        packed(mem, dtype, ne)
    }

    /// Packed scratch with the extents of `like`.
    pub fn scratch_like(&mut self, like: &TensorArg, dtype: aclDataType) -> TensorArg {
        self.scratch(dtype, &like.ne.clone())
    }

    /// A packed f32 constant.
    pub fn constant_f32(&mut self, values: &[f32], ne: &[i64]) -> TensorArg {
        let mem = self.constant(values.iter().flat_map(|v| v.to_le_bytes()).collect());
        packed(mem, ACL_FLOAT, ne)
    }

    /// A packed i32 constant.
    pub fn constant_i32(&mut self, values: &[i32], ne: &[i64]) -> TensorArg {
        let mem = self.constant(values.iter().flat_map(|v| v.to_le_bytes()).collect());
        packed(mem, ACL_INT32, ne)
    }

    /// `out = op(x)`.
    pub fn unary(&mut self, op: AclOp, x: &TensorArg, out: &TensorArg) -> Planned {
        self.call(op, [x.clone().into(), out.clone().into()])
    }

    /// `out = x + alpha y`, broadcast by ACL's rules.
    pub fn add(&mut self, x: &TensorArg, y: &TensorArg, alpha: f32, out: &TensorArg) -> Planned {
        self.call(AclOp::aclnnAdd, [x.clone().into(), y.clone().into(), alpha_for(x, y, alpha), out.clone().into()])
    }

    /// `out = x - alpha y`.
    pub fn sub(&mut self, x: &TensorArg, y: &TensorArg, alpha: f32, out: &TensorArg) -> Planned {
        self.call(AclOp::aclnnSub, [x.clone().into(), y.clone().into(), alpha_for(x, y, alpha), out.clone().into()])
    }

    pub fn mul(&mut self, x: &TensorArg, y: &TensorArg, out: &TensorArg) -> Planned {
        self.call(AclOp::aclnnMul, [x.clone().into(), y.clone().into(), out.clone().into()])
    }

    pub fn div(&mut self, x: &TensorArg, y: &TensorArg, out: &TensorArg) -> Planned {
        self.call(AclOp::aclnnDiv, [x.clone().into(), y.clone().into(), out.clone().into()])
    }

    /// `out = x * s`.
    pub fn muls(&mut self, x: &TensorArg, s: f32, out: &TensorArg) -> Planned {
        self.call(AclOp::aclnnMuls, [x.clone().into(), scalar(s), out.clone().into()])
    }

    /// `out = x + s`.
    pub fn adds(&mut self, x: &TensorArg, s: f32, out: &TensorArg) -> Planned {
        self.call(AclOp::aclnnAdds, [x.clone().into(), scalar(s), ONE, out.clone().into()])
    }

    /// `x = v` everywhere.
    pub fn fill_scalar(&mut self, x: &TensorArg, v: f32) -> Planned {
        self.call(AclOp::aclnnInplaceFillScalar, [x.clone().into(), scalar(v)])
    }

    /// `dst = src`, any strides on both sides, with conversion of type. Packed and same type is a copy of bytes.
    pub fn assign(&mut self, dst: &TensorArg, src: &TensorArg) -> Planned {
        if dst.dtype == src.dtype {
            if dst.is_packed() && src.is_packed() && dst.numel() == src.numel() {
                let bytes = (dst.numel() * dtype_bytes(dst.dtype)) as u64;
                let (to, from) = (
                    Span { mem: dst.mem, offset: dst.offset, bytes },
                    Span { mem: src.mem, offset: src.offset, bytes },
                );
                if to != from {
                    self.copy(to, from);
                }
                return Ok(());
            }
            return self.call(AclOp::aclnnInplaceCopy, [dst.clone().into(), src.clone().into()]);
        }
        self.call(AclOp::aclnnCast, [src.clone().into(), Arg::DType(dst.dtype), dst.clone().into()])
    }

    /// Rows of `table` (`[row, n]`) by `index`; `out` has the row, then the index tensor's dimensions.
    pub fn gather(&mut self, table: &TensorArg, index: &TensorArg, out: &TensorArg) -> Planned {
        self.call(AclOp::aclnnGatherV2, [table.clone().into(), Arg::I64(0), index.clone().into(), out.clone().into()])
    }

    /// The tensor itself, or a packed conversion of it.
    pub fn to_dtype(&mut self, t: &TensorArg, dtype: aclDataType) -> Planned<TensorArg> {
        if t.dtype == dtype {
            return Ok(t.clone());
        }
        let out = self.scratch_like(t, dtype);
        self.assign(&out, t)?;
        Ok(out)
    }

    /// The tensor itself, or a packed copy of it. All strides are those of a packed tensor, of dimensions of 1 too.
    pub fn contiguous(&mut self, t: &TensorArg) -> Planned<TensorArg> {
        if t.is_packed() {
            return Ok(t.reshaped(&t.ne));
        }
        let out = self.scratch_like(t, t.dtype);
        self.assign(&out, t)?;
        Ok(out)
    }

    /// The tensor as `[ne0, rows]`, or a packed copy of it where strides do not allow that.
    pub fn as_rows(&mut self, t: &TensorArg) -> Planned<TensorArg> {
        if let Some(rows) = t.merged(1).and_then(|t| t.merged(1)) {
            return Ok(rows);
        }
        let t = self.contiguous(t)?;
        Ok(t.reshaped(&[t.ne[0], t.ne[1..].iter().product()]))
    }

    /// f32 values of quants in groups: `out = (q + offset) * scale`, `[32, groups, …]`. Int4 comes as its bytes,
    /// `[16, groups, …]`; scales and offsets are `[1, groups, …]`.
    pub fn dequantise(
        &mut self,
        layout: Layout,
        quants: &TensorArg,
        scales: &TensorArg,
        offsets: Option<&TensorArg>,
        out: &TensorArg,
    ) -> Planned {
        match layout {
            Layout::Q8_0 => self.assign(out, quants)?,
            Layout::Q4_0 | Layout::Int4Affine => {
                // A byte is 16 hi + (lo & 15) with both nibbles signed: hi = floor(byte / 16), the rest wraps at 8.
                let nibble = |first: i64| {
                    let mut nb = out.nb.clone();
                    nb[0] *= 2;
                    out.view(&quants.ne, &nb, first * 4)
                };
                let (even, odd) = (nibble(0), nibble(1));
                let bytes = self.to_dtype(quants, ACL_FLOAT)?;
                let low = self.scratch_like(quants, ACL_FLOAT);
                self.muls(&bytes, 1.0 / 16.0, &low)?;
                self.unary(AclOp::aclnnFloor, &low, &odd)?;
                self.sub(&bytes, &odd, 16.0, &low)?;
                self.call(AclOp::aclnnGtScalar, [low.clone().into(), scalar(7.5), bytes.clone().into()])?;
                self.sub(&low, &bytes, 16.0, &even)?;
            }
            _ => refuse!("this layout has no scales"),
        }
        if let Some(offsets) = offsets {
            self.call(AclOp::aclnnInplaceAdd, [out.clone().into(), offsets.clone().into(), ONE])?;
        }
        self.call(AclOp::aclnnInplaceMul, [out.clone().into(), scales.clone().into()])
    }
}

/// Named memory as a packed tensor.
pub(crate) fn packed(mem: Mem, dtype: aclDataType, ne: &[i64]) -> TensorArg {
    TensorArg { mem, offset: 0, dtype, ne: ne.to_vec(), nb: packed_nb(dtype, ne), format: ACL_FORMAT_ND }
}

/// An integer sum needs an integer alpha.
fn alpha_for(x: &TensorArg, y: &TensorArg, alpha: f32) -> Arg {
    let float = |t: &TensorArg| matches!(t.dtype, ACL_FLOAT | ACL_FLOAT16 | ACL_BF16 | ACL_DOUBLE);
    if float(x) || float(y) { scalar(alpha) } else { Arg::Scalar(ScalarArg::I64(alpha as i64)) }
}
