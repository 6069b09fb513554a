//! Devices, pools, buffers, graphs, lowering and the task queue over an ACL function table.
//!
//! A [`Registry`] holds the drivers (function tables) and lists their devices; a [`Backend`] is one worker thread on one
//! device; [`Tensor`]s and buffers are its memory; a graph is prepared into a plan and run. Every call that may touch a
//! device takes a [`Done`] that is called once, from any thread: nothing here blocks its caller, knows JavaScript, or can
//! tell which driver it runs on.

pub mod acl;
pub mod backend;
pub mod buffer;
pub mod caps;
pub mod device;
pub mod error;
pub mod file;
pub mod graph;
pub mod lower;
pub mod ops;
pub mod plan;
pub mod pool;
pub mod queue;
pub mod repack;
pub mod tensor;
pub mod upload;
pub mod weights;
