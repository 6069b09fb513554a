//! Arithmetic between a tensor and a scalar.

use crate::tensor::{Scalar, Tensor};

refused! {
    aclnnAdds(self_: &Tensor, other: &Scalar, alpha: &Scalar, out: &Tensor);
    aclnnClamp(self_: &Tensor, clip_value_min: &Scalar, clip_value_max: &Scalar, out: &Tensor);
    aclnnClampMin(self_: &Tensor, clip_value_min: &Scalar, out: &Tensor);
    aclnnDivs(self_: &Tensor, other: &Scalar, out: &Tensor);
    aclnnInplaceAdds(self_ref: &Tensor, other: &Scalar, alpha: &Scalar);
    aclnnInplaceClampMax(self_ref: &Tensor, clip_value_max: &Scalar);
    aclnnInplaceDivs(self_ref: &Tensor, other: &Scalar);
    aclnnInplaceMuls(self_ref: &Tensor, other: &Scalar);
    aclnnInplaceSubs(self_ref: &Tensor, other: &Scalar, alpha: &Scalar);
    aclnnMuls(self_: &Tensor, other: &Scalar, out: &Tensor);
    aclnnPowScalarTensor(self_: &Scalar, exponent: &Tensor, out: &Tensor);
    aclnnPowTensorScalar(self_: &Tensor, exponent: &Scalar, out: &Tensor);
    aclnnSubs(self_: &Tensor, other: &Scalar, alpha: &Scalar, out: &Tensor);
}
