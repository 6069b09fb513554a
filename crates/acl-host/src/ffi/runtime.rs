//! The runtime group of the list: devices, memory, streams, events, captured models.
//!
//! # Safety
//! As the C interface has it: an out-pointer is null or may be written, a structure pointer is null or may be read, a string
//! ends. Handles and device addresses need no promise, they are looked up; host memory the device does not know is the
//! caller's to keep readable and writable. Nothing here lets a panic out.

use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::LazyLock;

use acl_sys::*;

use crate::runtime::context::{entry, fail, guard};
use crate::runtime::memory::CopyRequest;
use crate::runtime::{capture, config, context, event, memory, stream, vmm};

/// A pointer the caller lends for the length of the call, found not to be null.
struct Out<T>(*mut T);

impl<T> Out<T> {
    fn new(pointer: *mut T, name: &str) -> Result<Out<T>, aclError> {
        if pointer.is_null() {
            return Err(fail(ACL_ERROR_INVALID_PARAM, format!("{name} is NULL")));
        }
        Ok(Out(pointer))
    }

    fn set(&self, value: T) {
        // SAFETY: not null, and by the C contract writable for a T; C callers may give it any alignment.
        unsafe { self.0.write_unaligned(value) };
    }
}

/// Reads a structure the caller lends.
///
/// # Safety
/// `pointer` is null or points to a T.
unsafe fn read<T: Copy>(pointer: *const T, name: &str) -> Result<T, aclError> {
    if pointer.is_null() {
        return Err(fail(ACL_ERROR_INVALID_PARAM, format!("{name} is NULL")));
    }
    // SAFETY: not null; the rest is the caller's promise.
    Ok(unsafe { pointer.read_unaligned() })
}

pub unsafe extern "C" fn aclInit(config_path: *const c_char) -> aclError {
    entry("aclInit", || {
        // SAFETY: a path is null or a C string.
        let path = (!config_path.is_null()).then(|| unsafe { CStr::from_ptr(config_path) });
        context::init(path)
    })
}

pub unsafe extern "C" fn aclFinalize() -> aclError {
    entry("aclFinalize", context::finalize)
}

pub unsafe extern "C" fn aclGetRecentErrMsg() -> *const c_char {
    guard("aclGetRecentErrMsg", std::ptr::null(), context::recent_message)
}

pub unsafe extern "C" fn aclrtGetVersion(major: *mut i32, minor: *mut i32, patch: *mut i32) -> aclError {
    entry("aclrtGetVersion", || {
        let outs =
            [Out::new(major, "majorVersion")?, Out::new(minor, "minorVersion")?, Out::new(patch, "patchVersion")?];
        // Of the ACL interface that is implemented here.
        outs.iter().zip([1, 15, 0]).for_each(|(out, value)| out.set(value));
        Ok(())
    })
}

/// Answers for the toolkit and the runtime, with this crate's own version.
pub unsafe extern "C" fn aclsysGetCANNVersion(
    name: aclCANNPackageName,
    version: *mut aclCANNPackageVersion,
) -> aclError {
    entry("aclsysGetCANNVersion", || {
        let out = Out::new(version, "version")?;
        if name != ACL_PKG_NAME_CANN && name != ACL_PKG_NAME_RUNTIME {
            return Err(fail(ACL_ERROR_INVALID_FILE, format!("package {name} is not part of the embedded device")));
        }
        out.set(aclCANNPackageVersion {
            version: c_text(concat!(env!("CARGO_PKG_VERSION"), "-host")),
            majorVersion: c_text(env!("CARGO_PKG_VERSION_MAJOR")),
            minorVersion: c_text(env!("CARGO_PKG_VERSION_MINOR")),
            releaseVersion: c_text("host"),
            patchVersion: c_text(env!("CARGO_PKG_VERSION_PATCH")),
            reserved: [0; 128],
        });
        Ok(())
    })
}

/// Short text in a C array, ended by a zero.
fn c_text<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (to, from) in array[..N - 1].iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
    array
}

pub unsafe extern "C" fn aclrtGetSocName() -> *const c_char {
    static NAME: LazyLock<CString> =
        // The settings accept no name with a zero in it.
        LazyLock::new(|| CString::new(config::settings().soc_name.as_str()).unwrap_or_default());
    guard("aclrtGetSocName", std::ptr::null(), || NAME.as_ptr())
}

