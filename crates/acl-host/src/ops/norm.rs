//! Normalisation, and the row loop that operators over whole rows share.
//!
//! Sums run in f32 whatever the tensors hold; results are rounded once, when they are written. The p-norm is a reduction and
//! not here.

use super::check::{ensure, is_flt, rank_is, shape_is};
use super::elementwise::{load, store};
use crate::executor::{Checked, Op, Refusal, Run, bytes_of};
use crate::kernels::rows::{self, RowFns};
use crate::tensor::{DType, Lane, Tensor, View};

/// Elements of row work below which a second thread does not pay.
const GRAIN: usize = 16 << 10;
/// Enough pieces to balance the threads of any machine this is used on, few enough to keep scratch small.
const MAX_PIECES: usize = 32;

/// Work on `rows` rows of `len` elements: split in pieces that threads take, each piece with scratch rows of its own, so
/// that nothing is allocated when it runs.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    rows: usize,
    len: usize,
    pieces: usize,
}

impl Rows {
    pub(super) fn new(rows: usize, len: usize) -> Rows {
        Rows::with_cost(rows, len, len)
    }

    /// For rows that cost as much as `cost` elements of cheap work.
    pub(super) fn with_cost(rows: usize, len: usize, cost: usize) -> Rows {
        let worth = rows.saturating_mul(cost) / GRAIN;
        Rows { rows, len, pieces: worth.clamp(1, MAX_PIECES).min(rows.max(1)) }
    }

    pub(super) fn pieces(&self) -> usize {
        self.pieces
    }

    /// Workspace for `buffers` scratch rows in each piece.
    pub(super) fn bytes<N>(&self, buffers: usize) -> usize {
        bytes_of::<N>(self.pieces * buffers * self.len)
    }

    /// Calls `f` for every row with `B` scratch rows.
    pub(super) fn each<N: Lane, const B: usize>(&self, run: &Run, f: impl Fn(usize, &mut [&mut [N]; B]) + Sync) {
        let scratch = scratch_rows::<N>(run, self.pieces * B, self.len);
        let size = self.rows.div_ceil(self.pieces);
        run.team.run(self.pieces, &|piece| {
            let mut own: [&mut [N]; B] = std::array::from_fn(|i| lend(&scratch, piece * B + i));
            for row in piece * size..((piece + 1) * size).min(self.rows) {
                f(row, &mut own);
            }
        });
    }
}

/// `rows` rows of workspace that threads may lend one by one.
pub(super) fn scratch_rows<N: Lane>(run: &Run, rows: usize, len: usize) -> View {
    View::packed(run.take::<N>(rows * len).as_mut_ptr().cast(), N::DTYPE, &[rows, len])
}

/// Row `row` of [`scratch_rows`]; a row belongs to one thread at a time.
#[allow(clippy::mut_from_ref)]
pub(super) fn lend<N: Lane>(scratch: &View, row: usize) -> &mut [N] {
    let len = scratch.row_len();
    scratch.slice_mut(row * len, len).unwrap_or_default()
}

/// All of a small tensor in workspace or in place, read once before the rows.
pub(super) fn whole<'a, N: Lane>(run: &'a Run, view: Option<&'a View>) -> Option<&'a [N]> {
    view.map(|v| v.read(0, run.take::<N>(v.numel())))
}

/// Workspace for [`whole`].
pub(super) fn whole_bytes<N>(view: Option<&View>) -> usize {
    view.map_or(0, |v| bytes_of::<N>(v.numel()))
}

/// How many rows and how long when the trailing dims `tail` of `x` are normalised together; the shape of a statistic.
fn normalised(x: &View, tail: &[usize]) -> Result<(usize, usize, Vec<usize>), Refusal> {
    let lead = x.rank().checked_sub(tail.len()).filter(|_| !tail.is_empty());
    let Some(lead) = lead.filter(|&lead| x.dims()[lead..] == *tail) else {
        return Err(Refusal::invalid(format!("{tail:?} are not the last dims of {:?}", x.dims())));
    };
    let mut shape = x.dims().to_vec();
    shape[lead..].fill(1);
    Ok((x.dims()[..lead].iter().product(), tail.iter().product(), shape))
}

/// A statistic has the input's rank with normalised dims of 1; a rank without those dims is common and accepted.
fn is_statistic(name: &str, view: &View, shape: &[usize], tail_rank: usize) -> Result<(), Refusal> {
    let short = &shape[..shape.len() - tail_rank];
    ensure(view.dims() == shape || view.dims() == short, || {
        format!("{name} has shape {:?}, needed is {shape:?}", view.dims())
    })
}

fn rms_types(x: &View, gamma: &View, y: &View, rstd: &View) -> Result<(), Refusal> {
    is_flt("x", x)?;
    ensure(gamma.dtype() == x.dtype() || gamma.dtype() == DType::F32, || {
        format!("gamma is {:?} for x of {:?}", gamma.dtype(), x.dtype())
    })?;
    ensure(y.dtype() == x.dtype(), || format!("yOut is {:?} for x of {:?}", y.dtype(), x.dtype()))?;
    ensure(rstd.dtype() == DType::F32, || format!("rstdOut is {:?}, needed is F32", rstd.dtype()))
}

