//! What checked mode knows: blocks of memory with the accesses that may still happen, handles, and the order of things.
//!
//! Order is kept in vector clocks. A stream's clock advances with each submission and takes in what the host has waited for,
//! and the clock of each event it waits for. The host's clock takes in what it waits for. An access is past for whoever's
//! clock covers its stream's count at that access.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Write;
use std::sync::{LazyLock, Mutex};

use acl_sys::*;

use super::super::memory::Hold;
use super::super::registry::lock;
use super::{Access, Origin, enabled, misuse};

/// Per stream, how many of its submissions are past.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock(HashMap<usize, u64>);

impl Clock {
    fn covers(&self, stream: usize, tick: u64) -> bool {
        self.0.get(&stream).is_some_and(|past| *past >= tick)
    }

    fn join(&mut self, other: &Clock) {
        for (stream, tick) in &other.0 {
            let own = self.0.entry(*stream).or_default();
            *own = (*own).max(*tick);
        }
    }
}

/// An access that a stream was given.
struct Pending {
    stream: usize,
    tick: u64,
    access: Access,
}

struct Block {
    bytes: usize,
    /// None: pinned host memory.
    device: Option<usize>,
    made: Origin,
    pending: Vec<Pending>,
}

struct Freed {
    base: usize,
    bytes: usize,
    made: Origin,
    ended: Origin,
}

struct Owner {
    kind: &'static str,
    device: usize,
    made: Origin,
    ended: Option<Origin>,
}

#[derive(Default)]
struct Ledger {
    blocks: BTreeMap<usize, Block>,
    /// Newest last.
    freed: VecDeque<Freed>,
    handles: HashMap<usize, Owner>,
    /// Handles that ended, oldest first.
    ended: VecDeque<usize>,
    clocks: HashMap<usize, Clock>,
    host: Clock,
    /// Freed memory that is not given out again for a while, so that a stale address is seen to be one.
    quarantine: VecDeque<Quarantined>,
    quarantined_bytes: usize,
}

struct Quarantined {
    base: usize,
    bytes: usize,
    _hold: Hold,
}

/// How many freed blocks and ended handles are remembered.
const REMEMBERED: usize = 4096;
const QUARANTINE_BLOCKS: usize = 256;
const QUARANTINE_BYTES: usize = 32 << 20;
/// Objects of a kind that one finding lists.
const LISTED: usize = 8;
/// How far behind a block an address is still told to be behind it.
const NEAR_BYTES: usize = 4096;

static LEDGER: LazyLock<Mutex<Ledger>> = LazyLock::new(Mutex::default);

pub(crate) fn block_made(base: usize, bytes: usize, device: Option<usize>) {
    if enabled() {
        let block = Block { bytes, device, made: Origin::here(), pending: Vec::new() };
        lock(&LEDGER).blocks.insert(base, block);
    }
}

pub(crate) fn block_ended(base: usize) {
    if enabled() {
        lock(&LEDGER).end_block(base, Origin::here());
    }
}

/// What is wrong with ending memory now: that a stream may still use it, as far as the program can know.
pub(crate) fn pending_use(base: usize) -> Option<String> {
    if !enabled() {
        return None;
    }
    let ledger = lock(&LEDGER);
    let block = ledger.blocks.get(&base)?;
    let pending = block.pending.iter().find(|p| !ledger.host.covers(p.stream, p.tick))?;
    Some(format!(
        "{base:#x}, {} bytes, is still in use: {} {} it as {} on stream {:#x}, and nothing has waited for that; it was \
         allocated by {}",
        block.bytes,
        pending.access.by,
        verb(&pending.access),
        pending.access.argument,
        pending.stream,
        block.made
    ))
}

/// A stream is given work. A finding leaves everything as it was.
pub(crate) fn submit(stream: usize, accesses: &[Access], code: aclError) -> Result<(), aclError> {
    let problem = lock(&LEDGER).submit(stream, accesses);
    problem.map_or(Ok(()), |text| Err(misuse(code, text)))
}

/// The host touches memory itself, in no order with any stream.
pub(crate) fn host_access(accesses: &[Access]) -> Result<(), aclError> {
    if !enabled() {
        return Ok(());
    }
    let problem = {
        let mut ledger = lock(&LEDGER);
        let host = std::mem::take(&mut ledger.host);
        let problem = ledger.find_conflict(None, &host, accesses);
        ledger.host = host;
        problem
    };
    problem.map_or(Ok(()), |text| Err(misuse(ACL_ERROR_RT_PARAM_INVALID, text)))
}

/// What is past once the stream's work until now is; none outside checked mode.
pub(crate) fn clock_of(stream: usize) -> Option<Clock> {
    enabled().then(|| lock(&LEDGER).clocks.get(&stream).cloned().unwrap_or_default())
}

/// The host has waited for this.
pub(crate) fn host_joins(clock: Option<&Clock>) {
    if let Some(clock) = clock {
        lock(&LEDGER).host.join(clock);
    }
}

