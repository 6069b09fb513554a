//! Compute kernels: arithmetic over slices and plain views, nothing about ACL, tensors with names, or streams.
//!
//! Each family is a folder. `scalar.rs` defines the answer, `avx2.rs` computes it with vectors, `mod.rs` holds the table of
//! functions, the contract and the tests. [`isa::Isa`] says which tables this processor can run; [`team::Team`] spreads
//! chunks of work over threads. Absent on purpose: allocation on hot paths, thread pools per call, and any choice made at
//! compile time beyond the processor's architecture.

pub mod attention;
pub mod convert;
pub mod elementwise;
pub mod isa;
pub mod matmul;
pub mod rows;
pub mod team;

#[cfg(test)]
mod testing;