/// `y = x / sqrt(mean(x^2) + epsilon) * gamma` over the trailing dims that gamma covers.
pub(crate) fn aclnnRmsNorm(x: &Tensor, gamma: &Tensor, epsilon: f64, y_out: &Tensor, rstd_out: &Tensor) -> Checked {
    let (x, gamma, y, rstd) = (x.view(), gamma.view(), y_out.view(), rstd_out.view());
    rms_types(&x, &gamma, &y, &rstd)?;
    let (rows, len, shape) = normalised(&x, gamma.dims())?;
    shape_is("yOut", &y, x.dims())?;
    is_statistic("rstdOut", &rstd, &shape, gamma.rank())?;
    if x.is_empty() {
        return Ok(Op::nothing());
    }
    let plan = Rows::new(rows, len);
    let alias = x.overlaps(&y);
    let (x, y, rstd) = (x.collapsed(), y.collapsed(), rstd.collapsed());
    let eps = epsilon as f32;
    Ok(Op::new(whole_bytes::<f32>(Some(&gamma)) + plan.bytes::<f32>(2), move |run| {
        let f = rows::current();
        let gamma = whole::<f32>(run, Some(&gamma));
        plan.each::<f32, 2>(run, |row, [xs, ys]| {
            let xs = load(&x, alias, row * len, xs);
            store(&y, row * len, ys, |ys| rstd.set(row, f.rms_norm(xs, gamma, eps, ys)));
        });
    }))
}

/// `xOut = x1 + x2`, then RmsNorm of what was written there.
pub(crate) fn aclnnAddRmsNorm(
    x1: &Tensor,
    x2: &Tensor,
    gamma: &Tensor,
    epsilon: f64,
    y_out: &Tensor,
    rstd_out: &Tensor,
    x_out: &Tensor,
) -> Checked {
    let (x1, x2, gamma, y, rstd, x) = (x1.view(), x2.view(), gamma.view(), y_out.view(), rstd_out.view(), x_out.view());
    rms_types(&x1, &gamma, &y, &rstd)?;
    for (name, view) in [("x2", &x2), ("xOut", &x)] {
        ensure(view.dtype() == x1.dtype(), || format!("{name} is {:?} for x1 of {:?}", view.dtype(), x1.dtype()))?;
    }
    let (rows, len, shape) = normalised(&x1, gamma.dims())?;
    for (name, view) in [("x2", &x2), ("yOut", &y), ("xOut", &x)] {
        shape_is(name, view, x1.dims())?;
    }
    is_statistic("rstdOut", &rstd, &shape, gamma.rank())?;
    if x1.is_empty() {
        return Ok(Op::nothing());
    }
    let plan = Rows::new(rows, len);
    let alias = [&x, &y].iter().any(|out| x1.overlaps(out) || x2.overlaps(out)) || x.overlaps(&y);
    let (x1, x2, y, rstd, x) = (x1.collapsed(), x2.collapsed(), y.collapsed(), rstd.collapsed(), x.collapsed());
    let eps = epsilon as f32;
    Ok(Op::new(whole_bytes::<f32>(Some(&gamma)) + plan.bytes::<f32>(3), move |run| {
        let f = rows::current();
        let gamma = whole::<f32>(run, Some(&gamma));
        plan.each::<f32, 3>(run, |row, [a, b, ys]| {
            let start = row * len;
            // Sums go through memory so that the norm is of the rounded values, as two calls would have it.
            x1.read_copy(start, a);
            for (a, b) in a.iter_mut().zip(load(&x2, alias, start, b)) {
                *a += b;
            }
            x.write(start, a);
            x.read_copy(start, a);
            store(&y, start, ys, |ys| rstd.set(row, f.rms_norm(a, gamma, eps, ys)));
        });
    }))
}

/// `(x - mean) / sqrt(variance + eps) * weight + bias` over the trailing dims `normalized_shape`.
pub(crate) fn aclnnLayerNorm(
    input: &Tensor,
    normalized_shape: &[i64],
    weight_optional: Option<&Tensor>,
    bias_optional: Option<&Tensor>,
    eps: f64,
    out: &Tensor,
    mean_out_optional: Option<&Tensor>,
    rstd_out_optional: Option<&Tensor>,
) -> Checked {
    let (x, y) = (input.view(), out.view());
    is_flt("input", &x)?;
    is_flt("out", &y)?;
    let tail: Vec<usize> = normalized_shape.iter().map(|&d| usize::try_from(d).unwrap_or(usize::MAX)).collect();
    let (rows, len, shape) = normalised(&x, &tail)?;
    shape_is("out", &y, x.dims())?;
    let view = |t: Option<&Tensor>| t.map(Tensor::view);
    let (weight, bias) = (view(weight_optional), view(bias_optional));
    for (name, affine) in [("weight", &weight), ("bias", &bias)] {
        if let Some(v) = affine {
            is_flt(name, v)?;
            shape_is(name, v, &tail)?;
        }
    }
    let (mean, rstd) = (view(mean_out_optional), view(rstd_out_optional));
    for (name, statistic) in [("meanOut", &mean), ("rstdOut", &rstd)] {
        if let Some(v) = statistic {
            is_flt(name, v)?;
            is_statistic(name, v, &shape, tail.len())?;
        }
    }
    if x.is_empty() {
        return Ok(Op::nothing());
    }
    let plan = Rows::new(rows, len);
    let alias = x.overlaps(&y);
    let (x, y) = (x.collapsed(), y.collapsed());
    let eps = eps as f32;
    let bytes = whole_bytes::<f32>(weight.as_ref()) + whole_bytes::<f32>(bias.as_ref()) + plan.bytes::<f32>(2);
    Ok(Op::new(bytes, move |run| {
        let f = rows::current();
        let (weight, bias) = (whole::<f32>(run, weight.as_ref()), whole::<f32>(run, bias.as_ref()));
        plan.each::<f32, 2>(run, |row, [xs, ys]| {
            let xs = load(&x, alias, row * len, xs);
            store(&y, row * len, ys, |ys| {
                let (m, r) = f.layer_norm(xs, weight, bias, eps, ys);
                statistics(row, (m, r), &mean, &rstd);
            });
        });
    }))
}

