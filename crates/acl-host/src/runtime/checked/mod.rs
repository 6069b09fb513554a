//! Checked mode: a sanitizer for programs that call ACL.
//!
//! Every launch, copy and memset says which bytes it reads and writes. The [`ledger`] keeps where memory and handles come
//! from, what streams still do to each block, and what is ordered after what: by events, synchronisation and the order of
//! submission. Nothing is judged by when it happens to run, so a finding does not depend on timing.
//!
//! A finding refuses the call: it answers its code, does nothing, and the message names the call, the argument and the
//! history of the memory. Calls that give something back (a free, an unmapping, a reset) answer the code and happen all the
//! same, so that one mistake does not bring others with it. Threads of the host count as one: how they order each
//! other cannot be seen, so what one of them waited for is past for all. Absent: reads of memory that was never written,
//! and what the host itself does to pinned memory. Off, all this costs a branch per call.

mod ledger;
mod region;

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;
use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use acl_sys::*;

pub(crate) use ledger::{
    Clock, block_ended, block_made, clock_of, forget_device, handle_ended, handle_history, handle_made, history,
    host_access, host_joins, is_quarantined, leaks, pending_use, quarantine, stream_ended, stream_joins, submit,
};
pub(crate) use region::Region;

use super::context::{self, devices, fail, named};
use super::registry::lock;
use super::{config, memory};

/// What a call does to memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) by: Origin,
    pub(crate) argument: &'static str,
    pub(crate) region: Region,
    pub(crate) written: bool,
}

impl Access {
    /// By the runtime call this thread is in.
    pub(crate) fn here(argument: &'static str, start: usize, bytes: usize, written: bool) -> Access {
        Access { by: Origin::here(), argument, region: Region::solid(start, bytes), written }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:#x}, {} bytes,", self.argument, self.region.start, self.region.bytes())
    }
}

/// A call: its name and its number among the process's calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) call: &'static str,
    number: u64,
}

impl Origin {
    /// The runtime call this thread is in.
    pub(crate) fn here() -> Origin {
        Origin::of(context::call())
    }

    pub(crate) fn of(call: &'static str) -> Origin {
        Origin { call, number: NUMBER.try_with(Cell::get).unwrap_or(0) }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (call {})", self.call, self.number)
    }
}

thread_local! {
    /// Of the call this thread is in.
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// More findings than this are counted, not kept.
const KEPT: usize = 1024;

struct Findings {
    kept: Vec<String>,
    lost: usize,
    /// Texts without their numbers: one mistake in a loop is printed once.
    printed: Option<HashSet<String>>,
}

static FINDINGS: Mutex<Findings> = Mutex::new(Findings { kept: Vec::new(), lost: 0, printed: None });

pub(crate) fn enabled() -> bool {
    config::in_force().is_some_and(|settings| settings.check)
}

/// A call begins on this thread.
pub(crate) fn count_call() {
    static LAST: AtomicU64 = AtomicU64::new(0);
    if enabled() {
        let _ = NUMBER.try_with(|number| number.set(LAST.fetch_add(1, Ordering::Relaxed) + 1));
    }
}

/// What checked mode found so far, oldest first; for tests.
pub fn findings() -> Vec<String> {
    let findings = lock(&FINDINGS);
    let mut texts = findings.kept.clone();
    if findings.lost > 0 {
        texts.push(format!("{} more findings were not kept", findings.lost));
    }
    texts
}

/// Fails a call that the program should not have made; in checked mode that is a finding.
pub(crate) fn misuse(code: aclError, message: impl AsRef<str>) -> aclError {
    let message = message.as_ref();
    if enabled() {
        keep(named(message));
    }
    fail(code, message)
}

fn keep(text: String) {
    let mut findings = lock(&FINDINGS);
    if config::settings().print_findings {
        let words = text.split_whitespace().filter(|word| !word.contains(|c: char| c.is_ascii_digit()));
        let plain = words.collect::<Vec<_>>().join(" ");
        if findings.printed.get_or_insert_default().insert(plain) {
            // Not eprintln, which panics where nobody reads stderr any more.
            let _ = writeln!(std::io::stderr(), "acl-host: {text}");
        }
    }
    if findings.kept.len() < KEPT {
        findings.kept.push(text);
    } else {
        findings.lost += 1;
    }
}

/// All that is touched must be live memory that the current device reaches.
pub(crate) fn check_live(accesses: &[Access], code: aclError) -> Result<(), aclError> {
    let here = context::current_device()?;
    for access in accesses {
        let (start, bytes) = (access.region.start, access.region.bytes());
        let problem = match memory::find(start, bytes) {
            Some(found) => match found.device {
                None => "is host memory".to_owned(),
                Some(id) if id == here || devices()[id].can_access(here) || devices()[here].can_access(id) => continue,
                Some(id) => format!("is memory of device {id}, which device {here} has no access to"),
            },
            None => "is not inside live device memory".to_owned(),
        };
        let text = format!("{}: {access} {problem}{}", access.by.call, history(start, bytes));
        return Err(misuse(code, text));
    }
    Ok(())
}
