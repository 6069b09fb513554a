//! The runtime group through the function table, as a program uses it. Each test has a device of its own, because they run
//! side by side in one process. The calls are unsafe for what they do with pointers; the ones here give locals, slices, or
//! what the device must refuse.

mod runtime_common;

use std::ptr::{null, null_mut};

use runtime_common::*;

#[test]
fn a_second_init_is_told_and_harmless() {
    let api = api();
    // SAFETY: see the file.
    unsafe {
        fails((api.aclInit)(null()), ACL_ERROR_REPEAT_INITIALIZE);
        fails((api.aclInit)(c"/no/such/file".as_ptr()), ACL_ERROR_INVALID_FILE);
        let (mut major, mut minor, mut patch) = (0, 0, 0);
        ok((api.aclrtGetVersion)(&mut major, &mut minor, &mut patch));
        assert_eq!(major, 1);
        fails((api.aclrtGetVersion)(null_mut(), &mut minor, &mut patch), ACL_ERROR_INVALID_PARAM);
        let mut version = std::mem::zeroed();
        ok((api.aclsysGetCANNVersion)(ACL_PKG_NAME_CANN, &mut version));
        assert_ne!(version.version[0], 0);
        assert_ne!((api.aclsysGetCANNVersion)(ACL_PKG_NAME_DRIVER, &mut version), ACL_SUCCESS);
        assert_eq!(std::ffi::CStr::from_ptr((api.aclrtGetSocName)()), c"Host");
    }
    assert!(api.missing().is_empty());
}

#[test]
fn settings_cannot_change_after_first_use() {
    api();
    assert_eq!(acl_host::configure(acl_host::Config::default()), Ok(()));
    let other = acl_host::Config { devices: Some(3), ..Default::default() };
    assert_eq!(acl_host::configure(other), Err(acl_host::ConfigError::InUse { setting: "devices" }));
}

#[test]
fn messages_are_kept_per_thread_newest_first_and_cleared_by_reading() {
    let api = api();
    // SAFETY: see the file.
    unsafe {
        (api.aclrtFree)(null_mut());
        (api.aclrtSetDevice)(-1);
        std::thread::spawn(|| assert_eq!(message(), "")).join().unwrap();
        let text = message();
        let (first, second) = (text.find("aclrtSetDevice").unwrap(), text.find("aclrtFree").unwrap());
        assert!(first < second, "{text}");
        assert_eq!(message(), "");
        for _ in 0..1000 {
            (api.aclrtFree)(null_mut());
        }
        assert!(message().len() <= 4096);
    }
}

#[test]
fn a_thread_without_a_device_gets_107002() {
    let api = api();
    // SAFETY: see the file.
    unsafe {
        let mut pointer = null_mut();
        let mut byte = 0u8;
        let (mut id, mut number) = (0, 0usize);
        let host = (&raw mut byte).cast();
        let code = ACL_ERROR_RT_CONTEXT_NULL;
        fails((api.aclrtGetDevice)(&mut id), code);
        fails((api.aclrtMalloc)(&mut pointer, 1, 0), code);
        fails((api.aclrtMallocHost)(&mut pointer, 1), code);
        fails((api.aclrtCreateStream)(&mut pointer), code);
        fails((api.aclrtCreateEvent)(&mut pointer), code);
        fails((api.aclrtSynchronizeStream)(null_mut()), code);
        fails((api.aclrtSynchronizeDevice)(), code);
        fails((api.aclrtGetMemInfo)(ACL_HBM_MEM, &mut number, &mut number.clone()), code);
        fails((api.aclrtMemcpy)(host, 1, host.wrapping_byte_add(1), 1, ACL_MEMCPY_HOST_TO_HOST), code);
        fails((api.aclrtReserveMemAddress)(&mut pointer, 1, 0, null_mut(), 0), code);
        fails((api.aclmdlRICaptureBegin)(null_mut(), 0), code);
        fails((api.aclrtDeviceEnablePeerAccess)(1, 0), code);
        // Arguments by themselves are looked at before the context.
        fails((api.aclrtMalloc)(&mut pointer, 0, 0), ACL_ERROR_INVALID_PARAM);
        fails((api.aclrtMalloc)(null_mut(), 1, 0), ACL_ERROR_INVALID_PARAM);
        ok((api.aclrtMemcpy)(null_mut(), 0, null(), 0, 77));
        fails((api.aclrtMemcpy)(null_mut(), 1, host, 1, ACL_MEMCPY_HOST_TO_HOST), ACL_ERROR_INVALID_PARAM);
    }
}

