//! Reserved address ranges and physical memory mapped into them.
//!
//! A reservation is one map whose pages appear when they are touched; mapping marks a part of it as usable, unmapping gives
//! its pages back. Contents therefore do not follow a handle from one address to another, and a handle is mapped at one
//! address at a time: what nothing above relies on. Physical memory counts against the device's budget from
//! `aclrtMallocPhysical` until it is freed and not mapped any more.

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock};

use acl_sys::*;

use super::context::{self, devices, fail};
use super::memory::{self, AllocationInfo, Hold, Lookup, Map, bury, charge, uncharge};
use super::registry::{fresh_handle, handle_pointer, lock};
use super::{capture, checked, config};

pub(crate) const GRANULARITY_BYTES: usize = 2 << 20;

pub(crate) struct Reservation {
    base: usize,
    bytes: usize,
    device: usize,
    map: Map,
    mapped: Mutex<BTreeMap<usize, Mapping>>,
}

#[derive(Clone, Copy)]
struct Mapping {
    bytes: usize,
    handle: usize,
    /// Of the physical memory.
    device: usize,
}

struct Physical {
    bytes: usize,
    device: usize,
    mapped: bool,
    /// Freed while mapped; ends when it is unmapped.
    freed: bool,
}

static RESERVATIONS: RwLock<BTreeMap<usize, Arc<Reservation>>> = RwLock::new(BTreeMap::new());
static PHYSICAL: LazyLock<Mutex<HashMap<usize, Physical>>> = LazyLock::new(Mutex::default);

/// High-bandwidth memory by page size, peer-to-peer or not, and the attributes that leave the kind of memory open.
const DEVICE_ATTRS: [aclrtMemAttr; 12] = [4, 5, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17];

pub(crate) fn granularity(prop: &aclrtPhysicalMemProp, option: aclrtMemGranularityOptions) -> Result<usize, aclError> {
    if option != ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM && option != ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED {
        return Err(fail(ACL_ERROR_INVALID_PARAM, format!("granularity option {option} does not exist")));
    }
    check_supported()?;
    check_prop(prop)?;
    Ok(GRANULARITY_BYTES)
}

pub(crate) fn reserve(bytes: usize, alignment: usize, expected: *mut c_void, flags: u64) -> Result<usize, aclError> {
    if bytes == 0 || alignment != 0 || !expected.is_null() || flags > 1 {
        let text = format!("size {bytes}, alignment {alignment}, address {expected:?}, flags {flags}: not accepted");
        return Err(fail(ACL_ERROR_INVALID_PARAM, text));
    }
    check_supported()?;
    let device = context::current()?;
    capture::check_unsafe_call("reservation")?;
    let refused = |why: &str| fail(ACL_ERROR_RT_MEMORY_ALLOCATION, format!("cannot reserve {bytes} bytes: {why}"));
    let size = bytes.checked_next_multiple_of(GRANULARITY_BYTES).filter(|size| *size <= isize::MAX as usize / 2);
    let size = size.ok_or_else(|| refused("more than there are addresses"))?;
    let map = Map::new(size + GRANULARITY_BYTES).map_err(|error| refused(&error.to_string()))?;
    let base = map.base.next_multiple_of(GRANULARITY_BYTES);
    let reservation = Reservation { base, bytes: size, device: device.id, map, mapped: Mutex::default() };
    reservations_mut(|all| all.insert(base, Arc::new(reservation)));
    checked::handle_made("address range", base, device.id);
    Ok(base)
}

pub(crate) fn release(pointer: *mut c_void) -> Result<(), aclError> {
    check_pointer(pointer)?;
    capture::check_unsafe_call("release of addresses")?;
    let released = reservations_mut(|all| {
        let found = all.get(&pointer.addr()).ok_or_else(|| {
            fail(ACL_ERROR_RT_PARAM_INVALID, format!("{pointer:?} is not the beginning of a reserved range"))
        })?;
        let mapped = lock(&found.mapped).len();
        if mapped > 0 {
            let text = format!("{mapped} mappings are left in the range at {pointer:?}");
            return Err(fail(ACL_ERROR_RT_PARAM_INVALID, text));
        }
        Ok(all.remove(&pointer.addr()))
    })?;
    checked::handle_ended(pointer.addr());
    released.into_iter().for_each(|reservation| bury(Hold::Reservation(reservation)));
    memory::sweep();
    Ok(())
}

