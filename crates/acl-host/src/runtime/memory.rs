//! Device memory and pinned host memory: anonymous maps, found again by address.
//!
//! Small allocations share maps (slabs of one size class), larger ones have a map each, which goes back to the system when
//! they are freed. Every address that comes in is looked up; a pointer to freed or foreign memory is found out, not
//! followed. Freed memory stays mapped until the work that was submitted before has passed: a kernel that still reads it
//! computes nonsense, as on a device, and does not crash the process. Absent: page sizes, locking of pages, memory that
//! processes share.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock};

use acl_sys::*;
use memmap2::{MmapMut, MmapOptions};

use super::checked::{self, Access, misuse};
use super::context::{self, Device, devices, fail};
use super::registry::lock;
use super::stream::{self, DevicePtr, Stream, Work};
use super::vmm::{self, Reservation};
use super::{capture, config};

/// What an address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AllocationInfo {
    pub(crate) base: usize,
    pub(crate) bytes: usize,
    /// None: pinned host memory.
    pub(crate) device: Option<usize>,
}

/// Live memory that covers a range; none for pageable host memory, freed memory and ranges that leave their allocation.
pub(crate) fn find(addr: usize, bytes: usize) -> Option<AllocationInfo> {
    match lookup(addr, bytes) {
        Lookup::Within(info, _) => Some(info),
        Lookup::Past(_) | Lookup::Foreign => None,
    }
}

/// Keeps memory mapped.
#[derive(Clone)]
pub(crate) enum Hold {
    Allocation(#[expect(dead_code, reason = "held, not read")] Arc<Allocation>),
    Reservation(#[expect(dead_code, reason = "held, not read")] Arc<Reservation>),
}

pub(super) enum Lookup {
    Within(AllocationInfo, Hold),
    /// It begins in ACL's memory, but is longer than what is there.
    Past(String),
    Foreign,
}

/// Actual size of an allocation: rounded up to 32 bytes, plus 32.
fn charged_bytes(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(32)?.checked_add(32)
}

const SLAB_LIMIT_BYTES: usize = 1 << 20;
/// Contents of fresh memory, so that code that trusts them fails the same way every time.
pub(super) const POISON: u8 = 0xA5;
/// More is poisoned in checked mode only: touching every page of a large allocation takes longer than using it.
const POISON_LIMIT_BYTES: usize = 1 << 20;
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// An anonymous map. Its pages are zero and cost nothing until they are touched.
pub(super) struct Map {
    map: MmapMut,
    pub(super) base: usize,
}

impl Map {
    pub(super) fn new(bytes: usize) -> std::io::Result<Map> {
        let mut map = MmapOptions::new().len(bytes).no_reserve_swap().map_anon()?;
        #[cfg(target_os = "linux")]
        if bytes >= 2 * HUGE_PAGE_BYTES {
            // Weights are streamed through; without huge pages the same numbers are computed, slower.
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        let base = map.as_mut_ptr().expose_provenance();
        Ok(Map { map, base })
    }

    /// Gives the pages of a range back to the system; what is read there afterwards is unspecified.
    pub(super) fn drop_pages(&self, addr: usize, bytes: usize) {
        #[cfg(unix)]
        {
            // SAFETY: the range is inside this anonymous private map, whose contents nobody holds a reference to: device
            // memory is accessed through raw pointers only.
            let _ =
                unsafe { self.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, addr - self.base, bytes) };
        }
        #[cfg(not(unix))]
        let _ = (addr, bytes, &self.map);
    }
}

/// One `aclrtMalloc` or `aclrtMallocHost`.
pub(crate) struct Allocation {
    base: usize,
    bytes: usize,
    charged: usize,
    device: Option<usize>,
    home: Home,
}

enum Home {
    Map(#[expect(dead_code, reason = "held, not read")] Map),
    Slab { class: usize, slab: usize },
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Home::Slab { class, slab } = self.home {
            // The map is dropped after the lock.
            let unused = lock(arena(self.device)).give_back(class, slab, self.base);
            drop(unused);
        }
    }
}

static ALLOCATIONS: LazyLock<RwLock<BTreeMap<usize, Arc<Allocation>>>> = LazyLock::new(RwLock::default);

/// Slabs of the host, then of each device.
static ARENAS: LazyLock<Vec<Mutex<Arena>>> =
    LazyLock::new(|| (0..=devices().len()).map(|_| Mutex::new(Arena::default())).collect());

fn arena(device: Option<usize>) -> &'static Mutex<Arena> {
    &ARENAS[device.map_or(0, |id| id + 1)]
}

#[derive(Default)]
struct Arena {
    classes: BTreeMap<usize, Class>,
    /// Class and base of the slab that became empty last: it is kept, so that a buffer taken and given back again and again
    /// costs no system calls.
    spare: Option<(usize, usize)>,
}

/// Slabs whose chunks have one size.
#[derive(Default)]
struct Class {
    slabs: BTreeMap<usize, Slab>,
    /// Slabs with a free chunk.
    open: BTreeSet<usize>,
}

struct Slab {
    _map: Map,
    chunks: u32,
    free: Vec<u32>,
}

impl Arena {
    /// A chunk of `class` bytes: its address and its slab's.
    fn take(&mut self, class: usize) -> std::io::Result<(usize, usize)> {
        let slabs = self.classes.entry(class).or_default();
        let base = match slabs.open.first() {
            Some(base) => *base,
            None => {
                let chunks = (SLAB_LIMIT_BYTES / class).clamp(8, 4096) as u32;
                let map = Map::new(class * chunks as usize)?;
                let base = map.base;
                slabs.slabs.insert(base, Slab { _map: map, chunks, free: (0..chunks).rev().collect() });
                slabs.open.insert(base);
                base
            }
        };
        if self.spare == Some((class, base)) {
            self.spare = None;
        }
        // Invariant: an open slab is in the class and has a free chunk.
        let slab = slabs.slabs.get_mut(&base).expect("an open slab exists");
        let chunk = slab.free.pop().expect("an open slab has a free chunk");
        if slab.free.is_empty() {
            slabs.open.remove(&base);
        }
        Ok((base + chunk as usize * class, base))
    }

