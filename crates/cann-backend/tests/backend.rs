//! Backends, tensors, copies, events and the order of things, on the embedded device.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cann_backend::backend::GUID;
use cann_backend::*;
use common::*;
use gguf::GgmlType;

fn write(tensor: &Tensor, data: &[u8], offset: u64) {
    wait(|done| tensor.write(data.to_vec(), offset, done)).expect("written");
}

fn read(tensor: &Tensor, offset: u64, size: u64) -> Vec<u8> {
    wait(|done| tensor.read(offset, size, done)).expect("read")
}

fn read_all(tensor: &Tensor) -> Vec<u8> {
    read(tensor, 0, tensor.nbytes())
}

fn close(backend: &Backend) {
    wait(|done| backend.close(done)).expect("closed");
}

fn is_disposed<T>(result: Result<T>) -> bool {
    matches!(result, Err(Error::Disposed { .. }))
}

#[test]
fn devices_are_listed() {
    let registry = registry();
    let devices = registry.devices();
    assert_eq!(devices.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["HOST0", "HOST1", "HOST2", "HOST3"]);
    for (i, device) in devices.iter().enumerate() {
        assert_eq!((device.index, device.ty, device.soc.as_str()), (i, DeviceType::Cpu, "Host"));
        assert!(device.memory_free > 0 && device.memory_free <= device.memory_total);
        assert!(!device.vmm_supported || device.vmm_granularity.is_power_of_two());
        assert!(device.caps_events && !device.caps_buffer_from_host_ptr);
    }
    assert_eq!(registry.find(Some(&Selector::Name("HOST1".into()))).unwrap().index, 1);
    assert_eq!(registry.find(None).unwrap().index, 0);
    for selector in [Selector::Index(4), Selector::Index(usize::MAX), Selector::Name("CANN0".into())] {
        match registry.find(Some(&selector)) {
            Err(Error::NotFound { what: "device", known, .. }) => assert_eq!(known[0], "HOST0"),
            other => panic!("{other:?}"),
        }
    }
    let none = Arc::new(Registry::new(Vec::new()));
    assert!(none.devices().is_empty());
    assert!(matches!(wait(|done| Backend::open(none, OpenOptions::default(), done)), Err(Error::NotFound { .. })));
}

#[test]
fn a_driver_that_fails_is_left_out() {
    // SAFETY: no symbol is given, so every function is a stub.
    let stubs = unsafe { acl_sys::AclApi::from_symbols(|_| std::ptr::null()) };
    let broken = DriverEntry { api: Arc::new(stubs), kind: DriverKind::Cann, prefix: "CANN", description: None };
    let good = DriverEntry {
        api: Arc::new(api()),
        kind: DriverKind::Host,
        prefix: "HOST",
        description: Some("a description".into()),
    };
    let devices = Registry::new(vec![broken, good]).devices();
    assert_eq!(
        (devices[0].name.as_str(), devices[0].index, devices[0].description.as_str()),
        ("HOST0", 0, "a description")
    );
}

#[test]
fn open_and_close() {
    let backend = open(0);
    assert_eq!((backend.name(), backend.guid(), GUID.len()), ("HOST0", GUID, 32));
    assert!(!backend.is_closed());
    wait(|done| backend.synchronize(done)).unwrap();
    let (first, second) = (later(|done| backend.close(done)), later(|done| backend.close(done)));
    first.get().unwrap();
    second.get().unwrap();
    close(&backend);
    assert!(backend.is_closed());
    assert!(is_disposed(wait(|done| backend.synchronize(done))));
    assert!(is_disposed(wait(|done| backend.alloc_buffer(1, done))));
    assert!(is_disposed(wait(|done| backend.create_event(done))));
    // Again, many at once on one device.
    let backends: Vec<_> = (0..4).map(|_| open(0)).collect();
    drop(backends);
    close(&open(0));
}

