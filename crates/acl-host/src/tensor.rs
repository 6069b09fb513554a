//! Tensors as ACL describes them, and the views of device memory that operators compute on.
//!
//! A [`Tensor`] is what `aclCreateTensor` makes. A [`View`] is its resolved form: pointer, type, dims and strides with the
//! offset applied, small enough to be copied into a closure. All reading and writing of device memory by operators goes
//! through a view, element ranges being counted in row-major order of the view's dims whatever its strides are:
//! [`View::read`] answers with the memory itself where that is possible and with converted elements otherwise,
//! [`View::write`] converts back. Arithmetic happens in one of three lanes: `f32` (for f32, f16, bf16), `f64`, `i64`.
//!
//! Memory access is sound by ACL's own contract, not by Rust's: whoever creates a descriptor promises that the memory it
//! describes stays valid until the stream has passed the launches that use it, and that no other work touches it meanwhile.
//! Absent on purpose: ownership of memory, and range checks against allocations (the runtime's checked mode has them).

use std::ffi::c_void;

use acl_sys::*;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::kernels::convert;
use crate::runtime::checked::Region;

/// The most dims a tensor may have.
pub(crate) const MAX_RANK: usize = 8;

/// Below this no system maps memory: what begins there is an offset from a null pointer.
const LOWEST_ADDRESS: usize = 4096;

/// Element types the device knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum DType {
    F32,
    F16,
    BF16,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Bool,
    /// Two per byte, the even element in the low nibble.
    I4,
}

/// In which type a computation on a [`DType`] happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Domain {
    F32,
    F64,
    I64,
}

impl DType {
    pub(crate) fn from_acl(code: aclDataType) -> Option<DType> {
        Some(match code {
            ACL_FLOAT => DType::F32,
            ACL_FLOAT16 => DType::F16,
            ACL_BF16 => DType::BF16,
            ACL_DOUBLE => DType::F64,
            ACL_INT8 => DType::I8,
            ACL_INT16 => DType::I16,
            ACL_INT32 => DType::I32,
            ACL_INT64 => DType::I64,
            ACL_UINT8 => DType::U8,
            ACL_UINT16 => DType::U16,
            ACL_UINT32 => DType::U32,
            ACL_UINT64 => DType::U64,
            ACL_BOOL => DType::Bool,
            ACL_INT4 => DType::I4,
            _ => return None,
        })
    }

    pub(crate) fn bits(self) -> usize {
        match self {
            DType::I4 => 4,
            DType::I8 | DType::U8 | DType::Bool => 8,
            DType::F16 | DType::BF16 | DType::I16 | DType::U16 => 16,
            DType::F32 | DType::I32 | DType::U32 => 32,
            DType::F64 | DType::I64 | DType::U64 => 64,
        }
    }

    /// Bytes of one element; not for [`DType::I4`], of which two share a byte.
    pub(crate) fn size(self) -> usize {
        self.bits() / 8
    }

    pub(crate) fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F16 | DType::BF16 | DType::F64)
    }

    /// F32, F16 or BF16: what most floating operators accept.
    pub(crate) fn is_flt(self) -> bool {
        matches!(self, DType::F32 | DType::F16 | DType::BF16)
    }

    pub(crate) fn domain(self) -> Domain {
        match self {
            DType::F32 | DType::F16 | DType::BF16 => Domain::F32,
            DType::F64 => Domain::F64,
            _ => Domain::I64,
        }
    }
}

/// Storage of one element and how it converts: float to int truncates, saturates and takes NaN to 0; float to smaller float
/// rounds to nearest even; int to smaller int keeps the low bits; anything but zero is true.
pub(crate) trait Elem: Copy + Send + Sync + 'static {
    const DTYPE: DType;
    fn to_f32(self) -> f32;
    fn to_f64(self) -> f64;
    fn to_i64(self) -> i64;
    fn from_f32(x: f32) -> Self;
    fn from_f64(x: f64) -> Self;
    fn from_i64(x: i64) -> Self;

    /// Whole runs, where a type has a faster way than one by one.
    fn to_f32s(from: &[Self], to: &mut [f32]) {
        for (t, f) in to.iter_mut().zip(from) {
            *t = f.to_f32();
        }
    }
    fn from_f32s(from: &[f32], to: &mut [Self]) {
        for (t, f) in to.iter_mut().zip(from) {
            *t = Self::from_f32(*f);
        }
    }
}

macro_rules! elem_number {
    ($($ty:ty = $dtype:ident),*) => {$(
        impl Elem for $ty {
            const DTYPE: DType = DType::$dtype;
            fn to_f32(self) -> f32 { self as f32 }
            fn to_f64(self) -> f64 { self as f64 }
            fn to_i64(self) -> i64 { self as i64 }
            fn from_f32(x: f32) -> Self { x as Self }
            fn from_f64(x: f64) -> Self { x as Self }
            fn from_i64(x: i64) -> Self { x as Self }
        }
    )*};
}
elem_number!(f32 = F32, f64 = F64, i8 = I8, i16 = I16, i32 = I32, i64 = I64, u8 = U8, u16 = U16, u32 = U32, u64 = U64);