#[test]
fn null_out_pointers_are_refused() {
    let api = on(0);
    // SAFETY: see the file.
    unsafe {
        let mut free = 0usize;
        let code = ACL_ERROR_INVALID_PARAM;
        fails((api.aclrtGetDeviceCount)(null_mut()), code);
        fails((api.aclrtGetDevice)(null_mut()), code);
        fails((api.aclrtGetMemInfo)(ACL_HBM_MEM, &mut free, null_mut()), code);
        fails((api.aclrtMallocHost)(null_mut(), 1), code);
        fails((api.aclrtCreateStream)(null_mut()), code);
        fails((api.aclrtCreateEvent)(null_mut()), code);
        fails((api.aclrtDeviceCanAccessPeer)(null_mut(), 0, 1), code);
        fails((api.aclmdlRICaptureEnd)(null_mut(), null_mut()), code);
        fails((api.aclrtStreamQuery)(null_mut(), null_mut()), code);
        fails((api.aclrtFree)(null_mut()), code);
        fails((api.aclrtFreeHost)(null_mut()), code);
        fails((api.aclrtDestroyStream)(null_mut()), code);
        fails((api.aclrtDestroyEvent)(null_mut()), code);
        fails((api.aclmdlRIDestroy)(null_mut()), code);
        fails((api.aclrtGetMemInfo)(99, &mut free, &mut free.clone()), code);
    }
}

#[test]
fn devices_are_counted_and_selected_per_thread() {
    let api = on(1);
    // SAFETY: see the file.
    unsafe {
        let mut count = 0;
        ok((api.aclrtGetDeviceCount)(&mut count));
        assert_eq!(count, 32);
        fails((api.aclrtSetDevice)(32), ACL_ERROR_RT_INVALID_DEVICEID);
        fails((api.aclrtSetDevice)(-1), ACL_ERROR_RT_INVALID_DEVICEID);
        fails((api.aclrtResetDevice)(99), ACL_ERROR_RT_INVALID_DEVICEID);
        let mut id = -1;
        ok((api.aclrtGetDevice)(&mut id));
        assert_eq!(id, 1);
        let other = std::thread::spawn(|| (api.aclrtGetDevice)(&mut 0)).join().unwrap();
        assert_eq!(other, ACL_ERROR_RT_CONTEXT_NULL);
    }
}

#[test]
fn reset_is_counted_and_at_zero_destroys_everything() {
    let api = on(2);
    on(2);
    // SAFETY: see the file.
    unsafe {
        let (stream, event, memory) = (stream(api), event(api), malloc(api, 100));
        ok((api.aclrtRecordEvent)(event, stream));
        ok((api.aclrtResetDevice)(2));
        ok((api.aclrtSynchronizeStream)(stream));
        let witness = std::thread::spawn(move || {
            on(2);
            ok((api.aclrtResetDevice)(2));
        });
        witness.join().unwrap();
        ends((api.aclrtResetDevice)(2));
        fails((api.aclrtSynchronizeDevice)(), ACL_ERROR_RT_CONTEXT_NULL);
        fails((api.aclrtResetDevice)(2), ACL_ERROR_RT_CONTEXT_NULL);
        on(2);
        fails((api.aclrtSynchronizeStream)(stream), ACL_ERROR_RT_INVALID_HANDLE);
        fails((api.aclrtDestroyStream)(stream), ACL_ERROR_RT_INVALID_HANDLE);
        fails((api.aclrtRecordEvent)(event, null_mut()), ACL_ERROR_RT_INVALID_HANDLE);
        fails((api.aclrtDestroyEvent)(event), ACL_ERROR_RT_INVALID_HANDLE);
        fails((api.aclrtFree)(memory), ACL_ERROR_INVALID_PARAM);
        assert_eq!(free_bytes(api), MEMORY_BYTES);
    }
}

#[test]
fn a_forced_reset_ends_all_at_once_also_for_other_threads() {
    let api = on(3);
    on(3);
    on(3);
    // SAFETY: see the file.
    unsafe {
        std::thread::spawn(move || {
            on(3);
            ok((api.aclrtResetDeviceForce)(3));
            fails((api.aclrtResetDeviceForce)(3), ACL_ERROR_RT_CONTEXT_NULL);
        })
        .join()
        .unwrap();
        fails((api.aclrtSynchronizeDevice)(), ACL_ERROR_RT_CONTEXT_NULL);
        assert!(!malloc(on(3), 10).is_null());
    }
}