pub unsafe extern "C" fn aclrtGetDeviceCount(count: *mut u32) -> aclError {
    entry("aclrtGetDeviceCount", || {
        let out = Out::new(count, "count")?;
        context::check_initialised()?;
        out.set(context::devices().len() as u32);
        Ok(())
    })
}

pub unsafe extern "C" fn aclrtSetDevice(device_id: i32) -> aclError {
    entry("aclrtSetDevice", || context::set_device(device_id))
}

pub unsafe extern "C" fn aclrtGetDevice(device_id: *mut i32) -> aclError {
    entry("aclrtGetDevice", || {
        let out = Out::new(device_id, "deviceId")?;
        out.set(context::bound()?.id as i32);
        Ok(())
    })
}

pub unsafe extern "C" fn aclrtResetDevice(device_id: i32) -> aclError {
    entry("aclrtResetDevice", || context::reset_device(device_id, false))
}

pub unsafe extern "C" fn aclrtResetDeviceForce(device_id: i32) -> aclError {
    entry("aclrtResetDeviceForce", || context::reset_device(device_id, true))
}

pub unsafe extern "C" fn aclrtSynchronizeDevice() -> aclError {
    entry("aclrtSynchronizeDevice", || {
        let device = context::current()?;
        capture::check_unsafe_call("synchronising the device")?;
        device.synchronize()
    })
}

pub unsafe extern "C" fn aclrtGetMemInfo(attr: aclrtMemAttr, free: *mut usize, total: *mut usize) -> aclError {
    entry("aclrtGetMemInfo", || {
        let (free, total) = (Out::new(free, "free")?, Out::new(total, "total")?);
        let (free_bytes, total_bytes) = context::memory_info(attr)?;
        free.set(free_bytes);
        total.set(total_bytes);
        Ok(())
    })
}

pub unsafe extern "C" fn aclrtDeviceCanAccessPeer(
    can_access: *mut i32,
    device_id: i32,
    peer_device_id: i32,
) -> aclError {
    entry("aclrtDeviceCanAccessPeer", || {
        let out = Out::new(can_access, "canAccessPeer")?;
        out.set(context::can_access_peer(device_id, peer_device_id)?.into());
        Ok(())
    })
}

pub unsafe extern "C" fn aclrtDeviceEnablePeerAccess(peer_device_id: i32, flags: u32) -> aclError {
    entry("aclrtDeviceEnablePeerAccess", || context::enable_peer_access(peer_device_id, flags))
}

pub unsafe extern "C" fn aclrtDeviceDisablePeerAccess(peer_device_id: i32) -> aclError {
    entry("aclrtDeviceDisablePeerAccess", || context::disable_peer_access(peer_device_id))
}

/// The policy is about page sizes, which the system decides here.
pub unsafe extern "C" fn aclrtMalloc(
    dev_ptr: *mut *mut c_void,
    size: usize,
    _policy: aclrtMemMallocPolicy,
) -> aclError {
    entry("aclrtMalloc", || {
        let out = Out::new(dev_ptr, "devPtr")?;
        check_size(size)?;
        out.set(memory::address(memory::allocate_device(size)?).cast());
        Ok(())
    })
}

pub unsafe extern "C" fn aclrtFree(dev_ptr: *mut c_void) -> aclError {
    entry("aclrtFree", || memory::free(dev_ptr.cast(), false))
}

pub unsafe extern "C" fn aclrtMallocHost(host_ptr: *mut *mut c_void, size: usize) -> aclError {
    entry("aclrtMallocHost", || {
        let out = Out::new(host_ptr, "hostPtr")?;
        check_size(size)?;
        out.set(memory::address(memory::allocate_host(size)?).cast());
        Ok(())
    })
}

pub unsafe extern "C" fn aclrtFreeHost(host_ptr: *mut c_void) -> aclError {
    entry("aclrtFreeHost", || memory::free(host_ptr.cast(), true))
}

fn check_size(size: usize) -> Result<(), aclError> {
    if size == 0 {
        return Err(fail(ACL_ERROR_INVALID_PARAM, "size is 0"));
    }
    Ok(())
}

