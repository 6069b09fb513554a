//! A thread's binding to a device, and questions that need no stream.
//!
//! `aclrtSetDevice` counts per device and binds per thread. Here each set has its reset: a [`Binding`] for a few calls on
//! some thread, a [`Lease`] for as long as anything lives that the device owns.

use std::cell::Cell;
use std::ffi::CStr;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use acl_sys::*;

use super::status::{check, dropped};
use crate::error::{Error, Result};

/// One device of one driver.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub api: Arc<AclApi>,
    pub id: i32,
    /// "CANN0", for errors.
    pub name: String,
    pub epoch: Epoch,
}

/// The time between two resets of a lost device. What was made in an epoch that is over went with the device: it must not be
/// destroyed again, its handles may be somebody else's by now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Epoch {
    resets: Arc<Resets>,
    born: u64,
}

#[derive(Debug, Default)]
struct Resets {
    count: AtomicU64,
    /// Written by a reset; read by whoever must not be interrupted by one.
    running: RwLock<()>,
}

impl Epoch {
    pub fn is_over(&self) -> bool {
        self.resets.count.load(Ordering::Acquire) != self.born
    }

    /// Keeps the epoch from ending while the guard lives; `None` when it is over already. Not to be nested on one thread.
    pub fn hold(&self) -> Option<RwLockReadGuard<'_, ()>> {
        let guard = self.resets.running.read().unwrap_or_else(PoisonError::into_inner);
        (!self.is_over()).then_some(guard)
    }

    fn now(&self) -> Epoch {
        Epoch { resets: self.resets.clone(), born: self.resets.count.load(Ordering::Acquire) }
    }
}

impl Target {
    /// The same device, for what is made from now on.
    pub fn now(&self) -> Target {
        Target { epoch: self.epoch.now(), ..self.clone() }
    }
}

thread_local! {
    /// Table and device this thread is bound to. ACL's own getter answers 0 on some versions where none is set.
    static BOUND: Cell<Option<(usize, i32)>> = const { Cell::new(None) };
}

fn key(target: &Target) -> (usize, i32) {
    (Arc::as_ptr(&target.api) as usize, target.id)
}

/// The device this thread is bound to, -1 if none.
pub(crate) fn bound_device() -> i32 {
    BOUND.get().map_or(-1, |(_, device)| device)
}

/// This thread is bound to the device while the guard lives.
pub(crate) struct Binding {
    /// Where the thread was not bound before: the device as it was set. Else the thread is bound to this very device for good.
    fresh: Option<Target>,
    _this_thread: PhantomData<*const ()>,
}

impl Binding {
    /// On a thread that is bound to this device or to none.
    pub fn new(target: &Target) -> Result<Binding> {
        let fresh = (BOUND.get() != Some(key(target))).then(|| target.now());
        if let Some(target) = &fresh {
            debug_assert_eq!(BOUND.get(), None, "a thread has one device");
            set_device(target)?;
            BOUND.set(Some(key(target)));
        }
        Ok(Binding { fresh, _this_thread: PhantomData })
    }
}

impl Drop for Binding {
    fn drop(&mut self) {
        if let Some(target) = &self.fresh {
            reset_device(target);
            BOUND.set(None);
        }
    }
}

/// One count on a device, for as long as any stream, event or pinned memory of it lives. The thread that made it stays bound;
/// whoever drops the last one gives the count back.
#[derive(Debug)]
pub(crate) struct Lease {
    pub target: Target,
}

impl Lease {
    pub fn new(target: Target) -> Result<Arc<Lease>> {
        set_device(&target)?;
        BOUND.set(Some(key(&target)));
        Ok(Arc::new(Lease { target }))
    }

    /// Runs a call that needs the device bound, on whatever thread this is. The worker of another device lends itself to
    /// nobody: then a short-lived thread makes the call.
    pub fn bound<R: Send>(&self, call: impl FnOnce(&AclApi) -> R + Send) -> Result<R> {
        let here = || {
            let _binding = Binding::new(&self.target)?;
            Ok(call(&self.target.api))
        };
        if BOUND.get().is_none_or(|bound| bound == key(&self.target)) { here() } else { aside(here) }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if BOUND.get() == Some(key(&self.target)) {
            BOUND.set(None);
        }
        reset_device(&self.target);
    }
}

