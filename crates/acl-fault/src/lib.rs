//! Injected failures and call logs over any ACL function table (tests only).
//!
//! [`install`] puts a trampoline before every function of a table. Each call is counted and logged; one that an armed
//! [`Fault`] means is answered with its code (or null) instead of being made. State is process-wide, because a C function
//! has nowhere to keep its own: a test binary has one injector, and one test at a time.
//!
//! What a failed call leaves behind is what the library would leave:
//!
//! - An acquisition or an action that fails is not made.
//! - A release that fails is made all the same ([`Fault::release_inner`]), so that whatever is live afterwards was leaked by
//!   the program under test and not by the injection. Ending a capture counts as one: the model it gives is destroyed.
//! - A second phase that fails consumes a single-use executor, as the library does.
//!
//! Absent: delays, corrupted data, and faults of the device itself; a sticky code is only what a call answers.

#![allow(non_snake_case, clippy::too_many_arguments)]

mod spec;
mod state;
mod trampoline;

pub use spec::SpecError;
pub use state::{Fault, LOG_CAPACITY, Mode, Outcome, Record};
pub use trampoline::{install, is_release};

use acl_sys::AclFn;

/// Makes calls fail from now on; replaces what was armed. Calls are counted from the last [`reset`], so `nth` may be one that
/// is past already, which a fault of [`Mode::Once`] then never meets.
pub fn arm(fault: Fault) {
    arm_all(vec![fault]);
}

/// As [`arm`], for several at once; a call that more than one means is failed by the first.
pub fn arm_all(faults: Vec<Fault>) {
    state::with(|state| state.faults = faults);
}

/// Lets every call through again. Counts and log stay.
pub fn disarm() {
    state::with(|state| state.faults.clear());
}

/// Disarms, and forgets counts and log.
pub fn reset() {
    state::with(state::State::reset);
}

/// Calls since the last [`reset`], failed ones included.
pub fn calls() -> u64 {
    state::with(|state| state.calls)
}

/// Calls of one function since the last [`reset`].
pub fn calls_of(function: AclFn) -> u64 {
    state::with(|state| state.by_function.get(function as usize).copied().unwrap_or(0))
}

/// Calls that were failed since the last [`reset`].
pub fn failed() -> u64 {
    state::with(|state| state.failed)
}

/// The latest [`LOG_CAPACITY`] calls since the last [`reset`], oldest first.
pub fn log() -> Vec<Record> {
    state::with(|state| state.log.iter().copied().collect())
}
