//! Streams: a thread each, doing its work in the order it was submitted.
//!
//! A submission is one short lock and no allocation once the queue has grown; the stream's thread takes all that waits in one
//! exchange, and looks for more for a moment before it sleeps. Work that panics loses the device (see
//! [`Device::set_fault`]); what is queued behind it is dropped, except that events still complete, so nobody waits for ever.
//! An operator whose data are wrong fails alone: the stream's next synchronisation tells, or that of the next event behind it,
//! and work goes on.
//! Absent: priorities and limits on the queue's length.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use acl_sys::*;

use super::capture::{Model, Recording};
use super::checked::{self, Access, misuse};
use super::context::{self, Device, fail, panic_text};
use super::event::{Event, Ticket};
use super::memory::{self, Hold};
use super::registry::{Registry, fresh_handle, handle_pointer, lock};
use super::{config, live};

/// A kernel launch: what the second phase of an operator enqueues. A panic is a fault.
pub(crate) trait Launch: Send + Sync {
    fn name(&self) -> &'static str;
    fn launch(&self, workspace: *mut u8) -> Result<(), LaunchError>;
}

/// Why a launch failed.
#[derive(Debug)]
pub(crate) enum LaunchError {
    /// What it read makes no sense to it. Told once: to who waits for the stream next, or for an event recorded behind it.
    Argument(String),
    /// The device is lost.
    Fault(aclError),
}

/// What launches of a stream found wrong, numbered from 1.
#[derive(Default)]
struct Trouble {
    found: u64,
    told: u64,
    /// Of what was not told yet, with its number; not of all when it is much.
    texts: VecDeque<(u64, String)>,
}

const TROUBLE_TEXTS: usize = 64;

/// An address in device memory that travels to the stream's thread.
#[derive(Clone, Copy)]
pub(crate) struct DevicePtr(pub *mut u8);

// SAFETY: device memory belongs to no thread; ACL orders access to it by streams and events, which is the caller's part.
unsafe impl Send for DevicePtr {}
// SAFETY: as above; the value itself is only read.
unsafe impl Sync for DevicePtr {}

/// What a stream does.
pub(crate) enum Work {
    Launch {
        op: Arc<dyn Launch>,
        workspace: DevicePtr,
    },
    Copy {
        to: DevicePtr,
        from: DevicePtr,
        bytes: usize,
        _holds: [Option<Hold>; 2],
    },
    Fill {
        to: DevicePtr,
        value: u8,
        bytes: usize,
        _hold: Option<Hold>,
    },
    Record(Arc<Ticket>),
    Wait(Arc<Ticket>),
    /// Inside a captured model: completes the ticket of this number.
    CapturedRecord(usize),
    /// A captured model, with what it waits for first and the tickets of the records in it.
    Model {
        model: Arc<Model>,
        waits: Vec<Arc<Ticket>>,
        records: Vec<Arc<Ticket>>,
    },
}

pub(crate) struct Stream {
    pub(crate) handle: usize,
    pub(crate) device: &'static Device,
    is_default: bool,
    state: Mutex<State>,
    /// For the stream's thread: work or the end.
    wake: Condvar,
    /// For callers that wait: something completed.
    done: Condvar,
    submitted: AtomicU64,
    completed: AtomicU64,
    waiters: AtomicUsize,
    trouble: Mutex<Trouble>,
    /// Whether there is some, so that the usual case of none costs no lock.
    troubled: AtomicBool,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Work>,
    thread: Option<JoinHandle<()>>,
    parked: bool,
    closing: bool,
    recording: Option<Recording>,
}

pub(crate) static STREAMS: Registry<Stream> = Registry::new();

/// How long a stream's thread looks for more work before it sleeps: launches of one graph follow within microseconds.
const SPIN: Duration = Duration::from_micros(50);
/// How long a caller that waits looks before it sleeps.
const WAIT_SPIN: Duration = Duration::from_micros(20);
/// After this a look also offers the core to others: on a busy machine it may be them who are waited for.
const SELFISH_SPIN: Duration = Duration::from_micros(5);
const SPINS_PER_LOOK: u32 = 32;

