//! Rows picked and placed by index tensors.

use crate::tensor::Tensor;

refused! {
    aclnnEmbedding(weight: &Tensor, indices: &Tensor, out: &Tensor);
    aclnnGatherV2(self_: &Tensor, dim: i64, index: &Tensor, out: &Tensor);
    aclnnIndexSelect(self_: &Tensor, dim: i64, index: &Tensor, out: &Tensor);
    aclnnInplaceIndexCopy(self_ref: &Tensor, dim: i64, index: &Tensor, source: &Tensor);
    aclnnRepeatInterleaveIntWithDim(self_: &Tensor, repeats: i64, dim: i64, output_size: i64, out: &Tensor);
}
