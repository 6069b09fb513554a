//! Checked mode: a call that would touch memory that is not there is refused, and the message names it.

mod harness;

use acl_host::{Config, configure};
use acl_sys::*;
use harness::*;

#[test]
fn operands_must_be_live_device_memory() {
    configure(Config { check: Some(true), ..Config::default() }).unwrap();
    let d = device();
    let a = d.tensor(ACL_FLOAT, &[64], &[1.0; 64]);
    let one = d.f32(1.0);
    d.aclnnInplaceAdds(a.handle, one.handle, one.handle).unwrap();
    near(&a.read(), &[2.0; 64], 0.0);

    // Longer than its allocation.
    let long = d.view(&a, &[4096], &[1], 0);
    assert_eq!(d.aclnnInplaceAdds(long.handle, one.handle, one.handle), Err(ACLNN_ERR_RUNTIME_ERROR));
    let message = d.message();
    assert!(message.contains("aclnnInplaceAdds") && message.contains("self_ref"), "{message}");
    let parts = d.list(&[&a, &long]);
    let out = d.empty(ACL_FLOAT, &[4160]);
    assert_eq!(d.aclnnCat(parts.handle, 0, out.handle), Err(ACLNN_ERR_RUNTIME_ERROR));

    // Freed: the descriptor is left, the memory is not.
    let freed = {
        let gone = d.tensor(ACL_FLOAT, &[64], &[1.0; 64]);
        d.dangling(&gone)
    };
    // SAFETY: a live descriptor, destroyed below; the memory is never touched.
    unsafe {
        let (mut bytes, mut executor) = (0, std::ptr::null_mut());
        let size = d.api.aclnnMulsGetWorkspaceSize;
        assert_eq!(size(freed, one.handle, a.handle, &mut bytes, &mut executor), ACL_SUCCESS);
        let run = d.api.aclnnMuls;
        assert_eq!(run(std::ptr::null_mut(), 0, executor, d.stream), ACLNN_ERR_RUNTIME_ERROR);
        assert_eq!((d.api.aclDestroyTensor)(freed), ACL_SUCCESS);
    }

    // Workspace on the host.
    let order = d.empty(ACL_INT64, &[64]);
    let mut scratch = vec![0u64; 4096];
    // SAFETY: live handles; the workspace is refused before it is used.
    unsafe {
        let (mut bytes, mut executor) = (0, std::ptr::null_mut());
        let size = d.api.aclnnArgsortGetWorkspaceSize;
        assert_eq!(size(a.handle, 0, false, order.handle, &mut bytes, &mut executor), ACL_SUCCESS);
        let run = d.api.aclnnArgsort;
        assert_eq!(run(scratch.as_mut_ptr().cast(), bytes, executor, d.stream), ACLNN_ERR_RUNTIME_ERROR);
        assert!(d.message().contains("workspace"), "{}", d.message());
    }
    d.sync().unwrap();
}