/// Looks until `found` or until the time is up.
fn look(limit: Duration, found: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if found() {
            return true;
        }
        let elapsed = start.elapsed();
        if elapsed >= limit {
            return false;
        }
        if elapsed < SELFISH_SPIN {
            (0..SPINS_PER_LOOK).for_each(|_| std::hint::spin_loop());
        } else {
            std::thread::yield_now();
        }
    }
}

/// Enqueues on a stream of the calling thread's device (NULL: its default stream), or records in the stream's capture.
/// `accesses` are for checked mode and empty outside it.
pub(crate) fn submit(stream: aclrtStream, work: Work, accesses: Vec<Access>) -> Result<(), aclError> {
    find(stream)?.push(work, accesses).map(|_| ())
}

/// A stream of the calling thread's device; NULL is its default stream.
pub(crate) fn find(stream: aclrtStream) -> Result<Arc<Stream>, aclError> {
    let device = context::current()?;
    if stream.is_null() {
        return device.default_stream();
    }
    let stream = known(stream)?;
    stream.check_device(device)?;
    Ok(stream)
}

pub(crate) fn create(device: &'static Device, is_default: bool) -> Result<Arc<Stream>, aclError> {
    if device.streams.fetch_add(1, Ordering::Relaxed) >= config::settings().family.stream_limit() {
        device.streams.fetch_sub(1, Ordering::Relaxed);
        return Err(fail(ACL_ERROR_RT_NO_STREAM_RESOURCE, format!("device {} has no more streams", device.id)));
    }
    if !is_default {
        live::STREAMS.add();
    }
    let stream = Arc::new(Stream {
        handle: fresh_handle(),
        device,
        is_default,
        state: Mutex::default(),
        wake: Condvar::new(),
        done: Condvar::new(),
        submitted: AtomicU64::new(0),
        completed: AtomicU64::new(0),
        waiters: AtomicUsize::new(0),
        trouble: Mutex::default(),
        troubled: AtomicBool::new(false),
    });
    STREAMS.insert(stream.handle, Arc::clone(&stream));
    checked::handle_made(if is_default { "default stream" } else { "stream" }, stream.handle, device.id);
    Ok(stream)
}

pub(crate) fn create_handle() -> Result<*mut c_void, aclError> {
    create(context::current()?, false).map(|stream| handle_pointer(stream.handle))
}

/// Finishes the stream's work first. The device may be lost, but must be the calling thread's.
pub(crate) fn destroy(stream: aclrtStream) -> Result<(), aclError> {
    if stream.is_null() {
        return Err(fail(ACL_ERROR_INVALID_PARAM, "stream is NULL"));
    }
    let device = context::bound()?;
    let found = known(stream)?;
    found.check_device(device)?;
    if found.is_default {
        return Err(fail(ACL_ERROR_RT_PARAM_INVALID, "the default stream is destroyed by the device's reset"));
    }
    if lock(&found.state).recording.is_some() {
        return Err(misuse(ACL_ERROR_RT_STREAM_CAPTURED, "the stream is being captured"));
    }
    match STREAMS.remove(stream) {
        Some(found) => found.close(),
        None => return Err(fail(ACL_ERROR_RT_INVALID_HANDLE, "the stream was destroyed meanwhile")),
    }
    memory::sweep();
    Ok(())
}

pub(crate) fn synchronize(stream: aclrtStream) -> Result<(), aclError> {
    let stream = find(stream)?;
    stream.check_not_captured("synchronised")?;
    stream.drain();
    memory::sweep();
    stream.device.check_fault()?;
    stream.tell_trouble(u64::MAX)
}

/// What launches of a stream found wrong up to a number of [`Stream::troubles`], if it still exists: told once.
pub(super) fn tell_trouble(stream: usize, up_to: u64) -> Result<(), aclError> {
    STREAMS.find(handle_pointer(stream)).map_or(Ok(()), |stream| stream.tell_trouble(up_to))
}

