//! What a product reads and writes: views that know their extents and are checked once, when they are made.

use super::super::convert::ConvertFns;
use half::{bf16, f16};
use std::marker::PhantomData;

/// The number type of a dense operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DenseType {
    F32,
    F16,
    Bf16,
}

impl DenseType {
    #[inline]
    pub fn bytes(self) -> usize {
        match self {
            DenseType::F32 => 4,
            DenseType::F16 | DenseType::Bf16 => 2,
        }
    }
}

/// The bytes from the first element of a strided `rows` x `cols` view to the end of its last, if that can be counted.
fn span(rows: usize, cols: usize, row_stride: usize, col_stride: usize, bytes: usize) -> Option<usize> {
    if rows == 0 || cols == 0 {
        return Some(0);
    }
    let last = (rows - 1).checked_mul(row_stride)?.checked_add((cols - 1).checked_mul(col_stride)?)?;
    last.checked_add(1)?.checked_mul(bytes).filter(|n| *n <= isize::MAX as usize)
}

/// A matrix of floats with any element strides; stride 0 repeats.
#[derive(Clone, Copy, Debug)]
pub struct DenseView<'a> {
    data: *const u8,
    pub ty: DenseType,
    pub rows: usize,
    pub cols: usize,
    pub row_stride: usize,
    pub col_stride: usize,
    borrow: PhantomData<&'a [u8]>,
}

// SAFETY: a view is a shared borrow of plain bytes.
unsafe impl Send for DenseView<'_> {}
// SAFETY: as above; it offers reading only.
unsafe impl Sync for DenseView<'_> {}

impl<'a> DenseView<'a> {
    /// A view of `data`, strides in elements; `None` when an element would lie outside.
    pub fn new(
        data: &'a [u8],
        ty: DenseType,
        (rows, cols): (usize, usize),
        (row_stride, col_stride): (usize, usize),
    ) -> Option<DenseView<'a>> {
        let inside = span(rows, cols, row_stride, col_stride, ty.bytes())? <= data.len();
        let data = data.as_ptr();
        inside.then_some(DenseView { data, ty, rows, cols, row_stride, col_stride, borrow: PhantomData })
    }

    /// A row-major matrix of `f32`; `None` when `data` is too short.
    pub fn from_f32(data: &'a [f32], rows: usize, cols: usize) -> Option<DenseView<'a>> {
        // SAFETY: any `f32`s are readable as bytes.
        let bytes = unsafe { std::slice::from_raw_parts(data.as_ptr().cast::<u8>(), size_of_val(data)) };
        DenseView::new(bytes, DenseType::F32, (rows, cols), (cols, 1))
    }

    /// A view of memory that is not borrowed as a slice.
    ///
    /// # Safety
    /// Every element the extents and strides name is readable and unchanged for `'a`.
    pub unsafe fn from_raw(
        data: *const u8,
        ty: DenseType,
        (rows, cols): (usize, usize),
        (row_stride, col_stride): (usize, usize),
    ) -> DenseView<'a> {
        DenseView { data, ty, rows, cols, row_stride, col_stride, borrow: PhantomData }
    }

    /// Rows and columns exchanged.
    pub fn transposed(self) -> DenseView<'a> {
        DenseView { rows: self.cols, cols: self.rows, row_stride: self.col_stride, col_stride: self.row_stride, ..self }
    }

    /// `count` rows from `first` on.
    pub fn row_range(self, first: usize, count: usize) -> DenseView<'a> {
        assert!(first <= self.rows && count <= self.rows - first);
        let skip = if count == 0 { 0 } else { first * self.row_stride * self.ty.bytes() };
        DenseView { data: self.data.wrapping_add(skip), rows: count, ..self }
    }

    /// One element.
    #[inline]
    pub fn at(&self, row: usize, col: usize) -> f32 {
        assert!(row < self.rows && col < self.cols);
        let at = self.element(row, col);
        // SAFETY: the element is inside the view, which is readable.
        unsafe {
            match self.ty {
                DenseType::F32 => at.cast::<f32>().read_unaligned(),
                DenseType::F16 => f16::from_bits(at.cast::<u16>().read_unaligned()).to_f32_const(),
                DenseType::Bf16 => bf16::from_bits(at.cast::<u16>().read_unaligned()).to_f32(),
            }
        }
    }

    /// Part of a row in place, if the view is of adjacent, aligned `f32`.
    #[inline]
    pub fn row_f32(&self, row: usize, col: usize, len: usize) -> Option<&'a [f32]> {
        let at = self.adjacent(row, col, len)?.cast::<f32>();
        // SAFETY: `adjacent` found `len` elements inside the view; the alignment is checked.
        (self.ty == DenseType::F32 && at.is_aligned()).then(|| unsafe { std::slice::from_raw_parts(at, len) })
    }

    /// Part of a row in place, as bits, if the view is of adjacent, aligned `f16`.
    #[inline]
    pub fn row_f16(&self, row: usize, col: usize, len: usize) -> Option<&'a [u16]> {
        let at = self.adjacent(row, col, len)?.cast::<u16>();
        // SAFETY: as in `row_f32`.
        (self.ty == DenseType::F16 && at.is_aligned()).then(|| unsafe { std::slice::from_raw_parts(at, len) })
    }

    /// Where `len` elements of a row lie side by side.
    #[inline]
    fn adjacent(&self, row: usize, col: usize, len: usize) -> Option<*const u8> {
        assert!(row < self.rows && col <= self.cols && len <= self.cols - col);
        (self.col_stride == 1 && len > 0).then(|| self.element(row, col))
    }

    /// The address of an element; meaningful for elements of the view only.
    #[inline]
    pub(super) fn element(&self, row: usize, col: usize) -> *const u8 {
        self.data.wrapping_add((row * self.row_stride + col * self.col_stride) * self.ty.bytes())
    }
}

