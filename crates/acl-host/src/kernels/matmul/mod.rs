//! Matrix products, `out[m][n] = sum over k of x[m][k] * w[n][k]`, accumulated in `f32`.
//!
//! Two ways lead there. With few rows of `x` a product is bound by reading `w` once, so `w` is read in place ("dot"); with
//! more rows both operands are packed into panels and multiplied in 6 x 16 tiles ("tile"). Quantised weights in groups of
//! 32 are multiplied as integers on both ways: `x` is quantised to 16 bits per group, which costs it at most half of 1/32767
//! of the group's greatest magnitude, and a group of `x` that is not finite makes its outputs NaN. Everything else is
//! converted to `f32` on the way.
//!
//! The order of additions depends on the shapes only: results have the same bits for any number of threads. Scratch memory
//! comes from the caller; nothing is allocated. Absent: epilogues, and batches as an operand shape (see [`run_batch`]).

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "aarch64")]
mod neon;
mod operand;
mod scalar;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod vector;

pub use operand::{DenseType, DenseView, FractalView, GROUP, OutView, QuantBits, QuantWeights, STRIP, Weights};

use super::convert::{self, ConvertFns};
use super::isa::Isa;
use super::team::Team;
use operand::GroupedWeights;

/// Rows and columns of a tile.
const MR: usize = 6;
const NR: usize = 16;
/// Most rows of `x` packed at a time: with `KC` of depth they fill about half of a 512 KiB cache.
const MC: usize = 44 * MR;
/// Depth of a panel: 16 columns of it fill half of a 32 KiB cache, as floats and, twice as deep, as 16-bit integers.
const KC: usize = 256;
const KC_GROUPS: usize = 2 * KC / GROUP;
/// Columns a thread claims at a time.
const NC: usize = 2 * NR;
/// Most rows of `x` for which `w` is read in place.
const DOT_ROWS: usize = 8;
/// Most columns a thread claims at a time on the dot way.
const DOT_COLS: usize = 256;

type Tile = [f32; MR * NR];

/// One product.
#[derive(Debug)]
pub struct Problem<'a> {
    /// `m` x `k`
    pub x: DenseView<'a>,
    /// `n` x `k`
    pub w: Weights<'a>,
    /// `m` x `n`
    pub out: OutView<'a>,
}

/// Scratch memory that [`matmul`] needs for any operands of these extents and this many threads.
pub fn scratch_bytes(threads: usize, m: usize, n: usize, k: usize) -> usize {
    let k = k.next_multiple_of(GROUP);
    let rows = block_rows(m).next_multiple_of(MR);
    // Converted or quantised rows, and per group of 32 up to two floats: 4 + 8 / 32 bytes per element; the dot way keeps
    // both the floats and the quants of its few rows, with groups rounded up to eight.
    let dot = DOT_ROWS.min(m) * (k * 6 + 2 * 4 * (k / GROUP).next_multiple_of(8));
    let panels = rows * k * 4 + rows * (k / GROUP) * 8 + rows / MR * 2 * ALIGN;
    let per_thread = NR * KC * 4 + KC_GROUPS * 2 * NR * 4 + k * 6 + 2 * 4 * (k / GROUP) + rows * NC.min(n.max(1)) * 4;
    dot.max(panels + threads * (per_thread + 8 * ALIGN)) + 16 * ALIGN
}

/// `problem.out = problem.x * problem.w^T` on the team.
///
/// # Panics
/// When extents do not fit or `scratch` is shorter than [`scratch_bytes`] says.
pub fn matmul(team: &Team, problem: Problem<'_>, scratch: &mut [u8]) {
    matmul_with(Isa::current(), team, problem, scratch);
}

/// [`matmul`] with the functions of a given instruction set.
pub fn matmul_with(isa: Isa, team: &Team, problem: Problem<'_>, scratch: &mut [u8]) {
    Product { fns: table(isa), convert: convert::table(isa), on: On::Team(team) }.multiply(&problem, scratch);
}

/// [`matmul`] on the calling thread alone.
pub fn matmul_alone(problem: Problem<'_>, scratch: &mut [u8]) {
    matmul_alone_with(Isa::current(), problem, scratch);
}