pub(crate) fn is_idle(stream: aclrtStream) -> Result<bool, aclError> {
    let stream = find(stream)?;
    stream.check_not_captured("asked")?;
    let past = checked::clock_of(stream.handle);
    if stream.is_pending(stream.submitted.load(Ordering::SeqCst)) {
        return Ok(false);
    }
    checked::host_joins(past.as_ref());
    stream.tell_trouble(u64::MAX).map(|()| true)
}

/// How far each busy stream must come to be past all that is submitted now.
pub(crate) fn pending_marks() -> Vec<(Arc<Stream>, u64)> {
    let busy = STREAMS.select(|stream| stream.is_pending(stream.submitted.load(Ordering::SeqCst)));
    busy.into_iter().map(|stream| (Arc::clone(&stream), stream.submitted.load(Ordering::SeqCst))).collect()
}

fn known(stream: aclrtStream) -> Result<Arc<Stream>, aclError> {
    STREAMS.find(stream).ok_or_else(|| {
        let history = checked::handle_history(stream.addr());
        let text = format!("stream {stream:?} was destroyed, lost by a reset, or never made{history}");
        misuse(ACL_ERROR_RT_INVALID_HANDLE, text)
    })
}

impl Stream {
    /// Enqueues, or records in a capture; the answer is the mark to wait for, none when it was recorded.
    /// `accesses` are for checked mode and empty outside it.
    pub(crate) fn push(self: &Arc<Stream>, work: Work, accesses: Vec<Access>) -> Result<Option<u64>, aclError> {
        let mut state = lock(&self.state);
        self.check_open(&state)?;
        if let Some(recording) = &mut state.recording {
            recording.add(work, accesses)?;
            return Ok(None);
        }
        if state.thread.is_none() {
            let stream = Arc::clone(self);
            let thread = std::thread::Builder::new().name(format!("acl-stream-{:x}", self.handle));
            let thread = thread.spawn(move || stream.work()).map_err(|error| {
                fail(ACL_ERROR_RT_NO_STREAM_RESOURCE, format!("the system refuses a thread: {error}"))
            })?;
            state.thread = Some(thread);
        }
        if checked::enabled() {
            let is_launch = matches!(work, Work::Launch { .. });
            let code = if is_launch { ACLNN_ERR_RUNTIME_ERROR } else { ACL_ERROR_RT_PARAM_INVALID };
            checked::submit(self.handle, &accesses, code)?;
        }
        state.queue.push_back(work);
        let mark = self.submitted.fetch_add(1, Ordering::SeqCst) + 1;
        let sleeping = std::mem::take(&mut state.parked);
        drop(state);
        if sleeping {
            self.wake.notify_one();
        }
        Ok(Some(mark))
    }

    /// Waits until all that is submitted now is done.
    pub(crate) fn drain(&self) {
        let past = checked::clock_of(self.handle);
        self.wait_for(self.submitted.load(Ordering::SeqCst));
        checked::host_joins(past.as_ref());
    }

    /// What launches found wrong, up to that number, and nobody was told yet.
    pub(super) fn tell_trouble(&self, up_to: u64) -> Result<(), aclError> {
        if !self.troubled.load(Ordering::SeqCst) {
            return Ok(());
        }
        let mut trouble = lock(&self.trouble);
        let up_to = up_to.min(trouble.found);
        if up_to <= trouble.told {
            return Ok(());
        }
        let count = up_to - std::mem::replace(&mut trouble.told, up_to);
        let told = trouble.texts.partition_point(|(number, _)| *number <= up_to);
        let first = trouble.texts.drain(..told).next();
        self.troubled.store(trouble.told < trouble.found, Ordering::SeqCst);
        drop(trouble);
        let first = first.map_or_else(|| "a launch failed".to_owned(), |(_, text)| text);
        let others = if count > 1 { format!(", and {} launches more failed", count - 1) } else { String::new() };
        Err(fail(ACL_ERROR_RT_PARAM_INVALID, first + &others))
    }

