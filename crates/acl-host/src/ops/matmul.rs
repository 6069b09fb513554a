//! Dense matrix products.

use crate::executor::Refusal;
use crate::tensor::{DType, Tensor};

refused! {
    aclnnBatchMatMul(self_: &Tensor, mat2: &Tensor, out: &Tensor, cube_math_type: i8);
    aclnnMatmul(self_: &Tensor, mat2: &Tensor, out: &Tensor, cube_math_type: i8);
    aclnnMm(self_: &Tensor, mat2: &Tensor, out: &Tensor, cube_math_type: i8);
    aclnnMv(self_: &Tensor, vec: &Tensor, out: &Tensor, cube_math_type: i8);
    aclnnTransMatmulWeight(mm_weight_ref: &Tensor);
}

/// How many elements a weight takes in the device's own format; the caller allocates by it.
pub(crate) fn calculate_matmul_weight_size_v2(_shape: &[i64], _dtype: DType) -> Result<u64, Refusal> {
    Err(Refusal::unsupported("this device does not have the operator"))
}
