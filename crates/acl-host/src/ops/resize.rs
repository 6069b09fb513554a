//! Image resizing.

use crate::tensor::Tensor;

refused! {
    aclnnUpsampleBilinear2d(self_: &Tensor, output_size: &[i64], align_corners: bool, scales_h: f64, scales_w: f64, out: &Tensor);
    aclnnUpsampleNearest2d(self_: &Tensor, output_size: &[i64], out: &Tensor);
}
