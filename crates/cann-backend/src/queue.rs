//! The worker: one thread per backend, bound to its device once, running tasks in the order they came.
//!
//! First in, first out is a promise to users: runs, copies, fills, events and releases of one backend happen in the order they
//! were submitted. [`CAPACITY`] entries are the queue; what comes on top waits behind them in order, with its promise. An idle
//! worker is parked. A task that panics is our bug: its promise gets [`Error::Internal`] and the worker goes on.
//!
//! Work is enqueued on the stream and *settled* later ([`Worker::settle_after`]): the worker prefers launching what is queued
//! until [`IN_FLIGHT`] settlements are outstanding, then waits for the oldest.
//!
//! Closing: refuse new → run what was submitted → synchronise → close what registered → pool, events, stream, memory → give
//! the device back → tell who asked.

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, Weak};

use acl_sys::AclApi;

use crate::Done;
use crate::acl::capture::Model;
use crate::acl::driver::Lease;
use crate::acl::event::AclEvent;
use crate::acl::memory::{DeviceMem, Home, PinnedMem};
use crate::acl::stream::Stream;
use crate::caps::DeviceCaps;
use crate::device::{DeviceInfo, DeviceSlot, pinning_allowed};
use crate::error::{Error, Result};
use crate::models::Models;
use crate::pool::{self, Block, Gauges, Ground, Pool, PoolChoice, Position};

/// Entries of the queue proper.
pub(crate) const CAPACITY: usize = 1024;
/// Settlements that may be outstanding while more work is launched.
pub(crate) const IN_FLIGHT: usize = 8;

pub(crate) type Task = Box<dyn FnOnce(&mut Worker) + Send>;

/// The side of a worker that other threads see.
pub(crate) struct Shared {
    pub id: u64,
    pub slot: Arc<DeviceSlot>,
    pub home: Arc<Home>,
    pub counters: Counters,
    state: Mutex<State>,
    ready: Condvar,
    refusing: AtomicBool,
    /// Why the device is lost.
    lost: OnceLock<String>,
    closables: Mutex<Vec<Weak<dyn Closable>>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "backend {} on {}", self.id, self.name())
    }
}

/// Figures for `stats()`.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub submitted: AtomicU64,
    pub completed: AtomicU64,
    pub buffers: AtomicU64,
    pub buffer_bytes: AtomicU64,
    pub staged_copies: AtomicU64,
    pub peer_copies: AtomicU64,
}

#[derive(Default)]
struct State {
    tasks: VecDeque<Task>,
    phase: Phase,
    close_waiters: Vec<Done<()>>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Open,
    Closing,
    Closed,
}

/// Something made of ACL handles that users hold: when its backend closes, the worker asks it to let go of them.
pub(crate) trait Closable: Send + Sync {
    fn close(&self, worker: &mut Worker);
}

