//! The building blocks with vectors: what is the same for every instruction set. Products of quantised groups differ, see
//! [`GroupProducts`].

// Loops over the rows and vectors of a block index several arrays at once.
#![allow(clippy::needless_range_loop)]

use super::super::lanes::*;
use super::operand::{DenseType, DenseView, GROUP, QuantBits};
use super::{DenseDot, MR, NR, QuantDot, Tile, scalar};

/// Number types as constants, so that loops are compiled for each.
const F32: u8 = 0;
const F16: u8 = 1;
const BF16: u8 = 2;

/// Groups whose scales are multiplied together.
const BLOCK: usize = 8;

/// How an instruction set multiplies a group of quants with one of `x`.
pub trait GroupProducts {
    /// A group of `x` in registers.
    type X: Copy;
    /// A group of weights in registers.
    type W: Copy;

    /// # Safety
    /// The processor has the instructions and `x` points to a group.
    unsafe fn x(x: *const i16) -> Self::X;

    /// # Safety
    /// The processor has the instructions and `w` points to a group, of two per byte if `I4`.
    unsafe fn w<const I4: bool>(w: *const u8) -> Self::W;

    /// Integers whose sum is the product of the groups, exactly.
    ///
    /// # Safety
    /// The processor has the instructions.
    unsafe fn products(w: Self::W, x: Self::X) -> I32s;
}

const fn bytes_of(ty: u8) -> usize {
    if ty == F32 { 4 } else { 2 }
}

/// How far ahead of its use memory is asked for, beyond the rows in work.
const AHEAD: usize = 2048;

