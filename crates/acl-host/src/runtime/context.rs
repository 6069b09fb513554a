//! Initialisation, virtual devices and their contexts, and the text of the last error.
//!
//! A device has one context, shared by the threads that selected it; set and reset are counted. When the count reaches zero
//! the context and all that belongs to it is destroyed, and threads that still have it selected have none. Explicit
//! contexts are absent.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use acl_sys::*;

use super::checked::misuse;
use super::registry::lock;
use super::stream::Stream;
use super::{capture, checked, config, event, memory, stream};

thread_local! {
    /// Device and epoch of its context.
    static CURRENT: Cell<Option<(usize, u64)>> = const { Cell::new(None) };
    static CALL: Cell<&'static str> = const { Cell::new("") };
    static MESSAGES: RefCell<Messages> = const { RefCell::new(Messages { pending: String::new(), handed: None }) };
}

struct Messages {
    pending: String,
    /// What `aclGetRecentErrMsg` returned last; lives until the next call.
    handed: Option<CString>,
}

/// A caller that never reads its errors keeps this much of them.
const MESSAGE_BYTES: usize = 4096;

/// Stores what went wrong, for this thread's `aclGetRecentErrMsg`, and hands the code back.
pub(crate) fn fail(code: aclError, message: impl AsRef<str>) -> aclError {
    note(&format!("{} [{code} {}]", named(message.as_ref()), status_name(code).unwrap_or("?")));
    code
}

/// A text with the call this thread is in before it.
pub(crate) fn named(message: &str) -> String {
    let call = call();
    let named = call.is_empty() || message.starts_with(call);
    let (call, separator) = if named { ("", "") } else { (call, ": ") };
    format!("{call}{separator}{message}")
}

/// The runtime call this thread is in; empty in none.
pub(crate) fn call() -> &'static str {
    CALL.try_with(Cell::get).unwrap_or("")
}

/// Stores a text for this thread's `aclGetRecentErrMsg`, newest first.
pub(crate) fn note(text: &str) {
    // The only failure is a thread that is ending, which asks no more.
    let _ = MESSAGES.try_with(|messages| {
        let pending = &mut messages.borrow_mut().pending;
        let old = std::mem::take(pending);
        pending.push_str(&text.replace('\0', " "));
        if !old.is_empty() {
            pending.push('\n');
            pending.push_str(&old);
        }
        if pending.len() > MESSAGE_BYTES {
            let end = (0..=MESSAGE_BYTES).rev().find(|at| pending.is_char_boundary(*at)).unwrap_or(0);
            pending.truncate(end);
        }
    });
}

/// This thread's stored text, which is cleared; null when there is none.
pub(crate) fn recent_message() -> *const c_char {
    MESSAGES
        .try_with(|messages| {
            let mut messages = messages.borrow_mut();
            let text = std::mem::take(&mut messages.pending);
            messages.handed = if text.is_empty() { None } else { CString::new(text).ok() };
            messages.handed.as_ref().map_or(std::ptr::null(), |text| text.as_ptr())
        })
        .unwrap_or(std::ptr::null())
}

/// The body of an entry point that answers a code: a panic becomes a code and never unwinds into C.
pub(crate) fn entry(call: &'static str, body: impl FnOnce() -> Result<(), aclError>) -> aclError {
    guard(call, ACL_ERROR_INTERNAL_ERROR, || match body() {
        Ok(()) => ACL_SUCCESS,
        Err(code) => code,
    })
}

/// The body of an entry point that answers anything else: a panic answers `fallback`.
pub(crate) fn guard<T>(call: &'static str, fallback: T, body: impl FnOnce() -> T) -> T {
    let outer = CALL.try_with(|c| c.replace(call)).unwrap_or("");
    checked::count_call();
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        fail(ACL_ERROR_INTERNAL_ERROR, format!("the embedded device panicked: {}", panic_text(&*panic)));
        fallback
    });
    let _ = CALL.try_with(|c| c.set(outer));
    result
}

pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    if let Some(text) = panic.downcast_ref::<&str>() {
        text
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text
    } else {
        "no text"
    }
}

/// A virtual device.
pub(crate) struct Device {
    pub(crate) id: usize,
    context: Mutex<Context>,
    /// Number of the present context; older ones are destroyed.
    epoch: AtomicU64,
    /// Set by the first kernel that panics; cleared by the reset that ends the context.
    fault: AtomicI32,
    fault_text: Mutex<String>,
    pub(crate) used_bytes: AtomicUsize,
    pub(crate) streams: AtomicUsize,
    pub(crate) events: AtomicUsize,
    peers: Mutex<BTreeSet<usize>>,
}

#[derive(Default)]
struct Context {
    set_count: u64,
    default_stream: Option<Arc<Stream>>,
}

