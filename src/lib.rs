//! The addon: JavaScript values to Rust and back, promises, error codes. No arithmetic, no ACL calls, no shape rules.
//!
//! Every export is a plain function that returns at once; what takes time is a promise settled from the backend's worker
//! through a queue (`promise.rs`; there is no `async fn` here: terminating a worker with one pending corrupts the heap). What a
//! JavaScript environment owns (error factory, log sink, cancellable uploads) hangs on its instance data and goes with it;
//! only the drivers are process-wide. Absent: validation with good wording and abort signals, which the facade does.

// napi registers nothing in a test build, so its exports look unused there.
#![cfg_attr(test, allow(dead_code, unused_imports))]

mod backend;
mod buffer;
mod convert;
mod device;
mod error;
mod event;
mod graph;
mod log;
mod plan;
mod promise;
mod state;
mod tensor;
mod toolkit;
mod weights;

use napi_derive::napi;

/// The version of this binary; the facade refuses one that is not its own.
#[napi(catch_unwind)]
pub fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}
