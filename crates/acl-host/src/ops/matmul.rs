//! Dense matrix products, and the machinery that other product operators share.
//!
//! Operands are F32, F16 or BF16 in any mix and with any strides that are not negative; sums are f32 and rounded once, when
//! they are written. So `cubeMathType` changes nothing: 1, 2 and 3 allow a chip less precision than this device has, and
//! what a chip would compute in F16 does not overflow here.
//!
//! A call is a list of 2-D products. One product alone is spread over the team by [`kernels::matmul`]; several are cut into
//! chunks that run in one region, each on one thread, reading operands where they lie.

use std::ops::Range;

use acl_sys::{ACL_FORMAT_FRACTAL_NZ, KEEP_DTYPE, USE_HF32};

use super::check::{broadcast, contiguous, ensure, is_flt, rank_is, shape_is};
use super::norm::{lend, scratch_rows};
use super::transfer::Transfer;
use crate::executor::{Checked, Op, Refusal, Run, bytes_of};
use crate::kernels::matmul::{self as kernel, DenseType, DenseView, FractalView, OutView, Problem, Weights};
use crate::runtime::config::{self, Family};
use crate::tensor::{DType, MAX_RANK, Tensor, View, broadcast_shape};

/// Multiplications below which a chunk is not worth handing to another thread.
const CHUNK_WORK: usize = 64 << 10;
/// Chunks for each thread, so that threads end together.
const CHUNKS_PER_THREAD: usize = 4;
/// Rows from which on operands are packed, which only pays for many rows at a time.
const MANY_ROWS: usize = 8;
const MIN_ROWS: usize = 48;
const MIN_COLS: usize = 16;

/// `(m, k) x (k, n)`. The only product here that takes a weight in the private format.
pub(crate) fn aclnnMm(self_: &Tensor, mat2: &Tensor, out: &Tensor, cube_math_type: i8) -> Checked {
    let (a, b, out) = operands(self_, mat2, out, cube_math_type)?;
    for (name, view) in [("self", &a), ("mat2", &b), ("out", &out)] {
        rank_is(name, view, 2)?;
    }
    if b.format() == ACL_FORMAT_FRACTAL_NZ {
        return fractal_product(a, b, out);
    }
    product(a, b, out)
}

/// `a (m, k) x b (k, n)` with `b` in the private format: as it is or turned round, which its strides tell.
fn fractal_product(a: View, b: View, out: View) -> Checked {
    has_private_format()?;
    let (m, k, n) = (a.dim(0), a.dim(1), b.dim(1));
    ensure(b.dim(0) == k, || format!("inner dims {k} and {} differ", b.dim(0)))?;
    shape_is("out", &out, &[m, n])?;
    contiguous("out", &out)?;
    // The matrix as it was when it was transformed.
    let turned = b.is_contiguous();
    let matrix = if turned { b } else { b.transposed() };
    whole_blocks("mat2", &matrix)?;
    if out.is_empty() {
        return Ok(Op::nothing());
    }
    let ty = dense_type(b.dtype()).filter(|ty| *ty != DenseType::F32);
    let ty = ty.ok_or_else(|| Refusal::invalid(format!("mat2 of {:?} has no private format", b.dtype())))?;
    let w = Fractal { bytes: Bytes::under(&matrix), ty, extents: (matrix.dim(0), matrix.dim(1)), turned };
    Ok(alone(Dense::new("self", &a)?, Factor::Fractal(w), out))
}

/// Whether the chip has the private format at all.
fn has_private_format() -> Result<(), Refusal> {
    let settings = config::settings();
    ensure(settings.family != Family::Ascend910A, || format!("{} has no FRACTAL_NZ weights", settings.soc_name))
}

/// A block of the private format: 16 rows of 32 bytes.
const BLOCK_ROWS: usize = 16;
const BLOCK_ROW_BYTES: usize = 32;