/// The stream waits for this before all that it is given from now on.
pub(crate) fn stream_joins(stream: usize, clock: Option<&Clock>) {
    if let Some(clock) = clock {
        lock(&LEDGER).clocks.entry(stream).or_default().join(clock);
    }
}

/// The stream's work is done, and the stream is gone.
pub(crate) fn stream_ended(stream: usize) {
    if !enabled() {
        return;
    }
    let mut ledger = lock(&LEDGER);
    if let Some(clock) = ledger.clocks.remove(&stream) {
        ledger.host.join(&clock);
    }
    for block in ledger.blocks.values_mut() {
        block.pending.retain(|pending| pending.stream != stream);
    }
    ledger.host.0.remove(&stream);
    for clock in ledger.clocks.values_mut() {
        clock.0.remove(&stream);
    }
    ledger.end_handle(stream, Origin::here());
}

pub(crate) fn handle_made(kind: &'static str, handle: usize, device: usize) {
    if enabled() {
        let owner = Owner { kind, device, made: Origin::here(), ended: None };
        lock(&LEDGER).handles.insert(handle, owner);
    }
}

pub(crate) fn handle_ended(handle: usize) {
    if enabled() {
        lock(&LEDGER).end_handle(handle, Origin::here());
    }
}

/// Where a handle comes from and where it ended, to be put behind a message.
pub(crate) fn handle_history(handle: usize) -> String {
    if !enabled() {
        return String::new();
    }
    match lock(&LEDGER).handles.get(&handle) {
        None => String::new(),
        Some(Owner { kind, device, made, ended: None }) => {
            format!("; this {kind} of device {device} was made by {made}")
        }
        Some(Owner { kind, device, made, ended: Some(ended) }) => {
            format!("; this {kind} of device {device}, made by {made}, was ended by {ended}")
        }
    }
}

/// What is known of a range, to be put behind a message.
pub(crate) fn history(start: usize, bytes: usize) -> String {
    if !enabled() {
        return String::new();
    }
    let ledger = lock(&LEDGER);
    let below = ledger.blocks.range(..=start).next_back();
    if let Some((base, block)) = below.filter(|(base, block)| start < **base + block.bytes) {
        let (offset, made, size) = (start - base, block.made, block.bytes);
        let place = if bytes > size - offset { "it begins in and leaves" } else { "it is in" };
        return format!("; {place} the {size} bytes at {base:#x} allocated by {made}");
    }
    if let Some(gone) = ledger.freed.iter().rev().find(|gone| start.wrapping_sub(gone.base) < gone.bytes) {
        let Freed { base, bytes, made, ended } = gone;
        return format!("; it was in the {bytes} bytes at {base:#x} allocated by {made} and freed by {ended}");
    }
    match below.map(|(base, block)| (start - base - block.bytes, base, block)) {
        Some((behind, base, block)) if behind < NEAR_BYTES => {
            format!(
                "; it begins {behind} bytes behind the {} bytes at {base:#x} allocated by {}",
                block.bytes, block.made
            )
        }
        _ => String::new(),
    }
}

/// Keeps freed memory from being given out again for a while.
pub(crate) fn quarantine(base: usize, bytes: usize, hold: Hold) {
    let mut released = Vec::new();
    let mut ledger = lock(&LEDGER);
    ledger.quarantined_bytes += bytes;
    ledger.quarantine.push_back(Quarantined { base, bytes, _hold: hold });
    while ledger.quarantine.len() > QUARANTINE_BLOCKS || ledger.quarantined_bytes > QUARANTINE_BYTES {
        let Some(oldest) = ledger.quarantine.pop_front() else { break };
        ledger.quarantined_bytes -= oldest.bytes;
        released.push(oldest);
    }
    drop(ledger);
    // Unmapping takes a while; the lock is open again.
    drop(released);
}

/// Whether the address is in memory that was freed and has not been given to anybody since.
pub(crate) fn is_quarantined(addr: usize) -> bool {
    enabled() && lock(&LEDGER).quarantine.iter().any(|q| addr.wrapping_sub(q.base) < q.bytes)
}

/// What is left on a device whose reset is due.
pub(crate) fn leaks(device: usize) -> Option<String> {
    if !enabled() {
        return None;
    }
    let ledger = lock(&LEDGER);
    let mut left: BTreeMap<&str, Vec<(Origin, String)>> = BTreeMap::new();
    for (base, block) in ledger.blocks.iter().filter(|(_, block)| block.device == Some(device)) {
        let text = format!("{} bytes at {base:#x} from {}", block.bytes, block.made);
        left.entry("allocation").or_default().push((block.made, text));
    }
    let of_device = ledger.handles.iter().filter(|(_, owner)| owner.device == device && owner.ended.is_none());
    for (handle, owner) in of_device.filter(|(_, owner)| owner.kind != "default stream") {
        left.entry(owner.kind).or_default().push((owner.made, format!("{handle:#x} from {}", owner.made)));
    }
    if left.is_empty() {
        return None;
    }
    let mut text = format!("device {device} is reset with objects left:");
    for (kind, mut objects) in left {
        objects.sort_by_key(|(made, _)| made.number);
        let _ = write!(text, " {} {kind}{}:", objects.len(), if objects.len() == 1 { "" } else { "s" });
        for (i, (_, object)) in objects.iter().take(LISTED).enumerate() {
            let _ = write!(text, "{} {object}", if i == 0 { "" } else { "," });
        }
        text.push_str(if objects.len() > LISTED { ", …;" } else { ";" });
    }
    Some(text)
}

