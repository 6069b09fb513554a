//! Scratch memory: pools that keep device memory between uses, because asking the driver is slow.
//!
//! One pool belongs to one worker and so to one stream. A [`Block`] may be dropped anywhere and at any time after the work
//! that uses it was enqueued: whoever gets the memory next enqueues behind that work. Giving memory back to the *driver* is
//! another matter: it happens only when an event recorded after the block's return is past ([`Fence`]). Blocks are owned,
//! so a double free or the free of a foreign block does not compile.

mod buffer;
mod legacy;
mod priority;
mod shelf;
#[cfg(test)]
mod tests;
mod vmm;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::acl::memory::{DeviceMem, Home};
use crate::device::DeviceInfo;
use crate::error::{Error, Result};

pub(crate) use vmm::VmmPool;

/// Which pool a backend uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolChoice {
    /// What the environment says, else virtual memory where the device has it, else `Buffer`.
    #[default]
    Auto,
    /// One reserved address range with memory mapped as needed.
    Vmm,
    /// Separate buffers, best fit.
    Buffer,
    /// Separate buffers kept in order of size.
    Priority,
    /// Separate buffers, allocated with some room to be reused by slightly larger requests.
    Legacy,
}

impl PoolChoice {
    /// The choice named as in the public API.
    pub fn from_name(name: &str) -> Option<PoolChoice> {
        Some(match name {
            "auto" => PoolChoice::Auto,
            "vmm" => PoolChoice::Vmm,
            "buffer" => PoolChoice::Buffer,
            "priority" => PoolChoice::Priority,
            "legacy" => PoolChoice::Legacy,
            _ => return None,
        })
    }
}

/// A pool of one worker.
pub(crate) trait Pool {
    fn kind(&self) -> &'static str;
    /// At least `bytes` bytes, aligned to 128, content undefined.
    fn alloc(&mut self, bytes: u64) -> Result<Block>;
    /// Makes `block` at least `bytes` long where it lies; `false` when the pool cannot.
    fn extend(&mut self, block: &Block, bytes: u64) -> Result<bool>;
    /// Gives idle memory back to the driver, as far as the stream is past its last use.
    fn trim(&mut self);
}

/// What pools need of their worker.
#[derive(Clone)]
pub(crate) struct Ground {
    pub home: Arc<Home>,
    pub position: Arc<Position>,
    pub gauges: Arc<Gauges>,
}

/// How far the worker's stream is: events recorded and events past, counted.
#[derive(Debug, Default)]
pub(crate) struct Position {
    recorded: AtomicU64,
    past: AtomicU64,
}

/// A point in a stream. What was enqueued before it was taken is done once it is past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fence(u64);

impl Position {
    /// After an event was recorded: its number.
    pub fn record(&self) -> u64 {
        self.recorded.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The event of this number is past, and so are all before.
    pub fn passed(&self, number: u64) {
        self.past.fetch_max(number, Ordering::AcqRel);
    }

    /// The next event to be recorded: it comes after all that is enqueued now.
    pub fn fence(&self) -> Fence {
        Fence(self.recorded.load(Ordering::Acquire) + 1)
    }

    pub fn is_past(&self, fence: Fence) -> bool {
        self.past.load(Ordering::Acquire) >= fence.0
    }
}

/// Figures that any thread may read.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    reserved: AtomicU64,
    in_use: AtomicU64,
    peak: AtomicU64,
    allocations: AtomicU64,
    reuses: AtomicU64,
}

/// Figures of a pool: bytes held from the driver, bytes handed out, and the most that ever was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    pub kind: &'static str,
    pub bytes_reserved: u64,
    pub bytes_in_use: u64,
    pub peak_bytes: u64,
    pub allocations: u64,
    pub reuses: u64,
}

impl Gauges {
    pub fn stats(&self, kind: &'static str) -> PoolStats {
        let read = |gauge: &AtomicU64| gauge.load(Ordering::Relaxed);
        PoolStats {
            kind,
            bytes_reserved: read(&self.reserved),
            bytes_in_use: read(&self.in_use),
            peak_bytes: read(&self.peak),
            allocations: read(&self.allocations),
            reuses: read(&self.reuses),
        }
    }

    fn taken(&self, bytes: u64, margin: u64, reused: bool) {
        self.allocations.fetch_add(1, Ordering::Relaxed);
        if reused {
            self.reuses.fetch_add(1, Ordering::Relaxed);
        }
        self.grown(bytes);
        tracing::trace!(name: "pool.alloc", bytes, hit = reused, margin, pool_bytes = self.reserved());
    }

    fn grown(&self, bytes: u64) {
        let now = self.in_use.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(now, Ordering::Relaxed);
    }

    fn given(&self, bytes: u64) {
        self.in_use.fetch_sub(bytes, Ordering::Relaxed);
        tracing::trace!(name: "pool.return", bytes, pool_bytes = self.reserved());
    }

    fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    fn reserve(&self, bytes: u64) {
        self.reserved.fetch_add(bytes, Ordering::Relaxed);
    }

    fn unreserve(&self, bytes: u64) {
        self.reserved.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Memory handed out. Dropping it gives it back, with no ACL call and from any thread.
#[derive(Debug)]
pub(crate) struct Block {
    address: u64,
    bytes: AtomicU64,
    /// `None` once given back.
    what: Option<What>,
    desk: Arc<ReturnDesk>,
}

impl Block {
    pub fn address(&self) -> u64 {
        self.address
    }

    /// At least what was asked.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(what) = self.what.take() {
            self.desk.take_back(what, self.bytes());
        }
    }
}