impl Elem for f16 {
    const DTYPE: DType = DType::F16;
    fn to_f32(self) -> f32 {
        f16::to_f32(self)
    }
    fn to_f64(self) -> f64 {
        f16::to_f64(self)
    }
    fn to_i64(self) -> i64 {
        f16::to_f32(self) as i64
    }
    fn from_f32(x: f32) -> Self {
        f16::from_f32(x)
    }
    fn from_f64(x: f64) -> Self {
        f16::from_f64(x)
    }
    fn from_i64(x: i64) -> Self {
        f16::from_f32(x as f32)
    }
    fn to_f32s(from: &[Self], to: &mut [f32]) {
        convert::current().f16_to_f32(from.reinterpret_cast(), to);
    }
    fn from_f32s(from: &[f32], to: &mut [Self]) {
        convert::current().f32_to_f16(from, to.reinterpret_cast_mut());
    }
}

impl Elem for bf16 {
    const DTYPE: DType = DType::BF16;
    fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
    fn to_f64(self) -> f64 {
        f64::from(Elem::to_f32(self))
    }
    fn to_i64(self) -> i64 {
        Elem::to_f32(self) as i64
    }
    fn from_f32(x: f32) -> Self {
        bf16::from_f32(x)
    }
    fn from_f64(x: f64) -> Self {
        bf16::from_f64(x)
    }
    fn from_i64(x: i64) -> Self {
        Elem::from_f32(x as f32)
    }
    fn to_f32s(from: &[Self], to: &mut [f32]) {
        convert::current().bf16_to_f32(from.reinterpret_cast(), to);
    }
    fn from_f32s(from: &[f32], to: &mut [Self]) {
        convert::current().f32_to_bf16(from, to.reinterpret_cast_mut());
    }
}

/// A truth value in memory: any byte but zero counts as true.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Truth(u8);

impl Elem for Truth {
    const DTYPE: DType = DType::Bool;
    fn to_f32(self) -> f32 {
        f32::from(u8::from(self.0 != 0))
    }
    fn to_f64(self) -> f64 {
        f64::from(u8::from(self.0 != 0))
    }
    fn to_i64(self) -> i64 {
        i64::from(self.0 != 0)
    }
    fn from_f32(x: f32) -> Self {
        Truth(u8::from(x != 0.0))
    }
    fn from_f64(x: f64) -> Self {
        Truth(u8::from(x != 0.0))
    }
    fn from_i64(x: i64) -> Self {
        Truth(u8::from(x != 0))
    }
}

/// A type arithmetic happens in: `f32`, `f64` or `i64`.
pub(crate) trait Lane: Elem + Default + PartialOrd {
    fn is_nan(self) -> bool;
    fn load<E: Elem>(e: E) -> Self;
    fn store<E: Elem>(self) -> E;
    fn load_run<E: Elem>(from: &[E], to: &mut [Self]) {
        for (t, f) in to.iter_mut().zip(from) {
            *t = Self::load(*f);
        }
    }
    fn store_run<E: Elem>(from: &[Self], to: &mut [E]) {
        for (t, f) in to.iter_mut().zip(from) {
            *t = f.store();
        }
    }
}

impl Lane for f32 {
    fn is_nan(self) -> bool {
        f32::is_nan(self)
    }
    fn load<E: Elem>(e: E) -> f32 {
        e.to_f32()
    }
    fn store<E: Elem>(self) -> E {
        E::from_f32(self)
    }
    fn load_run<E: Elem>(from: &[E], to: &mut [f32]) {
        E::to_f32s(from, to);
    }
    fn store_run<E: Elem>(from: &[f32], to: &mut [E]) {
        E::from_f32s(from, to);
    }
}

impl Lane for f64 {
    fn is_nan(self) -> bool {
        f64::is_nan(self)
    }
    fn load<E: Elem>(e: E) -> f64 {
        e.to_f64()
    }
    fn store<E: Elem>(self) -> E {
        E::from_f64(self)
    }
}

impl Lane for i64 {
    fn is_nan(self) -> bool {
        false
    }
    fn load<E: Elem>(e: E) -> i64 {
        e.to_i64()
    }
    fn store<E: Elem>(self) -> E {
        E::from_i64(self)
    }
}

/// Calls `$body` with `$E` standing for the storage type of `$dtype`; `$i4` answers for packed elements.
macro_rules! with_elem {
    ($dtype:expr, $E:ident => $body:expr, i4 => $i4:expr) => {
        match $dtype {
            $crate::tensor::DType::F32 => {
                type $E = f32;
                $body
            }
            $crate::tensor::DType::F16 => {
                type $E = half::f16;
                $body
            }
            $crate::tensor::DType::BF16 => {
                type $E = half::bf16;
                $body
            }
            $crate::tensor::DType::F64 => {
                type $E = f64;
                $body
            }
            $crate::tensor::DType::I8 => {
                type $E = i8;
                $body
            }
            $crate::tensor::DType::I16 => {
                type $E = i16;
                $body
            }
            $crate::tensor::DType::I32 => {
                type $E = i32;
                $body
            }
            $crate::tensor::DType::I64 => {
                type $E = i64;
                $body
            }
            $crate::tensor::DType::U8 => {
                type $E = u8;
                $body
            }
            $crate::tensor::DType::U16 => {
                type $E = u16;
                $body
            }
            $crate::tensor::DType::U32 => {
                type $E = u32;
                $body
            }
            $crate::tensor::DType::U64 => {
                type $E = u64;
                $body
            }
            $crate::tensor::DType::Bool => {
                type $E = $crate::tensor::Truth;
                $body
            }
            $crate::tensor::DType::I4 => $i4,
        }
    };
}
pub(crate) use with_elem;