/// The width of quantised weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuantBits {
    /// One signed byte each.
    I8,
    /// Two's complement, two per byte in element order, the even one in the low half.
    I4,
}

/// Quantised weights, `n` x `k`: `(q + offset) * scale`, with one scale and offset per group of `group` values along `k`.
#[derive(Clone, Copy, Debug)]
pub struct QuantWeights<'a> {
    quants: &'a [u8],
    bits: QuantBits,
    n: usize,
    k: usize,
    n_stride: usize,
    k_stride: usize,
    scales: DenseView<'a>,
    offsets: Option<DenseView<'a>>,
    group: usize,
}

impl<'a> QuantWeights<'a> {
    /// Weights whose value `(n, k)` is quant number `n * strides.0 + k * strides.1`. `scales` and `offsets` are views of
    /// `n` rows and one column per group (stride 0 repeats one scale for all). `None` when a quant would lie outside, or
    /// extents do not fit each other.
    pub fn new(
        quants: &'a [u8],
        bits: QuantBits,
        (n, k): (usize, usize),
        strides: (usize, usize),
        scales: DenseView<'a>,
        offsets: Option<DenseView<'a>>,
        group: usize,
    ) -> Option<QuantWeights<'a>> {
        let count = span(n, k, strides.0, strides.1, 1)?;
        let bytes = if bits == QuantBits::I8 { count } else { count.div_ceil(2) };
        let fits = |v: DenseView<'_>| v.rows == n && v.cols == k.div_ceil(group.max(1));
        if group == 0 || bytes > quants.len() || !fits(scales) || !offsets.is_none_or(fits) {
            return None;
        }
        Some(QuantWeights { quants, bits, n, k, n_stride: strides.0, k_stride: strides.1, scales, offsets, group })
    }

    /// Weights in the layout the fast kernels take: rows of `k` quants one after the other, half-precision scales and
    /// offsets (bits) in rows of `k / 32`. `None` when lengths do not fit.
    pub fn grouped(
        quants: &'a [u8],
        bits: QuantBits,
        (n, k): (usize, usize),
        scales: &'a [u16],
        offsets: Option<&'a [u16]>,
    ) -> Option<QuantWeights<'a>> {
        let view = |s: &'a [u16]| {
            // SAFETY: any `u16`s are readable as bytes.
            let bytes = unsafe { std::slice::from_raw_parts(s.as_ptr().cast::<u8>(), size_of_val(s)) };
            let groups = k.div_ceil(GROUP);
            DenseView::new(bytes, DenseType::F16, (n, groups), (groups, 1))
        };
        let offsets = match offsets {
            Some(o) => Some(view(o)?),
            None => None,
        };
        QuantWeights::new(quants, bits, (n, k), (k, 1), view(scales)?, offsets, GROUP)
    }

    /// One weight.
    #[inline]
    pub fn at(&self, n: usize, k: usize) -> f32 {
        assert!(n < self.n && k < self.k);
        let index = n * self.n_stride + k * self.k_stride;
        let q = match self.bits {
            QuantBits::I8 => self.quants[index] as i8,
            QuantBits::I4 => {
                let byte = self.quants[index / 2] as i8;
                if index.is_multiple_of(2) { byte << 4 >> 4 } else { byte >> 4 }
            }
        };
        let group = k / self.group;
        (f32::from(q) + self.offsets.map_or(0.0, |o| o.at(n, group))) * self.scales.at(n, group)
    }

    /// The weights as the fast kernels want them, if that is how they lie.
    pub(super) fn as_grouped(&self) -> Option<GroupedWeights<'a>> {
        if self.group != GROUP || !self.k.is_multiple_of(GROUP) || (self.k_stride, self.n_stride) != (1, self.k) {
            return None;
        }
        let groups = self.k / GROUP;
        let plain = |v: DenseView<'a>| {
            let lies = v.ty == DenseType::F16 && (v.row_stride, v.col_stride) == (groups, 1);
            let data = v.data.cast::<u16>();
            // SAFETY: the view is contiguous, so all its `n * groups` elements are readable; `u16` alignment is checked.
            (lies && data.is_aligned() && self.n > 0)
                .then(|| unsafe { std::slice::from_raw_parts(data, self.n * groups) })
        };
        let offsets = match self.offsets {
            Some(o) => Some(plain(o)?),
            None => None,
        };
        Some(GroupedWeights {
            quants: self.quants,
            bits: self.bits,
            n: self.n,
            groups,
            scales: plain(self.scales)?,
            offsets,
        })
    }
}

