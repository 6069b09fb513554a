//! The device passing for a 310P: what that chip lacks is refused as it refuses it.

use std::ptr::null_mut;

use acl_host::{Config, ConfigError};
use acl_sys::*;

#[test]
fn an_inference_card_has_no_vmm_no_capture_and_no_peers() {
    let config = Config { soc: Some("310P".into()), devices: Some(2), peer: Some(true), ..Config::default() };
    acl_host::configure(config).unwrap();
    assert_eq!(
        acl_host::configure(Config { devices: Some(3), ..Config::default() }),
        Err(ConfigError::InUse { setting: "devices" })
    );
    assert_eq!(
        acl_host::configure(Config { threads: Some(0), ..Config::default() }),
        Err(ConfigError::Invalid { setting: "threads", value: "0".into() })
    );
    let api = acl_host::api();
    let unsupported = ACL_ERROR_RT_FEATURE_NOT_SUPPORT;
    // SAFETY: pointers are null or locals.
    unsafe {
        let mut count = 0;
        assert_eq!((api.aclrtGetDeviceCount)(&mut count), ACL_ERROR_UNINITIALIZE);
        assert_eq!((api.aclrtSetDevice)(0), ACL_ERROR_UNINITIALIZE);
        assert_eq!((api.aclFinalize)(), ACL_ERROR_UNINITIALIZE);
        assert_eq!((api.aclInit)(std::ptr::null()), ACL_SUCCESS);
        assert_eq!((api.aclInit)(std::ptr::null()), ACL_ERROR_REPEAT_INITIALIZE);
        assert_eq!(std::ffi::CStr::from_ptr((api.aclrtGetSocName)()), c"Ascend310P3");
        assert_eq!((api.aclrtSetDevice)(0), ACL_SUCCESS);

        let mut can = -1;
        assert_eq!((api.aclrtDeviceCanAccessPeer)(&mut can, 0, 1), ACL_SUCCESS);
        assert_eq!(can, 0);
        assert_eq!((api.aclrtDeviceEnablePeerAccess)(1, 0), unsupported);

        let mut prop = aclrtPhysicalMemProp {
            memAttr: ACL_HBM_MEM_HUGE,
            location: aclrtMemLocation { id: 0, r#type: ACL_MEM_LOCATION_TYPE_DEVICE },
            ..Default::default()
        };
        let (mut bytes, mut pointer) = (0, null_mut());
        assert_eq!((api.aclrtMemGetAllocationGranularity)(&mut prop, 0, &mut bytes), unsupported);
        assert_eq!((api.aclrtReserveMemAddress)(&mut pointer, 1 << 21, 0, null_mut(), 1), unsupported);
        assert_eq!((api.aclrtMallocPhysical)(&mut pointer, 1 << 21, &prop, 0), unsupported);

        let mut stream = null_mut();
        assert_eq!((api.aclrtCreateStream)(&mut stream), ACL_SUCCESS);
        assert_eq!((api.aclmdlRICaptureBegin)(stream, 0), unsupported);
        assert_eq!((api.aclrtDestroyStream)(stream), ACL_SUCCESS);

        // Events are few; one given back can be had again.
        let mut events = vec![null_mut(); 1023];
        events.iter_mut().for_each(|event| assert_eq!((api.aclrtCreateEvent)(event), ACL_SUCCESS));
        assert_eq!((api.aclrtCreateEvent)(&mut pointer), ACL_ERROR_RT_NO_EVENT_RESOURCE);
        assert_eq!((api.aclrtDestroyEvent)(events[0]), ACL_SUCCESS);
        assert_eq!((api.aclrtCreateEvent)(&mut pointer), ACL_SUCCESS);
        assert_eq!(acl_host::live().events, 1023);
        // Forced: with all its events left.
        assert_eq!((api.aclrtResetDeviceForce)(0), ACL_SUCCESS);
        assert_eq!(acl_host::live(), acl_host::LiveObjects::default());

        // However often it was initialised, one finalize ends it; another is told, a new init is welcome.
        assert_eq!((api.aclFinalize)(), ACL_SUCCESS);
        assert_eq!((api.aclFinalize)(), ACL_ERROR_REPEAT_FINALIZE);
        assert_eq!((api.aclrtSetDevice)(0), ACL_ERROR_UNINITIALIZE);
        assert_eq!((api.aclInit)(std::ptr::null()), ACL_SUCCESS);
        assert_eq!((api.aclrtSetDevice)(0), ACL_SUCCESS);
    }
}
