//! From ggml's order to ACL's: the one place where extents are turned round and byte strides become element strides.

use acl_sys::*;

use super::status::check;
use crate::error::{Error, Result};
use crate::lower::TensorArg;

/// Shape and strides as ACL wants them: slowest dimension first, strides and offset in elements.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AclShape {
    pub dims: Vec<i64>,
    pub strides: Vec<i64>,
    pub offset: i64,
    /// Extent of the allocation in elements, as one dimension.
    pub storage: i64,
}

/// Bits of one element, for the types tensors are made of here.
fn element_bits(dtype: aclDataType) -> i64 {
    match dtype {
        ACL_INT4 => 4,
        ACL_INT8 | ACL_UINT8 | ACL_BOOL => 8,
        ACL_FLOAT16 | ACL_BF16 | ACL_INT16 | ACL_UINT16 => 16,
        ACL_INT64 | ACL_UINT64 | ACL_DOUBLE => 64,
        _ => 32,
    }
}

/// `None` when an offset or stride is not a whole number of elements.
pub(crate) fn acl_shape(tensor: &TensorArg) -> Option<AclShape> {
    let bits = element_bits(tensor.dtype);
    let whole = |n: i64, d: i64| (n % d == 0).then_some(n / d);
    // Strides of int4 are in half bytes already; all others are in bytes.
    let strides: Option<Vec<i64>> =
        tensor.nb.iter().rev().map(|nb| if bits == 4 { Some(*nb) } else { whole(*nb, bits / 8) }).collect();
    let strides = strides?;
    let dims: Vec<i64> = tensor.ne.iter().rev().copied().collect();
    let offset = whole(i64::try_from(tensor.offset).ok()?.checked_mul(8)?, bits)?;
    let reach: i64 = dims.iter().zip(&strides).map(|(n, s)| (n - 1).max(0) * s).sum();
    Some(AclShape { dims, strides, offset, storage: offset + reach + 1 })
}

/// Bytes from the region's start to past the tensor's last element.
pub(crate) fn storage_bytes(shape: &AclShape, dtype: aclDataType) -> u64 {
    (shape.storage.unsigned_abs() * element_bits(dtype).unsigned_abs()).div_ceil(8)
}

/// # Safety
/// `base` is null or the device address of memory that holds the tensor for as long as operators use the result.
pub(crate) unsafe fn create(api: &AclApi, tensor: &TensorArg, base: u64) -> Option<*mut aclTensor> {
    let shape = acl_shape(tensor)?;
    // SAFETY: the arrays live through the call, which copies them; the address is the caller's promise.
    let made = unsafe {
        (api.aclCreateTensor)(
            shape.dims.as_ptr(),
            shape.dims.len() as u64,
            tensor.dtype,
            shape.strides.as_ptr(),
            shape.offset,
            tensor.format,
            &shape.storage,
            1,
            base as *mut std::ffi::c_void,
        )
    };
    (!made.is_null()).then_some(made)
}

/// Elements that a weight of f16 takes in the chip's private format; extents in ACL's order.
pub(crate) fn matmul_weight_elements(api: &AclApi, dims: &[i64]) -> Result<u64> {
    const CALL: AclFn = AclFn::aclnnCalculateMatmulWeightSizeV2;
    let mut elements = 0;
    // SAFETY: the numbers live through the call, which copies them; the array is destroyed once; the pointer is to a local.
    let code = unsafe {
        let array = (api.aclCreateIntArray)(dims.as_ptr(), dims.len() as u64);
        if array.is_null() {
            return Err(Error::acl(AclFn::aclCreateIntArray, ACLNN_ERR_PARAM_INVALID, format!("{dims:?}")));
        }
        let code = (api.aclnnCalculateMatmulWeightSizeV2)(array, ACL_FLOAT16, &mut elements);
        let destroyed = (api.aclDestroyIntArray)(array);
        if destroyed != ACL_SUCCESS {
            tracing::warn!(code = destroyed, "an array could not be destroyed");
        }
        code
    };
    check(api, CALL, code)?;
    Ok(elements)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower::Mem;

    fn tensor(dtype: aclDataType, ne: &[i64], nb: &[i64], offset: u64) -> TensorArg {
        TensorArg { mem: Mem::Temp(0), offset, dtype, ne: ne.to_vec(), nb: nb.to_vec(), format: ACL_FORMAT_ND }
    }

    #[test]
    fn order_is_reversed_and_bytes_become_elements() {
        let shape = acl_shape(&tensor(ACL_FLOAT, &[64, 9, 5], &[4, 256, 2304], 512)).unwrap();
        assert_eq!(shape.dims, [5, 9, 64]);
        assert_eq!(shape.strides, [576, 64, 1]);
        assert_eq!((shape.offset, shape.storage), (128, 128 + 4 * 576 + 8 * 64 + 63 + 1));
    }

    #[test]
    fn int4_counts_half_bytes() {
        let shape = acl_shape(&tensor(ACL_INT4, &[64, 2], &[1, 64], 16)).unwrap();
        assert_eq!((shape.strides, shape.offset), (vec![64, 1], 32));
    }

    #[test]
    fn a_stride_of_half_an_element_is_refused() {
        assert_eq!(acl_shape(&tensor(ACL_FLOAT, &[4], &[2], 0)), None);
        assert_eq!(acl_shape(&tensor(ACL_FLOAT, &[4], &[4], 2)), None);
    }
}