/// Values per scale in the layout of the fast kernels.
pub const GROUP: usize = 32;

/// Quantised weights in the layout of the fast kernels: `n` rows of `groups * 32` quants, and of `groups` scales.
#[derive(Clone, Copy)]
pub(super) struct GroupedWeights<'a> {
    pub quants: &'a [u8],
    pub bits: QuantBits,
    pub n: usize,
    pub groups: usize,
    pub scales: &'a [u16],
    pub offsets: Option<&'a [u16]>,
}

impl GroupedWeights<'_> {
    /// The bytes of one group's quants.
    #[inline]
    pub fn group_bytes(&self) -> usize {
        match self.bits {
            QuantBits::I8 => GROUP,
            QuantBits::I4 => GROUP / 2,
        }
    }

    #[inline]
    pub fn row_bytes(&self) -> usize {
        self.groups * self.group_bytes()
    }
}

/// A matrix of half-precision floats in the chip's private format: columns in strips of 16, each strip row by row.
#[derive(Clone, Copy, Debug)]
pub struct FractalView<'a> {
    /// The first strip, as long as the matrix is high; the others follow it.
    strip: DenseView<'a>,
    strips: usize,
    /// Whether outputs are columns of the matrix, not rows.
    turned: bool,
}

/// Columns of a strip of [`FractalView`].
pub const STRIP: usize = 16;

impl<'a> FractalView<'a> {
    /// A matrix of `extents` as it lies in `data`. With `turned`, its rows are the inputs of a product. `None` when it is no whole
    /// number of strips, or `data` is too short.
    pub fn new(data: &'a [u8], ty: DenseType, (rows, cols): (usize, usize), turned: bool) -> Option<FractalView<'a>> {
        let bytes = span(1, rows.checked_mul(cols)?, 0, 1, ty.bytes())?;
        let whole = cols.is_multiple_of(STRIP) && ty != DenseType::F32 && bytes <= data.len();
        let strip = DenseView::new(data, ty, (rows, STRIP.min(cols)), (STRIP, 1))?;
        whole.then_some(FractalView { strip, strips: cols / STRIP, turned })
    }

    /// Strip number `i`.
    fn strip(&self, i: usize) -> DenseView<'a> {
        assert!(i < self.strips);
        let skip = i * self.strip.rows * STRIP * self.strip.ty.bytes();
        DenseView { data: self.strip.data.wrapping_add(skip), ..self.strip }
    }

    fn n(&self) -> usize {
        if self.turned { self.strips * STRIP } else { self.strip.rows }
    }

    fn k(&self) -> usize {
        if self.turned { self.strip.rows } else { self.strips * STRIP }
    }

    fn at(&self, n: usize, k: usize) -> f32 {
        let (row, col) = if self.turned { (k, n) } else { (n, k) };
        self.strip(col / STRIP).at(row, col % STRIP)
    }

