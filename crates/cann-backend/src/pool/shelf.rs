//! What the pools of separate buffers have in common: an idle shelf, reuse, eviction.

use std::time::{Duration, Instant};

use super::{Block, Fence, Ground, Pool, ReturnDesk, What};
use crate::acl::memory::{DeviceMem, padded};
use crate::error::{Error, Result};

/// An idle buffer larger than this for longer than that goes back to the driver.
const EVICT_ABOVE_BYTES: u64 = 1 << 20;
const EVICT_AFTER: Duration = Duration::from_millis(100);

/// An idle buffer.
pub(super) struct Idle {
    pub mem: DeviceMem,
    pub fence: Fence,
    pub since: Instant,
}

/// How idle buffers are kept and found again.
pub(super) trait Shelf {
    const KIND: &'static str;
    fn put(&mut self, idle: Idle);
    /// The buffer to use for a request, if one fits well enough.
    fn pick(&mut self, bytes: u64) -> Option<Idle>;
    /// Removes what `condemned` says.
    fn remove(&mut self, condemned: &mut dyn FnMut(&Idle) -> bool) -> Vec<Idle>;
    /// What to ask the driver for when nothing fits.
    fn size_to_allocate(&self, bytes: u64) -> Option<u64> {
        Some(bytes)
    }
}

/// A pool of separate buffers.
pub(super) struct ShelfPool<S> {
    shelf: S,
    ground: Ground,
    desk: std::sync::Arc<ReturnDesk>,
    clean: bool,
}

impl<S: Shelf> ShelfPool<S> {
    pub fn new(ground: &Ground, shelf: S, clean: bool) -> ShelfPool<S> {
        ShelfPool { shelf, ground: ground.clone(), desk: ReturnDesk::new(ground), clean }
    }

    fn collect(&mut self) {
        let since = Instant::now();
        for r in self.desk.take_returns() {
            if let What::Memory(mem) = r.what {
                self.shelf.put(Idle { mem, fence: r.fence, since });
            }
        }
    }

    fn evict(&mut self, mut condemned: impl FnMut(&Idle) -> bool) {
        let position = &self.ground.position;
        let gone = self.shelf.remove(&mut |idle| position.is_past(idle.fence) && condemned(idle));
        for idle in gone {
            self.ground.gauges.unreserve(idle.mem.bytes());
            tracing::trace!(name: "pool.clean", bytes = idle.mem.bytes(), pool_bytes = self.ground.gauges.reserved());
        }
    }
}

impl<S: Shelf> Pool for ShelfPool<S> {
    fn kind(&self) -> &'static str {
        S::KIND
    }

    fn alloc(&mut self, bytes: u64) -> Result<Block> {
        let too_much = || Error::invalid("bytes", format!("a size that memory can have, not {bytes}"));
        let bytes = padded(bytes).ok_or_else(too_much)?;
        self.collect();
        let found = self.shelf.pick(bytes);
        if self.clean {
            let now = Instant::now();
            self.evict(|idle| {
                idle.mem.bytes() > EVICT_ABOVE_BYTES && now.saturating_duration_since(idle.since) > EVICT_AFTER
            });
        }
        let (mem, reused) = match found {
            Some(idle) => (idle.mem, true),
            None => {
                let size = self.shelf.size_to_allocate(bytes).ok_or_else(too_much)?;
                let mem = DeviceMem::alloc(&self.ground.home, size)?;
                self.ground.gauges.reserve(mem.bytes());
                (mem, false)
            }
        };
        let (address, size) = (mem.address(), mem.bytes());
        Ok(self.desk.hand_out(What::Memory(mem), address, size, bytes, reused))
    }

    fn extend(&mut self, block: &Block, bytes: u64) -> Result<bool> {
        Ok(block.bytes() >= bytes)
    }

    fn trim(&mut self) {
        self.collect();
        self.evict(|_| true);
    }
}

/// The largest difference between a request and the buffer that serves it.
pub(super) const SLACK_BYTES: u64 = 4 << 20;

/// Index of the smallest idle buffer that holds `bytes` with at most `slack` to spare.
pub(super) fn best_fit(shelf: &[Idle], bytes: u64, slack: u64) -> Option<usize> {
    let mut best: Option<(usize, u64)> = None;
    for (i, idle) in shelf.iter().enumerate() {
        let Some(spare) = idle.mem.bytes().checked_sub(bytes) else { continue };
        if spare <= slack && best.is_none_or(|(_, least)| spare < least) {
            best = Some((i, spare));
            if spare == 0 {
                break;
            }
        }
    }
    best.map(|(i, _)| i)
}

/// Removes what is condemned from a plain list.
pub(super) fn remove_from(list: &mut Vec<Idle>, condemned: &mut dyn FnMut(&Idle) -> bool) -> Vec<Idle> {
    list.extract_if(.., |idle| condemned(idle)).collect()
}