impl Shared {
    pub fn new(slot: Arc<DeviceSlot>) -> Arc<Shared> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        Arc::new_cyclic(|weak: &Weak<Shared>| {
            let weak = weak.clone();
            let wake = move || {
                if let Some(shared) = weak.upgrade() {
                    // Under the lock, or the worker could park between its look and this call.
                    let _state = shared.lock();
                    shared.ready.notify_all();
                }
            };
            Shared {
                id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
                home: Home::new(slot.target.now(), wake),
                slot,
                counters: Counters::default(),
                state: Mutex::default(),
                ready: Condvar::new(),
                refusing: AtomicBool::new(false),
                lost: OnceLock::new(),
                closables: Mutex::default(),
            }
        })
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.slot.target.name
    }

    /// Whether new work is refused.
    pub fn is_closed(&self) -> bool {
        self.refusing.load(Ordering::Acquire)
    }

    /// Why no work is taken, if none is.
    pub fn refusal(&self) -> Option<Error> {
        self.loss().or_else(|| self.is_closed().then_some(Error::Disposed { what: "the backend" }))
    }

    /// That the device is lost: by a fault of this backend, or of another one of the same device, whose reset takes all.
    pub fn loss(&self) -> Option<Error> {
        if self.lost.get().is_none()
            && let Some(cause) = self.slot.fault(&self.home.target().epoch)
            && self.lock().phase != Phase::Closed
        {
            let _ = self.lost.set(cause);
        }
        let cause = self.lost.get()?.clone();
        Some(Error::DeviceLost { device: self.name().to_owned(), cause })
    }

    pub fn submit(&self, task: impl FnOnce(&mut Worker) + Send + 'static) -> Result<()> {
        self.push(Box::new(task)).map_err(|(error, task)| {
            drop(task);
            error
        })
    }

    /// `done` gets an error when the task can't run, when it panics, or when it drops `done`.
    pub fn submit_or<T: 'static>(
        self: &Arc<Self>,
        done: Done<T>,
        task: impl FnOnce(&mut Worker, Done<T>) + Send + 'static,
    ) {
        // A refused task is dropped with its promise, which knows what to say.
        let _ = self.push(self.promised(done, task));
    }

    /// The task of [`Shared::submit_or`], to be pushed: dropping it answers `done`.
    pub fn promised<T: 'static>(
        self: &Arc<Self>,
        done: Done<T>,
        task: impl FnOnce(&mut Worker, Done<T>) + Send + 'static,
    ) -> Task {
        let mut promise = Promise::new(self.clone(), done);
        Box::new(move |worker| {
            let done: Done<T> = Box::new(move |result| promise.settle(result));
            task(worker, done);
        })
    }

    /// Drops `value` on the worker, when the stream is past all that is enqueued by then.
    pub fn discard(&self, value: impl Send + 'static) {
        let _ = self.submit(move |worker| worker.settle_after(value, |_| ()));
    }

    /// Gives the task back if it is refused.
    pub fn push(&self, task: Task) -> Result<(), (Error, Task)> {
        if let Some(error) = self.refusal() {
            return Err((error, task));
        }
        let mut state = self.lock();
        if state.phase != Phase::Open {
            drop(state);
            return Err((Error::Disposed { what: "the backend" }, task));
        }
        self.counters.submitted.fetch_add(1, Ordering::Relaxed);
        state.tasks.push_back(task);
        drop(state);
        self.ready.notify_one();
        Ok(())
    }

    /// Tasks that wait in the queue proper.
    pub fn depth(&self) -> usize {
        self.lock().tasks.len().min(CAPACITY)
    }

    /// Refuses new work; `done` is called when the worker is gone. May be called many times.
    pub fn close(&self, done: Option<Done<()>>) {
        let mut state = self.lock();
        self.refusing.store(true, Ordering::Release);
        if state.phase == Phase::Closed {
            drop(state);
            if let Some(done) = done {
                done(Ok(()));
            }
            return;
        }
        state.phase = Phase::Closing;
        state.close_waiters.extend(done);
        drop(state);
        self.ready.notify_all();
    }

    /// Has `closable` let go of its handles when the backend closes.
    pub fn register(&self, closable: Weak<dyn Closable>) {
        let mut list = self.closables.lock().unwrap_or_else(|e| e.into_inner());
        if list.len() == list.capacity() {
            list.retain(|c| c.strong_count() > 0);
        }
        list.push(closable);
    }

    /// Remembers the first sticky fault; what waits is dropped and rejects itself.
    fn lose(&self, cause: &Error) {
        if self.lost.set(cause.to_string()).is_ok() {
            tracing::error!(device = self.name(), "the device is lost: {cause}");
            self.slot.set_lost(&self.home.target().epoch, &cause.to_string());
        }
        let waiting = std::mem::take(&mut self.lock().tasks);
        drop(waiting);
    }

    /// What a promise is told for an error of its task. What goes to another backend is translated first: there the code would
    /// speak of the other's device.
    pub fn translate(&self, error: Error) -> Error {
        match error {
            Error::Acl { .. } if error.is_sticky() => self.lose(&error),
            // Calls that a reset came between fail with codes of any kind.
            Error::Acl { .. } | Error::OutOfMemory { .. } | Error::DeviceLost { .. } => (),
            _ => return error,
        }
        self.loss().unwrap_or(error)
    }

    fn pop(&self) -> Option<Task> {
        self.lock().tasks.pop_front()
    }

    /// Parks until there is something to do; `false` when the backend is to close and nothing is left.
    fn park(&self) -> bool {
        let mut state = self.lock();
        loop {
            if !state.tasks.is_empty() || self.home.has_returned() {
                return true;
            }
            if state.phase != Phase::Open {
                return false;
            }
            state = self.ready.wait(state).unwrap_or_else(|e| e.into_inner());
        }
    }

    fn finish(&self, result: Result<()>) {
        let waiters = {
            let mut state = self.lock();
            state.phase = Phase::Closed;
            std::mem::take(&mut state.close_waiters)
        };
        for done in waiters {
            done(result.clone());
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under this lock panics half way; a task never runs under it.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// A `done` that is called once, whatever happens to the task that holds it.
struct Promise<T: 'static> {
    shared: Arc<Shared>,
    done: Option<Done<T>>,
}

type Orphan = Box<dyn FnOnce(Error)>;

thread_local! {
    /// Promises whose task is unwinding: they are told the panic's message once it is caught.
    static ORPHANS: RefCell<Vec<Orphan>> = const { RefCell::new(Vec::new()) };
}

impl<T> Promise<T> {
    fn new(shared: Arc<Shared>, done: Done<T>) -> Promise<T> {
        Promise { shared, done: Some(done) }
    }

    fn settle(&mut self, result: Result<T>) {
        if let Some(done) = self.done.take() {
            done(result.map_err(|error| self.shared.translate(error)));
        }
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        let Some(done) = self.done.take() else { return };
        if std::thread::panicking() {
            ORPHANS.with_borrow_mut(|orphans| orphans.push(Box::new(move |error| done(Err(error)))));
            return;
        }
        let error = self.shared.refusal().unwrap_or_else(|| Error::Internal("a task ended without a result".into()));
        done(Err(error));
    }
}

/// What a task may use. Lives on the worker thread and never leaves it.
pub(crate) struct Worker {
    pub api: Arc<AclApi>,
    pub device: i32,
    pub stream: Stream,
    pub caps: Arc<DeviceCaps>,
    pub async_mode: bool,
    pub shared: Arc<Shared>,
    pub lease: Arc<Lease>,
    pub home: Arc<Home>,
    pub models: Models<Model>,
    /// Whether the device's private format is the known one; `None` before it was tried.
    pub private_format: Option<bool>,
    pool: Box<dyn Pool>,
    position: Arc<Position>,
    flights: VecDeque<Flight>,
    spare_events: Vec<AclEvent>,
    scratch: Weak<Segment>,
    workspace: Weak<Segment>,
    peers: Vec<(i32, bool)>,
    pin: bool,
}

/// Work the stream is not known to be past.
struct Flight {
    event: AclEvent,
    number: u64,
    keep: Box<dyn Any>,
    done: Box<dyn FnOnce(Result<()>)>,
}

/// A part of the pool that the plans of a backend share. Its address never changes; with the vmm pool it may become longer.
#[derive(Debug)]
pub(crate) struct Segment(Block);

impl Segment {
    pub fn address(&self) -> u64 {
        self.0.address()
    }

    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }
}