pub unsafe extern "C" fn aclrtMemcpy(
    dst: *mut c_void,
    dest_max: usize,
    src: *const c_void,
    count: usize,
    kind: aclrtMemcpyKind,
) -> aclError {
    entry("aclrtMemcpy", || {
        let request = CopyRequest { to: dst.cast(), to_bytes: dest_max, from: src.cast(), bytes: count, kind };
        // SAFETY: host memory is the caller's promise, see the module.
        unsafe { memory::copy_now(&request) }
    })
}

pub unsafe extern "C" fn aclrtMemcpyAsync(
    dst: *mut c_void,
    dest_max: usize,
    src: *const c_void,
    count: usize,
    kind: aclrtMemcpyKind,
    stream: aclrtStream,
) -> aclError {
    entry("aclrtMemcpyAsync", || {
        let request = CopyRequest { to: dst.cast(), to_bytes: dest_max, from: src.cast(), bytes: count, kind };
        // SAFETY: host memory is the caller's promise, see the module.
        unsafe { memory::copy_async(&request, stream) }
    })
}

pub unsafe extern "C" fn aclrtMemset(dev_ptr: *mut c_void, max_count: usize, value: i32, count: usize) -> aclError {
    entry("aclrtMemset", || memory::set(dev_ptr.cast(), max_count, value, count, None))
}

pub unsafe extern "C" fn aclrtMemsetAsync(
    dev_ptr: *mut c_void,
    max_count: usize,
    value: i32,
    count: usize,
    stream: aclrtStream,
) -> aclError {
    entry("aclrtMemsetAsync", || memory::set(dev_ptr.cast(), max_count, value, count, Some(stream)))
}

pub unsafe extern "C" fn aclrtMemGetAllocationGranularity(
    prop: *mut aclrtPhysicalMemProp,
    option: aclrtMemGranularityOptions,
    granularity: *mut usize,
) -> aclError {
    entry("aclrtMemGetAllocationGranularity", || {
        let out = Out::new(granularity, "granularity")?;
        // SAFETY: the C contract, see the module.
        out.set(vmm::granularity(&unsafe { read(prop, "prop") }?, option)?);
        Ok(())
    })
}

pub unsafe extern "C" fn aclrtReserveMemAddress(
    virt_ptr: *mut *mut c_void,
    size: usize,
    alignment: usize,
    expect_ptr: *mut c_void,
    flags: u64,
) -> aclError {
    entry("aclrtReserveMemAddress", || {
        let out = Out::new(virt_ptr, "virPtr")?;
        out.set(memory::address(vmm::reserve(size, alignment, expect_ptr, flags)?).cast());
        Ok(())
    })
}

pub unsafe extern "C" fn aclrtReleaseMemAddress(virt_ptr: *mut c_void) -> aclError {
    entry("aclrtReleaseMemAddress", || vmm::release(virt_ptr))
}

pub unsafe extern "C" fn aclrtMallocPhysical(
    handle: *mut aclrtDrvMemHandle,
    size: usize,
    prop: *const aclrtPhysicalMemProp,
    flags: u64,
) -> aclError {
    entry("aclrtMallocPhysical", || {
        let out = Out::new(handle, "handle")?;
        // SAFETY: the C contract, see the module.
        out.set(vmm::allocate_physical(size, &unsafe { read(prop, "prop") }?, flags)?);
        Ok(())
    })
}

pub unsafe extern "C" fn aclrtFreePhysical(handle: aclrtDrvMemHandle) -> aclError {
    entry("aclrtFreePhysical", || vmm::free_physical(handle))
}

pub unsafe extern "C" fn aclrtMapMem(
    virt_ptr: *mut c_void,
    size: usize,
    offset: usize,
    handle: aclrtDrvMemHandle,
    flags: u64,
) -> aclError {
    entry("aclrtMapMem", || vmm::map(virt_ptr, size, offset, handle, flags))
}

pub unsafe extern "C" fn aclrtUnmapMem(virt_ptr: *mut c_void) -> aclError {
    entry("aclrtUnmapMem", || vmm::unmap(virt_ptr))
}

pub unsafe extern "C" fn aclrtCreateStream(stream: *mut aclrtStream) -> aclError {
    entry("aclrtCreateStream", || {
        let out = Out::new(stream, "stream")?;
        out.set(stream::create_handle()?);
        Ok(())
    })
}

pub unsafe extern "C" fn aclrtDestroyStream(stream: aclrtStream) -> aclError {
    entry("aclrtDestroyStream", || stream::destroy(stream))
}