fn set_device(target: &Target) -> Result<()> {
    let Some(_epoch) = target.epoch.hold() else {
        return Err(Error::DeviceLost { device: target.name.clone(), cause: "it was reset meanwhile".into() });
    };
    // SAFETY: takes a number.
    check(&target.api, AclFn::aclrtSetDevice, unsafe { (target.api.aclrtSetDevice)(target.id) })
}

fn reset_device(target: &Target) {
    // The reset of a lost device took this count with it; the ones there are now are others'.
    let Some(_epoch) = target.epoch.hold() else { return };
    // SAFETY: takes a number; what lives on the device holds a count of its own.
    dropped(&target.api, AclFn::aclrtResetDevice, unsafe { (target.api.aclrtResetDevice)(target.id) });
}

/// Runs a call on a thread of its own, which leaves no binding behind.
pub(crate) fn aside<T: Send>(ask: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("cann-probe".into()).spawn_scoped(scope, ask);
        let thread = thread.map_err(|e| Error::Internal(format!("no thread to ask a device: {e}")))?;
        thread.join().unwrap_or_else(|_| Err(Error::Internal("asking a device panicked".into())))
    })
}

/// Starts the library for this process; a second start is fine.
pub(crate) fn init(api: &AclApi) -> Result<()> {
    // SAFETY: null asks for defaults.
    match unsafe { (api.aclInit)(std::ptr::null()) } {
        ACL_ERROR_REPEAT_INITIALIZE => Ok(()),
        code => check(api, AclFn::aclInit, code),
    }
}

pub(crate) fn device_count(api: &AclApi) -> Result<u32> {
    let mut count = 0;
    // SAFETY: the pointer is to a local of the right type.
    check(api, AclFn::aclrtGetDeviceCount, unsafe { (api.aclrtGetDeviceCount)(&mut count) })?;
    Ok(count)
}

/// The chip's name; "unknown" where the library has none to give.
pub(crate) fn soc_name(api: &AclApi) -> String {
    // SAFETY: takes nothing; answers null or a static C string.
    unsafe {
        let name = (api.aclrtGetSocName)();
        if name.is_null() { "unknown".into() } else { CStr::from_ptr(name).to_string_lossy().into_owned() }
    }
}

/// What the library says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// Of the ACL interface.
    pub interface: Option<String>,
    pub toolkit: Option<String>,
    pub driver: Option<String>,
}

/// Asks the library; needs no device. A function it lacks, or a package it does not know, is a `None`.
pub(crate) fn versions(api: &AclApi) -> Versions {
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: the pointers are to locals of the right type.
    let code = unsafe { (api.aclrtGetVersion)(&mut major, &mut minor, &mut patch) };
    let interface = (code == ACL_SUCCESS).then(|| format!("{major}.{minor}.{patch}"));
    Versions { interface, toolkit: package(api, ACL_PKG_NAME_CANN), driver: package(api, ACL_PKG_NAME_DRIVER) }
}