/// Packed matrices that are whole blocks of the private format. What is padded there takes more memory than it had, and this
/// device will not guess whether that is there.
fn whole_blocks(name: &str, view: &View) -> Result<(), Refusal> {
    contiguous(name, view)?;
    let across = BLOCK_ROW_BYTES / view.dtype().size();
    let whole = matches!(view.dims(), [.., rows, cols] if rows % BLOCK_ROWS == 0 && cols % across == 0);
    ensure(whole, || format!("{name} {:?} is not whole blocks of {BLOCK_ROWS} x {across}", view.dims()))
}

/// `(b, m, k) x (b, k, n)`, where either batch may be 1.
pub(crate) fn aclnnBatchMatMul(self_: &Tensor, mat2: &Tensor, out: &Tensor, cube_math_type: i8) -> Checked {
    let (a, b, out) = operands(self_, mat2, out, cube_math_type)?;
    for (name, view) in [("self", &a), ("mat2", &b), ("out", &out)] {
        rank_is(name, view, 3)?;
    }
    product(a, b, out)
}

/// `(m, k) x (k)`.
pub(crate) fn aclnnMv(self_: &Tensor, vec: &Tensor, out: &Tensor, cube_math_type: i8) -> Checked {
    let (a, x, out) = operands(self_, vec, out, cube_math_type)?;
    rank_is("self", &a, 2)?;
    rank_is("vec", &x, 1)?;
    rank_is("out", &out, 1)?;
    product(a, x.with_unit_dim(1), out.with_unit_dim(1))
}

/// Ranks 1 to 6 by numpy's rules: vectors get a dim of 1 for the product, leading dims broadcast both ways.
pub(crate) fn aclnnMatmul(self_: &Tensor, mat2: &Tensor, out: &Tensor, cube_math_type: i8) -> Checked {
    let (mut a, mut b, mut out) = operands(self_, mat2, out, cube_math_type)?;
    for (name, view) in [("self", &a), ("mat2", &b)] {
        ensure((1..=6).contains(&view.rank()), || format!("{name} has {} dims, needed are 1 to 6", view.rank()))?;
    }
    let (row, column) = (a.rank() == 1, b.rank() == 1);
    let needed = a.rank().max(b.rank()).max(2) - usize::from(row) - usize::from(column);
    // A dot product fits a scalar; a vector of one is accepted too.
    if !(row && column && out.dims() == [1]) {
        rank_is("out", &out, needed)?;
    }
    if out.rank() == 1 && row && column {
        out = out.with_unit_dim(0);
    } else {
        if row {
            out = out.with_unit_dim(out.rank() - usize::from(!column));
        }
        if column {
            out = out.with_unit_dim(out.rank());
        }
    }
    if row {
        a = a.with_unit_dim(0);
    }
    if column {
        b = b.with_unit_dim(1);
    }
    product(a, b, out)
}

/// From rows to the private format, in place: blocks one under the other, strip beside strip, each block row by row.
pub(crate) fn aclnnTransMatmulWeight(mm_weight_ref: &Tensor) -> Checked {
    let weight = mm_weight_ref.view();
    ensure(matches!(weight.dtype(), DType::F16 | DType::BF16 | DType::I8), || {
        format!("mmWeightRef is {:?}, needed is F16, BF16 or I8", weight.dtype())
    })?;
    ensure((2..=6).contains(&weight.rank()), || format!("mmWeightRef has {} dims, needed are 2 to 6", weight.rank()))?;
    ensure(!weight.is_empty(), || "mmWeightRef is empty".into())?;
    has_private_format()?;
    whole_blocks("mmWeightRef", &weight)?;
    let (rows, cols, across) =
        (weight.dim(weight.rank() - 2), weight.row_len(), BLOCK_ROW_BYTES / weight.dtype().size());
    let batch = weight.numel() / (rows * cols);
    let blocks = weight.reshaped(&[batch, rows / BLOCK_ROWS, BLOCK_ROWS, cols / across, across]);
    let blocks = blocks.ok_or_else(|| Refusal::invalid("mmWeightRef is not contiguous"))?.permuted(&[0, 3, 1, 2, 4]);
    let bytes = bytes_of::<u8>(weight.numel() * weight.dtype().size());
    Ok(Op::new(bytes, move |run| {
        let copy = View::packed(run.take::<u8>(bytes).as_mut_ptr(), blocks.dtype(), blocks.dims());
        Transfer::new(&copy, &blocks).run(run);
        Transfer::new(&View::packed(weight.ptr(), blocks.dtype(), blocks.dims()), &copy).run(run);
    }))
}

