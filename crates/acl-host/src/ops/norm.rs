//! Normalisation.

use crate::tensor::Tensor;

refused! {
    aclnnAddRmsNorm(x1: &Tensor, x2: &Tensor, gamma: &Tensor, epsilon: f64, y_out: &Tensor, rstd_out: &Tensor, x_out: &Tensor);
    aclnnGroupNorm(self_: &Tensor, gamma: Option<&Tensor>, beta: Option<&Tensor>, n: i64, c: i64, h_x_w: i64, group: i64, eps: f64, out: &Tensor, mean_out: &Tensor, rstd_out: &Tensor);
    aclnnLayerNorm(input: &Tensor, normalized_shape: &[i64], weight_optional: Option<&Tensor>, bias_optional: Option<&Tensor>, eps: f64, out: &Tensor, mean_out_optional: Option<&Tensor>, rstd_out_optional: Option<&Tensor>);
    aclnnRmsNorm(x: &Tensor, gamma: &Tensor, epsilon: f64, y_out: &Tensor, rstd_out: &Tensor);
}
