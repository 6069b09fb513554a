//! The C faces of the device: what the function table points at.

pub(crate) mod meta;
pub(crate) mod ops;
pub(crate) mod runtime;