pub(crate) fn allocate_physical(
    bytes: usize,
    prop: &aclrtPhysicalMemProp,
    flags: u64,
) -> Result<*mut c_void, aclError> {
    if bytes == 0 || flags != 0 {
        return Err(fail(ACL_ERROR_INVALID_PARAM, format!("size {bytes}, flags {flags}: not accepted")));
    }
    check_supported()?;
    context::current()?;
    capture::check_unsafe_call("allocation")?;
    check_prop(prop)?;
    if !bytes.is_multiple_of(GRANULARITY_BYTES) {
        let text = format!("{bytes} bytes are no multiple of the granularity of {GRANULARITY_BYTES}");
        return Err(fail(ACL_ERROR_RT_PARAM_INVALID, text));
    }
    let device = context::device(prop.location.id.try_into().unwrap_or(i32::MAX))?;
    charge(device, bytes)?;
    let handle = fresh_handle();
    lock(&PHYSICAL).insert(handle, Physical { bytes, device: device.id, mapped: false, freed: false });
    checked::handle_made("physical allocation", handle, device.id);
    Ok(handle_pointer(handle))
}

/// Ends when it is unmapped, if it is mapped.
pub(crate) fn free_physical(handle: aclrtDrvMemHandle) -> Result<(), aclError> {
    check_pointer(handle)?;
    capture::check_unsafe_call("free")?;
    let mut physical = lock(&PHYSICAL);
    let found = physical.get_mut(&handle.addr()).filter(|found| !found.freed).ok_or_else(|| unknown(handle))?;
    checked::handle_ended(handle.addr());
    if found.mapped {
        found.freed = true;
        return Ok(());
    }
    uncharge(&devices()[found.device], found.bytes);
    physical.remove(&handle.addr());
    Ok(())
}

pub(crate) fn map(
    pointer: *mut c_void,
    bytes: usize,
    offset: usize,
    handle: aclrtDrvMemHandle,
    flags: u64,
) -> Result<(), aclError> {
    check_pointer(pointer)?;
    check_pointer(handle)?;
    if bytes == 0 || offset != 0 || flags != 0 {
        let text = format!("size {bytes}, offset {offset}, flags {flags}: not accepted");
        return Err(fail(ACL_ERROR_INVALID_PARAM, text));
    }
    check_supported()?;
    context::current()?;
    capture::check_unsafe_call("mapping")?;
    let invalid = |text: String| fail(ACL_ERROR_RT_PARAM_INVALID, text);
    let addr = pointer.addr();
    let reservation = reservation_of(addr).ok_or_else(|| invalid(format!("{pointer:?} is not reserved")))?;
    let mut physical = lock(&PHYSICAL);
    let found = physical.get_mut(&handle.addr()).filter(|found| !found.freed).ok_or_else(|| unknown(handle))?;
    if bytes != found.bytes {
        return Err(invalid(format!("the handle has {} bytes, {bytes} are to be mapped", found.bytes)));
    }
    if found.mapped {
        return Err(invalid(format!("handle {handle:?} is mapped already")));
    }
    if !addr.is_multiple_of(GRANULARITY_BYTES) {
        let text = format!("{pointer:?} is no multiple of the granularity of {GRANULARITY_BYTES}");
        return Err(fail(ACL_ERROR_RT_ADDR_UNALIGNED, text));
    }
    if bytes > reservation.base + reservation.bytes - addr {
        return Err(invalid(format!("{bytes} bytes at {pointer:?} leave the reserved range")));
    }
    let mut mapped = lock(&reservation.mapped);
    if mapped.range(..addr + bytes).next_back().is_some_and(|(at, last)| at + last.bytes > addr) {
        return Err(invalid(format!("a part of the {bytes} bytes at {pointer:?} is mapped already")));
    }
    if mapped.values().any(|other| other.device != found.device) {
        return Err(invalid("one reserved range cannot hold memory of two devices".to_owned()));
    }
    found.mapped = true;
    mapped.insert(addr, Mapping { bytes, handle: handle.addr(), device: found.device });
    checked::block_made(addr, bytes, Some(found.device));
    if config::settings().check {
        // SAFETY: the range is inside the reservation, and nobody has used it yet.
        unsafe { memory::fill(memory::address(addr), memory::POISON, bytes) };
    }
    Ok(())
}

