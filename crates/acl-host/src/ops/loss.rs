//! Losses.

use crate::tensor::Tensor;

refused! {
    aclnnSoftmaxCrossEntropyWithLogits(features: &Tensor, labels: &Tensor, loss: &Tensor, backprop: &Tensor);
}
