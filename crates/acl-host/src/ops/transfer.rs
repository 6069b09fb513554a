//! The copy under everything that moves elements: any strides on both sides, any two types.
//!
//! Equal types move as bytes. Dims are ordered by the destination's strides and merged where both sides continue, so that a
//! copy is long runs of bytes wherever it can be; a transpose goes in tiles of cache lines. Unequal types
//! convert block by block through a lane.

use crate::executor::Run;
use crate::tensor::{DType, Domain, Lane, MAX_RANK, View};

use super::elementwise::{BLOCK, load};

/// Repeats split dims in two.
const MAX_DIMS: usize = 2 * MAX_RANK;
/// Rows of a transpose that one thread takes at least.
const TILE: usize = 64;
/// Bytes below which a second thread does not pay.
const GRAIN_BYTES: usize = 128 << 10;

/// One copy, prepared in phase one.
#[derive(Clone, Copy)]
pub(crate) struct Transfer(Plan);

// Plans live in closures, a handful at a time.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Copy)]
enum Plan {
    Nothing,
    Bytes(Bytes),
    Convert { to: View, from: View },
}

impl Transfer {
    /// `to = from`; equal shapes, no packed types.
    pub(crate) fn new(to: &View, from: &View) -> Transfer {
        debug_assert!(to.same_shape(from));
        if to.is_empty() || (to.dtype() == from.dtype() && to.same_place(from)) {
            return Transfer(Plan::Nothing);
        }
        if to.dtype() == from.dtype() {
            let dims = (0..to.rank()).map(|i| Dim { len: to.dim(i), to: to.strides()[i], from: from.strides()[i] });
            return Transfer(Plan::Bytes(Bytes::new(to, from, dims)));
        }
        let mut order: [usize; MAX_RANK] = std::array::from_fn(|i| i);
        let order = &mut order[..to.rank()];
        order.sort_by_key(|&i| std::cmp::Reverse(to.strides()[i].unsigned_abs()));
        Transfer(Plan::Convert { to: to.permuted(order).collapsed(), from: from.permuted(order).collapsed() })
    }

    /// `to` becomes copies of `from` side by side; each dim of `to` is a multiple of the same dim of `from`, equal types.
    pub(crate) fn tiled(to: &View, from: &View) -> Transfer {
        debug_assert!(to.dtype() == from.dtype() && to.rank() == from.rank());
        if to.is_empty() {
            return Transfer(Plan::Nothing);
        }
        let dims = (0..to.rank()).flat_map(|i| {
            let (len, stride) = (from.dim(i), to.strides()[i]);
            [
                Dim { len: to.dim(i) / len, to: stride * len as isize, from: 0 },
                Dim { len, to: stride, from: from.strides()[i] },
            ]
        });
        Transfer(Plan::Bytes(Bytes::new(to, from, dims)))
    }

    /// Whether types differ and neighbours at the destination are far apart at the source, in a copy large enough to matter.
    pub(crate) fn converts_across(&self) -> bool {
        const LARGE: usize = 16 << 10;
        match &self.0 {
            Plan::Convert { to, from } if to.numel() >= LARGE => {
                from.strides().last().is_some_and(|s| s.unsigned_abs() > 1) && from.strides().contains(&1)
            }
            _ => false,
        }
    }

    /// Copies with the team.
    pub(crate) fn run(&self, run: &Run) {
        match &self.0 {
            Plan::Nothing => {}
            Plan::Bytes(bytes) => bytes.run(run),
            Plan::Convert { to, from } => {
                run.split_elements(to.numel(), |range| convert_range(to, from, range));
            }
        }
    }

    /// Copies on this thread.
    pub(crate) fn run_here(&self) {
        match &self.0 {
            Plan::Nothing => {}
            Plan::Bytes(bytes) => bytes.items(0, bytes.total()),
            Plan::Convert { to, from } => convert_range(to, from, 0..to.numel()),
        }
    }
}

fn convert_range(to: &View, from: &View, range: std::ops::Range<usize>) {
    match from.dtype().domain() {
        Domain::F32 => convert::<f32>(to, from, range),
        Domain::F64 => convert::<f64>(to, from, range),
        Domain::I64 => convert::<i64>(to, from, range),
    }
}

/// Through the lane of the source, so that every source value arrives exactly and is rounded once.
fn convert<N: Lane>(to: &View, from: &View, range: std::ops::Range<usize>) {
    let copy = from.overlaps(to);
    let mut scratch = [N::default(); BLOCK];
    for start in range.clone().step_by(BLOCK) {
        let len = BLOCK.min(range.end - start);
        to.write(start, load(from, copy, start, &mut scratch[..len]));
    }
}

