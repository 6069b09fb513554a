//! Sums, means, norms and prefix sums along dims.

use crate::tensor::{DType, Scalar, Tensor};

refused! {
    aclnnCumsum(self_: &Tensor, dim: i64, dtype: DType, out: &Tensor);
    aclnnMean(self_: &Tensor, dim: &[i64], keep_dim: bool, dtype: DType, out: &Tensor);
    aclnnNorm(self_: &Tensor, p_scalar: &Scalar, dim: &[i64], keepdim: bool, out: &Tensor);
    aclnnReduceSum(self_: &Tensor, dims: &[i64], keep_dims: bool, dtype: DType, out: &Tensor);
}