/// [`matmul_alone`] with the functions of a given instruction set.
pub fn matmul_alone_with(isa: Isa, problem: Problem<'_>, scratch: &mut [u8]) {
    Product { fns: table(isa), convert: convert::table(isa), on: On::Caller }.multiply(&problem, scratch);
}

/// `count` independent products in one region, each on one thread. `bytes` is the most that [`scratch_bytes`] says for one
/// thread and any of them; `scratch` holds [`batch_scratch_bytes`].
pub fn run_batch<'p>(
    team: &Team,
    count: usize,
    problem: &(dyn Fn(usize) -> Problem<'p> + Sync),
    bytes: usize,
    scratch: &mut [u8],
) {
    let each = bytes.next_multiple_of(ALIGN);
    assert!(scratch.len() >= each * team.threads(), "scratch too short");
    let slots = Slots { base: scratch.as_mut_ptr(), each };
    team.run_slots(count, &|i, slot| {
        // SAFETY: slots below `threads` lie inside `scratch`, and no two threads of a region share one.
        matmul_alone(problem(i), unsafe { slots.bytes(slot) });
    });
}

/// The scratch memory of [`run_batch`] on `threads` threads.
pub fn batch_scratch_bytes(threads: usize, bytes: usize) -> usize {
    threads * bytes.next_multiple_of(ALIGN)
}

/// The building blocks of products for one instruction set. Lengths are stated here and trusted by the functions.
// Each type is spelt once, here.
#[allow(clippy::type_complexity)]
struct MatmulFns {
    /// Quantises a row of whole groups: quants, per group the scale and the scaled sum of the quants. With `split`, each
    /// group's even elements come before its odd ones.
    quantise: unsafe fn(x: &[f32], q: &mut [i16], scales: &mut [f32], sums: &mut [f32], split: bool),
    /// `out[m][i] = x[m] . w[first + i]`, `out` holding `m` rows one after the other.
    dot_quant: unsafe fn(w: &QuantDot<'_>, first: usize, out: &mut [f32]),
    /// The same for dense rows of adjacent elements.
    dot_rows: unsafe fn(w: &DenseDot<'_>, first: usize, out: &mut [f32]),
    /// The same for dense columns of adjacent elements.
    dot_cols: unsafe fn(w: &DenseDot<'_>, first: usize, out: &mut [f32]),
    /// Packs rows `n0..n0 + 16` (the last one again beyond the end), columns `k0..k0 + depth` as `[depth][16]`.
    pack_dense: unsafe fn(w: &DenseView<'_>, n0: usize, k0: usize, depth: usize, panel: &mut [f32]),
    /// Packs groups `g0..g0 + count` of the same rows in the order this table's `tile_quant` wants (`[pair of k][16][2]` but for
    /// NEON), and `[group][16 scales, 16 scale * offset]`.
    pack_quant: unsafe fn(w: &GroupedWeights<'_>, n0: usize, g0: usize, panel: &mut [i16], scales: &mut [f32]),
    /// The tile of panels `[depth][6]` and `[depth][16]`.
    tile_f32: unsafe fn(x: &[f32], w: &[f32], tile: &mut Tile),
    /// The tile of panels `[pair][6][2]` with `[group][6 scales, 6 sums]`, and those of `pack_quant`.
    tile_quant: unsafe fn(x: &[i16], x_scales: &[f32], w: &[i16], w_scales: &[f32], offsets: bool, tile: &mut Tile),
}

/// Quantised weights and a few quantised rows: `m` of `groups * 32` quants, and of `padded` scales and sums, whose part
/// beyond `groups` is zero.
struct QuantDot<'a> {
    w: GroupedWeights<'a>,
    m: usize,
    padded: usize,
    x: &'a [i16],
    scales: &'a [f32],
    sums: &'a [f32],
}

/// Dense weights and `m` rows of `w.cols` floats.
struct DenseDot<'a> {
    w: DenseView<'a>,
    m: usize,
    x: &'a [f32],
}

static SCALAR: MatmulFns = MatmulFns {
    quantise: scalar::quantise,
    dot_quant: scalar::dot_quant,
    dot_rows: scalar::dot_rows,
    dot_cols: scalar::dot_cols,
    pack_dense: scalar::pack_dense,
    pack_quant: scalar::pack_quant,
    tile_f32: scalar::tile_f32,
    tile_quant: scalar::tile_quant,
};

/// The table of a set: dense products are the same for all, quantised ones are its own.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! vector_fns {
    ($from:ident, $products:ident, $pack_quant:ident, $tile_quant:ident) => {
        MatmulFns {
            quantise: $from::quantise,
            dot_quant: vector::dot_quant::<$from::$products>,
            dot_rows: vector::dot_rows,
            dot_cols: vector::dot_cols,
            pack_dense: vector::pack_dense,
            pack_quant: $from::$pack_quant,
            tile_f32: vector::tile_f32,
            tile_quant: $from::$tile_quant,
        }
    };
}

#[cfg(target_arch = "x86_64")]
static AVX2: MatmulFns = vector_fns!(avx2, Pairs, pack_quant, tile_quant);
#[cfg(target_arch = "aarch64")]
static NEON: MatmulFns = vector_fns!(neon, Long, pack_quant, tile_quant);
#[cfg(target_arch = "aarch64")]
static DOTPROD: MatmulFns = vector_fns!(neon, Dot, pack_bytes, tile_bytes);

fn table(isa: Isa) -> &'static MatmulFns {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 if isa.is_available() => &AVX2,
        #[cfg(target_arch = "aarch64")]
        Isa::Neon if isa.is_available() => &NEON,
        #[cfg(target_arch = "aarch64")]
        Isa::Dotprod if isa.is_available() => &DOTPROD,
        _ => &SCALAR,
    }
}

