//! Softmax along one dim.

use super::check::{axis, ensure, shape_is};
use super::elementwise::{load, store};
use super::norm::Rows;
use crate::executor::{Checked, Op};
use crate::kernels::rows;
use crate::tensor::{DType, Tensor, View};

/// `exp(x - max) / sum`. A line of negative infinities becomes NaN, as the formula has it.
pub(crate) fn aclnnSoftmax(self_: &Tensor, dim: i64, out: &Tensor) -> Checked {
    let (x, y) = (self_.view(), out.view());
    for (name, view) in [("self", &x), ("out", &y)] {
        ensure(view.dtype().is_float(), || format!("{name} is {:?}, needed is F32, F16, BF16 or F64", view.dtype()))?;
    }
    shape_is("out", &y, x.dims())?;
    let dim = axis(dim, &x)?;
    if x.is_empty() {
        return Ok(Op::nothing());
    }
    // A scalar is a line of one.
    let (x, y) = if x.rank() == 0 { (x.with_unit_dim(0), y.with_unit_dim(0)) } else { (x, y) };
    let (x, y) = (x.axis_last(dim), y.axis_last(dim));
    Ok(if x.dtype() == DType::F64 || y.dtype() == DType::F64 { double(x, y) } else { single(x, y) })
}

fn single(x: View, y: View) -> Op {
    let (len, plan) = (x.row_len(), Rows::with_cost(x.rows(), x.row_len(), x.row_len() * 4));
    let alias = x.overlaps(&y);
    Op::new(plan.bytes::<f32>(2), move |run| {
        let f = rows::current();
        plan.each::<f32, 2>(run, |row, [xs, ys]| {
            let xs = load(&x, alias, row * len, xs);
            store(&y, row * len, ys, |ys| f.softmax(xs, 1.0, None, 0.0, ys));
        });
    })
}

fn double(x: View, y: View) -> Op {
    let (len, plan) = (x.row_len(), Rows::with_cost(x.rows(), x.row_len(), x.row_len() * 8));
    Op::new(plan.bytes::<f64>(1), move |run| {
        plan.each::<f64, 1>(run, |row, [xs]| {
            x.read_copy(row * len, xs);
            let max = xs.iter().fold(f64::NEG_INFINITY, |m, &v| m.max(v));
            xs.iter_mut().for_each(|v| *v = (*v - max).exp());
            let sum: f64 = xs.iter().sum();
            xs.iter_mut().for_each(|v| *v /= sum);
            y.write(row * len, xs);
        });
    })
}