/// A resolved description of device memory; see the module for what makes access sound.
#[derive(Clone, Copy)]
pub(crate) struct View {
    ptr: *mut u8,
    /// The element at the origin, counted from `ptr`; only packed types use it, others have it in `ptr`.
    first: isize,
    dtype: DType,
    format: aclFormat,
    rank: usize,
    dims: [usize; MAX_RANK],
    strides: [isize; MAX_RANK],
}

// SAFETY: a view is an address and numbers. ACL orders all access to the memory by streams, from whatever thread.
unsafe impl Send for View {}
// SAFETY: as above; two threads that write through one view write different elements, which is the operators' duty.
unsafe impl Sync for View {}

impl View {
    /// A view of `dims` packed without gaps at `ptr`.
    pub(crate) fn packed(ptr: *mut u8, dtype: DType, dims: &[usize]) -> View {
        let mut view =
            View { ptr, first: 0, dtype, format: ACL_FORMAT_ND, rank: 0, dims: [1; MAX_RANK], strides: [0; MAX_RANK] };
        view.set_packed(dims);
        view
    }

    fn set_packed(&mut self, dims: &[usize]) {
        self.rank = dims.len();
        self.dims[..dims.len()].copy_from_slice(dims);
        let mut stride = 1isize;
        for i in (0..dims.len()).rev() {
            self.strides[i] = stride;
            stride *= dims[i].max(1) as isize;
        }
    }

    pub(crate) fn dims(&self) -> &[usize] {
        &self.dims[..self.rank]
    }

