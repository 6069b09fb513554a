//! Whose functions a suite runs on: the linked device's, or those of the library or folder that `CANN_NODE_ACL_LIB` names, opened
//! as the vendor's would be.
#![allow(dead_code)]

use std::path::PathBuf;
use std::sync::{LazyLock, OnceLock};

use acl_host::{Config, LiveObjects};
use acl_sys::AclApi;
use libloading::Library;

fn library() -> Option<PathBuf> {
    std::env::var_os("CANN_NODE_ACL_LIB").filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// The table, on a device with these settings: the same ones at each call of a test program.
pub fn api(config: Config) -> AclApi {
    static LOADED: OnceLock<AclApi> = OnceLock::new();
    let Some(path) = library() else {
        acl_host::configure(config).expect("settings before first use");
        return acl_host::api();
    };
    let load = || {
        let Config { devices, memory_bytes, soc, peer, threads, check } = config;
        let number = |n: Option<usize>| n.map(|n| n.to_string());
        let switch = |on: Option<bool>| on.map(|on| u8::from(on).to_string());
        for (name, value) in [
            ("CANN_NODE_HOST_DEVICES", number(devices)),
            ("CANN_NODE_HOST_MEMORY", number(memory_bytes)),
            ("CANN_NODE_HOST_SOC", soc),
            ("CANN_NODE_HOST_PEER", switch(peer)),
            ("CANN_NODE_HOST_THREADS", number(threads)),
            ("CANN_NODE_HOST_CHECK", switch(check)),
        ] {
            if let Some(value) = value {
                // SAFETY: nothing else of this program reads these names, and the library, which does, is not open yet.
                unsafe { std::env::set_var(name, value) };
            }
        }
        let loaded = AclApi::load_path(&path).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(loaded.api.missing(), [""; 0], "{}", path.display());
        loaded.api
    };
    LOADED.get_or_init(load).clone()
}

/// What is live on the device the suite runs on; `None` where that is a library that does not tell.
pub fn live() -> Option<LiveObjects> {
    static OPEN: LazyLock<Option<Library>> = LazyLock::new(|| {
        let path = library()?;
        let file = if path.is_dir() { path.join("libascendcl.so") } else { path };
        // SAFETY: the library is open already, by the loader.
        unsafe { Library::new(file) }.ok()
    });
    if library().is_none() {
        return Some(acl_host::live());
    }
    let mut counts = [0; 12];
    // SAFETY: the function's signature is the stand-in's own (crates/acl-host-cabi).
    unsafe {
        let tell = OPEN.as_ref()?.get::<unsafe extern "C" fn(*mut [usize; 12])>("cann_host_live").ok()?;
        tell(&mut counts);
    }
    let [streams, events, allocations, bytes, physical, reserved, ..] = counts;
    let [.., models, tensors, scalars, arrays, lists, executors] = counts;
    Some(LiveObjects {
        streams,
        events,
        allocations,
        bytes,
        physical,
        reserved,
        models,
        tensors,
        scalars,
        arrays,
        lists,
        executors,
    })
}
