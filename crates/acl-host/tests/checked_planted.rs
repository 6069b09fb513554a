//! Checked mode: one bug of each kind is planted through the function table and must be named, and a program without bugs must
//! not be. A binary of its own, because the mode is of the process; each test has a device of its own.

mod runtime_common;

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use acl_host::{Config, configure, findings};
use runtime_common::*;

const BYTES: usize = 256;

/// The table with checked mode on, and a turn alone: findings are of the process.
fn checked(device: i32) -> (&'static AclApi, MutexGuard<'static, ()>) {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // The first test decides, the others agree.
    configure(Config { check: Some(true), ..Config::default() }).unwrap();
    (on(device), turn)
}

/// What is found while `plant` runs, and its answer.
fn found<T>(plant: impl FnOnce() -> T) -> (T, Vec<String>) {
    let before = findings().len();
    let answer = plant();
    (answer, findings().split_off(before))
}

/// The call fails with `code`, and one finding and the message have all of `parts`.
#[track_caller]
fn names(code: aclError, parts: &[&str], plant: impl FnOnce() -> aclError) {
    message();
    let (answer, found) = found(plant);
    let message = message();
    assert_eq!(answer, code, "{message}");
    assert_eq!(found.len(), 1, "{found:#?}");
    for part in parts {
        assert!(found[0].contains(part), "no {part:?} in {:?}", found[0]);
        assert!(message.contains(part), "no {part:?} in {message:?}");
    }
}

fn describe(api: &AclApi, memory: *mut c_void, dims: &[i64], strides: &[i64]) -> *mut aclTensor {
    // SAFETY: the arrays are as long as said; what the memory is, is what these tests are about.
    let tensor = unsafe {
        let rank = dims.len() as u64;
        let (dims, strides) = (dims.as_ptr(), strides.as_ptr());
        (api.aclCreateTensor)(dims, rank, ACL_FLOAT, strides, 0, ACL_FORMAT_ND, dims, rank, memory)
    };
    assert!(!tensor.is_null());
    tensor
}

/// `to = |from|` for tensors of 64 floats; the answer is of the second phase.
fn abs(api: &AclApi, from: *mut c_void, to: *mut c_void, stream: aclrtStream) -> aclError {
    abs_of(api, [from, to], &[64], &[1], stream)
}

fn abs_of(api: &AclApi, memory: [*mut c_void; 2], dims: &[i64], strides: &[i64], stream: aclrtStream) -> aclError {
    let [from, to] = memory.map(|memory| describe(api, memory, dims, strides));
    let (mut bytes, mut executor) = (0, null_mut());
    // SAFETY: live handles; the operator needs no workspace.
    unsafe {
        ok((api.aclnnAbsGetWorkspaceSize)(from, to, &mut bytes, &mut executor));
        assert_eq!(bytes, 0);
        let code = (api.aclnnAbs)(null_mut(), 0, executor, stream);
        ok((api.aclDestroyTensor)(from));
        ok((api.aclDestroyTensor)(to));
        code
    }
}

const LAUNCH: aclError = ACLNN_ERR_RUNTIME_ERROR;
const CALL: aclError = ACL_ERROR_RT_PARAM_INVALID;

#[test]
fn descriptors_outside_their_memory_are_named_with_its_history() {
    let (api, _turn) = checked(0);
    let (a, b, pinned) = (malloc(api, BYTES), malloc(api, BYTES), malloc_host(api, BYTES));
    // SAFETY: see the file of the shared parts: locals, and what the device must refuse.
    unsafe {
        let long = ["aclnnAbs: self_ at", "1024 bytes", "leaves the 256 bytes", "allocated by aclrtMalloc (call "];
        names(LAUNCH, &long, || abs_of(api, [a, b], &[256], &[1], null_mut()));
        names(LAUNCH, &["out at", "is host memory", "aclrtMallocHost"], || abs(api, a, pinned, null_mut()));
        ok((api.aclrtFree)(a));
        let gone = ["self_", "not inside live", "256 bytes", "allocated by aclrtMalloc", "freed by aclrtFree (call "];
        names(LAUNCH, &gone, || abs(api, a, b, null_mut()));
        let twice = ["aclrtFree", "not freed yet", "freed by aclrtFree (call "];
        names(ACL_ERROR_INVALID_PARAM, &twice, || (api.aclrtFree)(a));
        names(CALL, &["aclrtMemset", "freed by aclrtFree"], || (api.aclrtMemset)(a, BYTES, 0, BYTES));
        names(CALL, &["aclrtMemcpy", "freed memory", "freed by aclrtFree"], || {
            (api.aclrtMemcpy)(b, BYTES, a, BYTES, ACL_MEMCPY_HOST_TO_DEVICE)
        });
        names(CALL, &["aclrtMemset", "leave an allocation of 256 bytes", "allocated by aclrtMalloc"], || {
            (api.aclrtMemset)(b, 512, 0, 257)
        });
        ok((api.aclrtFree)(b));
        ok((api.aclrtFreeHost)(pinned));
        ok((api.aclrtResetDevice)(0));
    }
}

