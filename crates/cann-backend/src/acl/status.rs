//! Status codes to `Result`, with the message the library kept for this thread.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

use acl_sys::{
    ACL_ERROR_BAD_ALLOC, ACL_ERROR_RT_DEVICE_OOM, ACL_ERROR_RT_MEMORY_ALLOCATION, ACL_SUCCESS, AclApi, AclFn, aclError,
    status_name,
};

use super::driver;
use crate::error::{Error, Result};

/// `Ok` for success, else an error with the code, the call and ACL's own words. Must run on the thread that made the call:
/// the library keeps its messages per thread.
pub(crate) fn check(api: &AclApi, call: AclFn, code: aclError) -> Result<()> {
    if code == ACL_SUCCESS {
        return Ok(());
    }
    let detail = recent_message(api);
    tracing::warn!(
        target: "cann_backend::acl",
        call = call.name(),
        code,
        name = status_name(code).unwrap_or("?"),
        device = driver::bound_device(),
        "CANN error: {detail}"
    );
    Err(Error::acl(call, code, detail))
}

/// Whether a status says that memory ran out.
pub(crate) fn is_out_of_memory(code: aclError) -> bool {
    matches!(code, ACL_ERROR_RT_MEMORY_ALLOCATION | ACL_ERROR_RT_DEVICE_OOM | ACL_ERROR_BAD_ALLOC)
}

/// For destructors: an error is logged and counted, because nobody is there to take it.
pub(crate) fn dropped(api: &AclApi, call: AclFn, code: aclError) {
    if check(api, call, code).is_err() {
        DROP_ERRORS.fetch_add(1, Ordering::Relaxed);
    }
}

/// How many releases failed in this process.
pub(crate) fn drop_errors() -> u64 {
    DROP_ERRORS.load(Ordering::Relaxed)
}

static DROP_ERRORS: AtomicU64 = AtomicU64::new(0);

/// Takes this thread's message; the library clears it.
pub(crate) fn recent_message(api: &AclApi) -> String {
    // SAFETY: the function takes nothing; its answer is null or a C string that stays until this thread asks again.
    let message = unsafe {
        let text = (api.aclGetRecentErrMsg)();
        if text.is_null() { None } else { Some(CStr::from_ptr(text).to_string_lossy().trim().to_owned()) }
    };
    message.filter(|m| !m.is_empty()).unwrap_or_else(|| "ACL gave no message".into())
}