#[test]
fn peers_are_others_and_access_has_a_direction() {
    let api = on(4);
    // SAFETY: see the file.
    unsafe {
        let mut can = -1;
        fails((api.aclrtDeviceCanAccessPeer)(&mut can, 4, 4), ACL_ERROR_INVALID_PARAM);
        fails((api.aclrtDeviceCanAccessPeer)(&mut can, 4, 40), ACL_ERROR_RT_INVALID_DEVICEID);
        ok((api.aclrtDeviceCanAccessPeer)(&mut can, 4, 5));
        assert_eq!(can, 1);
        fails((api.aclrtDeviceEnablePeerAccess)(4, 0), ACL_ERROR_INVALID_PARAM);
        fails((api.aclrtDeviceEnablePeerAccess)(5, 1), ACL_ERROR_FEATURE_UNSUPPORTED);
        fails((api.aclrtDeviceEnablePeerAccess)(99, 0), ACL_ERROR_RT_INVALID_DEVICEID);

        let here = malloc(api, 8);
        let there = malloc(on(5), 8);
        upload(api, there, b"12345678");
        let copy = || (api.aclrtMemcpy)(here, 8, there, 8, ACL_MEMCPY_DEVICE_TO_DEVICE);
        fails(copy(), ACL_ERROR_RT_PARAM_INVALID);
        on(4);
        ok((api.aclrtDeviceEnablePeerAccess)(5, 0));
        ok((api.aclrtDeviceEnablePeerAccess)(5, 0));
        ok(copy());
        assert_eq!(download(api, here, 8), b"12345678");
        ok((api.aclrtDeviceDisablePeerAccess)(5));
        fails(copy(), ACL_ERROR_RT_PARAM_INVALID);
    }
}

#[test]
fn memory_is_charged_rounded_up_and_comes_back() {
    let api = on(6);
    // SAFETY: see the file.
    unsafe {
        let before = free_bytes(api);
        for (bytes, charged) in [(1, 64), (32, 64), (33, 96), (1 << 20, (1 << 20) + 32), (5 << 20, (5 << 20) + 32)] {
            let pointer = malloc(api, bytes);
            assert_eq!(before - free_bytes(api), charged);
            ok((api.aclrtFree)(pointer));
            assert_eq!(free_bytes(api), before);
            fails((api.aclrtFree)(pointer), ACL_ERROR_INVALID_PARAM);
        }
        let mut pointer = null_mut();
        fails((api.aclrtMalloc)(&mut pointer, MEMORY_BYTES, 0), ACL_ERROR_RT_MEMORY_ALLOCATION);
        let huge = (api.aclrtMalloc)(&mut pointer, usize::MAX - 3, 0);
        fails(huge, ACL_ERROR_RT_MEMORY_ALLOCATION);
        let most = malloc(api, MEMORY_BYTES - 32);
        let code = (api.aclrtMalloc)(&mut pointer, 1000, 0);
        assert_eq!(code, ACL_ERROR_RT_MEMORY_ALLOCATION);
        let text = message();
        assert!(text.contains("has 0 of 67108864 bytes free, 1056 were asked for"), "{text}");
        // Pinned host memory is not the device's.
        let host = malloc_host(api, 4 << 20);
        fails((api.aclrtFree)(host), ACL_ERROR_INVALID_PARAM);
        fails((api.aclrtFreeHost)(most), ACL_ERROR_INVALID_PARAM);
        ok((api.aclrtFreeHost)(host));
        ok((api.aclrtFree)(most));
        // Nobody has that much, and writing to what is not there would end the process.
        fails((api.aclrtMallocHost)(&mut pointer, 1 << 46), ACL_ERROR_RT_MEMORY_ALLOCATION);
        let inside = malloc(api, 100);
        fails((api.aclrtFree)(inside.byte_add(64)), ACL_ERROR_INVALID_PARAM);
        ok((api.aclrtFree)(inside));
    }
}

#[test]
fn fresh_memory_is_poisoned() {
    let api = on(7);
    // SAFETY: see the file.
    unsafe {
        for bytes in [1, 100, 70_000, 900_000, 1_000_000] {
            let pointer = malloc(api, bytes);
            assert!(download(api, pointer, bytes).iter().all(|b| *b == 0xA5), "{bytes}");
            ok((api.aclrtMemset)(pointer, bytes, 0, bytes));
            ok((api.aclrtFree)(pointer));
            let again = malloc(api, bytes);
            assert!(download(api, again, bytes).iter().all(|b| *b == 0xA5), "{bytes} again");
            ok((api.aclrtFree)(again));
        }
    }
}

#[test]
fn ten_thousand_small_buffers_do_not_overlap() {
    let api = on(8);
    // SAFETY: see the file.
    unsafe {
        let buffers: Vec<_> = (0..10_000usize).map(|i| (malloc(api, 1 + i % 700), 1 + i % 700)).collect();
        let mut ranges: Vec<_> = buffers.iter().map(|(p, bytes)| (p.addr(), *bytes)).collect();
        ranges.sort();
        assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
        buffers.iter().for_each(|(pointer, _)| ok((api.aclrtFree)(*pointer)));
        assert_eq!(free_bytes(api), MEMORY_BYTES);
    }
}