/// Who computes.
#[derive(Clone, Copy)]
enum On<'a> {
    Team(&'a Team),
    Caller,
}

impl On<'_> {
    fn threads(self) -> usize {
        match self {
            On::Team(team) => team.threads(),
            On::Caller => 1,
        }
    }

    fn run(self, chunks: usize, f: &(dyn Fn(usize, usize) + Sync)) {
        match self {
            On::Team(team) => team.run_slots(chunks, f),
            On::Caller => (0..chunks).for_each(|chunk| f(chunk, 0)),
        }
    }
}

/// How to compute: functions and threads.
struct Product<'a> {
    fns: &'static MatmulFns,
    convert: &'static ConvertFns,
    on: On<'a>,
}

impl Product<'_> {
    fn multiply(&self, p: &Problem<'_>, scratch: &mut [u8]) {
        let (m, n, k) = (p.x.rows, p.w.n(), p.x.cols);
        assert!(p.w.k() == k && p.out.rows == m && p.out.cols == n, "extents of a product do not fit");
        if m == 0 || n == 0 {
            return;
        }
        let mut scratch = Arena { rest: scratch };
        match &p.w {
            Weights::Quant(w) => match w.as_grouped() {
                Some(w) if m <= DOT_ROWS => self.dot_quant(p, w, &mut scratch),
                Some(w) => self.tile_quant(p, w, &mut scratch),
                None => self.tile_f32(p, &mut scratch),
            },
            Weights::Dense(w) if m <= DOT_ROWS && (w.col_stride == 1 || w.row_stride == 1) => {
                self.dot_dense(p, *w, &mut scratch);
            }
            Weights::Dense(_) | Weights::Fractal(_) => self.tile_f32(p, &mut scratch),
        }
    }

    fn dot_quant(&self, p: &Problem<'_>, w: GroupedWeights<'_>, scratch: &mut Arena<'_>) {
        let (m, k) = (p.x.rows, p.x.cols);
        let padded = w.groups.next_multiple_of(8);
        let row = scratch.take::<f32>(k);
        let x = scratch.take::<i16>(m * k);
        let scales = scratch.take::<f32>(m * padded);
        let sums = scratch.take::<f32>(m * padded);
        for r in 0..m {
            let (scales, sums) = (&mut scales[r * padded..][..padded], &mut sums[r * padded..][..padded]);
            scales[w.groups..].fill(0.0);
            sums[w.groups..].fill(0.0);
            self.row(&p.x, r, row);
            let split = w.bits == QuantBits::I4;
            let q = &mut x[r * k..][..k];
            // SAFETY: `table` checked the processor; `k` is `groups * 32`.
            unsafe { (self.fns.quantise)(row, q, &mut scales[..w.groups], &mut sums[..w.groups], split) }
        }
        let dot = QuantDot { w, m, padded, x, scales, sums };
        // SAFETY: `table` checked the processor; the rows claimed exist and `out` holds `m` times as many.
        self.dot(p, w.row_bytes(), &|first, out| unsafe { (self.fns.dot_quant)(&dot, first, out) });
    }

    fn dot_dense(&self, p: &Problem<'_>, w: DenseView<'_>, scratch: &mut Arena<'_>) {
        let (m, k) = (p.x.rows, p.x.cols);
        let x = scratch.take::<f32>(m * k);
        for r in 0..m {
            self.row(&p.x, r, &mut x[r * k..][..k]);
        }
        let dot = DenseDot { w, m, x };
        let f = if w.col_stride == 1 { self.fns.dot_rows } else { self.fns.dot_cols };
        // SAFETY: `table` checked the processor; strides are as `f` wants them; the rows claimed exist.
        self.dot(p, k * w.ty.bytes(), &|first, out| unsafe { f(&dot, first, out) });
    }

    /// Spreads the outputs over the threads: `f(first, out)` computes `m` rows of as many columns as fit.
    fn dot(&self, p: &Problem<'_>, row_bytes: usize, f: &(dyn Fn(usize, &mut [f32]) + Sync)) {
        let (m, n) = (p.x.rows, p.w.n());
        // Small enough that threads end together, large enough to be worth a claim.
        let cols = if n * row_bytes * m <= 16 << 10 { DOT_COLS } else { n.div_ceil(4 * self.on.threads()) };
        let cols = cols.min((128 << 10) / row_bytes.max(1)).clamp(16, DOT_COLS).next_multiple_of(16);
        self.on.run(n.div_ceil(cols), &|chunk, _| {
            let first = chunk * cols;
            let cols = cols.min(n - first);
            let mut sums = [0.0; DOT_ROWS * DOT_COLS];
            let sums = &mut sums[..m * cols];
            f(first, sums);
            for (r, row) in sums.chunks_exact(cols).enumerate() {
                // SAFETY: chunks are disjoint ranges of columns.
                unsafe { p.out.store(self.convert, r, first, row) }
            }
        });
    }

    fn tile_f32(&self, p: &Problem<'_>, scratch: &mut Arena<'_>) {
        let (m, n, k) = (p.x.rows, p.w.n(), p.x.cols);
        let rows = block_rows(m);
        // Blocks of equal depth, so that the last is not a sliver.
        let depth = k.div_ceil(k.div_ceil(KC).max(1)).next_multiple_of(8).max(8);
        let x_panels = PerSlot::new(scratch, rows.div_ceil(MR), MR * k);
        let w_panels = PerSlot::new(scratch, self.on.threads(), NR * KC);
        let row = PerSlot::new(scratch, self.on.threads(), k);
        let sums = PerSlot::new(scratch, self.on.threads(), rows * NC.min(n));
        for m0 in (0..m).step_by(rows) {
            let rows = rows.min(m - m0);
            self.on.run(rows.div_ceil(MR), &|panel, slot| {
                // SAFETY: one chunk per panel, one slot per thread.
                let (x, row) = unsafe { (x_panels.of(panel), row.of(slot)) };
                for r in 0..MR {
                    let at = panel * MR + r;
                    if at < rows {
                        self.row(&p.x, m0 + at, row)
                    } else {
                        row.fill(0.0)
                    }
                    x.iter_mut().skip(r).step_by(MR).zip(&*row).for_each(|(to, v)| *to = *v);
                }
            });
            self.on.run(n.div_ceil(NC), &|chunk, slot| {
                // SAFETY: one slot per thread.
                let (w, sums) = unsafe { (w_panels.of(slot), sums.of(slot)) };
                let cols = chunk * NC..n.min((chunk + 1) * NC);
                let block = Block::new(&p.out, m0, rows, cols.clone(), sums);
                for k0 in (0..k.max(1)).step_by(depth) {
                    let depth = depth.min(k - k0);
                    for n0 in cols.clone().step_by(NR) {
                        let w = &mut w[..NR * depth];
                        match &p.w {
                            // SAFETY: `table` checked the processor; the panel holds `depth` rows of 16.
                            Weights::Dense(dense) => unsafe { (self.fns.pack_dense)(dense, n0, k0, depth, w) },
                            Weights::Quant(quant) => pack_any_quant(quant, n0, k0, w),
                            Weights::Fractal(fractal) => {
                                let mut at = 0;
                                fractal.parts(n0, k0, depth, |part, n, k, len| {
                                    // SAFETY: as for dense weights, which the part is.
                                    unsafe { (self.fns.pack_dense)(&part, n, k, len, &mut w[at..at + NR * len]) };
                                    at += NR * len;
                                });
                            }
                        }
                        for panel in 0..rows.div_ceil(MR) {
                            // SAFETY: the region that wrote the panels is over; they are only read now.
                            let x = unsafe { &x_panels.read(panel)[k0 * MR..][..depth * MR] };
                            let mut tile = [0.0; MR * NR];
                            // SAFETY: `table` checked the processor; both panels have the same depth.
                            unsafe { (self.fns.tile_f32)(x, w, &mut tile) };
                            // SAFETY: this thread owns the chunk's columns.
                            unsafe { block.add(panel * MR, n0, &tile, k0 == 0) }
                        }
                    }
                }
                // SAFETY: as above.
                unsafe { block.finish(self.convert) }
            });
        }
    }

    fn tile_quant(&self, p: &Problem<'_>, w: GroupedWeights<'_>, scratch: &mut Arena<'_>) {
        let (m, k) = (p.x.rows, p.x.cols);
        let rows = block_rows(m);
        let groups = w.groups.div_ceil(w.groups.div_ceil(KC_GROUPS));
        let threads = self.on.threads();
        let x_panels = PerSlot::new(scratch, rows.div_ceil(MR), MR * k);
        let x_scales = PerSlot::new(scratch, rows.div_ceil(MR), 2 * MR * w.groups);
        let w_panels = PerSlot::new(scratch, threads, NR * KC_GROUPS * GROUP);
        let w_scales = PerSlot::new(scratch, threads, 2 * NR * KC_GROUPS);
        let row = PerSlot::new(scratch, threads, k);
        let quants = PerSlot::new(scratch, threads, k);
        let factors = PerSlot::new(scratch, threads, 2 * w.groups);
        let sums = PerSlot::new(scratch, threads, rows * NC.min(w.n));
        for m0 in (0..m).step_by(rows) {
            let rows = rows.min(m - m0);
            self.on.run(rows.div_ceil(MR), &|panel, slot| {
                // SAFETY: one chunk per panel, one slot per thread.
                let (x, x_scales): (&mut [i16], &mut [f32]) = unsafe { (x_panels.of(panel), x_scales.of(panel)) };
                // SAFETY: as above.
                let (row, quants, factors) = unsafe { (row.of(slot), quants.of(slot), factors.of(slot)) };
                let (scales, scaled_sums) = factors.split_at_mut(w.groups);
                for r in 0..MR {
                    let at = panel * MR + r;
                    if at < rows {
                        self.row(&p.x, m0 + at, row)
                    } else {
                        row.fill(0.0)
                    }
                    // SAFETY: `table` checked the processor; `k` is `groups * 32`.
                    unsafe { (self.fns.quantise)(row, quants, scales, scaled_sums, false) }
                    let (pairs, _) = quants.as_chunks::<2>();
                    let (x, _) = x.as_chunks_mut::<2>();
                    x[r..].iter_mut().step_by(MR).zip(pairs).for_each(|(to, pair)| *to = *pair);
                    x_scales[r..].iter_mut().step_by(2 * MR).zip(&*scales).for_each(|(to, v)| *to = *v);
                    x_scales[MR + r..].iter_mut().step_by(2 * MR).zip(&*scaled_sums).for_each(|(to, v)| *to = *v);
                }
            });
            self.on.run(w.n.div_ceil(NC), &|chunk, slot| {
                // SAFETY: one slot per thread.
                let (w_panel, w_scales, sums) = unsafe { (w_panels.of(slot), w_scales.of(slot), sums.of(slot)) };
                let cols = chunk * NC..w.n.min((chunk + 1) * NC);
                let block = Block::new(&p.out, m0, rows, cols.clone(), sums);
                for g0 in (0..w.groups).step_by(groups) {
                    let groups = groups.min(w.groups - g0);
                    for n0 in cols.clone().step_by(NR) {
                        let (w_panel, w_scales) =
                            (&mut w_panel[..NR * GROUP * groups], &mut w_scales[..2 * NR * groups]);
                        // SAFETY: `table` checked the processor; the panels hold `groups` groups of 16 rows.
                        unsafe { (self.fns.pack_quant)(&w, n0, g0, w_panel, w_scales) }
                        for panel in 0..rows.div_ceil(MR) {
                            // SAFETY: the region that wrote the panels is over; they are only read now.
                            let (x, x_scales): (&[i16], &[f32]) =
                                unsafe { (x_panels.read(panel), x_scales.read(panel)) };
                            let x = &x[g0 * GROUP * MR..][..groups * GROUP * MR];
                            let x_scales = &x_scales[g0 * 2 * MR..][..groups * 2 * MR];
                            let mut tile = [0.0; MR * NR];
                            let offsets = w.offsets.is_some();
                            // SAFETY: `table` checked the processor; all panels have the same groups.
                            unsafe { (self.fns.tile_quant)(x, x_scales, w_panel, w_scales, offsets, &mut tile) };
                            // SAFETY: this thread owns the chunk's columns.
                            unsafe { block.add(panel * MR, n0, &tile, g0 == 0) }
                        }
                    }
                }
                // SAFETY: as above.
                unsafe { block.finish(self.convert) }
            });
        }
    }

    /// Row `r` of `x` as floats.
    fn row(&self, x: &DenseView<'_>, r: usize, out: &mut [f32]) {
        assert!(r < x.rows && out.len() == x.cols);
        let start = x.element(r, 0);
        if x.col_stride != 1 || !start.addr().is_multiple_of(x.ty.bytes()) {
            return out.iter_mut().enumerate().for_each(|(c, v)| *v = x.at(r, c));
        }
        // SAFETY: the row's elements are adjacent, aligned and inside the view.
        unsafe {
            match x.ty {
                DenseType::F32 => out.copy_from_slice(std::slice::from_raw_parts(start.cast(), x.cols)),
                DenseType::F16 => self.convert.f16_to_f32(std::slice::from_raw_parts(start.cast(), x.cols), out),
                DenseType::Bf16 => self.convert.bf16_to_f32(std::slice::from_raw_parts(start.cast(), x.cols), out),
            }
        }
    }
}

