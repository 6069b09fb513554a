//! Fused attention.

use crate::ffi::meta::TensorList;
use crate::tensor::Tensor;

refused! {
    aclnnFusedInferAttentionScoreV2(query: &Tensor, key: &TensorList, value: &TensorList, pse_shift_optional: Option<&Tensor>, atten_mask_optional: Option<&Tensor>, actual_seq_lengths_optional: Option<&[i64]>, actual_seq_lengths_kv_optional: Option<&[i64]>, deq_scale1_optional: Option<&Tensor>, quant_scale1_optional: Option<&Tensor>, deq_scale2_optional: Option<&Tensor>, quant_scale2_optional: Option<&Tensor>, quant_offset2_optional: Option<&Tensor>, antiquant_scale_optional: Option<&Tensor>, antiquant_offset_optional: Option<&Tensor>, block_table_optional: Option<&Tensor>, query_padding_size_optional: Option<&Tensor>, kv_padding_size_optional: Option<&Tensor>, key_antiquant_scale_optional: Option<&Tensor>, key_antiquant_offset_optional: Option<&Tensor>, value_antiquant_scale_optional: Option<&Tensor>, value_antiquant_offset_optional: Option<&Tensor>, key_shared_prefix_optional: Option<&Tensor>, value_shared_prefix_optional: Option<&Tensor>, actual_shared_prefix_len_optional: Option<&[i64]>, num_heads: i64, scale_value: f64, pre_tokens: i64, next_tokens: i64, input_layout: &str, num_key_value_heads: i64, sparse_mode: i64, inner_precise: i64, block_size: i64, antiquant_mode: i64, softmax_lse_flag: bool, key_antiquant_mode: i64, value_antiquant_mode: i64, attention_out: &Tensor, softmax_lse: Option<&Tensor>);
}
