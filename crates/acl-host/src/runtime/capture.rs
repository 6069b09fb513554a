//! Captured models: the work of a stream recorded instead of done, and done again as one piece.
//!
//! One stream makes one model. Absent: captures that spread to other streams through events (such a wait is refused), and
//! models inside models. A model keeps the operators it recorded; memory they refer to stays the caller's to keep.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use acl_sys::*;

use super::checked::{self, Access, misuse};
use super::context::fail;
use super::event::Event;
use super::memory;
use super::registry::{Registry, fresh_handle, handle_pointer, lock};
use super::stream::{self, Work};
use super::{config, live};

/// A capture in progress.
pub(crate) struct Recording {
    model: usize,
    mode: aclmdlRICaptureMode,
    thread: ThreadId,
    valid: bool,
    steps: Vec<Work>,
    records: Vec<Arc<Event>>,
    waits: Vec<Arc<Event>>,
    /// What the steps touch; kept in checked mode.
    accesses: Vec<Access>,
}

pub(crate) struct Model {
    device: usize,
    pub(crate) steps: Vec<Work>,
    /// Events that steps record, in order.
    records: Vec<Arc<Event>>,
    /// Events from outside that the model waits for.
    waits: Vec<Arc<Event>>,
    accesses: Vec<Access>,
}

impl Model {
    /// Its steps touched live memory when they were captured; that they still do is checked again. Pinned memory counts.
    fn check_live(&self) -> Result<(), aclError> {
        for access in &self.accesses {
            let (start, bytes) = (access.region.start, access.region.bytes());
            if memory::find(start, bytes).is_none() {
                let history = checked::history(start, bytes);
                let text = format!("captured {}: {access} is not inside live memory{history}", access.by);
                return Err(misuse(ACL_ERROR_RT_PARAM_INVALID, text));
            }
        }
        Ok(())
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        live::MODELS.sub();
    }
}

static MODELS: Registry<Model> = Registry::new();

/// Captures in progress: future model, mode, thread. What they forbid concerns calls that name no stream.
static ACTIVE: Mutex<Vec<(usize, aclmdlRICaptureMode, ThreadId)>> = Mutex::new(Vec::new());
/// Length of `ACTIVE`, so that the usual case of none costs no lock.
static ACTIVE_COUNT: AtomicUsize = AtomicUsize::new(0);

impl Recording {
    pub(crate) fn add(&mut self, work: Work, accesses: Vec<Access>) -> Result<(), aclError> {
        self.check_valid()?;
        if matches!(work, Work::Model { .. }) {
            return Err(misuse(ACL_ERROR_RT_MODEL_CAPTURED, "a model cannot be executed inside a capture"));
        }
        self.steps.push(work);
        self.accesses.extend(accesses);
        Ok(())
    }

    pub(crate) fn record(&mut self, event: &Arc<Event>) -> Result<(), aclError> {
        self.check_valid()?;
        self.steps.push(Work::CapturedRecord(self.records.len()));
        self.records.push(Arc::clone(event));
        Ok(())
    }

    pub(crate) fn wait(&mut self, event: &Arc<Event>, in_capture: bool) -> Result<(), aclError> {
        self.check_valid()?;
        // A wait for an earlier step of the same stream is kept by the stream's order.
        if self.records.iter().any(|recorded| Arc::ptr_eq(recorded, event)) {
            return Ok(());
        }
        if in_capture {
            return Err(misuse(ACL_ERROR_RT_CAPTURE_DEPENDENCY, "the event belongs to the capture of another stream"));
        }
        self.waits.push(Arc::clone(event));
        Ok(())
    }

    pub(crate) fn invalidate(&mut self) {
        self.valid = false;
    }

    /// Takes back what the capture forbids to others.
    pub(crate) fn lift(&self) {
        let mut active = lock(&ACTIVE);
        active.retain(|(model, ..)| *model != self.model);
        ACTIVE_COUNT.store(active.len(), Ordering::SeqCst);
    }

    fn check_valid(&self) -> Result<(), aclError> {
        if !self.valid {
            return Err(misuse(ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED, "the capture became invalid earlier"));
        }
        Ok(())
    }
}

pub(crate) fn begin(stream: aclrtStream, mode: aclmdlRICaptureMode) -> Result<(), aclError> {
    if !(ACL_MODEL_RI_CAPTURE_MODE_GLOBAL..=ACL_MODEL_RI_CAPTURE_MODE_RELAXED).contains(&mode) {
        return Err(fail(ACL_ERROR_INVALID_PARAM, format!("capture mode {mode} does not exist")));
    }
    check_supported()?;
    let stream = stream::find(stream)?;
    let (model, thread) = (fresh_handle(), std::thread::current().id());
    let recording = Recording {
        model,
        mode,
        thread,
        valid: true,
        steps: Vec::new(),
        records: Vec::new(),
        waits: Vec::new(),
        accesses: Vec::new(),
    };
    // Held over both steps: whoever ends the capture at once finds it in the list.
    let mut active = lock(&ACTIVE);
    stream.begin_recording(recording)?;
    active.push((model, mode, thread));
    ACTIVE_COUNT.store(active.len(), Ordering::SeqCst);
    Ok(())
}