/// How many elements a weight `(…, k, n)` takes in the chip's private format; callers allocate by it.
pub(crate) fn calculate_matmul_weight_size_v2(shape: &[i64], dtype: DType) -> Result<u64, Refusal> {
    let too_large = || Refusal::invalid(format!("a weight of shape {shape:?} has no size"));
    let dims = shape.iter().map(|&d| u64::try_from(d).ok().filter(|d| *d > 0).ok_or_else(too_large));
    let dims: Vec<u64> = dims.collect::<Result<_, _>>()?;
    let [batch @ .., k, n] = &dims[..] else {
        return Err(Refusal::invalid(format!("tensorShape has {} dims, needed are 2 to 6", shape.len())));
    };
    ensure(dims.len() <= 6, || format!("tensorShape has {} dims, needed are 2 to 6", shape.len()))?;
    let k_unit = match dtype {
        DType::F16 | DType::BF16 => 16,
        DType::I8 => 32,
        _ => return Err(Refusal::invalid(format!("dataType is {dtype:?}, needed is F16, BF16 or I8"))),
    };
    let padded = [n.checked_next_multiple_of(16), k.checked_next_multiple_of(k_unit)];
    padded
        .into_iter()
        .chain(batch.iter().map(|b| Some(*b)))
        .try_fold(1u64, |size, d| size.checked_mul(d?))
        .ok_or_else(too_large)
}

/// The views of a product's tensors after the checks that need no shape.
fn operands(a: &Tensor, b: &Tensor, out: &Tensor, cube_math_type: i8) -> Result<(View, View, View), Refusal> {
    for (name, tensor) in [("self", a), ("mat2", b), ("out", out)] {
        is_flt(name, tensor)?;
    }
    cube_takes(cube_math_type, [a.dtype(), b.dtype()])?;
    Ok((a.view(), b.view(), out.view()))
}

/// Whether the chip's product unit would compute these in the way `cubeMathType` asks for; this device always can.
pub(super) fn cube_takes(cube_math_type: i8, inputs: [DType; 2]) -> Result<(), Refusal> {
    ensure((0..=4).contains(&cube_math_type), || format!("cubeMathType is {cube_math_type}, known are 0 to 4"))?;
    let half_only = is_inference_card() || config::settings().family == Family::Ascend910A;
    let keeps = matches!(cube_math_type, KEEP_DTYPE | USE_HF32);
    ensure(!(half_only && keeps && inputs.contains(&DType::F32)), || {
        format!("this chip has no product of F32 with cubeMathType {cube_math_type}")
    })
}

/// Whether the device goes by the name of a chip that lacks several operators of networks.
pub(super) fn is_inference_card() -> bool {
    matches!(config::settings().family, Family::Ascend310P | Family::Ascend310B)
}

/// Refuses an operator that such a chip lacks.
pub(super) fn not_on_inference_cards() -> Result<(), Refusal> {
    ensure(!is_inference_card(), || format!("{} does not have the operator", config::settings().soc_name))
}

/// Whether the device goes by a chip's name, and so by its rules where this device is wider.
pub(super) fn is_chip() -> bool {
    config::settings().soc_name != "Host"
}