    fn set_trouble(&self, text: String) {
        let mut trouble = lock(&self.trouble);
        trouble.found += 1;
        if trouble.texts.len() < TROUBLE_TEXTS {
            let number = trouble.found;
            trouble.texts.push_back((number, text));
        }
        self.troubled.store(true, Ordering::SeqCst);
    }

    /// How often a launch found something wrong so far. On the stream's thread.
    fn troubles(&self) -> u64 {
        // As a rule nothing ever was.
        if self.troubled.load(Ordering::SeqCst) { lock(&self.trouble).found } else { 0 }
    }

    pub(crate) fn wait_for(&self, mark: u64) {
        if look(WAIT_SPIN, || !self.is_pending(mark)) {
            return;
        }
        let mut state = lock(&self.state);
        // Announced before the last look: the stream's thread completes first and looks for waiters after.
        self.waiters.fetch_add(1, Ordering::SeqCst);
        while self.is_pending(mark) {
            state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        self.waiters.fetch_sub(1, Ordering::SeqCst);
    }

    pub(crate) fn is_pending(&self, mark: u64) -> bool {
        self.completed.load(Ordering::SeqCst) < mark
    }

    /// Finishes the work and ends the thread. The stream must be out of the registry.
    pub(crate) fn close(&self) {
        let (thread, recording) = {
            let mut state = lock(&self.state);
            state.closing = true;
            state.parked = false;
            (state.thread.take(), state.recording.take())
        };
        self.wake.notify_one();
        if let Some(recording) = recording {
            recording.lift();
        }
        if let Some(thread) = thread {
            // Its panics are caught work by work.
            let _ = thread.join();
        }
        checked::stream_ended(self.handle);
        self.device.streams.fetch_sub(1, Ordering::Relaxed);
        if !self.is_default {
            live::STREAMS.sub();
        }
    }

    pub(crate) fn begin_recording(&self, recording: Recording) -> Result<(), aclError> {
        let mut state = lock(&self.state);
        self.check_open(&state)?;
        if self.is_default {
            return Err(misuse(ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT, "the default stream cannot be captured"));
        }
        if state.recording.is_some() {
            return Err(misuse(ACL_ERROR_RT_STREAM_CAPTURED, "the stream is being captured already"));
        }
        state.recording = Some(recording);
        Ok(())
    }

    /// Looks at the capture in progress.
    pub(crate) fn with_recording<T>(&self, look: impl FnOnce(Option<&Recording>) -> T) -> T {
        look(lock(&self.state).recording.as_ref())
    }

    /// Ends the capture if `accept` lets it.
    pub(crate) fn take_recording(
        &self,
        accept: impl FnOnce(&Recording) -> Result<(), aclError>,
    ) -> Result<Recording, aclError> {
        let mut state = lock(&self.state);
        let not_captured = || misuse(ACL_ERROR_RT_STREAM_NOT_CAPTURED, "the stream is not being captured");
        accept(state.recording.as_ref().ok_or_else(not_captured)?)?;
        state.recording.take().ok_or_else(not_captured)
    }

    /// Records an event's record when the stream is being captured; tells whether it was.
    pub(crate) fn record_captured(&self, event: &Arc<Event>) -> Result<bool, aclError> {
        match &mut lock(&self.state).recording {
            Some(recording) => recording.record(event).map(|()| true),
            None => Ok(false),
        }
    }

    /// Records a wait when the stream is being captured; tells whether it was.
    pub(crate) fn wait_captured(&self, event: &Arc<Event>, in_capture: bool) -> Result<bool, aclError> {
        match &mut lock(&self.state).recording {
            Some(recording) => recording.wait(event, in_capture).map(|()| true),
            None => Ok(false),
        }
    }

    /// Refuses what a stream under capture cannot answer, which also spoils the capture.
    pub(crate) fn check_not_captured(&self, what: &str) -> Result<(), aclError> {
        if let Some(recording) = &mut lock(&self.state).recording {
            recording.invalidate();
            let text = format!("a stream under capture cannot be {what}; the capture is invalid now");
            return Err(misuse(ACL_ERROR_RT_STREAM_CAPTURED, text));
        }
        Ok(())
    }

    pub(crate) fn is_captured(&self) -> bool {
        lock(&self.state).recording.is_some()
    }

    fn check_open(&self, state: &State) -> Result<(), aclError> {
        if state.closing {
            return Err(fail(ACL_ERROR_RT_INVALID_HANDLE, "the stream is being destroyed"));
        }
        Ok(())
    }

    fn check_device(&self, device: &Device) -> Result<(), aclError> {
        if self.device.id != device.id {
            let history = checked::handle_history(self.handle);
            let text = format!(
                "stream {:#x} is of device {}, device {} is current{history}",
                self.handle, self.device.id, device.id
            );
            return Err(misuse(ACL_ERROR_RT_STREAM_CONTEXT, text));
        }
        Ok(())
    }

    /// The stream's thread.
    fn work(&self) {
        let mut batch = VecDeque::new();
        let mut taken = 0;
        loop {
            look(SPIN, || self.submitted.load(Ordering::SeqCst) != taken);
            {
                let mut state = lock(&self.state);
                while state.queue.is_empty() {
                    if state.closing {
                        return;
                    }
                    state.parked = true;
                    state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                state.parked = false;
                // Both queues keep their room, so a steady flow allocates nothing.
                std::mem::swap(&mut state.queue, &mut batch);
            }
            for work in batch.drain(..) {
                self.perform(work);
                taken += 1;
                self.completed.store(taken, Ordering::SeqCst);
                if self.waiters.load(Ordering::SeqCst) > 0 {
                    // The lock puts this after a waiter's look and before its sleep is over.
                    drop(lock(&self.state));
                    self.done.notify_all();
                }
            }
        }
    }

    fn perform(&self, work: Work) {
        work.run(&[], self);
        // Dropping is part of the work: what it holds is released before anyone sees it complete.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(move || drop(work))) {
            let text = format!("the end of a launch panicked: {}", panic_text(&*panic));
            self.device.set_fault(ACL_ERROR_RT_AICORE_EXCEPTION, text);
        }
    }
}

impl Work {
    /// `records` are the tickets of the model this work is part of. On a lost device only events happen.
    fn run(&self, records: &[Arc<Ticket>], stream: &Stream) {
        let device = stream.device;
        match self {
            Work::Record(ticket) => ticket.complete(stream.troubles()),
            Work::CapturedRecord(index) => records[*index].complete(stream.troubles()),
            Work::Wait(ticket) => ticket.wait(),
            Work::Model { model, waits, records } => {
                waits.iter().for_each(|ticket| ticket.wait());
                model.steps.iter().for_each(|step| step.run(records, stream));
            }
            _ if device.fault() != ACL_SUCCESS => {}
            // A fault is known before the events behind it complete, so who waits for those learns of it.
            Work::Launch { op, workspace } => match catch_unwind(AssertUnwindSafe(|| op.launch(workspace.0))) {
                Ok(Ok(())) => {}
                Ok(Err(LaunchError::Argument(text))) => stream.set_trouble(format!("{}: {text}", op.name())),
                Ok(Err(LaunchError::Fault(code))) => device.set_fault(code, format!("{} failed", op.name())),
                Err(panic) => {
                    let text = format!("{} panicked: {}", op.name(), panic_text(&*panic));
                    device.set_fault(ACL_ERROR_RT_AICORE_EXCEPTION, text);
                }
            },
            // SAFETY: the ranges were checked when the copy was submitted; the holds keep what is ACL's mapped, and pageable
            // host memory is the caller's to keep until the call it gave it to has returned.
            Work::Copy { to, from, bytes, .. } => unsafe { memory::copy(to.0, from.0, *bytes) },
            // SAFETY: the range was checked when the memset was submitted, and the hold keeps it mapped.
            Work::Fill { to, value, bytes, .. } => unsafe { memory::fill(to.0, *value, *bytes) },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicI32};
    use std::sync::mpsc;

    use super::*;
    use crate::ffi::runtime::*;
    use crate::runtime::live::live;

    struct Kernel<F>(F);

    impl<F: Fn() -> Result<(), aclError> + Send + Sync> Launch for Kernel<F> {
        fn name(&self) -> &'static str {
            "testKernel"
        }

        fn launch(&self, _workspace: *mut u8) -> Result<(), LaunchError> {
            (self.0)().map_err(LaunchError::Fault)
        }
    }

