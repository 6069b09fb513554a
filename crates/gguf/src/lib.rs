//! GGUF files, read as if every byte were hostile, and the block types they store.
//!
//! [`Gguf::parse`] turns a source of bytes into checked metadata and tensor ranges; [`dequantize`] and [`quantize`]
//! convert whole blocks; [`Writer`] makes small files. Absent on purpose: opening files (a source is anything that
//! implements [`ReadAt`]), memory maps, threads, unsafe code, and any opinion about what a model's keys mean. Strings
//! come back as they are stored: a chat template is text here and nothing evaluates it.
//!
//! ```
//! use gguf::{GgmlType, Gguf, Writer};
//!
//! let file = Writer::new()
//!     .kv("general.architecture", "tiny")
//!     .tensor("w", GgmlType::F32, &[2], [1.0f32.to_le_bytes(), 2.0f32.to_le_bytes()].concat())
//!     .finish();
//! let gguf = Gguf::parse(&file)?;
//! let w = gguf.tensor("w")?;
//! let mut values = [0.0; 2];
//! let bytes = &file[w.offset as usize..][..w.nbytes as usize];
//! gguf::dequantize(w.ty, bytes, &mut values)?;
//! assert_eq!(values, [1.0, 2.0]);
//! # Ok::<(), gguf::GgufError>(())
//! ```
#![forbid(unsafe_code)]

pub mod blocks;
mod dequant;
mod error;
mod iq_tables;
mod quant;
mod reader;
mod split;
mod types;
mod value;
mod writer;

pub use dequant::dequantize;
pub use error::GgufError;
pub use quant::{can_quantize, quantize};
pub use reader::{Gguf, MAX_KV, MAX_METADATA_BYTES, MAX_STRING_BYTES, MAX_TENSORS, ReadAt, TensorInfo, UnknownTensor};
pub use split::split_paths;
pub use types::GgmlType;
pub use value::{Array, Metadata, Strings, Value};
pub use writer::Writer;
