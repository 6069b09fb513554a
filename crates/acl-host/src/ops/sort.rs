//! Order: sorting, the largest few, the largest one.

use crate::tensor::Tensor;

refused! {
    aclnnArgMax(self_: &Tensor, dim: i64, keepdim: bool, out: &Tensor);
    aclnnArgsort(self_: &Tensor, dim: i64, descending: bool, out: &Tensor);
    aclnnTopk(self_: &Tensor, k: i64, dim: i64, largest: bool, sorted: bool, values_out: &Tensor, indices_out: &Tensor);
}