/// All of a device ends.
pub(crate) fn forget_device(device: usize) {
    if !enabled() {
        return;
    }
    let mut ledger = lock(&LEDGER);
    let blocks: Vec<_> =
        ledger.blocks.iter().filter(|(_, block)| block.device == Some(device)).map(|(base, _)| *base).collect();
    blocks.into_iter().for_each(|base| ledger.end_block(base, Origin::here()));
    let live = ledger.handles.iter().filter(|(_, owner)| owner.device == device && owner.ended.is_none());
    let handles: Vec<_> = live.map(|(handle, _)| *handle).collect();
    handles.into_iter().for_each(|handle| ledger.end_handle(handle, Origin::here()));
}

impl Ledger {
    fn end_block(&mut self, base: usize, ended: Origin) {
        if let Some(block) = self.blocks.remove(&base) {
            if self.freed.len() == REMEMBERED {
                self.freed.pop_front();
            }
            self.freed.push_back(Freed { base, bytes: block.bytes, made: block.made, ended });
        }
    }

    fn end_handle(&mut self, handle: usize, ended: Origin) {
        if let Some(owner) = self.handles.get_mut(&handle) {
            owner.ended = Some(ended);
            self.ended.push_back(handle);
        }
        if self.ended.len() > REMEMBERED
            && let Some(oldest) = self.ended.pop_front()
            && self.handles.get(&oldest).is_some_and(|owner| owner.ended.is_some())
        {
            self.handles.remove(&oldest);
        }
    }

    fn submit(&mut self, stream: usize, accesses: &[Access]) -> Option<String> {
        let mut clock = self.clocks.remove(&stream).unwrap_or_default();
        clock.join(&self.host);
        let problem = self.find_conflict(Some(stream), &clock, accesses);
        if problem.is_none() {
            let tick = clock.0.entry(stream).or_default();
            *tick += 1;
            accesses.iter().for_each(|access| self.add(stream, *tick, access));
        }
        self.clocks.insert(stream, clock);
        problem
    }

    /// An access that one of these meets, that may not be past, and that must be.
    fn find_conflict(&mut self, stream: Option<usize>, clock: &Clock, accesses: &[Access]) -> Option<String> {
        for access in accesses {
            for (base, block) in touched(&mut self.blocks, access) {
                let conflict = block.pending.iter().find(|other| {
                    Some(other.stream) != stream
                        && (access.written || other.access.written)
                        && access.region.meets(&other.access.region)
                        && !clock.covers(other.stream, other.tick)
                });
                let Some(other) = conflict else { continue };
                let here = stream.map_or("the host".to_owned(), |stream| format!("stream {stream:#x}"));
                let remedy =
                    if stream.is_some() { "no event or synchronisation orders" } else { "nothing has waited for" };
                return Some(format!(
                    "{}: {access} which {here} {}, is also what {} {} as {} on stream {:#x}, and {remedy} the two; it is in \
                     the {} bytes at {base:#x} allocated by {}",
                    access.by.call,
                    verb(access),
                    other.access.by,
                    verb(&other.access),
                    other.access.argument,
                    other.stream,
                    block.bytes,
                    block.made
                ));
            }
        }
        None
    }

    fn add(&mut self, stream: usize, tick: u64, access: &Access) {
        let host = &self.host;
        for (_, block) in touched(&mut self.blocks, access) {
            // What the host waited for is past for all that comes, and of equal accesses the last one tells the most.
            block.pending.retain(|p| {
                let again =
                    p.stream == stream && p.access.region == access.region && p.access.written == access.written;
                !again && !host.covers(p.stream, p.tick)
            });
            block.pending.push(Pending { stream, tick, access: *access });
        }
    }
}

/// Blocks that an access lies in.
fn touched<'a>(
    blocks: &'a mut BTreeMap<usize, Block>,
    access: &Access,
) -> impl Iterator<Item = (usize, &'a mut Block)> {
    let start = access.region.start;
    let until_end = blocks.range_mut(..access.region.end).rev();
    until_end.map(|(base, block)| (*base, block)).take_while(move |(base, block)| base + block.bytes > start)
}

fn verb(access: &Access) -> &'static str {
    if access.written { "writes" } else { "reads" }
}