    fn launch(stream: aclrtStream, kernel: impl Fn() -> Result<(), aclError> + Send + Sync + 'static) -> aclError {
        let work = Work::Launch { op: Arc::new(Kernel(kernel)), workspace: DevicePtr(std::ptr::null_mut()) };
        submit(stream, work, Vec::new()).err().unwrap_or(ACL_SUCCESS)
    }

    /// Selects a device that no other test uses.
    fn on(device: i32) {
        // SAFETY: no pointers but null.
        unsafe {
            aclInit(std::ptr::null());
            assert_eq!(aclrtSetDevice(device), ACL_SUCCESS);
        }
    }

    fn new_stream() -> aclrtStream {
        create_handle().unwrap()
    }

    fn new_event() -> aclrtEvent {
        super::super::event::create(None).unwrap()
    }

    #[test]
    fn work_runs_in_order_and_not_in_the_caller() {
        on(15);
        let stream = new_stream();
        let caller = std::thread::current().id();
        let (sender, receiver) = mpsc::channel();
        for i in 0..10_000 {
            let sender = sender.clone();
            let code = launch(stream, move || {
                sender.send((i, std::thread::current().id() == caller)).unwrap();
                Ok(())
            });
            assert_eq!(code, ACL_SUCCESS);
        }
        assert_eq!(synchronize(stream), Ok(()));
        let seen: Vec<_> = receiver.try_iter().collect();
        assert_eq!(seen, (0..10_000).map(|i| (i, false)).collect::<Vec<_>>());
        assert_eq!(destroy(stream), Ok(()));
    }

