//! C types and constants of the ACL and aclnn headers, spelled as there.
//!
//! Enumerations are integers with named constants: a newer library may answer with a value this list does not have.
//! Numbers were read from the published headers; layouts are asserted below.

use std::ffi::{c_char, c_void};

pub type aclError = i32;
pub type aclnnStatus = i32;
pub type aclDataType = i32;
pub type aclFormat = i32;
pub type aclrtMemMallocPolicy = i32;
pub type aclrtMemAttr = i32;
pub type aclrtMemcpyKind = i32;
pub type aclrtMemLocationType = i32;
pub type aclrtMemHandleType = i32;
pub type aclrtMemAllocationType = i32;
pub type aclrtMemGranularityOptions = i32;
pub type aclrtEventRecordedStatus = i32;
pub type aclrtStreamStatus = i32;
pub type aclmdlRICaptureMode = i32;
pub type aclmdlRICaptureStatus = i32;
pub type aclCANNPackageName = i32;

pub type aclrtStream = *mut c_void;
pub type aclrtEvent = *mut c_void;
pub type aclrtContext = *mut c_void;
pub type aclrtDrvMemHandle = *mut c_void;
pub type aclmdlRI = *mut c_void;

macro_rules! opaque {
    ($($name:ident),*) => {$(
        /// Opaque handle target; only ever behind a pointer.
        #[repr(C)]
        pub struct $name {
            _private: [u8; 0],
        }
    )*};
}
opaque!(aclOpExecutor, aclTensor, aclScalar, aclIntArray, aclFloatArray, aclBoolArray, aclTensorList, aclScalarList);

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct aclrtMemLocation {
    pub id: u32,
    pub r#type: aclrtMemLocationType,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct aclrtPhysicalMemProp {
    pub handleType: aclrtMemHandleType,
    pub allocationType: aclrtMemAllocationType,
    pub memAttr: aclrtMemAttr,
    pub location: aclrtMemLocation,
    pub reserve: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct aclCANNPackageVersion {
    pub version: [c_char; 128],
    pub majorVersion: [c_char; 64],
    pub minorVersion: [c_char; 64],
    pub releaseVersion: [c_char; 64],
    pub patchVersion: [c_char; 64],
    pub reserved: [c_char; 128],
}

const _: () = {
    use std::mem::{align_of, offset_of, size_of};
    assert!(size_of::<aclrtMemLocation>() == 8);
    assert!(offset_of!(aclrtMemLocation, id) == 0 && offset_of!(aclrtMemLocation, r#type) == 4);
    assert!(size_of::<aclrtPhysicalMemProp>() == 32 && align_of::<aclrtPhysicalMemProp>() == 8);
    assert!(offset_of!(aclrtPhysicalMemProp, allocationType) == 4);
    assert!(offset_of!(aclrtPhysicalMemProp, memAttr) == 8);
    assert!(offset_of!(aclrtPhysicalMemProp, location) == 12);
    assert!(offset_of!(aclrtPhysicalMemProp, reserve) == 24);
    assert!(size_of::<aclCANNPackageVersion>() == 512);
    assert!(offset_of!(aclCANNPackageVersion, patchVersion) == 320);
};

macro_rules! constants {
    ($($ty:ident { $($name:ident = $value:expr),* $(,)? })*) => {$($(
        pub const $name: $ty = $value;
    )*)*};
}

constants! {
    aclDataType {
        ACL_DT_UNDEFINED = -1, ACL_FLOAT = 0, ACL_FLOAT16 = 1, ACL_INT8 = 2, ACL_INT32 = 3, ACL_UINT8 = 4, ACL_INT16 = 6,
        ACL_UINT16 = 7, ACL_UINT32 = 8, ACL_INT64 = 9, ACL_UINT64 = 10, ACL_DOUBLE = 11, ACL_BOOL = 12, ACL_BF16 = 27,
        ACL_INT4 = 29,
    }
    aclFormat {
        ACL_FORMAT_UNDEFINED = -1, ACL_FORMAT_NCHW = 0, ACL_FORMAT_NHWC = 1, ACL_FORMAT_ND = 2, ACL_FORMAT_FRACTAL_NZ = 29,
        ACL_FORMAT_NCDHW = 30, ACL_FORMAT_NCL = 47,
    }
    aclrtMemMallocPolicy {
        ACL_MEM_MALLOC_HUGE_FIRST = 0, ACL_MEM_MALLOC_HUGE_ONLY = 1, ACL_MEM_MALLOC_NORMAL_ONLY = 2,
    }
    aclrtMemAttr { ACL_DDR_MEM = 0, ACL_HBM_MEM = 1, ACL_DDR_MEM_HUGE = 2, ACL_DDR_MEM_NORMAL = 3, ACL_HBM_MEM_HUGE = 4, ACL_HBM_MEM_NORMAL = 5 }
    aclrtMemcpyKind {
        ACL_MEMCPY_HOST_TO_HOST = 0, ACL_MEMCPY_HOST_TO_DEVICE = 1, ACL_MEMCPY_DEVICE_TO_HOST = 2, ACL_MEMCPY_DEVICE_TO_DEVICE = 3,
        ACL_MEMCPY_DEFAULT = 4,
    }
    aclrtMemLocationType { ACL_MEM_LOCATION_TYPE_HOST = 0, ACL_MEM_LOCATION_TYPE_DEVICE = 1 }
    aclrtMemHandleType { ACL_MEM_HANDLE_TYPE_NONE = 0 }
    aclrtMemAllocationType { ACL_MEM_ALLOCATION_TYPE_PINNED = 0 }
    aclrtMemGranularityOptions { ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM = 0, ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED = 1 }
    aclrtEventRecordedStatus { ACL_EVENT_RECORDED_STATUS_NOT_READY = 0, ACL_EVENT_RECORDED_STATUS_COMPLETE = 1 }
    aclrtStreamStatus { ACL_STREAM_STATUS_COMPLETE = 0, ACL_STREAM_STATUS_NOT_READY = 1 }
    aclmdlRICaptureMode {
        ACL_MODEL_RI_CAPTURE_MODE_GLOBAL = 0, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL = 1, ACL_MODEL_RI_CAPTURE_MODE_RELAXED = 2,
    }
    aclmdlRICaptureStatus {
        ACL_MODEL_RI_CAPTURE_STATUS_NONE = 0, ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE = 1, ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED = 2,
    }
    aclCANNPackageName { ACL_PKG_NAME_CANN = 0, ACL_PKG_NAME_RUNTIME = 1, ACL_PKG_NAME_DRIVER = 7 }
    u32 { ACL_EVENT_SYNC = 0x1, ACL_EVENT_TIME_LINE = 0x8 }
    i8 { KEEP_DTYPE = 0, ALLOW_FP32_DOWN_PRECISION = 1, USE_FP16 = 2, USE_HF32 = 3 }
}

/// Status codes with a name; one list for the constants and for [`status_name`].
macro_rules! statuses {
    ($($name:ident = $value:expr),* $(,)?) => {
        $(pub const $name: aclError = $value;)*

        /// The header's name of a status code, where it has one.
        pub fn status_name(code: aclError) -> Option<&'static str> {
            match code {
                $($value => Some(stringify!($name)),)*
                _ => None,
            }
        }
    };
}
statuses! {
    ACL_SUCCESS = 0,
    ACL_ERROR_INVALID_PARAM = 100000,
    ACL_ERROR_UNINITIALIZE = 100001,
    ACL_ERROR_REPEAT_INITIALIZE = 100002,
    ACL_ERROR_INVALID_FILE = 100003,
    ACL_ERROR_PARSE_FILE = 100006,
    ACL_ERROR_REPEAT_FINALIZE = 100037,
    ACL_ERROR_COMPILING_STUB_MODE = 100039,
    ACL_ERROR_RT_PARAM_INVALID = 107000,
    ACL_ERROR_RT_INVALID_DEVICEID = 107001,
    ACL_ERROR_RT_CONTEXT_NULL = 107002,
    ACL_ERROR_RT_STREAM_CONTEXT = 107003,
    ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID = 107006,
    ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL = 107007,
    ACL_ERROR_RT_ADDR_UNALIGNED = 107008,
    ACL_ERROR_RT_INVALID_HANDLE = 107017,
    ACL_ERROR_RT_INVALID_MALLOC_TYPE = 107018,
    ACL_ERROR_RT_WAIT_TIMEOUT = 107019,
    ACL_ERROR_RT_TASK_TIMEOUT = 107020,
    ACL_ERROR_RT_DEVICE_TASK_ABORT = 107022,
    ACL_ERROR_RT_STREAM_ABORT = 107023,
    ACL_ERROR_RT_CAPTURE_DEPENDENCY = 107024,
    ACL_ERROR_RT_STREAM_UNJOINED = 107025,
    ACL_ERROR_RT_MODEL_CAPTURED = 107026,
    ACL_ERROR_RT_STREAM_CAPTURED = 107027,
    ACL_ERROR_RT_EVENT_CAPTURED = 107028,
    ACL_ERROR_RT_STREAM_NOT_CAPTURED = 107029,
    ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT = 107030,
    ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT = 107031,
    ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED = 107036,
    ACL_ERROR_RT_MODEL_RUNNING = 107037,
    ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD = 107038,
    ACL_ERROR_BAD_ALLOC = 200000,
    ACL_ERROR_API_NOT_SUPPORT = 200001,
    ACL_ERROR_INVALID_DEVICE = 200002,
    ACL_ERROR_RESOURCE_NOT_MATCH = 200004,
    ACL_ERROR_INVALID_RESOURCE_HANDLE = 200005,
    ACL_ERROR_FEATURE_UNSUPPORTED = 200006,
    ACL_ERROR_RT_FEATURE_NOT_SUPPORT = 207000,
    ACL_ERROR_RT_MEMORY_ALLOCATION = 207001,
    ACL_ERROR_RT_MEMORY_FREE = 207002,
    ACL_ERROR_RT_AICORE_OVER_FLOW = 207003,
    ACL_ERROR_RT_NO_DEVICE = 207004,
    ACL_ERROR_RT_RESOURCE_ALLOC_FAIL = 207005,
    ACL_ERROR_RT_NO_EVENT_RESOURCE = 207007,
    ACL_ERROR_RT_NO_STREAM_RESOURCE = 207008,
    ACL_ERROR_RT_AIVEC_OVER_FLOW = 207016,
    ACL_ERROR_RT_OVER_FLOW = 207017,
    ACL_ERROR_RT_DEVICE_OOM = 207018,
    ACL_ERROR_STORAGE_OVER_LIMIT = 300000,
    ACL_ERROR_INTERNAL_ERROR = 500000,
    ACL_ERROR_FAILURE = 500001,
    ACL_ERROR_RT_FAILURE = 500003,
    ACL_ERROR_DRV_FAILURE = 500004,
    ACL_ERROR_RT_INTERNAL_ERROR = 507000,
    ACL_ERROR_RT_TS_ERROR = 507001,
    ACL_ERROR_RT_STREAM_TASK_FULL = 507002,
    ACL_ERROR_RT_STREAM_NOT_COMPLETE = 507004,
    ACL_ERROR_RT_EVENT_NOT_COMPLETE = 507006,
    ACL_ERROR_RT_CONTEXT_RELEASE_ERROR = 507007,
    ACL_ERROR_RT_SOC_VERSION = 507008,
    ACL_ERROR_RT_LOST_HEARTBEAT = 507010,
    ACL_ERROR_RT_MODEL_EXECUTE = 507011,
    ACL_ERROR_RT_AICORE_TIMEOUT = 507014,
    ACL_ERROR_RT_AICORE_EXCEPTION = 507015,
    ACL_ERROR_RT_AICORE_TRAP_EXCEPTION = 507016,
    ACL_ERROR_RT_AICPU_TIMEOUT = 507017,
    ACL_ERROR_RT_AICPU_EXCEPTION = 507018,
    ACL_ERROR_RT_DEV_SETUP_ERROR = 507033,
    ACL_ERROR_RT_VECTOR_CORE_TIMEOUT = 507034,
    ACL_ERROR_RT_VECTOR_CORE_EXCEPTION = 507035,
    ACL_ERROR_RT_STREAM_SYNC_TIMEOUT = 507046,
    ACL_ERROR_RT_EVENT_SYNC_TIMEOUT = 507047,
    ACL_ERROR_RT_COPY_DATA = 507052,
    ACL_ERROR_RT_DEVICE_MEM_ERROR = 507053,
    ACL_ERROR_RT_HBM_MULTI_BIT_ECC_ERROR = 507054,
    ACL_ERROR_RT_DRV_INTERNAL_ERROR = 507899,
    ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED = 507903,
    ACLNN_ERR_PARAM_NULLPTR = 161001,
    ACLNN_ERR_PARAM_INVALID = 161002,
    ACLNN_ERR_RUNTIME_ERROR = 361001,
    ACLNN_ERR_INNER = 561000,
    ACLNN_ERR_INNER_INFERSHAPE_ERROR = 561001,
    ACLNN_ERR_INNER_TILING_ERROR = 561002,
    ACLNN_ERR_INNER_FIND_KERNEL_ERROR = 561003,
    ACLNN_ERR_INNER_CREATE_EXECUTOR = 561101,
    ACLNN_ERR_INNER_NOT_TRANS_EXECUTOR = 561102,
    ACLNN_ERR_INNER_NULLPTR = 561103,
    ACLNN_ERR_INNER_OPP_PATH_NOT_FOUND = 561107,
    ACLNN_ERR_INNER_OPP_KERNEL_PKG_NOT_FOUND = 561112,
}

/// The second phase of every aclnn operator has this one type.
pub type aclnnRun = unsafe extern "C" fn(
    workspace: *mut c_void,
    workspaceSize: u64,
    executor: *mut aclOpExecutor,
    stream: aclrtStream,
) -> aclnnStatus;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_code() {
        assert_eq!(status_name(207001), Some("ACL_ERROR_RT_MEMORY_ALLOCATION"));
        assert_eq!(status_name(161002), Some("ACLNN_ERR_PARAM_INVALID"));
        assert_eq!(status_name(-7), None);
    }
}