    /// Frees a chunk; the answer is a slab that is not needed any more.
    fn give_back(&mut self, class: usize, base: usize, chunk: usize) -> Option<Slab> {
        let slabs = self.classes.get_mut(&class)?;
        let slab = slabs.slabs.get_mut(&base)?;
        slab.free.push(((chunk - base) / class) as u32);
        slabs.open.insert(base);
        if slab.free.len() < slab.chunks as usize {
            return None;
        }
        let unneeded = self.spare.replace((class, base));
        unneeded.and_then(|(class, base)| self.remove(class, base))
    }

    fn remove_spare(&mut self) -> Option<Slab> {
        let (class, base) = self.spare.take()?;
        self.remove(class, base)
    }

    fn remove(&mut self, class: usize, base: usize) -> Option<Slab> {
        let slabs = self.classes.get_mut(&class)?;
        slabs.open.remove(&base);
        slabs.slabs.remove(&base)
    }
}

impl Slab {
    #[cfg(test)]
    fn base(&self) -> usize {
        self._map.base
    }
}

/// The chunk size for an allocation: multiples of 64 that waste an eighth at most, or 64 bytes.
fn class_of(bytes: usize) -> usize {
    let step = (bytes.next_power_of_two() / 16).max(64);
    bytes.next_multiple_of(step)
}

/// Memory of the calling thread's device.
pub(crate) fn allocate_device(bytes: usize) -> Result<usize, aclError> {
    let device = context::current()?;
    capture::check_unsafe_call("allocation")?;
    sweep();
    let charged = charged_bytes(bytes).ok_or_else(|| too_large(bytes))?;
    charge(device, charged)?;
    allocate(bytes, charged, Some(device.id)).inspect_err(|_| uncharge(device, charged))
}

/// Bytes of pinned host memory.
static HOST_USED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Pinned host memory; no device pays for it, and no reset ends it. What is pinned cannot be paged out, so more than the
/// machine has is refused here and not by the system's killer when it is written to.
pub(crate) fn allocate_host(bytes: usize) -> Result<usize, aclError> {
    context::current()?;
    capture::check_unsafe_call("allocation")?;
    sweep();
    let charged = charged_bytes(bytes).ok_or_else(|| too_large(bytes))?;
    take_bytes(&HOST_USED_BYTES, config::settings().host_memory_bytes, charged, "the host")?;
    allocate(bytes, charged, None).inspect_err(|_| give_bytes(&HOST_USED_BYTES, charged))
}

fn allocate(bytes: usize, charged: usize, device: Option<usize>) -> Result<usize, aclError> {
    let refused = |error: std::io::Error| {
        let text = format!("the system refuses {charged} bytes: {error}");
        fail(ACL_ERROR_RT_MEMORY_ALLOCATION, text)
    };
    let (base, home) = if charged < SLAB_LIMIT_BYTES {
        let class = class_of(charged);
        let (base, slab) = lock(arena(device)).take(class).map_err(refused)?;
        (base, Home::Slab { class, slab })
    } else {
        let map = Map::new(charged).map_err(refused)?;
        (map.base, Home::Map(map))
    };
    if charged <= POISON_LIMIT_BYTES || config::settings().check {
        // SAFETY: the chunk or map has this many bytes and was given to nobody else.
        unsafe { fill(address(base), POISON, charged) };
    }
    let allocation = Arc::new(Allocation { base, bytes, charged, device, home });
    ALLOCATIONS.write().unwrap_or_else(PoisonError::into_inner).insert(base, allocation);
    checked::block_made(base, bytes, device);
    Ok(base)
}

fn too_large(bytes: usize) -> aclError {
    fail(ACL_ERROR_RT_MEMORY_ALLOCATION, format!("{bytes} bytes are more than there are addresses"))
}

/// Frees at once, whatever still runs; checked mode tells of that. `host` tells which of the two free functions was called.
pub(crate) fn free(pointer: *mut u8, host: bool) -> Result<(), aclError> {
    if pointer.is_null() {
        return Err(fail(ACL_ERROR_INVALID_PARAM, "the pointer is NULL"));
    }
    capture::check_unsafe_call("free")?;
    let base = pointer.addr();
    let in_use = checked::pending_use(base);
    let allocation = {
        let mut allocations = ALLOCATIONS.write().unwrap_or_else(PoisonError::into_inner);
        match allocations.get(&base) {
            Some(found) if found.device.is_none() == host => allocations.remove(&base),
            _ => None,
        }
    };
    let Some(allocation) = allocation else {
        let kind = if host { "pinned host" } else { "device" };
        let history = checked::history(base, 1);
        let text = format!("{pointer:?} is no {kind} memory that was allocated and not freed yet{history}");
        return Err(misuse(ACL_ERROR_INVALID_PARAM, text));
    };
    match allocation.device {
        Some(id) => uncharge(&devices()[id], allocation.charged),
        None => give_bytes(&HOST_USED_BYTES, allocation.charged),
    }
    if checked::enabled() {
        checked::block_ended(base);
        checked::quarantine(base, allocation.charged, Hold::Allocation(Arc::clone(&allocation)));
    }
    bury(Hold::Allocation(allocation));
    sweep();
    in_use.map_or(Ok(()), |text| Err(misuse(ACL_ERROR_RT_PARAM_INVALID, text)))
}

/// Takes bytes from a device's budget.
pub(super) fn charge(device: &Device, bytes: usize) -> Result<(), aclError> {
    take_bytes(&device.used_bytes, config::settings().memory_bytes, bytes, format_args!("device {}", device.id))
}

pub(super) fn uncharge(device: &Device, bytes: usize) {
    give_bytes(&device.used_bytes, bytes);
}

fn take_bytes(account: &AtomicUsize, total: usize, bytes: usize, owner: impl Display) -> Result<(), aclError> {
    let taken = account.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
        used.checked_add(bytes).filter(|used| *used <= total)
    });
    taken.map(drop).map_err(|used| {
        let free = total.saturating_sub(used);
        let text = format!("{owner} has {free} of {total} bytes free, {bytes} were asked for");
        fail(ACL_ERROR_RT_MEMORY_ALLOCATION, text)
    })
}

