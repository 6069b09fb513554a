//! Owners of memory: on the device, pinned on the host, and reserved address ranges.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::ThreadId;

use acl_sys::*;

use super::driver::{Lease, Target, memory_info, physical_prop};
use super::status::{check, dropped, is_out_of_memory, recent_message};
use crate::error::{Error, Result};

/// Sizes are rounded up to this, and nothing becomes one unit.
pub(crate) const ALIGNMENT_BYTES: u64 = 128;

/// `bytes` rounded up to a whole number of units; `None` on overflow.
pub(crate) fn padded(bytes: u64) -> Option<u64> {
    bytes.max(1).checked_next_multiple_of(ALIGNMENT_BYTES)
}

/// The worker that device memory goes home to. Memory may be let go on any thread: it is freed on the worker, after what
/// its stream holds now; and what is still out when the worker ends is freed then, whoever thinks to own it.
pub(crate) struct Home {
    target: Target,
    thread: OnceLock<ThreadId>,
    state: Mutex<HomeState>,
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct HomeState {
    live: HashMap<u64, u64>,
    returned: Vec<u64>,
}

impl Home {
    /// `wake` tells the worker that [`Home::take_returned`] has something.
    pub fn new(target: Target, wake: impl Fn() + Send + Sync + 'static) -> Arc<Home> {
        Arc::new(Home { target, thread: OnceLock::new(), state: Mutex::default(), wake: Box::new(wake) })
    }

    /// Says that the calling thread is the worker.
    pub fn settle_here(&self) {
        let _ = self.thread.set(std::thread::current().id());
    }

    pub fn target(&self) -> &Target {
        &self.target
    }

    pub fn is_here(&self) -> bool {
        self.thread.get() == Some(&std::thread::current().id())
    }

    /// Memory that was let go elsewhere; dropped on the worker, it is freed.
    pub fn take_returned(self: &Arc<Home>) -> Option<Returned> {
        let addresses = std::mem::take(&mut self.lock().returned);
        (!addresses.is_empty()).then(|| Returned { home: self.clone(), addresses })
    }

    pub fn has_returned(&self) -> bool {
        !self.lock().returned.is_empty()
    }

    /// Frees everything that is out. Only for the worker, when its stream is done.
    pub fn free_all(&self) -> usize {
        let live = {
            let mut state = self.lock();
            state.returned.clear();
            std::mem::take(&mut state.live)
        };
        live.keys().for_each(|address| self.free(*address));
        live.len()
    }

    fn free(&self, address: u64) {
        let Some(_epoch) = self.target.epoch.hold() else { return };
        let api = &self.target.api;
        // SAFETY: the address came from aclrtMalloc and was in `live` until now, so it is freed once.
        dropped(api, AclFn::aclrtFree, unsafe { (api.aclrtFree)(address as *mut _) });
    }

    fn release(&self, address: u64) {
        let here = self.is_here();
        {
            let mut state = self.lock();
            if !state.live.contains_key(&address) {
                return;
            }
            if here {
                state.live.remove(&address);
            } else {
                state.returned.push(address);
            }
        }
        if here { self.free(address) } else { (self.wake)() }
    }

    fn lock(&self) -> MutexGuard<'_, HomeState> {
        // Nothing under this lock can leave it half done.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// Addresses on their way back to the driver.
pub(crate) struct Returned {
    home: Arc<Home>,
    addresses: Vec<u64>,
}

impl Drop for Returned {
    fn drop(&mut self) {
        for address in self.addresses.drain(..) {
            if self.home.lock().live.remove(&address).is_some() {
                self.home.free(address);
            }
        }
    }
}

/// Device memory. Dropped on the worker it is freed at once, so the stream must be past it; dropped elsewhere it is freed by
/// the worker in stream order.
pub(crate) struct DeviceMem {
    home: Arc<Home>,
    address: u64,
    bytes: u64,
}

impl DeviceMem {
    /// On the worker. The content is undefined.
    pub fn alloc(home: &Arc<Home>, bytes: u64) -> Result<DeviceMem> {
        let target = &home.target;
        let api = &target.api;
        let out_of_memory = || Error::OutOfMemory {
            device: target.name.clone(),
            requested_bytes: bytes,
            free_bytes: memory_info(api).ok().map(|(free, _)| free),
            tensor: None,
        };
        let size = padded(bytes).and_then(|b| usize::try_from(b).ok()).ok_or_else(out_of_memory)?;
        let mut address = std::ptr::null_mut();
        // SAFETY: the pointer is to a local of the right type.
        let code = unsafe { (api.aclrtMalloc)(&mut address, size, ACL_MEM_MALLOC_HUGE_FIRST) };
        if is_out_of_memory(code) {
            let mib = size as f64 / (1 << 20) as f64;
            let message = recent_message(api);
            let device = target.name.as_str();
            tracing::warn!(device, "allocating {mib:.2} MiB on device {}: aclrtMalloc failed: {message}", target.id);
            return Err(out_of_memory());
        }
        check(api, AclFn::aclrtMalloc, code)?;
        let address = address as u64;
        home.lock().live.insert(address, size as u64);
        Ok(DeviceMem { home: home.clone(), address, bytes: size as u64 })
    }

