//! Operators of one tensor.

use crate::tensor::{Scalar, Tensor};

refused! {
    aclnnAbs(self_: &Tensor, out: &Tensor);
    aclnnCeil(self_: &Tensor, out: &Tensor);
    aclnnCos(input: &Tensor, out: &Tensor);
    aclnnElu(self_: &Tensor, alpha: &Scalar, scale: &Scalar, input_scale: &Scalar, out: &Tensor);
    aclnnErf(self_: &Tensor, out: &Tensor);
    aclnnExp(self_: &Tensor, out: &Tensor);
    aclnnExpm1(self_: &Tensor, out: &Tensor);
    aclnnFastGelu(self_: &Tensor, out: &Tensor);
    aclnnFloor(self_: &Tensor, out: &Tensor);
    aclnnGelu(self_: &Tensor, out: &Tensor);
    aclnnGeluV2(x: &Tensor, approximate: i64, y: &Tensor);
    aclnnHardsigmoid(self_: &Tensor, out: &Tensor);
    aclnnHardswish(self_: &Tensor, out: &Tensor);
    aclnnInplaceCos(self_ref: &Tensor);
    aclnnInplaceExp(self_ref: &Tensor);
    aclnnInplaceSin(self_ref: &Tensor);
    aclnnInplaceThreshold(self_ref: &Tensor, threshold: &Scalar, value: &Scalar);
    aclnnLeakyRelu(self_: &Tensor, negative_slope: &Scalar, out: &Tensor);
    aclnnLog(self_: &Tensor, out: &Tensor);
    aclnnNeg(self_: &Tensor, out: &Tensor);
    aclnnReciprocal(self_: &Tensor, out: &Tensor);
    aclnnRelu(self_: &Tensor, out: &Tensor);
    aclnnRound(self_: &Tensor, out: &Tensor);
    aclnnRsqrt(self_: &Tensor, out: &Tensor);
    aclnnSigmoid(self_: &Tensor, out: &Tensor);
    aclnnSign(self_: &Tensor, result: &Tensor);
    aclnnSilu(self_: &Tensor, out: &Tensor);
    aclnnSin(self_: &Tensor, out: &Tensor);
    aclnnSoftplus(self_: &Tensor, beta: &Scalar, threshold: &Scalar, out: &Tensor);
    aclnnSqrt(self_: &Tensor, out: &Tensor);
    aclnnTanh(self_: &Tensor, out: &Tensor);
    aclnnTrunc(self_: &Tensor, out: &Tensor);
}
