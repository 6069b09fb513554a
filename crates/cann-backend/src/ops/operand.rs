//! An operand of a node: named memory with ggml's shape, and how the device lays it out.

use acl_sys::*;

use super::*;
use crate::lower::TensorArg;
use crate::refuse;

/// A tensor as a plan function sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Operand {
    pub mem: Mem,
    /// Byte offset of the first element in the root, in ggml's layout.
    pub offset: u64,
    pub ty: GgmlType,
    pub ne: [i64; 4],
    pub nb: [u64; 4],
    /// How the root's bytes are laid out on the device.
    pub layout: Layout,
    /// Elements of the root: the scale region of a quantised layout starts after that many quants.
    pub root_elements: u64,
    /// Whether the memory is a leaf that nothing in the graph writes: its blocks may be dequantised by the host, once.
    pub leaf: bool,
}

/// The ACL type of a plain ggml type.
pub(crate) fn dtype(ty: GgmlType) -> Result<aclDataType, Unsupported> {
    Ok(match ty {
        GgmlType::F32 => ACL_FLOAT,
        GgmlType::F16 => ACL_FLOAT16,
        GgmlType::Bf16 => ACL_BF16,
        GgmlType::I8 => ACL_INT8,
        GgmlType::I16 => ACL_INT16,
        GgmlType::I32 => ACL_INT32,
        GgmlType::I64 => ACL_INT64,
        GgmlType::F64 => ACL_DOUBLE,
        other => refuse!("operators do not read {} as it is", other.name()),
    })
}

/// Bytes of an element.
pub(crate) fn dtype_bytes(dtype: aclDataType) -> i64 {
    match dtype {
        ACL_DOUBLE | ACL_INT64 | ACL_UINT64 => 8,
        ACL_FLOAT | ACL_INT32 | ACL_UINT32 => 4,
        ACL_FLOAT16 | ACL_BF16 | ACL_INT16 | ACL_UINT16 => 2,
        _ => 1,
    }
}

/// Byte strides of a packed tensor.
pub(crate) fn packed_nb(dtype: aclDataType, ne: &[i64]) -> Vec<i64> {
    let mut stride = dtype_bytes(dtype);
    ne.iter()
        .map(|n| {
            let nb = stride;
            stride *= n;
            nb
        })
        .collect()
}

/// The ACL axis of ggml's dimension `d`, counted from the end.
pub(crate) const fn axis(d: usize) -> i64 {
    -(d as i64) - 1
}

impl Operand {
    pub fn is_empty(&self) -> bool {
        self.ne.contains(&0)
    }

    pub fn nelements(&self) -> i64 {
        self.ne.iter().product()
    }

    pub fn nrows(&self) -> i64 {
        self.ne[1] * self.ne[2] * self.ne[3]
    }

    /// Rows packed one after another without gaps, in ggml's layout.
    pub fn is_contiguous(&self) -> bool {
        contiguous_nb(self.ty, self.ne).is_some_and(|nb| (0..4).all(|d| self.ne[d] == 1 || self.nb[d] == nb[d]))
            || self.is_empty()
    }

    /// Bytes of a packed copy, in ggml's layout.
    pub fn packed_bytes(&self) -> u64 {
        self.nelements() as u64 / self.ty.block_len() as u64 * self.ty.block_bytes() as u64
    }

    /// The four dimensions as they are, for a plain type.
    pub fn arg(&self) -> Result<TensorArg, Unsupported> {
        if self.layout != Layout::Plain {
            refuse!("operators do not read {} as it is", self.ty.name());
        }
        Ok(TensorArg {
            mem: self.mem,
            offset: self.offset,
            dtype: dtype(self.ty)?,
            ne: self.ne.to_vec(),
            nb: self.nb.iter().map(|n| *n as i64).collect(),
            format: ACL_FORMAT_ND,
        })
    }

    /// Index of the first element in the root, and strides in elements, of a quantised operand.
    fn elements(&self) -> Result<(i64, [i64; 4]), Unsupported> {
        let (len, bytes) = (self.ty.block_len() as u64, self.ty.block_bytes() as u64);
        let rows_whole = (1..4).all(|d| self.ne[d] == 1 || self.nb[d].is_multiple_of(bytes));
        if !self.offset.is_multiple_of(bytes)
            || self.nb[0] != bytes
            || !rows_whole
            || !(self.ne[0] as u64).is_multiple_of(len)
        {
            refuse!("a {} operand whose rows are not runs of whole blocks", self.ty.name());
        }
        let stride = |d: usize| (self.nb[d] / bytes * len) as i64;
        Ok(((self.offset / bytes * len) as i64, [1, stride(1), stride(2), stride(3)]))
    }

