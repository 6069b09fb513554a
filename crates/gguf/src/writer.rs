//! Makes GGUF bytes: for tests, tools, and models small enough to be made on the spot.
//!
//! It writes what it is told. Whether the result is a good file is for [`crate::Gguf::parse`] to say, which lets tests
//! make bad ones. Absent: split files, big-endian files, version 2.

use std::io::{self, Write};

use crate::types::GgmlType;
use crate::value::{Array, Value};

const ALIGNMENT: usize = 32;

/// Collects metadata and tensors, then writes a version 3 file.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    entries: Vec<(String, Value)>,
    tensors: Vec<Tensor>,
}

#[derive(Clone, Debug)]
struct Tensor {
    name: String,
    ty: GgmlType,
    ne: Vec<u64>,
    bytes: Vec<u8>,
}

impl Writer {
    /// An empty file.
    pub fn new() -> Writer {
        Writer::default()
    }

    /// Adds a metadata entry. A `general.alignment` of type u32 also sets the alignment.
    pub fn kv(mut self, key: impl Into<String>, value: impl Into<Value>) -> Writer {
        self.entries.push((key.into(), value.into()));
        self
    }

    /// Adds a tensor with extents `ne`, fastest first, and its data in the file's byte order.
    pub fn tensor(
        mut self,
        name: impl Into<String>,
        ty: GgmlType,
        ne: impl AsRef<[u64]>,
        bytes: impl Into<Vec<u8>>,
    ) -> Writer {
        self.tensors.push(Tensor { name: name.into(), ty, ne: ne.as_ref().into(), bytes: bytes.into() });
        self
    }

    /// The file's bytes.
    pub fn finish(&self) -> Vec<u8> {
        let alignment = self.alignment();
        let mut out = self.header(alignment);
        for tensor in &self.tensors {
            out.extend_from_slice(&tensor.bytes);
            pad(&mut out, alignment);
        }
        out
    }

    /// Writes the file without holding all of it in memory a second time.
    pub fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        let alignment = self.alignment();
        out.write_all(&self.header(alignment))?;
        for tensor in &self.tensors {
            out.write_all(&tensor.bytes)?;
            let padding = tensor.bytes.len().next_multiple_of(alignment) - tensor.bytes.len();
            out.write_all(&vec![0; padding])?;
        }
        Ok(())
    }

    fn alignment(&self) -> usize {
        let key = self.entries.iter().find(|(key, _)| key == "general.alignment");
        match key {
            Some((_, Value::U32(alignment))) => (*alignment as usize).max(1),
            _ => ALIGNMENT,
        }
    }

    /// Everything before the tensor data, padding included.
    fn header(&self, alignment: usize) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend_from_slice(&3u32.to_le_bytes());
        put_len(&mut out, self.tensors.len());
        put_len(&mut out, self.entries.len());
        for (key, value) in &self.entries {
            put_bytes(&mut out, key.as_bytes());
            put_value(&mut out, value);
        }
        let mut offset = 0;
        for tensor in &self.tensors {
            put_bytes(&mut out, tensor.name.as_bytes());
            out.extend_from_slice(&(tensor.ne.len() as u32).to_le_bytes());
            for extent in &tensor.ne {
                out.extend_from_slice(&extent.to_le_bytes());
            }
            out.extend_from_slice(&tensor.ty.as_u32().to_le_bytes());
            put_len(&mut out, offset);
            offset += tensor.bytes.len().next_multiple_of(alignment);
        }
        pad(&mut out, alignment);
        out
    }
}

fn pad(out: &mut Vec<u8>, alignment: usize) {
    out.resize(out.len().next_multiple_of(alignment), 0);
}