/// One dim of a copy, strides in elements.
#[derive(Clone, Copy, Default)]
struct Dim {
    len: usize,
    to: isize,
    from: isize,
}

/// A copy of equal types. The last two dims are the plane that [`plane`] moves; items are rows of planes.
#[derive(Clone, Copy)]
struct Bytes {
    to: View,
    from: View,
    dims: [Dim; MAX_DIMS],
    /// Dims before the plane.
    outer: usize,
    rows: Dim,
    columns: Dim,
}

impl Bytes {
    fn new(to: &View, from: &View, dims: impl Iterator<Item = Dim>) -> Bytes {
        let mut kept = [Dim::default(); MAX_DIMS];
        let mut count = 0;
        for dim in dims.filter(|d| d.len != 1) {
            kept[count] = dim;
            count += 1;
        }
        kept[..count].sort_by_key(|d| std::cmp::Reverse(d.to.unsigned_abs()));
        let mut dims = [Dim::default(); MAX_DIMS];
        let mut rank = 0;
        for dim in &kept[..count] {
            let whole = dim.len as isize;
            match dims[..rank].last_mut() {
                Some(last) if last.to == dim.to * whole && last.from == dim.from * whole => {
                    *last = Dim { len: last.len * dim.len, ..*dim };
                }
                _ => {
                    dims[rank] = *dim;
                    rank += 1;
                }
            }
        }
        let unit = Dim { len: 1, to: 0, from: 0 };
        let mut columns = if rank > 0 { dims[rank - 1] } else { Dim { len: 1, to: 1, from: 1 } };
        rank = rank.saturating_sub(1);
        // The dim along which the source is read in order makes the plane a transpose; else the next one out.
        let partner =
            if columns.from == 1 { None } else { dims[..rank].iter().position(|d| d.from == 1 && d.len >= 4) };
        let rows = match partner.or(rank.checked_sub(1)) {
            Some(i) => {
                let dim = dims[i];
                dims[i..rank].rotate_left(1);
                rank -= 1;
                dim
            }
            None => unit,
        };
        let mut rows = rows;
        if rows.len == 1 && columns.to == 1 && columns.from == 1 {
            // One long run: cut it so that threads can share it.
            let piece = (GRAIN_BYTES / to.dtype().size()).max(1);
            if columns.len >= 2 * piece && columns.len.is_multiple_of(piece) {
                rows = Dim { len: columns.len / piece, to: piece as isize, from: piece as isize };
                columns.len = piece;
            }
        }
        Bytes { to: *to, from: *from, dims, outer: rank, rows, columns }
    }

    /// Items: rows of all planes.
    fn total(&self) -> usize {
        self.dims[..self.outer].iter().map(|d| d.len).product::<usize>() * self.rows.len
    }

    fn run(&self, run: &Run) {
        let item = self.columns.len * self.to.dtype().size();
        // Whole tiles per thread where rows are transposed.
        let grain = (GRAIN_BYTES / item).max(if self.columns.from == 1 { 1 } else { TILE });
        run.split(self.total(), grain, |range| self.items(range.start, range.end));
    }

    fn items(&self, start: usize, end: usize) {
        let mut item = start;
        while item < end {
            let (mut plane, first) = (item / self.rows.len, item % self.rows.len);
            let rows = (self.rows.len - first).min(end - item);
            let (mut to, mut from) = (first as isize * self.rows.to, first as isize * self.rows.from);
            for dim in self.dims[..self.outer].iter().rev() {
                let at = (plane % dim.len) as isize;
                plane /= dim.len;
                to += at * dim.to;
                from += at * dim.from;
            }
            let (to, from) = (self.to.at(to), self.from.at(from));
            let rows = Dim { len: rows, ..self.rows };
            // SAFETY: the offsets and dims are those of elements inside both views, which have elements of this size.
            unsafe {
                match self.to.dtype().size() {
                    1 => plane_of::<u8>(to, from, rows, self.columns),
                    2 => plane_of::<u16>(to, from, rows, self.columns),
                    4 => plane_of::<u32>(to, from, rows, self.columns),
                    _ => plane_of::<u64>(to, from, rows, self.columns),
                }
            }
            item += rows.len;
        }
    }
}