    /// In elements.
    pub(crate) fn strides(&self) -> &[isize] {
        &self.strides[..self.rank]
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    pub(crate) fn dim(&self, i: usize) -> usize {
        self.dims()[i]
    }

    /// The last dim; 1 for a scalar.
    pub(crate) fn row_len(&self) -> usize {
        self.dims().last().copied().unwrap_or(1)
    }

    /// How many rows of [`View::row_len`] there are; 0 for an empty tensor.
    pub(crate) fn rows(&self) -> usize {
        if self.is_empty() { 0 } else { self.numel() / self.row_len() }
    }

    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(crate) fn format(&self) -> aclFormat {
        self.format
    }

    pub(crate) fn numel(&self) -> usize {
        self.dims().iter().product()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.dims().contains(&0)
    }

    pub(crate) fn same_shape(&self, other: &View) -> bool {
        self.dims() == other.dims()
    }

    /// Whether the elements lie in row-major order without gaps.
    pub(crate) fn is_contiguous(&self) -> bool {
        let mut stride = 1isize;
        for i in (0..self.rank).rev() {
            if self.dims[i] != 1 {
                if self.strides[i] != stride {
                    return false;
                }
                stride *= self.dims[i] as isize;
            }
        }
        true
    }

    /// Elements and no address for them: legal to describe, not to compute on.
    pub(crate) fn lacks_memory(&self) -> bool {
        !self.is_empty() && self.span().0 < LOWEST_ADDRESS
    }

    /// The address of the first element, of a type that is not packed.
    pub(crate) fn ptr(&self) -> *mut u8 {
        self.ptr
    }

    /// The same memory as another type of the same width.
    pub(crate) fn with_dtype(mut self, dtype: DType) -> View {
        debug_assert_eq!(self.dtype.bits(), dtype.bits());
        self.dtype = dtype;
        self
    }

    /// Broadcast by numpy's rules to `dims`; `None` where that cannot be.
    pub(crate) fn broadcast_to(&self, dims: &[usize]) -> Option<View> {
        if dims.len() < self.rank || dims.len() > MAX_RANK {
            return None;
        }
        let mut view = *self;
        view.rank = dims.len();
        let lead = dims.len() - self.rank;
        for (i, &dim) in dims.iter().enumerate() {
            let (own, stride) = if i < lead { (1, 0) } else { (self.dims[i - lead], self.strides[i - lead]) };
            view.dims[i] = dim;
            view.strides[i] = match own {
                _ if own == dim => stride,
                1 => 0,
                _ => return None,
            };
        }
        Some(view)
    }

    /// Dim `i` of the result is dim `order[i]`; `order` must be a permutation of the dims.
    pub(crate) fn permuted(&self, order: &[usize]) -> View {
        debug_assert_eq!(order.len(), self.rank);
        let mut view = *self;
        for (i, &from) in order.iter().enumerate() {
            view.dims[i] = self.dims[from];
            view.strides[i] = self.strides[from];
        }
        view
    }

    /// With dim `axis` moved behind all others.
    pub(crate) fn axis_last(&self, axis: usize) -> View {
        let mut view = *self;
        view.dims[axis..self.rank].rotate_left(1);
        view.strides[axis..self.rank].rotate_left(1);
        view
    }

    /// With the last two dims swapped.
    pub(crate) fn transposed(&self) -> View {
        let mut view = *self;
        view.dims.swap(self.rank - 1, self.rank - 2);
        view.strides.swap(self.rank - 1, self.rank - 2);
        view
    }

    /// Elements `start`, `start + step`, … of dim `axis`, `len` of them.
    pub(crate) fn narrowed(&self, axis: usize, start: usize, len: usize, step: usize) -> View {
        let mut view = *self;
        if len > 0 {
            debug_assert!(start + (len - 1) * step < self.dims[axis]);
            view.shift(start as isize * self.strides[axis]);
        }
        view.dims[axis] = len;
        view.strides[axis] = self.strides[axis] * step as isize;
        view
    }

    /// With dim `axis` backwards.
    pub(crate) fn reversed(&self, axis: usize) -> View {
        let mut view = *self;
        if self.dims[axis] > 0 {
            view.shift((self.dims[axis] as isize - 1) * self.strides[axis]);
        }
        view.strides[axis] = -self.strides[axis];
        view
    }

    /// Some of the dims alone, at the origin of the others.
    pub(crate) fn sub_dims(&self, dims: std::ops::Range<usize>) -> View {
        let mut view = *self;
        view.rank = dims.len();
        view.dims[..dims.len()].copy_from_slice(&self.dims[dims.clone()]);
        view.strides[..dims.len()].copy_from_slice(&self.strides[dims]);
        view
    }

    /// Moved by `elements`.
    pub(crate) fn offset_by(&self, elements: isize) -> View {
        let mut view = *self;
        view.shift(elements);
        view
    }

    /// Element `index` of dim `axis`, without that dim.
    pub(crate) fn selected(&self, axis: usize, index: usize) -> View {
        let mut view = self.narrowed(axis, index, 1, 1);
        view.dims[axis..self.rank].rotate_left(1);
        view.strides[axis..self.rank].rotate_left(1);
        view.rank -= 1;
        view
    }

    /// With a dim of 1 before dim `axis`.
    pub(crate) fn with_unit_dim(&self, axis: usize) -> View {
        debug_assert!(self.rank < MAX_RANK);
        let mut view = *self;
        view.rank += 1;
        view.dims[axis..view.rank].rotate_right(1);
        view.strides[axis..view.rank].rotate_right(1);
        (view.dims[axis], view.strides[axis]) = (1, 0);
        view
    }

    /// With dims `axis` and `axis + 1` merged into one; the caller knows that the strides continue, or that one of them is 1.
    pub(crate) fn rows_merged(&self, axis: usize) -> View {
        let mut view = *self;
        let (outer, inner) = (self.dims[axis], self.dims[axis + 1]);
        view.dims[axis + 1] = outer * inner;
        if inner == 1 {
            view.strides[axis + 1] = self.strides[axis];
        }
        view.dims[axis..self.rank].rotate_left(1);
        view.strides[axis..self.rank].rotate_left(1);
        view.rank -= 1;
        view
    }

    /// With the dims from `axis` on merged into one, where strides allow.
    pub(crate) fn merged_from(&self, axis: usize) -> Option<View> {
        let tail = self.sub_dims(axis..self.rank).collapsed();
        let (dim, stride) = match tail.rank {
            0 => (1, 1),
            1 => (tail.dims[0], tail.strides[0]),
            _ => return None,
        };
        let mut view = *self;
        view.rank = axis + 1;
        (view.dims[axis], view.strides[axis]) = (dim, stride);
        Some(view)
    }

    /// Other dims over the same elements of a contiguous view.
    pub(crate) fn reshaped(&self, dims: &[usize]) -> Option<View> {
        if dims.len() > MAX_RANK || dims.iter().product::<usize>() != self.numel() || !self.is_contiguous() {
            return None;
        }
        let mut view = *self;
        view.set_packed(dims);
        Some(view)
    }

    /// The same elements in the same order with as few dims as strides allow.
    pub(crate) fn collapsed(&self) -> View {
        let mut view = *self;
        view.rank = 0;
        for i in 0..self.rank {
            let (dim, stride) = (self.dims[i], self.strides[i]);
            if dim == 1 {
                continue;
            }
            let last = view.rank.wrapping_sub(1);
            if view.rank > 0 && view.strides[last] == stride * dim as isize {
                view.dims[last] *= dim;
                view.strides[last] = stride;
            } else {
                view.dims[view.rank] = dim;
                view.strides[view.rank] = stride;
                view.rank += 1;
            }
        }
        view
    }

    /// Whether both views describe the same elements in the same places.
    pub(crate) fn same_place(&self, other: &View) -> bool {
        let (a, b) = (self.collapsed(), other.collapsed());
        a.ptr == b.ptr
            && a.first == b.first
            && a.dtype.bits() == b.dtype.bits()
            && a.dims() == b.dims()
            && a.strides() == b.strides()
    }

    /// Whether the address ranges of the two views meet.
    pub(crate) fn overlaps(&self, other: &View) -> bool {
        let ((a0, a1), (b0, b1)) = (self.span(), other.span());
        a0 < b1 && b0 < a1
    }

    /// Lowest address and one past the highest.
    pub(crate) fn span(&self) -> (usize, usize) {
        if self.is_empty() {
            return (0, 0);
        }
        let (mut low, mut high) = (self.first, self.first);
        for (&dim, &stride) in self.dims().iter().zip(self.strides()) {
            let reach = (dim as isize - 1) * stride;
            low += reach.min(0);
            high += reach.max(0);
        }
        let bits = self.dtype.bits() as isize;
        let base = self.ptr as isize;
        ((base + (low * bits).div_euclid(8)) as usize, (base + ((high + 1) * bits + 7).div_euclid(8)) as usize)
    }

    /// The bytes of its elements, for checked mode.
    pub(crate) fn region(&self) -> Region {
        let (start, end) = self.span();
        match self.dtype {
            DType::I4 => Region::solid(start, end - start),
            _ => Region::strided(start, end, self.dtype.size(), self.dims(), self.strides()),
        }
    }

    /// `len` elements from `start` as they lie in memory: only where they do so without gaps, aligned, and as type `E`.
    pub(crate) fn slice<E: Elem>(&self, start: usize, len: usize) -> Option<&[E]> {
        let ptr = self.run_ptr::<E>(start, len)?;
        // SAFETY: `run_ptr` found `len` aligned elements side by side inside the view, which the caller of ACL keeps valid.
        Some(unsafe { std::slice::from_raw_parts(ptr, len) })
    }

    /// Like [`View::slice`], to write to. Two threads must ask for different ranges, and nothing else may hold a slice of
    /// the same memory: operators whose output may lie on an input read that input with [`View::read_copy`].
    #[allow(clippy::mut_from_ref)]
    pub(crate) fn slice_mut<E: Elem>(&self, start: usize, len: usize) -> Option<&mut [E]> {
        let ptr = self.run_ptr::<E>(start, len)?;
        // SAFETY: as in `slice`; exclusive by the rule above.
        Some(unsafe { std::slice::from_raw_parts_mut(ptr, len) })
    }

    /// `to.len()` elements from `start` on, converted to the lane: the memory itself where it can be lent, else `to`.
    pub(crate) fn read<'a, N: Lane>(&'a self, start: usize, to: &'a mut [N]) -> &'a [N] {
        match self.slice::<N>(start, to.len()) {
            Some(run) => run,
            None => {
                self.read_copy(start, to);
                to
            }
        }
    }

    /// Like [`View::read`], always as a copy.
    pub(crate) fn read_copy<N: Lane>(&self, start: usize, to: &mut [N]) {
        with_elem!(self.dtype, E => self.gather::<E, N>(start, to), i4 => self.gather_i4(start, to));
    }

    /// Elements from `start` on become `from`, converted.
    pub(crate) fn write<N: Lane>(&self, start: usize, from: &[N]) {
        with_elem!(self.dtype, E => self.scatter::<E, N>(start, from), i4 => self.scatter_i4(start, from));
    }

    /// One element.
    pub(crate) fn get<N: Lane>(&self, index: usize) -> N {
        let mut one = [N::default()];
        self.read_copy(index, &mut one);
        one[0]
    }

    pub(crate) fn set<N: Lane>(&self, index: usize, value: N) {
        self.write(index, &[value]);
    }

    /// The address of element `offset` counted from the origin in elements; not for packed types.
    pub(crate) fn at(&self, offset: isize) -> *mut u8 {
        self.ptr.wrapping_offset(offset * self.dtype.size() as isize)
    }

    /// Where element `index` in row-major order lies, in elements from the origin.
    pub(crate) fn offset_of(&self, mut index: usize) -> isize {
        let mut offset = 0;
        for i in (0..self.rank).rev() {
            let dim = self.dims[i].max(1);
            offset += (index % dim) as isize * self.strides[i];
            index /= dim;
        }
        offset
    }

    /// Calls `f(offset, stride, position, len)` for each run of evenly spaced elements that `len` elements from `start` on
    /// fall into. Give it a collapsed view, or runs are shorter than they could be.
    pub(crate) fn for_each_run(&self, start: usize, len: usize, mut f: impl FnMut(isize, isize, usize, usize)) {
        if len == 0 {
            return;
        }
        if self.rank == 0 {
            return f(0, 1, 0, 1);
        }
        let last = self.rank - 1;
        let mut at = [0usize; MAX_RANK];
        let (mut offset, mut rest) = (0isize, start);
        for i in (0..self.rank).rev() {
            at[i] = rest % self.dims[i];
            rest /= self.dims[i];
            offset += at[i] as isize * self.strides[i];
        }
        let mut position = 0;
        loop {
            let run = (self.dims[last] - at[last]).min(len - position);
            f(offset, self.strides[last], position, run);
            position += run;
            if position == len {
                return;
            }
            offset -= at[last] as isize * self.strides[last];
            at[last] = 0;
            for i in (0..last).rev() {
                at[i] += 1;
                offset += self.strides[i];
                if at[i] < self.dims[i] {
                    break;
                }
                offset -= self.dims[i] as isize * self.strides[i];
                at[i] = 0;
            }
        }
    }

    fn shift(&mut self, elements: isize) {
        if self.dtype == DType::I4 {
            self.first += elements;
        } else {
            self.ptr = self.at(elements);
        }
    }

    /// The address of `len` elements of type `E` side by side and aligned from `start` on, if that is how they lie.
    fn run_ptr<E: Elem>(&self, start: usize, len: usize) -> Option<*mut E> {
        if self.dtype != E::DTYPE {
            return None;
        }
        let view = self.collapsed();
        let (row, stride) = match view.rank {
            0 => (1, 1),
            rank => (view.dims[rank - 1], view.strides[rank - 1]),
        };
        if len == 0 || (stride != 1 && len > 1) || start % row + len > row {
            return None;
        }
        let offset = view.offset_of(start);
        let ptr = self.at(offset).cast::<E>();
        (ptr.is_aligned() && !ptr.is_null()).then_some(ptr)
    }

    fn gather<E: Elem, N: Lane>(&self, start: usize, to: &mut [N]) {
        let view = self.collapsed();
        let base = self.ptr.cast::<E>();
        view.for_each_run(start, to.len(), |offset, stride, position, len| {
            let to = &mut to[position..position + len];
            let ptr = base.wrapping_offset(offset);
            if stride == 1 && ptr.is_aligned() {
                // SAFETY: `len` aligned elements side by side inside the view.
                N::load_run(unsafe { std::slice::from_raw_parts(ptr, len) }, to);
            } else if stride == 0 {
                // SAFETY: an element inside the view.
                to.fill(N::load(unsafe { ptr.read_unaligned() }));
            } else {
                for (i, t) in to.iter_mut().enumerate() {
                    // SAFETY: as above.
                    *t = N::load(unsafe { ptr.wrapping_offset(i as isize * stride).read_unaligned() });
                }
            }
        });
    }

    fn scatter<E: Elem, N: Lane>(&self, start: usize, from: &[N]) {
        let view = self.collapsed();
        let base = self.ptr.cast::<E>();
        view.for_each_run(start, from.len(), |offset, stride, position, len| {
            let from = &from[position..position + len];
            let ptr = base.wrapping_offset(offset);
            if stride == 1 && ptr.is_aligned() {
                // SAFETY: `len` aligned elements side by side inside the view, written by this thread only.
                N::store_run(from, unsafe { std::slice::from_raw_parts_mut(ptr, len) });
            } else {
                for (i, f) in from.iter().enumerate() {
                    // SAFETY: an element inside the view.
                    unsafe { ptr.wrapping_offset(i as isize * stride).write_unaligned(f.store()) };
                }
            }
        });
    }

    fn gather_i4<N: Lane>(&self, start: usize, to: &mut [N]) {
        self.collapsed().for_each_run(start, to.len(), |offset, stride, position, len| {
            for (i, t) in to[position..position + len].iter_mut().enumerate() {
                let element = self.first + offset + i as isize * stride;
                // SAFETY: the byte holds an element inside the view.
                let byte = unsafe { self.ptr.wrapping_offset(element >> 1).read() };
                let nibble = if element & 1 == 0 { byte << 4 } else { byte };
                *t = N::load((nibble as i8) >> 4);
            }
        });
    }

    fn scatter_i4<N: Lane>(&self, start: usize, from: &[N]) {
        self.collapsed().for_each_run(start, from.len(), |offset, stride, position, len| {
            for (i, f) in from[position..position + len].iter().enumerate() {
                let element = self.first + offset + i as isize * stride;
                let ptr = self.ptr.wrapping_offset(element >> 1);
                let value: i8 = f.store();
                let nibble = value as u8 & 15;
                // SAFETY: the byte holds an element inside the view, and packed outputs are written by one thread.
                unsafe {
                    let byte = ptr.read();
                    ptr.write(if element & 1 == 0 { byte & 0xf0 | nibble } else { byte & 0x0f | nibble << 4 });
                }
            }
        });
    }
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}{:?}/{:?}@{:p}", self.dtype, self.dims(), self.strides(), self.ptr)
    }
}