/// Rows of `x` per block: as few blocks as `MC` allows, of equal size.
fn block_rows(m: usize) -> usize {
    m.div_ceil(m.div_ceil(MC).max(1)).next_multiple_of(MR)
}

/// Any quantised layout, one weight at a time; the way for what the fast kernels do not take.
fn pack_any_quant(w: &QuantWeights<'_>, n0: usize, k0: usize, panel: &mut [f32]) {
    let last = Weights::Quant(*w).n() - 1;
    for (k, row) in panel.chunks_exact_mut(NR).enumerate() {
        for (j, v) in row.iter_mut().enumerate() {
            *v = w.at((n0 + j).min(last), k0 + k);
        }
    }
}

/// The part of the output a thread works on: the output itself if it holds floats, else sums to be narrowed at the end.
struct Block<'a> {
    out: &'a OutView<'a>,
    row0: usize,
    rows: usize,
    cols: std::ops::Range<usize>,
    to: *mut f32,
    stride: usize,
    direct: bool,
}

impl<'a> Block<'a> {
    fn new(
        out: &'a OutView<'a>,
        row0: usize,
        rows: usize,
        cols: std::ops::Range<usize>,
        sums: &mut [f32],
    ) -> Block<'a> {
        let to = out.element(row0, cols.start).cast::<f32>();
        let direct = out.ty == DenseType::F32 && to.is_aligned();
        assert!(row0 + rows <= out.rows && cols.end <= out.cols && (direct || sums.len() >= rows * cols.len()));
        let (to, stride) = if direct { (to, out.row_stride) } else { (sums.as_mut_ptr(), cols.len()) };
        Block { out, row0, rows, cols, to, stride, direct }
    }

    /// Adds a tile at a row of the block and a column of the output, or writes it if it is the first.
    ///
    /// # Safety
    /// No other thread uses the block's elements now, and the `sums` it was made with are still borrowed.
    unsafe fn add(&self, row: usize, col: usize, tile: &Tile, first: bool) {
        let rows = MR.min(self.rows - row);
        let cols = NR.min(self.cols.end - col);
        for (r, values) in tile.chunks_exact(NR).take(rows).enumerate() {
            // SAFETY: the row and columns are inside the block, which `new` checked against its memory.
            let to = unsafe {
                let start = self.to.add((row + r) * self.stride + col - self.cols.start);
                std::slice::from_raw_parts_mut(start, cols)
            };
            match (<&mut [f32; NR]>::try_from(&mut *to), first) {
                (Ok(to), true) => to.copy_from_slice(values),
                (Ok(to), false) => to.iter_mut().zip(values).for_each(|(to, v)| *to += v),
                (Err(_), true) => to.copy_from_slice(&values[..cols]),
                (Err(_), false) => to.iter_mut().zip(values).for_each(|(to, v)| *to += v),
            }
        }
    }

    /// Narrows the sums into the output.
    ///
    /// # Safety
    /// As `add`.
    unsafe fn finish(&self, convert: &ConvertFns) {
        if self.direct {
            return;
        }
        for r in 0..self.rows {
            // SAFETY: the row is inside `sums`, and the output's columns are ours.
            unsafe {
                let row = std::slice::from_raw_parts(self.to.add(r * self.stride), self.cols.len());
                self.out.store(convert, self.row0 + r, self.cols.start, row);
            }
        }
    }
}