impl Worker {
    /// On the new worker thread, which stays bound to the device.
    pub fn start(
        shared: Arc<Shared>,
        info: &DeviceInfo,
        pool: PoolChoice,
        async_mode: bool,
        gauges: Arc<Gauges>,
    ) -> Result<Worker> {
        let slot = &shared.slot;
        let home = shared.home.clone();
        home.settle_here();
        let lease = Lease::new(home.target().clone())?;
        let stream = Stream::create(&lease)?;
        let api = slot.target.api.clone();
        let position = Arc::<Position>::default();
        let ground = Ground { home: home.clone(), position: position.clone(), gauges };
        let pool = pool::make(pool, info, slot.budget(), &ground)?;
        Ok(Worker {
            device: slot.target.id,
            stream,
            caps: Arc::new(DeviceCaps::new(api.clone(), &slot.soc)),
            api,
            async_mode,
            lease,
            home,
            models: Models::from_env(),
            private_format: None,
            pool,
            position,
            flights: VecDeque::new(),
            spare_events: Vec::new(),
            scratch: Weak::new(),
            workspace: Weak::new(),
            peers: Vec::new(),
            pin: pinning_allowed(),
            shared,
        })
    }

    /// Runs tasks until the backend closes.
    pub fn run(mut self) {
        loop {
            if let Some(returned) = self.home.take_returned() {
                self.settle_after(returned, |_| ());
            }
            if let Some(task) = self.shared.pop() {
                self.run_task(task);
            } else if !self.flights.is_empty() {
                self.guarded(Worker::settle_oldest);
            } else if !self.shared.park() {
                break;
            }
        }
        self.close();
    }

