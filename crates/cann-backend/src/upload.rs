//! A model's file into device memory: read, convert, copy, side by side.
//!
//! All memory is taken first, so a model that does not fit is known before its data is read. Then one or two *lanes* work
//! through the list of chunks. A lane reads a chunk, converts it into one of its two pinned staging buffers, and sends the
//! worker a task that starts the copies; while they run it goes on with the other buffer. So reading, converting and copying
//! overlap, and what all of it needs besides the weights is at most [`MAX_EXTRA_BYTES`], whatever the model.
//!
//! A tensor that has no form in the layout chosen for it ([`NotFinite`]) is left aside and loaded as f16 at the end. Whatever
//! fails, and when the caller cancels, lanes stop between two chunks and everything taken goes back. Absent: ACL calls
//! (the worker's), knowledge of what tensors are for.

use std::any::Any;
use std::collections::HashSet;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};

use gguf::{Gguf, GgufError, TensorInfo};
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

use crate::Done;
use crate::acl::memory::PinnedMem;
use crate::backend::{Backend, TensorSpec};
use crate::buffer::DeviceBuffer;
use crate::error::{Error, Result};
use crate::file::{Source, open_model};
use crate::queue::Worker;
use crate::repack::convert::{Abilities, Conversion, Convert};
use crate::repack::{NotFinite, Regions};
use crate::tensor::{TENSOR_ALIGNMENT_BYTES, Tensor};
use crate::weights::{GgufInfo, Weights};

/// How far a load is. The first report has 0 bytes done, the last one all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the file that are on the device.
    pub bytes_done: u64,
    pub bytes_total: u64,
    /// The tensor that was last worked on.
    pub tensor: String,
}

/// What [`Backend::load_weights`] may be told.
#[derive(Default)]
pub struct LoadOptions {
    /// Called from a thread of the load, about 20 times a second and at the first and last byte. Must not block.
    pub progress: Option<Box<dyn FnMut(Progress) + Send>>,
    /// Ends the load with [`Error::Cancelled`] at the next chunk.
    pub cancel: CancellationToken,
    /// The tensors to load; all if absent.
    pub names: Option<Vec<String>>,
    pub convert: Convert,
}

/// Bytes of the file, or of the device, in a chunk: whichever is more.
const CHUNK_BYTES: u64 = 4 << 20;
const LANES: usize = 2;
const STAGING_PER_LANE: usize = 2;
/// The most that staging and scratch of one load take.
pub const MAX_EXTRA_BYTES: u64 = LANES as u64 * (STAGING_PER_LANE as u64 + 1) * CHUNK_BYTES;
/// Tensors share buffers of at most this size, unless one is larger.
const BUFFER_BYTES: u64 = 1 << 30;
const PROGRESS_INTERVAL: Duration = Duration::from_millis(50);
/// Tensor handles asked for at a time, well below what the queue holds.
const HANDLES: usize = 256;
/// Loads at a time in this process; others wait.
const LOADS: usize = 8;

impl Backend {
    /// Uploads the weights of a GGUF file, or of the set of split files that begins with it.
    pub fn load_weights(&self, path: PathBuf, options: LoadOptions, done: Done<Weights>) {
        let backend = self.clone();
        on_file_thread(done, move || load(&backend, &path, options));
    }
}

/// Header, metadata and tensor table of a file, without its data.
pub fn read_gguf(path: PathBuf, done: Done<GgufInfo>) {
    on_file_thread(done, move || Ok(open_model(&path)?.0.into()));
}

/// The runtime that reads files: its blocking threads only, so nothing has to drive it. They end when idle.
fn files() -> Result<&'static Runtime> {
    static FILES: OnceLock<std::io::Result<Runtime>> = OnceLock::new();
    let make = || Builder::new_current_thread().max_blocking_threads(LOADS).thread_name("cann-files").build();
    FILES.get_or_init(make).as_ref().map_err(|e| Error::Internal(format!("no runtime for files: {e}")))
}

