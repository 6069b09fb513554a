//! Convolution and its unfolding.

use crate::tensor::Tensor;

refused! {
    aclnnConvolution(input: &Tensor, weight: &Tensor, bias: Option<&Tensor>, stride: &[i64], padding: &[i64], dilation: &[i64], transposed: bool, output_padding: &[i64], groups: i64, output: &Tensor, cube_math_type: i8);
    aclnnIm2col(self_: &Tensor, kernel_size: &[i64], dilation: &[i64], padding: &[i64], stride: &[i64], out: &Tensor);
}