/// What `aclCreateTensor` makes.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    view: View,
}

impl std::ops::Deref for Tensor {
    type Target = View;
    fn deref(&self) -> &View {
        &self.view
    }
}

impl Tensor {
    /// `None` for what cannot be a tensor: more than [`MAX_RANK`] dims, a negative dim, an unknown type, an extent that
    /// does not fit an address. `strides` absent means packed. Storage dims are not needed to compute and not kept.
    pub(crate) fn new(
        dims: &[i64],
        dtype: aclDataType,
        strides: Option<&[i64]>,
        offset: i64,
        format: aclFormat,
        data: *mut c_void,
    ) -> Option<Tensor> {
        let dtype = DType::from_acl(dtype)?;
        if dims.len() > MAX_RANK || offset < 0 {
            return None;
        }
        let mut sizes = [1usize; MAX_RANK];
        let mut total = 1usize;
        for (size, &dim) in sizes.iter_mut().zip(dims) {
            *size = usize::try_from(dim).ok()?;
            total = total.checked_mul((*size).max(1))?;
        }
        total.checked_mul(dtype.bits()).filter(|bits| *bits <= isize::MAX as usize)?;
        let mut view = View::packed(data.cast(), dtype, &sizes[..dims.len()]);
        if let Some(strides) = strides {
            let mut reach = offset;
            for ((own, &stride), &dim) in view.strides.iter_mut().zip(strides).zip(dims) {
                *own = isize::try_from(stride).ok()?;
                reach = reach.checked_add((dim - 1).max(0).checked_mul(stride.checked_abs()?)?)?;
            }
            reach.checked_mul(dtype.bits() as i64)?;
        }
        offset.checked_mul(dtype.bits() as i64)?;
        view.format = format;
        view.shift(isize::try_from(offset).ok()?);
        Some(Tensor { view })
    }

