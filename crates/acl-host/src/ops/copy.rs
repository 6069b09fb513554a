//! Moving elements: copies, conversions, shapes, fills.

use super::check::*;
use super::transfer::{Transfer, fill_scalar, zero};
use crate::executor::{Checked, Op, Refusal, Run, bytes_of};
use crate::ffi::meta::TensorList;
use crate::tensor::{DType, Domain, Elem, Lane, MAX_RANK, Scalar, Tensor, View, promote, with_elem};

/// `to = from` as an operator.
fn copy(to: &View, from: &View) -> Checked {
    not_packed("self", from)?;
    not_packed("out", to)?;
    if to.is_empty() {
        return Ok(Op::nothing());
    }
    let transfer = Transfer::new(to, from);
    if !transfer.converts_across() {
        return Ok(Op::new(0, move |run| transfer.run(run)));
    }
    // Transposed as bytes first: conversion then reads along rows.
    let (to, from) = (*to, *from);
    let bytes = from.numel() * from.dtype().size();
    Ok(Op::new(bytes_of::<u8>(bytes), move |run| {
        let straight = View::packed(run.take::<u8>(bytes).as_mut_ptr(), from.dtype(), from.dims());
        Transfer::new(&straight, &from).run(run);
        Transfer::new(&to, &straight).run(run);
    }))
}

pub(crate) fn aclnnInplaceCopy(self_ref: &Tensor, src: &Tensor) -> Checked {
    copy(self_ref, &broadcast("src", src, self_ref.dims())?)
}

pub(crate) fn aclnnCast(self_: &Tensor, dtype: DType, out: &Tensor) -> Checked {
    dtype_is("out", out, dtype)?;
    shape_is("out", out, self_.dims())?;
    copy(out, self_)
}

pub(crate) fn aclnnPermute(self_: &Tensor, dims: &[i64], out: &Tensor) -> Checked {
    ensure(dims.len() == self_.rank(), || format!("dims has {} entries for {} dims", dims.len(), self_.rank()))?;
    let mut order = [0; MAX_RANK];
    let mut seen = [false; MAX_RANK];
    for (to, &dim) in order.iter_mut().zip(dims) {
        *to = axis(dim, self_)?;
        ensure(!std::mem::replace(&mut seen[*to], true), || format!("dims names {} twice", *to))?;
    }
    let view = self_.permuted(&order[..dims.len()]);
    shape_is("out", out, view.dims())?;
    dtype_is("out", out, self_.dtype())?;
    copy(out, &view)
}

pub(crate) fn aclnnExpand(self_: &Tensor, size: &[i64], out: &Tensor) -> Checked {
    ensure(size.len() >= self_.rank() && size.len() <= MAX_RANK, || format!("size has {} entries", size.len()))?;
    let lead = size.len() - self_.rank();
    let mut shape = [0; MAX_RANK];
    for (i, (to, &dim)) in shape.iter_mut().zip(size).enumerate() {
        *to = match dim {
            -1 if i >= lead => self_.dim(i - lead),
            _ => usize::try_from(dim).map_err(|_| Refusal::invalid(format!("size {dim}")))?,
        };
    }
    let view = broadcast("self", self_, &shape[..size.len()])?;
    shape_is("out", out, view.dims())?;
    dtype_is("out", out, self_.dtype())?;
    copy(out, &view)
}

pub(crate) fn aclnnSlice(self_: &Tensor, dim: i64, start: i64, end: i64, step: i64, out: &Tensor) -> Checked {
    ensure(self_.rank() > 0, || "self has no dims".into())?;
    let axis = axis(dim, self_)?;
    ensure(step >= 1, || format!("step is {step}"))?;
    let size = self_.dim(axis) as i64;
    let wrap = |i: i64| if i < 0 { (i + size).max(0) } else { i.min(size) };
    let (start, end) = (wrap(start), wrap(end));
    let len = (end - start).max(0).div_ceil_by(step);
    let view = self_.narrowed(axis, start as usize, len as usize, usize::try_from(step).unwrap_or(usize::MAX));
    shape_is("out", out, view.dims())?;
    convertible(self_.dtype(), out)?;
    copy(out, &view)
}

trait DivCeil {
    fn div_ceil_by(self, by: i64) -> i64;
}
impl DivCeil for i64 {
    fn div_ceil_by(self, by: i64) -> i64 {
        self / by + i64::from(self % by != 0)
    }
}