/// `a (…, m, k) x b (…, k, n)` into `out (…, m, n)`, all of two dims or more.
fn product(a: View, b: View, out: View) -> Checked {
    let ([.., m, k], [.., inner, n]) = (a.dims(), b.dims()) else {
        return Err(Refusal::invalid("a product needs matrices"));
    };
    let (m, k, inner, n) = (*m, *k, *inner, *n);
    ensure(k == inner, || format!("inner dims {k} and {inner} differ"))?;
    ensure(b.format() != ACL_FORMAT_FRACTAL_NZ, || "mat2 is FRACTAL_NZ, which only aclnnMm takes here".into())?;
    let batch = broadcast_shape(&a.dims()[..a.rank() - 2], &b.dims()[..b.rank() - 2])
        .filter(|batch| batch.len() <= MAX_RANK - 2)
        .ok_or_else(|| Refusal::invalid(format!("batches of {:?} and {:?} do not broadcast", a.dims(), b.dims())))?;
    let with = |rows, cols| [&batch[..], &[rows, cols]].concat();
    shape_is("out", &out, &with(m, n))?;
    let (a, b) = (broadcast("self", &a, &with(m, k))?, broadcast("mat2", &b, &with(k, n))?);
    let (a, b, out) = folded(a, b, out);
    let mut items = Vec::new();
    each_matrix(a, b, out, &mut |a, b, out| {
        // A single column is a single row of the product turned round, which reads the large operand once and in place.
        let turned = n == 1 && a.dim(0) > 1;
        let (a, b, out) = if turned { (b.transposed(), a.transposed(), out.transposed()) } else { (a, b, out) };
        items.push(Item::new(a, b, out)?);
        Ok(())
    })?;
    Ok(products(items))
}

/// Batch dims that repeat `b` become rows of `a` where strides allow: one pass over `b` serves them all. That is how the
/// heads of a group share their keys and values.
fn folded(mut a: View, mut b: View, mut out: View) -> (View, View, View) {
    while a.rank() > 2 {
        let batch = a.rank() - 3;
        let (count, m) = (a.dim(batch), a.dim(batch + 1));
        let merges = |v: &View| {
            let (outer, inner) = (v.strides()[batch], v.strides()[batch + 1]);
            count == 1 || m == 1 || outer == inner * m as isize
        };
        if (count != 1 && b.strides()[batch] != 0) || !merges(&a) || !merges(&out) {
            break;
        }
        (a, b, out) = (a.rows_merged(batch), b.selected(batch, 0), out.rows_merged(batch));
    }
    (a, b, out)
}

/// Calls `f` with the matrices of every batch.
fn each_matrix(
    a: View,
    b: View,
    out: View,
    f: &mut dyn FnMut(View, View, View) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    if out.rank() == 2 {
        return f(a, b, out);
    }
    (0..out.dim(0)).try_for_each(|i| each_matrix(a.selected(0, i), b.selected(0, i), out.selected(0, i), f))
}

/// The memory under a view, as bytes that threads may lend.
#[derive(Clone, Copy)]
pub(super) struct Bytes(View);

impl Bytes {
    pub(super) fn under(view: &View) -> Bytes {
        let (low, high) = view.span();
        Bytes(View::packed(view.ptr().with_addr(low), DType::U8, &[high - low]))
    }

    pub(super) fn of(workspace: &mut [u8]) -> Bytes {
        Bytes(View::packed(workspace.as_mut_ptr(), DType::U8, &[workspace.len()]))
    }

    pub(super) fn len(&self) -> usize {
        self.0.row_len()
    }

    pub(super) fn read(&self) -> &[u8] {
        self.0.slice(0, self.len()).unwrap_or_default()
    }

    /// Threads lend different ranges.
    #[allow(clippy::mut_from_ref)]
    pub(super) fn write(&self, range: Range<usize>) -> &mut [u8] {
        self.0.slice_mut(range.start, range.len()).unwrap_or_default()
    }
}

/// A matrix of floats in device memory, as the kernels want it.
#[derive(Clone, Copy)]
pub(super) struct Dense {
    bytes: Bytes,
    ty: DenseType,
    extents: (usize, usize),
    strides: (usize, usize),
}