fn on_file_thread<T: Send + 'static>(done: Done<T>, work: impl FnOnce() -> Result<T> + Send + 'static) {
    let internal = |panic: Box<dyn Any + Send>| Error::Internal(message(&*panic));
    // The thread takes `done` out of here. Tokio panics when there is no thread to be had; then it is still there.
    let slot = Arc::new(Mutex::new(Some(done)));
    let done = slot.clone();
    let task = move || {
        let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(internal(panic)));
        let done = lock(&done).take();
        if let Some(done) = done {
            done(result);
        }
    };
    let started = catch_unwind(AssertUnwindSafe(|| files().map(|files| drop(files.spawn_blocking(task)))));
    if let Err(e) = started.unwrap_or_else(|panic| Err(internal(panic))) {
        let done = lock(&slot).take();
        if let Some(done) = done {
            done(Err(e));
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panic while loading".into())
}

/// Waits for a call that answers through a `Done`. One that never answers was dropped with its backend.
fn wait<T: Send + 'static>(call: impl FnOnce(Done<T>)) -> Result<T> {
    let (send, receive) = mpsc::channel();
    call(Box::new(move |result| {
        // The receiver waits below.
        let _ = send.send(result);
    }));
    receive.recv().unwrap_or(Err(Error::Disposed { what: "the backend" }))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A tensor of the file and what becomes of it.
struct Item {
    info: TensorInfo,
    conversion: Conversion,
    /// The tensor has no form in its layout: it is done again as f16.
    refused: AtomicBool,
    /// Finite values that an f16 can't hold.
    saturated: AtomicU64,
    /// Bytes of the file that progress has counted, and how many of them an earlier attempt had: none are counted twice.
    counted: AtomicU64,
    again: AtomicU64,
}

/// Elements of one item that are read, converted and copied together.
struct Chunk {
    item: usize,
    elements: Range<u64>,
}

fn load(backend: &Backend, path: &Path, options: LoadOptions) -> Result<Weights> {
    let LoadOptions { progress, cancel, names, convert } = options;
    let check = || if cancel.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) };
    check()?;
    if backend.is_closed() {
        return Err(Error::Disposed { what: "the backend" });
    }
    let (mut gguf, sources) = open_model(path)?;
    let infos = chosen(&mut gguf, names, path)?;
    let device = Abilities::from(backend.caps());
    let items = infos.into_iter().map(|info| item(info, convert, device, backend)).collect::<Result<Vec<_>>>()?;
    let span = tracing::debug_span!("weights.load", tensors = items.len());
    let _entered = span.enter();

    check()?;
    let (mut buffers, mut tensors) = place(backend, &items, path)?;
    check()?;
    let wide: Vec<Item>;
    let mut load = Load {
        backend,
        sources: &sources,
        items: &items,
        cancel: &cancel,
        progress: Mutex::new(Reporter::new(progress, &items)),
    };
    lock(&load.progress).report(true);
    load.run(&tensors, (0..items.len()).collect())?;

    let refused: Vec<usize> = (0..items.len()).filter(|&i| items[i].refused.load(Ordering::Relaxed)).collect();
    if !refused.is_empty() {
        wide = items.iter().map(Item::as_f16).collect();
        for &i in &refused {
            let item = &wide[i];
            tracing::warn!(
                tensor = item.info.name,
                from = item.info.ty.name(),
                "not finite in its layout, loaded as f16"
            );
            let (buffer, mut tensor) = place(backend, std::slice::from_ref(item), path)?;
            buffers.extend(buffer);
            tensors[i] = tensor.remove(0);
        }
        load.items = &wide;
        load.run(&tensors, refused)?;
        saturation(&wide);
    }
    saturation(&items);
    load.progress.into_inner().unwrap_or_else(PoisonError::into_inner).report(true);
    Ok(Weights::new(Arc::new(gguf.metadata), tensors, buffers))
}

/// The tensors to load, in file order, taken out of the table.
fn chosen(gguf: &mut Gguf, names: Option<Vec<String>>, path: &Path) -> Result<Vec<TensorInfo>> {
    let wrap = |e: GgufError| Error::gguf(path, e);
    let Some(names) = names else {
        gguf.require_known().map_err(wrap)?;
        return Ok(std::mem::take(&mut gguf.tensors));
    };
    for name in &names {
        gguf.tensor(name).map_err(|e| match e {
            GgufError::TensorNotFound { tensor } => Error::NotFound { what: "tensor", name: tensor, known: Vec::new() },
            e => wrap(e),
        })?;
    }
    let names: HashSet<String> = names.into_iter().collect();
    let mut tensors = std::mem::take(&mut gguf.tensors);
    tensors.retain(|t| names.contains(&t.name));
    Ok(tensors)
}

fn item(info: TensorInfo, convert: Convert, device: Abilities, backend: &Backend) -> Result<Item> {
    let conversion = Conversion::choose(info.ty, convert, device).map_err(|reason| Error::Unsupported {
        what: format!("tensor '{}' of type {} on {}", info.name, info.ty, backend.name()),
        reason: reason.to_owned(),
    })?;
    Ok(Item::new(info, conversion, 0))
}

