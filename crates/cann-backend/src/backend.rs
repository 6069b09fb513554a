//! A backend: one worker on one device, and what users ask of it.
//!
//! Every function returns at once. What it asks for becomes a task, and `done` is called when the task is past.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};

use gguf::GgmlType;

pub use crate::Done;
use crate::acl::event::AclEvent;
use crate::acl::memory::PinnedMem;
use crate::buffer::{DeviceBuffer, Holder, HostBuffer, Storage};
use crate::caps::DeviceCaps;
use crate::device::{DeviceInfo, Registry, Selector};
use crate::error::{Error, Result};
use crate::pool::{Gauges, PoolChoice, PoolStats, env_switch};
use crate::private;
use crate::queue::{CAPACITY, Closable, Shared, Worker};
use crate::repack::Layout;
use crate::tensor::{self, Shape, TENSOR_ALIGNMENT_BYTES, Tensor};

pub use crate::tensor::TensorSpec;

/// 16 bytes that tell this backend from ggml's others.
pub const GUID: &str = "a194afacbd4f4734be1a9e711f9eed64";

/// Bytes of one of the two buffers that a staged copy between devices goes through.
const STAGE_BYTES: u64 = 4 << 20;

/// How to open a backend.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// The first device if `None`.
    pub device: Option<Selector>,
    pub pool: PoolChoice,
    /// Each launch is an item of the queue. `GGML_CANN_ASYNC_MODE` if `None`, and on if that says nothing.
    pub async_mode: Option<bool>,
}

/// A device opened for work. Clones are the same backend; dropping the last one closes it.
#[derive(Clone)]
pub struct Backend(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    info: DeviceInfo,
    caps: Arc<DeviceCaps>,
    pool_kind: &'static str,
    gauges: Arc<Gauges>,
    async_mode: bool,
}

/// Figures of a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub pool: PoolStats,
    pub queue: QueueStats,
    pub buffers: BufferStats,
    pub copies: CopyStats,
    /// Releases that failed, in the whole process; each was logged.
    pub release_errors: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueStats {
    pub capacity: u64,
    pub depth: u64,
    pub submitted: u64,
    pub completed: u64,
}

/// Memory of buffers and tensors; the pool's is apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BufferStats {
    pub count: u64,
    pub bytes: u64,
}

/// Copies between devices, by how they went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyStats {
    pub peer: u64,
    pub staged: u64,
}

impl Backend {
    /// Starts a worker on a device. A device that was lost is reset first.
    pub fn open(registry: Arc<Registry>, options: OpenOptions, done: Done<Backend>) {
        // The thread owns `done`; when there is no thread, it is taken back out of here.
        let done = Arc::new(Mutex::new(Some(done)));
        let shared_done = done.clone();
        let thread = std::thread::Builder::new().name("cann-worker".into());
        let spawned = thread.spawn(move || {
            let done = lock(&done).take();
            match open_here(&registry, &options) {
                Ok((backend, worker)) => {
                    drop(registry);
                    if let Some(done) = done {
                        done(Ok(backend));
                    }
                    worker.run();
                }
                Err(error) => {
                    if let Some(done) = done {
                        done(Err(error));
                    }
                }
            }
        });
        if let Err(error) = spawned {
            let done = lock(&shared_done).take();
            if let Some(done) = done {
                done(Err(Error::Internal(format!("no thread for the worker: {error}"))));
            }
        }
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.0.info.name
    }