#[test]
fn what_outlives_its_backend_answers_disposed() {
    let backend = open(0);
    let t = tensor(&backend, GgmlType::F32, &[4]);
    let device = wait(|done| backend.alloc_buffer(100, done)).unwrap();
    let host = wait(|done| backend.alloc_host_buffer(100, done)).unwrap();
    let event = wait(|done| backend.create_event(done)).unwrap();
    let pending = later(|done| t.write(vec![1; 16], 0, done));
    close(&backend);
    pending.get().expect("what was submitted before still runs");
    assert!(t.is_disposed() && device.is_disposed() && host.is_disposed() && event.is_disposed());
    assert!(is_disposed(wait(|done| t.read(0, 16, done))));
    assert!(is_disposed(wait(|done| t.write(vec![0; 4], 0, done))));
    assert!(is_disposed(wait(|done| t.fill(0, done))));
    assert!(is_disposed(wait(|done| device.clear(0, done))));
    assert!(is_disposed(host.read(0, 1)) && is_disposed(host.write(&[1], 0)));
    assert!(is_disposed(wait(|done| event.synchronize(done))));
    let other = open(0);
    let dst = tensor(&other, GgmlType::F32, &[4]);
    assert!(is_disposed(wait(|done| other.copy(&t, &dst, done))));
    assert!(is_disposed(wait(|done| backend.copy(&dst, &t, done))));
}

#[test]
fn whole_tensors_round_trip() {
    let backend = open(0);
    for (ty, ne) in [
        (GgmlType::F32, vec![3, 5]),
        (GgmlType::F16, vec![7]),
        (GgmlType::Bf16, vec![2, 3, 4, 5]),
        (GgmlType::I64, vec![9]),
        (GgmlType::I8, vec![1]),
        (GgmlType::Q4_0, vec![64, 3]),
        (GgmlType::Q8_0, vec![32, 2, 3, 2]),
        (GgmlType::Q8_0, vec![544, 3]),
        (GgmlType::Q6K, vec![256, 3]),
        (GgmlType::Q4_0, vec![4096, 2000]),
        (GgmlType::F32, vec![0, 3]),
    ] {
        let t = tensor(&backend, ty, &ne);
        let data = noise(t.nbytes() as usize, 7);
        write(&t, &data, 0);
        assert!(read_all(&t) == data, "{} {ne:?}", ty.name());
    }
}

#[test]
fn ranges_are_on_the_device_side_and_any_range_is_right() {
    let backend = open(0);
    for (ty, ne) in [
        (GgmlType::F32, vec![40, 2]),
        (GgmlType::Q4_0, vec![96, 4]),
        (GgmlType::Q8_0, vec![96, 4]),
        (GgmlType::Q5_0, vec![96, 4]),
    ] {
        let t = tensor(&backend, ty, &ne);
        let n = t.nbytes();
        let mut expected = noise(n as usize, 1);
        write(&t, &expected, 0);
        for (i, (start, end)) in
            [(0, 1), (1, 2), (17, 19), (18, 36), (34, 68), (33, 35), (5, n - 5), (n - 1, n), (n, n), (20, 20)]
                .into_iter()
                .enumerate()
        {
            let piece = noise((end - start) as usize, i as u64 + 50);
            write(&t, &piece, start);
            expected[start as usize..end as usize].copy_from_slice(&piece);
            assert!(read(&t, start, end - start) == piece, "{} {start}..{end}", ty.name());
            assert!(read_all(&t) == expected, "{} {start}..{end}", ty.name());
        }
        for (offset, size) in [(0, n + 1), (n, 1), (u64::MAX, 2), (1, u64::MAX)] {
            assert!(matches!(wait(|done| t.read(offset, size, done)), Err(Error::InvalidArg { .. })));
        }
        assert!(matches!(wait(|done| t.write(vec![0; 2], n - 1, done)), Err(Error::InvalidArg { .. })));
    }
}

#[test]
fn fill_is_of_ggml_bytes() {
    let backend = open(0);
    for ty in [GgmlType::F32, GgmlType::Q8_0, GgmlType::Q4_0, GgmlType::Q5K] {
        let t = tensor(&backend, ty, &[256, 5]);
        for byte in [0, 0x3c, 0xab] {
            wait(|done| t.fill(byte, done)).unwrap();
            assert!(read_all(&t).iter().all(|b| *b == byte), "{} {byte:#x}", ty.name());
        }
    }
}