pub(crate) fn aclnnRepeat(self_: &Tensor, repeats: &[i64], out: &Tensor) -> Checked {
    ensure(repeats.len() >= self_.rank() && repeats.len() <= MAX_RANK, || {
        format!("repeats has {} entries for {} dims", repeats.len(), self_.rank())
    })?;
    not_packed("self", self_)?;
    dtype_is("out", out, self_.dtype())?;
    let mut view = self_.view();
    while view.rank() < repeats.len() {
        view = view.with_unit_dim(0);
    }
    let shape: Option<Vec<usize>> =
        view.dims().iter().zip(repeats).map(|(&dim, &r)| usize::try_from(r).ok()?.checked_mul(dim)).collect();
    shape_is("out", out, &shape.ok_or_else(|| Refusal::invalid(format!("repeats is {repeats:?}")))?)?;
    if out.is_empty() {
        return Ok(Op::nothing());
    }
    let transfer = Transfer::tiled(out, &view);
    Ok(Op::new(0, move |run| transfer.run(run)))
}

pub(crate) fn aclnnCat(tensors: &TensorList, dim: i64, out: &Tensor) -> Checked {
    let parts = tensors.tensors("tensors")?;
    ensure(!parts.is_empty() && out.rank() > 0, || "there is nothing to concatenate".into())?;
    not_packed("out", out)?;
    let axis = axis(dim, out)?;
    let mut result = parts[0].dtype();
    let mut at = 0;
    let mut transfers = Vec::with_capacity(parts.len());
    for (i, part) in parts.iter().enumerate() {
        not_packed("a tensor", part)?;
        result = promote(result, part.dtype())
            .ok_or_else(|| Refusal::invalid(format!("types {result:?} and {:?} do not mix", part.dtype())))?;
        let fits = part.rank() == out.rank() && (0..out.rank()).all(|d| d == axis || part.dim(d) == out.dim(d));
        ensure(fits && at + part.dim(axis) <= out.dim(axis), || {
            format!("tensor {i} has shape {:?}, out has {:?}", part.dims(), out.dims())
        })?;
        transfers.push(Transfer::new(&out.narrowed(axis, at, part.dim(axis), 1), part));
        at += part.dim(axis);
    }
    ensure(at == out.dim(axis), || format!("out has {} elements in dim {axis}, the tensors {at}", out.dim(axis)))?;
    convertible(result, out)?;
    if out.is_empty() {
        return Ok(Op::nothing());
    }
    Ok(Op::new(0, move |run| transfers.iter().for_each(|t| t.run(run))))
}

pub(crate) fn aclnnConstantPadNd(self_: &Tensor, pad: &[i64], value: &Scalar, out: &Tensor) -> Checked {
    let rank = self_.rank();
    ensure(pad.len().is_multiple_of(2) && pad.len() <= 2 * rank, || format!("pad has {} entries", pad.len()))?;
    not_packed("self", self_)?;
    dtype_is("out", out, self_.dtype())?;
    rank_is("out", out, rank)?;
    let (mut from, mut to) = (self_.view(), out.view());
    let mut padded = false;
    for (i, pair) in pad.chunks_exact(2).enumerate() {
        let d = rank - 1 - i;
        let size = self_.dim(d) as i64;
        let (before, after) = (pair[0], pair[1]);
        let whole = size.checked_add(before).and_then(|s| s.checked_add(after)).filter(|s| *s >= 0);
        ensure(whole == Some(out.dim(d) as i64), || format!("out has {} elements in dim {d}", out.dim(d)))?;
        let cropped = ((-before).max(0), (-after).max(0));
        let kept = (size - cropped.0 - cropped.1).max(0) as usize;
        if kept > 0 {
            from = from.narrowed(d, cropped.0 as usize, kept, 1);
            to = to.narrowed(d, before.max(0) as usize, kept, 1);
        } else {
            (from, to) = (from.narrowed(d, 0, 0, 1), to.narrowed(d, 0, 0, 1));
        }
        padded |= before > 0 || after > 0;
    }
    ensure((0..rank - pad.len() / 2).all(|d| self_.dim(d) == out.dim(d)), || {
        format!("out has shape {:?}, self {:?}", out.dims(), self_.dims())
    })?;
    if out.is_empty() {
        return Ok(Op::nothing());
    }
    let (whole, value) = (out.view(), *value);
    let transfer = Transfer::new(&to, &from);
    Ok(Op::new(0, move |run| {
        if padded {
            fill_scalar(run, &whole, &value);
        }
        transfer.run(run);
    }))
}

pub(crate) fn aclnnReflectionPad1d(self_: &Tensor, padding: &[i64], out: &Tensor) -> Checked {
    ensure(padding.len() == 2, || format!("padding has {} entries", padding.len()))?;
    ensure(matches!(self_.rank(), 2 | 3), || format!("self has {} dims, needed are 2 or 3", self_.rank()))?;
    not_packed("self", self_)?;
    dtype_is("out", out, self_.dtype())?;
    let last = self_.rank() - 1;
    let size = self_.dim(last);
    let side = |p: i64| usize::try_from(p).ok().filter(|p| *p < size);
    let (Some(left), Some(right)) = (side(padding[0]), side(padding[1])) else {
        return Err(Refusal::invalid(format!("padding {padding:?} of {size} elements")));
    };
    let mut shape = self_.dims().to_vec();
    shape[last] += left + right;
    shape_is("out", out, &shape)?;
    if out.is_empty() {
        return Ok(Op::nothing());
    }
    let mirrored = |start, len| self_.narrowed(last, start, len, 1).reversed(last);
    let parts = [
        Transfer::new(&out.narrowed(last, left, size, 1), self_),
        Transfer::new(&out.narrowed(last, 0, left, 1), &mirrored(1, left)),
        Transfer::new(&out.narrowed(last, left + size, right, 1), &mirrored(size - 1 - right, right)),
    ];
    Ok(Op::new(0, move |run| parts.iter().for_each(|t| t.run(run))))
}