/// Parts of scratch memory start at cache lines.
const ALIGN: usize = 64;

/// Number types that any bytes are a value of.
trait Plain: Copy + 'static {}
impl Plain for f32 {}
impl Plain for i16 {}

/// Hands out the caller's scratch memory piece by piece; contents are whatever was there.
struct Arena<'a> {
    rest: &'a mut [u8],
}

impl<'a> Arena<'a> {
    fn take<T: Plain>(&mut self, count: usize) -> &'a mut [T] {
        let rest = std::mem::take(&mut self.rest);
        let skip = rest.as_ptr().align_offset(ALIGN);
        let bytes = count * size_of::<T>();
        assert!(skip <= rest.len() && bytes <= rest.len() - skip, "scratch too short");
        let (taken, rest) = rest[skip..].split_at_mut(bytes);
        self.rest = rest;
        // SAFETY: the bytes are borrowed exclusively, aligned to a cache line, and any bytes are a `T`.
        unsafe { std::slice::from_raw_parts_mut(taken.as_mut_ptr().cast(), count) }
    }
}

/// Equal pieces of scratch memory that threads use side by side.
struct PerSlot<T> {
    base: *mut T,
    slots: usize,
    each: usize,
    stride: usize,
}

// SAFETY: access is `unsafe` and asks for one user per piece.
unsafe impl<T: Plain> Sync for PerSlot<T> {}