static DEVICES: LazyLock<Vec<Device>> = LazyLock::new(|| {
    (0..config::settings().devices)
        .map(|id| Device {
            id,
            context: Mutex::default(),
            epoch: AtomicU64::new(0),
            fault: AtomicI32::new(ACL_SUCCESS),
            fault_text: Mutex::default(),
            used_bytes: AtomicUsize::new(0),
            streams: AtomicUsize::new(0),
            events: AtomicUsize::new(0),
            peers: Mutex::default(),
        })
        .collect()
});

pub(crate) fn devices() -> &'static [Device] {
    &DEVICES
}

/// A device by the number a caller gave.
pub(crate) fn device(id: i32) -> Result<&'static Device, aclError> {
    usize::try_from(id).ok().and_then(|id| devices().get(id)).ok_or_else(|| {
        fail(ACL_ERROR_RT_INVALID_DEVICEID, format!("device {id} does not exist, there are {}", devices().len()))
    })
}

/// The calling thread's device, working or not: for calls that give things back.
pub(crate) fn bound() -> Result<&'static Device, aclError> {
    let none = |why: &str| Err(misuse(ACL_ERROR_RT_CONTEXT_NULL, why));
    match CURRENT.try_with(Cell::get).ok().flatten() {
        None => none("this thread has no device; call aclrtSetDevice on it"),
        Some((id, epoch)) => {
            let device = &devices()[id];
            if device.epoch.load(Ordering::Acquire) == epoch {
                Ok(device)
            } else {
                none("this thread's device was reset; call aclrtSetDevice again")
            }
        }
    }
}

/// The calling thread's device, which must be working.
pub(crate) fn current() -> Result<&'static Device, aclError> {
    let device = bound()?;
    device.check_fault()?;
    Ok(device)
}

/// Number of the calling thread's device: 107002 without one, the fault's code when it is lost.
pub(crate) fn current_device() -> Result<usize, aclError> {
    current().map(|device| device.id)
}

impl Device {
    pub(crate) fn fault(&self) -> aclError {
        self.fault.load(Ordering::Acquire)
    }

    pub(crate) fn check_fault(&self) -> Result<(), aclError> {
        match self.fault() {
            ACL_SUCCESS => Ok(()),
            code => {
                Err(fail(code, format!("device {} is lost until it is reset: {}", self.id, lock(&self.fault_text))))
            }
        }
    }

    /// The first fault stays until the context ends.
    pub(crate) fn set_fault(&self, code: aclError, text: String) {
        let mut first = lock(&self.fault_text);
        if self.fault() == ACL_SUCCESS {
            *first = text;
            self.fault.store(code, Ordering::Release);
        }
    }

    /// The stream that NULL means.
    pub(crate) fn default_stream(&'static self) -> Result<Arc<Stream>, aclError> {
        let mut context = lock(&self.context);
        if context.set_count == 0 {
            return Err(fail(ACL_ERROR_RT_CONTEXT_NULL, format!("device {} was reset", self.id)));
        }
        if let Some(stream) = &context.default_stream {
            return Ok(Arc::clone(stream));
        }
        let stream = stream::create(self, true)?;
        context.default_stream = Some(Arc::clone(&stream));
        Ok(stream)
    }

    pub(crate) fn can_access(&self, peer: usize) -> bool {
        lock(&self.peers).contains(&peer)
    }

    /// Waits for all streams and tells of a fault, or else of what went wrong in them.
    pub(crate) fn synchronize(&self) -> Result<(), aclError> {
        let id = self.id;
        let streams = stream::STREAMS.select(|stream| stream.device.id == id);
        streams.iter().for_each(|stream| stream.drain());
        memory::sweep();
        self.check_fault()?;
        // Each stream tells once, so all are asked.
        let told: Vec<_> = streams.iter().map(|stream| stream.tell_trouble(u64::MAX)).collect();
        told.into_iter().collect()
    }

    fn free_bytes(&self) -> usize {
        config::settings().memory_bytes.saturating_sub(self.used_bytes.load(Ordering::Relaxed))
    }
}

#[derive(Default)]
struct Initialisation {
    count: u64,
    finalized: bool,
    config_path: Option<CString>,
}

static INITIALISATION: LazyLock<Mutex<Initialisation>> = LazyLock::new(Mutex::default);
/// Mirrors `Initialisation::count > 0` for calls that only look.
static INITIALISED: AtomicUsize = AtomicUsize::new(0);

/// A configuration file must exist and look like JSON; nothing in it is obeyed.
pub(crate) fn init(config_path: Option<&CStr>) -> Result<(), aclError> {
    if let Some(path) = config_path {
        let text = path.to_str().ok().and_then(|path| std::fs::read_to_string(path).ok());
        let text = text.ok_or_else(|| fail(ACL_ERROR_INVALID_FILE, format!("cannot read {path:?}")))?;
        let text = text.trim();
        if !text.is_empty() && !text.starts_with('{') {
            return Err(fail(ACL_ERROR_PARSE_FILE, format!("{path:?} is not a JSON object")));
        }
    }
    for warning in &config::settings().warnings {
        note(warning);
    }
    let mut state = lock(&INITIALISATION);
    if state.count == 0 {
        *state = Initialisation { count: 1, finalized: false, config_path: config_path.map(CString::from) };
        INITIALISED.store(1, Ordering::Release);
        return Ok(());
    }
    if config_path.is_some() && config_path != state.config_path.as_deref() {
        return Err(fail(ACL_ERROR_INVALID_PARAM, "ACL is initialised with another configuration file"));
    }
    state.count += 1;
    Err(fail(ACL_ERROR_REPEAT_INITIALIZE, "ACL is initialised already"))
}