    /// Records an event now. When it is past, `keep` is dropped and `done` called, in the order of the calls. With more than
    /// [`IN_FLIGHT`] outstanding this waits for the oldest.
    pub fn settle_after(&mut self, keep: impl Any, done: impl FnOnce(Result<()>) + 'static) {
        let event = match self.record() {
            Ok(event) => event,
            Err(error) => {
                // No mark to wait for: the whole stream then, unless nothing answers any more.
                let error = self.shared.translate(error);
                if !error.is_sticky() {
                    let _ = self.drain();
                }
                drop(keep);
                done(Err(error));
                return;
            }
        };
        let number = self.position.record();
        self.flights.push_back(Flight { event, number, keep: Box::new(keep), done: Box::new(done) });
        while self.flights.len() > IN_FLIGHT {
            self.settle_oldest();
        }
    }

    /// [`Worker::settle_after`] for a task whose enqueueing gave `result`: even what failed half way may be in flight.
    pub fn settle_with(&mut self, result: Result<()>, keep: impl Any, done: Done<()>) {
        self.settle_after(keep, move |settled| done(result.and(settled)));
    }

    /// Waits for everything that is enqueued, and settles it. The error is of what nobody waits for: a flight's own is told to
    /// the flight.
    pub fn drain(&mut self) -> Result<()> {
        self.settle();
        if let Some(error) = self.lost() {
            return Err(error);
        }
        let result = self.stream.synchronize().map_err(|e| self.shared.translate(e));
        if result.as_ref().is_err_and(|error| !error.is_sticky()) {
            self.quiesce();
        }
        self.position.passed(self.position.record());
        result
    }

    /// Waits for what is in flight and settles it, so that its errors are told to nobody else. Before every wait for the stream.
    pub fn settle(&mut self) {
        while !self.flights.is_empty() {
            self.settle_oldest();
        }
    }

    /// The scratch arena of this backend's plans, at least `bytes` long. Who uses it keeps the `Arc`.
    pub fn scratch(&mut self, bytes: u64) -> Result<Arc<Segment>> {
        let segment = self.segment(&self.scratch.clone(), bytes)?;
        self.scratch = Arc::downgrade(&segment);
        Ok(segment)
    }

    /// What operators of this backend's plans work in, shared like the arena.
    pub fn workspace(&mut self, bytes: u64) -> Result<Arc<Segment>> {
        let segment = self.segment(&self.workspace.clone(), bytes)?;
        self.workspace = Arc::downgrade(&segment);
        Ok(segment)
    }

    /// The segment that is there if it is, or can be made, long enough; else a new one.
    fn segment(&mut self, there: &Weak<Segment>, bytes: u64) -> Result<Arc<Segment>> {
        if let Some(segment) = there.upgrade()
            && (segment.bytes() >= bytes || self.with_room(|w| w.pool.extend(&segment.0, bytes))?)
        {
            return Ok(segment);
        }
        Ok(Arc::new(Segment(self.block(bytes)?)))
    }

    /// A block of the pool.
    pub fn block(&mut self, bytes: u64) -> Result<Block> {
        self.with_room(|worker| worker.pool.alloc(bytes))
    }

    /// Device memory of its own.
    pub fn device_mem(&mut self, bytes: u64) -> Result<DeviceMem> {
        self.with_room(|worker| DeviceMem::alloc(&worker.home, bytes))
    }

    /// Pinned host memory, or plain memory where none can be pinned.
    pub fn pinned(&mut self, bytes: u64) -> Result<PinnedMem> {
        PinnedMem::alloc(&self.lease, bytes, self.pin)
    }

    /// Counts launches as items of the queue, which they are in async mode.
    pub fn count_launches(&self, n: u64) {
        if self.async_mode {
            self.shared.counters.submitted.fetch_add(n, Ordering::Relaxed);
            self.shared.counters.completed.fetch_add(n, Ordering::Relaxed);
        }
    }

    /// Host to device in stream order. The source must stay as it is until the stream is past: hand it to
    /// [`Worker::settle_after`].
    pub fn h2d(&self, dst: u64, src: &[u8]) -> Result<()> {
        self.stream.copy_in(dst, src)
    }

    /// Device to host, done when this returns: after all that is enqueued, and that settled.
    pub fn d2h_now(&mut self, dst: &mut [u8], src: u64) -> Result<()> {
        let copied = self.stream.copy_out(dst, src);
        // Even after an error: the slice must not be written after this returns.
        self.drain()?;
        copied
    }