    /// Elements per scale in the layout's regions.
    pub const GROUP: i64 = 32;

    /// Quants in groups: `[32, groups, ne1, ne2, ne3]`, int8 or int4 by layout. Strides of int4 are in half bytes.
    pub fn quants(&self) -> Result<TensorArg, Unsupported> {
        let (at, s) = self.elements()?;
        let (dtype, offset) = match self.layout {
            Layout::Q8_0 => (ACL_INT8, at),
            Layout::Q4_0 | Layout::Int4Affine => (ACL_INT4, at / 2),
            _ => refuse!("{} has no quant region", self.ty.name()),
        };
        Ok(TensorArg {
            mem: self.mem,
            offset: offset as u64,
            dtype,
            ne: vec![Self::GROUP, self.ne[0] / Self::GROUP, self.ne[1], self.ne[2], self.ne[3]],
            nb: vec![1, Self::GROUP, s[1], s[2], s[3]],
            format: ACL_FORMAT_ND,
        })
    }

    /// The bytes of int4 quants as int8: `[16, groups, ne1, ne2, ne3]`; the even element is in the low nibble.
    pub fn packed_quants(&self) -> Result<TensorArg, Unsupported> {
        let mut t = self.quants()?;
        if t.dtype == ACL_INT4 {
            t.dtype = ACL_INT8;
            t.ne[0] /= 2;
            t.nb.iter_mut().skip(1).for_each(|n| *n /= 2);
        }
        Ok(t)
    }

    /// f16 scales: `[1, groups, ne1, ne2, ne3]`.
    pub fn scales(&self) -> Result<TensorArg, Unsupported> {
        self.scale_region(0)
    }

    /// f16 offsets, shaped as the scales; none but for [`Layout::Int4Affine`].
    pub fn offsets(&self) -> Result<Option<TensorArg>, Unsupported> {
        if self.layout == Layout::Int4Affine { self.scale_region(1).map(Some) } else { Ok(None) }
    }

    fn scale_region(&self, region: u64) -> Result<TensorArg, Unsupported> {
        let (at, s) = self.elements()?;
        let quants = match self.layout {
            Layout::Q8_0 => self.root_elements,
            Layout::Q4_0 | Layout::Int4Affine => self.root_elements / 2,
            _ => refuse!("{} has no scale region", self.ty.name()),
        };
        let groups = self.root_elements / Self::GROUP as u64;
        let bytes = |elements: i64| elements / Self::GROUP * 2;
        Ok(TensorArg {
            mem: self.mem,
            offset: quants + region * groups * 2 + bytes(at) as u64,
            dtype: ACL_FLOAT16,
            ne: vec![1, self.ne[0] / Self::GROUP, self.ne[1], self.ne[2], self.ne[3]],
            nb: vec![2, 2, bytes(s[1]), bytes(s[2]), bytes(s[3])],
            format: ACL_FORMAT_ND,
        })
    }

    /// The values as a float or integer tensor of four dimensions with any strides: the operand itself where operators read
    /// its type, else f32 (dequantised on the device, or the host's twin of a leaf kept in blocks).
    pub fn values(&self, lower: &mut Lower) -> Result<TensorArg, Unsupported> {
        match self.layout {
            Layout::Plain => self.arg(),
            Layout::Blocks if self.leaf => self.twin(),
            Layout::Blocks => super::blocks::decode(lower, self),
            Layout::Q8_0 | Layout::Q4_0 | Layout::Int4Affine => {
                lower.note(format!("{} dequantised to f32", self.ty.name()));
                self.dequantised(lower)
            }
        }
    }

    /// As [`Operand::values`], in f32, with any strides.
    pub fn f32(&self, lower: &mut Lower) -> Result<TensorArg, Unsupported> {
        let t = self.values(lower)?;
        lower.to_dtype(&t, ACL_FLOAT)
    }

    /// As [`Operand::f32`], packed.
    pub fn as_f32(&self, lower: &mut Lower) -> Result<TensorArg, Unsupported> {
        let t = self.f32(lower)?;
        lower.contiguous(&t)
    }

    /// The host's f32 twin of a leaf that is kept in ggml blocks, seen through this view.
    fn twin(&self) -> Result<TensorArg, Unsupported> {
        let Mem::Node(root) = self.mem else { refuse!("{} blocks in scratch have no twin", self.ty.name()) };
        let (at, s) = self.elements()?;
        Ok(TensorArg {
            mem: Mem::Dequant(root),
            offset: at as u64 * 4,
            dtype: ACL_FLOAT,
            ne: self.ne.to_vec(),
            nb: s.iter().map(|s| s * 4).collect(),
            format: ACL_FORMAT_ND,
        })
    }