vectorised! {
    /// A vector of numbers of type `TY`.
    ///
    /// # Safety
    /// `p` is valid for reading as many.
    unsafe fn load_vector<const TY: u8>(p: *const u8) -> F32s {
        // SAFETY: the caller's duty.
        unsafe {
            match TY {
                F32 => load(p.cast()),
                F16 => load_f16(p.cast()),
                _ => load_bf16(p.cast()),
            }
        }
    }

    /// Asks for weights before they are needed. `R` rows from `base` on, `block` bytes in all, are read side by side, a pattern
    /// the processor's own prefetching loses; seen as one run of bytes, the next rows are fetched in step with the progress
    /// (`done` bytes of each row, `step` more now).
    fn ahead<const R: usize>(base: *const u8, block: usize, done: usize, step: usize) {
        let from = base.wrapping_add(block + AHEAD + R * done);
        for line in 0..(R * step).div_ceil(64) {
            prefetch(from.wrapping_add(64 * line));
        }
    }

    /// # Safety
    /// As [`super::MatmulFns`] says of lengths.
    pub unsafe fn dot_quant<P: GroupProducts>(d: &QuantDot<'_>, first: usize, out: &mut [f32]) {
        let scales = d.w.n * d.w.groups;
        if scales < LANES {
            return scalar::dot_quant(d, first, out);
        }
        assert!(d.w.scales.len() == scales && d.w.offsets.is_none_or(|o| o.len() == scales));
        if d.m > 4 {
            let k = d.w.groups * GROUP;
            let (out, out_rest) = out.split_at_mut(out.len() / d.m * 4);
            let part = |rows: std::ops::Range<usize>| QuantDot {
                m: rows.len(),
                x: &d.x[rows.start * k..rows.end * k],
                scales: &d.scales[rows.start * d.padded..rows.end * d.padded],
                sums: &d.sums[rows.start * d.padded..rows.end * d.padded],
                ..*d
            };
            // The second pass finds the weights in the cache.
            // SAFETY: handed on, for a part of the rows of `x` and of `out`.
            return unsafe {
                dot_quant::<P>(&part(0..4), first, out);
                dot_quant::<P>(&part(4..d.m), first, out_rest);
            };
        }
        // SAFETY: handed on.
        unsafe {
            match (d.w.bits, d.w.offsets.is_some()) {
                (QuantBits::I8, false) => dot_quant_rows::<P, false, false>(d, first, out),
                (QuantBits::I8, true) => dot_quant_rows::<P, false, true>(d, first, out),
                (QuantBits::I4, false) => dot_quant_rows::<P, true, false>(d, first, out),
                (QuantBits::I4, true) => dot_quant_rows::<P, true, true>(d, first, out),
            }
        }
    }

    /// # Safety
    /// As `dot_quant`.
    unsafe fn dot_quant_rows<P: GroupProducts, const I4: bool, const OFFSETS: bool>(
        d: &QuantDot<'_>,
        first: usize,
        out: &mut [f32],
    ) {
        let cols = out.len() / d.m;
        let fours = if d.m <= 2 { cols & !3 } else { 0 };
        let twos = if d.m > 2 { cols & !1 } else { fours };
        // SAFETY: rows `first..first + cols` exist and `out` has that many columns.
        unsafe {
            for j in (0..fours).step_by(4) {
                match d.m {
                    1 => dot_quant_block::<P, I4, OFFSETS, 4, 1>(d, first + j, j, cols, out),
                    _ => dot_quant_block::<P, I4, OFFSETS, 4, 2>(d, first + j, j, cols, out),
                }
            }
            for j in (fours..twos).step_by(2) {
                match d.m {
                    3 => dot_quant_block::<P, I4, OFFSETS, 2, 3>(d, first + j, j, cols, out),
                    _ => dot_quant_block::<P, I4, OFFSETS, 2, 4>(d, first + j, j, cols, out),
                }
            }
            for j in twos..cols {
                match d.m {
                    1 => dot_quant_block::<P, I4, OFFSETS, 1, 1>(d, first + j, j, cols, out),
                    2 => dot_quant_block::<P, I4, OFFSETS, 1, 2>(d, first + j, j, cols, out),
                    3 => dot_quant_block::<P, I4, OFFSETS, 1, 3>(d, first + j, j, cols, out),
                    _ => dot_quant_block::<P, I4, OFFSETS, 1, 4>(d, first + j, j, cols, out),
                }
            }
        }
    }

    /// `R` rows of `w` from `row` on with all `M` rows of `x`; results go to column `col` of `out`'s rows of `cols`. A result does
    /// not depend on `R`.
    ///
    /// # Safety
    /// The rows of `w` exist, it has at least a vector of scales, `d.m` is `M`, and `out` holds `M * cols` elements.
    unsafe fn dot_quant_block<P: GroupProducts, const I4: bool, const OFFSETS: bool, const R: usize, const M: usize>(
        d: &QuantDot<'_>,
        row: usize,
        col: usize,
        cols: usize,
        out: &mut [f32],
    ) {
        let groups = d.w.groups;
        let mut sum = [[zero(); M]; R];
        let mut offset_sum = [[zero(); M]; R];
        let mut factors = [[[0f32; BLOCK]; M]; R];
        for g8 in (0..groups).step_by(BLOCK) {
            let count = BLOCK.min(groups - g8);
            for r in 0..R {
                for part in (0..BLOCK).step_by(LANES) {
                    let at = (row + r) * groups + g8 + part;
                    // SAFETY: there is at least a vector of scales, and `at - part` is one of them.
                    let scale = unsafe { halves(d.w.scales, at) };
                    for m in 0..M {
                        // SAFETY: scales of `x` come in whole blocks.
                        let x = unsafe { load(d.scales.as_ptr().add(m * d.padded + g8 + part)) };
                        // SAFETY: a vector's elements of eight.
                        unsafe { store(factors[r][m].as_mut_ptr().add(part), times(scale, x)) }
                    }
                    if OFFSETS && let Some(offsets) = d.w.offsets {
                        // SAFETY: there are as many offsets as scales.
                        let offset = unsafe { halves(offsets, at) };
                        // Beyond `count` are the next row's.
                        let offset = first_lanes(times(scale, offset), count as isize - part as isize);
                        for m in 0..M {
                            // SAFETY: as the scales.
                            let x = unsafe { load(d.sums.as_ptr().add(m * d.padded + g8 + part)) };
                            offset_sum[r][m] = fma(offset, x, offset_sum[r][m]);
                        }
                    }
                }
            }
            // Whole blocks, nearly all, get a loop whose length the compiler knows.
            // SAFETY: groups `g8..g8 + count` exist.
            unsafe {
                if count == BLOCK {
                    for j in 0..BLOCK {
                        dot_quant_group::<P, I4, R, M>(d, row, g8 + j, j, &factors, &mut sum);
                    }
                } else {
                    for j in 0..count {
                        dot_quant_group::<P, I4, R, M>(d, row, g8 + j, j, &factors, &mut sum);
                    }
                }
            }
        }
        for r in 0..R {
            for m in 0..M {
                let total = if OFFSETS { plus(sum[r][m], offset_sum[r][m]) } else { sum[r][m] };
                out[m * cols + col + r] = horizontal_sum(total);
            }
        }
    }

    /// Adds group `g`, number `j` of its block, of `R` rows from `row` on and all rows of `x` to `sum`.
    ///
    /// # Safety
    /// As `dot_quant_block`; the group exists.
    unsafe fn dot_quant_group<P: GroupProducts, const I4: bool, const R: usize, const M: usize>(
        d: &QuantDot<'_>,
        row: usize,
        g: usize,
        j: usize,
        factors: &[[[f32; BLOCK]; M]; R],
        sum: &mut [[F32s; M]; R],
    ) {
        let groups = d.w.groups;
        let group_bytes = if I4 { GROUP / 2 } else { GROUP };
        let first = d.w.quants.as_ptr().wrapping_add(row * groups * group_bytes);
        ahead::<R>(first, R * groups * group_bytes, g * group_bytes, group_bytes);
        // SAFETY: `x` has group `g` in row `m`.
        let x: [P::X; M] = std::array::from_fn(|m| unsafe { P::x(d.x.as_ptr().add((m * groups + g) * GROUP)) });
        for r in 0..R {
            // SAFETY: `w` has group `g` in row `row + r`.
            let w = unsafe { P::w::<I4>(first.wrapping_add((r * groups + g) * group_bytes)) };
            for m in 0..M {
                // SAFETY: the caller's duty.
                let products = unsafe { P::products(w, x[m]) };
                sum[r][m] = fma(from_ints(products), splat(factors[r][m][j]), sum[r][m]);
            }
        }
    }

    /// # Safety
    /// As [`super::MatmulFns`] says of lengths; rows of `d.w` are of adjacent elements.
    pub unsafe fn dot_rows(d: &DenseDot<'_>, first: usize, out: &mut [f32]) {
        if d.m > 4 {
            let (out, out_rest) = out.split_at_mut(out.len() / d.m * 4);
            let (x, x_rest) = d.x.split_at(4 * d.w.cols);
            // SAFETY: handed on, for a part of the rows of `x` and of `out`.
            return unsafe {
                dot_rows(&DenseDot { w: d.w, m: 4, x }, first, out);
                dot_rows(&DenseDot { w: d.w, m: d.m - 4, x: x_rest }, first, out_rest);
            };
        }
        // SAFETY: handed on.
        unsafe {
            match d.w.ty {
                DenseType::F32 => dot_rows_of::<F32>(d, first, out),
                DenseType::F16 => dot_rows_of::<F16>(d, first, out),
                DenseType::Bf16 => dot_rows_of::<BF16>(d, first, out),
            }
        }
    }

    /// # Safety
    /// As `dot_rows`; `TY` is `d.w.ty`.
    unsafe fn dot_rows_of<const TY: u8>(d: &DenseDot<'_>, first: usize, out: &mut [f32]) {
        let cols = out.len() / d.m;
        let block = if d.m <= 2 { 4 } else { 2 };
        let whole = cols - cols % block;
        // SAFETY: rows `first..first + cols` exist and `out` has that many columns.
        unsafe {
            for j in (0..whole).step_by(block) {
                match d.m {
                    1 => dot_rows_block::<TY, 4, 1, 2>(d, first + j, j, cols, out),
                    2 => dot_rows_block::<TY, 4, 2, 1>(d, first + j, j, cols, out),
                    3 => dot_rows_block::<TY, 2, 3, 1>(d, first + j, j, cols, out),
                    _ => dot_rows_block::<TY, 2, 4, 1>(d, first + j, j, cols, out),
                }
            }
            for j in whole..cols {
                match d.m {
                    1 => dot_rows_block::<TY, 1, 1, 2>(d, first + j, j, cols, out),
                    2 => dot_rows_block::<TY, 1, 2, 1>(d, first + j, j, cols, out),
                    3 => dot_rows_block::<TY, 1, 3, 1>(d, first + j, j, cols, out),
                    _ => dot_rows_block::<TY, 1, 4, 1>(d, first + j, j, cols, out),
                }
            }
        }
    }

    /// Like `dot_quant_block`, with `U` vectors of each row in flight.
    ///
    /// # Safety
    /// As `dot_quant_block`; `TY` is `d.w.ty`.
    unsafe fn dot_rows_block<const TY: u8, const R: usize, const M: usize, const U: usize>(
        d: &DenseDot<'_>,
        row: usize,
        col: usize,
        cols: usize,
        out: &mut [f32],
    ) {
        let k = d.w.cols;
        let w: [*const u8; R] = std::array::from_fn(|r| d.w.element(row + r, 0));
        let x: [*const f32; M] = std::array::from_fn(|m| d.x[m * k..].as_ptr());
        let mut sum = [[[zero(); U]; M]; R];
        let mut at = 0;
        let row_bytes = d.w.row_stride * bytes_of(TY);
        while at + LANES * U <= k {
            ahead::<R>(w[0], R * row_bytes, at * bytes_of(TY), LANES * U * bytes_of(TY));
            for u in 0..U {
                // SAFETY: `at + LANES * (u + 1) <= k`, in every row.
                let xs: [F32s; M] = std::array::from_fn(|m| unsafe { load(x[m].add(at + LANES * u)) });
                for r in 0..R {
                    // SAFETY: as above.
                    let ws = unsafe { load_vector::<TY>(w[r].add((at + LANES * u) * bytes_of(TY))) };
                    for m in 0..M {
                        sum[r][m][u] = fma(ws, xs[m], sum[r][m][u]);
                    }
                }
            }
            at += LANES * U;
        }
        while at + LANES <= k {
            for r in 0..R {
                // SAFETY: `at + LANES <= k`.
                let ws = unsafe { load_vector::<TY>(w[r].add(at * bytes_of(TY))) };
                for m in 0..M {
                    // SAFETY: as above.
                    sum[r][m][0] = fma(ws, unsafe { load(x[m].add(at)) }, sum[r][m][0]);
                }
            }
            at += LANES;
        }
        for r in 0..R {
            for m in 0..M {
                let mut total = sum[r][m][0];
                for u in 1..U {
                    total = plus(total, sum[r][m][u]);
                }
                let mut total = horizontal_sum(total);
                for c in at..k {
                    total = d.x[m * k + c].mul_add(d.w.at(row + r, c), total);
                }
                out[m * cols + col + r] = total;
            }
        }
    }

    /// # Safety
    /// As [`super::MatmulFns`] says of lengths; columns of `d.w` are of adjacent elements.
    pub unsafe fn dot_cols(d: &DenseDot<'_>, first: usize, out: &mut [f32]) {
        if d.m > 4 {
            let (out, out_rest) = out.split_at_mut(out.len() / d.m * 4);
            let (x, x_rest) = d.x.split_at(4 * d.w.cols);
            // SAFETY: handed on, for a part of the rows of `x` and of `out`.
            return unsafe {
                dot_cols(&DenseDot { w: d.w, m: 4, x }, first, out);
                dot_cols(&DenseDot { w: d.w, m: d.m - 4, x: x_rest }, first, out_rest);
            };
        }
        // SAFETY: handed on.
        unsafe {
            match d.w.ty {
                DenseType::F32 => dot_cols_of::<F32>(d, first, out),
                DenseType::F16 => dot_cols_of::<F16>(d, first, out),
                DenseType::Bf16 => dot_cols_of::<BF16>(d, first, out),
            }
        }
    }

    /// # Safety
    /// As `dot_cols`; `TY` is `d.w.ty`.
    unsafe fn dot_cols_of<const TY: u8>(d: &DenseDot<'_>, first: usize, out: &mut [f32]) {
        let cols = out.len() / d.m;
        let mut j = 0;
        // SAFETY: columns `first..first + cols` exist and `out` has that many.
        unsafe {
            while j + 8 * LANES <= cols && d.m == 1 {
                dot_cols_block::<TY, 8, 1>(d, first + j, j, cols, out);
                j += 8 * LANES;
            }
            while j + 2 * LANES <= cols {
                match d.m {
                    1 => dot_cols_block::<TY, 2, 1>(d, first + j, j, cols, out),
                    2 => dot_cols_block::<TY, 2, 2>(d, first + j, j, cols, out),
                    3 => dot_cols_block::<TY, 2, 3>(d, first + j, j, cols, out),
                    _ => dot_cols_block::<TY, 2, 4>(d, first + j, j, cols, out),
                }
                j += 2 * LANES;
            }
        }
        let k = d.w.cols;
        for j in j..cols {
            for m in 0..d.m {
                // The vector blocks' order of additions and their rounding.
                out[m * cols + j] = (0..k).fold(0.0, |sum, c| d.x[m * k + c].mul_add(d.w.at(first + j, c), sum));
            }
        }
    }

    /// `LANES * V` adjacent outputs for `M` rows.
    ///
    /// # Safety
    /// The outputs exist, `d.m` is `M`, `TY` is `d.w.ty`, and `out` holds `M * cols` elements.
    unsafe fn dot_cols_block<const TY: u8, const V: usize, const M: usize>(
        d: &DenseDot<'_>,
        row: usize,
        col: usize,
        cols: usize,
        out: &mut [f32],
    ) {
        let k = d.w.cols;
        let mut sum = [[zero(); V]; M];
        for c in 0..k {
            let w = d.w.element(row, c);
            // SAFETY: `LANES * V` outputs from `row` on are adjacent.
            let w: [F32s; V] = std::array::from_fn(|v| unsafe { load_vector::<TY>(w.add(LANES * v * bytes_of(TY))) });
            for m in 0..M {
                // SAFETY: `x` has `M` rows of `k`.
                let x = splat(unsafe { *d.x.get_unchecked(m * k + c) });
                for v in 0..V {
                    sum[m][v] = fma(w[v], x, sum[m][v]);
                }
            }
        }
        for m in 0..M {
            for v in 0..V {
                let out = &mut out[m * cols + col + LANES * v..][..LANES];
                // SAFETY: a vector's elements.
                unsafe { store(out.as_mut_ptr(), sum[m][v]) }
            }
        }
    }

    /// # Safety
    /// As [`super::MatmulFns`] says of lengths.
    pub unsafe fn pack_dense(w: &DenseView<'_>, n0: usize, k0: usize, depth: usize, panel: &mut [f32]) {
        assert!(n0 < w.rows && k0 + depth <= w.cols && panel.len() == depth * NR);
        // SAFETY: handed on, with the extents checked.
        unsafe {
            match w.ty {
                DenseType::F32 => pack_dense_of::<F32>(w, n0, k0, depth, panel),
                DenseType::F16 => pack_dense_of::<F16>(w, n0, k0, depth, panel),
                DenseType::Bf16 => pack_dense_of::<BF16>(w, n0, k0, depth, panel),
            }
        }
    }

    /// # Safety
    /// As `pack_dense`; `TY` is `w.ty`.
    unsafe fn pack_dense_of<const TY: u8>(w: &DenseView<'_>, n0: usize, k0: usize, depth: usize, panel: &mut [f32]) {
        if w.row_stride == 1 && n0 + NR <= w.rows {
            for k in 0..depth {
                let from = w.element(n0, k0 + k);
                for (v, to) in panel[k * NR..][..NR].as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                    // SAFETY: sixteen rows are adjacent.
                    unsafe { store(to.as_mut_ptr(), load_vector::<TY>(from.add(LANES * v * bytes_of(TY)))) }
                }
            }
            return;
        }
        if w.col_stride != 1 {
            return scalar::pack_dense(w, n0, k0, depth, panel);
        }
        let whole = depth - depth % LANES;
        for part in (0..NR).step_by(LANES) {
            let rows: [*const u8; LANES] = std::array::from_fn(|i| w.element((n0 + part + i).min(w.rows - 1), k0));
            for k in (0..whole).step_by(LANES) {
                // SAFETY: `k + LANES <= depth`, and columns are adjacent.
                let lines = rows.map(|row| unsafe { load_vector::<TY>(row.add(k * bytes_of(TY))) });
                for (i, line) in transpose(lines).into_iter().enumerate() {
                    let to = &mut panel[(k + i) * NR + part..][..LANES];
                    // SAFETY: a vector's elements.
                    unsafe { store(to.as_mut_ptr(), line) }
                }
            }
        }
        if whole < depth {
            scalar::pack_dense(w, n0, k0 + whole, depth - whole, &mut panel[whole * NR..]);
        }
    }

    pub fn tile_f32(x: &[f32], w: &[f32], tile: &mut Tile) {
        let mut sum = [[zero(); NR / LANES]; MR];
        let (x, _) = x.as_chunks::<MR>();
        let (w, _) = w.as_chunks::<NR>();
        for (x, w) in x.iter().zip(w) {
            // SAFETY: sixteen elements are whole vectors.
            let w: [F32s; NR / LANES] = std::array::from_fn(|v| unsafe { load(w.as_ptr().add(LANES * v)) });
            for r in 0..MR {
                let x = splat(x[r]);
                for v in 0..NR / LANES {
                    sum[r][v] = fma(x, w[v], sum[r][v]);
                }
            }
        }
        for (to, sum) in tile.as_chunks_mut::<NR>().0.iter_mut().zip(sum) {
            for (to, sum) in to.as_chunks_mut::<LANES>().0.iter_mut().zip(sum) {
                // SAFETY: a vector's elements.
                unsafe { store(to.as_mut_ptr(), sum) }
            }
        }
    }
}