#[test]
fn q4_1_is_written_in_whole_blocks() {
    let backend = open(0);
    let t = tensor(&backend, GgmlType::Q4_1, &[32, 4]);
    let mut block = noise(20, 3);
    block[..4].copy_from_slice(&[0x00, 0x3c, 0x00, 0x38]);
    write(&t, &block, 20);
    assert_eq!(read(&t, 20, 20), block);
    assert!(matches!(wait(|done| t.write(vec![0; 4], 20, done)), Err(Error::InvalidArg { .. })));
    block[..2].copy_from_slice(&[0x00, 0x7c]);
    assert!(matches!(wait(|done| t.write(block, 0, done)), Err(Error::InvalidArg { .. })));
}

#[test]
fn tensors_are_placed_in_buffers() {
    let (backend, other) = (open(0), open(0));
    let buffer = wait(|done| backend.alloc_buffer(1024, done)).unwrap();
    wait(|done| buffer.clear(0x55, done)).unwrap();
    let place = |ty, ne: &[i64], offset| {
        let spec = TensorSpec::new(ty, ne).placed(&buffer, offset).named("placed");
        wait(|done| backend.create_tensor(spec, done))
    };
    let (a, b) = (place(GgmlType::F32, &[16], 0).unwrap(), place(GgmlType::I8, &[64], 64).unwrap());
    assert_eq!(a.name(), "placed");
    assert!(read_all(&a).iter().chain(&read_all(&b)).all(|byte| *byte == 0x55));
    let data = noise(64, 2);
    write(&a, &data, 0);
    assert!(read_all(&b).iter().all(|byte| *byte == 0x55));
    // A row of q4_0 takes 18 bytes and 270 of padding, which are zeroed.
    place(GgmlType::Q4_0, &[32], 512).unwrap();
    let behind = place(GgmlType::I8, &[288], 512).unwrap();
    assert!(read(&behind, 0, 18).iter().all(|b| *b == 0x55) && read(&behind, 18, 270).iter().all(|b| *b == 0));
    for (ty, ne, offset) in [
        (GgmlType::F32, [16], 32),
        (GgmlType::F32, [16], 1024),
        (GgmlType::F32, [257], 0),
        (GgmlType::Q4_0, [32], 768),
        (GgmlType::F32, [1], u64::MAX - 63),
    ] {
        assert!(matches!(place(ty, &ne, offset), Err(Error::InvalidArg { .. })), "{offset}");
    }
    let foreign = TensorSpec::new(GgmlType::F32, &[1]).placed(&buffer, 0);
    assert!(matches!(wait(|done| other.create_tensor(foreign, done)), Err(Error::InvalidArg { .. })));
    assert!(backend.supports_buffer(&buffer) && !other.supports_buffer(&buffer));
    // One tensor goes, the other stays; the buffer goes, and so does the other.
    a.dispose();
    a.dispose();
    assert!(a.is_disposed() && !b.is_disposed());
    read_all(&b);
    let reading = later(|done| b.read(0, 64, done));
    buffer.dispose();
    reading.get().expect("submitted before");
    assert!(b.is_disposed() && is_disposed(wait(|done| b.read(0, 1, done))));
    assert!(is_disposed(place(GgmlType::F32, &[1], 0)));
}

#[test]
fn memory_comes_back_in_any_order() {
    let backend = open(0);
    for order in [[0, 1, 2, 3], [3, 1, 0, 2]] {
        let tensors: Vec<_> = (0..4).map(|_| tensor(&backend, GgmlType::F32, &[1000])).collect();
        assert_eq!(backend.stats().buffers, cann_backend::backend::BufferStats { count: 4, bytes: 4 * 4096 });
        for i in order {
            let filling = later(|done| tensors[i].fill(1, done));
            tensors[i].dispose();
            filling.get().unwrap();
        }
        wait(|done| backend.synchronize(done)).unwrap();
        assert_eq!(backend.stats().buffers.count, 0);
    }
}