    /// 32 hex digits.
    pub fn guid(&self) -> &'static str {
        GUID
    }

    /// The device as it was when the backend was opened.
    pub fn device(&self) -> &DeviceInfo {
        &self.0.info
    }

    pub fn caps(&self) -> &DeviceCaps {
        &self.0.caps
    }

    pub fn async_mode(&self) -> bool {
        self.0.async_mode
    }

    /// Distinguishes backends of a process.
    pub fn id(&self) -> u64 {
        self.0.shared.id
    }

    pub fn stats(&self) -> Stats {
        let counters = &self.0.shared.counters;
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        // Completed first: it can never be seen ahead of what was submitted.
        let completed = read(&counters.completed);
        Stats {
            pool: self.0.gauges.stats(self.0.pool_kind),
            queue: QueueStats {
                capacity: CAPACITY as u64,
                depth: self.0.shared.depth() as u64,
                submitted: read(&counters.submitted),
                completed,
            },
            buffers: BufferStats { count: read(&counters.buffers), bytes: read(&counters.buffer_bytes) },
            copies: CopyStats { peer: read(&counters.peer_copies), staged: read(&counters.staged_copies) },
            release_errors: crate::acl::status::drop_errors(),
        }
    }

    /// Bytes a tensor takes in a buffer.
    pub fn alloc_size(ty: GgmlType, ne: &[i64]) -> Result<u64> {
        tensor::alloc_size(ty, ne)
    }

    pub fn alloc_buffer(&self, bytes: u64, done: Done<DeviceBuffer>) {
        self.submit_or(done, move |worker, done| {
            let mem = worker.device_mem(bytes);
            done(mem.map(|mem| DeviceBuffer::new(Holder::new(Storage::new(mem, &worker.shared)), bytes)));
        });
    }

    pub fn alloc_host_buffer(&self, bytes: u64, done: Done<HostBuffer>) {
        self.submit_or(done, move |worker, done| {
            let mem = worker.pinned(bytes);
            done(mem.map(|mem| HostBuffer::new(mem, &worker.shared)));
        });
    }

    /// A tensor with memory of its own, or placed in a buffer of this backend. The content is undefined, the padding of
    /// quantised types zero.
    pub fn create_tensor(&self, spec: TensorSpec, done: Done<Tensor>) {
        let shape = match Shape::new(&spec).and_then(|shape| self.check_place(&spec, &shape).map(|()| shape)) {
            Ok(shape) => shape,
            Err(error) => return done(Err(error)),
        };
        let place = match spec.buffer.map(|buffer| buffer.holder.storage("the buffer").map(|s| (buffer.holder, s))) {
            Some(Err(error)) => return done(Err(error)),
            Some(Ok(place)) => Some(place),
            None => None,
        };
        self.submit_or(done, move |worker, done| {
            let made = match place {
                Some((holder, storage)) => Ok((Tensor::new(shape, holder, false, spec.offset), storage)),
                None => worker.device_mem(shape.alloc_bytes()).map_err(|e| e.for_tensor(&spec.name)).and_then(|mem| {
                    let holder = Holder::new(Storage::new(mem, &worker.shared));
                    let tensor = Tensor::new(shape, holder, true, 0);
                    tensor.memory().map(|storage| (tensor, storage))
                }),
            };
            // The padding is zeroed in stream order, before anything that uses the tensor.
            let made = made.and_then(|(tensor, storage)| {
                let zeroed = tensor.zero_padding(worker, &storage);
                worker.settle_after(storage, |_| ());
                zeroed.map(|()| tensor)
            });
            done(made);
        });
    }

    fn check_place(&self, spec: &TensorSpec, shape: &Shape) -> Result<()> {
        let Some(buffer) = &spec.buffer else {
            return if spec.offset == 0 { Ok(()) } else { Err(Error::invalid("offset", "0 without a buffer")) };
        };
        if !self.supports_buffer(buffer) {
            let expected = format!("a buffer of this backend on {}, not one on {}", self.name(), buffer.device());
            return Err(Error::invalid("buffer", expected));
        }
        if !spec.offset.is_multiple_of(TENSOR_ALIGNMENT_BYTES) {
            let expected = format!("a multiple of {TENSOR_ALIGNMENT_BYTES}, not {}", spec.offset);
            return Err(Error::invalid("offset", expected));
        }
        let (size, bytes) = (buffer.size(), shape.alloc_bytes());
        if spec.offset.checked_add(bytes).is_none_or(|end| end > size) {
            let expected = format!("a place for {bytes} bytes inside the buffer's {size}, not {}", spec.offset);
            return Err(Error::invalid("offset", expected));
        }
        Ok(())
    }

    /// Copies a tensor of this backend or another's into one of this backend, after everything submitted to either before.
    pub fn copy(&self, src: &Tensor, dst: &Tensor, done: Done<()>) {
        match self.check_copy(src, dst) {
            Ok((from, to)) => {
                let ends = Ends {
                    src: from.address() + src.memory_offset(),
                    dst: to.address() + dst.memory_offset(),
                    bytes: src.nbytes(),
                    keep: (from, to),
                    tensors: (src.clone(), dst.clone()),
                };
                if src.backend_id() == self.id() {
                    self.submit_or(done, move |worker, done| {
                        let rows = ends.give_rows(worker).and_then(|()| ends.take(worker));
                        let copied = rows.and_then(|()| worker.stream.copy_device(ends.dst, ends.src, ends.bytes));
                        worker.settle_with(copied, ends.keep, done);
                    });
                } else {
                    self.copy_between(src.shared(), ends, done);
                }
            }
            Err(error) => done(Err(error)),
        }
    }

    fn check_copy(&self, src: &Tensor, dst: &Tensor) -> Result<(Arc<Storage>, Arc<Storage>)> {
        if dst.backend_id() != self.id() {
            return Err(Error::invalid("dst", format!("a tensor of this backend, not {dst:?}")));
        }
        if src.ne() != dst.ne() {
            return Err(Error::Shape {
                op: "copy".into(),
                reason: format!("{:?} cannot be copied to {:?}", src.ne(), dst.ne()),
            });
        }
        if src.ty() != dst.ty() || src.layout() != dst.layout() {
            return Err(Error::Unsupported {
                what: format!("copying {} to {}", describe(src), describe(dst)),
                reason: "a copy moves bytes as they are; use the CPY operator to convert".into(),
            });
        }
        Ok((src.memory()?, dst.memory()?))
    }

    /// Both workers take part, so that the copy has its place in either queue.
    fn copy_between(&self, source: &Arc<Shared>, ends: Ends, done: Done<()>) {
        let same_driver = Arc::ptr_eq(&source.slot.target.api, &self.0.shared.slot.target.api);
        let same_device = same_driver && source.slot.target.id == self.0.shared.slot.target.id;
        let (ours, theirs) = Link::pair(source, &self.0.shared);
        let (ends, peer) = (Arc::new(ends), source.slot.target.id);
        let (from, to) = (ends.clone(), ends);
        let our_device = self.0.shared.slot.target.id;
        let _order = pair_order();
        let sent = source.submit(move |worker| {
            let given = from.give_rows(worker).and_then(|()| {
                if same_device {
                    give_event(worker, &theirs)
                } else if same_driver {
                    give_peer(worker, our_device, &from, &theirs)
                } else {
                    give_bytes(worker, &from, &theirs)
                }
            });
            // The other side learns of it from the closed link; what it still has to do here was logged.
            if let Err(error) = given {
                let _ = theirs.to.send(Message::Failed(worker.shared.translate(error)));
            }
            worker.settle_after(from, |_| ());
        });
        if let Err(error) = sent {
            drop(_order);
            return done(Err(error));
        }
        self.submit_or(done, move |worker, done| {
            // When this fails the link closes, and the other side goes on.
            let taken = to.take(worker).and_then(|()| {
                if same_device {
                    take_event(worker, &to, &ours)
                } else if same_driver {
                    take_peer(worker, peer, &to, &ours)
                } else {
                    take_bytes(worker, &to, &ours)
                }
            });
            drop(ours);
            worker.settle_with(taken, to, done);
        });
    }

    pub fn create_event(&self, done: Done<Event>) {
        self.submit_or(done, |worker, done| {
            done(AclEvent::create(&worker.lease).map(|event| Event::new(event, &worker.shared)));
        });
    }

    /// Marks the point after everything submitted so far. `done` is called when the mark is in the stream.
    pub fn record(&self, event: &Event, done: Done<()>) {
        let inner = event.0.clone();
        if inner.shared.id != self.id() {
            return done(Err(Error::invalid("event", "an event of this backend")));
        }
        let ticket = match inner.request() {
            Ok(ticket) => ticket,
            Err(error) => return done(Err(error)),
        };
        self.submit_or(done, move |worker, done| match worker.stream.record(&ticket.raw) {
            Ok(()) => {
                ticket.enqueued();
                worker.settle_after((), move |settled| ticket.past(settled));
                done(Ok(()));
            }
            Err(error) => {
                let error = worker.shared.translate(error);
                ticket.past(Err(error.clone()));
                done(Err(error));
            }
        });
    }

    /// Everything submitted to this backend from now on runs after the event's latest record, whoever's event it is.
    pub fn wait(&self, event: &Event, done: Done<()>) {
        let inner = event.0.clone();
        let number = match inner.latest() {
            Ok(number) => number,
            Err(error) => return done(Err(error)),
        };
        let (ours, theirs) = (&self.0.shared.slot.target, &inner.shared.slot.target);
        let same_device = Arc::ptr_eq(&ours.api, &theirs.api) && ours.id == theirs.id;
        self.submit_or(done, move |worker, done| {
            let waited = if same_device {
                // The record must be in its stream first, or there is nothing to wait for.
                inner.block_until(worker, |state| state.enqueued >= number).and_then(|()| inner.raw()).and_then(|raw| {
                    worker.stream.wait(&raw)?;
                    // Who is past the wait knows that the mark is past, perhaps before its own backend looks.
                    let waited_for = inner.clone();
                    worker.settle_after(raw, move |settled| {
                        if settled.is_ok() {
                            waited_for.passed(number);
                        }
                    });
                    Ok(())
                })
            } else {
                // Streams of two devices cannot wait for each other reliably: the worker does.
                inner.block_until(worker, |state| state.past >= number)
            };
            done(waited);
        });
    }

    /// `done` is called when everything submitted before is done on the device.
    pub fn synchronize(&self, done: Done<()>) {
        self.submit_or(done, |worker, done| {
            let drained = worker.drain();
            done(drained);
        });
    }

    /// Refuses new work, finishes what was submitted, frees everything. May be called many times.
    pub fn close(&self, done: Done<()>) {
        self.0.shared.close(Some(done));
    }

    pub fn is_closed(&self) -> bool {
        self.0.shared.is_closed()
    }

    /// Whether tensors of this backend can lie in `buffer`: it is this backend's.
    pub fn supports_buffer(&self, buffer: &DeviceBuffer) -> bool {
        buffer.backend_id() == self.id()
    }

    pub(crate) fn submit(&self, task: impl FnOnce(&mut Worker) + Send + 'static) -> Result<()> {
        self.0.shared.submit(task)
    }

    pub(crate) fn submit_or<T: 'static>(
        &self,
        done: Done<T>,
        task: impl FnOnce(&mut Worker, Done<T>) + Send + 'static,
    ) {
        self.0.shared.submit_or(done, task);
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }
}

