//! Products with quantised weights.

use crate::tensor::Tensor;

refused! {
    aclnnWeightQuantBatchMatmulV2(x: &Tensor, weight: &Tensor, antiquant_scale: &Tensor, antiquant_offset_optional: Option<&Tensor>, quant_scale_optional: Option<&Tensor>, quant_offset_optional: Option<&Tensor>, bias_optional: Option<&Tensor>, antiquant_group_size: i32, y: &Tensor);
}
