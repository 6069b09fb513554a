//! The device passing for a 310P refuses what that chip's operators refuse.

use acl_host::Config;
use acl_sys::*;
use harness::device;
use std::ptr::null;

mod harness;

#[test]
fn an_inference_card_lacks_operators() {
    acl_host::configure(Config { soc: Some("310P".into()), ..Config::default() }).unwrap();
    let d = device();
    let refusal = Err(ACLNN_ERR_PARAM_INVALID);

    let x = d.empty(ACL_FLOAT16, &[1, 2, 1, 8]);
    assert_eq!(d.aclnnRotaryPositionEmbedding(x.handle, x.handle, x.handle, 0, x.handle), refusal);
    assert!(d.message().contains("Ascend310P3"));

    let (a, b, out) = (d.empty(ACL_FLOAT, &[4, 4]), d.empty(ACL_FLOAT, &[4, 4]), d.empty(ACL_FLOAT, &[4, 4]));
    assert_eq!(d.aclnnMm(a.handle, b.handle, out.handle, KEEP_DTYPE), refusal);
    assert_eq!(d.aclnnMm(a.handle, b.handle, out.handle, USE_FP16), Ok(()));

    let (x, y) = (d.empty(ACL_FLOAT16, &[1, 64]), d.empty(ACL_FLOAT16, &[1, 8]));
    let weight = |dtype| d.transposed(&d.bytes(dtype, &[8, 64], &[0; 512]));
    let (groups, outputs) = (d.empty(ACL_FLOAT16, &[2, 8]), d.empty(ACL_FLOAT16, &[1, 8]));
    let call = |w: &harness::Tensor, scale: &harness::Tensor, group| {
        d.aclnnWeightQuantBatchMatmulV2(
            x.handle,
            w.handle,
            scale.handle,
            null(),
            null(),
            null(),
            null(),
            group,
            y.handle,
        )
    };
    assert_eq!(call(&weight(ACL_INT8), &groups, 32), refusal);
    assert_eq!(call(&weight(ACL_INT4), &outputs, 0), refusal);
    assert_eq!(call(&weight(ACL_INT8), &outputs, 0), Ok(()), "{}", d.message());
}