/// Status of a stream's capture and the handle its model will have; null without one.
pub(crate) fn info(stream: aclrtStream) -> Result<(aclmdlRICaptureStatus, *mut c_void), aclError> {
    check_supported()?;
    Ok(stream::find(stream)?.with_recording(|recording| match recording {
        None => (ACL_MODEL_RI_CAPTURE_STATUS_NONE, std::ptr::null_mut()),
        Some(recording) if recording.valid => (ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE, handle_pointer(recording.model)),
        Some(_) => (ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED, std::ptr::null_mut()),
    }))
}

pub(crate) fn end(stream: aclrtStream) -> Result<*mut c_void, aclError> {
    check_supported()?;
    let stream = stream::find(stream)?;
    let recording = stream.take_recording(|recording| {
        let same_thread = recording.thread == std::thread::current().id();
        if recording.mode != ACL_MODEL_RI_CAPTURE_MODE_RELAXED && !same_thread {
            let text = format!("thread {:?} began the capture, not this one", recording.thread);
            return Err(misuse(ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD, text));
        }
        Ok(())
    })?;
    recording.lift();
    recording.check_valid()?;
    let Recording { model: handle, steps, records, waits, accesses, .. } = recording;
    live::MODELS.add();
    let device = stream.device.id;
    MODELS.insert(handle, Arc::new(Model { device, steps, records, waits, accesses }));
    checked::handle_made("model", handle, device);
    Ok(handle_pointer(handle))
}

/// One submission for all that was recorded.
pub(crate) fn execute(model: aclmdlRI, stream: aclrtStream) -> Result<(), aclError> {
    check_supported()?;
    if model.is_null() {
        return Err(fail(ACL_ERROR_INVALID_PARAM, "model is NULL"));
    }
    let stream = stream::find(stream)?;
    let model = MODELS.find(model).ok_or_else(|| unknown(model))?;
    if model.device != stream.device.id {
        let text = format!("the model was captured on device {}, the stream is of {}", model.device, stream.device.id);
        return Err(misuse(ACL_ERROR_RT_STREAM_CONTEXT, text));
    }
    if checked::enabled() {
        model.check_live()?;
    }
    let waits: Vec<_> = model.waits.iter().filter_map(|event| event.ticket()).collect();
    waits.iter().for_each(|ticket| checked::stream_joins(stream.handle, ticket.clock()));
    let records: Vec<_> = model.records.iter().map(|event| event.new_ticket(stream.handle)).collect();
    let accesses = model.accesses.clone();
    stream.push(Work::Model { model: Arc::clone(&model), waits, records: records.clone() }, accesses)?;
    for (event, ticket) in model.records.iter().zip(records) {
        event.set_recorded(ticket);
    }
    Ok(())
}

/// A model that is being executed ends when it has run.
pub(crate) fn destroy(model: aclmdlRI) -> Result<(), aclError> {
    if model.is_null() {
        return Err(fail(ACL_ERROR_INVALID_PARAM, "model is NULL"));
    }
    MODELS.remove(model).map(drop).ok_or_else(|| unknown(model))?;
    checked::handle_ended(model.addr());
    Ok(())
}

/// Refuses a call that some capture in progress forbids: any thread's in global mode, this thread's in thread-local mode.
pub(crate) fn check_unsafe_call(what: &str) -> Result<(), aclError> {
    if ACTIVE_COUNT.load(Ordering::SeqCst) == 0 {
        return Ok(());
    }
    let this = std::thread::current().id();
    let forbidden = lock(&ACTIVE).iter().any(|(_, mode, thread)| match *mode {
        ACL_MODEL_RI_CAPTURE_MODE_GLOBAL => true,
        ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL => *thread == this,
        _ => false,
    });
    if forbidden {
        let text = format!("a stream is being captured in a mode that forbids {what}");
        return Err(misuse(ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT, text));
    }
    Ok(())
}

pub(crate) fn forget_device(device: usize) {
    MODELS.remove_all(|model| model.device == device);
}

fn check_supported() -> Result<(), aclError> {
    if !config::settings().family.has_capture() {
        return Err(fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "this chip captures no models"));
    }
    Ok(())
}

fn unknown(model: aclmdlRI) -> aclError {
    let history = checked::handle_history(model.addr());
    let text = format!("model {model:?} was destroyed, lost by a reset, or never made{history}");
    misuse(ACL_ERROR_RT_INVALID_HANDLE, text)
}