    fn dequantised(&self, lower: &mut Lower) -> Result<TensorArg, Unsupported> {
        let quants = if self.layout == Layout::Q8_0 { self.quants()? } else { self.packed_quants()? };
        let mut ne = quants.ne.clone();
        ne[0] = Self::GROUP;
        let out = lower.scratch(ACL_FLOAT, &ne);
        lower.dequantise(self.layout, &quants, &self.scales()?, self.offsets()?.as_ref(), &out)?;
        Ok(out.reshaped(&self.ne))
    }
}

/// Views of arguments: none of these copies.
impl TensorArg {
    pub fn numel(&self) -> i64 {
        self.ne.iter().product()
    }

    pub fn is_packed(&self) -> bool {
        let nb = packed_nb(self.dtype, &self.ne);
        (0..self.ne.len()).all(|d| self.ne[d] == 1 || self.nb[d] == nb[d]) || self.ne.contains(&0)
    }

    /// The same memory with these extents and byte strides, `extra` bytes further on.
    pub fn view(&self, ne: &[i64], nb: &[i64], extra: i64) -> TensorArg {
        let offset = (self.offset as i64 + extra) as u64;
        TensorArg { offset, ne: ne.to_vec(), nb: nb.to_vec(), ..self.clone() }
    }

    /// A packed tensor with other extents.
    pub fn reshaped(&self, ne: &[i64]) -> TensorArg {
        debug_assert!(self.is_packed() && self.numel() == ne.iter().product::<i64>());
        self.view(ne, &packed_nb(self.dtype, ne), 0)
    }

    /// Dimension `i` of the result is dimension `axes[i]` of this.
    pub fn permuted(&self, axes: &[usize]) -> TensorArg {
        let pick = |v: &[i64]| axes.iter().map(|a| v[*a]).collect::<Vec<_>>();
        self.view(&pick(&self.ne), &pick(&self.nb), 0)
    }

    /// `len` elements of dimension `d` from `start` on.
    pub fn narrow(&self, d: usize, start: i64, len: i64) -> TensorArg {
        // Strides of int4 are in half bytes, offsets are not.
        let skip = start * self.nb[d] / if self.dtype == ACL_INT4 { 2 } else { 1 };
        let mut t = self.view(&self.ne, &self.nb, skip);
        t.ne[d] = len;
        t
    }

    /// Dimension `d` (a multiple of `inner`) as two: `inner` fast ones, then the rest.
    pub fn split(&self, d: usize, inner: i64) -> TensorArg {
        let mut t = self.clone();
        t.ne[d] = inner;
        t.ne.insert(d + 1, if inner == 0 { 0 } else { self.ne[d] / inner });
        t.nb.insert(d + 1, self.nb[d] * inner);
        t
    }

    /// Dimension `d` dropped at index `i`.
    pub fn at(&self, d: usize, i: i64) -> TensorArg {
        let mut t = self.narrow(d, i, 1);
        t.ne.remove(d);
        t.nb.remove(d);
        t
    }

    /// Dimensions `d` and `d + 1` as one, where the strides allow.
    pub fn merged(&self, d: usize) -> Option<TensorArg> {
        let mut t = self.clone();
        let (inner, outer) = (self.ne[d], self.ne[d + 1]);
        if outer != 1 && inner != 1 && self.nb[d + 1] != self.nb[d] * inner {
            return None;
        }
        if inner == 1 {
            t.nb[d] = self.nb[d + 1];
        }
        t.ne[d] = inner * outer;
        t.ne.remove(d + 1);
        t.nb.remove(d + 1);
        Some(t)
    }

    /// The same bytes as another type of the same size.
    pub fn with_dtype(&self, dtype: aclDataType) -> TensorArg {
        TensorArg { dtype, ..self.clone() }
    }

    pub fn with_format(&self, format: aclFormat) -> TensorArg {
        TensorArg { format, ..self.clone() }
    }
}

/// Both operands of an element-wise operator and its result, with each dimension in which `small` repeats modulo its own extent
/// split in two, so that ACL's broadcasting gives ggml's. `big` and `out` have the same shape.
pub(crate) fn repeat_split(big: &TensorArg, small: &TensorArg, out: &TensorArg) -> [TensorArg; 3] {
    let (mut big, mut small, mut out) = (big.clone(), small.clone(), out.clone());
    for d in (0..big.ne.len()).rev() {
        let inner = small.ne[d];
        if inner != big.ne[d] && inner != 1 {
            big = big.split(d, inner);
            out = out.split(d, inner);
            small = small.split(d, inner);
        }
    }
    [big, small, out]
}