pub unsafe extern "C" fn aclrtSynchronizeStream(stream: aclrtStream) -> aclError {
    entry("aclrtSynchronizeStream", || stream::synchronize(stream))
}

pub unsafe extern "C" fn aclrtStreamQuery(stream: aclrtStream, status: *mut aclrtStreamStatus) -> aclError {
    entry("aclrtStreamQuery", || {
        let out = Out::new(status, "status")?;
        let idle = stream::is_idle(stream)?;
        out.set(if idle { ACL_STREAM_STATUS_COMPLETE } else { ACL_STREAM_STATUS_NOT_READY });
        Ok(())
    })
}

pub unsafe extern "C" fn aclrtCreateEvent(event: *mut aclrtEvent) -> aclError {
    entry("aclrtCreateEvent", || {
        let out = Out::new(event, "event")?;
        out.set(event::create(None)?);
        Ok(())
    })
}

pub unsafe extern "C" fn aclrtCreateEventWithFlag(event: *mut aclrtEvent, flag: u32) -> aclError {
    entry("aclrtCreateEventWithFlag", || {
        let out = Out::new(event, "event")?;
        out.set(event::create(Some(flag))?);
        Ok(())
    })
}

pub unsafe extern "C" fn aclrtDestroyEvent(event: aclrtEvent) -> aclError {
    entry("aclrtDestroyEvent", || event::destroy(event))
}

pub unsafe extern "C" fn aclrtRecordEvent(event: aclrtEvent, stream: aclrtStream) -> aclError {
    entry("aclrtRecordEvent", || event::record(event, stream))
}

pub unsafe extern "C" fn aclrtStreamWaitEvent(stream: aclrtStream, event: aclrtEvent) -> aclError {
    entry("aclrtStreamWaitEvent", || event::stream_wait(stream, event))
}

pub unsafe extern "C" fn aclrtQueryEventStatus(event: aclrtEvent, status: *mut aclrtEventRecordedStatus) -> aclError {
    entry("aclrtQueryEventStatus", || {
        let out = Out::new(status, "status")?;
        let complete = event::is_complete(event)?;
        out.set(if complete { ACL_EVENT_RECORDED_STATUS_COMPLETE } else { ACL_EVENT_RECORDED_STATUS_NOT_READY });
        Ok(())
    })
}

pub unsafe extern "C" fn aclrtSynchronizeEvent(event: aclrtEvent) -> aclError {
    entry("aclrtSynchronizeEvent", || event::synchronize(event))
}

pub unsafe extern "C" fn aclrtEventElapsedTime(ms: *mut f32, start: aclrtEvent, end: aclrtEvent) -> aclError {
    entry("aclrtEventElapsedTime", || {
        let out = Out::new(ms, "ms")?;
        out.set(event::elapsed_ms(start, end)?);
        Ok(())
    })
}

pub unsafe extern "C" fn aclmdlRICaptureBegin(stream: aclrtStream, mode: aclmdlRICaptureMode) -> aclError {
    entry("aclmdlRICaptureBegin", || capture::begin(stream, mode))
}

pub unsafe extern "C" fn aclmdlRICaptureGetInfo(
    stream: aclrtStream,
    status: *mut aclmdlRICaptureStatus,
    model: *mut aclmdlRI,
) -> aclError {
    entry("aclmdlRICaptureGetInfo", || {
        let status = Out::new(status, "status")?;
        let (state, handle) = capture::info(stream)?;
        status.set(state);
        // The model is of no interest to who only asks for the status.
        if !model.is_null() {
            Out::new(model, "modelRI")?.set(handle);
        }
        Ok(())
    })
}

pub unsafe extern "C" fn aclmdlRICaptureEnd(stream: aclrtStream, model: *mut aclmdlRI) -> aclError {
    entry("aclmdlRICaptureEnd", || {
        let out = Out::new(model, "modelRI")?;
        out.set(std::ptr::null_mut());
        out.set(capture::end(stream)?);
        Ok(())
    })
}

pub unsafe extern "C" fn aclmdlRIExecuteAsync(model: aclmdlRI, stream: aclrtStream) -> aclError {
    entry("aclmdlRIExecuteAsync", || capture::execute(model, stream))
}

pub unsafe extern "C" fn aclmdlRIDestroy(model: aclmdlRI) -> aclError {
    entry("aclmdlRIDestroy", || capture::destroy(model))
}