impl<T: Plain> PerSlot<T> {
    fn new(scratch: &mut Arena<'_>, slots: usize, each: usize) -> PerSlot<T> {
        // Panels stay aligned: each begins at a cache line.
        let stride = each.next_multiple_of(ALIGN / size_of::<T>());
        PerSlot { base: scratch.take::<T>(slots * stride).as_mut_ptr(), slots, each, stride }
    }

    /// # Safety
    /// Nobody else uses the piece while the slice lives, and the scratch memory is still borrowed.
    #[allow(clippy::mut_from_ref)]
    unsafe fn of(&self, slot: usize) -> &mut [T] {
        assert!(slot < self.slots);
        // SAFETY: the piece is inside what `new` took; exclusive use is the caller's duty.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(slot * self.stride), self.each) }
    }

    /// # Safety
    /// Nobody writes the piece while the slice lives, and the scratch memory is still borrowed.
    unsafe fn read(&self, slot: usize) -> &[T] {
        assert!(slot < self.slots);
        // SAFETY: as in `of`.
        unsafe { std::slice::from_raw_parts(self.base.add(slot * self.stride), self.each) }
    }
}

/// [`PerSlot`] for the bytes of whole products.
struct Slots {
    base: *mut u8,
    each: usize,
}

// SAFETY: as `PerSlot`.
unsafe impl Sync for Slots {}

impl Slots {
    /// # Safety
    /// The slot lies inside the memory and nobody else uses it while the slice lives.
    #[allow(clippy::mut_from_ref)]
    unsafe fn bytes(&self, slot: usize) -> &mut [u8] {
        // SAFETY: the caller's duty.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(slot * self.each), self.each) }
    }
}

#[cfg(test)]
mod tests;