#[test]
fn copies_move_bytes_as_they_are() {
    let registry = registry();
    let here = open_with(&registry, 0, PoolChoice::Auto);
    let same = open_with(&registry, 0, PoolChoice::Auto);
    let far = open_with(&registry, 1, PoolChoice::Auto);
    // Another table is another driver: nothing in common but the host.
    let strange = open(2);
    let dst = tensor(&here, GgmlType::Q4_0, &[64, 3]);
    for (i, source) in [&here, &same, &far, &strange].into_iter().enumerate() {
        let src = tensor(source, GgmlType::Q4_0, &[64, 3]);
        let data = noise(src.nbytes() as usize, i as u64);
        // Not waited for: the copy comes after the write, and the next write after the copy.
        let written = later(|done| src.write(data.clone(), 0, done));
        let copied = later(|done| here.copy(&src, &dst, done));
        let over = later(|done| src.fill(0, done));
        written.get().unwrap();
        copied.get().unwrap();
        over.get().unwrap();
        assert!(read_all(&dst) == data, "from {i}");
    }
    let stats = here.stats().copies;
    assert_eq!((stats.peer + stats.staged, stats.staged >= 1), (2, true), "{stats:?}");
    // Large enough for several pieces.
    let (src, dst) = (tensor(&strange, GgmlType::I8, &[11 << 20]), tensor(&here, GgmlType::I8, &[11 << 20]));
    let data = noise(11 << 20, 9);
    write(&src, &data, 0);
    wait(|done| here.copy(&src, &dst, done)).unwrap();
    assert!(read_all(&dst) == data);
}

#[test]
fn copies_refuse_what_is_not_alike() {
    let (a, b) = (open(0), open(0));
    let (f32s, f16s) = (tensor(&a, GgmlType::F32, &[4]), tensor(&a, GgmlType::F16, &[4]));
    match wait(|done| a.copy(&f32s, &f16s, done)) {
        Err(Error::Unsupported { what, .. }) => assert!(what.contains("f32") && what.contains("f16"), "{what}"),
        other => panic!("{other:?}"),
    }
    let longer = tensor(&a, GgmlType::F32, &[5]);
    assert!(matches!(wait(|done| a.copy(&f32s, &longer, done)), Err(Error::Shape { .. })));
    let foreign = tensor(&b, GgmlType::F32, &[4]);
    assert!(matches!(wait(|done| a.copy(&f32s, &foreign, done)), Err(Error::InvalidArg { .. })));
}

