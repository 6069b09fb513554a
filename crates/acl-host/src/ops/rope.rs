//! Rotary position embedding.

use crate::tensor::Tensor;

refused! {
    aclnnRotaryPositionEmbedding(x: &Tensor, cos: &Tensor, sin: &Tensor, mode: i64, out: &Tensor);
}