    pub(crate) fn view(&self) -> View {
        self.view
    }
}

/// A value handed to an operator, kept in the widest type of its kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scalar {
    dtype: DType,
    value: Value,
}

#[derive(Clone, Copy, Debug)]
enum Value {
    Float(f64),
    Int(i64),
}

impl Scalar {
    /// Reads a value of type `dtype`; `None` for types that a scalar cannot have.
    ///
    /// # Safety
    /// `value` points to one readable element of the type.
    pub(crate) unsafe fn read(value: *const c_void, dtype: aclDataType) -> Option<Scalar> {
        let dtype = DType::from_acl(dtype)?;
        let value = with_elem!(dtype, E => {
            // SAFETY: the caller promises a readable element of this type.
            let e = unsafe { value.cast::<E>().read_unaligned() };
            if dtype.is_float() { Value::Float(e.to_f64()) } else { Value::Int(e.to_i64()) }
        }, i4 => return None);
        Some(Scalar { dtype, value })
    }

    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(crate) fn f64(&self) -> f64 {
        match self.value {
            Value::Float(x) => x,
            Value::Int(x) => x as f64,
        }
    }

    pub(crate) fn f32(&self) -> f32 {
        match self.value {
            Value::Float(x) => x as f32,
            Value::Int(x) => x as f32,
        }
    }