    pub fn address(&self) -> u64 {
        self.address
    }

    /// What was asked, rounded up.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for DeviceMem {
    fn drop(&mut self) {
        self.home.release(self.address);
    }
}

impl std::fmt::Debug for DeviceMem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeviceMem({:#x}, {} bytes)", self.address, self.bytes)
    }
}

/// Host memory the device can copy to and from without staging, or plain memory where none could be pinned. Zeroed at first.
pub struct PinnedMem(Backing);

enum Backing {
    Pinned { lease: Arc<Lease>, ptr: *mut u8, bytes: usize },
    Plain(memmap2::MmapMut),
    Empty,
}

// SAFETY: host memory is process-wide and reached through `&self` for reading and `&mut self` for writing only; freeing
// it binds the device on whatever thread that is.
unsafe impl Send for PinnedMem {}
// SAFETY: as above.
unsafe impl Sync for PinnedMem {}

impl PinnedMem {
    /// Pinned if it can be; else a warning, and plain memory.
    pub(crate) fn alloc(lease: &Arc<Lease>, bytes: u64, pin: bool) -> Result<PinnedMem> {
        if bytes == 0 {
            return Ok(PinnedMem(Backing::Empty));
        }
        let target = &lease.target;
        let out_of_memory = || Error::OutOfMemory {
            device: target.name.clone(),
            requested_bytes: bytes,
            free_bytes: None,
            tensor: None,
        };
        let size = padded(bytes).and_then(|b| usize::try_from(b).ok()).ok_or_else(out_of_memory)?;
        let size_asked = bytes as usize;
        if pin && target.api.has(AclFn::aclrtMallocHost) {
            let (code, address) = lease.bound(|api| {
                let mut ptr = std::ptr::null_mut();
                // SAFETY: the pointer is to a local of the right type.
                let code = unsafe { (api.aclrtMallocHost)(&mut ptr, size) };
                (code, ptr as usize)
            })?;
            if code == ACL_SUCCESS {
                let ptr = address as *mut u8;
                // SAFETY: the library gave `size` bytes; they are ours alone.
                unsafe { ptr.write_bytes(0, size) };
                return Ok(PinnedMem(Backing::Pinned { lease: lease.clone(), ptr, bytes: size_asked }));
            }
            let mib = size as f64 / (1 << 20) as f64;
            let message = recent_message(&target.api);
            tracing::warn!(device = target.name, "failed to allocate {mib:.2} MiB of pinned memory: {message}");
        }
        let map = memmap2::MmapMut::map_anon(size_asked).map_err(|_| out_of_memory())?;
        Ok(PinnedMem(Backing::Plain(map)))
    }

    pub fn is_pinned(&self) -> bool {
        matches!(self.0, Backing::Pinned { .. })
    }

    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    pub fn as_slice(&self) -> &[u8] {
        match &self.0 {
            // SAFETY: `bytes` bytes, initialised at allocation, ours until drop.
            Backing::Pinned { ptr, bytes, .. } => unsafe { std::slice::from_raw_parts(*ptr, *bytes) },
            Backing::Plain(map) => map,
            Backing::Empty => &[],
        }
    }

    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        match &mut self.0 {
            // SAFETY: as above, and `&mut self` makes this the only way in.
            Backing::Pinned { ptr, bytes, .. } => unsafe { std::slice::from_raw_parts_mut(*ptr, *bytes) },
            Backing::Plain(map) => map,
            Backing::Empty => &mut [],
        }
    }
}

impl Drop for PinnedMem {
    fn drop(&mut self) {
        if let Backing::Pinned { lease, ptr, .. } = &self.0 {
            let address = *ptr as usize;
            // SAFETY: the pointer came from aclrtMallocHost and is freed once.
            let free = |api: &AclApi| unsafe { (api.aclrtFreeHost)(address as *mut _) };
            let code = lease.bound(free).unwrap_or_else(|error| {
                // Better asked on a thread without a device than lost for certain.
                tracing::warn!(%error, "no device to free pinned memory with");
                free(&lease.target.api)
            });
            dropped(&lease.target.api, AclFn::aclrtFreeHost, code);
        }
    }
}

impl std::fmt::Debug for PinnedMem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PinnedMem({} bytes, pinned: {})", self.len(), self.is_pinned())
    }
}

