//! Compute kernels: arithmetic over slices and plain views, nothing about ACL, tensors with names, or streams.
//!
//! Each family is a folder. `scalar.rs` defines the answer, `vector.rs` computes it with vectors, `mod.rs` holds the table of
//! functions, the contract and the tests. Vector code is written once, in the operations of [`lanes`], for AVX2 and NEON. [`isa::Isa`] says which tables this processor can run; [`team::Team`] spreads
//! chunks of work over threads. Absent on purpose: allocation on hot paths, thread pools per call, and any choice made at
//! compile time beyond the processor's architecture.

/// On architectures with vectors; the rest runs what `scalar.rs` has.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[macro_use]
mod lanes;

pub mod attention;
pub mod convert;
pub mod elementwise;
pub mod isa;
pub mod matmul;
pub mod rows;
pub mod team;

#[cfg(test)]
mod testing;