#[test]
fn copies_are_checked_against_what_the_addresses_are() {
    let api = on(9);
    // SAFETY: see the file.
    unsafe {
        let (a, b, pinned) = (malloc(api, 64), malloc(api, 64), malloc_host(api, 64));
        let mut plain = [7u8; 64];
        let host = plain.as_mut_ptr().cast();
        let copy = |to, room, from, bytes, kind| (api.aclrtMemcpy)(to, room, from, bytes, kind);
        upload(api, a, &plain);
        ok(copy(b, 64, a, 64, ACL_MEMCPY_DEVICE_TO_DEVICE));
        ok(copy(pinned, 64, b, 64, ACL_MEMCPY_DEVICE_TO_HOST));
        ok(copy(pinned, 64, host, 64, ACL_MEMCPY_HOST_TO_HOST));
        ok(copy(b, 64, pinned, 64, ACL_MEMCPY_DEFAULT));
        ok(copy(b, 64, b, 64, ACL_MEMCPY_DEVICE_TO_DEVICE));
        assert_eq!(download(api, b, 64), plain);

        let code = ACL_ERROR_RT_PARAM_INVALID;
        fails(copy(a, 63, host, 64, ACL_MEMCPY_HOST_TO_DEVICE), code);
        fails(copy(a, 100, host, 65, ACL_MEMCPY_HOST_TO_DEVICE), code);
        fails(copy(a.byte_add(8), 64, b, 57, ACL_MEMCPY_DEVICE_TO_DEVICE), code);
        fails(copy(host, 64, a, 64, ACL_MEMCPY_HOST_TO_DEVICE), code);
        fails(copy(a, 64, b, 64, ACL_MEMCPY_HOST_TO_DEVICE), code);
        fails(copy(a, 64, pinned, 64, ACL_MEMCPY_DEVICE_TO_DEVICE), code);
        fails(copy(host, 64, pinned, 64, ACL_MEMCPY_DEVICE_TO_HOST), code);
        fails(copy(a, 64, host, 64, 9), ACL_ERROR_INVALID_PARAM);
        fails(copy(a, 64, null(), 64, ACL_MEMCPY_HOST_TO_DEVICE), ACL_ERROR_INVALID_PARAM);
        ok(copy(null_mut(), 0, null(), 0, ACL_MEMCPY_HOST_TO_DEVICE));

        fails((api.aclrtMemset)(a, 8, 0, 9), code);
        fails((api.aclrtMemset)(a, 100, 0, 65), code);
        fails((api.aclrtMemset)(host, 64, 0, 64), code);
        fails((api.aclrtMemset)(null_mut(), 64, 0, 64), ACL_ERROR_INVALID_PARAM);
        ok((api.aclrtMemset)(null_mut(), 0, 0, 0));
        ok((api.aclrtMemset)(a, 64, 0x1_23, 64));
        assert_eq!(download(api, a, 64), [0x23; 64]);
        ok((api.aclrtMemset)(pinned, 64, 1, 64));

        ok((api.aclrtFree)(a));
        fails(copy(host, 64, a, 64, ACL_MEMCPY_DEVICE_TO_HOST), code);
        fails((api.aclrtMemset)(a, 64, 0, 64), code);
    }
}