impl std::fmt::Debug for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Backend({}, {})", self.id(), self.name())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.close(None);
    }
}

/// On the new worker thread.
fn open_here(registry: &Registry, options: &OpenOptions) -> Result<(Backend, Worker)> {
    let (slot, index) = registry.slot(options.device.as_ref())?;
    let _span = tracing::info_span!("backend.open", device = slot.target.name).entered();
    slot.revive()?;
    let shared = Shared::new(slot);
    // A sticky fault on the way has the next one reset the device.
    let info = shared.slot.info(index).map_err(|e| shared.translate(e))?;
    let async_mode = options.async_mode.or_else(|| env_switch("GGML_CANN_ASYNC_MODE")).unwrap_or(true);
    let gauges = Arc::<Gauges>::default();
    let started = Worker::start(shared.clone(), &info, options.pool, async_mode, gauges.clone());
    let worker = started.map_err(|e| shared.translate(e))?;
    let mode = if async_mode { "ON" } else { "OFF" };
    tracing::info!("device {} async operator submission is {mode}", worker.device);
    let backend = Backend(Arc::new(Inner {
        shared,
        info,
        caps: worker.caps.clone(),
        pool_kind: worker.pool_kind(),
        gauges,
        async_mode,
    }));
    Ok((backend, worker))
}

