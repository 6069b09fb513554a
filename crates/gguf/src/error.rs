//! What can be wrong with a file, a set of split files, or a call to convert blocks.

use std::io;

use crate::types::GgmlType;

/// Every failure of this crate. Offsets are absolute positions in the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GgufError {
    // Reading.
    #[error("read failed at offset {offset}")]
    Io {
        offset: u64,
        #[source]
        source: io::Error,
    },
    /// The file ends, or ended while it was being read, before something it announces.
    #[error("file ends too early: {need_bytes} bytes needed at offset {offset}, file has {file_bytes}")]
    Truncated { offset: u64, need_bytes: u64, file_bytes: u64 },

    // Header.
    #[error("not a gguf file: it starts with '{}', not with 'GGUF'", found.escape_ascii())]
    BadMagic { found: [u8; 4] },
    #[error("big-endian gguf files are not supported")]
    BigEndian { version: u32 },
    #[error("gguf version {version} is not supported, only 2 and 3 are")]
    UnsupportedVersion { version: u32 },
    #[error("{count} metadata entries announced, at most {max} are possible")]
    KvCount { offset: u64, count: u64, max: u64 },
    #[error("{count} tensors announced, at most {max} are possible")]
    TensorCount { offset: u64, count: u64, max: u64 },
    #[error("header, metadata and tensor table exceed {max_bytes} bytes")]
    MetadataTooLarge { offset: u64, max_bytes: u64 },

    // Metadata.
    #[error("string of {length} bytes at offset {offset}, at most {max_bytes} are allowed")]
    StringTooLong { offset: u64, length: u64, max_bytes: u64 },
    #[error("empty metadata key at offset {offset}")]
    EmptyKey { offset: u64 },
    #[error("metadata key at offset {offset} is not utf-8")]
    KeyNotUtf8 { offset: u64 },
    #[error("metadata key {key:?} occurs twice")]
    DuplicateKey { key: String },
    #[error("metadata key {key:?} has unknown value type {type_number}")]
    UnknownValueType { offset: u64, key: String, type_number: u32 },
    #[error("metadata key {key:?} is an array of arrays")]
    NestedArray { offset: u64, key: String },
    #[error("metadata key {key:?} announces {count} array elements, more than the file holds")]
    ArrayTooLong { offset: u64, key: String, count: u64 },
    #[error("metadata key {key:?} holds {value} as a boolean")]
    InvalidBool { offset: u64, key: String, value: u8 },
    #[error("metadata key {key:?} is missing")]
    MissingKey { key: String },
    #[error("metadata key {key:?} should be {expected}, not {found}")]
    WrongValueType { key: String, expected: &'static str, found: &'static str },
    #[error("alignment {alignment} is not a power of two from 8 to 1048576")]
    InvalidAlignment { alignment: u32 },

    // Tensor table.
    #[error("tensor name of {length} bytes at offset {offset}, at most {max_bytes} are allowed")]
    TensorNameTooLong { offset: u64, length: u64, max_bytes: u64 },
    #[error("tensor name at offset {offset} is empty, holds a nul or is not utf-8")]
    InvalidTensorName { offset: u64 },
    #[error("tensor {tensor:?} occurs twice")]
    DuplicateTensor { tensor: String },
    #[error("tensor {tensor:?} has {n_dims} dimensions, 1 to 4 are allowed")]
    TensorDims { offset: u64, tensor: String, n_dims: u32 },
    #[error("tensor {tensor:?} has extent {extent} in dimension {dim}")]
    TensorExtent { offset: u64, tensor: String, dim: usize, extent: u64 },
    #[error("size of tensor {tensor:?} does not fit 63 bits")]
    TensorTooLarge { tensor: String },
    #[error("rows of tensor {tensor:?} have {ne0} elements, no whole number of {ty} blocks")]
    RowNotWholeBlocks { tensor: String, ty: GgmlType, ne0: u64 },
    #[error("tensor {tensor:?} has unknown type {type_number}")]
    UnknownType { tensor: String, type_number: u32 },
    #[error("there is no tensor {tensor:?}")]
    TensorNotFound { tensor: String },

    // Tensor data.
    #[error("tensor data would start at {offset}, file has {file_bytes} bytes")]
    DataStartPastEnd { offset: u64, file_bytes: u64 },
    #[error("tensor {tensor:?} starts at {offset} of the data, no multiple of {alignment}")]
    MisalignedTensor { tensor: String, offset: u64, alignment: u32 },
    #[error("tensor {tensor:?} takes {nbytes} bytes from offset {offset}, file has {file_bytes}")]
    TensorPastEnd { tensor: String, offset: u64, nbytes: u64, file_bytes: u64 },
    #[error("tensors {other:?} and {tensor:?} overlap at offset {offset}")]
    OverlappingTensors { tensor: String, other: String, offset: u64 },

    // Split files.
    #[error("file name {name:?} does not say that it is part {part} of {count}")]
    SplitName { name: String, part: u64, count: u64 },
    #[error("part {found} of a split file where part {expected} belongs")]
    SplitIndex { expected: u64, found: u64 },
    #[error("split file of {expected} parts, not {found}")]
    SplitCount { expected: u64, found: u64 },
    #[error("split file announces {expected} tensors, its parts hold {found}")]
    SplitTensors { expected: u64, found: u64 },

    // Converting blocks.
    #[error("{values} values are no whole number of {ty} blocks")]
    NotWholeBlocks { ty: GgmlType, values: usize },
    #[error("{values} values of {ty} take {expected_bytes} bytes, not {found_bytes}")]
    BlockBytes { ty: GgmlType, values: usize, expected_bytes: usize, found_bytes: usize },
    #[error("quantising to {ty} is not implemented")]
    NoQuantizer { ty: GgmlType },
}

impl GgufError {
    /// Where in the file the problem is, if it has one place.
    pub fn offset(&self) -> Option<u64> {
        match *self {
            Self::Io { offset, .. }
            | Self::Truncated { offset, .. }
            | Self::KvCount { offset, .. }
            | Self::TensorCount { offset, .. }
            | Self::MetadataTooLarge { offset, .. }
            | Self::StringTooLong { offset, .. }
            | Self::EmptyKey { offset }
            | Self::KeyNotUtf8 { offset }
            | Self::UnknownValueType { offset, .. }
            | Self::NestedArray { offset, .. }
            | Self::ArrayTooLong { offset, .. }
            | Self::InvalidBool { offset, .. }
            | Self::TensorNameTooLong { offset, .. }
            | Self::InvalidTensorName { offset }
            | Self::TensorDims { offset, .. }
            | Self::TensorExtent { offset, .. }
            | Self::DataStartPastEnd { offset, .. }
            | Self::TensorPastEnd { offset, .. }
            | Self::OverlappingTensors { offset, .. } => Some(offset),
            Self::BadMagic { .. } => Some(0),
            Self::BigEndian { .. } | Self::UnsupportedVersion { .. } => Some(4),
            _ => None,
        }
    }

    /// The tensor the problem is about, if it is about one.
    pub fn tensor(&self) -> Option<&str> {
        match self {
            Self::DuplicateTensor { tensor }
            | Self::TensorDims { tensor, .. }
            | Self::TensorExtent { tensor, .. }
            | Self::TensorTooLarge { tensor }
            | Self::RowNotWholeBlocks { tensor, .. }
            | Self::UnknownType { tensor, .. }
            | Self::TensorNotFound { tensor }
            | Self::MisalignedTensor { tensor, .. }
            | Self::TensorPastEnd { tensor, .. }
            | Self::OverlappingTensors { tensor, .. } => Some(tensor),
            _ => None,
        }
    }
}