    #[test]
    fn submission_does_not_wait_and_queries_tell_the_truth() {
        on(14);
        let (busy, other) = (new_stream(), new_stream());
        let event = new_event();
        let (go, gate) = mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        let passed = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&passed);
        launch(busy, move || {
            lock(&gate).recv().unwrap();
            seen.store(true, Ordering::SeqCst);
            Ok(())
        });
        // SAFETY: out-pointers are locals.
        unsafe {
            assert_eq!(aclrtRecordEvent(event, busy), ACL_SUCCESS);
            assert_eq!(aclrtStreamWaitEvent(other, event), ACL_SUCCESS);
            let ordered = Arc::clone(&passed);
            launch(other, move || {
                assert!(ordered.load(Ordering::SeqCst), "the wait holds");
                Ok(())
            });
            let (mut event_status, mut stream_status) = (-1, -1);
            assert_eq!(aclrtQueryEventStatus(event, &mut event_status), ACL_SUCCESS);
            assert_eq!(event_status, ACL_EVENT_RECORDED_STATUS_NOT_READY);
            for stream in [busy, other] {
                assert_eq!(aclrtStreamQuery(stream, &mut stream_status), ACL_SUCCESS);
                assert_eq!(stream_status, ACL_STREAM_STATUS_NOT_READY);
            }
            let mut ms = 0.0;
            let code = aclrtEventElapsedTime(&mut ms, event, event);
            assert_eq!(code, ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID);
            go.send(()).unwrap();
            assert_eq!(aclrtSynchronizeStream(other), ACL_SUCCESS);
            assert_eq!(aclrtQueryEventStatus(event, &mut event_status), ACL_SUCCESS);
            assert_eq!(event_status, ACL_EVENT_RECORDED_STATUS_COMPLETE);
            assert_eq!(aclrtResetDeviceForce(14), ACL_SUCCESS);
        }
    }