/// Held while tasks that wait for each other are put into two queues: pairs enter all queues in one order, so workers cannot
/// wait in a circle.
pub(crate) fn pair_order() -> MutexGuard<'static, ()> {
    static PAIRS: Mutex<()> = Mutex::new(());
    lock(&PAIRS)
}

fn describe(tensor: &Tensor) -> String {
    let name = tensor.ty().name();
    match tensor.layout() {
        Layout::Plain => name.to_owned(),
        layout => format!("{name} (laid out as {layout:?})"),
    }
}

/// The two ends of a copy and what keeps them alive.
struct Ends {
    src: u64,
    dst: u64,
    bytes: u64,
    keep: (Arc<Storage>, Arc<Storage>),
    tensors: (Tensor, Tensor),
}

impl Ends {
    /// On the source's worker: what is copied is rows.
    fn give_rows(&self, worker: &mut Worker) -> Result<()> {
        private::unpack(worker, &self.tensors.0, &self.keep.0)
    }

    /// On the target's worker, before it is written.
    fn take(&self, worker: &mut Worker) -> Result<()> {
        self.keep.1.touch();
        private::unpack(worker, &self.tensors.1, &self.keep.1)
    }
}

/// What the workers of a copy tell each other.
enum Message {
    Event(Arc<AclEvent>),
    /// The other side may go on.
    Ready,
    Bytes(PinnedMem, usize),
    Failed(Error),
}