impl Dense {
    /// Refuses what has negative strides or is no float.
    pub(super) fn new(name: &str, view: &View) -> Result<Dense, Refusal> {
        let stride = |i: usize| match view.dim(i) {
            0 | 1 => Some(0),
            _ => usize::try_from(view.strides()[i]).ok(),
        };
        match (dense_type(view.dtype()), stride(0), stride(1)) {
            (Some(ty), Some(rows), Some(cols)) => {
                // A single column counts as adjacent elements.
                let cols = if view.dim(1) <= 1 { 1 } else { cols };
                let extents = (view.dim(0), view.dim(1));
                Ok(Dense { bytes: Bytes::under(view), ty, extents, strides: (rows, cols) })
            }
            _ => Err(Refusal::invalid(format!("{name} of {:?} has strides {:?}", view.dtype(), view.strides()))),
        }
    }

    /// The matrix; its own bytes hold it, so there always is one.
    pub(super) fn view(&self) -> DenseView<'_> {
        match DenseView::new(self.bytes.read(), self.ty, self.extents, self.strides) {
            Some(view) => view,
            None => unreachable!("a matrix lies inside its own span"),
        }
    }
}

/// A matrix in the private format.
struct Fractal {
    bytes: Bytes,
    ty: DenseType,
    extents: (usize, usize),
    turned: bool,
}

/// The right operand of a product.
enum Factor {
    Dense(Dense),
    Fractal(Fractal),
}

impl Factor {
    fn weights(&self) -> Weights<'_> {
        match self {
            Factor::Dense(w) => Weights::Dense(w.view()),
            Factor::Fractal(w) => match FractalView::new(w.bytes.read(), w.ty, w.extents, w.turned) {
                Some(view) => Weights::Fractal(view),
                None => unreachable!("a matrix of whole blocks lies inside its own span"),
            },
        }
    }
}

pub(super) fn dense_type(dtype: DType) -> Option<DenseType> {
    Some(match dtype {
        DType::F32 => DenseType::F32,
        DType::F16 => DenseType::F16,
        DType::BF16 => DenseType::Bf16,
        _ => return None,
    })
}

/// How many threads compute at most: what scratch memory of a thread's own is made for.
pub(super) fn threads() -> usize {
    config::settings().threads
}

/// One 2-D product.
pub(super) struct Item {
    x: Dense,
    /// `n` rows of `k`.
    w: Dense,
    out: View,
}

impl Item {
    /// `a (m, k) x b (k, n)` into `out (m, n)`, extents already checked.
    pub(super) fn new(a: View, b: View, out: View) -> Result<Item, Refusal> {
        Ok(Item { x: Dense::new("self", &a)?, w: Dense::new("mat2", &b.transposed())?, out })
    }

    fn m(&self) -> usize {
        self.x.extents.0
    }

    fn k(&self) -> usize {
        self.x.extents.1
    }

    fn n(&self) -> usize {
        self.w.extents.0
    }

    fn work(&self) -> usize {
        self.m().saturating_mul(self.n()).saturating_mul(self.k().max(1))
    }
}

/// A part of one product for one thread.
struct Chunk {
    item: usize,
    rows: Range<usize>,
    cols: Range<usize>,
}