/// A range of device addresses with no memory behind it yet. Its mappings must be dropped before it.
pub(crate) struct VirtualRange {
    target: Target,
    base: u64,
    bytes: u64,
}

impl VirtualRange {
    pub fn reserve(target: &Target, bytes: u64) -> Result<VirtualRange> {
        let api = &target.api;
        let mut base = std::ptr::null_mut();
        // Flag 1 (huge pages) is what older libraries know; newer ones take it for compatibility.
        // SAFETY: the pointer is to a local of the right type; no address is expected.
        let code = unsafe { (api.aclrtReserveMemAddress)(&mut base, bytes as usize, 0, std::ptr::null_mut(), 1) };
        check(api, AclFn::aclrtReserveMemAddress, code)?;
        Ok(VirtualRange { target: target.clone(), base: base as u64, bytes })
    }

    pub fn base(&self) -> u64 {
        self.base
    }

    /// Puts new physical memory behind `offset..offset + bytes`, both multiples of the granularity. Nothing is kept on error.
    pub fn map(&self, offset: u64, bytes: u64) -> Result<Mapping> {
        debug_assert!(offset + bytes <= self.bytes);
        let target = &self.target;
        let (api, prop) = (&target.api, physical_prop(target.id));
        let mut handle = std::ptr::null_mut();
        // SAFETY: the pointers are to locals of the right type.
        let code = unsafe { (api.aclrtMallocPhysical)(&mut handle, bytes as usize, &prop, 0) };
        if is_out_of_memory(code) {
            let (device, message) = (target.name.as_str(), recent_message(api));
            tracing::warn!(device, "{bytes} bytes of physical memory: aclrtMallocPhysical failed: {message}");
            return Err(Error::OutOfMemory {
                device: target.name.clone(),
                requested_bytes: bytes,
                free_bytes: memory_info(api).ok().map(|(free, _)| free),
                tensor: None,
            });
        }
        check(api, AclFn::aclrtMallocPhysical, code)?;
        let physical = Physical { target: target.clone(), handle };
        let address = self.base + offset;
        // SAFETY: the range is ours and nothing is mapped there; the size is the handle's.
        let code = unsafe { (api.aclrtMapMem)(address as *mut _, bytes as usize, 0, handle, 0) };
        check(api, AclFn::aclrtMapMem, code)?;
        Ok(Mapping { offset, bytes, mapped: address, physical })
    }
}

impl Drop for VirtualRange {
    fn drop(&mut self) {
        let Some(_epoch) = self.target.epoch.hold() else { return };
        let api = &self.target.api;
        // SAFETY: the range is ours, nothing is mapped in it any more, and it is released once.
        dropped(api, AclFn::aclrtReleaseMemAddress, unsafe { (api.aclrtReleaseMemAddress)(self.base as *mut _) });
    }
}

struct Physical {
    target: Target,
    handle: aclrtDrvMemHandle,
}

// SAFETY: a process-wide handle used by value; the pool that owns it lives on one worker.
unsafe impl Send for Physical {}

impl Drop for Physical {
    fn drop(&mut self) {
        let Some(_epoch) = self.target.epoch.hold() else { return };
        let api = &self.target.api;
        // SAFETY: the handle is ours and freed once.
        dropped(api, AclFn::aclrtFreePhysical, unsafe { (api.aclrtFreePhysical)(self.handle) });
    }
}

/// Physical memory behind a part of a [`VirtualRange`]. Dropped only when the stream is past its last use.
pub(crate) struct Mapping {
    pub offset: u64,
    pub bytes: u64,
    mapped: u64,
    physical: Physical,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let Some(_epoch) = self.physical.target.epoch.hold() else { return };
        let api = &self.physical.target.api;
        // SAFETY: the address was mapped by us and is unmapped once; the physical memory goes after.
        dropped(api, AclFn::aclrtUnmapMem, unsafe { (api.aclrtUnmapMem)(self.mapped as *mut _) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_round_up() {
        for (asked, got) in [(0, 128), (1, 128), (128, 128), (129, 256)] {
            assert_eq!(padded(asked), Some(got));
        }
        assert_eq!(padded(u64::MAX), None);
    }
}
