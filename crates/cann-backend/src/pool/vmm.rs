//! The virtual-memory pool: one reserved address range, physical memory mapped at its tail as needed.
//!
//! Freed ranges are kept in a list by address and joined with their neighbours, so blocks may come back in any order. The
//! range never exceeds the memory that was free when the device was first probed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Block, Fence, Ground, Pool, ReturnDesk, What};
use crate::acl::driver::{Target, memory_info};
use crate::acl::memory::{Mapping, VirtualRange, padded};
use crate::error::{Error, Result};

pub(crate) struct VmmPool {
    // Dropped in this order: what is mapped before the range.
    mappings: Vec<Mapping>,
    range: Option<VirtualRange>,
    /// Free parts of what is mapped: offset to length and fence, never adjacent.
    free: BTreeMap<u64, (u64, Fence)>,
    mapped: u64,
    budget: u64,
    granularity: u64,
    ground: Ground,
    desk: Arc<ReturnDesk>,
}

impl VmmPool {
    pub fn new(ground: &Ground, budget: u64, granularity: u64) -> VmmPool {
        VmmPool {
            mappings: Vec::new(),
            range: None,
            free: BTreeMap::new(),
            mapped: 0,
            budget: budget.next_multiple_of(granularity),
            granularity,
            ground: ground.clone(),
            desk: ReturnDesk::new(ground),
        }
    }

    fn target(&self) -> &Target {
        self.ground.home.target()
    }

    fn collect(&mut self) {
        for r in self.desk.take_returns() {
            if let What::Range(offset) = r.what {
                self.release(offset, r.bytes, r.fence);
            }
        }
    }

    /// Adds a free part and joins it with its neighbours.
    fn release(&mut self, mut offset: u64, mut bytes: u64, mut fence: Fence) {
        if let Some((&before, &(length, other))) = self.free.range(..offset).next_back()
            && before + length == offset
        {
            self.free.remove(&before);
            (offset, bytes, fence) = (before, bytes + length, fence.max(other));
        }
        if let Some((length, other)) = self.free.remove(&(offset + bytes)) {
            (bytes, fence) = (bytes + length, fence.max(other));
        }
        self.free.insert(offset, (bytes, fence));
    }

    /// Takes `bytes` from the front of the free part at `offset`.
    fn carve(&mut self, offset: u64, bytes: u64) {
        if let Some((length, fence)) = self.free.remove(&offset)
            && length > bytes
        {
            self.free.insert(offset + bytes, (length - bytes, fence));
        }
    }

    /// Free bytes at the very end of what is mapped, and where they start.
    fn tail(&self) -> (u64, u64) {
        match self.free.last_key_value() {
            Some((&offset, &(length, _))) if offset + length == self.mapped => (offset, length),
            _ => (self.mapped, 0),
        }
    }

    /// Takes the addresses, if that was not done yet. A process whose address space is limited may not get them.
    pub fn reserve(&mut self) -> Result<()> {
        if self.range.is_none() {
            self.range = Some(VirtualRange::reserve(self.target(), self.budget)?);
        }
        Ok(())
    }

    /// Maps at least `bytes` more at the tail. Nothing changes on error.
    fn grow(&mut self, bytes: u64) -> Result<()> {
        let out_of_memory = |pool: &VmmPool| Error::OutOfMemory {
            device: pool.target().name.clone(),
            requested_bytes: bytes,
            free_bytes: memory_info(&pool.target().api).ok().map(|(free, _)| free),
            tensor: None,
        };
        let chunk = bytes.checked_next_multiple_of(self.granularity).ok_or_else(|| out_of_memory(self))?;
        let end =
            self.mapped.checked_add(chunk).filter(|end| *end <= self.budget).ok_or_else(|| out_of_memory(self))?;
        self.reserve()?;
        let range = self.range.as_ref().expect("reserved above");
        let mapping = range.map(self.mapped, chunk)?;
        self.mappings.push(mapping);
        self.ground.gauges.reserve(chunk);
        // Never used, so past any fence.
        self.release(self.mapped, chunk, Fence::default());
        self.mapped = end;
        Ok(())
    }

    fn base(&self) -> u64 {
        self.range.as_ref().map_or(0, VirtualRange::base)
    }
}

impl Pool for VmmPool {
    fn kind(&self) -> &'static str {
        "vmm"
    }

    fn alloc(&mut self, bytes: u64) -> Result<Block> {
        let too_much = || Error::invalid("bytes", format!("a size that memory can have, not {bytes}"));
        let bytes = padded(bytes).ok_or_else(too_much)?;
        self.collect();
        let fits = self.free.iter().filter(|(_, (length, _))| *length >= bytes);
        let found = fits.min_by_key(|(_, (length, _))| *length).map(|(offset, _)| *offset);
        let (offset, reused) = match found {
            Some(offset) => (offset, true),
            None => {
                let (offset, length) = self.tail();
                self.grow(bytes - length)?;
                (offset, false)
            }
        };
        self.carve(offset, bytes);
        Ok(self.desk.hand_out(What::Range(offset), self.base() + offset, bytes, bytes, reused))
    }

    fn extend(&mut self, block: &Block, bytes: u64) -> Result<bool> {
        let have = block.bytes();
        let want = padded(bytes).unwrap_or(u64::MAX);
        if want <= have {
            return Ok(true);
        }
        let more = want - have;
        self.collect();
        let Some(end) = block.address().checked_sub(self.base()).map(|offset| offset + have) else { return Ok(false) };
        let after = self.free.get(&end).map_or(0, |(length, _)| *length);
        if after < more {
            if end + after != self.mapped {
                return Ok(false);
            }
            self.grow(more - after)?;
        }
        self.carve(end, more);
        self.ground.gauges.grown(more);
        block.bytes.store(want, Ordering::Release);
        Ok(true)
    }

    fn trim(&mut self) {
        self.collect();
        while let Some(last) = self.mappings.last() {
            let (start, bytes) = (last.offset, last.bytes);
            let (offset, length) = self.tail();
            let fence = self.free.get(&offset).map(|(_, fence)| *fence);
            if length == 0 || offset > start || !fence.is_some_and(|f| self.ground.position.is_past(f)) {
                break;
            }
            self.mappings.pop();
            self.mapped = start;
            self.ground.gauges.unreserve(bytes);
            if let Some((length, fence)) = self.free.remove(&offset)
                && offset < start
            {
                debug_assert_eq!(offset + length, start + bytes);
                self.free.insert(offset, (start - offset, fence));
            }
        }
    }
}

impl Drop for VmmPool {
    fn drop(&mut self) {
        self.collect();
        let idle: u64 = self.free.values().map(|(length, _)| length).sum();
        if idle < self.mapped {
            tracing::debug!(
                bytes = self.mapped - idle,
                "the pool goes while blocks are out; their owners answer Disposed"
            );
        }
    }
}