/// What a block is to its pool.
#[derive(Debug)]
enum What {
    Memory(DeviceMem),
    /// Offset in the pool's address range.
    Range(u64),
}

struct Return {
    what: What,
    bytes: u64,
    fence: Fence,
}

/// Where blocks are handed back: a list, so that nobody who drops a block waits for the driver.
struct ReturnDesk {
    returns: Mutex<Vec<Return>>,
    position: Arc<Position>,
    gauges: Arc<Gauges>,
}

impl ReturnDesk {
    fn new(ground: &Ground) -> Arc<ReturnDesk> {
        Arc::new(ReturnDesk {
            returns: Mutex::default(),
            position: ground.position.clone(),
            gauges: ground.gauges.clone(),
        })
    }

    /// `asked` of the `bytes` at `address` are what somebody wanted.
    fn hand_out(self: &Arc<ReturnDesk>, what: What, address: u64, bytes: u64, asked: u64, reused: bool) -> Block {
        self.gauges.taken(bytes, bytes - asked, reused);
        Block { address, bytes: AtomicU64::new(bytes), what: Some(what), desk: self.clone() }
    }

    fn take_back(&self, what: What, bytes: u64) {
        self.gauges.given(bytes);
        let fence = self.position.fence();
        // A push leaves nothing half done.
        self.returns.lock().unwrap_or_else(|e| e.into_inner()).push(Return { what, bytes, fence });
    }

    fn take_returns(&self) -> Vec<Return> {
        std::mem::take(&mut *self.returns.lock().unwrap_or_else(|e| e.into_inner()))
    }
}

impl std::fmt::Debug for ReturnDesk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReturnDesk")
    }
}

/// Makes the pool that option, environment and device agree on.
pub(crate) fn make(choice: PoolChoice, info: &DeviceInfo, budget: u64, ground: &Ground) -> Result<Box<dyn Pool>> {
    let kind = match choice {
        PoolChoice::Auto => {
            choose(info.vmm_supported, &env_switch, std::env::var("GGML_CANN_MEM_POOL").ok().as_deref())
        }
        PoolChoice::Vmm if !info.vmm_supported => {
            return Err(Error::Unsupported {
                what: "the vmm pool".into(),
                reason: format!("{} has no virtual memory management", info.name),
            });
        }
        chosen => chosen,
    };
    let clean = env_switch("GGML_CANN_DISABLE_BUF_POOL_CLEAN") != Some(true);
    let device = &info.name;
    if choice == PoolChoice::Auto && kind == PoolChoice::Vmm {
        let mut pool = VmmPool::new(ground, budget, info.vmm_granularity);
        match pool.reserve() {
            Ok(()) => {
                tracing::info!(device, "use vmm pool");
                return Ok(Box::new(pool));
            }
            Err(error) if error.is_sticky() => return Err(error),
            Err(error) => tracing::warn!(device, %error, "no address range for the vmm pool: use buffer pool"),
        }
        return Ok(Box::new(shelf::ShelfPool::new(ground, buffer::BestFit::default(), clean)));
    }
    Ok(match kind {
        PoolChoice::Vmm => {
            tracing::info!(device, "use vmm pool");
            Box::new(VmmPool::new(ground, budget, info.vmm_granularity))
        }
        PoolChoice::Priority => {
            tracing::info!(device, "use buffer pool with priority queue");
            Box::new(shelf::ShelfPool::new(ground, priority::BySize::default(), clean))
        }
        PoolChoice::Legacy => {
            tracing::info!(device, "use legacy buffer pool");
            Box::new(shelf::ShelfPool::new(ground, legacy::Roomy::default(), clean))
        }
        PoolChoice::Auto | PoolChoice::Buffer => {
            tracing::info!(device, "use buffer pool");
            Box::new(shelf::ShelfPool::new(ground, buffer::BestFit::default(), clean))
        }
    })
}

/// The rule behind `Auto`. `GGML_CANN_MEM_POOL`, the newest of the variables, is asked first.
fn choose(vmm: bool, switch: &dyn Fn(&str) -> Option<bool>, named: Option<&str>) -> PoolChoice {
    match named.map(|n| n.trim().to_ascii_lowercase()).as_deref() {
        Some("prio") => return PoolChoice::Priority,
        Some("leg") => return PoolChoice::Buffer,
        Some("vmm") if vmm => return PoolChoice::Vmm,
        Some("vmm") | Some("") | None => {}
        Some(other) => tracing::warn!("GGML_CANN_MEM_POOL={other} is ignored: expected vmm, prio or leg"),
    }
    if vmm && switch("GGML_CANN_DISABLE_VMM_POOL") != Some(true) {
        PoolChoice::Vmm
    } else if switch("GGML_CANN_ENABLE_BUF_PRIO_POOL") == Some(true) {
        PoolChoice::Priority
    } else {
        PoolChoice::Buffer
    }
}

/// A switch in the environment; what is neither on nor off is ignored with a warning.
pub(crate) fn env_switch(name: &str) -> Option<bool> {
    let value = std::env::var(name).ok()?;
    let parsed = parse_switch(&value);
    if parsed.is_none() {
        tracing::warn!("{name}={value} is ignored: expected on or off");
    }
    parsed
}

fn parse_switch(value: &str) -> Option<bool> {
    match value.trim().to_ascii_lowercase().as_str() {
        "1" | "on" | "true" | "yes" | "y" | "enable" => Some(true),
        "0" | "off" | "false" | "no" => Some(false),
        _ => None,
    }
}
