//! Rows of docs/mission.md that need a process of their own: ggml's environment variables as values (M50, M72, M74, R59), more
//! devices than the seeds allow (M8, R49), and who owns the members of a list (M174, R29). One test, because the environment and
//! the counts of what is live are the process's.

mod common;

use std::sync::Arc;

use acl_sys::{ACL_FLOAT, ACL_FORMAT_ND, ACL_SUCCESS};
use cann_backend::{DriverEntry, DriverKind, PoolChoice, Registry};
use common::*;

#[test]
fn variables_have_values_and_devices_no_limit_of_16() {
    // SAFETY: the only test of this process, and no other thread runs yet.
    unsafe {
        std::env::set_var("GGML_CANN_NO_PINNED", "on");
        std::env::set_var("GGML_CANN_ASYNC_MODE", "0");
        std::env::set_var("GGML_CANN_DISABLE_VMM_POOL", "off");
        std::env::set_var("GGML_CANN_ENABLE_BUF_PRIO_POOL", "1");
    }
    acl_host::configure(acl_host::Config { devices: Some(20), ..Default::default() }).expect("before first use");
    let entry =
        DriverEntry { api: Arc::new(acl_host::api()), kind: DriverKind::Host, prefix: "HOST", description: None };
    let registry = Arc::new(Registry::new(vec![entry]));
    let devices = registry.devices();
    assert_eq!((devices.len(), devices[19].name.as_str()), (20, "HOST19"));
    assert!(devices.iter().all(|device| !device.caps_host_buffer));

    let backend = open_with(&registry, 17, PoolChoice::Auto);
    assert!(!backend.async_mode());
    assert!(!wait(|done| backend.alloc_host_buffer(1000, done)).unwrap().pinned());
    // "off" leaves virtual memory on, which comes before the priority pool.
    let kind = if devices[17].vmm_supported { "vmm" } else { "priority" };
    assert_eq!(backend.stats().pool.kind, kind);
    wait(|done| backend.close(done)).unwrap();
    lists_own_their_members();

    // SAFETY: the worker has ended and nobody else reads the environment.
    unsafe { std::env::set_var("GGML_CANN_DISABLE_VMM_POOL", "yes") };
    let backend = open_with(&registry, 17, PoolChoice::Auto);
    assert_eq!(backend.stats().pool.kind, "priority");
}

fn lists_own_their_members() {
    let (api, before) = (acl_host::api(), acl_host::live());
    let dims = [4i64];
    // SAFETY: arrays as long as said; a tensor without memory may be described; each object is destroyed once.
    unsafe {
        let make = || {
            let none = (std::ptr::null(), std::ptr::null_mut());
            (api.aclCreateTensor)(dims.as_ptr(), 1, ACL_FLOAT, none.0, 0, ACL_FORMAT_ND, dims.as_ptr(), 1, none.1)
        };
        let members = [make().cast_const(), make().cast_const()];
        let list = (api.aclCreateTensorList)(members.as_ptr(), 2);
        let live = acl_host::live();
        assert_eq!((live.tensors, live.lists), (before.tensors + 2, before.lists + 1));
        assert_eq!((api.aclDestroyTensorList)(list), ACL_SUCCESS);
    }
    assert_eq!(acl_host::live(), before);
}