fn give_bytes(account: &AtomicUsize, bytes: usize) {
    // Saturating: a reset may have emptied the account meanwhile.
    let _ = account.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| Some(used.saturating_sub(bytes)));
}

/// Ends all memory of a device whose streams have ended.
pub(crate) fn forget_device(device: &Device) {
    let id = device.id;
    let ended: BTreeMap<_, _> = {
        let mut allocations = ALLOCATIONS.write().unwrap_or_else(PoisonError::into_inner);
        let (ended, kept) =
            std::mem::take(&mut *allocations).into_iter().partition(|(_, allocation)| allocation.device == Some(id));
        *allocations = kept;
        ended
    };
    // Another device's streams may read this one's memory.
    ended.into_iter().for_each(|(_, allocation)| bury(Hold::Allocation(allocation)));
    vmm::forget_device(id);
    device.used_bytes.store(0, Ordering::Relaxed);
    sweep();
    let unneeded = lock(arena(Some(id))).remove_spare();
    drop(unneeded);
}

/// Number of allocations, pinned host memory included.
pub(crate) fn allocation_count() -> usize {
    ALLOCATIONS.read().unwrap_or_else(PoisonError::into_inner).len()
}

struct Grave {
    _rests: Hold,
    marks: Vec<(Arc<Stream>, u64)>,
}

