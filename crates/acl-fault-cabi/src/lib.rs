//! Faults between a program and its ACL library, as a shared library with ACL's C names: `libascendcl_fault.so`.
//!
//! For tests of binaries that ship: `CANN_NODE_ACL_LIB` names this file, the environment says what fails.
//!
//! - `CANN_NODE_FAULT_INNER`: the library that is called, a file that has every name or a folder with the vendor's; the
//!   embedded device if it is not set.
//! - `CANN_NODE_FAULT`: what fails, as [`Fault::parse_all`] reads it: `name=aclrtMalloc,nth=3,code=207001,mode=once`. Nothing if
//!   it is not set.
//! - `CANN_NODE_FAULT_REPORT`: a file that gets `calls=<n> failed=<n>` when the process ends in order.
//!
//! `cann_fault_calls` and `cann_fault_failed` tell the same to a program that looks them up, and `cann_fault_arm` changes the
//! fault. A setting that cannot be read makes every call answer [`ACL_ERROR_INVALID_FILE`] (or null) and says why on stderr:
//! a test whose fault is misspelt must not pass.

#![allow(non_snake_case, clippy::too_many_arguments, clippy::missing_safety_doc)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::sync::LazyLock;

use acl_fault::{Fault, Mode};
use acl_sys::*;

static TABLE: LazyLock<AclApi> = LazyLock::new(|| {
    let (inner, faults) = match (inner(), faults()) {
        (Ok(inner), Ok(faults)) => (inner, faults),
        (Err(error), _) | (_, Err(error)) => {
            eprintln!("acl-fault: {error}");
            let all = Fault { mode: Mode::From, code: ACL_ERROR_INVALID_FILE, ..Fault::nth(1) };
            (acl_host::api(), vec![all])
        }
    };
    let api = acl_fault::install(inner);
    acl_fault::arm_all(faults);
    if std::env::var_os("CANN_NODE_FAULT_REPORT").is_some() {
        // SAFETY: the function takes nothing and does not unwind; this library is never unloaded, since the loader keeps it.
        unsafe {
            atexit(report);
            // How Bun ends.
            #[cfg(target_os = "linux")]
            at_quick_exit(report);
        }
    }
    api
});

unsafe extern "C" {
    fn atexit(call: extern "C" fn()) -> c_int;
    #[cfg(target_os = "linux")]
    fn at_quick_exit(call: extern "C" fn()) -> c_int;
}

extern "C" fn report() {
    if let Some(path) = std::env::var_os("CANN_NODE_FAULT_REPORT") {
        // Who wants the report sees that it is not there.
        let _ = std::fs::write(path, format!("calls={} failed={}\n", acl_fault::calls(), acl_fault::failed()));
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn inner() -> Result<AclApi, String> {
    let Some(path) = variable("CANN_NODE_FAULT_INNER") else { return Ok(acl_host::api()) };
    AclApi::load_path(Path::new(&path))
        .map(|loaded| loaded.api)
        .map_err(|error| format!("CANN_NODE_FAULT_INNER: {error}"))
}

fn faults() -> Result<Vec<Fault>, String> {
    match variable("CANN_NODE_FAULT") {
        None => Ok(Vec::new()),
        Some(text) => Fault::parse_all(&text).map_err(|error| format!("CANN_NODE_FAULT: {error}")),
    }
}

/// Calls so far.
#[unsafe(no_mangle)]
pub extern "C" fn cann_fault_calls() -> u64 {
    acl_fault::calls()
}

/// Calls that were failed so far.
#[unsafe(no_mangle)]
pub extern "C" fn cann_fault_failed() -> u64 {
    acl_fault::failed()
}

/// Forgets the counts and arms other faults, none if the text is null. Answers -1 for a text that is no fault.
///
/// # Safety
/// `text` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cann_fault_arm(text: *const c_char) -> c_int {
    LazyLock::force(&TABLE);
    let faults = if text.is_null() {
        Ok(Vec::new())
    } else {
        // SAFETY: a C string by the caller's promise.
        Fault::parse_all(&unsafe { CStr::from_ptr(text) }.to_string_lossy())
    };
    let Ok(faults) = faults else { return -1 };
    acl_fault::reset();
    acl_fault::arm_all(faults);
    0
}

acl_functions!(export_c_names);