/// Ends initialisation, however often it was made. Devices and what lives on them stay.
pub(crate) fn finalize() -> Result<(), aclError> {
    let mut state = lock(&INITIALISATION);
    if state.count == 0 {
        let code = if state.finalized { ACL_ERROR_REPEAT_FINALIZE } else { ACL_ERROR_UNINITIALIZE };
        return Err(fail(code, "ACL is not initialised"));
    }
    *state = Initialisation { finalized: true, ..Initialisation::default() };
    INITIALISED.store(0, Ordering::Release);
    Ok(())
}

pub(crate) fn check_initialised() -> Result<(), aclError> {
    match INITIALISED.load(Ordering::Acquire) {
        0 => Err(fail(ACL_ERROR_UNINITIALIZE, "call aclInit first")),
        _ => Ok(()),
    }
}

pub(crate) fn set_device(id: i32) -> Result<(), aclError> {
    check_initialised()?;
    let device = device(id)?;
    let mut context = lock(&device.context);
    context.set_count += 1;
    CURRENT.set(Some((device.id, device.epoch.load(Ordering::Acquire))));
    Ok(())
}

/// Takes back one `set_device`, or all of them; at zero the context ends.
pub(crate) fn reset_device(id: i32, force: bool) -> Result<(), aclError> {
    let device = device(id)?;
    // Held to the end: a thread that selects the device meanwhile gets the next context.
    let mut context = lock(&device.context);
    if context.set_count == 0 {
        return Err(fail(ACL_ERROR_RT_CONTEXT_NULL, format!("device {id} is not set")));
    }
    context.set_count = if force { 0 } else { context.set_count - 1 };
    if context.set_count > 0 {
        return Ok(());
    }
    // Who forces a reset, or has lost the device, gives up what is on it.
    let leaks = if force || device.fault() != ACL_SUCCESS { None } else { checked::leaks(device.id) };
    device.epoch.fetch_add(1, Ordering::AcqRel);
    context.default_stream = None;
    let id = device.id;
    for stream in stream::STREAMS.remove_all(|stream| stream.device.id == id) {
        stream.close();
    }
    capture::forget_device(id);
    event::forget_device(id);
    memory::forget_device(device);
    checked::forget_device(id);
    lock(&device.peers).clear();
    lock(&device.fault_text).clear();
    device.fault.store(ACL_SUCCESS, Ordering::Release);
    if CURRENT.get().is_some_and(|(current, _)| current == id) {
        CURRENT.set(None);
    }
    leaks.map_or(Ok(()), |text| Err(misuse(ACL_ERROR_RT_PARAM_INVALID, text)))
}

/// Free and total bytes of the calling thread's device.
pub(crate) fn memory_info(attr: aclrtMemAttr) -> Result<(usize, usize), aclError> {
    const LAST_ATTR: aclrtMemAttr = 17;
    if !(0..=LAST_ATTR).contains(&attr) {
        return Err(fail(ACL_ERROR_INVALID_PARAM, format!("memory attribute {attr} does not exist")));
    }
    let device = current()?;
    Ok((device.free_bytes(), config::settings().memory_bytes))
}

pub(crate) fn can_access_peer(id: i32, peer: i32) -> Result<bool, aclError> {
    if id == peer {
        return Err(fail(ACL_ERROR_INVALID_PARAM, format!("device {id} is no peer of itself")));
    }
    device(id)?;
    device(peer)?;
    Ok(config::settings().peer)
}

pub(crate) fn enable_peer_access(peer: i32, flags: u32) -> Result<(), aclError> {
    if flags != 0 {
        return Err(fail(ACL_ERROR_FEATURE_UNSUPPORTED, format!("flags are {flags}, must be 0")));
    }
    let peer = other_device(peer)?;
    if !config::settings().peer {
        return Err(fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "devices of this kind do not reach each other"));
    }
    lock(&current()?.peers).insert(peer);
    Ok(())
}

pub(crate) fn disable_peer_access(peer: i32) -> Result<(), aclError> {
    let peer = other_device(peer)?;
    lock(&current()?.peers).remove(&peer);
    Ok(())
}

fn other_device(peer: i32) -> Result<usize, aclError> {
    let current = current()?.id;
    let peer = device(peer)?.id;
    if peer == current {
        return Err(fail(ACL_ERROR_INVALID_PARAM, format!("device {peer} is no peer of itself")));
    }
    Ok(peer)
}
