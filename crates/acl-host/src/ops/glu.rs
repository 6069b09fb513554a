//! Gated activations.

use crate::tensor::Tensor;

refused! {
    aclnnGeGluV3(self_: &Tensor, dim: i64, approximate: i64, activate_left: bool, out: &Tensor, out_gelu: &Tensor);
    aclnnSwiGlu(x: &Tensor, dim: i64, out: &Tensor);
}