/// Moves a plane of elements.
///
/// # Safety
/// All elements of the plane are readable at `from` and writable at `to`.
unsafe fn plane_of<T: Copy>(to: *mut u8, from: *mut u8, rows: Dim, columns: Dim) {
    let (to, from) = (to.cast::<T>(), from.cast::<T>());
    if columns.to == 1 && columns.from == 1 {
        for r in 0..rows.len as isize {
            let (to, from) = (to.wrapping_offset(r * rows.to), from.wrapping_offset(r * rows.from));
            // SAFETY: a row of the plane, by the caller's promise; `copy` bears overlap and any alignment when it moves bytes.
            unsafe { std::ptr::copy(from.cast::<u8>(), to.cast::<u8>(), columns.len * size_of::<T>()) };
        }
    } else if columns.to == 1 && columns.from == 0 {
        for r in 0..rows.len as isize {
            // SAFETY: as above.
            let value = unsafe { from.wrapping_offset(r * rows.from).read_unaligned() };
            let to = to.wrapping_offset(r * rows.to);
            for c in 0..columns.len {
                // SAFETY: as above.
                unsafe { to.wrapping_add(c).write_unaligned(value) };
            }
        }
    } else if columns.to == 1 && rows.from == 1 {
        // SAFETY: the same elements.
        unsafe { transpose(to, from, rows, columns) };
    } else {
        for r in 0..rows.len as isize {
            let to = to.wrapping_offset(r * rows.to);
            let from = from.wrapping_offset(r * rows.from);
            for c in 0..columns.len as isize {
                // SAFETY: as above.
                unsafe {
                    let value = from.wrapping_offset(c * columns.from).read_unaligned();
                    to.wrapping_offset(c * columns.to).write_unaligned(value);
                }
            }
        }
    }
}

/// A plane whose rows are read across and whose columns are written along. Square tiles of one cache line per side pass
/// through a buffer: each line is touched once, whatever the strides do to the cache's sets.
///
/// # Safety
/// As [`plane_of`].
unsafe fn transpose<T: Copy>(to: *mut T, from: *mut T, rows: Dim, columns: Dim) {
    const LINE: usize = 64;
    const BAND: usize = 1024;
    let side = LINE / size_of::<T>();
    // Room for the widest square: 64 rows of 64 bytes.
    let mut buffer = [std::mem::MaybeUninit::<[u8; LINE]>::uninit(); LINE];
    let buffer = buffer.as_mut_ptr().cast::<T>();
    // Every row and every column is a page of its own when the tensor is large. Bands of columns keep the pages read from few
    // enough to be remembered, and wide enough to make a visit to a page written to worth it.
    let band = BAND / size_of::<T>();
    for cb in (0..columns.len).step_by(band) {
        for r0 in (0..rows.len).step_by(side) {
            for c0 in (cb..columns.len.min(cb + band)).step_by(side) {
                let (height, width) = (side.min(rows.len - r0), side.min(columns.len - c0));
                for c in 0..width {
                    let from = from.wrapping_offset((c0 + c) as isize * columns.from).wrapping_add(r0);
                    for r in 0..height {
                        // SAFETY: an element of the plane; `r` and `c` are below `side`.
                        unsafe { buffer.add(r * side + c).write_unaligned(from.wrapping_add(r).read_unaligned()) };
                    }
                }
                for r in 0..height {
                    let to = to.wrapping_offset((r0 + r) as isize * rows.to).wrapping_add(c0);
                    let bytes = width * size_of::<T>();
                    // SAFETY: `width` elements of the plane, written above to the buffer.
                    unsafe { std::ptr::copy_nonoverlapping(buffer.add(r * side).cast::<u8>(), to.cast(), bytes) };
                }
            }
        }
    }
}

/// Moves `len` elements that lie side by side in both views, `to` and `from` elements from their origins.
pub(crate) fn move_run(to: &View, to_offset: isize, from: &View, from_offset: isize, len: usize) {
    // SAFETY: the caller's views have these elements; `copy` bears overlap and any alignment when it moves bytes.
    unsafe { std::ptr::copy(from.at(from_offset), to.at(to_offset), len * to.dtype().size()) }
}

/// Every element of `to` becomes `value`, converted.
pub(crate) fn fill<N: Lane>(run: &Run, to: &View, value: N) {
    let mut order: [usize; MAX_RANK] = std::array::from_fn(|i| i);
    let order = &mut order[..to.rank()];
    order.sort_by_key(|&i| std::cmp::Reverse(to.strides()[i].unsigned_abs()));
    let to = to.permuted(order).collapsed();
    let block = [value; BLOCK];
    run.split_elements(to.numel(), |range| {
        for start in range.clone().step_by(BLOCK) {
            to.write(start, &block[..BLOCK.min(range.end - start)]);
        }
    });
}