    #[test]
    fn what_a_launch_holds_is_released_before_it_counts_as_done() {
        on(13);
        let stream = new_stream();
        let held = Arc::new(());
        for _ in 0..2000 {
            let own = Arc::clone(&held);
            launch(stream, move || {
                let _ = &own;
                Ok(())
            });
            assert_eq!(synchronize(stream), Ok(()));
            assert_eq!(Arc::strong_count(&held), 1);
        }
        assert_eq!(destroy(stream), Ok(()));
    }

    #[test]
    fn a_panicking_kernel_loses_its_device_and_no_other() {
        on(12);
        let (stream, other, event) = (new_stream(), new_stream(), new_event());
        let late = Arc::new(AtomicI32::new(0));
        // SAFETY: out-pointers are locals, memory is the device's.
        unsafe {
            let mut memory = std::ptr::null_mut();
            assert_eq!(aclrtMalloc(&mut memory, 64, 0), ACL_SUCCESS);
            let (go, gate) = mpsc::channel::<()>();
            let gate = Mutex::new(gate);
            launch(stream, move || {
                lock(&gate).recv().unwrap();
                panic!("a kernel went wrong")
            });
            let counted = Arc::clone(&late);
            launch(stream, move || {
                counted.fetch_add(1, Ordering::SeqCst);
                Ok(())
            });
            assert_eq!(aclrtRecordEvent(event, stream), ACL_SUCCESS);
            assert_eq!(aclrtStreamWaitEvent(other, event), ACL_SUCCESS);
            go.send(()).unwrap();

            let lost = ACL_ERROR_RT_AICORE_EXCEPTION;
            assert_eq!(aclrtSynchronizeStream(stream), lost);
            let text = std::ffi::CStr::from_ptr(aclGetRecentErrMsg()).to_str().unwrap();
            assert!(text.contains("testKernel panicked: a kernel went wrong"), "{text}");
            assert_eq!(late.load(Ordering::SeqCst), 0, "what follows a fault does not run");
            assert_eq!(aclrtSynchronizeStream(other), lost);
            assert_eq!(aclrtSynchronizeDevice(), lost);
            assert_eq!(launch(other, || Ok(())), lost);
            assert_eq!(aclrtMalloc(&mut memory.clone(), 64, 0), lost);
            assert_eq!(aclrtMemset(memory, 64, 0, 64), lost);
            assert_eq!(aclrtSynchronizeEvent(event), lost);
            assert_eq!(aclrtCreateStream(&mut stream.clone()), lost);

            // Giving things back works, and other devices do.
            assert_eq!(aclrtFree(memory), ACL_SUCCESS);
            assert_eq!(aclrtDestroyEvent(event), ACL_SUCCESS);
            assert_eq!(aclrtDestroyStream(other), ACL_SUCCESS);
            on(11);
            assert_eq!(launch(std::ptr::null_mut(), || Ok(())), ACL_SUCCESS);
            assert_eq!(aclrtSynchronizeDevice(), ACL_SUCCESS);

            assert_eq!(aclrtResetDeviceForce(12), ACL_SUCCESS);
            on(12);
            assert_eq!(launch(std::ptr::null_mut(), || Ok(())), ACL_SUCCESS);
            assert_eq!(aclrtSynchronizeDevice(), ACL_SUCCESS);
        }
    }

    #[test]
    fn a_failing_kernel_gives_its_code_to_the_device() {
        on(10);
        launch(std::ptr::null_mut(), || Err(ACL_ERROR_RT_VECTOR_CORE_EXCEPTION));
        // SAFETY: no pointers.
        unsafe {
            assert_eq!(aclrtSynchronizeDevice(), ACL_ERROR_RT_VECTOR_CORE_EXCEPTION);
            assert_eq!(aclrtResetDeviceForce(10), ACL_SUCCESS);
        }
    }