fn package(api: &AclApi, name: aclCANNPackageName) -> Option<String> {
    // SAFETY: a struct of characters; zeroes are empty texts.
    let mut version: aclCANNPackageVersion = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a local of the right type.
    if unsafe { (api.aclsysGetCANNVersion)(name, &mut version) } != ACL_SUCCESS {
        return None;
    }
    let bytes = version.version.map(|c| c as u8);
    let text = CStr::from_bytes_until_nul(&bytes).ok()?.to_str().ok()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Free and total bytes of the device this thread is bound to: HBM, or DDR on chips that have none.
pub(crate) fn memory_info(api: &AclApi) -> Result<(u64, u64)> {
    let ask = |attr| {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the pointers are to locals of the right type.
        check(api, AclFn::aclrtGetMemInfo, unsafe { (api.aclrtGetMemInfo)(attr, &mut free, &mut total) })?;
        Ok((free as u64, total as u64))
    };
    match ask(ACL_HBM_MEM) {
        Ok((free, total)) if total > 0 => Ok((free, total)),
        hbm => ask(ACL_DDR_MEM).or(hbm),
    }
}

/// Physical memory of a device as the granularity query and `aclrtMallocPhysical` want it described.
pub(crate) fn physical_prop(device: i32) -> aclrtPhysicalMemProp {
    aclrtPhysicalMemProp {
        handleType: ACL_MEM_HANDLE_TYPE_NONE,
        allocationType: ACL_MEM_ALLOCATION_TYPE_PINNED,
        memAttr: ACL_HBM_MEM_HUGE,
        location: aclrtMemLocation { id: device as u32, r#type: ACL_MEM_LOCATION_TYPE_DEVICE },
        reserve: 0,
    }
}

/// The unit in which physical memory can be mapped; `None` means the device has no virtual memory management.
pub(crate) fn granularity(target: &Target) -> Option<u64> {
    let api = &target.api;
    let needed = [
        AclFn::aclrtMemGetAllocationGranularity,
        AclFn::aclrtReserveMemAddress,
        AclFn::aclrtReleaseMemAddress,
        AclFn::aclrtMallocPhysical,
        AclFn::aclrtFreePhysical,
        AclFn::aclrtMapMem,
        AclFn::aclrtUnmapMem,
    ];
    if !needed.iter().all(|f| api.has(*f)) {
        return None;
    }
    let (mut prop, mut bytes) = (physical_prop(target.id), 0);
    // SAFETY: both pointers are to locals of the right type.
    let code = unsafe {
        (api.aclrtMemGetAllocationGranularity)(&mut prop, ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED, &mut bytes)
    };
    if code != ACL_SUCCESS {
        tracing::debug!(device = target.name, code, "no virtual memory management");
        return None;
    }
    u64::try_from(bytes).ok().filter(|b| b.is_power_of_two())
}

/// Whether `device` can reach `peer`'s memory. An error is a no: the answer decides between two ways that both work.
pub(crate) fn can_access_peer(api: &AclApi, device: i32, peer: i32) -> bool {
    if !api.has(AclFn::aclrtDeviceCanAccessPeer) || !api.has(AclFn::aclrtDeviceEnablePeerAccess) || device == peer {
        return false;
    }
    let mut can = 0;
    // SAFETY: the pointer is to a local of the right type.
    let code = unsafe { (api.aclrtDeviceCanAccessPeer)(&mut can, device, peer) };
    code == ACL_SUCCESS && can == 1
}

/// Lets the device this thread is bound to reach `peer`'s memory: one direction.
pub(crate) fn enable_peer_access(api: &AclApi, peer: i32) -> Result<()> {
    // SAFETY: takes numbers; flags must be 0.
    check(api, AclFn::aclrtDeviceEnablePeerAccess, unsafe { (api.aclrtDeviceEnablePeerAccess)(peer, 0) })
}

/// Tears down whatever is left of a device that answers nothing any more.
pub(crate) fn revive(target: &Target) -> Result<()> {
    let api = &target.api;
    let _no_other = target.epoch.resets.running.write().unwrap_or_else(PoisonError::into_inner);
    // Where every backend of it was closed since, nobody has the device set, and it could not be reset. A lost one may refuse.
    // SAFETY: takes a number.
    let set = check(api, AclFn::aclrtSetDevice, unsafe { (api.aclrtSetDevice)(target.id) });
    let reset = if api.has(AclFn::aclrtResetDeviceForce) {
        // SAFETY: takes a number; the backends of the device are lost, their handles answer errors from now on.
        check(api, AclFn::aclrtResetDeviceForce, unsafe { (api.aclrtResetDeviceForce)(target.id) })
    } else {
        // SAFETY: as above.
        check(api, AclFn::aclrtResetDevice, unsafe { (api.aclrtResetDevice)(target.id) })
    };
    // Where both failed, the first is why.
    reset.or_else(|error| set.and(Err(error)))?;
    target.epoch.resets.count.fetch_add(1, Ordering::AcqRel);
    Ok(())
}
