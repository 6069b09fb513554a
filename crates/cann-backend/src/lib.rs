//! Devices, pools, buffers, graphs, lowering and the task queue over an ACL function table.
//!
//! A [`Registry`] holds the drivers (function tables) and lists their devices; a [`Backend`] is one worker thread on one
//! device; [`Tensor`]s and buffers are its memory; a graph is prepared into a plan and run. Every call that may touch a
//! device takes a [`Done`] that is called once, from any thread: nothing here blocks its caller, knows JavaScript, or can
//! tell which driver it runs on.

#![deny(unsafe_code)]

#[allow(unsafe_code)]
pub mod acl;
pub mod backend;
pub mod buffer;
pub mod caps;
pub mod device;
pub mod error;
pub mod file;
pub mod graph;
pub mod lower;
mod models;
pub mod ops;
pub mod plan;
pub mod pool;
mod private;
pub mod queue;
pub mod repack;
pub mod tensor;
pub mod upload;
pub mod weights;

pub use backend::{Backend, Event, OpenOptions, Stats};
pub use buffer::{DeviceBuffer, HostBuffer};
pub use device::{DeviceInfo, DeviceType, DriverEntry, DriverKind, Registry, Selector};
pub use error::{Error, Result};
pub use pool::PoolChoice;
pub use tensor::{Tensor, TensorSpec};

/// Takes the result of something asked for: called exactly once, on any thread, never while a lock is held.
pub type Done<T> = Box<dyn FnOnce(Result<T>) + Send + 'static>;