    #[test]
    fn a_model_runs_its_launches_on_any_stream_and_completes_its_events_when_it_fails() {
        on(9);
        let (source, target, event) = (new_stream(), new_stream(), new_event());
        let runs = Arc::new(AtomicI32::new(0));
        // SAFETY: out-pointers are locals.
        unsafe {
            assert_eq!(aclmdlRICaptureBegin(source, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), ACL_SUCCESS);
            for step in 0..3 {
                let runs = Arc::clone(&runs);
                launch(source, move || {
                    let before = runs.fetch_add(1, Ordering::SeqCst);
                    assert_eq!(before % 3, step);
                    assert!(before < 9, "the tenth run goes wrong");
                    Ok(())
                });
            }
            assert_eq!(aclrtRecordEvent(event, source), ACL_SUCCESS);
            let mut model = std::ptr::null_mut();
            assert_eq!(aclmdlRICaptureEnd(source, &mut model), ACL_SUCCESS);
            for stream in [source, target, std::ptr::null_mut()] {
                assert_eq!(aclmdlRIExecuteAsync(model, stream), ACL_SUCCESS);
                assert_eq!(aclrtSynchronizeStream(stream), ACL_SUCCESS);
            }
            assert_eq!(runs.load(Ordering::SeqCst), 9);
            assert_eq!(aclmdlRIExecuteAsync(model, target), ACL_SUCCESS);
            assert_eq!(aclrtSynchronizeEvent(event), ACL_ERROR_RT_AICORE_EXCEPTION);
            assert_eq!(aclrtResetDeviceForce(9), ACL_SUCCESS);
        }
        assert_eq!(Arc::strong_count(&runs), 1, "a reset ends models");
    }

    #[test]
    fn memory_freed_under_a_launch_stays_mapped_until_the_launch_is_past() {
        on(7);
        const BYTES: usize = 8 << 20;
        let stream = new_stream();
        // SAFETY: the out-pointer is a local; what the kernel reads is what this test is about.
        unsafe {
            let mut memory = std::ptr::null_mut();
            assert_eq!(aclrtMalloc(&mut memory, BYTES, 0), ACL_SUCCESS);
            assert_eq!(aclrtMemset(memory, BYTES, 3, BYTES), ACL_SUCCESS);
            let (go, gate) = mpsc::channel::<()>();
            let gate = Mutex::new(gate);
            let addr = memory.addr();
            launch(stream, move || {
                lock(&gate).recv().unwrap();
                let bytes = std::slice::from_raw_parts(memory::address(addr), BYTES);
                assert!(bytes.iter().step_by(4096).all(|byte| *byte == 3));
                Ok(())
            });
            assert_eq!(aclrtFree(memory), ACL_SUCCESS);
            assert_eq!(memory::find(addr, 1), None);
            go.send(()).unwrap();
            assert_eq!(aclrtSynchronizeStream(stream), ACL_SUCCESS);
            assert_eq!(aclrtDestroyStream(stream), ACL_SUCCESS);
        }
    }

    #[test]
    fn a_reset_waits_for_work_and_refuses_more() {
        on(8);
        let stream = new_stream();
        let done = Arc::new(AtomicI32::new(0));
        for _ in 0..100 {
            let done = Arc::clone(&done);
            launch(stream, move || {
                std::thread::sleep(Duration::from_micros(50));
                done.fetch_add(1, Ordering::SeqCst);
                Ok(())
            });
        }
        // SAFETY: no pointers.
        assert_eq!(unsafe { aclrtResetDeviceForce(8) }, ACL_SUCCESS);
        assert_eq!(done.load(Ordering::SeqCst), 100);
        assert_eq!(launch(stream, || Ok(())), ACL_ERROR_RT_CONTEXT_NULL);
        on(8);
        assert_eq!(launch(stream, || Ok(())), ACL_ERROR_RT_INVALID_HANDLE);
        assert_eq!(live().reserved, 0);
    }
}
