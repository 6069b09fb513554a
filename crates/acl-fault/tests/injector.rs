//! The injector over a table of a few functions that count. Its state is the process's, so this is one test.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use acl_fault::{Fault, Mode, Outcome, arm, arm_all, calls, calls_of, disarm, failed, install, log, reset};
use acl_sys::*;

static SYNCS: AtomicU64 = AtomicU64::new(0);
static FREES: AtomicU64 = AtomicU64::new(0);
static EXECUTORS: AtomicU64 = AtomicU64::new(0);
static MODELS: AtomicU64 = AtomicU64::new(0);

fn inner() -> AclApi {
    unsafe extern "C" fn synchronize() -> aclError {
        SYNCS.fetch_add(1, Ordering::Relaxed);
        ACL_SUCCESS
    }
    unsafe extern "C" fn free(_: *mut c_void) -> aclError {
        FREES.fetch_add(1, Ordering::Relaxed);
        ACL_SUCCESS
    }
    unsafe extern "C" fn scalar(_: *mut c_void, _: aclDataType) -> *mut aclScalar {
        std::ptr::dangling_mut()
    }
    unsafe extern "C" fn repeatable(_: *mut aclOpExecutor) -> aclnnStatus {
        ACL_SUCCESS
    }
    unsafe extern "C" fn destroy(_: *mut aclOpExecutor) -> aclnnStatus {
        EXECUTORS.fetch_add(1, Ordering::Relaxed);
        ACL_SUCCESS
    }
    unsafe extern "C" fn end(_: aclrtStream, model: *mut aclmdlRI) -> aclError {
        // SAFETY: the caller gives a place for the model.
        unsafe { *model = std::ptr::dangling_mut::<u8>().cast() };
        ACL_SUCCESS
    }
    unsafe extern "C" fn destroy_model(_: aclmdlRI) -> aclError {
        MODELS.fetch_add(1, Ordering::Relaxed);
        ACL_SUCCESS
    }
    // SAFETY: no symbol is given.
    let mut api = unsafe { AclApi::from_symbols(|_| std::ptr::null()) };
    api.aclrtSynchronizeDevice = synchronize;
    api.aclrtFree = free;
    api.aclCreateScalar = scalar;
    api.aclSetAclOpExecutorRepeatable = repeatable;
    api.aclDestroyAclOpExecutor = destroy;
    api.aclmdlRICaptureEnd = end;
    api.aclmdlRIDestroy = destroy_model;
    api.present[AclFn::aclrtFree as usize] = true;
    api
}

#[test]
fn calls_are_counted_failed_and_logged() {
    let api = install(inner());
    assert!(api.has(AclFn::aclrtFree) && !api.has(AclFn::aclrtMalloc));
    let null = std::ptr::null_mut;
    // SAFETY: the functions above touch nothing but what they are given, the others are stubs.
    let (sync, free) = (|| unsafe { (api.aclrtSynchronizeDevice)() }, || unsafe { (api.aclrtFree)(null()) });

    // Any function, once.
    arm(Fault { code: 207001, ..Fault::nth(2) });
    assert_eq!([sync(), sync(), sync()], [0, 207001, 0]);
    assert_eq!((calls(), failed(), SYNCS.load(Ordering::Relaxed)), (3, 1, 2));
    let records = log();
    assert_eq!(records.iter().map(|r| r.number).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!((records[1].outcome, records[1].injected), (Outcome::Status(207001), true));

    // By name, from there on; a release is made all the same.
    reset();
    arm(Fault { function: Some(AclFn::aclrtFree), mode: Mode::From, ..Fault::nth(2) });
    assert_eq!([free(), sync(), free(), free()], [0, 0, 107000, 107000]);
    assert_eq!((calls(), calls_of(AclFn::aclrtFree), FREES.load(Ordering::Relaxed)), (4, 3, 3));
    disarm();
    assert_eq!(free(), 0);

    // Again and again, each function by its own count; where two meet the first answers.
    reset();
    let every = |nth, code, function| Fault { nth, code, function, mode: Mode::Every, ..Fault::nth(1) };
    arm_all(vec![every(4, 507015, None), every(2, 207001, Some(AclFn::aclrtFree))]);
    assert_eq!([free(), free(), free(), free(), free(), free()], [0, 207001, 0, 507015, 0, 207001]);
    assert_eq!([sync(), sync()], [0, 507015]);
    assert_eq!((calls(), failed(), FREES.load(Ordering::Relaxed)), (8, 4, 10));
    reset();
    arm(Fault { release_inner: false, mode: Mode::From, ..Fault::nth(1) });
    assert_eq!((free(), FREES.load(Ordering::Relaxed)), (107000, 10));

    // Pointers are null.
    // SAFETY: as above.
    assert!(unsafe { (api.aclCreateScalar)(null(), ACL_FLOAT) }.is_null());
    assert_eq!(log().last().unwrap().outcome, Outcome::Pointer(false));

    // A failed second phase takes a single-use executor with it and leaves a repeatable one.
    reset();
    let executor = std::ptr::dangling_mut::<u64>().cast::<aclOpExecutor>();
    let abs = AclFn::aclnnAbs;
    arm(Fault { function: Some(abs), mode: Mode::From, ..Fault::nth(1) });
    // SAFETY: as above; the executor is only a number here.
    unsafe {
        assert_eq!((api.aclnnAbs)(null(), 0, executor, null()), 107000);
        assert_eq!(EXECUTORS.load(Ordering::Relaxed), 1);
        assert_eq!((api.aclSetAclOpExecutorRepeatable)(executor), 0);
        assert_eq!((api.aclnnAbs)(null(), 0, executor, null()), 107000);
        assert_eq!(EXECUTORS.load(Ordering::Relaxed), 1);
        assert_eq!((api.aclDestroyAclOpExecutor)(executor), 0);
    }

    // A failed end of a capture leaves no model.
    reset();
    arm(Fault::nth(1));
    let mut model = null();
    // SAFETY: as above.
    assert_eq!(unsafe { (api.aclmdlRICaptureEnd)(null(), &mut model) }, 107000);
    assert!(model.is_null() && MODELS.load(Ordering::Relaxed) == 1);
}