#[test]
fn copies_both_ways_at_once_do_not_wait_for_each_other() {
    let registry = registry();
    for device in [0, 1] {
        let (a, b) = (open_with(&registry, 0, PoolChoice::Auto), open_with(&registry, device, PoolChoice::Auto));
        let (x, y) = (tensor(&a, GgmlType::F32, &[256]), tensor(&b, GgmlType::F32, &[256]));
        wait(|done| x.fill(1, done)).unwrap();
        let threads: Vec<_> = (0..2)
            .map(|side| {
                let (a, b, x, y) = (a.clone(), b.clone(), x.clone(), y.clone());
                std::thread::spawn(move || {
                    let copy = |done| if side == 0 { b.copy(&x, &y, done) } else { a.copy(&y, &x, done) };
                    let copies: Vec<_> = (0..40).map(|_| later(copy)).collect();
                    copies.into_iter().for_each(|c| c.get().expect("copied"));
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
    }
}

#[test]
fn events_are_items_of_the_queue() {
    let registry = registry();
    let (a, b) = (open_with(&registry, 0, PoolChoice::Auto), open_with(&registry, 0, PoolChoice::Auto));
    let far = open_with(&registry, 1, PoolChoice::Auto);
    let event = wait(|done| a.create_event(done)).unwrap();
    assert!(event.query());
    wait(|done| event.synchronize(done)).unwrap();
    let big = tensor(&a, GgmlType::I8, &[8 << 20]);
    for waiter in [&a, &b, &far] {
        let fills: Vec<_> = (0..20).map(|i| later(|done| big.fill(i, done))).collect();
        let recorded = later(|done| a.record(&event, done));
        let waited = later(|done| waiter.wait(&event, done));
        let after = later(|done| waiter.synchronize(done));
        let synced = later(|done| event.synchronize(done));
        after.get().unwrap();
        if waiter.id() == a.id() {
            // One backend settles in order.
            assert!(fills.iter().all(|f| f.is_there()));
        }
        recorded.get().unwrap();
        waited.get().unwrap();
        synced.get().unwrap();
        assert!(event.query());
    }
    assert!(matches!(wait(|done| b.record(&event, done)), Err(Error::InvalidArg { .. })));
    event.dispose();
    assert!(is_disposed(wait(|done| a.record(&event, done))) && is_disposed(wait(|done| b.wait(&event, done))));
}

/// A worker that waits for another one has settled what the other may be waiting for.
#[test]
fn devices_that_wait_for_each_other_go_on() {
    let registry = registry();
    let (a, b) = (open_with(&registry, 0, PoolChoice::Auto), open_with(&registry, 1, PoolChoice::Auto));
    let (x, y) = (tensor(&a, GgmlType::I8, &[8 << 20]), tensor(&b, GgmlType::I8, &[8 << 20]));
    let event = |backend: &Backend| wait(|done| backend.create_event(done)).unwrap();
    for byte in 0..4 {
        let (ours, theirs) = (event(&a), event(&b));
        let mut all = Vec::new();
        // So that the records are not past at once.
        for _ in 0..10 {
            all.push(later(|done| x.fill(byte, done)));
            all.push(later(|done| y.fill(byte, done)));
        }
        all.push(later(|done| a.record(&ours, done)));
        all.push(later(|done| b.record(&theirs, done)));
        if byte % 2 == 0 {
            all.push(later(|done| a.wait(&theirs, done)));
        }
        all.push(later(|done| b.wait(&ours, done)));
        all.push(later(|done| a.copy(&y, &x, done)));
        all.into_iter().for_each(|answer| answer.get().unwrap());
    }
    assert_eq!(read(&x, 0, 4), [3; 4]);
}

#[test]
fn a_wait_for_a_closed_backend_ends() {
    let (a, b) = (open(0), open(0));
    let event = wait(|done| a.create_event(done)).unwrap();
    let recorded = later(|done| a.record(&event, done));
    let closed = later(|done| a.close(done));
    let waited = later(|done| b.wait(&event, done));
    recorded.get().unwrap();
    closed.get().unwrap();
    // Either before the close or after; but never without an end.
    let _ = waited.get();
    wait(|done| b.synchronize(done)).unwrap();
}

#[test]
fn ten_thousand_tasks_run_in_order() {
    let backend = open(0);
    let t = tensor(&backend, GgmlType::I32, &[1]);
    let order = Arc::new(Mutex::new(Vec::new()));
    for i in 0..10_000i32 {
        let order = order.clone();
        let done: Done<()> = Box::new(move |result| {
            result.unwrap();
            order.lock().unwrap().push(i);
        });
        t.write(i.to_le_bytes().to_vec(), 0, done);
        let queue = backend.stats().queue;
        assert!(queue.depth <= queue.capacity && queue.capacity == 1024);
    }
    wait(|done| backend.synchronize(done)).unwrap();
    assert!(order.lock().unwrap().iter().copied().eq(0..10_000));
    assert_eq!(read_all(&t), 9_999i32.to_le_bytes());
    let queue = backend.stats().queue;
    assert!(queue.completed >= 10_000 && queue.submitted >= queue.completed);
}

#[test]
fn closing_runs_what_was_submitted() {
    let backend = open(0);
    let t = tensor(&backend, GgmlType::F32, &[1 << 16]);
    let finished = Arc::new(AtomicUsize::new(0));
    for i in 0..2000 {
        let finished = finished.clone();
        t.fill(
            i as u8,
            Box::new(move |result| {
                result.unwrap();
                finished.fetch_add(1, Ordering::SeqCst);
            }),
        );
    }
    close(&backend);
    assert_eq!(finished.load(Ordering::SeqCst), 2000);
}

#[test]
fn host_buffers() {
    let backend = open(0);
    let buffer = wait(|done| backend.alloc_host_buffer(10, done)).unwrap();
    assert_eq!((buffer.size(), buffer.pinned(), buffer.read(0, 10).unwrap()), (10, true, vec![0; 10]));
    buffer.write(&[1, 2, 3], 7).unwrap();
    assert_eq!(buffer.read(6, 4).unwrap(), [0, 1, 2, 3]);
    for (offset, size) in [(8, 3), (11, 0), (u64::MAX, 2)] {
        assert!(matches!(buffer.read(offset, size), Err(Error::InvalidArg { .. })));
    }
    buffer.dispose();
    buffer.dispose();
    assert!(is_disposed(buffer.read(0, 1)));
    let empty = wait(|done| backend.alloc_host_buffer(0, done)).unwrap();
    assert_eq!((empty.size(), empty.read(0, 0).unwrap().len()), (0, 0));
}

#[test]
fn memory_that_is_not_there_is_an_error_and_nothing_more() {
    let backend = open(0);
    let total = backend.device().memory_total;
    match wait(|done| backend.alloc_buffer(total * 2, done)) {
        Err(Error::OutOfMemory { device, requested_bytes, free_bytes, .. }) => {
            assert_eq!((device.as_str(), requested_bytes), ("HOST0", total * 2));
            assert!(free_bytes.is_some());
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(wait(|done| backend.alloc_buffer(u64::MAX, done)), Err(Error::OutOfMemory { .. })));
    let spec = TensorSpec::new(GgmlType::F32, &[total as i64]).named("too much");
    match wait(|done| backend.create_tensor(spec, done)) {
        Err(Error::OutOfMemory { tensor, .. }) => assert_eq!(tensor.as_deref(), Some("too much")),
        other => panic!("{other:?}"),
    }
    wait(|done| tensor(&backend, GgmlType::F32, &[4]).fill(1, done)).unwrap();
}

/// A device that dies when told, over the embedded one.
mod dying {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering};

    use acl_sys::{ACL_ERROR_RT_AICORE_EXCEPTION, AclApi, aclError, aclrtEvent, aclrtStream};

    pub static DEAD: AtomicBool = AtomicBool::new(false);
    static REAL: OnceLock<AclApi> = OnceLock::new();

    unsafe extern "C" fn record(event: aclrtEvent, stream: aclrtStream) -> aclError {
        if DEAD.load(Ordering::SeqCst) {
            return ACL_ERROR_RT_AICORE_EXCEPTION;
        }
        // SAFETY: passed on as it came.
        unsafe { (REAL.get().expect("a table").aclrtRecordEvent)(event, stream) }
    }

    unsafe extern "C" fn synchronize(stream: aclrtStream) -> aclError {
        if DEAD.load(Ordering::SeqCst) {
            return ACL_ERROR_RT_AICORE_EXCEPTION;
        }
        // SAFETY: as above.
        unsafe { (REAL.get().expect("a table").aclrtSynchronizeStream)(stream) }
    }

    unsafe extern "C" fn reset(device: i32) -> aclError {
        DEAD.store(false, Ordering::SeqCst);
        // SAFETY: as above.
        unsafe { (REAL.get().expect("a table").aclrtResetDeviceForce)(device) }
    }

    pub fn api() -> AclApi {
        let mut api = REAL.get_or_init(crate::common::api).clone();
        (api.aclrtRecordEvent, api.aclrtSynchronizeStream, api.aclrtResetDeviceForce) = (record, synchronize, reset);
        api
    }
}

#[test]
fn a_lost_device_rejects_what_waits_and_can_be_opened_again() {
    registry();
    let entry = DriverEntry { api: Arc::new(dying::api()), kind: DriverKind::Host, prefix: "HOST", description: None };
    let registry = Arc::new(Registry::new(vec![entry]));
    // No other test uses this device: it is reset.
    let backend = open_with(&registry, 3, PoolChoice::Auto);
    let t = tensor(&backend, GgmlType::F32, &[64]);
    let host = wait(|done| backend.alloc_host_buffer(100, done)).unwrap();
    let event = wait(|done| backend.create_event(done)).unwrap();
    wait(|done| backend.synchronize(done)).unwrap();
    dying::DEAD.store(true, Ordering::SeqCst);
    let waiting: Vec<_> = (0..50).map(|_| later(|done| t.fill(1, done))).collect();
    let recorded = later(|done| backend.record(&event, done));
    for answer in waiting {
        match answer.get() {
            Err(Error::DeviceLost { device, cause }) => {
                assert_eq!(device, "HOST3");
                assert!(cause.contains("507015"), "{cause}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(recorded.get(), Err(Error::DeviceLost { .. })));
    assert!(matches!(wait(|done| backend.synchronize(done)), Err(Error::DeviceLost { .. })));
    assert!(matches!(wait(|done| t.read(0, 1, done)), Err(Error::DeviceLost { .. })));
    // Opened again while the lost one is still held.
    let again = open_with(&registry, 3, PoolChoice::Auto);
    let fresh = tensor(&again, GgmlType::F32, &[64]);
    write(&fresh, &[7; 256], 0);
    wait(|done| backend.close(done)).unwrap();
    drop((backend, t, host, event));
    assert_eq!(read_all(&fresh), [7; 256]);
    close(&again);
}