impl Item {
    fn new(info: TensorInfo, conversion: Conversion, again: u64) -> Item {
        let (refused, saturated, counted) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(again));
        Item { info, conversion, refused, saturated, counted, again: AtomicU64::new(again) }
    }

    fn as_f16(&self) -> Item {
        Item::new(self.info.clone(), self.conversion.as_f16(), self.counted.load(Ordering::Relaxed))
    }

    fn ne(&self) -> Vec<i64> {
        // The reader checked that the product of all extents fits 63 bits.
        self.info.ne[..self.info.n_dims as usize].iter().map(|n| *n as i64).collect()
    }

    /// Pieces of whole units of which neither side is larger than a chunk.
    fn chunks(&self, item: usize) -> impl Iterator<Item = Chunk> {
        let conversion = self.conversion;
        let unit = conversion.unit();
        let unit_bytes = conversion.source_bytes(unit).max(conversion.part_bytes(unit).iter().sum());
        let step = (CHUNK_BYTES / unit_bytes).max(1) * unit;
        let total = self.info.n_elements();
        (0..total.div_ceil(step)).map(move |k| Chunk { item, elements: k * step..((k + 1) * step).min(total) })
    }
}

fn saturation(items: &[Item]) {
    for item in items {
        let values = item.saturated.load(Ordering::Relaxed);
        if values > 0 {
            tracing::warn!(tensor = item.info.name, values, "values beyond f16 became the nearest f16");
        }
    }
}

/// Takes the memory of all items, in few buffers, and makes their tensors.
fn place(backend: &Backend, items: &[Item], path: &Path) -> Result<(Vec<DeviceBuffer>, Vec<Tensor>)> {
    let too_large = |item: &Item| Error::gguf(path, GgufError::TensorTooLarge { tensor: item.info.name.clone() });
    // Bytes of each buffer and the first item in it; buffer and offset of each item.
    let (mut buffers, mut places) = (Vec::<(u64, usize)>::new(), Vec::new());
    for (i, item) in items.iter().enumerate() {
        let bytes = Backend::alloc_size(item.conversion.to, &item.ne())?;
        let bytes = bytes.checked_next_multiple_of(TENSOR_ALIGNMENT_BYTES).ok_or_else(|| too_large(item))?;
        let used = buffers.last().map_or(u64::MAX, |(used, _)| *used);
        match used.checked_add(bytes) {
            Some(sum) if sum <= BUFFER_BYTES => {
                places.push((buffers.len() - 1, used));
                buffers[places[i].0].0 = sum;
            }
            _ => {
                places.push((buffers.len(), 0));
                buffers.push((bytes, i));
            }
        }
    }
    let total = buffers.iter().fold(0u64, |sum, (bytes, _)| sum.saturating_add(*bytes));
    let mut memory: Vec<DeviceBuffer> = Vec::new();
    let mut taken = 0;
    for &(bytes, first) in &buffers {
        let buffer = wait(|done| backend.alloc_buffer(bytes, done)).map_err(|e| match e {
            // What does not fit is the model, not this buffer.
            Error::OutOfMemory { device, free_bytes, .. } => Error::OutOfMemory {
                device,
                requested_bytes: total,
                free_bytes: free_bytes.map(|free| free.saturating_add(taken)),
                tensor: Some(items[first].info.name.clone()),
            },
            e => e,
        })?;
        memory.push(buffer);
        taken += bytes;
    }

    let mut tensors = Vec::with_capacity(items.len());
    for (items, places) in items.chunks(HANDLES).zip(places.chunks(HANDLES)) {
        let (send, receive) = mpsc::channel();
        for (i, (item, (buffer, offset))) in items.iter().zip(places).enumerate() {
            let spec = TensorSpec {
                ty: item.conversion.to,
                ne: item.ne(),
                name: item.info.name.clone(),
                buffer: Some(memory[*buffer].clone()),
                offset: *offset,
                layout: Some(item.conversion.layout),
                source_type: Some(item.info.ty),
                weight: true,
            };
            let send = send.clone();
            backend.create_tensor(
                spec,
                Box::new(move |result| {
                    // Nobody listens after the first error.
                    let _ = send.send((i, result));
                }),
            );
        }
        drop(send);
        let mut made = (0..items.len()).map(|_| None).collect::<Vec<_>>();
        for (i, result) in receive {
            made[i] = Some(result?);
        }
        for tensor in made {
            tensors.push(tensor.ok_or(Error::Disposed { what: "the backend" })?);
        }
    }
    Ok((memory, tensors))
}

