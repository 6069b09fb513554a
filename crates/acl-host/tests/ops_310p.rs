//! The device passing for a 310P has no BF16, whatever the operator.

mod harness;

use acl_host::{Config, configure};
use acl_sys::*;
use harness::*;

#[test]
fn brain_floats_are_refused() {
    configure(Config { soc: Some("310P".into()), ..Config::default() }).unwrap();
    let d = device();
    let (brain, half) = (d.empty(ACL_BF16, &[4]), d.tensor(ACL_FLOAT16, &[4], &[1.0; 4]));
    assert_eq!(d.aclnnCast(half.handle, ACL_BF16, brain.handle), Err(ACLNN_ERR_PARAM_INVALID));
    assert_eq!(d.aclnnCat(d.list(&[&half, &brain]).handle, 0, half.handle), Err(ACLNN_ERR_PARAM_INVALID));
    assert!(d.message().contains("BF16"), "{}", d.message());
    d.aclnnInplaceMuls(half.handle, d.f32(2.0).handle).unwrap();
    near(&half.read(), &[2.0; 4], 0.0);
}