/// One side of a two-way channel. When a side goes away, the other's `receive` fails.
struct Link {
    to: SyncSender<Message>,
    from: Receiver<Message>,
    /// Whose the other side is.
    other: Arc<Shared>,
}

impl Link {
    /// The side of `to`, and that of `from`.
    fn pair(from: &Arc<Shared>, to: &Arc<Shared>) -> (Link, Link) {
        // Room for all that one side ever sends ahead.
        let ((a_to, b_from), (b_to, a_from)) = (sync_channel(4), sync_channel(4));
        (Link { to: a_to, from: a_from, other: from.clone() }, Link { to: b_to, from: b_from, other: to.clone() })
    }

    fn send(&self, message: Message) -> Result<()> {
        self.to.send(message).map_err(|_| self.gone())
    }

    /// Waits for the other side if it must, with nothing of this worker's left unsettled: that may be what the other side, or
    /// one that it waits for, is waiting for.
    fn receive(&self, worker: &mut Worker) -> Result<Message> {
        let message = match self.from.try_recv() {
            Err(TryRecvError::Empty) => {
                // An error is told to whoever waits for what was in flight.
                let _ = worker.drain();
                self.from.recv().ok()
            }
            other => other.ok(),
        };
        match message {
            Some(Message::Failed(error)) => Err(error),
            Some(message) => Ok(message),
            None => Err(self.gone()),
        }
    }

    fn gone(&self) -> Error {
        self.other.loss().unwrap_or(Error::Disposed { what: "the other backend of the copy" })
    }
}

/// Same device, source: says where it is, and goes on when the copy is past.
fn give_event(worker: &mut Worker, link: &Link) -> Result<()> {
    let event = Arc::new(AclEvent::create(&worker.lease)?);
    worker.stream.record(&event)?;
    link.send(Message::Event(event.clone()))?;
    worker.settle_after(event, |_| ());
    if let Message::Event(copied) = link.receive(worker)? {
        worker.stream.wait(&copied)?;
        worker.settle_after(copied, |_| ());
    }
    Ok(())
}

/// Same device, destination: copies on its own stream between the two events.
fn take_event(worker: &mut Worker, ends: &Ends, link: &Link) -> Result<()> {
    if let Message::Event(ready) = link.receive(worker)? {
        worker.stream.wait(&ready)?;
        worker.settle_after(ready, |_| ());
    }
    worker.stream.copy_device(ends.dst, ends.src, ends.bytes)?;
    let copied = Arc::new(AclEvent::create(&worker.lease)?);
    worker.stream.record(&copied)?;
    let sent = link.send(Message::Event(copied.clone()));
    worker.settle_after(copied, |_| ());
    sent
}

/// Other device of the same driver, source: peer access both ways if it can be had, else bytes.
fn give_peer(worker: &mut Worker, peer: i32, ends: &Ends, link: &Link) -> Result<()> {
    let reached = worker.reaches(peer);
    if reached {
        // Events do not reach across devices: the data is ready when the host says so.
        worker.drain()?;
        link.send(Message::Ready)?;
        if matches!(link.receive(worker)?, Message::Ready) {
            // The copy is done, or it failed and the other side says so.
            return Ok(());
        }
    }
    give_bytes(worker, ends, link)
}

