//! An index outside its dim: told at the next synchronisation of its stream, once, and the device goes on.

mod harness;

use std::sync::{Mutex, MutexGuard, PoisonError};

use acl_sys::*;
use harness::*;

/// One test at a time: synchronising the device tells of every stream.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn an_index_outside_is_told_once_and_costs_nothing_more() {
    let _turn = alone();
    let d = device();
    for bad in [5.0, -1.0, 2e9] {
        for gather in [true, false] {
            let table = d.tensor(ACL_FLOAT, &[5, 2], &[-1.0; 10]);
            let rows = d.tensor(ACL_FLOAT, &[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
            let index = d.tensor(ACL_INT32, &[3], &[1.0, bad, 3.0]);
            let result = if gather {
                d.aclnnGatherV2(table.handle, 0, index.handle, rows.handle)
            } else {
                d.aclnnInplaceIndexCopy(table.handle, 0, index.handle, rows.handle)
            };
            assert_eq!(result, Err(ACL_ERROR_RT_PARAM_INVALID));
            let message = d.message();
            let name = if gather { "aclnnGatherV2" } else { "aclnnInplaceIndexCopy" };
            let parts = [name, &format!("index {bad} at place 1"), "outside a dim of 5"];
            assert!(parts.iter().all(|part| message.contains(part)), "{message}");
            // The other rows were moved.
            if gather {
                near(&rows.read(), &[-1.0, -1.0, 3.0, 4.0, -1.0, -1.0], 0.0);
            } else {
                near(&table.read()[2..8], &[1.0, 2.0, -1.0, -1.0, 5.0, 6.0], 0.0);
            }
            d.sync().unwrap();
            d.aclnnInplaceMuls(table.handle, d.f32(0.0).handle).unwrap();
            near(&table.read(), &[0.0; 10], 0.0);
        }
    }
}

#[test]
fn events_queries_and_the_device_tell_as_well() {
    let _turn = alone();
    let d = device();
    let table = d.tensor(ACL_FLOAT, &[4, 1], &[1.0; 4]);
    let index = d.tensor(ACL_INT64, &[2], &[4.0, 9.0]);
    let out = d.empty(ACL_FLOAT, &[2, 1]);
    let launch = |times: usize| {
        for _ in 0..times {
            let (mut bytes, mut executor) = (0, std::ptr::null_mut());
            // SAFETY: live handles; the operator needs no workspace.
            unsafe {
                let size = d.api.aclnnEmbeddingGetWorkspaceSize;
                assert_eq!(size(table.handle, index.handle, out.handle, &mut bytes, &mut executor), ACL_SUCCESS);
                assert_eq!((d.api.aclnnEmbedding)(std::ptr::null_mut(), 0, executor, d.stream), ACL_SUCCESS);
            }
        }
    };
    // SAFETY: out-pointers are locals, handles are live until they are destroyed.
    unsafe {
        let mut event = std::ptr::null_mut();
        assert_eq!((d.api.aclrtCreateEvent)(&mut event), ACL_SUCCESS);
        launch(3);
        assert_eq!((d.api.aclrtRecordEvent)(event, d.stream), ACL_SUCCESS);
        assert_eq!((d.api.aclrtSynchronizeEvent)(event), ACL_ERROR_RT_PARAM_INVALID);
        let message = d.message();
        assert!(message.contains("aclnnEmbedding: index 4 at place 0"), "{message}");
        assert!(message.contains("2 launches more"), "{message}");
        assert_eq!((d.api.aclrtSynchronizeEvent)(event), ACL_SUCCESS);
        assert_eq!(d.sync(), Ok(()));

        // An event tells of what was launched before it, however late it is asked.
        let mut later = std::ptr::null_mut();
        assert_eq!((d.api.aclrtCreateEvent)(&mut later), ACL_SUCCESS);
        assert_eq!((d.api.aclrtRecordEvent)(event, d.stream), ACL_SUCCESS);
        launch(2);
        assert_eq!((d.api.aclrtRecordEvent)(later, d.stream), ACL_SUCCESS);
        launch(1);
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!((d.api.aclrtSynchronizeEvent)(event), ACL_SUCCESS);
        assert_eq!((d.api.aclrtSynchronizeEvent)(later), ACL_ERROR_RT_PARAM_INVALID);
        assert!(d.message().contains("1 launches more"), "{}", d.message());
        assert_eq!((d.api.aclrtSynchronizeEvent)(later), ACL_SUCCESS);
        assert_eq!(d.sync(), Err(ACL_ERROR_RT_PARAM_INVALID));
        assert_eq!((d.api.aclrtDestroyEvent)(later), ACL_SUCCESS);

        launch(1);
        let mut status = -1;
        let told = loop {
            match (d.api.aclrtStreamQuery)(d.stream, &mut status) {
                ACL_SUCCESS if status == ACL_STREAM_STATUS_NOT_READY => std::thread::yield_now(),
                code => break code,
            }
        };
        assert_eq!(told, ACL_ERROR_RT_PARAM_INVALID);
        assert_eq!((d.api.aclrtStreamQuery)(d.stream, &mut status), ACL_SUCCESS);

        launch(1);
        assert_eq!((d.api.aclrtSynchronizeDevice)(), ACL_ERROR_RT_PARAM_INVALID);
        assert_eq!((d.api.aclrtSynchronizeDevice)(), ACL_SUCCESS);
        assert_eq!((d.api.aclrtDestroyEvent)(event), ACL_SUCCESS);
    }
    near(&table.read(), &[1.0; 4], 0.0);
}