pub(crate) fn unmap(pointer: *mut c_void) -> Result<(), aclError> {
    check_pointer(pointer)?;
    capture::check_unsafe_call("unmapping")?;
    let addr = pointer.addr();
    let not_mapped = || fail(ACL_ERROR_RT_PARAM_INVALID, format!("{pointer:?} is not the beginning of a mapping"));
    let reservation = reservation_of(addr).ok_or_else(not_mapped)?;
    let in_use = checked::pending_use(addr);
    let mut physical = lock(&PHYSICAL);
    let mapping = lock(&reservation.mapped).remove(&addr).ok_or_else(not_mapped)?;
    checked::block_ended(addr);
    reservation.map.drop_pages(addr, mapping.bytes);
    if let Some(found) = physical.get_mut(&mapping.handle) {
        found.mapped = false;
        if found.freed {
            uncharge(&devices()[found.device], found.bytes);
            physical.remove(&mapping.handle);
        }
    }
    in_use.map_or(Ok(()), |text| Err(checked::misuse(ACL_ERROR_RT_PARAM_INVALID, text)))
}

pub(super) fn lookup(addr: usize, bytes: usize) -> Lookup {
    let Some(reservation) = reservation_of(addr) else { return Lookup::Foreign };
    let mapped = lock(&reservation.mapped);
    let first = mapped.range(..=addr).next_back().filter(|(at, mapping)| addr < **at + mapping.bytes);
    let Some((base, first)) = first else {
        return Lookup::Past(format!("address {addr:#x} is reserved, but nothing is mapped there"));
    };
    // Mappings side by side are one memory.
    let mut end = base + first.bytes;
    while let Some(next) = mapped.get(&end) {
        end += next.bytes;
    }
    if bytes > end - addr {
        return Lookup::Past(format!("{bytes} bytes at {addr:#x} leave the mapped memory, which ends at {end:#x}"));
    }
    let info = AllocationInfo { base: *base, bytes: end - base, device: Some(first.device) };
    Lookup::Within(info, Hold::Reservation(Arc::clone(&reservation)))
}

pub(super) fn forget_device(device: usize) {
    let ended: BTreeMap<_, _> = reservations_mut(|all| {
        let (ended, kept) = std::mem::take(all).into_iter().partition(|(_, reservation)| reservation.device == device);
        *all = kept;
        ended
    });
    ended.into_iter().for_each(|(_, reservation)| bury(Hold::Reservation(reservation)));
    lock(&PHYSICAL).retain(|_, physical| physical.device != device);
}

/// Numbers of physical allocations and reserved ranges.
pub(crate) fn counts() -> (usize, usize) {
    let reserved = RESERVATIONS.read().unwrap_or_else(PoisonError::into_inner).len();
    (lock(&PHYSICAL).len(), reserved)
}

fn reservations_mut<T>(change: impl FnOnce(&mut BTreeMap<usize, Arc<Reservation>>) -> T) -> T {
    change(&mut RESERVATIONS.write().unwrap_or_else(PoisonError::into_inner))
}

fn reservation_of(addr: usize) -> Option<Arc<Reservation>> {
    let all = RESERVATIONS.read().unwrap_or_else(PoisonError::into_inner);
    let (_, found) = all.range(..=addr).next_back()?;
    (addr - found.base < found.bytes).then(|| Arc::clone(found))
}

fn check_supported() -> Result<(), aclError> {
    if !config::settings().family.has_vmm() {
        return Err(fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "no virtual memory management here"));
    }
    Ok(())
}

fn check_prop(prop: &aclrtPhysicalMemProp) -> Result<(), aclError> {
    let invalid = |text: String| Err(fail(ACL_ERROR_INVALID_PARAM, text));
    if prop.handleType != ACL_MEM_HANDLE_TYPE_NONE || prop.allocationType != ACL_MEM_ALLOCATION_TYPE_PINNED {
        return invalid(format!("handle type {}, allocation type {}", prop.handleType, prop.allocationType));
    }
    if prop.location.r#type != ACL_MEM_LOCATION_TYPE_DEVICE {
        return invalid(format!("location type {} is not the device", prop.location.r#type));
    }
    if !DEVICE_ATTRS.contains(&prop.memAttr) {
        return invalid(format!("memory attribute {} is not for physical device memory", prop.memAttr));
    }
    Ok(())
}

fn check_pointer(pointer: *mut c_void) -> Result<(), aclError> {
    if pointer.is_null() {
        return Err(fail(ACL_ERROR_INVALID_PARAM, "a pointer or handle is NULL"));
    }
    Ok(())
}

fn unknown(handle: aclrtDrvMemHandle) -> aclError {
    let history = checked::handle_history(handle.addr());
    let text = format!("physical memory {handle:?} was freed, lost by a reset, or never made{history}");
    checked::misuse(ACL_ERROR_RT_INVALID_HANDLE, text)
}