static GRAVES: Mutex<Vec<Grave>> = Mutex::new(Vec::new());
static GRAVE_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Lets go of memory when the work submitted so far is past.
pub(super) fn bury(memory: Hold) {
    let marks = stream::pending_marks();
    if !marks.is_empty() {
        let mut graves = lock(&GRAVES);
        graves.push(Grave { _rests: memory, marks });
        GRAVE_COUNT.store(graves.len(), Ordering::Release);
    }
}

/// Unmaps what rests long enough.
pub(crate) fn sweep() {
    if GRAVE_COUNT.load(Ordering::Acquire) == 0 {
        return;
    }
    let past: Vec<Grave> = {
        let mut graves = lock(&GRAVES);
        let is_past = |grave: &mut Grave| !grave.marks.iter().any(|(stream, mark)| stream.is_pending(*mark));
        let past = graves.extract_if(.., is_past).collect();
        GRAVE_COUNT.store(graves.len(), Ordering::Release);
        past
    };
    // Unmapping takes a while; the lock is open again.
    drop(past);
}

fn lookup(addr: usize, bytes: usize) -> Lookup {
    {
        let allocations = ALLOCATIONS.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, found)) = allocations.range(..=addr).next_back() {
            let offset = addr - found.base;
            if offset <= found.bytes && bytes <= found.bytes - offset && (offset < found.bytes || bytes == 0) {
                let info = AllocationInfo { base: found.base, bytes: found.bytes, device: found.device };
                return Lookup::Within(info, Hold::Allocation(Arc::clone(found)));
            }
            if offset < found.charged {
                let text = format!("{bytes} bytes at offset {offset} leave an allocation of {} bytes", found.bytes);
                return Lookup::Past(text);
            }
        }
    }
    vmm::lookup(addr, bytes)
}

/// Where a copy or memset begins or ends.
struct Place {
    /// None: host memory.
    device: Option<usize>,
    /// None: pageable host memory.
    hold: Option<Hold>,
}

impl Place {
    fn of(addr: usize, bytes: usize) -> Result<Place, aclError> {
        match lookup(addr, bytes) {
            Lookup::Within(info, hold) => Ok(Place { device: info.device, hold: Some(hold) }),
            Lookup::Past(text) => Err(misuse(ACL_ERROR_RT_PARAM_INVALID, text + &checked::history(addr, bytes))),
            Lookup::Foreign if checked::is_quarantined(addr) => {
                let text = format!("{bytes} bytes at {addr:#x} are freed memory{}", checked::history(addr, bytes));
                Err(misuse(ACL_ERROR_RT_PARAM_INVALID, text))
            }
            Lookup::Foreign => Ok(Place { device: None, hold: None }),
        }
    }

    fn is_pageable(&self) -> bool {
        self.hold.is_none()
    }

    fn name(&self) -> &'static str {
        match (self.device, self.is_pageable()) {
            (Some(_), _) => "device memory",
            (None, false) => "pinned host memory",
            (None, true) => "memory the device does not know",
        }
    }
}

/// A copy as the caller asks for it.
pub(crate) struct CopyRequest {
    pub(crate) to: *mut u8,
    pub(crate) to_bytes: usize,
    pub(crate) from: *const u8,
    pub(crate) bytes: usize,
    pub(crate) kind: aclrtMemcpyKind,
}