/// The operator that computes all `items`.
pub(super) fn products(mut items: Vec<Item>) -> Op {
    items.retain(|item| !item.out.is_empty());
    match &items[..] {
        [] => return Op::nothing(),
        [item] if item.out.is_contiguous() => {
            let Item { x, w, out } = items.remove(0);
            return alone(x, Factor::Dense(w), out);
        }
        _ => {}
    }
    let threads = threads();
    let total = items.iter().map(Item::work).fold(0, usize::saturating_add);
    let wanted = (total / CHUNK_WORK).clamp(1, CHUNKS_PER_THREAD * threads);
    let mut chunks = Vec::new();
    for (index, item) in items.iter().enumerate() {
        // As many chunks as the item has of all work.
        let share = (wanted as f64 * item.work() as f64 / total.max(1) as f64).ceil() as usize;
        cut(index, item, share.max(1), &mut chunks);
    }
    // Small products go in runs, so that claiming them costs little.
    let run_len = chunks.len().div_ceil(wanted.max(1)).max(1);
    let each = chunks.iter().map(|c| kernel::scratch_bytes(1, c.rows.len(), c.cols.len(), items[c.item].k())).max();
    let each = bytes_of::<u8>(each.unwrap_or(0));
    let sums = chunks.iter().map(|c| c.rows.len() * c.cols.len()).max().unwrap_or(0);
    let bytes = bytes_of::<u8>(threads * each) + bytes_of::<f32>(threads * sums);
    Op::new(bytes, move |run| {
        let scratch = Bytes::of(run.take::<u8>(threads * each));
        let sums = scratch_rows::<f32>(run, threads, sums);
        run.team.run_slots(chunks.len().div_ceil(run_len), &|at, slot| {
            let scratch = scratch.write(slot * each..(slot + 1) * each);
            let sums = lend::<f32>(&sums, slot);
            for chunk in &chunks[at * run_len..chunks.len().min((at + 1) * run_len)] {
                compute(&items[chunk.item], chunk, scratch, sums);
            }
        });
    })
}

fn cut(item: usize, shape: &Item, share: usize, chunks: &mut Vec<Chunk>) {
    let (m, n) = (shape.m(), shape.n());
    let (row_step, col_step) = if m >= MANY_ROWS.max(n / 4) {
        (m.div_ceil(share).max(MIN_ROWS).min(m), n)
    } else {
        (m, n.div_ceil(share).max(MIN_COLS).next_multiple_of(MIN_COLS).min(n))
    };
    for row in (0..m).step_by(row_step) {
        for col in (0..n).step_by(col_step) {
            chunks.push(Chunk { item, rows: row..m.min(row + row_step), cols: col..n.min(col + col_step) });
        }
    }
}

fn compute(item: &Item, chunk: &Chunk, scratch: &mut [u8], sums: &mut [f32]) {
    let (rows, cols) = (chunk.rows.len(), chunk.cols.len());
    let sums = &mut sums[..rows * cols];
    let x = item.x.view().row_range(chunk.rows.start, rows);
    let w = Weights::Dense(item.w.view().row_range(chunk.cols.start, cols));
    if let Some(out) = OutView::from_f32(sums, rows, cols) {
        kernel::matmul_alone(Problem { x, w, out }, scratch);
    }
    for (row, sums) in chunk.rows.clone().zip(sums.chunks_exact(cols)) {
        item.out.write(row * item.n() + chunk.cols.start, sums);
    }
}

/// One product on the whole team, written in place.
fn alone(x: Dense, w: Factor, out: View) -> Op {
    let ((m, k), n) = (x.extents, out.row_len());
    let ty = dense_type(out.dtype());
    let out = Bytes::under(&out);
    let bytes = bytes_of::<u8>(kernel::scratch_bytes(threads(), m, n, k));
    Op::new(bytes, move |run| {
        let scratch = run.take::<u8>(bytes);
        let out = ty.and_then(|ty| OutView::new(out.write(0..out.len()), ty, (m, n), n));
        if let Some(out) = out {
            kernel::matmul(run.team, Problem { x: x.view(), w: w.weights(), out }, scratch);
        }
    })
}

/// Rows of `sums` plus `bias` into `out`, on the team.
pub(super) fn write_with_bias(run: &Run, sums: &View, bias: Option<&[f32]>, out: &View) {
    let n = out.row_len();
    run.split_rows(out.rows(), n, |rows| {
        for row in rows {
            let sums = sums.slice_mut::<f32>(row * n, n).unwrap_or_default();
            for (sum, bias) in sums.iter_mut().zip(bias.unwrap_or_default()) {
                *sum += bias;
            }
            out.write(row * n, sums);
        }
    });
}
