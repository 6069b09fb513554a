//! Owning handles and `Result`s over the function table: the only room of this crate that holds unsafe.
//!
//! A handle is created and dropped on a thread that is bound to its device (the worker of a backend, or a probing thread
//! under a [`Binding`]). Nothing here decides anything: policy is in the rooms above.

pub(crate) mod args;
pub(crate) mod capture;
pub(crate) mod driver;
pub(crate) mod event;
pub(crate) mod executor;
pub(crate) mod memory;
pub(crate) mod program;
pub(crate) mod status;
pub(crate) mod stream;
pub(crate) mod tensor;
