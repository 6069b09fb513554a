//! Losses.

use super::check::{broadcast, is_flt, rank_is, shape_is};
use super::elementwise::{load, store};
use super::norm::Rows;
use crate::executor::{Checked, Op};
use crate::kernels::rows;
use crate::tensor::Tensor;

/// Per row: `loss = -sum(labels * log(softmax(features)))` and `backprop = softmax(features) - labels`.
pub(crate) fn aclnnSoftmaxCrossEntropyWithLogits(
    features: &Tensor,
    labels: &Tensor,
    loss: &Tensor,
    backprop: &Tensor,
) -> Checked {
    let (x, labels, loss, grad) = (features.view(), labels.view(), loss.view(), backprop.view());
    for (name, view) in [("features", &x), ("labels", &labels), ("loss", &loss), ("backprop", &grad)] {
        is_flt(name, view)?;
    }
    rank_is("features", &x, 2)?;
    let labels = broadcast("labels", &labels, x.dims())?;
    shape_is("loss", &loss, &x.dims()[..1])?;
    shape_is("backprop", &grad, x.dims())?;
    if x.is_empty() {
        return Ok(Op::nothing());
    }
    let len = x.dim(1);
    let plan = Rows::with_cost(x.rows(), len, len * 4);
    let alias = x.overlaps(&grad) || labels.overlaps(&grad);
    Ok(Op::new(plan.bytes::<f32>(3), move |run| {
        let f = rows::current();
        plan.each::<f32, 3>(run, |row, [xs, ls, gs]| {
            let start = row * len;
            let xs = load(&x, alias, start, xs);
            let ls = load(&labels, alias, start, ls);
            store(&grad, start, gs, |gs| {
                let max = f.max(xs);
                gs.copy_from_slice(xs);
                let sum = f.exp_sum(gs, max);
                let log_sum = f64::from(sum).ln() + f64::from(max);
                let terms = xs.iter().zip(ls);
                // A label of 0 takes nothing even where the logit is negative infinity.
                let total: f64 =
                    terms.filter(|(_, l)| **l != 0.0).map(|(x, l)| f64::from(*l) * (log_sum - f64::from(*x))).sum();
                loss.set(row, total as f32);
                for (g, l) in gs.iter_mut().zip(ls) {
                    *g = *g / sum - l;
                }
            });
        });
    }))
}