/// Every element of `to` becomes the scalar.
pub(crate) fn fill_scalar(run: &Run, to: &View, value: &crate::tensor::Scalar) {
    match (to.dtype().domain(), value.dtype().is_float()) {
        (Domain::I64, false) => fill(run, to, value.i64()),
        (Domain::F64, _) | (Domain::I64, true) => fill(run, to, value.f64()),
        (Domain::F32, _) => fill(run, to, value.f32()),
    }
}

/// Zeros of any type.
pub(crate) fn zero(run: &Run, to: &View) {
    let bits = match to.dtype() {
        DType::F16 | DType::BF16 => DType::U16,
        DType::F32 => DType::U32,
        DType::F64 => DType::U64,
        other => other,
    };
    fill(run, &to.with_dtype(bits), 0i64);
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Random(u64);

    impl Random {
        fn below(&mut self, n: usize) -> usize {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 33) as usize % n
        }
    }

    /// A view with gaps, its dims in any order, over memory of its own.
    fn scattered(random: &mut Random, dims: &[usize], dtype: DType, memory: &mut Vec<u64>) -> View {
        let mut order: Vec<usize> = (0..dims.len()).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, random.below(i + 1));
        }
        let wide: Vec<usize> = order.iter().map(|&d| dims[d] * (1 + random.below(2)) + random.below(2)).collect();
        memory.clear();
        memory.resize(wide.iter().product::<usize>().max(1), 0x7777_7777_7777_7777);
        let mut view = View::packed(memory.as_mut_ptr().cast(), dtype, &wide);
        for (i, &d) in order.iter().enumerate() {
            let step = if wide[i] >= 2 * dims[d] && random.below(2) == 0 { 2 } else { 1 };
            view = view.narrowed(i, 0, dims[d], step);
        }
        let mut back = vec![0; dims.len()];
        order.iter().enumerate().for_each(|(i, &d)| back[d] = i);
        view.permuted(&back)
    }

    #[test]
    fn any_strides_on_both_sides() {
        let mut random = Random(3);
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for round in 0..3000 {
            let dims: Vec<usize> =
                (0..random.below(5)).map(|_| 1 + random.below(if round % 10 == 0 { 40 } else { 6 })).collect();
            let from_type = [DType::U8, DType::I16, DType::F32, DType::I64][random.below(4)];
            let to_type = if random.below(3) == 0 { DType::F64 } else { from_type };
            let mut from = scattered(&mut random, &dims, from_type, &mut a);
            let to = scattered(&mut random, &dims, to_type, &mut b);
            for i in 0..from.numel() {
                from.set(i, (i % 251) as i64);
            }
            if !dims.is_empty() && random.below(4) == 0 {
                let axis = random.below(dims.len());
                from = from.narrowed(axis, 0, 1, 1).broadcast_to(&dims).unwrap();
            }
            if !dims.is_empty() && random.below(4) == 0 {
                from = from.reversed(random.below(dims.len()));
            }
            let outside = b.iter().map(|x| x.count_ones() as usize).sum::<usize>();
            Transfer::new(&to, &from).run_here();
            for i in 0..to.numel() {
                assert_eq!(to.get::<i64>(i), from.get::<i64>(i), "{dims:?} element {i}: {to:?} from {from:?}");
            }
            // What lies between the elements is as before.
            for i in 0..to.numel() {
                if to_type == DType::F64 {
                    to.write(i, &[f64::from_bits(0x7777_7777_7777_7777)])
                } else {
                    to.set(i, 0x7777_7777_7777_7777i64)
                }
            }
            if to_type != DType::F32 {
                assert_eq!(b.iter().map(|x| x.count_ones() as usize).sum::<usize>(), outside);
            }
        }
    }

    #[test]
    fn tiles_repeat_in_every_dim() {
        let mut random = Random(5);
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for _ in 0..500 {
            let dims: Vec<usize> = (0..1 + random.below(4)).map(|_| 1 + random.below(5)).collect();
            let whole: Vec<usize> = dims.iter().map(|d| d * (1 + random.below(3))).collect();
            let from = scattered(&mut random, &dims, DType::I16, &mut a);
            let to = scattered(&mut random, &whole, DType::I16, &mut b);
            for i in 0..from.numel() {
                from.set(i, i as i64);
            }
            Transfer::tiled(&to, &from).run_here();
            for i in 0..to.numel() {
                let (mut rest, mut index, mut scale) = (i, 0, 1);
                for d in (0..dims.len()).rev() {
                    index += rest % whole[d] % dims[d] * scale;
                    rest /= whole[d];
                    scale *= dims[d];
                }
                assert_eq!(to.get::<i64>(i), index as i64);
            }
        }
    }
}