impl CopyRequest {
    /// What is checked before anything else; false when there is nothing to do.
    fn check_arguments(&self) -> Result<bool, aclError> {
        if self.bytes == 0 {
            return Ok(false);
        }
        if self.to.is_null() || self.from.is_null() {
            return Err(fail(ACL_ERROR_INVALID_PARAM, "source or destination is NULL"));
        }
        if !(ACL_MEMCPY_HOST_TO_HOST..=ACL_MEMCPY_DEFAULT).contains(&self.kind) {
            return Err(fail(ACL_ERROR_INVALID_PARAM, format!("copy kind {} is not accepted", self.kind)));
        }
        Ok(true)
    }

    /// Source and destination, which must be what the kind says.
    fn places(&self) -> Result<(Place, Place), aclError> {
        check_room(self.bytes, self.to_bytes)?;
        let (from, to) = (Place::of(self.from.addr(), self.bytes)?, Place::of(self.to.addr(), self.bytes)?);
        let (from_device, to_device) = match self.kind {
            ACL_MEMCPY_HOST_TO_HOST => (false, false),
            ACL_MEMCPY_HOST_TO_DEVICE => (false, true),
            ACL_MEMCPY_DEVICE_TO_HOST => (true, false),
            ACL_MEMCPY_DEVICE_TO_DEVICE => (true, true),
            _ => (from.device.is_some(), to.device.is_some()),
        };
        if (from.device.is_some(), to.device.is_some()) != (from_device, to_device) {
            let text = format!(
                "copy kind {} does not fit: source {:?} is {}, destination {:?} is {}",
                self.kind,
                self.from,
                from.name(),
                self.to,
                to.name()
            );
            return Err(misuse(ACL_ERROR_RT_PARAM_INVALID, text));
        }
        if let (Some(a), Some(b)) = (from.device, to.device)
            && a != b
            && !devices()[a].can_access(b)
            && !devices()[b].can_access(a)
        {
            let text = format!("devices {a} and {b} have no peer access to each other");
            return Err(misuse(ACL_ERROR_RT_PARAM_INVALID, text));
        }
        Ok((from, to))
    }

    /// For checked mode: what is touched of ACL's own memory.
    fn accesses(&self, from: &Place, to: &Place) -> Vec<Access> {
        if !checked::enabled() {
            return Vec::new();
        }
        let ends = [(from, "src", self.from.addr(), false), (to, "dst", self.to.addr(), true)];
        let known = ends.into_iter().filter(|(place, ..)| !place.is_pageable());
        known.map(|(_, argument, start, written)| Access::here(argument, start, self.bytes, written)).collect()
    }
}

/// Copies at once, in no order with any stream.
///
/// # Safety
/// Host memory the device does not know must be readable or writable for the copy's length.
pub(crate) unsafe fn copy_now(request: &CopyRequest) -> Result<(), aclError> {
    if !request.check_arguments()? {
        return Ok(());
    }
    context::current()?;
    capture::check_unsafe_call("synchronous copies")?;
    let (from, to) = request.places()?;
    checked::host_access(&request.accesses(&from, &to))?;
    // SAFETY: places() checked ACL's own memory, and both places keep it mapped; the caller answers for the rest.
    unsafe { copy(request.to, request.from, request.bytes) };
    Ok(())
}

/// Enqueues a copy. With pageable host memory it returns when the copy is done.
///
/// # Safety
/// As [`copy_now`]; pinned memory must live until the stream is past the copy.
pub(crate) unsafe fn copy_async(request: &CopyRequest, stream: aclrtStream) -> Result<(), aclError> {
    if !request.check_arguments()? {
        return Ok(());
    }
    let stream = stream::find(stream)?;
    let (from, to) = request.places()?;
    if from.device.is_none() && to.device.is_none() {
        return Err(fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "no asynchronous copies from host to host"));
    }
    let pageable = from.is_pageable() || to.is_pageable();
    if pageable {
        capture::check_unsafe_call("copies of pageable host memory")?;
    }
    // A model that is replayed would read the host's memory again, whatever is there by then.
    if (pageable || from.device.is_none()) && stream.is_captured() {
        let text = "copies from the host, and copies of pageable memory, cannot be captured";
        return Err(fail(ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT, text));
    }
    let accesses = request.accesses(&from, &to);
    let work = Work::Copy {
        to: DevicePtr(request.to),
        from: DevicePtr(request.from.cast_mut()),
        bytes: request.bytes,
        _holds: [from.hold, to.hold],
    };
    let mark = stream.push(work, accesses)?;
    if let Some(mark) = mark.filter(|_| pageable) {
        let past = checked::clock_of(stream.handle);
        stream.wait_for(mark);
        checked::host_joins(past.as_ref());
        stream.device.check_fault()?;
    }
    Ok(())
}

