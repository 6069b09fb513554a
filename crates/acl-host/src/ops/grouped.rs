//! Many products in one call.

use crate::ffi::meta::TensorList;
use crate::tensor::Tensor;

refused! {
    aclnnGroupedMatmulV2(x: &TensorList, weight: &TensorList, bias: Option<&TensorList>, scale: Option<&TensorList>, offset: Option<&TensorList>, antiquant_scale: Option<&TensorList>, antiquant_offset: Option<&TensorList>, group_list: Option<&[i64]>, split_item: i64, group_type: i64, y: &TensorList);
    aclnnGroupedMatmulV3(x: &TensorList, weight: &TensorList, bias: Option<&TensorList>, scale: Option<&TensorList>, offset: Option<&TensorList>, antiquant_scale: Option<&TensorList>, antiquant_offset: Option<&TensorList>, group_list: Option<&Tensor>, split_item: i64, group_type: i64, y: &TensorList);
}
