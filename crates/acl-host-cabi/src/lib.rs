//! The embedded device as a shared library with ACL's C names: `libascendcl_host.so`.
//!
//! It lets programs that were linked against the vendor's libraries run without an NPU, and makes the dlopen path of this
//! project testable for real. Every function of the list is exported and calls the device's table; besides
//! them there is only `cann_host_live`. It is a crate of its own because an addon that linked these names would export them, and answer in the vendor's place
//! wherever both are loaded.
//!
//! The vendor has several files. Under each of their names (`libascendcl.so`, `libnnopbase.so`, `libopapi.so`) this one may
//! stand as a link or a copy; copies are devices apart, so a folder of links is what programs want.

#![allow(non_snake_case, clippy::too_many_arguments, clippy::missing_safety_doc)]

use std::ffi::{c_char, c_void};
use std::sync::LazyLock;

use acl_sys::*;

static TABLE: LazyLock<AclApi> = LazyLock::new(acl_host::api);

acl_functions!(export_c_names);

/// What is live on this library's devices, for tests: the fields of `acl_host::LiveObjects` in their order.
///
/// # Safety
/// `counts` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cann_host_live(counts: *mut [usize; 12]) {
    let live = acl_host::live();
    let acl_host::LiveObjects { streams, events, allocations, bytes, physical, reserved, .. } = live;
    let acl_host::LiveObjects { models, tensors, scalars, arrays, lists, executors, .. } = live;
    let all =
        [streams, events, allocations, bytes, physical, reserved, models, tensors, scalars, arrays, lists, executors];
    // SAFETY: the caller's promise.
    unsafe { counts.write(all) };
}
