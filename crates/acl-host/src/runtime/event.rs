//! Events: marks in a stream that others wait for, ask about and measure between.
//!
//! Recording makes a ticket; waiting takes the ticket of the latest record at that moment, so a wait is always for work that
//! was submitted before it and streams cannot wait in a circle. An event that was never recorded counts as complete. An
//! event and its stream are of one device.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use acl_sys::*;

use super::checked::{self, Clock, misuse};
use super::context::{self, Device, fail};
use super::live;
use super::registry::{Registry, fresh_handle, handle_pointer, lock};
use super::stream::{self, Work};

pub(crate) struct Event {
    handle: usize,
    device: &'static Device,
    flags: u32,
    latest: Mutex<Latest>,
}

/// What the event was last recorded into.
enum Latest {
    Nothing,
    Stream(Arc<Ticket>),
    /// A capture; the record happens when the model is executed.
    Capture,
}

/// One record of an event.
pub(crate) struct Ticket {
    stream: usize,
    complete: AtomicBool,
    /// What launches before the record found wrong, as a number of its stream.
    troubles: AtomicU64,
    time: Mutex<Option<Instant>>,
    done: Condvar,
    /// In checked mode: what is past when the record is.
    clock: OnceLock<Clock>,
}

static EVENTS: Registry<Event> = Registry::new();

const CREATE_FLAGS: u32 = ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE;
/// Synchronise, stream progress, time line, device use only, external.
const KNOWN_FLAGS: u32 = 0x3b;

impl Ticket {
    fn new(stream: usize) -> Arc<Ticket> {
        Arc::new(Ticket {
            stream,
            complete: AtomicBool::new(false),
            troubles: AtomicU64::new(0),
            time: Mutex::new(None),
            done: Condvar::new(),
            clock: OnceLock::new(),
        })
    }

    pub(crate) fn clock(&self) -> Option<&Clock> {
        self.clock.get()
    }

    pub(crate) fn complete(&self, troubles: u64) {
        let mut time = lock(&self.time);
        self.troubles.store(troubles, Ordering::Relaxed);
        *time = Some(Instant::now());
        self.complete.store(true, Ordering::Release);
        drop(time);
        self.done.notify_all();
    }

    pub(crate) fn wait(&self) {
        if self.complete.load(Ordering::Acquire) {
            return;
        }
        let mut time = lock(&self.time);
        while time.is_none() {
            time = self.done.wait(time).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }
}

impl Event {
    /// The ticket that a wait issued now is for.
    pub(crate) fn ticket(&self) -> Option<Arc<Ticket>> {
        match &*lock(&self.latest) {
            Latest::Stream(ticket) => Some(Arc::clone(ticket)),
            Latest::Nothing | Latest::Capture => None,
        }
    }

    /// A new ticket for a record in `stream`; it counts once [`Event::set_recorded`] is told.
    pub(crate) fn new_ticket(&self, stream: usize) -> Arc<Ticket> {
        Ticket::new(stream)
    }

    /// The ticket's stream has the record.
    pub(crate) fn set_recorded(&self, ticket: Arc<Ticket>) {
        if let Some(clock) = checked::clock_of(ticket.stream) {
            // A ticket is recorded once.
            let _ = ticket.clock.set(clock);
        }
        *lock(&self.latest) = Latest::Stream(ticket);
    }

    fn is_captured(&self) -> bool {
        matches!(*lock(&self.latest), Latest::Capture)
    }

    /// The host knows that the record has happened: what is told then.
    fn past(&self, ticket: Option<Arc<Ticket>>) -> Result<(), aclError> {
        self.device.check_fault()?;
        let Some(ticket) = ticket else { return Ok(()) };
        checked::host_joins(ticket.clock());
        stream::tell_trouble(ticket.stream, ticket.troubles.load(Ordering::Relaxed))
    }

