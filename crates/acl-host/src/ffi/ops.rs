//! Both C functions of every operator, made from the one list. The operators themselves are in [`crate::ops`].

use std::ffi::{c_char, c_void};

use acl_sys::*;

use crate::executor::{phase_one, phase_two};
use crate::ffi::meta::FromC;
use crate::ops;
use crate::runtime::context;
use crate::tensor::DType;

macro_rules! shims {
    (functions { $(fn $group:ident $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)* }
     operators { $(op $run:ident $size:ident($($oarg:ident: $oty:ty),*);)* }) => {
        $(
            pub(crate) unsafe extern "C" fn $size(
                $($oarg: $oty,)*
                workspace_bytes: *mut u64,
                executor: *mut *mut aclOpExecutor,
            ) -> aclnnStatus {
                // SAFETY: arguments are what the C interface promises; handles stay valid until phase two has returned.
                unsafe {
                    phase_one(stringify!($run), workspace_bytes, executor, || {
                        ops::$run($(FromC::from_c($oarg, stringify!($oarg))?),*)
                    })
                }
            }

            pub(crate) unsafe extern "C" fn $run(
                workspace: *mut c_void,
                workspace_bytes: u64,
                executor: *mut aclOpExecutor,
                stream: aclrtStream,
            ) -> aclnnStatus {
                // SAFETY: as above.
                unsafe { phase_two(stringify!($run), workspace, workspace_bytes, executor, stream) }
            }
        )*
    };
}
acl_sys::acl_functions!(shims);

pub(crate) unsafe extern "C" fn aclnnCalculateMatmulWeightSizeV2(
    tensor_shape: *const aclIntArray,
    data_type: aclDataType,
    weight_tensor_size: *mut u64,
) -> aclnnStatus {
    const CALL: &str = "aclnnCalculateMatmulWeightSizeV2";
    context::guard(CALL, ACLNN_ERR_INNER, || {
        if weight_tensor_size.is_null() {
            return context::fail(ACLNN_ERR_PARAM_NULLPTR, format!("{CALL}: weightTensorSize is null"));
        }
        // SAFETY: ACL's contract: null or a live array.
        let shape = unsafe { <&[i64]>::from_c(tensor_shape, "tensorShape") };
        // SAFETY: a number.
        let dtype = unsafe { DType::from_c(data_type, "dataType") };
        let elements = shape.and_then(|shape| ops::calculate_matmul_weight_size_v2(shape, dtype?));
        match elements {
            Ok(elements) => {
                // SAFETY: not null, writable by ACL's contract.
                unsafe { *weight_tensor_size = elements };
                ACL_SUCCESS
            }
            Err(refusal) => context::fail(refusal.status, format!("{CALL}: {}", refusal.message)),
        }
    })
}