    pub(crate) fn i64(&self) -> i64 {
        match self.value {
            Value::Float(x) => x as i64,
            Value::Int(x) => x,
        }
    }
}

/// `dim` of a tensor of `rank` dims, counted from the end when negative. A scalar has one dim here.
pub(crate) fn axis(dim: i64, rank: usize) -> Option<usize> {
    let rank = rank.max(1) as i64;
    let axis = if dim < 0 { dim + rank } else { dim };
    (0..rank).contains(&axis).then_some(axis as usize)
}

/// The shape two shapes broadcast to by numpy's rules.
pub(crate) fn broadcast_shape(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let pick = |dims: &[usize], i: usize| (i + dims.len()).checked_sub(rank).map_or(1, |i| dims[i]);
    (0..rank)
        .map(|i| match (pick(a, i), pick(b, i)) {
            (x, y) if x == y => Some(x),
            (1, y) => Some(y),
            (x, 1) => Some(x),
            _ => None,
        })
        .collect()
}

/// The type two types compute in (aclnn's promotion between tensors); `None` where they do not mix.
pub(crate) fn promote(a: DType, b: DType) -> Option<DType> {
    use DType::*;
    Some(match (a, b) {
        (a, b) if a == b => a,
        (I4 | U16 | U32 | U64, _) | (_, I4 | U16 | U32 | U64) => return None,
        (F64, _) | (_, F64) => F64,
        (F32, _) | (_, F32) | (F16, BF16) | (BF16, F16) => F32,
        (F16, _) | (_, F16) => F16,
        (BF16, _) | (_, BF16) => BF16,
        (Bool, x) | (x, Bool) => x,
        (I8, U8) | (U8, I8) => I16,
        (U8, x) | (x, U8) => x,
        (a, b) if a.bits() >= b.bits() => a,
        (_, b) => b,
    })
}

/// The type a tensor and a scalar compute in: the tensor's, unless the scalar is of a higher kind.
pub(crate) fn promote_scalar(tensor: DType, scalar: DType) -> DType {
    let kind = |d: DType| if d.is_float() { 2 } else { i32::from(d != DType::Bool) };
    if kind(scalar) <= kind(tensor) {
        tensor
    } else if scalar.is_float() {
        DType::F32
    } else {
        scalar
    }
}

