//! Rows picked and placed by index tensors.
//!
//! Indices are only known when the operator runs. One outside the dim touches nothing, the other rows are still moved, and the
//! stream tells at its next synchronisation. The device goes on.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::check::*;
use super::transfer::{Transfer, move_run};
use crate::executor::{Checked, Op, Refusal, Run};
use crate::runtime::LaunchError;
use crate::tensor::{Tensor, View};

pub(crate) fn aclnnEmbedding(weight: &Tensor, indices: &Tensor, out: &Tensor) -> Checked {
    rank_is("weight", weight, 2)?;
    gather(weight, 0, indices, out)
}

pub(crate) fn aclnnGatherV2(self_: &Tensor, dim: i64, index: &Tensor, out: &Tensor) -> Checked {
    gather(self_, axis(dim, self_)?, index, out)
}

pub(crate) fn aclnnIndexSelect(self_: &Tensor, dim: i64, index: &Tensor, out: &Tensor) -> Checked {
    ensure(index.rank() <= 1, || format!("index has {} dims", index.rank()))?;
    let axis = axis(dim, self_)?;
    // The output keeps the dim even for an index without dims.
    let index = if index.rank() == 0 { index.with_unit_dim(0) } else { index.view() };
    gather_view(self_, axis, &index, out)
}

fn gather(x: &Tensor, axis: usize, index: &Tensor, out: &Tensor) -> Checked {
    gather_view(x, axis, &index.view(), out)
}

fn gather_view(x: &Tensor, axis: usize, index: &View, out: &Tensor) -> Checked {
    is_index("index", index)?;
    not_packed("self", x)?;
    dtype_is("out", out, x.dtype())?;
    ensure(x.rank() > 0, || "self has no dims".into())?;
    let shape = [&x.dims()[..axis], index.dims(), &x.dims()[axis + 1..]].concat();
    shape_is("out", out, &shape)?;
    if out.is_empty() {
        return Ok(Op::nothing());
    }
    let (x, index, out) = (x.view(), *index, out.view());
    let split = axis + index.rank();
    let rows = Rows {
        outer: [out.sub_dims(0..axis), x.sub_dims(0..axis)],
        many: out.sub_dims(axis..split),
        inner: [out.sub_dims(split..out.rank()), x.sub_dims(axis + 1..x.rank())],
        stride: x.strides()[axis],
        size: x.dim(axis),
        index,
    };
    Ok(Op::new(0, move |run| rows.run(run, true, false)))
}

pub(crate) fn aclnnInplaceIndexCopy(self_ref: &Tensor, dim: i64, index: &Tensor, source: &Tensor) -> Checked {
    is_index("index", index)?;
    not_packed("selfRef", self_ref)?;
    dtype_is("source", source, self_ref.dtype())?;
    ensure(self_ref.rank() > 0, || "selfRef has no dims".into())?;
    ensure(index.rank() <= 1, || format!("index has {} dims, needed is 1", index.rank()))?;
    let axis = axis(dim, self_ref)?;
    let mut shape = self_ref.dims().to_vec();
    shape[axis] = index.numel();
    shape_is("source", source, &shape)?;
    if source.is_empty() {
        return Ok(Op::nothing());
    }
    let (to, from) = (self_ref.view(), source.view());
    let index = if index.rank() == 0 { index.with_unit_dim(0) } else { index.view() };
    let rows = Rows {
        outer: [to.sub_dims(0..axis), from.sub_dims(0..axis)],
        many: from.sub_dims(axis..axis + 1),
        inner: [to.sub_dims(axis + 1..to.rank()), from.sub_dims(axis + 1..from.rank())],
        stride: to.strides()[axis],
        size: to.dim(axis),
        index,
    };
    Ok(Op::new(0, move |run| rows.run(run, false, true)))
}

/// Rows moved between a tensor in index order and one in the order of the index's values.
#[derive(Clone, Copy)]
struct Rows {
    /// Dims before the indexed one: of the destination, of the source.
    outer: [View; 2],
    /// Dims of the index in the tensor that is in index order.
    many: View,
    /// Dims behind: of the destination, of the source.
    inner: [View; 2],
    /// Stride and length of the indexed dim of the other tensor.
    stride: isize,
    size: usize,
    index: View,
}

impl Rows {
    /// `gather`: the index says where to read, else where to write. `ordered`: rows of one index list are moved by one thread,
    /// because two of them may be the same destination.
    fn run(&self, run: &Run, gather: bool, ordered: bool) -> Result<(), LaunchError> {
        // Place of the first index outside.
        let outside = AtomicUsize::new(usize::MAX);
        let (outer, count) = (self.outer[0].numel(), self.index.numel());
        let row = self.inner[0].numel();
        let flat = [self.inner[0].collapsed(), self.inner[1].collapsed()];
        let packed = flat[0].is_contiguous() && flat[1].is_contiguous();
        let one = |o: usize, i: usize| {
            let at = self.index.get::<i64>(i);
            let Some(at) = usize::try_from(at).ok().filter(|at| *at < self.size) else {
                outside.fetch_min(i, Ordering::Relaxed);
                return;
            };
            let (mut to, mut from) = (self.outer[0].offset_of(o), self.outer[1].offset_of(o));
            let (picked, counted) = (at as isize * self.stride, self.many.offset_of(i));
            to += if gather { counted } else { picked };
            from += if gather { picked } else { counted };
            if packed {
                move_run(&flat[0], to, &flat[1], from, row);
            } else {
                // Collapsed views may differ in rank; a transfer wants one shape.
                Transfer::new(&self.inner[0].offset_by(to), &self.inner[1].offset_by(from)).run_here();
            }
        };
        if ordered {
            run.split_rows(outer, count * row, |outers| outers.for_each(|o| (0..count).for_each(|i| one(o, i))));
        } else {
            run.split_rows(outer * count, row, |items| items.for_each(|item| one(item / count, item % count)));
        }
        match outside.into_inner() {
            usize::MAX => Ok(()),
            i => {
                let index = self.index.get::<i64>(i);
                let text = format!("index {index} at place {i} is outside a dim of {}", self.size);
                Err(LaunchError::Argument(text))
            }
        }
    }
}

pub(crate) fn aclnnRepeatInterleaveIntWithDim(
    self_: &Tensor,
    repeats: i64,
    dim: i64,
    output_size: i64,
    out: &Tensor,
) -> Checked {
    ensure(self_.rank() > 0, || "self has no dims".into())?;
    not_packed("self", self_)?;
    dtype_is("out", out, self_.dtype())?;
    let axis = axis(dim, self_)?;
    let times = usize::try_from(repeats).map_err(|_| Refusal::invalid(format!("repeats is {repeats}")))?;
    let mut shape = self_.dims().to_vec();
    shape[axis] = shape[axis].saturating_mul(times);
    ensure(i64::try_from(shape[axis]) == Ok(output_size), || {
        format!("outputSize is {output_size}, needed is {}", shape[axis])
    })?;
    shape_is("out", out, &shape)?;
    if out.is_empty() {
        return Ok(Op::nothing());
    }
    let (size, from, out) = (self_.dim(axis), self_.view(), out.view());
    Ok(Op::new(0, move |run| {
        for time in 0..times {
            // Every `times`-th element from `time` on; the last one of the range is the last of the dim.
            Transfer::new(&out.narrowed(axis, time, size, times), &from).run(run);
        }
    }))
}