/// Counts what is done and tells the caller, not too often.
struct Reporter {
    callback: Option<Box<dyn FnMut(Progress) + Send>>,
    state: Progress,
    last: Instant,
}

impl Reporter {
    fn new(callback: Option<Box<dyn FnMut(Progress) + Send>>, items: &[Item]) -> Reporter {
        let tensor = items.first().map(|item| item.info.name.clone()).unwrap_or_default();
        let bytes_total = items.iter().map(|item| item.info.nbytes).sum();
        Reporter { callback, state: Progress { bytes_done: 0, bytes_total, tensor }, last: Instant::now() }
    }

    fn count(&mut self, bytes: u64, tensor: &str) {
        self.state.bytes_done += bytes;
        self.state.tensor.clear();
        self.state.tensor.push_str(tensor);
        // The last byte is reported by whoever knows that nothing went wrong.
        if self.state.bytes_done < self.state.bytes_total {
            self.report(false);
        }
    }

    fn report(&mut self, now: bool) {
        if let Some(callback) = &mut self.callback
            && (now || self.last.elapsed() >= PROGRESS_INTERVAL)
        {
            callback(self.state.clone());
            self.last = Instant::now();
        }
    }
}

/// What the lanes of one load share.
struct Load<'a> {
    backend: &'a Backend,
    sources: &'a [Source],
    items: &'a [Item],
    cancel: &'a CancellationToken,
    progress: Mutex<Reporter>,
}

impl Load<'_> {
    /// Loads the items at `which` and returns when their copies are past.
    fn run(&self, tensors: &[Tensor], which: Vec<usize>) -> Result<()> {
        let chunks: Vec<Chunk> = which.into_iter().flat_map(|i| self.items[i].chunks(i)).collect();
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let lanes = LANES.min(cores).min(chunks.len());
        let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let lane = || {
            let result = catch_unwind(AssertUnwindSafe(|| self.lane(tensors, &chunks, &next, &stop)));
            let result = result.unwrap_or_else(|panic| Err(Error::Internal(message(&*panic))));
            stop.fetch_or(result.is_err(), Ordering::Relaxed);
            result
        };
        if lanes < 2 {
            return lane();
        }
        std::thread::scope(|scope| {
            // A thread that can't be had leaves its chunks to the others.
            let named = || std::thread::Builder::new().name("cann-files".into());
            let others: Vec<_> = (1..lanes).filter_map(|_| named().spawn_scoped(scope, lane).ok()).collect();
            let results = others.into_iter().map(|other| other.join().expect("a lane catches its panics"));
            // A collected Vec: every lane has to be over before the first error is returned.
            std::iter::once(lane()).chain(results).collect::<Vec<_>>().into_iter().collect()
        })
    }

    /// Takes chunk after chunk until none is left. Waits for its copies whatever happens.
    fn lane(&self, tensors: &[Tensor], chunks: &[Chunk], next: &AtomicUsize, stop: &AtomicBool) -> Result<()> {
        let mut staging = Staging::new(self, chunks);
        let mut raw = Vec::new();
        let mut work = || {
            while let Some(chunk) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                if self.cancel.is_cancelled() {
                    return Err(Error::Cancelled);
                }
                if self.items[chunk.item].refused.load(Ordering::Relaxed) {
                    continue;
                }
                self.chunk(&tensors[chunk.item], chunk, &mut staging, &mut raw)?;
            }
            Ok(())
        };
        let result = work();
        let drained = staging.drain();
        result.and(drained)
    }

    fn chunk(&self, tensor: &Tensor, chunk: &Chunk, staging: &mut Staging, raw: &mut Vec<u8>) -> Result<()> {
        let item = &self.items[chunk.item];
        let (conversion, info) = (item.conversion, &item.info);
        let elements = chunk.elements.end - chunk.elements.start;
        let source_bytes = conversion.source_bytes(elements);
        let offset = info.offset + conversion.source_bytes(chunk.elements.start);
        let source = &self.sources[info.shard];
        let sizes = conversion.part_bytes(elements).map(|n| n as usize);

        let mut memory = staging.take()?;
        let bytes = memory.as_mut_slice();
        if conversion.layout.is_verbatim() && !conversion.converts() {
            source.read(offset, &mut bytes[..sizes[0]])?;
        } else {
            raw.resize(source_bytes as usize, 0);
            source.read(offset, raw)?;
            let (quants, rest) = bytes.split_at_mut(sizes[0]);
            let (scales, offsets) = rest.split_at_mut(sizes[1]);
            match conversion.run(raw, [quants, scales, &mut offsets[..sizes[2]]]) {
                Ok(saturated) => {
                    item.saturated.fetch_add(saturated, Ordering::Relaxed);
                }
                Err(NotFinite { .. }) => {
                    item.refused.store(true, Ordering::Relaxed);
                    staging.idle.push(memory);
                    return Ok(());
                }
            }
        }

        let regions = Regions::new(conversion.layout, conversion.to, info.n_elements())
            .expect("the tensor was made with this layout");
        let before = conversion.part_bytes(chunk.elements.start);
        let starts = [regions.quants.start, regions.scales.start, regions.offsets.start];
        let mut copies = Vec::with_capacity(3);
        let mut at = 0;
        for k in 0..3 {
            if sizes[k] > 0 {
                copies.push((starts[k] + before[k], at..at + sizes[k]));
            }
            at += sizes[k];
        }
        let storage = tensor.memory()?;
        let base = storage.address() + tensor.memory_offset();
        let returned = staging.expect(chunk.item, source_bytes);
        self.backend.submit_or(returned, move |worker: &mut Worker, done| {
            let bytes = memory.as_slice();
            let sent = copies.into_iter().try_for_each(|(to, from)| worker.h2d(base + to, &bytes[from]));
            // Copies that were started read the staging buffer until the stream is past them, even if a later one failed.
            worker.settle_after(storage, move |settled| done(sent.and(settled).map(|()| memory)));
        });
        Ok(())
    }

    /// A copy is past: its chunk is done.
    fn count(&self, item: usize, bytes: u64) {
        let item = &self.items[item];
        let mut reporter = lock(&self.progress);
        let again = bytes.min(item.again.load(Ordering::Relaxed));
        item.again.fetch_sub(again, Ordering::Relaxed);
        item.counted.fetch_add(bytes - again, Ordering::Relaxed);
        reporter.count(bytes - again, &item.info.name);
    }
}

