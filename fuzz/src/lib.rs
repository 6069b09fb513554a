//! Fuzz targets: each takes any bytes and panics when a promise of the project is broken.
//!
//! A target returns an [`Outcome`] that sums up what happened. Where no compiler instruments the code, that is the driver's
//! only sign that an input found something new. Absent: mutation and timing (the driver's, or libFuzzer's).

mod bytes;
mod device;
mod gguf_open;
mod graph_prepare;
mod tensor_ranges;

pub use bytes::Random;
pub use gguf_open::gguf_open;
pub use graph_prepare::graph_prepare;
pub use tensor_ranges::tensor_ranges;

/// What an input led to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Whether it came all the way: a file that opens, a graph that ran, a history of writes.
    pub accepted: bool,
    /// Equal for inputs that took the same way, as far as can be seen from outside.
    pub signature: u64,
}

/// A target and the inputs it starts from.
#[derive(Clone, Copy)]
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]) -> Outcome,
    pub seeds: fn() -> Vec<Vec<u8>>,
    pub longest_input: usize,
    /// What the process may have more than at the start, beside the inputs.
    pub memory_limit_bytes: u64,
    /// Executions of a smoke run: about two seconds.
    pub smoke_runs: u64,
}

pub const TARGETS: [Target; 3] = [
    Target {
        name: "gguf_open",
        run: gguf_open,
        seeds: gguf_open::seeds,
        longest_input: 8192,
        memory_limit_bytes: 64 << 20,
        smoke_runs: 30_000,
    },
    Target {
        name: "graph_prepare",
        run: graph_prepare,
        seeds: graph_prepare::seeds,
        longest_input: 512,
        memory_limit_bytes: 64 << 20,
        smoke_runs: 3_000,
    },
    Target {
        name: "tensor_ranges",
        run: tensor_ranges,
        seeds: tensor_ranges::seeds,
        longest_input: 512,
        memory_limit_bytes: 64 << 20,
        smoke_runs: 1_500,
    },
];