pub(crate) fn aclnnTril(self_: &Tensor, diagonal: i64, out: &Tensor) -> Checked {
    triangle(self_, diagonal, out, true)
}

pub(crate) fn aclnnTriu(self_: &Tensor, diagonal: i64, out: &Tensor) -> Checked {
    triangle(self_, diagonal, out, false)
}

pub(crate) fn aclnnInplaceTriu(self_ref: &Tensor, diagonal: i64) -> Checked {
    triangle(self_ref, diagonal, self_ref, false)
}

fn triangle(x: &Tensor, diagonal: i64, out: &Tensor, lower: bool) -> Checked {
    ensure(x.rank() >= 2, || format!("self has {} dims, needed are 2", x.rank()))?;
    not_packed("self", x)?;
    shape_is("out", out, x.dims())?;
    dtype_is("out", out, x.dtype())?;
    if out.is_empty() {
        return Ok(Op::nothing());
    }
    let transfer = Transfer::new(out, x);
    let out = out.view();
    Ok(Op::new(0, move |run| {
        transfer.run(run);
        with_elem!(out.dtype(), E => clear::<E>(run, &out, diagonal, lower), i4 => ());
    }))
}

/// Zeros above (or below) a diagonal of the last two dims.
fn clear<E: Elem>(run: &Run, out: &View, diagonal: i64, lower: bool) {
    let (height, width) = (out.dim(out.rank() - 2), out.row_len());
    let zeros = E::from_i64(0);
    run.split_rows(out.rows(), width, |rows| {
        for row in rows {
            let edge = (row % height) as i64;
            // Saturating: any diagonal is legal, however far outside.
            let first_kept = edge.saturating_add(diagonal).clamp(0, width as i64) as usize;
            let after_kept = edge.saturating_add(diagonal).saturating_add(1).clamp(0, width as i64) as usize;
            let (start, len) = if lower { (after_kept, width - after_kept) } else { (0, first_kept) };
            match out.slice_mut::<E>(row * width + start, len) {
                Some(gone) => gone.fill(zeros),
                None => (0..len).for_each(|i| out.set(row * width + start + i, 0i64)),
            }
        }
    });
}

pub(crate) fn aclnnArange(start: &Scalar, end: &Scalar, step: &Scalar, out: &Tensor) -> Checked {
    not_packed("out", out)?;
    let by = step.f64();
    ensure(by != 0.0 && by.is_finite(), || format!("step is {by}"))?;
    let count = ((end.f64() - start.f64()) / by).ceil().max(0.0);
    ensure(count == out.numel() as f64, || format!("out has {} elements, the range {count}", out.numel()))?;
    if out.is_empty() {
        return Ok(Op::nothing());
    }
    let (start, step, out) = (*start, *step, out.view());
    let whole = out.dtype().domain() == Domain::I64 && !start.dtype().is_float() && !step.dtype().is_float();
    Ok(Op::new(0, move |run| {
        if whole {
            count_up(run, &out, |i| start.i64().wrapping_add((i as i64).wrapping_mul(step.i64())));
        } else {
            count_up(run, &out, |i| start.f64() + i as f64 * step.f64());
        }
    }))
}

fn count_up<N: Lane>(run: &Run, out: &View, f: impl Fn(usize) -> N + Sync) {
    run.split_elements(out.numel(), |range| {
        let mut block = [N::default(); super::elementwise::BLOCK];
        for start in range.clone().step_by(block.len()) {
            let len = block.len().min(range.end - start);
            block[..len].iter_mut().enumerate().for_each(|(i, b)| *b = f(start + i));
            out.write(start, &block[..len]);
        }
    });
}

pub(crate) fn aclnnInplaceFillScalar(self_ref: &Tensor, value: &Scalar) -> Checked {
    not_packed("selfRef", self_ref)?;
    if self_ref.is_empty() {
        return Ok(Op::nothing());
    }
    let (to, value) = (self_ref.view(), *value);
    Ok(Op::new(0, move |run| fill_scalar(run, &to, &value)))
}

pub(crate) fn aclnnInplaceZero(self_ref: &Tensor) -> Checked {
    not_packed("selfRef", self_ref)?;
    if self_ref.is_empty() {
        return Ok(Op::nothing());
    }
    let to = self_ref.view();
    Ok(Op::new(0, move |run| zero(run, &to)))
}