fn put_len(out: &mut Vec<u8>, len: usize) {
    out.extend_from_slice(&(len as u64).to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_len(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    fn put<const N: usize>(out: &mut Vec<u8>, tag: u32, bytes: [u8; N]) {
        out.extend_from_slice(&tag.to_le_bytes());
        out.extend_from_slice(&bytes);
    }
    match value {
        Value::U8(v) => put(out, 0, v.to_le_bytes()),
        Value::I8(v) => put(out, 1, v.to_le_bytes()),
        Value::U16(v) => put(out, 2, v.to_le_bytes()),
        Value::I16(v) => put(out, 3, v.to_le_bytes()),
        Value::U32(v) => put(out, 4, v.to_le_bytes()),
        Value::I32(v) => put(out, 5, v.to_le_bytes()),
        Value::F32(v) => put(out, 6, v.to_le_bytes()),
        Value::Bool(v) => put(out, 7, [u8::from(*v)]),
        Value::String(v) => {
            put(out, 8, []);
            put_bytes(out, v);
        }
        Value::Array(v) => {
            put(out, 9, []);
            put_array(out, v);
        }
        Value::U64(v) => put(out, 10, v.to_le_bytes()),
        Value::I64(v) => put(out, 11, v.to_le_bytes()),
        Value::F64(v) => put(out, 12, v.to_le_bytes()),
    }
}

fn put_array(out: &mut Vec<u8>, array: &Array) {
    fn put<T: Copy, const N: usize>(out: &mut Vec<u8>, tag: u32, items: &[T], bytes: impl Fn(T) -> [u8; N]) {
        out.extend_from_slice(&tag.to_le_bytes());
        put_len(out, items.len());
        out.extend(items.iter().flat_map(|&item| bytes(item)));
    }
    match array {
        Array::U8(v) => put(out, 0, v, u8::to_le_bytes),
        Array::I8(v) => put(out, 1, v, i8::to_le_bytes),
        Array::U16(v) => put(out, 2, v, u16::to_le_bytes),
        Array::I16(v) => put(out, 3, v, i16::to_le_bytes),
        Array::U32(v) => put(out, 4, v, u32::to_le_bytes),
        Array::I32(v) => put(out, 5, v, i32::to_le_bytes),
        Array::F32(v) => put(out, 6, v, f32::to_le_bytes),
        Array::Bool(v) => put(out, 7, v, |item| [u8::from(item)]),
        Array::Strings(v) => {
            out.extend_from_slice(&8u32.to_le_bytes());
            put_len(out, v.len());
            v.iter().for_each(|string| put_bytes(out, string));
        }
        Array::U64(v) => put(out, 10, v, u64::to_le_bytes),
        Array::I64(v) => put(out, 11, v, i64::to_le_bytes),
        Array::F64(v) => put(out, 12, v, f64::to_le_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::Gguf;
    use crate::value::Strings;

    #[test]
    fn every_value_type_survives_the_round_trip() {
        let strings: Strings = ["a", "", "ccc"].into_iter().collect();
        let entries: Vec<Value> = vec![
            1u8.into(),
            (-2i8).into(),
            3u16.into(),
            (-4i16).into(),
            5u32.into(),
            (-6i32).into(),
            7.5f32.into(),
            true.into(),
            "text".into(),
            9u64.into(),
            (-10i64).into(),
            11.25f64.into(),
            Array::U8(vec![1, 2]).into(),
            Array::I8(vec![-1]).into(),
            Array::U16(vec![1]).into(),
            Array::I16(vec![-1]).into(),
            Array::U32(vec![1, 2, 3]).into(),
            Array::I32(vec![-1]).into(),
            Array::F32(vec![0.5]).into(),
            Array::Bool(vec![true, false]).into(),
            strings.into(),
            Array::U64(vec![]).into(),
            Array::I64(vec![-1]).into(),
            Array::F64(vec![0.25]).into(),
        ];
        let writer = entries.iter().enumerate().fold(Writer::new(), |w, (i, v)| w.kv(format!("k{i}"), v.clone()));
        let writer = writer.kv("general.alignment", 64u32).tensor("a", GgmlType::F32, [3], vec![1; 12]).tensor(
            "b",
            GgmlType::Q4_0,
            [32, 2],
            vec![2; 36],
        );
        let file = writer.finish();
        let mut streamed = Vec::new();
        writer.write_to(&mut streamed).unwrap();
        assert_eq!(file, streamed);

        let gguf = Gguf::parse(&file).unwrap();
        assert_eq!(gguf.alignment, 64);
        for (i, value) in entries.iter().enumerate() {
            assert_eq!(gguf.metadata.get(&format!("k{i}")), Some(value));
        }
        let b = gguf.tensor("b").unwrap();
        assert_eq!((b.ty, b.ne, b.n_dims, b.nbytes, b.shard), (GgmlType::Q4_0, [32, 2, 1, 1], 2, 36, 0));
        assert_eq!(b.offset, gguf.data_start + 64);
        assert_eq!(file[b.offset as usize..][..36], [2; 36]);
    }
}
