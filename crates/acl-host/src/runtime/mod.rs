//! The device side of the embedded ACL: settings, contexts, memory, streams, events, captured models, checked mode.
//!
//! Functions here answer `Result<_, aclError>` and have stored the message when they fail; `ffi::runtime` is their C face.
//! Order of checks is ACL's: arguments by themselves (100000), then the thread's context (107002 or a fault), then what the
//! arguments refer to (107xxx, 207xxx).

pub(crate) mod capture;
pub(crate) mod checked;
pub(crate) mod config;
pub(crate) mod context;
pub(crate) mod event;
pub(crate) mod live;
pub(crate) mod memory;
mod registry;
pub(crate) mod stream;
pub(crate) mod vmm;

pub(crate) use stream::{DevicePtr, Launch, LaunchError, Work, submit};
