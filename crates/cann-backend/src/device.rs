//! Drivers and their devices.
//!
//! A [`Registry`] is made once per process from the function tables there are. It asks nothing until somebody wants a list or
//! a device; a driver that fails is logged and left out. Every question is asked on a short-lived thread, so the caller's
//! own binding never changes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use acl_sys::{AclApi, AclFn};

pub use crate::acl::driver::Versions;
use crate::acl::driver::{self, Binding, Epoch, Target, aside};
use crate::error::{Error, Result};
use crate::pool::env_switch;

/// What kind of driver a table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverKind {
    /// The vendor's libraries.
    Cann,
    /// The embedded device.
    Host,
}

/// A function table and how its devices are called.
#[derive(Clone, Debug)]
pub struct DriverEntry {
    pub api: Arc<AclApi>,
    pub kind: DriverKind,
    /// "CANN" or "HOST"; a device's number follows.
    pub prefix: &'static str,
    /// What the devices are described as; their SoC name if `None`.
    pub description: Option<String>,
}

/// Functions without which no device can be used. What else a library lacks costs operators, or a faster way.
const ESSENTIAL: &[AclFn] = &[
    AclFn::aclInit,
    AclFn::aclrtGetDeviceCount,
    AclFn::aclrtSetDevice,
    AclFn::aclrtResetDevice,
    AclFn::aclrtGetMemInfo,
    AclFn::aclrtMalloc,
    AclFn::aclrtFree,
    AclFn::aclrtMemcpyAsync,
    AclFn::aclrtMemsetAsync,
    AclFn::aclrtCreateStream,
    AclFn::aclrtDestroyStream,
    AclFn::aclrtSynchronizeStream,
    AclFn::aclrtCreateEvent,
    AclFn::aclrtDestroyEvent,
    AclFn::aclrtRecordEvent,
    AclFn::aclrtStreamWaitEvent,
    AclFn::aclrtQueryEventStatus,
    AclFn::aclrtSynchronizeEvent,
    AclFn::aclCreateTensor,
    AclFn::aclDestroyTensor,
    AclFn::aclCreateScalar,
    AclFn::aclDestroyScalar,
    AclFn::aclCreateIntArray,
    AclFn::aclDestroyIntArray,
];

/// Names of the functions that a library lacks and no device does without.
pub fn essentials_missing(api: &AclApi) -> Vec<&'static str> {
    ESSENTIAL.iter().filter(|function| !api.has(**function)).map(|function| function.name()).collect()
}

/// What a driver's library says of itself. Blocks.
pub fn versions(api: &AclApi) -> Versions {
    driver::versions(api)
}

/// ggml's kinds of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceType {
    Cpu,
    Gpu,
    Accel,
}

/// One device, as of a moment.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceInfo {
    /// Position in the list of all devices.
    pub index: usize,
    pub name: String,
    pub description: String,
    pub driver: DriverKind,
    pub ty: DeviceType,
    pub memory_free: u64,
    pub memory_total: u64,
    pub vmm_supported: bool,
    pub vmm_granularity: u64,
    pub caps_async: bool,
    pub caps_host_buffer: bool,
    pub caps_buffer_from_host_ptr: bool,
    pub caps_events: bool,
    pub soc: String,
}

/// Which device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    Name(String),
    Index(usize),
}

/// All drivers of the process.
#[derive(Debug)]
pub struct Registry {
    drivers: Vec<DriverState>,
}

impl Registry {
    /// Makes no ACL call.
    pub fn new(drivers: Vec<DriverEntry>) -> Registry {
        let drivers = drivers.into_iter().map(|entry| DriverState { entry, slots: Mutex::new(None) }).collect();
        Registry { drivers }
    }

    /// Every usable device, in the order of the drivers, with fresh memory figures. Blocks.
    pub fn devices(&self) -> Vec<DeviceInfo> {
        self.all_slots().iter().enumerate().filter_map(|(i, slot)| slot.info(i).ok()).collect()
    }

    /// The device of that name or index, the first by default. Blocks.
    pub fn find(&self, selector: Option<&Selector>) -> Result<DeviceInfo> {
        let (slot, index) = self.slot(selector)?;
        slot.info(index)
    }

    pub(crate) fn slot(&self, selector: Option<&Selector>) -> Result<(Arc<DeviceSlot>, usize)> {
        let slots = self.all_slots();
        let found = match selector {
            None => slots.first().map(|slot| (slot, 0)),
            Some(Selector::Index(index)) => slots.get(*index).map(|slot| (slot, *index)),
            Some(Selector::Name(name)) => slots.iter().zip(0..).find(|(slot, _)| slot.target.name == *name),
        };
        found.map(|(slot, index)| (slot.clone(), index)).ok_or_else(|| {
            let known = slots.iter().map(|slot| slot.target.name.clone()).collect();
            let name = match selector {
                None => "the first".to_owned(),
                Some(Selector::Index(index)) => index.to_string(),
                Some(Selector::Name(name)) => name.clone(),
            };
            Error::NotFound { what: "device", name, known }
        })
    }

    fn all_slots(&self) -> Vec<Arc<DeviceSlot>> {
        self.drivers.iter().flat_map(DriverState::slots).collect()
    }
}

