//! Softmax.

use crate::tensor::Tensor;

refused! {
    aclnnSoftmax(self_: &Tensor, dim: i64, out: &Tensor);
}
