//! Pooling.

use crate::tensor::Tensor;

refused! {
    aclnnAvgPool2d(self_: &Tensor, kernel_size: &[i64], strides: &[i64], paddings: &[i64], ceil_mode: bool, count_include_pad: bool, divisor_override: i64, cube_math_type: i8, out: &Tensor);
    aclnnMaxPool(self_: &Tensor, kernel_shape: &[i64], strides: &[i64], auto_pad: i64, pads: &[i64], dilations: &[i64], ceil_mode: i64, out: &Tensor);
}
