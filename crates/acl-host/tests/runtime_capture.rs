//! Captured models through the function table. A capture may forbid calls of every thread, so these tests are a process of
//! their own and run one after the other.

mod runtime_common;

use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use runtime_common::*;

fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_capture_is_recorded_and_replayed_in_order() {
    let _alone = alone();
    let api = on(0);
    // SAFETY: pointers are locals or device memory.
    unsafe {
        let (stream, a, b, out) = (stream(api), malloc(api, 64), malloc(api, 64), malloc_host(api, 64));
        let done = event(api);
        ok((api.aclrtMemset)(a, 64, 1, 64));
        ok((api.aclmdlRICaptureBegin)(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
        let (mut status, mut building) = (-1, null_mut());
        ok((api.aclmdlRICaptureGetInfo)(stream, &mut status, &mut building));
        assert_eq!(status, ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE);
        ok((api.aclrtMemcpyAsync)(b, 64, a, 64, ACL_MEMCPY_DEVICE_TO_DEVICE, stream));
        ok((api.aclrtMemcpyAsync)(out, 64, b, 64, ACL_MEMCPY_DEVICE_TO_HOST, stream));
        ok((api.aclrtRecordEvent)(done, stream));
        ok((api.aclrtStreamWaitEvent)(stream, done));
        ok((api.aclrtMemsetAsync)(b, 64, 9, 64, stream));
        fails((api.aclrtSynchronizeEvent)(done), ACL_ERROR_RT_EVENT_CAPTURED);
        fails((api.aclrtStreamWaitEvent)(null_mut(), done), ACL_ERROR_RT_EVENT_CAPTURED);
        let mut model = null_mut();
        ok((api.aclmdlRICaptureEnd)(stream, &mut model));
        assert_eq!(model, building);
        assert_eq!(acl_host::live().models, 1);
        ok((api.aclmdlRICaptureGetInfo)(stream, &mut status, null_mut()));
        assert_eq!(status, ACL_MODEL_RI_CAPTURE_STATUS_NONE);
        ok((api.aclrtSynchronizeStream)(stream));
        assert_eq!(download(api, b, 64), [0xA5; 64], "recorded, not done");

        let target = runtime_common::stream(api);
        for round in 2..20u8 {
            ok((api.aclrtMemset)(a, 64, round.into(), 64));
            ok((api.aclmdlRIExecuteAsync)(model, target));
            ok((api.aclrtSynchronizeEvent)(done));
            assert_eq!(download_host(out), [round; 64]);
            ok((api.aclrtSynchronizeStream)(target));
            assert_eq!(download(api, b, 64), [9; 64]);
        }
        on(1);
        fails((api.aclmdlRIExecuteAsync)(model, null_mut()), ACL_ERROR_RT_STREAM_CONTEXT);
        on(0);
        ok((api.aclmdlRIExecuteAsync)(model, target));
        ok((api.aclmdlRIDestroy)(model));
        fails((api.aclmdlRIDestroy)(model), ACL_ERROR_RT_INVALID_HANDLE);
        fails((api.aclmdlRIExecuteAsync)(model, target), ACL_ERROR_RT_INVALID_HANDLE);
        ok((api.aclrtSynchronizeDevice)());
        assert_eq!(acl_host::live().models, 0);
    }
}

fn download_host(pointer: *mut std::ffi::c_void) -> [u8; 64] {
    // SAFETY: 64 bytes of pinned host memory that nothing writes now.
    unsafe { pointer.cast::<[u8; 64]>().read() }
}

#[test]
fn global_mode_forbids_unsafe_calls_to_every_thread() {
    let _alone = alone();
    let api = on(2);
    // SAFETY: pointers are locals or device memory.
    unsafe {
        let (stream, memory, pinned) = (stream(api), malloc(api, 64), malloc_host(api, 64));
        ok((api.aclmdlRICaptureBegin)(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
        let (m, p) = (memory.expose_provenance(), pinned.expose_provenance());
        let try_all = move || {
            on(2);
            let (memory, pinned) = (std::ptr::with_exposed_provenance_mut(m), std::ptr::with_exposed_provenance_mut(p));
            let mut byte = 0u8;
            let host = (&raw mut byte).cast();
            let mut pointer = null_mut();
            let code = ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT;
            fails((api.aclrtMalloc)(&mut pointer, 8, 0), code);
            fails((api.aclrtMallocHost)(&mut pointer, 8), code);
            fails((api.aclrtFree)(memory), code);
            fails((api.aclrtFreeHost)(pinned), code);
            fails((api.aclrtMemcpy)(memory, 1, host, 1, ACL_MEMCPY_HOST_TO_DEVICE), code);
            fails((api.aclrtMemset)(memory, 1, 0, 1), code);
            fails((api.aclrtMemcpyAsync)(memory, 1, host, 1, ACL_MEMCPY_HOST_TO_DEVICE, null_mut()), code);
            fails((api.aclrtSynchronizeDevice)(), code);
            // Other streams go on.
            ok((api.aclrtMemcpyAsync)(memory, 1, pinned, 1, ACL_MEMCPY_HOST_TO_DEVICE, null_mut()));
            ok((api.aclrtSynchronizeStream)(null_mut()));
        };
        try_all();
        std::thread::spawn(try_all).join().unwrap();
        let pinned_in_capture = (api.aclrtMemcpyAsync)(memory, 1, pinned, 1, ACL_MEMCPY_HOST_TO_DEVICE, stream);
        fails(pinned_in_capture, ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT);
        let mut model = null_mut();
        ok((api.aclmdlRICaptureEnd)(stream, &mut model));
        ok((api.aclmdlRIDestroy)(model));
        ok((api.aclrtFree)(memory));
    }
}

#[test]
fn thread_local_mode_binds_one_thread_and_relaxed_none() {
    let _alone = alone();
    let api = on(3);
    // SAFETY: pointers are locals or device memory.
    unsafe {
        let (stream, mut model) = (stream(api), null_mut());
        let handle = stream.expose_provenance();
        ok((api.aclmdlRICaptureBegin)(stream, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL));
        fails((api.aclrtMalloc)(&mut null_mut(), 8, 0), ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT);
        let elsewhere = move || {
            on(3);
            malloc(api, 8);
            let stream = std::ptr::with_exposed_provenance_mut(handle);
            (api.aclmdlRICaptureEnd)(stream, &mut null_mut())
        };
        let code = std::thread::spawn(elsewhere).join().unwrap();
        assert_eq!(code, ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD);
        ok((api.aclmdlRICaptureEnd)(stream, &mut model));
        ok((api.aclmdlRICaptureBegin)(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
        malloc(api, 8);
        assert_eq!(std::thread::spawn(elsewhere).join().unwrap(), ACL_SUCCESS);
        ends((api.aclrtResetDevice)(3));
    }
}

#[test]
fn misuse_of_captures_has_its_codes() {
    let _alone = alone();
    let api = on(4);
    // SAFETY: pointers are locals or device memory.
    unsafe {
        let (stream, other, mut model) = (stream(api), stream(api), null_mut());
        let mode = ACL_MODEL_RI_CAPTURE_MODE_RELAXED;
        fails((api.aclmdlRICaptureBegin)(stream, 3), ACL_ERROR_INVALID_PARAM);
        fails((api.aclmdlRICaptureBegin)(null_mut(), mode), ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT);
        fails((api.aclmdlRICaptureEnd)(stream, &mut model), ACL_ERROR_RT_STREAM_NOT_CAPTURED);
        fails((api.aclmdlRIExecuteAsync)(null_mut(), stream), ACL_ERROR_INVALID_PARAM);
        ok((api.aclmdlRICaptureBegin)(stream, mode));
        ok((api.aclmdlRICaptureEnd)(stream, &mut model));
        ok((api.aclmdlRICaptureBegin)(stream, mode));
        fails((api.aclmdlRICaptureBegin)(stream, mode), ACL_ERROR_RT_STREAM_CAPTURED);
        fails((api.aclmdlRICaptureEnd)(other, &mut null_mut()), ACL_ERROR_RT_STREAM_NOT_CAPTURED);
        fails((api.aclmdlRIExecuteAsync)(model, stream), ACL_ERROR_RT_MODEL_CAPTURED);
        fails((api.aclrtDestroyStream)(stream), ACL_ERROR_RT_STREAM_CAPTURED);

        // An event of one capture is nothing to another.
        let event = event(api);
        ok((api.aclrtRecordEvent)(event, stream));
        ok((api.aclmdlRICaptureBegin)(other, mode));
        fails((api.aclrtStreamWaitEvent)(other, event), ACL_ERROR_RT_CAPTURE_DEPENDENCY);
        ok((api.aclmdlRICaptureEnd)(other, &mut null_mut()));

        // Asking the stream spoils its capture, which ends without a model.
        fails((api.aclrtSynchronizeStream)(stream), ACL_ERROR_RT_STREAM_CAPTURED);
        let mut status = -1;
        ok((api.aclmdlRICaptureGetInfo)(stream, &mut status, null_mut()));
        assert_eq!(status, ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED);
        let memory = malloc(api, 8);
        let code = ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED;
        fails((api.aclrtMemsetAsync)(memory, 8, 0, 8, stream), code);
        let mut none = memory;
        fails((api.aclmdlRICaptureEnd)(stream, &mut none), code);
        assert!(none.is_null());
        ok((api.aclrtMemsetAsync)(memory, 8, 0, 8, stream));
        ok((api.aclrtSynchronizeStream)(stream));
        ok((api.aclrtDestroyStream)(stream));

        // A reset ends models, and captures with their prohibitions.
        ok((api.aclmdlRICaptureBegin)(other, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
        ends((api.aclrtResetDevice)(4));
        on(4);
        malloc(api, 8);
        fails((api.aclmdlRIExecuteAsync)(model, null_mut()), ACL_ERROR_RT_INVALID_HANDLE);
        ends((api.aclrtResetDevice)(4));
    }
}

#[test]
fn a_model_waits_for_what_was_recorded_outside() {
    let _alone = alone();
    let api = on(5);
    const BYTES: usize = 4 << 20;
    // SAFETY: pointers are locals or device memory.
    unsafe {
        let (writer, reader) = (stream(api), stream(api));
        let (a, b, ready) = (malloc(api, BYTES), malloc(api, BYTES), event(api));
        ok((api.aclmdlRICaptureBegin)(reader, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
        ok((api.aclrtStreamWaitEvent)(reader, ready));
        ok((api.aclrtMemcpyAsync)(b, BYTES, a, BYTES, ACL_MEMCPY_DEVICE_TO_DEVICE, reader));
        let mut model = null_mut();
        ok((api.aclmdlRICaptureEnd)(reader, &mut model));
        for round in 0..20 {
            ok((api.aclrtMemsetAsync)(a, BYTES, round, BYTES, writer));
            ok((api.aclrtRecordEvent)(ready, writer));
            ok((api.aclmdlRIExecuteAsync)(model, reader));
            ok((api.aclrtSynchronizeStream)(reader));
            assert!(download(api, b, BYTES).iter().all(|byte| *byte == round as u8), "round {round}");
        }
        ends((api.aclrtResetDevice)(5));
    }
}

#[test]
fn an_operator_is_captured_with_its_descriptors_gone() {
    let _alone = alone();
    let api = on(6);
    // SAFETY: pointers are locals or device memory; descriptors live until the second phase has returned.
    unsafe {
        let (stream, input, output) = (stream(api), malloc(api, 16), malloc(api, 16));
        ok((api.aclmdlRICaptureBegin)(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
        let dims = [4i64];
        let tensor = |data| {
            let null = std::ptr::null();
            (api.aclCreateTensor)(dims.as_ptr(), 1, ACL_FLOAT, null, 0, ACL_FORMAT_ND, dims.as_ptr(), 1, data)
        };
        let (from, to) = (tensor(input), tensor(output));
        let (mut workspace_bytes, mut executor) = (0, null_mut());
        ok((api.aclnnAbsGetWorkspaceSize)(from, to, &mut workspace_bytes, &mut executor));
        let workspace = if workspace_bytes > 0 { malloc(api, workspace_bytes as usize) } else { null_mut() };
        ok((api.aclnnAbs)(workspace, workspace_bytes, executor, stream));
        ok((api.aclDestroyTensor)(from));
        ok((api.aclDestroyTensor)(to));
        let mut model = null_mut();
        ok((api.aclmdlRICaptureEnd)(stream, &mut model));
        for sign in [1.0f32, -1.0] {
            let values = [sign, 2.0 * sign, 3.0 * sign, -4.0 * sign];
            upload(api, input, &values.map(f32::to_ne_bytes).concat());
            ok((api.aclmdlRIExecuteAsync)(model, stream));
            ok((api.aclrtSynchronizeStream)(stream));
            assert_eq!(download(api, output, 16), [1.0f32, 2.0, 3.0, 4.0].map(f32::to_ne_bytes).concat());
        }
        ends((api.aclrtResetDevice)(6));
    }
}
