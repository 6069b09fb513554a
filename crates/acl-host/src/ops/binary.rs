//! Arithmetic between two tensors.

use crate::tensor::{Scalar, Tensor};

refused! {
    aclnnAdd(self_: &Tensor, other: &Tensor, alpha: &Scalar, out: &Tensor);
    aclnnDiv(self_: &Tensor, other: &Tensor, out: &Tensor);
    aclnnInplaceAdd(self_ref: &Tensor, other: &Tensor, alpha: &Scalar);
    aclnnInplaceDiv(self_ref: &Tensor, other: &Tensor);
    aclnnInplaceMul(self_ref: &Tensor, other: &Tensor);
    aclnnInplacePowTensorTensor(self_: &Tensor, exponent: &Tensor);
    aclnnInplaceSub(self_ref: &Tensor, other: &Tensor, alpha: &Scalar);
    aclnnMaximum(self_: &Tensor, other: &Tensor, out: &Tensor);
    aclnnMul(self_: &Tensor, other: &Tensor, out: &Tensor);
    aclnnSub(self_: &Tensor, other: &Tensor, alpha: &Scalar, out: &Tensor);
}
