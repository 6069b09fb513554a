//! Memory that users hold: device buffers, and host memory the device can copy from.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::Done;
use crate::acl::memory::{DeviceMem, PinnedMem};
use crate::error::{Error, Result};
use crate::queue::{Closable, Shared, Worker};

/// Device memory of a buffer or tensor. A task that uses it keeps an `Arc` until the stream is past it.
#[derive(Debug)]
pub(crate) struct Storage {
    mem: DeviceMem,
    shared: Arc<Shared>,
    /// How often it was written to; counted on the worker, in stream order.
    writes: AtomicU64,
}

impl Storage {
    pub fn new(mem: DeviceMem, shared: &Arc<Shared>) -> Storage {
        shared.counters.buffers.fetch_add(1, Ordering::Relaxed);
        shared.counters.buffer_bytes.fetch_add(mem.bytes(), Ordering::Relaxed);
        Storage { mem, shared: shared.clone(), writes: AtomicU64::new(0) }
    }

    pub fn address(&self) -> u64 {
        self.mem.address()
    }

    pub fn bytes(&self) -> u64 {
        self.mem.bytes()
    }

    /// Says that its content changes: what was derived from it is stale.
    pub fn touch(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.shared.counters.buffers.fetch_sub(1, Ordering::Relaxed);
        self.shared.counters.buffer_bytes.fetch_sub(self.mem.bytes(), Ordering::Relaxed);
    }
}

/// A storage that can be taken away from everybody who shares it.
#[derive(Debug)]
pub(crate) struct Holder {
    shared: Arc<Shared>,
    storage: Mutex<Option<Arc<Storage>>>,
}

impl Holder {
    pub fn new(storage: Storage) -> Arc<Holder> {
        Arc::new(Holder { shared: storage.shared.clone(), storage: Mutex::new(Some(Arc::new(storage))) })
    }

    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The storage, unless it was disposed or its backend takes no more work. What was submitted before a close still runs,
    /// so the worker itself is not refused.
    pub fn storage(&self, what: &'static str) -> Result<Arc<Storage>> {
        if let Some(refusal) = self.shared.refusal().filter(|r| r.is_sticky() || !self.shared.home.is_here()) {
            return Err(refusal);
        }
        lock(&self.storage).clone().ok_or(Error::Disposed { what })
    }

    /// Lets go; the memory goes back when the last task that uses it is past.
    pub fn dispose(&self) {
        let storage = lock(&self.storage).take();
        drop(storage);
    }

    pub fn is_disposed(&self) -> bool {
        self.shared.is_closed() || lock(&self.storage).is_none()
    }
}

/// A piece of device memory that tensors can be placed in.
#[derive(Clone, Debug)]
pub struct DeviceBuffer {
    pub(crate) holder: Arc<Holder>,
    size: u64,
}

impl DeviceBuffer {
    pub(crate) fn new(holder: Arc<Holder>, size: u64) -> DeviceBuffer {
        DeviceBuffer { holder, size }
    }

    /// What was asked for.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The name of its device.
    pub fn device(&self) -> &str {
        self.holder.shared.name()
    }

    pub fn backend_id(&self) -> u64 {
        self.holder.shared.id
    }

    /// Sets every byte, in order with everything else of the backend.
    pub fn clear(&self, byte: u8, done: Done<()>) {
        let storage = match self.holder.storage("the buffer") {
            Ok(storage) => storage,
            Err(error) => return done(Err(error)),
        };
        self.holder.shared.submit_or(done, move |worker, done| {
            storage.touch();
            let filled = worker.stream.fill(storage.address(), byte, storage.bytes());
            worker.settle_with(filled, storage, done);
        });
    }

    /// Marks the buffer and the tensors in it as disposed. May be called many times.
    pub fn dispose(&self) {
        self.holder.dispose();
    }

    pub fn is_disposed(&self) -> bool {
        self.holder.is_disposed()
    }
}

/// Host memory, pinned where it can be. Reads and writes are plain copies and need no task.
#[derive(Clone, Debug)]
pub struct HostBuffer(Arc<HostMemory>);

#[derive(Debug)]
struct HostMemory {
    mem: Mutex<Option<PinnedMem>>,
    size: usize,
    pinned: bool,
    backend_id: u64,
    disposed: AtomicBool,
}

impl HostBuffer {
    pub(crate) fn new(mem: PinnedMem, shared: &Arc<Shared>) -> HostBuffer {
        let memory = Arc::new(HostMemory {
            size: mem.len(),
            pinned: mem.is_pinned(),
            mem: Mutex::new(Some(mem)),
            backend_id: shared.id,
            disposed: AtomicBool::new(false),
        });
        let weak: std::sync::Weak<HostMemory> = Arc::downgrade(&memory);
        shared.register(weak);
        HostBuffer(memory)
    }

    pub fn size(&self) -> u64 {
        self.0.size as u64
    }

    /// Whether the memory is page-locked.
    pub fn pinned(&self) -> bool {
        self.0.pinned
    }

    pub fn backend_id(&self) -> u64 {
        self.0.backend_id
    }

    pub fn write(&self, data: &[u8], offset: u64) -> Result<()> {
        self.with(offset, data.len() as u64, |bytes| bytes.copy_from_slice(data))
    }

    pub fn read(&self, offset: u64, size: u64) -> Result<Vec<u8>> {
        self.with(offset, size, |bytes| bytes.to_vec())
    }

    pub fn dispose(&self) {
        self.0.take();
    }

    pub fn is_disposed(&self) -> bool {
        self.0.disposed.load(Ordering::Acquire)
    }

    fn with<R>(&self, offset: u64, size: u64, act: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        let mut mem = lock(&self.0.mem);
        let bytes = mem.as_mut().ok_or(Error::Disposed { what: "the buffer" })?.as_mut_slice();
        let total = bytes.len();
        let range = usize::try_from(offset).ok().zip(usize::try_from(size).ok());
        let range = range.and_then(|(start, size)| bytes.get_mut(start..start.checked_add(size)?));
        let expected = || format!("a range inside the buffer's {total} bytes, not {size} bytes at {offset}");
        Ok(act(range.ok_or_else(|| Error::invalid("offset", expected()))?))
    }
}

impl HostMemory {
    fn take(&self) {
        self.disposed.store(true, Ordering::Release);
        let mem = lock(&self.mem).take();
        drop(mem);
    }
}

impl Closable for HostMemory {
    fn close(&self, _: &mut Worker) {
        self.take();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A take or a copy leaves nothing half done.
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}