    fn check_not_captured(&self) -> Result<(), aclError> {
        if self.is_captured() {
            return Err(misuse(
                ACL_ERROR_RT_EVENT_CAPTURED,
                "the event was last recorded in a capture that has not run",
            ));
        }
        Ok(())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        self.device.events.fetch_sub(1, Ordering::Relaxed);
        live::EVENTS.sub();
    }
}

pub(crate) fn create(flags: Option<u32>) -> Result<*mut c_void, aclError> {
    let device = context::current()?;
    let flags = flags.unwrap_or(CREATE_FLAGS);
    if flags == 0 || flags & !KNOWN_FLAGS != 0 {
        return Err(fail(ACL_ERROR_RT_PARAM_INVALID, format!("event flags {flags:#x} are not known")));
    }
    if device.events.fetch_add(1, Ordering::Relaxed) >= super::config::settings().family.event_limit() {
        device.events.fetch_sub(1, Ordering::Relaxed);
        return Err(fail(ACL_ERROR_RT_NO_EVENT_RESOURCE, format!("device {} has no more events", device.id)));
    }
    live::EVENTS.add();
    let handle = fresh_handle();
    EVENTS.insert(handle, Arc::new(Event { handle, device, flags, latest: Mutex::new(Latest::Nothing) }));
    checked::handle_made("event", handle, device.id);
    Ok(handle_pointer(handle))
}

/// Does not wait: work that still refers to the event keeps what it needs.
pub(crate) fn destroy(event: aclrtEvent) -> Result<(), aclError> {
    find(event)?;
    EVENTS.remove(event);
    checked::handle_ended(event.addr());
    Ok(())
}

pub(crate) fn record(event: aclrtEvent, stream: aclrtStream) -> Result<(), aclError> {
    let device = context::current()?;
    let event = find(event)?;
    let stream = stream::find(stream)?;
    check_device(&event, device)?;
    if stream.record_captured(&event)? {
        *lock(&event.latest) = Latest::Capture;
        return Ok(());
    }
    let ticket = event.new_ticket(stream.handle);
    stream.push(Work::Record(Arc::clone(&ticket)), Vec::new())?;
    event.set_recorded(ticket);
    Ok(())
}

pub(crate) fn stream_wait(stream: aclrtStream, event: aclrtEvent) -> Result<(), aclError> {
    let device = context::current()?;
    let event = find(event)?;
    let stream = stream::find(stream)?;
    check_device(&event, device)?;
    if event.flags & ACL_EVENT_SYNC == 0 {
        return Err(fail(ACL_ERROR_RT_PARAM_INVALID, "the event was created without ACL_EVENT_SYNC"));
    }
    if stream.wait_captured(&event, event.is_captured())? {
        return Ok(());
    }
    event.check_not_captured()?;
    let Some(ticket) = event.ticket() else { return Ok(()) };
    checked::stream_joins(stream.handle, ticket.clock());
    if ticket.is_complete() { Ok(()) } else { stream.push(Work::Wait(ticket), Vec::new()).map(|_| ()) }
}

pub(crate) fn is_complete(event: aclrtEvent) -> Result<bool, aclError> {
    let event = find(event)?;
    event.device.check_fault()?;
    event.check_not_captured()?;
    match event.ticket() {
        Some(ticket) if !ticket.is_complete() => Ok(false),
        ticket => event.past(ticket).map(|()| true),
    }
}

pub(crate) fn synchronize(event: aclrtEvent) -> Result<(), aclError> {
    context::current()?;
    let event = find(event)?;
    event.check_not_captured()?;
    let ticket = event.ticket();
    if let Some(ticket) = &ticket {
        ticket.wait();
    }
    event.past(ticket)
}

pub(crate) fn elapsed_ms(start: aclrtEvent, end: aclrtEvent) -> Result<f32, aclError> {
    let invalid = |why: &str| fail(ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID, why);
    let moment = |event: aclrtEvent, which: &str| {
        let event = find(event)?;
        if event.flags & ACL_EVENT_TIME_LINE == 0 {
            return Err(invalid(&format!("the {which} event was created without ACL_EVENT_TIME_LINE")));
        }
        let ticket = event.ticket().ok_or_else(|| invalid(&format!("the {which} event was not recorded")))?;
        let time = *lock(&ticket.time);
        let time = time.ok_or_else(|| invalid(&format!("the {which} event is not complete")))?;
        Ok((time, ticket.stream))
    };
    let (start, start_stream) = moment(start, "start")?;
    let (end, end_stream) = moment(end, "end")?;
    if start_stream != end_stream {
        return Err(invalid("the events were recorded on different streams"));
    }
    match end.checked_duration_since(start) {
        Some(duration) => Ok(duration.as_secs_f32() * 1000.0),
        None => Err(fail(ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL, "the end event was recorded before the start event")),
    }
}

pub(crate) fn forget_device(device: usize) {
    EVENTS.remove_all(|event| event.device.id == device);
}

fn find(event: aclrtEvent) -> Result<Arc<Event>, aclError> {
    if event.is_null() {
        return Err(fail(ACL_ERROR_INVALID_PARAM, "event is NULL"));
    }
    EVENTS.find(event).ok_or_else(|| {
        let history = checked::handle_history(event.addr());
        let text = format!("event {event:?} was destroyed, lost by a reset, or never made{history}");
        misuse(ACL_ERROR_RT_INVALID_HANDLE, text)
    })
}

fn check_device(event: &Event, device: &Device) -> Result<(), aclError> {
    if event.device.id != device.id {
        let history = checked::handle_history(event.handle);
        let text = format!(
            "event {:#x} is of device {}, device {} is current{history}",
            event.handle, event.device.id, device.id
        );
        return Err(misuse(ACL_ERROR_RT_STREAM_CONTEXT, text));
    }
    Ok(())
}
