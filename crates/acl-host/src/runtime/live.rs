//! Counts of live objects: a door for leak checks in Rust tests. The C interface has nothing like it.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{context, memory, vmm};

/// What is live in this process, on all devices together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveObjects {
    /// Created streams; the devices' default streams are not counted.
    pub streams: usize,
    pub events: usize,
    /// Device and pinned host allocations.
    pub allocations: usize,
    /// Device memory taken, rounding and physical memory included.
    pub bytes: usize,
    pub physical: usize,
    pub reserved: usize,
    pub models: usize,
    pub tensors: usize,
    pub scalars: usize,
    pub arrays: usize,
    pub lists: usize,
    pub executors: usize,
}

/// Counts what is live; for tests.
pub fn live() -> LiveObjects {
    let (physical, reserved) = vmm::counts();
    LiveObjects {
        streams: STREAMS.load(),
        events: EVENTS.load(),
        allocations: memory::allocation_count(),
        bytes: context::devices().iter().map(|device| device.used_bytes.load(Ordering::Relaxed)).sum(),
        physical,
        reserved,
        models: MODELS.load(),
        tensors: TENSORS.load(),
        scalars: SCALARS.load(),
        arrays: ARRAYS.load(),
        lists: LISTS.load(),
        executors: EXECUTORS.load(),
    }
}

/// The count of one kind.
pub(crate) struct Counter(AtomicUsize);

impl Counter {
    const fn new() -> Counter {
        Counter(AtomicUsize::new(0))
    }

    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    fn load(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

pub(crate) static STREAMS: Counter = Counter::new();
pub(crate) static EVENTS: Counter = Counter::new();
pub(crate) static MODELS: Counter = Counter::new();
pub(crate) static TENSORS: Counter = Counter::new();
pub(crate) static SCALARS: Counter = Counter::new();
pub(crate) static ARRAYS: Counter = Counter::new();
pub(crate) static LISTS: Counter = Counter::new();
pub(crate) static EXECUTORS: Counter = Counter::new();