    /// Calls `pack(part, first output, first input, depth)` for the dense parts that make up 16 outputs from `n0` on and `depth`
    /// inputs from `k0` on, in order of inputs.
    pub(super) fn parts(
        &self,
        n0: usize,
        k0: usize,
        depth: usize,
        mut pack: impl FnMut(DenseView<'a>, usize, usize, usize),
    ) {
        if self.turned {
            // Panels begin where strips do.
            return pack(self.strip(n0 / STRIP).transposed(), n0 % STRIP, k0, depth);
        }
        let mut at = k0;
        while at < k0 + depth {
            let len = (STRIP - at % STRIP).min(k0 + depth - at);
            pack(self.strip(at / STRIP), n0, at % STRIP, len);
            at += len;
        }
    }
}

/// The right operand: `n` outputs by `k` inputs. A matrix stored `[k][n]` is the `transposed()` view of itself.
#[derive(Clone, Copy, Debug)]
pub enum Weights<'a> {
    /// Rows are outputs, columns inputs.
    Dense(DenseView<'a>),
    Quant(QuantWeights<'a>),
    Fractal(FractalView<'a>),
}

impl Weights<'_> {
    pub fn n(&self) -> usize {
        match self {
            Weights::Dense(w) => w.rows,
            Weights::Quant(w) => w.n,
            Weights::Fractal(w) => w.n(),
        }
    }

    pub fn k(&self) -> usize {
        match self {
            Weights::Dense(w) => w.cols,
            Weights::Quant(w) => w.k,
            Weights::Fractal(w) => w.k(),
        }
    }

    /// One weight.
    pub fn at(&self, n: usize, k: usize) -> f32 {
        match self {
            Weights::Dense(w) => w.at(n, k),
            Weights::Quant(w) => w.at(n, k),
            Weights::Fractal(w) => w.at(n, k),
        }
    }
}

/// Where a product goes: rows of adjacent elements.
#[derive(Debug)]
pub struct OutView<'a> {
    data: *mut u8,
    pub ty: DenseType,
    pub rows: usize,
    pub cols: usize,
    pub row_stride: usize,
    borrow: PhantomData<&'a mut [u8]>,
}

// SAFETY: a view is an exclusive borrow of plain bytes.
unsafe impl Send for OutView<'_> {}
// SAFETY: writing through a shared view is `unsafe` and asks for disjoint places.
unsafe impl Sync for OutView<'_> {}

impl<'a> OutView<'a> {
    /// A view of `data`; `None` when a row would lie outside or rows overlap.
    pub fn new(
        data: &'a mut [u8],
        ty: DenseType,
        (rows, cols): (usize, usize),
        row_stride: usize,
    ) -> Option<OutView<'a>> {
        let inside = span(rows, cols, row_stride, 1, ty.bytes())? <= data.len() && (row_stride >= cols || rows <= 1);
        inside.then_some(OutView { data: data.as_mut_ptr(), ty, rows, cols, row_stride, borrow: PhantomData })
    }

    /// A row-major matrix of `f32`; `None` when `data` is too short.
    pub fn from_f32(data: &'a mut [f32], rows: usize, cols: usize) -> Option<OutView<'a>> {
        // SAFETY: `f32` has no invalid bits, so it may be written as bytes.
        let bytes = unsafe { std::slice::from_raw_parts_mut(data.as_mut_ptr().cast::<u8>(), size_of_val(data)) };
        OutView::new(bytes, DenseType::F32, (rows, cols), cols)
    }

    /// A view of memory that is not borrowed as a slice.
    ///
    /// # Safety
    /// Every element is writable for `'a`, nobody else uses it meanwhile, and rows do not overlap.
    pub unsafe fn from_raw(
        data: *mut u8,
        ty: DenseType,
        (rows, cols): (usize, usize),
        row_stride: usize,
    ) -> OutView<'a> {
        OutView { data, ty, rows, cols, row_stride, borrow: PhantomData }
    }

    /// Writes `values` to row `row` from column `col` on, narrowed if need be.
    ///
    /// # Safety
    /// No other thread uses these elements now.
    pub unsafe fn store(&self, convert: &ConvertFns, row: usize, col: usize, values: &[f32]) {
        assert!(row < self.rows && col + values.len() <= self.cols);
        let to = self.element(row, col);
        // SAFETY: the elements are inside the view and ours; alignment is checked where a slice is made.
        unsafe {
            if self.ty == DenseType::F32 {
                return std::ptr::copy_nonoverlapping(values.as_ptr().cast::<u8>(), to, size_of_val(values));
            }
            assert!(to.cast::<u16>().is_aligned(), "unaligned output");
            let to = std::slice::from_raw_parts_mut(to.cast::<u16>(), values.len());
            match self.ty {
                DenseType::Bf16 => convert.f32_to_bf16(values, to),
                _ => convert.f32_to_f16(values, to),
            }
        }
    }

    /// The address of an element; meaningful for elements of the view only.
    #[inline]
    pub(super) fn element(&self, row: usize, col: usize) -> *mut u8 {
        self.data.wrapping_add((row * self.row_stride + col) * self.ty.bytes())
    }
}