#[test]
fn memory_is_not_freed_under_work_nobody_waited_for() {
    let (api, _turn) = checked(1);
    let (a, b, stream) = (malloc(api, BYTES), malloc(api, BYTES), stream(api));
    let pinned = malloc_host(api, BYTES);
    // SAFETY: as above.
    unsafe {
        ok(abs(api, a, b, stream));
        // What has run by now does not matter.
        std::thread::sleep(std::time::Duration::from_millis(20));
        let reads = ["aclrtFree", "still in use", "aclnnAbs (call ", "reads it as self_", "aclrtMalloc (call "];
        names(CALL, &reads, || (api.aclrtFree)(a));
        // It happened all the same.
        names(ACL_ERROR_INVALID_PARAM, &["freed by aclrtFree"], || (api.aclrtFree)(a));
        names(LAUNCH, &["self_", "freed by aclrtFree"], || abs(api, a, b, stream));
        names(CALL, &["writes it as out"], || (api.aclrtFree)(b));
        let a = malloc(api, BYTES);
        ok((api.aclrtMemcpyAsync)(a, BYTES, pinned, BYTES, ACL_MEMCPY_HOST_TO_DEVICE, stream));
        names(CALL, &["aclrtFreeHost", "aclrtMemcpyAsync (call ", "src"], || (api.aclrtFreeHost)(pinned));
        ok((api.aclrtSynchronizeDevice)());
        ok((api.aclrtFree)(a));
        ok((api.aclrtDestroyStream)(stream));
        ok((api.aclrtResetDevice)(1));
    }
}

