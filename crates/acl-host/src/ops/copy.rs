//! Moving elements: copies, conversions, shapes, fills.

use crate::ffi::meta::TensorList;
use crate::tensor::{DType, Scalar, Tensor};

refused! {
    aclnnArange(start: &Scalar, end: &Scalar, step: &Scalar, out: &Tensor);
    aclnnCast(self_: &Tensor, dtype: DType, out: &Tensor);
    aclnnCat(tensors: &TensorList, dim: i64, out: &Tensor);
    aclnnConstantPadNd(self_: &Tensor, pad: &[i64], value: &Scalar, out: &Tensor);
    aclnnExpand(self_: &Tensor, size: &[i64], out: &Tensor);
    aclnnInplaceCopy(self_ref: &Tensor, src: &Tensor);
    aclnnInplaceFillScalar(self_ref: &Tensor, value: &Scalar);
    aclnnInplaceTriu(self_ref: &Tensor, diagonal: i64);
    aclnnInplaceZero(self_ref: &Tensor);
    aclnnPermute(self_: &Tensor, dims: &[i64], out: &Tensor);
    aclnnReflectionPad1d(self_: &Tensor, padding: &[i64], out: &Tensor);
    aclnnRepeat(self_: &Tensor, repeats: &[i64], out: &Tensor);
    aclnnSlice(self_: &Tensor, dim: i64, start: i64, end: i64, step: i64, out: &Tensor);
    aclnnTril(self_: &Tensor, diagonal: i64, out: &Tensor);
    aclnnTriu(self_: &Tensor, diagonal: i64, out: &Tensor);
}