/// Other device of the same driver, destination.
fn take_peer(worker: &mut Worker, peer: i32, ends: &Ends, link: &Link) -> Result<()> {
    let reached = worker.reaches(peer);
    match link.receive(worker)? {
        Message::Ready if reached => {
            let copied = worker.stream.copy_device(ends.dst, ends.src, ends.bytes).and_then(|()| worker.drain());
            link.send(Message::Ready)?;
            copied?;
            worker.shared.counters.peer_copies.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
        Message::Ready => {
            // One way only: ask for bytes instead.
            let stage = worker.pinned(ends.bytes.min(STAGE_BYTES))?;
            link.send(Message::Bytes(stage, 0))?;
            take_bytes(worker, ends, link)
        }
        first => take_bytes_from(worker, ends, link, Some(first)),
    }
}

/// Source of a staged copy: pieces through pinned memory that goes back and forth.
fn give_bytes(worker: &mut Worker, ends: &Ends, link: &Link) -> Result<()> {
    let mut at = 0;
    let mut spare: Vec<PinnedMem> = Vec::new();
    let mut out = 0;
    while at < ends.bytes {
        let mut stage = match spare.pop() {
            Some(stage) => stage,
            None if out < 2 => {
                out += 1;
                worker.pinned(ends.bytes.min(STAGE_BYTES))?
            }
            None => match link.receive(worker)? {
                Message::Bytes(stage, _) => stage,
                _ => return Err(Error::Internal("a staged copy lost step".into())),
            },
        };
        let n = (ends.bytes - at).min(stage.len() as u64);
        worker.d2h_now(&mut stage.as_mut_slice()[..n as usize], ends.src + at)?;
        link.send(Message::Bytes(stage, n as usize))?;
        at += n;
        while let Ok(Message::Bytes(stage, _)) = link.from.try_recv() {
            spare.push(stage);
        }
    }
    Ok(())
}

fn take_bytes(worker: &mut Worker, ends: &Ends, link: &Link) -> Result<()> {
    take_bytes_from(worker, ends, link, None)
}

fn take_bytes_from(worker: &mut Worker, ends: &Ends, link: &Link, mut first: Option<Message>) -> Result<()> {
    let mut at = 0;
    while at < ends.bytes {
        let message = match first.take() {
            Some(message) => message,
            None => link.receive(worker)?,
        };
        let Message::Bytes(stage, n) = message else {
            return Err(Error::Internal("a staged copy lost step".into()));
        };
        let copied = worker.h2d(ends.dst + at, &stage.as_slice()[..n]);
        worker.drain()?;
        copied?;
        at += n as u64;
        // The source may be done and gone; then the memory is freed here.
        let _ = link.to.send(Message::Bytes(stage, n));
    }
    worker.shared.counters.staged_copies.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// A mark in a backend's order of work. Records and waits are items of the queue. What [`Event::query`] answers is kept by
/// the worker, so it needs no ACL call: it turns true when the worker has seen the device past the mark.
#[derive(Clone)]
pub struct Event(Arc<EventInner>);

struct EventInner {
    shared: Arc<Shared>,
    state: Mutex<EventState>,
    changed: Condvar,
}

#[derive(Default)]
struct EventState {
    raw: Option<Arc<AclEvent>>,
    /// Records that were asked for, are in the stream, and are past.
    requested: u64,
    enqueued: u64,
    past: u64,
    /// What the latest settled record came to.
    outcome: Option<Error>,
    waiters: Vec<(u64, Done<()>)>,
}

impl Event {
    fn new(event: AclEvent, shared: &Arc<Shared>) -> Event {
        let state = EventState { raw: Some(Arc::new(event)), ..EventState::default() };
        let inner = Arc::new(EventInner { shared: shared.clone(), state: Mutex::new(state), changed: Condvar::new() });
        let weak: Weak<EventInner> = Arc::downgrade(&inner);
        shared.register(weak);
        Event(inner)
    }

    pub fn backend_id(&self) -> u64 {
        self.0.shared.id
    }

    /// Whether every record asked for so far is past; true for an event that was never recorded.
    pub fn query(&self) -> bool {
        let state = lock(&self.0.state);
        state.past >= state.requested
    }

    /// `done` is called when every record asked for so far is past.
    pub fn synchronize(&self, done: Done<()>) {
        let mut state = lock(&self.0.state);
        if state.raw.is_none() {
            drop(state);
            return done(Err(Error::Disposed { what: "the event" }));
        }
        if state.past >= state.requested {
            let outcome = state.outcome.clone();
            drop(state);
            return done(outcome.map_or(Ok(()), Err));
        }
        let number = state.requested;
        state.waiters.push((number, done));
    }

    pub fn dispose(&self) {
        self.0.take();
    }

    pub fn is_disposed(&self) -> bool {
        self.0.shared.is_closed() || lock(&self.0.state).raw.is_none()
    }
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Event(of backend {}, past: {})", self.backend_id(), self.query())
    }
}

impl EventInner {
    /// The handle; the record that uses it was asked for before it was disposed.
    fn raw(&self) -> Result<Arc<AclEvent>> {
        lock(&self.state).raw.clone().ok_or(Error::Disposed { what: "the event" })
    }

    fn request(self: &Arc<Self>) -> Result<Ticket> {
        if let Some(refusal) = self.shared.refusal() {
            return Err(refusal);
        }
        let mut state = lock(&self.state);
        let raw = state.raw.clone().ok_or(Error::Disposed { what: "the event" })?;
        state.requested += 1;
        let number = state.requested;
        drop(state);
        Ok(Ticket { inner: self.clone(), raw, number, settled: false })
    }

    /// The number of the latest record that was asked for.
    fn latest(&self) -> Result<u64> {
        let state = lock(&self.state);
        if state.raw.is_none() {
            return Err(Error::Disposed { what: "the event" });
        }
        Ok(state.requested)
    }

    /// As [`Link::receive`]: what this worker has in flight is settled before it waits.
    fn block_until(&self, worker: &mut Worker, reached: impl Fn(&EventState) -> bool) -> Result<()> {
        let settled = reached(&lock(&self.state));
        if !settled {
            let _ = worker.drain();
        }
        let mut state = lock(&self.state);
        while !reached(&state) {
            state = self.changed.wait(state).unwrap_or_else(|e| e.into_inner());
        }
        state.outcome.clone().map_or(Ok(()), Err)
    }

    fn settle(&self, number: u64, result: Result<()>) {
        let mut state = lock(&self.state);
        state.enqueued = state.enqueued.max(number);
        state.past = state.past.max(number);
        state.outcome = result.clone().err();
        let ready = state.waiters.extract_if(.., |(wanted, _)| *wanted <= number).collect::<Vec<_>>();
        drop(state);
        self.changed.notify_all();
        for (_, done) in ready {
            done(result.clone());
        }
    }

    /// Another stream is past a wait for this record.
    fn passed(&self, number: u64) {
        if lock(&self.state).past < number {
            self.settle(number, Ok(()));
        }
    }

    fn take(&self) {
        let raw = lock(&self.state).raw.take();
        // Destroying an event needs no binding, but the worker may be using it: it goes there.
        if let Some(raw) = raw {
            self.shared.discard(raw);
        }
    }
}

impl Closable for EventInner {
    fn close(&self, _: &mut Worker) {
        drop(lock(&self.state).raw.take());
    }
}

/// One record on its way. Dropped unrecorded, it wakes those who wait for it with an error.
struct Ticket {
    inner: Arc<EventInner>,
    raw: Arc<AclEvent>,
    number: u64,
    settled: bool,
}

impl Ticket {
    fn enqueued(&self) {
        let mut state = lock(&self.inner.state);
        state.enqueued = state.enqueued.max(self.number);
        drop(state);
        self.inner.changed.notify_all();
    }

    fn past(mut self, result: Result<()>) {
        self.settled = true;
        self.inner.settle(self.number, result);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.settled {
            let error = self.inner.shared.refusal();
            let error = error.unwrap_or_else(|| Error::Internal("a record was dropped".into()));
            self.inner.settle(self.number, Err(error));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What these guard changes in single steps.
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}
