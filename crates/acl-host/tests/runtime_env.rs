//! Settings from the environment, as a user gives them.

use std::ffi::CStr;
use std::ptr::null;

use acl_sys::*;

#[test]
fn the_environment_chooses_and_mistakes_are_told_by_init() {
    // SAFETY: the only test of this process, and no other thread runs yet.
    unsafe {
        std::env::set_var("CANN_NODE_HOST_DEVICES", "3");
        std::env::set_var("CANN_NODE_HOST_MEMORY", "48M");
        std::env::set_var("CANN_NODE_HOST_SOC", "910_93");
        std::env::set_var("CANN_NODE_HOST_PEER", "off");
        std::env::set_var("CANN_NODE_HOST_CHECK", "perhaps");
    }
    let api = acl_host::api();
    // SAFETY: out-pointers are locals.
    unsafe {
        assert_eq!((api.aclInit)(null()), ACL_SUCCESS);
        let text = CStr::from_ptr((api.aclGetRecentErrMsg)()).to_str().unwrap();
        assert!(text.contains("CANN_NODE_HOST_CHECK=perhaps"), "{text}");
        assert!((api.aclGetRecentErrMsg)().is_null());
        assert_eq!(CStr::from_ptr((api.aclrtGetSocName)()), c"Ascend910_9391");
        let mut count = 0;
        assert_eq!((api.aclrtGetDeviceCount)(&mut count), ACL_SUCCESS);
        assert_eq!(count, 3);
        assert_eq!((api.aclrtSetDevice)(2), ACL_SUCCESS);
        let (mut free, mut total) = (0, 0);
        assert_eq!((api.aclrtGetMemInfo)(ACL_HBM_MEM, &mut free, &mut total), ACL_SUCCESS);
        assert_eq!((free, total), (48 << 20, 48 << 20));
        let mut can = -1;
        assert_eq!((api.aclrtDeviceCanAccessPeer)(&mut can, 0, 1), ACL_SUCCESS);
        assert_eq!(can, 0);
        assert_eq!((api.aclrtDeviceEnablePeerAccess)(1, 0), ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
    }
}
