//! What the runtime tests share: the table, a device per test, codes with their messages.

#![allow(dead_code)]

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

use acl_host::Config;
pub use acl_sys::*;

pub const MEMORY_BYTES: usize = 64 << 20;

/// The table of an initialised library with 32 devices of [`MEMORY_BYTES`] each.
pub fn api() -> &'static AclApi {
    static API: OnceLock<AclApi> = OnceLock::new();
    API.get_or_init(|| {
        let config = Config { devices: Some(32), memory_bytes: Some(MEMORY_BYTES), ..Config::default() };
        acl_host::configure(config).expect("nothing has used the device yet");
        let api = acl_host::api();
        // SAFETY: no configuration file is given.
        assert_eq!(unsafe { (api.aclInit)(std::ptr::null()) }, ACL_SUCCESS);
        api
    })
}

/// The table, with `device` selected on this thread.
pub fn on(device: i32) -> &'static AclApi {
    let api = api();
    // SAFETY: takes no pointer.
    ok(unsafe { (api.aclrtSetDevice)(device) });
    api
}

/// This thread's error text, which is cleared.
pub fn message() -> String {
    // SAFETY: null or a C string that lives until the next call on this thread.
    unsafe {
        let text = (api().aclGetRecentErrMsg)();
        if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
    }
}

#[track_caller]
pub fn ok(code: aclError) {
    if code != ACL_SUCCESS {
        panic!("{code}: {}", message());
    }
}

/// The call ends things at a bad moment or ends more than was given back, which checked mode says.
#[track_caller]
pub fn ends(code: aclError) {
    let checked = std::env::var("CANN_NODE_HOST_CHECK").is_ok_and(|value| value != "0");
    if !checked || code != ACL_ERROR_RT_PARAM_INVALID {
        ok(code);
    }
}

/// The call failed with this code and said something about it.
#[track_caller]
pub fn fails(code: aclError, expected: aclError) {
    let message = message();
    assert_eq!(code, expected, "{message}");
    assert!(message.contains(&code.to_string()), "no message for {code}: {message:?}");
}

pub fn malloc(api: &AclApi, bytes: usize) -> *mut c_void {
    let mut pointer = null_mut();
    // SAFETY: the out-pointer is a local.
    ok(unsafe { (api.aclrtMalloc)(&mut pointer, bytes, ACL_MEM_MALLOC_HUGE_FIRST) });
    assert_eq!(pointer.addr() % 64, 0);
    pointer
}

pub fn malloc_host(api: &AclApi, bytes: usize) -> *mut c_void {
    let mut pointer = null_mut();
    // SAFETY: the out-pointer is a local.
    ok(unsafe { (api.aclrtMallocHost)(&mut pointer, bytes) });
    assert_eq!(pointer.addr() % 64, 0);
    pointer
}

pub fn stream(api: &AclApi) -> aclrtStream {
    let mut stream = null_mut();
    // SAFETY: the out-pointer is a local.
    ok(unsafe { (api.aclrtCreateStream)(&mut stream) });
    stream
}

pub fn event(api: &AclApi) -> aclrtEvent {
    let mut event = null_mut();
    // SAFETY: the out-pointer is a local.
    ok(unsafe { (api.aclrtCreateEvent)(&mut event) });
    event
}

pub fn upload(api: &AclApi, to: *mut c_void, bytes: &[u8]) {
    // SAFETY: the source is a slice; the destination is checked by the device.
    ok(unsafe { (api.aclrtMemcpy)(to, bytes.len(), bytes.as_ptr().cast(), bytes.len(), ACL_MEMCPY_HOST_TO_DEVICE) });
}

pub fn download(api: &AclApi, from: *const c_void, bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes];
    // SAFETY: the destination is a vector of that length; the source is checked by the device.
    ok(unsafe { (api.aclrtMemcpy)(out.as_mut_ptr().cast(), bytes, from, bytes, ACL_MEMCPY_DEVICE_TO_HOST) });
    out
}

pub fn free_bytes(api: &AclApi) -> usize {
    let (mut free, mut total) = (0, 0);
    // SAFETY: the out-pointers are locals.
    ok(unsafe { (api.aclrtGetMemInfo)(ACL_HBM_MEM, &mut free, &mut total) });
    assert_eq!(total, MEMORY_BYTES);
    free
}
