//! What is armed, what was counted.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use acl_sys::{AclFn, aclError};

/// Calls that the log holds; older ones are forgotten.
pub const LOG_CAPACITY: usize = 4096;

/// Which call fails, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Only calls of this function count; any if `None`.
    pub function: Option<AclFn>,
    /// The call that fails, from 1; of [`Mode::Every`] the distance between two that fail.
    pub nth: u64,
    pub mode: Mode,
    /// What it answers; functions that return pointers return null.
    pub code: aclError,
    /// Whether a release that fails is made all the same.
    pub release_inner: bool,
}

impl Fault {
    /// The `nth` call of any function, once, with the code of a wrong parameter.
    pub fn nth(nth: u64) -> Fault {
        Fault { function: None, nth, mode: Mode::Once, code: acl_sys::ACL_ERROR_RT_PARAM_INVALID, release_inner: true }
    }

    fn meets(&self, function: AclFn, count: u64) -> bool {
        self.function.is_none_or(|only| only == function)
            && match self.mode {
                Mode::Once => count == self.nth,
                Mode::From => count >= self.nth,
                Mode::Every => count.is_multiple_of(self.nth),
            }
    }
}

/// How often a fault happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Once,
    /// The call that is meant, and all after it.
    From,
    /// The call that is meant, and from there on each that is as far from the one before.
    Every,
}

/// What a call answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Status(aclError),
    /// Of a function that returns a pointer; whether it was one.
    Pointer(bool),
}

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its number since the last reset, from 1. Calls that overlap are logged in the order they returned.
    pub number: u64,
    pub function: AclFn,
    pub outcome: Outcome,
    pub injected: bool,
}

#[derive(Default)]
pub(crate) struct State {
    pub faults: Vec<Fault>,
    pub calls: u64,
    pub by_function: Vec<u64>,
    pub failed: u64,
    pub log: VecDeque<Record>,
    /// Addresses of executors that were made repeatable; not forgotten by a reset, which does not destroy them.
    pub repeatable: HashSet<usize>,
}

impl State {
    pub fn reset(&mut self) {
        let repeatable = std::mem::take(&mut self.repeatable);
        *self = State { repeatable, ..State::default() };
    }

    /// Counts a call; the first fault it meets, if any.
    pub fn begin(&mut self, function: AclFn) -> (u64, Option<Fault>) {
        self.calls += 1;
        if self.by_function.is_empty() {
            self.by_function.resize(AclFn::ALL.len(), 0);
        }
        let own = &mut self.by_function[function as usize];
        *own += 1;
        let own = *own;
        let count = |fault: &Fault| if fault.function.is_some() { own } else { self.calls };
        let met = self.faults.iter().copied().find(|fault| fault.meets(function, count(fault)));
        self.failed += u64::from(met.is_some());
        (self.calls, met)
    }

    pub fn end(&mut self, record: Record) {
        if self.log.len() == LOG_CAPACITY {
            self.log.pop_front();
        }
        self.log.push_back(record);
    }
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

/// Never held while a function of the inner table runs.
pub(crate) fn with<T>(act: impl FnOnce(&mut State) -> T) -> T {
    // Nothing under this lock panics half way.
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    act(state.get_or_insert_default())
}