#[test]
fn asynchronous_copies_follow_the_stream() {
    let api = on(10);
    // SAFETY: see the file; pinned memory lives until the streams are synchronised.
    unsafe {
        let (stream, device, pinned) = (stream(api), malloc(api, 1 << 16), malloc_host(api, 1 << 16));
        let mut plain = vec![0u8; 1 << 16];
        for round in 0..50 {
            ok((api.aclrtMemsetAsync)(device, 1 << 16, round, 1 << 16, stream));
            ok((api.aclrtMemcpyAsync)(pinned, 1 << 16, device, 1 << 16, ACL_MEMCPY_DEVICE_TO_HOST, stream));
            ok((api.aclrtMemsetAsync)(device, 1 << 16, 0xEE, 1 << 16, stream));
            ok((api.aclrtMemcpyAsync)(device, 1 << 16, pinned, 1 << 16, ACL_MEMCPY_HOST_TO_DEVICE, stream));
            // Pageable memory: done when the call returns, and all before it too.
            let to = plain.as_mut_ptr().cast();
            ok((api.aclrtMemcpyAsync)(to, 1 << 16, device, 1 << 16, ACL_MEMCPY_DEVICE_TO_HOST, stream));
            assert!(plain.iter().all(|b| *b == round as u8), "round {round}");
        }
        let other = malloc_host(api, 16);
        let host_to_host = (api.aclrtMemcpyAsync)(other, 16, pinned, 16, ACL_MEMCPY_HOST_TO_HOST, stream);
        fails(host_to_host, ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
        let too_long = (api.aclrtMemcpyAsync)(device, 8, pinned, 16, ACL_MEMCPY_HOST_TO_DEVICE, stream);
        fails(too_long, ACL_ERROR_RT_PARAM_INVALID);
        fails((api.aclrtMemsetAsync)(device, 8, 0, 16, stream), ACL_ERROR_RT_PARAM_INVALID);
        // The default stream works like any.
        ok((api.aclrtMemsetAsync)(device, 16, 5, 16, null_mut()));
        ok((api.aclrtSynchronizeStream)(null_mut()));
        assert_eq!(download(api, device, 16), [5; 16]);
        ok((api.aclrtDestroyStream)(stream));
        fails((api.aclrtDestroyStream)(stream), ACL_ERROR_RT_INVALID_HANDLE);
        fails((api.aclrtMemsetAsync)(device, 16, 5, 16, stream), ACL_ERROR_RT_INVALID_HANDLE);
    }
}

#[test]
fn memory_freed_under_a_copy_stays_until_the_copy_is_past() {
    let api = on(11);
    // SAFETY: see the file.
    unsafe {
        let stream = stream(api);
        for _ in 0..50 {
            let (a, b) = (malloc(api, 2 << 20), malloc(api, 2 << 20));
            ok((api.aclrtMemsetAsync)(a, 2 << 20, 1, 2 << 20, stream));
            ok((api.aclrtMemcpyAsync)(b, 2 << 20, a, 2 << 20, ACL_MEMCPY_DEVICE_TO_DEVICE, stream));
            ends((api.aclrtFree)(a));
            ends((api.aclrtFree)(b));
        }
        ok((api.aclrtSynchronizeStream)(stream));
        ok((api.aclrtDestroyStream)(stream));
        assert_eq!(free_bytes(api), MEMORY_BYTES);
    }
}

#[test]
fn streams_belong_to_their_device() {
    let api = on(12);
    // SAFETY: see the file.
    unsafe {
        let (stream, event) = (stream(api), event(api));
        on(13);
        let memory = malloc(api, 16);
        fails((api.aclrtDestroyStream)(stream), ACL_ERROR_RT_STREAM_CONTEXT);
        fails((api.aclrtSynchronizeStream)(stream), ACL_ERROR_RT_STREAM_CONTEXT);
        fails((api.aclrtMemsetAsync)(memory, 16, 0, 16, stream), ACL_ERROR_RT_STREAM_CONTEXT);
        fails((api.aclrtRecordEvent)(event, null_mut()), ACL_ERROR_RT_STREAM_CONTEXT);
        fails((api.aclrtStreamWaitEvent)(null_mut(), event), ACL_ERROR_RT_STREAM_CONTEXT);
        on(12);
        let invented = std::ptr::without_provenance_mut(0xdead_beef);
        fails((api.aclrtSynchronizeStream)(invented), ACL_ERROR_RT_INVALID_HANDLE);
        fails((api.aclrtSynchronizeEvent)(invented), ACL_ERROR_RT_INVALID_HANDLE);
        fails((api.aclrtSynchronizeStream)(event), ACL_ERROR_RT_INVALID_HANDLE);
        ok((api.aclrtDestroyStream)(stream));
    }
}

#[test]
fn streams_are_limited_per_device() {
    let api = on(14);
    // SAFETY: see the file.
    unsafe {
        let streams: Vec<_> = (0..1984).map(|_| stream(api)).collect();
        let mut one_more = null_mut();
        fails((api.aclrtCreateStream)(&mut one_more), ACL_ERROR_RT_NO_STREAM_RESOURCE);
        streams.into_iter().for_each(|stream| ok((api.aclrtDestroyStream)(stream)));
        ok((api.aclrtDestroyStream)(stream(api)));
    }
}

#[test]
fn events_order_two_streams_and_measure_time() {
    let api = on(15);
    // SAFETY: see the file.
    unsafe {
        const BYTES: usize = 1 << 20;
        let (one, two) = (stream(api), stream(api));
        let (a, b) = (malloc(api, BYTES), malloc(api, BYTES));
        let (written, read, start) = (event(api), event(api), event(api));
        let mut status = -1;
        ok((api.aclrtQueryEventStatus)(written, &mut status));
        assert_eq!(status, ACL_EVENT_RECORDED_STATUS_COMPLETE);
        ok((api.aclrtSynchronizeEvent)(written));
        ok((api.aclrtRecordEvent)(start, one));
        for round in 0..100 {
            ok((api.aclrtStreamWaitEvent)(one, read));
            ok((api.aclrtMemsetAsync)(a, BYTES, round, BYTES, one));
            ok((api.aclrtRecordEvent)(written, one));
            ok((api.aclrtStreamWaitEvent)(two, written));
            ok((api.aclrtMemcpyAsync)(b, BYTES, a, BYTES, ACL_MEMCPY_DEVICE_TO_DEVICE, two));
            ok((api.aclrtRecordEvent)(read, two));
            if round % 10 == 0 {
                ok((api.aclrtSynchronizeEvent)(read));
                assert!(download(api, b, BYTES).iter().all(|byte| *byte == round as u8), "round {round}");
            }
        }
        ok((api.aclrtSynchronizeDevice)());
        ok((api.aclrtQueryEventStatus)(read, &mut status));
        assert_eq!(status, ACL_EVENT_RECORDED_STATUS_COMPLETE);
        let mut stream_status = -1;
        ok((api.aclrtStreamQuery)(two, &mut stream_status));
        assert_eq!(stream_status, ACL_STREAM_STATUS_COMPLETE);

        let mut ms = -1.0;
        ok((api.aclrtEventElapsedTime)(&mut ms, start, written));
        assert!(ms > 0.0 && ms < 60_000.0, "{ms}");
        fails((api.aclrtEventElapsedTime)(&mut ms, written, start), ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL);
        fails((api.aclrtEventElapsedTime)(&mut ms, start, read), ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID);
        fails((api.aclrtEventElapsedTime)(&mut ms, start, event(api)), ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID);

        let mut plain = null_mut();
        fails((api.aclrtCreateEventWithFlag)(&mut plain, 0), ACL_ERROR_RT_PARAM_INVALID);
        fails((api.aclrtCreateEventWithFlag)(&mut plain, 0x8000), ACL_ERROR_RT_PARAM_INVALID);
        ok((api.aclrtCreateEventWithFlag)(&mut plain, ACL_EVENT_SYNC));
        ok((api.aclrtRecordEvent)(plain, one));
        ok((api.aclrtStreamWaitEvent)(two, plain));
        ok((api.aclrtSynchronizeEvent)(plain));
        fails((api.aclrtEventElapsedTime)(&mut ms, start, plain), ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID);
        let mut timing = null_mut();
        ok((api.aclrtCreateEventWithFlag)(&mut timing, ACL_EVENT_TIME_LINE));
        ok((api.aclrtRecordEvent)(timing, one));
        fails((api.aclrtStreamWaitEvent)(two, timing), ACL_ERROR_RT_PARAM_INVALID);
        // Destroying does not wait and does not break who waits.
        ok((api.aclrtRecordEvent)(plain, one));
        ok((api.aclrtStreamWaitEvent)(two, plain));
        ok((api.aclrtDestroyEvent)(plain));
        fails((api.aclrtSynchronizeEvent)(plain), ACL_ERROR_RT_INVALID_HANDLE);
        ok((api.aclrtSynchronizeDevice)());
    }
}

fn prop(device: u32) -> aclrtPhysicalMemProp {
    aclrtPhysicalMemProp {
        memAttr: ACL_HBM_MEM_HUGE,
        location: aclrtMemLocation { id: device, r#type: ACL_MEM_LOCATION_TYPE_DEVICE },
        ..Default::default()
    }
}

#[test]
fn virtual_memory_lives_as_documented() {
    let api = on(16);
    const PAGE: usize = 2 << 20;
    // SAFETY: see the file.
    unsafe {
        let mut granularity = 0;
        let mut wanted = prop(16);
        ok((api.aclrtMemGetAllocationGranularity)(
            &mut wanted,
            ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED,
            &mut granularity,
        ));
        assert_eq!(granularity, PAGE);
        let invalid = ACL_ERROR_INVALID_PARAM;
        fails((api.aclrtMemGetAllocationGranularity)(&mut wanted, 7, &mut granularity), invalid);
        fails((api.aclrtMemGetAllocationGranularity)(null_mut(), 1, &mut granularity), invalid);

        let mut range = null_mut();
        fails((api.aclrtReserveMemAddress)(&mut range, 0, 0, null_mut(), 1), invalid);
        fails((api.aclrtReserveMemAddress)(&mut range, PAGE, 64, null_mut(), 1), invalid);
        fails((api.aclrtReserveMemAddress)(&mut range, PAGE, 0, null_mut(), 2), invalid);
        // More than the device has: addresses cost nothing.
        ok((api.aclrtReserveMemAddress)(&mut range, 1 << 36, 0, null_mut(), 1));
        assert_eq!(range.addr() % PAGE, 0);
        assert_eq!(free_bytes(api), MEMORY_BYTES);

        let (mut one, mut two) = (null_mut(), null_mut());
        for wrong in [
            aclrtPhysicalMemProp { memAttr: ACL_HBM_MEM, ..wanted },
            aclrtPhysicalMemProp { memAttr: ACL_DDR_MEM_HUGE, ..wanted },
            aclrtPhysicalMemProp { handleType: 2, ..wanted },
            aclrtPhysicalMemProp { location: aclrtMemLocation { id: 16, r#type: 0 }, ..wanted },
        ] {
            fails((api.aclrtMallocPhysical)(&mut one, PAGE, &wrong, 0), invalid);
        }
        fails((api.aclrtMallocPhysical)(&mut one, PAGE, &wanted, 1), invalid);
        fails((api.aclrtMallocPhysical)(&mut one, 0, &wanted, 0), invalid);
        fails((api.aclrtMallocPhysical)(&mut one, PAGE + 1, &wanted, 0), ACL_ERROR_RT_PARAM_INVALID);
        fails((api.aclrtMallocPhysical)(&mut one, PAGE, &prop(99), 0), ACL_ERROR_RT_INVALID_DEVICEID);
        let too_much = (api.aclrtMallocPhysical)(&mut one, MEMORY_BYTES + PAGE, &wanted, 0);
        fails(too_much, ACL_ERROR_RT_MEMORY_ALLOCATION);
        ok((api.aclrtMallocPhysical)(&mut one, 2 * PAGE, &wanted, 0));
        ok((api.aclrtMallocPhysical)(&mut two, PAGE, &wanted, 0));
        assert_eq!(MEMORY_BYTES - free_bytes(api), 3 * PAGE);

        let code = ACL_ERROR_RT_PARAM_INVALID;
        fails((api.aclrtMemset)(range, PAGE, 0, PAGE), code);
        fails((api.aclrtMapMem)(range, PAGE, 0, one, 0), code);
        fails((api.aclrtMapMem)(range, 2 * PAGE, PAGE, one, 0), invalid);
        fails((api.aclrtMapMem)(range, 2 * PAGE, 0, one, 1), invalid);
        fails((api.aclrtMapMem)(range.byte_add(4096), 2 * PAGE, 0, one, 0), ACL_ERROR_RT_ADDR_UNALIGNED);
        fails((api.aclrtMapMem)(range.byte_add((1 << 36) - PAGE), 2 * PAGE, 0, one, 0), code);
        fails((api.aclrtMapMem)(range, PAGE, 0, range, 0), ACL_ERROR_RT_INVALID_HANDLE);
        ok((api.aclrtMapMem)(range, 2 * PAGE, 0, one, 0));
        fails((api.aclrtMapMem)(range.byte_add(PAGE), PAGE, 0, two, 0), code);
        fails((api.aclrtMapMem)(range.byte_add(8 * PAGE), 2 * PAGE, 0, one, 0), code);
        ok((api.aclrtMapMem)(range.byte_add(2 * PAGE), PAGE, 0, two, 0));

        // Neighbours are one memory, and end where the mapping ends.
        ok((api.aclrtMemset)(range, 3 * PAGE, 9, 3 * PAGE));
        assert!(download(api, range.byte_add(PAGE), 2 * PAGE).iter().all(|b| *b == 9));
        fails((api.aclrtMemset)(range, 4 * PAGE, 9, 3 * PAGE + 1), code);
        fails((api.aclrtFree)(range), invalid);

        fails((api.aclrtReleaseMemAddress)(range), code);
        fails((api.aclrtUnmapMem)(range.byte_add(PAGE)), code);
        ok((api.aclrtUnmapMem)(range));
        fails((api.aclrtUnmapMem)(range), code);
        fails((api.aclrtMemset)(range, PAGE, 9, PAGE), code);
        ok((api.aclrtFreePhysical)(one));
        fails((api.aclrtFreePhysical)(one), ACL_ERROR_RT_INVALID_HANDLE);
        // Freed while mapped: usable, and paid for, until it is unmapped.
        ok((api.aclrtFreePhysical)(two));
        fails((api.aclrtFreePhysical)(two), ACL_ERROR_RT_INVALID_HANDLE);
        ok((api.aclrtMemset)(range.byte_add(2 * PAGE), PAGE, 1, PAGE));
        assert_eq!(MEMORY_BYTES - free_bytes(api), PAGE);
        ok((api.aclrtUnmapMem)(range.byte_add(2 * PAGE)));
        assert_eq!(free_bytes(api), MEMORY_BYTES);
        fails((api.aclrtReleaseMemAddress)(range.byte_add(PAGE)), code);
        ok((api.aclrtReleaseMemAddress)(range));
        fails((api.aclrtReleaseMemAddress)(range), code);
        fails((api.aclrtReleaseMemAddress)(null_mut()), invalid);
    }
}

#[test]
fn one_range_holds_memory_of_one_device() {
    let api = on(17);
    const PAGE: usize = 2 << 20;
    // SAFETY: see the file.
    unsafe {
        let (mut range, mut own, mut other) = (null_mut(), null_mut(), null_mut());
        ok((api.aclrtReserveMemAddress)(&mut range, 4 * PAGE, 0, null_mut(), 0));
        ok((api.aclrtMallocPhysical)(&mut own, PAGE, &prop(17), 0));
        ok((api.aclrtMallocPhysical)(&mut other, PAGE, &prop(18), 0));
        ok((api.aclrtMapMem)(range, PAGE, 0, own, 0));
        fails((api.aclrtMapMem)(range.byte_add(PAGE), PAGE, 0, other, 0), ACL_ERROR_RT_PARAM_INVALID);
        ok((api.aclrtFreePhysical)(other));
        // A reset ends ranges and physical memory too.
        ends((api.aclrtResetDevice)(17));
        on(17);
        fails((api.aclrtFreePhysical)(own), ACL_ERROR_RT_INVALID_HANDLE);
        fails((api.aclrtUnmapMem)(range), ACL_ERROR_RT_PARAM_INVALID);
        assert_eq!(free_bytes(api), MEMORY_BYTES);
    }
}

#[test]
fn a_hundred_thousand_submissions_are_done_in_order() {
    let api = on(19);
    // SAFETY: see the file.
    unsafe {
        let (stream, memory) = (stream(api), malloc(api, 64));
        for i in 0..100_000 {
            ok((api.aclrtMemsetAsync)(memory, 64, i, 64, stream));
        }
        ok((api.aclrtSynchronizeStream)(stream));
        assert_eq!(download(api, memory, 64), [(99_999 % 256) as u8; 64]);
        ok((api.aclrtDestroyStream)(stream));
    }
}

#[test]
fn threads_share_a_device_and_its_streams() {
    let api = on(20);
    let shared = stream(api).expose_provenance();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(move || {
                let api = on(20);
                let shared = std::ptr::with_exposed_provenance_mut(shared);
                // SAFETY: see the file.
                unsafe {
                    for i in 0..200 {
                        let (memory, own) = (malloc(api, 3000), stream(api));
                        ok((api.aclrtMemsetAsync)(memory, 3000, i, 3000, own));
                        ok((api.aclrtSynchronizeStream)(own));
                        ok((api.aclrtMemsetAsync)(memory, 3000, i, 3000, shared));
                        ok((api.aclrtSynchronizeStream)(shared));
                        ok((api.aclrtDestroyStream)(own));
                        assert!(download(api, memory, 3000).iter().all(|b| *b == i as u8));
                        ok((api.aclrtFree)(memory));
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(free_bytes(api), MEMORY_BYTES);
}

#[test]
fn threads_that_use_and_reset_one_device_together_get_codes_and_nothing_worse() {
    let expected = [
        ACL_SUCCESS,
        ACL_ERROR_INVALID_PARAM,
        ACL_ERROR_RT_PARAM_INVALID,
        ACL_ERROR_RT_CONTEXT_NULL,
        ACL_ERROR_RT_INVALID_HANDLE,
    ];
    let check = move |code: aclError| assert!(expected.contains(&code), "{code}: {}", message());
    let work = move |seed: i32| {
        let api = api();
        // SAFETY: out-pointers are locals; the rest is looked up by the device.
        unsafe {
            for i in 0..150 {
                check((api.aclrtSetDevice)(21));
                let (mut memory, mut stream, mut event) = (null_mut(), null_mut(), null_mut());
                check((api.aclrtMalloc)(&mut memory, 3000, 0));
                check((api.aclrtCreateStream)(&mut stream));
                check((api.aclrtCreateEvent)(&mut event));
                for _ in 0..20 {
                    check((api.aclrtMemsetAsync)(memory, 3000, i, 3000, stream));
                    check((api.aclrtRecordEvent)(event, stream));
                    check((api.aclrtStreamWaitEvent)(null_mut(), event));
                    check((api.aclrtMemsetAsync)(memory, 3000, i, 3000, null_mut()));
                }
                if (i + seed) % 7 == 0 {
                    check((api.aclrtResetDeviceForce)(21));
                }
                check((api.aclrtSynchronizeDevice)());
                check((api.aclrtFree)(memory));
                check((api.aclrtDestroyEvent)(event));
                check((api.aclrtDestroyStream)(stream));
                message();
            }
        }
    };
    let threads: Vec<_> = (0..4).map(|seed| std::thread::spawn(move || work(seed))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let api = on(21);
    // SAFETY: takes no pointer.
    ok(unsafe { (api.aclrtResetDeviceForce)(21) });
    assert_eq!(free_bytes(on(21)), MEMORY_BYTES);
}