#[test]
fn a_model_that_outlives_its_memory_is_refused() {
    let (api, _turn) = checked(2);
    let (a, b, stream) = (malloc(api, BYTES), malloc(api, BYTES), stream(api));
    let mut model = null_mut();
    // SAFETY: as above.
    unsafe {
        ok((api.aclmdlRICaptureBegin)(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
        ok(abs(api, a, b, stream));
        ok((api.aclmdlRICaptureEnd)(stream, &mut model));
        ok((api.aclmdlRIExecuteAsync)(model, stream));
        // The other stream is not ordered after the model.
        let race = ["aclrtMemsetAsync: devPtr", "which stream", "aclnnAbs", "writes as out", "no event"];
        names(CALL, &race, || (api.aclrtMemsetAsync)(b, BYTES, 0, BYTES, null_mut()));
        ok((api.aclrtSynchronizeStream)(stream));
        ok((api.aclrtFree)(a));
        let stale = ["aclmdlRIExecuteAsync", "captured aclnnAbs (call ", "self_", "freed by aclrtFree"];
        names(CALL, &stale, || (api.aclmdlRIExecuteAsync)(model, stream));
        ok((api.aclmdlRIDestroy)(model));
        let ended = ["this model of device 2", "was ended by aclmdlRIDestroy"];
        names(ACL_ERROR_RT_INVALID_HANDLE, &ended, || (api.aclmdlRIExecuteAsync)(model, stream));
        ok((api.aclrtFree)(b));
        ok((api.aclrtDestroyStream)(stream));
        ok((api.aclrtResetDevice)(2));
    }
}

#[test]
fn streams_without_order_are_told_apart() {
    let (api, _turn) = checked(3);
    let (a, b, c) = (malloc(api, BYTES), malloc(api, BYTES), malloc(api, BYTES));
    let (first, second, event) = (stream(api), stream(api), event(api));
    // SAFETY: as above.
    unsafe {
        ok(abs(api, a, b, first));
        let race =
            ["aclnnAbs: self_ at", "reads", "is also what aclnnAbs (call ", "writes as out on stream", "no event"];
        names(LAUNCH, &race, || abs(api, b, c, second));
        names(LAUNCH, &["out at", "reads as self_"], || abs(api, c, a, second));
        // Two readers are no race.
        ok(abs(api, a, c, second));
        // A wait before the record is for nothing.
        ok((api.aclrtStreamWaitEvent)(second, event));
        names(LAUNCH, &race, || abs(api, b, c, second));
        ok((api.aclrtRecordEvent)(event, first));
        // What is submitted after the record is not covered by it.
        ok(abs(api, a, b, first));
        ok((api.aclrtStreamWaitEvent)(second, event));
        names(LAUNCH, &race, || abs(api, b, c, second));
        ok((api.aclrtRecordEvent)(event, first));
        ok((api.aclrtStreamWaitEvent)(second, event));
        ok(abs(api, b, c, second));
        // The order is of one direction.
        names(CALL, &["aclrtMemsetAsync: devPtr", "reads as self_"], || {
            (api.aclrtMemsetAsync)(b, BYTES, 0, BYTES, first)
        });
        ok((api.aclrtSynchronizeStream)(second));
        ok((api.aclrtMemsetAsync)(b, BYTES, 0, BYTES, first));
        ok((api.aclrtSynchronizeStream)(first));
        for memory in [a, b, c] {
            ok((api.aclrtFree)(memory));
        }
        ok((api.aclrtDestroyEvent)(event));
        ok((api.aclrtDestroyStream)(first));
        ok((api.aclrtDestroyStream)(second));
        ok((api.aclrtResetDevice)(3));
    }
}

#[test]
fn the_host_waits_before_it_touches() {
    let (api, _turn) = checked(4);
    let (a, b, stream, event) = (malloc(api, BYTES), malloc(api, BYTES), stream(api), event(api));
    let mut bytes = [0u8; BYTES];
    // SAFETY: as above.
    unsafe {
        ok(abs(api, a, b, stream));
        ok((api.aclrtRecordEvent)(event, stream));
        let to_host = ACL_MEMCPY_DEVICE_TO_HOST;
        let read = ["aclrtMemcpy: src at", "the host reads", "aclnnAbs (call ", "writes as out", "nothing has waited"];
        names(CALL, &read, || (api.aclrtMemcpy)(bytes.as_mut_ptr().cast(), BYTES, b, BYTES, to_host));
        names(CALL, &["aclrtMemset: devPtr", "the host writes", "reads as self_"], || {
            (api.aclrtMemset)(a, BYTES, 0, BYTES)
        });
        // Reading what is read is fine, and so is what an event or a query has told to be past.
        ok((api.aclrtMemcpy)(bytes.as_mut_ptr().cast(), BYTES, a, BYTES, to_host));
        ok((api.aclrtSynchronizeEvent)(event));
        ok((api.aclrtMemcpy)(bytes.as_mut_ptr().cast(), BYTES, b, BYTES, to_host));
        ok((api.aclrtMemsetAsync)(a, BYTES, 0, BYTES, stream));
        let mut status = ACL_STREAM_STATUS_NOT_READY;
        while status == ACL_STREAM_STATUS_NOT_READY {
            ok((api.aclrtStreamQuery)(stream, &mut status));
        }
        ok((api.aclrtMemset)(a, BYTES, 0, BYTES));
        ok((api.aclrtFree)(a));
        ok((api.aclrtFree)(b));
        ok((api.aclrtDestroyEvent)(event));
        ok((api.aclrtDestroyStream)(stream));
        ok((api.aclrtResetDevice)(4));
    }
}

#[test]
fn a_reset_lists_what_is_left() {
    let (api, _turn) = checked(5);
    // SAFETY: as above.
    unsafe {
        let (_, quiet) = found(|| ok((api.aclrtResetDevice)(5)));
        assert_eq!(quiet, [""; 0]);
        on(5);
        malloc(api, BYTES);
        malloc(api, 3 * BYTES);
        let (kept, mut model) = (stream(api), null_mut());
        event(api);
        ok((api.aclmdlRICaptureBegin)(kept, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
        ok((api.aclmdlRICaptureEnd)(kept, &mut model));
        ok(abs(api, malloc(api, BYTES), malloc(api, BYTES), null_mut()));
        let left = [
            "aclrtResetDevice: device 5",
            "4 allocations: 256 bytes at",
            "from aclrtMalloc (call ",
            "768 bytes at",
            "1 stream:",
            "from aclrtCreateStream (call ",
            "1 event:",
            "1 model:",
        ];
        names(CALL, &left, || (api.aclrtResetDevice)(5));
        // It was reset all the same, and who forces it gives up what is left.
        fails((api.aclrtResetDevice)(5), ACL_ERROR_RT_CONTEXT_NULL);
        on(5);
        malloc(api, BYTES);
        let (_, quiet) = found(|| ok((api.aclrtResetDeviceForce)(5)));
        assert_eq!(quiet, [""; 0]);
    }
}

#[test]
fn wrong_threads_and_devices_are_told_the_owner() {
    let (api, _turn) = checked(6);
    let (stream, event, memory) = (stream(api), event(api), malloc(api, BYTES));
    let (raw_stream, raw_event) = (stream.addr(), event.addr());
    // SAFETY: as above.
    unsafe {
        std::thread::spawn(move || {
            let (stream, event) =
                (std::ptr::without_provenance_mut(raw_stream), std::ptr::without_provenance_mut(raw_event));
            let none = ["this thread has no device"];
            names(ACL_ERROR_RT_CONTEXT_NULL, &none, || (api.aclrtSynchronizeStream)(stream));
            on(7);
            let owner = ["this stream of device 6 was made by aclrtCreateStream (call ", "device 7 is current"];
            names(ACL_ERROR_RT_STREAM_CONTEXT, &owner, || (api.aclrtSynchronizeStream)(stream));
            let owner = ["this event of device 6 was made by aclrtCreateEvent"];
            names(ACL_ERROR_RT_STREAM_CONTEXT, &owner, || (api.aclrtRecordEvent)(event, null_mut()));
            ok((api.aclrtResetDevice)(7));
        })
        .join()
        .unwrap();
        on(7);
        let own = malloc(api, BYTES);
        names(LAUNCH, &["is memory of device 6", "device 7 has no access"], || abs(api, memory, own, null_mut()));
        ok((api.aclrtDeviceEnablePeerAccess)(6, 0));
        ok(abs(api, memory, own, null_mut()));
        ok((api.aclrtSynchronizeDevice)());
        ok((api.aclrtFree)(own));
        ok((api.aclrtResetDevice)(7));
        on(6);
        ok((api.aclrtDestroyStream)(stream));
        let ended = ["aclrtSynchronizeStream", "was destroyed", "was ended by aclrtDestroyStream (call "];
        names(ACL_ERROR_RT_INVALID_HANDLE, &ended, || (api.aclrtSynchronizeStream)(stream));
        ok((api.aclrtDestroyEvent)(event));
        ok((api.aclrtFree)(memory));
        ok((api.aclrtResetDevice)(6));
    }
}

#[test]
fn captures_have_rules() {
    let (api, _turn) = checked(8);
    let (stream, mut model) = (stream(api), null_mut());
    // SAFETY: as above.
    unsafe {
        names(ACL_ERROR_RT_STREAM_NOT_CAPTURED, &["not being captured"], || {
            (api.aclmdlRICaptureEnd)(stream, &mut model)
        });
        ok((api.aclmdlRICaptureBegin)(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
        let mut memory = null_mut();
        names(ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT, &["aclrtMalloc", "forbids allocation"], || {
            (api.aclrtMalloc)(&mut memory, BYTES, ACL_MEM_MALLOC_HUGE_FIRST)
        });
        names(ACL_ERROR_RT_STREAM_CAPTURED, &["aclrtSynchronizeStream", "invalid now"], || {
            (api.aclrtSynchronizeStream)(stream)
        });
        names(ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED, &["aclmdlRICaptureEnd"], || {
            (api.aclmdlRICaptureEnd)(stream, &mut model)
        });
        ok((api.aclrtDestroyStream)(stream));
        ok((api.aclrtResetDevice)(8));
    }
}

#[test]
fn mapped_memory_is_watched_like_any_other() {
    let (api, _turn) = checked(9);
    let mut prop = aclrtPhysicalMemProp {
        memAttr: ACL_HBM_MEM_HUGE,
        location: aclrtMemLocation { id: 9, r#type: ACL_MEM_LOCATION_TYPE_DEVICE },
        ..Default::default()
    };
    let (mut range, mut parts, mut chunk) = (null_mut(), [null_mut(); 2], 0);
    let stream = stream(api);
    // SAFETY: as above.
    unsafe {
        ok((api.aclrtMemGetAllocationGranularity)(&mut prop, ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM, &mut chunk));
        ok((api.aclrtReserveMemAddress)(&mut range, 2 * chunk, 0, null_mut(), 1));
        for (i, part) in parts.iter_mut().enumerate() {
            ok((api.aclrtMallocPhysical)(part, chunk, &prop, 0));
            ok((api.aclrtMapMem)(range.byte_add(i * chunk), chunk, 0, *part, 0));
        }
        // Over the seam of both.
        ok((api.aclrtMemsetAsync)(range.byte_add(chunk - 128), BYTES, 0, BYTES, stream));
        let (low, high) = (range, range.byte_add(chunk));
        let busy = ["aclrtUnmapMem", "aclrtMemsetAsync (call ", "allocated by aclrtMapMem"];
        names(CALL, &busy, || (api.aclrtUnmapMem)(high));
        names(CALL, &busy, || (api.aclrtUnmapMem)(low));
        ok((api.aclrtSynchronizeStream)(stream));
        names(CALL, &["aclrtMemset", "freed by aclrtUnmapMem"], || (api.aclrtMemset)(high, BYTES, 0, BYTES));
        ok((api.aclrtDestroyStream)(stream));
        names(CALL, &["1 address range:", "2 physical allocations:", "from aclrtMallocPhysical"], || {
            (api.aclrtResetDevice)(9)
        });
    }
}

#[test]
fn a_program_without_bugs_has_no_finding() {
    let (api, _turn) = checked(10);
    let ((), found) = found(|| {
        let (copies, work) = (stream(api), stream(api));
        let (loaded, used) = (event(api), event(api));
        let pinned = malloc_host(api, 8 * BYTES);
        let (input, output) = (malloc(api, BYTES), malloc(api, 4 * BYTES));
        // SAFETY: as above.
        unsafe {
            for round in 0..50 {
                let part = pinned.byte_add(round % 8 * BYTES);
                ok((api.aclrtStreamWaitEvent)(copies, used));
                ok((api.aclrtMemcpyAsync)(input, BYTES, part, BYTES, ACL_MEMCPY_HOST_TO_DEVICE, copies));
                ok((api.aclrtRecordEvent)(loaded, copies));
                ok((api.aclrtStreamWaitEvent)(work, loaded));
                ok(abs(api, input, output, work));
                ok((api.aclrtRecordEvent)(used, work));
                // A buffer of the round, freed when the round is past.
                let scratch = malloc(api, BYTES);
                ok(abs(api, output, scratch, work));
                ok((api.aclrtSynchronizeStream)(work));
                ok((api.aclrtFree)(scratch));
            }
            // Columns of one matrix for two streams: rows of 8 of 16 floats.
            let right = output.byte_add(32);
            for _ in 0..4 {
                ok(abs_of(api, [output, output], &[16, 8], &[16, 1], copies));
                ok(abs_of(api, [right, right], &[16, 8], &[16, 1], work));
            }
            let mut model = null_mut();
            ok((api.aclmdlRICaptureBegin)(work, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
            ok((api.aclrtStreamWaitEvent)(work, loaded));
            ok(abs(api, input, output, work));
            ok((api.aclrtRecordEvent)(used, work));
            ok((api.aclmdlRICaptureEnd)(work, &mut model));
            ok((api.aclrtRecordEvent)(loaded, copies));
            for _ in 0..3 {
                ok((api.aclmdlRIExecuteAsync)(model, work));
                ok((api.aclrtStreamWaitEvent)(copies, used));
                ok((api.aclrtMemsetAsync)(input, BYTES, 1, BYTES, copies));
                ok((api.aclrtRecordEvent)(loaded, copies));
            }
            // Another thread frees what this one waited for.
            ok((api.aclrtSynchronizeDevice)());
            let raw = input.addr();
            let free = move || {
                on(10);
                ok((api.aclrtFree)(std::ptr::with_exposed_provenance_mut(raw)));
                ok((api.aclrtResetDevice)(10));
            };
            std::thread::spawn(free).join().unwrap();
            ok((api.aclrtFree)(output));
            ok((api.aclrtFreeHost)(pinned));
            ok((api.aclmdlRIDestroy)(model));
            for event in [loaded, used] {
                ok((api.aclrtDestroyEvent)(event));
            }
            for stream in [copies, work] {
                ok((api.aclrtDestroyStream)(stream));
            }
            ok((api.aclrtResetDevice)(10));
        }
    });
    assert_eq!(found, [""; 0]);
}