/// Fills at once, or in a stream's order.
pub(crate) fn set(
    to: *mut u8,
    to_bytes: usize,
    value: i32,
    bytes: usize,
    stream: Option<aclrtStream>,
) -> Result<(), aclError> {
    if bytes == 0 {
        return Ok(());
    }
    if to.is_null() {
        return Err(fail(ACL_ERROR_INVALID_PARAM, "the pointer is NULL"));
    }
    let stream = match stream {
        Some(stream) => Some(stream::find(stream)?),
        None => {
            context::current()?;
            capture::check_unsafe_call("synchronous memsets")?;
            None
        }
    };
    check_room(bytes, to_bytes)?;
    let place = Place::of(to.addr(), bytes)?;
    if place.is_pageable() {
        let text = format!("{to:?} is {}{}", place.name(), checked::history(to.addr(), bytes));
        return Err(misuse(ACL_ERROR_RT_PARAM_INVALID, text));
    }
    let accesses = if checked::enabled() { vec![Access::here("devPtr", to.addr(), bytes, true)] } else { Vec::new() };
    // The low byte, as memset does.
    let value = value as u8;
    match stream {
        Some(stream) => {
            let work = Work::Fill { to: DevicePtr(to), value, bytes, _hold: place.hold };
            stream.push(work, accesses).map(|_| ())
        }
        None => {
            checked::host_access(&accesses)?;
            // SAFETY: the range is live ACL memory, kept mapped by `place`.
            unsafe { fill(to, value, bytes) };
            Ok(())
        }
    }
}

fn check_room(bytes: usize, room: usize) -> Result<(), aclError> {
    if bytes > room {
        return Err(fail(ACL_ERROR_RT_PARAM_INVALID, format!("{bytes} bytes do not fit into a destination of {room}")));
    }
    Ok(())
}

/// The pointer to an address of a map.
pub(crate) fn address(addr: usize) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(addr)
}

/// # Safety
/// Both ranges must be mapped and stay so. They may overlap, and other threads may access them: device memory has no owner,
/// and the program orders its accesses by streams and events.
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy(from, to, bytes) };
}

/// # Safety
/// As [`copy`].
pub(crate) unsafe fn fill(to: *mut u8, value: u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::write_bytes(to, value, bytes) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_what_they_are_for() {
        for bytes in (64..5000).chain([65_536, 65_537, 700_000, SLAB_LIMIT_BYTES - 1]) {
            let class = class_of(bytes);
            assert!(class >= bytes && class.is_multiple_of(64), "{bytes} in {class}");
            assert!(class - bytes < 64.max(bytes / 8), "{bytes} in {class}");
            assert_eq!(class_of(class), class);
        }
    }

    #[test]
    fn slabs_are_filled_before_new_ones_are_made_and_go_when_empty() {
        let mut arena = Arena::default();
        let class = class_of(300_000);
        let taken: Vec<_> = (0..20).map(|_| arena.take(class).unwrap()).collect();
        let slabs: BTreeSet<_> = taken.iter().map(|(_, slab)| *slab).collect();
        assert_eq!(slabs.len(), 3);
        let chunks: BTreeSet<_> = taken.iter().map(|(chunk, _)| *chunk).collect();
        assert_eq!(chunks.len(), 20);
        let mut gone: Vec<_> =
            taken.iter().filter_map(|(chunk, slab)| arena.give_back(class, *slab, *chunk)).map(|s| s.base()).collect();
        assert_eq!(gone.len(), 2, "the last one is kept");
        assert_eq!(arena.take(class).unwrap().1, taken[19].1);
        assert!(arena.give_back(class, taken[19].1, taken[19].1).is_none());
        gone.extend(arena.remove_spare().map(|slab| slab.base()));
        assert_eq!(gone.into_iter().collect::<BTreeSet<_>>(), slabs);
    }

    #[test]
    fn sizes_are_rounded_and_extended() {
        assert_eq!(charged_bytes(1), Some(64));
        assert_eq!(charged_bytes(32), Some(64));
        assert_eq!(charged_bytes(33), Some(96));
        assert_eq!(charged_bytes(usize::MAX), None);
    }
}
