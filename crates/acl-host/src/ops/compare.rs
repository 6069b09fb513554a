//! Comparison and selection.

use crate::tensor::{Scalar, Tensor};

refused! {
    aclnnEqTensor(self_: &Tensor, other: &Tensor, out: &Tensor);
    aclnnGtScalar(self_: &Tensor, other: &Scalar, out: &Tensor);
    aclnnInplaceEqTensor(self_ref: &Tensor, other: &Tensor);
    aclnnSWhere(condition: &Tensor, self_: &Tensor, other: &Tensor, out: &Tensor);
}