/// `(x - mean) / sqrt(variance + eps) * gamma + beta` over groups of channels; gamma and beta are per channel.
pub(crate) fn aclnnGroupNorm(
    self_: &Tensor,
    gamma: Option<&Tensor>,
    beta: Option<&Tensor>,
    n: i64,
    c: i64,
    h_x_w: i64,
    group: i64,
    eps: f64,
    out: &Tensor,
    mean_out: &Tensor,
    rstd_out: &Tensor,
) -> Checked {
    let (x, y, mean, rstd) = (self_.view(), out.view(), mean_out.view(), rstd_out.view());
    is_flt("self", &x)?;
    ensure(x.rank() >= 2, || format!("self has {} dims, needed are 2 or more", x.rank()))?;
    ensure(y.dtype() == x.dtype(), || format!("out is {:?} for self of {:?}", y.dtype(), x.dtype()))?;
    shape_is("out", &y, x.dims())?;
    let given = [n, c, h_x_w].map(|d| usize::try_from(d).unwrap_or(usize::MAX));
    let plane: usize = x.dims()[2..].iter().product();
    ensure(given == [x.dim(0), x.dim(1), plane], || format!("N, C, HxW are {given:?} for self of {:?}", x.dims()))?;
    let [n, c, plane] = given;
    let group = usize::try_from(group).ok().filter(|&g| g > 0 && c.is_multiple_of(g));
    let group = group.ok_or_else(|| Refusal::invalid(format!("{c} channels do not divide in these groups")))?;
    ensure(eps > 0.0, || format!("eps is {eps}, needed is more than 0"))?;
    let view = |t: Option<&Tensor>| t.map(Tensor::view);
    let (gamma, beta) = (view(gamma), view(beta));
    for (name, affine) in [("gamma", &gamma), ("beta", &beta)] {
        if let Some(v) = affine {
            is_flt(name, v)?;
            shape_is(name, v, &[c])?;
        }
    }
    for (name, v) in [("meanOut", &mean), ("rstdOut", &rstd)] {
        is_flt(name, v)?;
        rank_is(name, v, 2)?;
        shape_is(name, v, &[n, group])?;
    }
    if x.is_empty() {
        return Ok(Op::nothing());
    }
    let per_group = c / group;
    let len = per_group * plane;
    let plan = Rows::new(n * group, len);
    let alias = x.overlaps(&y);
    let (x, y) = (x.collapsed(), y.collapsed());
    let eps = eps as f32;
    let bytes = whole_bytes::<f32>(gamma.as_ref()) + whole_bytes::<f32>(beta.as_ref()) + plan.bytes::<f32>(2);
    let (mean, rstd) = (Some(mean), Some(rstd));
    Ok(Op::new(bytes, move |run| {
        let f: &RowFns = rows::current();
        let (gamma, beta) = (whole::<f32>(run, gamma.as_ref()), whole::<f32>(run, beta.as_ref()));
        plan.each::<f32, 2>(run, |row, [xs, ys]| {
            let xs = load(&x, alias, row * len, xs);
            store(&y, row * len, ys, |ys| {
                statistics(row, f.layer_norm(xs, None, None, eps, ys), &mean, &rstd);
                if gamma.is_none() && beta.is_none() {
                    return;
                }
                for (i, channel) in ys.chunks_exact_mut(plane).enumerate() {
                    let at = row % group * per_group + i;
                    let (scale, shift) = (gamma.map_or(1.0, |g| g[at]), beta.map_or(0.0, |b| b[at]));
                    channel.iter_mut().for_each(|v| *v = *v * scale + shift);
                }
            });
        });
    }))
}

fn statistics(row: usize, (m, r): (f32, f32), mean: &Option<View>, rstd: &Option<View>) {
    if let Some(mean) = mean {
        mean.set(row, m);
    }
    if let Some(rstd) = rstd {
        rstd.set(row, r);
    }
}