/// A chunk whose copies are past or failed: item, bytes of the file, and the staging buffer.
type Returned = (usize, u64, Result<PinnedMem>);

/// The staging buffers of one lane.
struct Staging<'a> {
    load: &'a Load<'a>,
    bytes: u64,
    made: usize,
    out: usize,
    idle: Vec<PinnedMem>,
    home: mpsc::Sender<Returned>,
    returned: mpsc::Receiver<Returned>,
}

impl<'a> Staging<'a> {
    fn new(load: &'a Load<'a>, chunks: &[Chunk]) -> Staging<'a> {
        let bytes = |chunk: &Chunk| -> u64 {
            let elements = chunk.elements.end - chunk.elements.start;
            load.items[chunk.item].conversion.part_bytes(elements).iter().sum()
        };
        let (home, returned) = mpsc::channel();
        let bytes = chunks.iter().map(bytes).max().unwrap_or(0);
        Staging { load, bytes, made: 0, out: 0, idle: Vec::new(), home, returned }
    }

    /// A buffer that no copy reads any more. Reports the error of a copy that was started before.
    fn take(&mut self) -> Result<PinnedMem> {
        loop {
            if let Some(memory) = self.idle.pop() {
                return Ok(memory);
            }
            if self.made == STAGING_PER_LANE {
                self.receive()?;
                continue;
            }
            let bytes = self.bytes;
            let memory = wait(|done| {
                self.load.backend.submit_or(done, move |worker, done| done(worker.pinned(bytes)));
            })?;
            self.made += 1;
            return Ok(memory);
        }
    }

    /// What the task of a chunk has to call with its buffer.
    fn expect(&mut self, item: usize, bytes: u64) -> Done<PinnedMem> {
        self.out += 1;
        let home = self.home.clone();
        // Nobody is there any more after a panic in the lane.
        Box::new(move |result| drop(home.send((item, bytes, result))))
    }

    fn receive(&mut self) -> Result<()> {
        let (item, bytes, result) = self.returned.recv().expect("this struct holds a sender");
        self.out -= 1;
        self.idle.push(result?);
        self.load.count(item, bytes);
        Ok(())
    }

    /// Waits for all that is out; the first error of what was started.
    fn drain(&mut self) -> Result<()> {
        let mut result = Ok(());
        while self.out > 0 {
            let received = self.receive();
            result = result.and(received);
        }
        result
    }
}

impl Drop for Staging<'_> {
    fn drop(&mut self) {
        // After a panic in the lane: the load is not over while its copies run.
        let _ = self.drain();
    }
}