#[derive(Debug)]
struct DriverState {
    entry: DriverEntry,
    /// `None` until the driver answered once.
    slots: Mutex<Option<Vec<Arc<DeviceSlot>>>>,
}

impl DriverState {
    fn slots(&self) -> Vec<Arc<DeviceSlot>> {
        // The lock makes the first probe one step; ACL is called on another thread meanwhile, which never takes it.
        let mut slots = self.slots.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(slots) = &*slots {
            return slots.clone();
        }
        match aside(|| self.probe()) {
            Ok(found) => {
                *slots = Some(found.clone());
                found
            }
            Err(error) => {
                tracing::warn!(driver = self.entry.prefix, "failed to initialize {}: {error}", self.entry.prefix);
                Vec::new()
            }
        }
    }

    fn probe(&self) -> Result<Vec<Arc<DeviceSlot>>> {
        let api = &self.entry.api;
        driver::init(api)?;
        let count = driver::device_count(api)?;
        let soc = driver::soc_name(api);
        let mut slots = Vec::new();
        for id in 0..i32::try_from(count).unwrap_or(i32::MAX) {
            let name = format!("{}{id}", self.entry.prefix);
            let target = Target { api: api.clone(), id, name, epoch: Default::default() };
            slots.push(Arc::new(DeviceSlot {
                target,
                kind: self.entry.kind,
                soc: soc.clone(),
                description: self.entry.description.clone().unwrap_or_else(|| soc.clone()),
                granularity: OnceLock::new(),
                budget: OnceLock::new(),
                lost: AtomicBool::new(false),
                cause: Mutex::default(),
                revival: Mutex::default(),
            }));
        }
        Ok(slots)
    }
}

/// One device of the process: what does not change, and whether it is lost.
#[derive(Debug)]
pub(crate) struct DeviceSlot {
    pub target: Target,
    pub kind: DriverKind,
    pub soc: String,
    description: String,
    granularity: OnceLock<u64>,
    /// Free bytes at the first probe: what the vmm pool may grow to.
    budget: OnceLock<u64>,
    lost: AtomicBool,
    /// Why it is lost or, after a reset, was.
    cause: Mutex<String>,
    revival: Mutex<()>,
}

impl DeviceSlot {
    /// Asks the device. Blocks; the calling thread stays unbound.
    pub fn info(&self, index: usize) -> Result<DeviceInfo> {
        let asked = aside(|| {
            let _binding = Binding::new(&self.target)?;
            let memory = driver::memory_info(&self.target.api)?;
            self.budget.get_or_init(|| memory.0);
            // A no is not kept: it may have been a failure of the question.
            let known = self.granularity.get().copied();
            let granularity = known.or_else(|| driver::granularity(&self.target));
            Ok((memory, granularity.map(|bytes| *self.granularity.get_or_init(|| bytes))))
        });
        let ((free, total), granularity) = asked.inspect_err(|error| {
            tracing::warn!(device = self.target.name, "the device does not answer: {error}");
        })?;
        Ok(DeviceInfo {
            index,
            name: self.target.name.clone(),
            description: self.description.clone(),
            driver: self.kind,
            ty: if self.kind == DriverKind::Host { DeviceType::Cpu } else { DeviceType::Gpu },
            memory_free: free,
            memory_total: total,
            vmm_supported: granularity.is_some(),
            vmm_granularity: granularity.unwrap_or(0),
            caps_async: false,
            caps_host_buffer: pinning_allowed(),
            caps_buffer_from_host_ptr: false,
            caps_events: true,
            soc: self.soc.clone(),
        })
    }

    pub fn budget(&self) -> u64 {
        self.budget.get().copied().unwrap_or(0)
    }

    /// Tells every backend of the device. What met its fault in an epoch that is over says nothing about the device as it is.
    pub fn set_lost(&self, epoch: &Epoch, cause: &str) {
        if let Some(_epoch) = epoch.hold()
            && !self.lost.load(Ordering::Acquire)
        {
            cause.clone_into(&mut self.cause.lock().unwrap_or_else(|e| e.into_inner()));
            self.lost.store(true, Ordering::Release);
        }
    }

    /// Why what was made in `epoch` is of no use any more, if that is so.
    pub fn fault(&self, epoch: &Epoch) -> Option<String> {
        let gone = self.lost.load(Ordering::Acquire) || epoch.is_over();
        gone.then(|| self.cause.lock().unwrap_or_else(|e| e.into_inner()).clone())
    }

    /// Resets the device if it is lost. Whoever comes second finds it revived.
    pub fn revive(&self) -> Result<()> {
        let _one = self.revival.lock().unwrap_or_else(|e| e.into_inner());
        if self.lost.load(Ordering::Acquire) {
            aside(|| driver::revive(&self.target))?;
            self.lost.store(false, Ordering::Release);
            tracing::info!(device = self.target.name, "the device was reset after it was lost");
        }
        Ok(())
    }
}

/// Whether host memory may be pinned.
pub(crate) fn pinning_allowed() -> bool {
    env_switch("GGML_CANN_NO_PINNED") != Some(true)
}
