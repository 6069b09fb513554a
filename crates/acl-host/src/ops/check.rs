//! What operators check in phase one, worded once.

use crate::executor::Refusal;
use crate::tensor::{self, DType, Tensor, View};

/// 161002 unless `ok`.
pub(crate) fn ensure(ok: bool, message: impl FnOnce() -> String) -> Result<(), Refusal> {
    if ok { Ok(()) } else { Err(Refusal::invalid(message())) }
}

pub(crate) fn shape_is(name: &str, view: &View, dims: &[usize]) -> Result<(), Refusal> {
    ensure(view.dims() == dims, || format!("{name} has shape {:?}, needed is {dims:?}", view.dims()))
}

pub(crate) fn rank_is(name: &str, view: &View, rank: usize) -> Result<(), Refusal> {
    ensure(view.rank() == rank, || format!("{name} has {} dims, needed are {rank}", view.rank()))
}

pub(crate) fn dtype_is(name: &str, view: &View, dtype: DType) -> Result<(), Refusal> {
    ensure(view.dtype() == dtype, || format!("{name} is {:?}, needed is {dtype:?}", view.dtype()))
}

/// F32, F16, BF16.
pub(crate) fn is_flt(name: &str, view: &View) -> Result<(), Refusal> {
    ensure(view.dtype().is_flt(), || format!("{name} is {:?}, needed is F32, F16 or BF16", view.dtype()))
}

/// I32 or I64.
pub(crate) fn is_index(name: &str, view: &View) -> Result<(), Refusal> {
    ensure(matches!(view.dtype(), DType::I32 | DType::I64), || {
        format!("{name} is {:?}, needed is I32 or I64", view.dtype())
    })
}

/// Everything but packed types, which only matrix products take.
pub(crate) fn not_packed(name: &str, view: &View) -> Result<(), Refusal> {
    ensure(view.dtype() != DType::I4, || format!("{name} is I4"))
}

pub(crate) fn contiguous(name: &str, view: &View) -> Result<(), Refusal> {
    ensure(view.is_contiguous(), || format!("{name} must be contiguous"))
}

/// A dim argument, counted from the end when negative.
pub(crate) fn axis(dim: i64, view: &View) -> Result<usize, Refusal> {
    tensor::axis(dim, view.rank()).ok_or_else(|| Refusal::invalid(format!("dim {dim} of {} dims", view.rank())))
}

/// `view` broadcast to `dims`.
pub(crate) fn broadcast(name: &str, view: &View, dims: &[usize]) -> Result<View, Refusal> {
    view.broadcast_to(dims)
        .ok_or_else(|| Refusal::invalid(format!("{name} of shape {:?} does not broadcast to {dims:?}", view.dims())))
}

/// The type two tensors compute in.
pub(crate) fn promoted(a: &Tensor, b: &Tensor) -> Result<DType, Refusal> {
    tensor::promote(a.dtype(), b.dtype())
        .ok_or_else(|| Refusal::invalid(format!("types {:?} and {:?} do not mix", a.dtype(), b.dtype())))
}

/// A result computed in `from` fits the output's type.
pub(crate) fn convertible(from: DType, out: &View) -> Result<(), Refusal> {
    ensure(tensor::convertible(from, out.dtype()), || {
        format!("a result of type {from:?} does not go into {:?}", out.dtype())
    })
}
