//! The tensors of a model on a device, by name, and what a file says without its data.

use std::collections::HashMap;
use std::sync::Arc;

use gguf::{GgmlType, Gguf, Metadata};

use crate::buffer::DeviceBuffer;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Weights that were loaded. Clones are handles to the same tensors.
#[derive(Clone)]
pub struct Weights(Arc<Inner>);

struct Inner {
    metadata: Arc<Metadata>,
    tensors: Vec<Tensor>,
    by_name: HashMap<String, usize>,
    buffers: Vec<DeviceBuffer>,
    bytes: u64,
}

impl Weights {
    /// Tensors and the buffers they lie in. Names have to differ; the reader of a file sees to it.
    pub(crate) fn new(metadata: Arc<Metadata>, tensors: Vec<Tensor>, buffers: Vec<DeviceBuffer>) -> Weights {
        let by_name = tensors.iter().enumerate().map(|(i, tensor)| (tensor.name().to_owned(), i)).collect();
        let bytes = tensors.iter().map(Tensor::nbytes).sum();
        Weights(Arc::new(Inner { metadata, tensors, by_name, buffers, bytes }))
    }

    pub fn metadata(&self) -> &Arc<Metadata> {
        &self.0.metadata
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.by_name.contains_key(name)
    }

    pub fn get(&self, name: &str) -> Result<&Tensor> {
        let found = self.0.by_name.get(name).map(|&i| &self.0.tensors[i]);
        found.ok_or_else(|| Error::NotFound { what: "tensor", name: name.to_owned(), known: Vec::new() })
    }

    /// In the order of the file.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.tensors.iter().map(Tensor::name)
    }

    /// In the order of the file.
    pub fn tensors(&self) -> &[Tensor] {
        &self.0.tensors
    }

    /// Bytes of all tensors as they are stored.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// Disposes of every tensor and of their buffers. The memory goes back when the last task that uses it is past.
    pub fn dispose(&self) {
        self.0.tensors.iter().for_each(Tensor::dispose);
        self.0.buffers.iter().for_each(DeviceBuffer::dispose);
    }
}

/// Header, metadata and tensor table of a file or a set of split files.
#[derive(Clone, Debug)]
pub struct GgufInfo {
    pub version: u32,
    pub metadata: Arc<Metadata>,
    /// In file order, those of a type nobody knows last.
    pub tensors: Vec<TensorRow>,
}

/// One row of the tensor table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorRow {
    pub name: String,
    /// ggml's number; `ty` is `None` when it stands for no type this crate knows.
    pub type_number: u32,
    pub ty: Option<GgmlType>,
    /// As many extents as the file has.
    pub ne: Vec<u64>,
    /// Absolute, in the file that holds the tensor.
    pub offset: u64,
    /// 0 where the type is unknown.
    pub nbytes: u64,
}

impl From<Gguf> for GgufInfo {
    fn from(gguf: Gguf) -> GgufInfo {
        let known = gguf.tensors.into_iter().map(|t| TensorRow {
            type_number: t.ty.as_u32(),
            ty: Some(t.ty),
            ne: t.ne[..t.n_dims as usize].to_vec(),
            offset: t.offset,
            nbytes: t.nbytes,
            name: t.name,
        });
        let unknown = gguf.unknown.into_iter().map(|t| TensorRow {
            name: t.name,
            type_number: t.type_number,
            ty: None,
            ne: t.ne.to_vec(),
            offset: t.offset,
            nbytes: 0,
        });
        GgufInfo { version: gguf.version, metadata: Arc::new(gguf.metadata), tensors: known.chain(unknown).collect() }
    }
}