    /// Whether this device reaches the memory of `peer`; asked and enabled once.
    pub fn reaches(&mut self, peer: i32) -> bool {
        if let Some((_, known)) = self.peers.iter().find(|(id, _)| *id == peer) {
            return *known;
        }
        let reached = crate::acl::driver::can_access_peer(&self.api, self.device, peer)
            && crate::acl::driver::enable_peer_access(&self.api, peer).is_ok();
        self.peers.push((peer, reached));
        reached
    }

    pub fn pool_kind(&self) -> &'static str {
        self.pool.kind()
    }

    /// Why the device is lost, if it is.
    pub fn lost(&self) -> Option<Error> {
        self.shared.loss()
    }

    /// Tries again after giving back what is idle, when memory runs out.
    fn with_room<T>(&mut self, mut attempt: impl FnMut(&mut Worker) -> Result<T>) -> Result<T> {
        match attempt(self) {
            Err(Error::OutOfMemory { .. }) => {
                self.drain()?;
                drop(self.home.take_returned());
                self.pool.trim();
                attempt(self)
            }
            result => result,
        }
    }

    fn record(&mut self) -> Result<AclEvent> {
        if let Some(error) = self.lost() {
            return Err(error);
        }
        let event = match self.spare_events.pop() {
            Some(event) => event,
            None => AclEvent::create(&self.lease)?,
        };
        self.stream.record(&event)?;
        Ok(event)
    }

    /// Waits for the oldest flight and settles it.
    fn settle_oldest(&mut self) {
        let Some(flight) = self.flights.front() else { return };
        if let Some(error) = self.lost() {
            return self.abandon(&error);
        }
        let result = flight.event.synchronize();
        self.settle_front(result);
    }

    /// Settles flights that are past already, without waiting.
    fn settle_past(&mut self) {
        while let Some(flight) = self.flights.front() {
            match flight.event.is_past() {
                Ok(false) => break,
                Ok(true) => self.settle_oldest(),
                // A library may tell what went wrong before the mark to the first who asks, and to nobody after.
                Err(error) => self.settle_front(Err(error)),
            }
        }
    }

    fn settle_front(&mut self, result: Result<()>) {
        match result.map_err(|e| self.shared.translate(e)) {
            Err(error) if error.is_sticky() => self.abandon(&error),
            result => {
                if result.is_err() {
                    self.quiesce();
                }
                if let Some(flight) = self.flights.pop_front() {
                    self.finish(flight, result);
                }
            }
        }
    }

    fn finish(&mut self, flight: Flight, result: Result<()>) {
        self.position.passed(flight.number);
        self.spare_events.push(flight.event);
        drop(flight.keep);
        (flight.done)(result);
    }

    /// After a wait that failed: what the stream still runs must not outlive its memory, so the wait is tried again. Who waits
    /// is told the first error; when waiting is not possible at all, nothing better is known to be done.
    fn quiesce(&self) {
        let waited = self.stream.synchronize().or_else(|_| self.stream.synchronize());
        if let Err(error) = waited {
            tracing::warn!(device = self.shared.name(), "nobody knows what the stream is past: {error}");
        }
    }

    /// The device answers nothing any more: everything outstanding fails with the cause.
    fn abandon(&mut self, error: &Error) {
        for flight in std::mem::take(&mut self.flights) {
            drop(flight.keep);
            (flight.done)(Err(error.clone()));
        }
    }

    fn run_task(&mut self, task: Task) {
        self.guarded(|worker| {
            if let Some(error) = worker.lost() {
                // The task goes without having run, and tells who waits for it.
                return worker.abandon(&error);
            }
            let _span =
                tracing::debug_span!("queue.task", id = worker.shared.counters.completed.load(Ordering::Relaxed))
                    .entered();
            worker.settle_past();
            task(worker);
        });
        self.shared.counters.completed.fetch_add(1, Ordering::Relaxed);
    }

    /// Runs `what`; a panic in it becomes the error of the promises it held.
    fn guarded(&mut self, what: impl FnOnce(&mut Worker)) {
        // The worker stays usable: its own state changes only in steps that do not panic.
        let Err(payload) = catch_unwind(AssertUnwindSafe(|| what(self))) else { return };
        let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".into());
        tracing::error!(device = self.shared.name(), "a task panicked: {text}");
        for orphan in ORPHANS.take() {
            orphan(Error::Internal(text.clone()));
        }
    }

    fn close(mut self) {
        let mut result = Ok(());
        self.guarded(|worker| result = worker.drain());
        // Before what they name.
        self.models.clear();
        let closables = std::mem::take(&mut *self.shared.closables.lock().unwrap_or_else(|e| e.into_inner()));
        for closable in closables.iter().filter_map(Weak::upgrade) {
            self.guarded(|worker| closable.close(worker));
        }
        let Worker { stream, shared, lease, home, pool, spare_events, flights, .. } = self;
        drop(flights);
        drop(pool);
        drop(spare_events);
        drop(stream);
        let left = home.free_all();
        if left > 0 {
            tracing::debug!(device = shared.name(), left, "freed what users still hold");
        }
        // A lost device was told to its waiters already; closing it is fine.
        let result = if shared.loss().is_some() { Ok(()) } else { result };
        drop(lease);
        shared.finish(result);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::{Backend, DriverEntry, DriverKind, OpenOptions, Registry};

    fn open() -> Backend {
        let entry =
            DriverEntry { api: Arc::new(acl_host::api()), kind: DriverKind::Host, prefix: "HOST", description: None };
        ask(|done| Backend::open(Arc::new(Registry::new(vec![entry])), OpenOptions::default(), done)).unwrap()
    }

    fn ask<T: Send + 'static>(what: impl FnOnce(Done<T>)) -> Result<T> {
        let (to, from) = mpsc::channel();
        what(Box::new(move |result| drop(to.send(result))));
        from.recv().expect("an answer")
    }

    #[test]
    fn a_panic_rejects_its_own_promise_and_no_other() {
        let backend = open();
        let panicked = ask(|done: Done<()>| backend.submit_or(done, |_, _done| panic!("on {}", "purpose")));
        assert!(matches!(panicked, Err(Error::Internal(text)) if text == "on purpose"));
        // In a settlement too.
        backend.submit(|worker| worker.settle_after((), |_| panic!("late"))).unwrap();
        assert_eq!(ask(|done| backend.submit_or(done, |_, done| done(Ok(5)))).unwrap(), 5);
        ask(|done| backend.close(done)).unwrap();
    }

    #[test]
    fn a_promise_that_is_dropped_is_told_so() {
        let backend = open();
        let dropped = ask(|done: Done<()>| backend.submit_or(done, |_, done| drop(done)));
        assert!(matches!(dropped, Err(Error::Internal(_))));
    }

    #[test]
    fn settlements_are_in_order_and_few() {
        let backend = open();
        let (to, from) = mpsc::channel();
        backend
            .submit(move |worker| {
                for i in 0..100 {
                    let to = to.clone();
                    worker.settle_after(i, move |settled| to.send((i, settled.is_ok())).unwrap());
                    assert!(worker.flights.len() <= IN_FLIGHT);
                }
            })
            .unwrap();
        assert!(from.iter().eq((0..100).map(|i| (i, true))));
    }

    #[test]
    fn the_scratch_arena_is_shared_and_grows() {
        let backend = open();
        ask(|done| {
            backend.submit_or(done, |worker, done| {
                let small = worker.scratch(1000).unwrap();
                let same = worker.scratch(500).unwrap();
                assert!(Arc::ptr_eq(&small, &same));
                let large = worker.scratch(9 << 20).unwrap();
                assert!(large.bytes() >= 9 << 20);
                // In place with the vmm pool: plans made before see the same address.
                assert!(worker.pool_kind() != "vmm" || Arc::ptr_eq(&small, &large));
                done(Ok(()));
            });
        })
        .unwrap();
        // Another task, so that the one before is gone with what it held.
        ask(|done| backend.submit_or(done, |_, done| done(Ok(())))).unwrap();
        assert_eq!(backend.stats().pool.bytes_in_use, 0);
    }

    #[test]
    fn memory_let_go_elsewhere_is_freed_by_the_worker() {
        let backend = open();
        let mem = ask(|done| backend.submit_or(done, |worker, done| done(worker.device_mem(1000)))).unwrap();
        drop(mem);
        ask(|done| backend.close(done)).unwrap();
        let late = open();
        let mem = ask(|done| late.submit_or(done, |worker, done| done(worker.device_mem(1000)))).unwrap();
        ask(|done| late.close(done)).unwrap();
        drop(mem);
    }
}
