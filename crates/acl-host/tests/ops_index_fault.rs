//! An index outside its dim: the launch fails, told at the next synchronisation, and a reset makes the device usable again.
//!
//! A binary of its own, because what fails is the device that other tests would be using.

mod harness;

use acl_sys::*;
use harness::*;

#[test]
fn an_index_outside_is_told_at_synchronisation() {
    for bad in [5.0, -1.0, 2e9] {
        for gather in [true, false] {
            let d = device();
            let table = d.tensor(ACL_FLOAT, &[5, 2], &[-1.0; 10]);
            let rows = d.tensor(ACL_FLOAT, &[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
            let index = d.tensor(ACL_INT32, &[3], &[1.0, bad, 3.0]);
            let result = if gather {
                d.aclnnGatherV2(table.handle, 0, index.handle, rows.handle)
            } else {
                d.aclnnInplaceIndexCopy(table.handle, 0, index.handle, rows.handle)
            };
            assert_eq!(result, Err(ACL_ERROR_RT_VECTOR_CORE_EXCEPTION));
            for tensor in [table, rows, index] {
                tensor.abandon();
            }
            // SAFETY: a device number; all handles of the device are given up.
            assert_eq!(unsafe { (d.api.aclrtResetDeviceForce)(0) }, ACL_SUCCESS);
            let d = device();
            let fresh = d.tensor(ACL_FLOAT, &[2], &[1.0, 2.0]);
            d.aclnnInplaceMuls(fresh.handle, d.f32(2.0).handle).unwrap();
            near(&fresh.read(), &[2.0, 4.0], 0.0);
        }
    }
}