/// Whether a result computed in `from` may be written to an output of type `to`.
pub(crate) fn convertible(from: DType, to: DType) -> bool {
    from == to || from == DType::Bool || to != DType::Bool
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(dtype: DType, dims: &[usize], memory: &mut [f32]) -> View {
        memory.iter_mut().enumerate().for_each(|(i, m)| *m = i as f32);
        View::packed(memory.as_mut_ptr().cast(), dtype, dims)
    }

    fn all(view: &View) -> Vec<f32> {
        let mut out = vec![0.0; view.numel()];
        view.read_copy(0, &mut out);
        out
    }

    #[test]
    fn views_of_views_read_what_they_should() {
        let mut memory = [0f32; 24];
        let v = counted(DType::F32, &[2, 3, 4], &mut memory);
        assert_eq!(all(&v), memory);
        let at = |v: &View, index: usize| v.get::<f32>(index);
        let p = v.permuted(&[2, 0, 1]);
        assert_eq!((p.dims(), at(&p, 0), at(&p, 1), at(&p, 3), at(&p, 6)), (&[4, 2, 3][..], 0.0, 4.0, 12.0, 1.0));
        assert_eq!(all(&v.axis_last(1)), all(&v.permuted(&[0, 2, 1])));
        assert_eq!(all(&v.transposed()), all(&v.permuted(&[0, 2, 1])));
        assert_eq!(all(&v.narrowed(1, 0, 2, 2).selected(0, 1)), [12.0, 13.0, 14.0, 15.0, 20.0, 21.0, 22.0, 23.0]);
        assert_eq!(all(&v.selected(2, 3).selected(0, 0).reversed(0)), [11.0, 7.0, 3.0]);
        assert_eq!(all(&v.selected(0, 0).selected(0, 0).broadcast_to(&[2, 4]).unwrap())[4..], memory[..4]);
        assert!(v.broadcast_to(&[2, 3, 5]).is_none() && v.broadcast_to(&[3, 4]).is_none());
        assert_eq!(v.merged_from(1).unwrap().dims(), [2, 12]);
        assert!(v.transposed().merged_from(1).is_none());
        assert_eq!(v.rows_merged(0).dims(), [6, 4]);
        assert_eq!(v.with_unit_dim(3).dims(), [2, 3, 4, 1]);
        assert_eq!(v.reshaped(&[4, 6]).unwrap().dims(), [4, 6]);
        assert!(v.transposed().reshaped(&[24]).is_none());
    }

    #[test]
    fn collapsing_keeps_the_elements_in_order() {
        let mut memory = [0f32; 24];
        let v = counted(DType::F32, &[2, 1, 3, 4], &mut memory);
        assert_eq!(v.collapsed().dims(), [24]);
        assert_eq!(v.narrowed(3, 0, 2, 1).collapsed().dims(), [6, 2]);
        assert_eq!(v.narrowed(2, 0, 2, 1).collapsed().dims(), [2, 8]);
        for view in [v, v.transposed(), v.permuted(&[3, 1, 0, 2]), v.narrowed(2, 1, 2, 1), v.narrowed(3, 1, 1, 1)] {
            assert_eq!(all(&view.collapsed()), all(&view));
            for start in 0..view.numel() {
                for len in 1..=view.numel() - start {
                    let mut part = vec![0.0; len];
                    assert_eq!(view.read(start, &mut part), &all(&view)[start..start + len]);
                }
            }
        }
    }

    #[test]
    fn memory_is_lent_only_where_it_lies_as_asked() {
        let mut memory = [0f32; 24];
        let v = counted(DType::F32, &[2, 3, 4], &mut memory);
        assert_eq!(v.slice::<f32>(5, 19), Some(&memory[5..]));
        assert_eq!(v.slice::<f32>(5, 20), None);
        assert_eq!(v.slice::<i32>(0, 4), None);
        let rows = v.narrowed(2, 1, 2, 1);
        assert_eq!(rows.slice::<f32>(2, 2), Some(&memory[5..7]));
        assert_eq!(rows.slice::<f32>(1, 2), None);
        assert_eq!(v.transposed().slice::<f32>(0, 2), None);
        let mut bytes = [0u64; 4];
        let odd = View::packed(bytes.as_mut_ptr().cast::<u8>().wrapping_add(1), DType::F32, &[3]);
        assert_eq!(odd.slice::<f32>(0, 3), None);
        odd.write(0, &[1.5f32, -2.0, 3.0]);
        assert_eq!(all(&odd), [1.5, -2.0, 3.0]);
    }

    #[test]
    fn writing_converts_and_touches_nothing_else() {
        let mut memory = [7u16; 12];
        let v = View::packed(memory.as_mut_ptr().cast(), DType::F16, &[3, 4]).narrowed(1, 1, 2, 1);
        v.write(0, &[1.0f32, 2.0, 3.0, 4.0, 5.0, 65520.0]);
        assert_eq!(all(&v), [1.0, 2.0, 3.0, 4.0, 5.0, f32::INFINITY]);
        assert_eq!([memory[0], memory[3], memory[4], memory[11]], [7; 4]);
    }

    #[test]
    fn packed_elements_have_the_even_one_low() {
        let mut memory = [0u8; 3];
        let v = View::packed(memory.as_mut_ptr(), DType::I4, &[6]);
        v.write(0, &[1i64, -1, 7, -8, 0, 3]);
        assert_eq!(memory, [0xf1, 0x87, 0x30]);
        assert_eq!(all(&v.narrowed(0, 1, 2, 2)), [-1.0, -8.0]);
        assert_eq!(v.narrowed(0, 2, 3, 1).span().1 - v.narrowed(0, 2, 3, 1).span().0, 2);
    }

    #[test]
    fn overlap_is_about_addresses() {
        let mut memory = [0f32; 24];
        let v = counted(DType::F32, &[24], &mut memory);
        let (low, high) = (v.narrowed(0, 0, 12, 1), v.narrowed(0, 12, 12, 1));
        assert!(!low.overlaps(&high) && low.overlaps(&v.narrowed(0, 11, 2, 1)));
        assert!(low.reversed(0).overlaps(&v.narrowed(0, 0, 1, 1)));
        assert!(low.same_place(&low.reshaped(&[3, 4]).unwrap()) && !low.same_place(&high));
        assert!(!v.narrowed(0, 0, 0, 1).overlaps(&v));
    }

    #[test]
    fn promotion_follows_the_rules() {
        use DType::*;
        for (a, b, want) in [
            (F16, F16, Some(F16)),
            (F16, BF16, Some(F32)),
            (BF16, F32, Some(F32)),
            (F32, F64, Some(F64)),
            (I64, F16, Some(F16)),
            (Bool, BF16, Some(BF16)),
            (I8, U8, Some(I16)),
            (U8, I32, Some(I32)),
            (I8, I64, Some(I64)),
            (Bool, U8, Some(U8)),
            (U32, I32, None),
            (U32, U32, Some(U32)),
        ] {
            assert_eq!((promote(a, b), promote(b, a)), (want, want), "{a:?} {b:?}");
        }
        assert_eq!(promote_scalar(F16, F32), F16);
        assert_eq!(promote_scalar(I32, F32), F32);
        assert_eq!(promote_scalar(Bool, I64), I64);
        assert!(convertible(Bool, F32) && convertible(F32, I8) && !convertible(F32, Bool));
    }
}
