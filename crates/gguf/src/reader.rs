//! Bytes → checked metadata and tensor ranges.
//!
//! Nothing a file says is believed before it is compared with the file's length: counts against the bytes that are
//! left, sizes by checked arithmetic, ranges against the end and against each other. Memory grows with what was read,
//! never with what was announced, and every loop is bounded by the caps below. Positional reads through [`ReadAt`] make
//! a file that shrinks an error. Absent: opening files, reading tensor data, big-endian files and version 1.

use std::io;
use std::sync::Arc;

use crate::error::GgufError;
use crate::types::GgmlType;
use crate::value::{Array, Metadata, Strings, Value, sorted_unique};

/// Most metadata entries a file may have; models have some dozens. An entry of 14 bytes takes about 100 in memory, so
/// the cap, like the next one, keeps what a file of the smallest entries can make us hold under 64 MiB.
pub const MAX_KV: u64 = 1 << 18;
/// Most tensors a file, or a set of split files, may have; models have some thousands.
pub const MAX_TENSORS: u64 = 1 << 18;
/// Longest string value.
pub const MAX_STRING_BYTES: u64 = 64 << 20;
/// Most bytes before the tensor data.
pub const MAX_METADATA_BYTES: u64 = 256 << 20;

/// Longest key, as the format's description has it.
const MAX_KEY_BYTES: u64 = 65_535;
/// ggml keeps names in 64 bytes, a final NUL included.
const MAX_NAME_BYTES: u64 = 63;
const MAX_DIMS: u32 = 4;
const DEFAULT_ALIGNMENT: u32 = 32;
const ALIGNMENT_KEY: &str = "general.alignment";
/// Length, one byte of key, type, one byte of value.
const MIN_KV_BYTES: u64 = 8 + 1 + 4 + 1;
/// Length, one byte of name, n_dims, one extent, type, offset.
const MIN_TENSOR_BYTES: u64 = 8 + 1 + 4 + 8 + 4 + 8;
const CHUNK_BYTES: u64 = 128 << 10;

/// A source of bytes whose length was taken once, when it was opened.
pub trait ReadAt {
    /// Bytes in the source.
    fn len(&self) -> u64;

    /// Fills `buf` from `offset` on; fewer bytes than that are an error of kind `UnexpectedEof`.
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A file's table of contents.
#[derive(Clone, Debug)]
pub struct Gguf {
    /// 2 or 3; they differ in nothing this reader sees.
    pub version: u32,
    pub alignment: u32,
    pub metadata: Metadata,
    /// In file order.
    pub tensors: Vec<TensorInfo>,
    /// Tensors of a type this crate does not know. They do not stop the others from being used.
    pub unknown: Vec<UnknownTensor>,
    /// Where tensor data starts in the file (in the first file of a split set).
    pub data_start: u64,
    /// Positions in `tensors`, sorted by name.
    by_name: Vec<u32>,
}

/// A tensor whose range was checked against the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    pub name: String,
    pub ty: GgmlType,
    /// Extents, fastest first; those from `n_dims` on are 1.
    pub ne: [u64; 4],
    pub n_dims: u32,
    /// Absolute offset in the file.
    pub offset: u64,
    pub nbytes: u64,
    /// Which file of a split set, counted from 0.
    pub shard: usize,
}

/// A tensor of unknown type, so of unknown size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownTensor {
    pub name: String,
    pub type_number: u32,
    pub ne: [u64; 4],
    /// Absolute offset in the file.
    pub offset: u64,
}

impl Gguf {
    /// Reads everything but the tensor data.
    pub fn parse<R: ReadAt + ?Sized>(source: &R) -> Result<Gguf, GgufError> {
        let mut cursor = Cursor::new(source);
        let version = read_version(&mut cursor)?;
        let n_tensors = read_count(&mut cursor, MIN_TENSOR_BYTES, MAX_TENSORS, |offset, count, max| {
            GgufError::TensorCount { offset, count, max }
        })?;
        let n_kv = read_count(&mut cursor, MIN_KV_BYTES, MAX_KV, |offset, count, max| GgufError::KvCount {
            offset,
            count,
            max,
        })?;

        let mut entries = Vec::new();
        for _ in 0..n_kv {
            let key = read_key(&mut cursor)?;
            let value = read_value(&mut cursor, &key)?;
            entries.push((key, value));
        }
        let metadata = Metadata::new(entries)?;
        let alignment = read_alignment(&metadata)?;

        let mut entries = Vec::new();
        for _ in 0..n_tensors {
            entries.push(read_tensor(&mut cursor)?);
        }
        let (tensors, unknown, data_start) = place(entries, &cursor, alignment)?;
        Gguf { version, alignment, metadata, tensors, unknown, data_start, by_name: Vec::new() }.indexed()
    }

    /// The tensor of that name, or an error that says whether it is missing or of a type nobody knows.
    pub fn tensor(&self, name: &str) -> Result<&TensorInfo, GgufError> {
        let found = self.by_name.binary_search_by(|&i| match self.tensors.get(i as usize) {
            Some(tensor) => tensor.name.as_str().cmp(name),
            None => std::cmp::Ordering::Greater,
        });
        if let Some(tensor) = found.ok().and_then(|found| self.tensors.get(self.by_name[found] as usize)) {
            return Ok(tensor);
        }
        match self.unknown.iter().find(|tensor| tensor.name == name) {
            Some(tensor) => Err(tensor.error()),
            None => Err(GgufError::TensorNotFound { tensor: name.into() }),
        }
    }

    /// An error if any tensor is of unknown type: for a caller about to use all of them.
    pub fn require_known(&self) -> Result<(), GgufError> {
        self.unknown.first().map_or(Ok(()), |tensor| Err(tensor.error()))
    }

    /// Bytes of all tensors of known type.
    pub fn tensor_bytes(&self) -> u64 {
        // Ranges of one file do not overlap; sets of files are nowhere near 2^64 bytes.
        self.tensors.iter().fold(0, |sum, tensor| sum.saturating_add(tensor.nbytes))
    }

    /// Looks for names that occur twice, and makes the index of `tensor()`.
    pub(crate) fn indexed(mut self) -> Result<Gguf, GgufError> {
        let duplicate = |tensor: &str| GgufError::DuplicateTensor { tensor: tensor.into() };
        let tensors = &self.tensors;
        self.by_name = sorted_unique(tensors.len(), |i| &tensors[i].name).map_err(|i| duplicate(&tensors[i].name))?;
        let unknown = &self.unknown;
        sorted_unique(unknown.len(), |i| &unknown[i].name).map_err(|i| duplicate(&unknown[i].name))?;
        for tensor in unknown {
            if self.by_name.binary_search_by(|&i| tensors[i as usize].name.cmp(&tensor.name)).is_ok() {
                return Err(duplicate(&tensor.name));
            }
        }
        Ok(self)
    }
}

impl TensorInfo {
    /// Number of elements.
    pub fn n_elements(&self) -> u64 {
        // The reader checked the product.
        self.ne.iter().product()
    }
}

impl UnknownTensor {
    fn error(&self) -> GgufError {
        GgufError::UnknownType { tensor: self.name.clone(), type_number: self.type_number }
    }
}

impl ReadAt for [u8] {
    fn len(&self) -> u64 {
        self.len() as u64
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.get(offset..));
        match rest.and_then(|rest| rest.get(..buf.len())) {
            Some(bytes) => {
                buf.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl ReadAt for Vec<u8> {
    fn len(&self) -> u64 {
        ReadAt::len(self.as_slice())
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.as_slice().read_exact_at(offset, buf)
    }
}

impl<R: ReadAt + ?Sized> ReadAt for &R {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        (**self).read_exact_at(offset, buf)
    }
}

impl<R: ReadAt + ?Sized> ReadAt for Arc<R> {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        (**self).read_exact_at(offset, buf)
    }
}

/// Reads forward in chunks, and knows how much is left.
struct Cursor<'a, R: ?Sized> {
    source: &'a R,
    file_bytes: u64,
    /// Offset of the next byte.
    pos: u64,
    chunk: Vec<u8>,
    /// How much of `chunk` has been used.
    used: usize,
}

impl<'a, R: ReadAt + ?Sized> Cursor<'a, R> {
    fn new(source: &'a R) -> Self {
        Cursor { source, file_bytes: source.len(), pos: 0, chunk: Vec::new(), used: 0 }
    }

    fn remaining(&self) -> u64 {
        self.file_bytes - self.pos
    }

    /// Errs unless `bytes` more exist and may be read.
    fn need(&self, bytes: u64) -> Result<(), GgufError> {
        if bytes > self.remaining() {
            return Err(self.truncated(bytes));
        }
        if bytes > MAX_METADATA_BYTES.saturating_sub(self.pos) {
            return Err(GgufError::MetadataTooLarge { offset: self.pos, max_bytes: MAX_METADATA_BYTES });
        }
        Ok(())
    }

    fn truncated(&self, need_bytes: u64) -> GgufError {
        GgufError::Truncated { offset: self.pos, need_bytes, file_bytes: self.file_bytes }
    }

    /// Up to `max` of the next bytes, at least one; the caller has checked that they exist.
    fn some(&mut self, max: u64) -> Result<&[u8], GgufError> {
        if self.used == self.chunk.len() {
            let bytes = self.remaining().min(CHUNK_BYTES) as usize;
            self.chunk.resize(bytes, 0);
            self.used = bytes;
            self.source.read_exact_at(self.pos, &mut self.chunk).map_err(|source| match source.kind() {
                io::ErrorKind::UnexpectedEof => self.truncated(bytes as u64),
                _ => GgufError::Io { offset: self.pos, source },
            })?;
            self.used = 0;
        }
        let bytes = ((self.chunk.len() - self.used) as u64).min(max) as usize;
        let part = &self.chunk[self.used..self.used + bytes];
        self.used += bytes;
        self.pos += bytes as u64;
        Ok(part)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], GgufError> {
        self.need(N as u64)?;
        if let Some(bytes) = self.chunk[self.used..].first_chunk::<N>() {
            let bytes = *bytes;
            self.used += N;
            self.pos += N as u64;
            return Ok(bytes);
        }
        let mut out = [0; N];
        let mut filled = 0;
        while filled < N {
            let part = self.some((N - filled) as u64)?;
            out[filled..filled + part.len()].copy_from_slice(part);
            filled += part.len();
        }
        Ok(out)
    }

    fn u32(&mut self) -> Result<u32, GgufError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, GgufError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Appends `bytes` to `out`, which grows as they come.
    fn append(&mut self, bytes: u64, out: &mut Vec<u8>) -> Result<(), GgufError> {
        self.need(bytes)?;
        let mut left = bytes;
        while left > 0 {
            let part = self.some(left)?;
            left -= part.len() as u64;
            out.extend_from_slice(part);
        }
        Ok(())
    }

    /// The length of a string that exists.
    fn string_bytes(&mut self, max: u64, too_long: impl FnOnce(u64, u64, u64) -> GgufError) -> Result<u64, GgufError> {
        let offset = self.pos;
        let length = self.u64()?;
        if length > self.remaining() {
            return Err(self.truncated(length));
        }
        if length > max {
            return Err(too_long(offset, length, max));
        }
        Ok(length)
    }

    fn string(&mut self) -> Result<Vec<u8>, GgufError> {
        let length = self.string_bytes(MAX_STRING_BYTES, string_too_long)?;
        let mut out = Vec::new();
        self.append(length, &mut out)?;
        out.shrink_to_fit();
        Ok(out)
    }

    fn items<T, const N: usize>(&mut self, count: u64, item: impl Fn([u8; N]) -> T) -> Result<Vec<T>, GgufError> {
        let mut out = Vec::with_capacity(count.min(CHUNK_BYTES / N as u64) as usize);
        for _ in 0..count {
            out.push(item(self.array()?));
        }
        out.shrink_to_fit();
        Ok(out)
    }
}

fn string_too_long(offset: u64, length: u64, max_bytes: u64) -> GgufError {
    GgufError::StringTooLong { offset, length, max_bytes }
}

fn read_version<R: ReadAt + ?Sized>(cursor: &mut Cursor<R>) -> Result<u32, GgufError> {
    let magic = cursor.array()?;
    if &magic != b"GGUF" {
        return Err(GgufError::BadMagic { found: magic });
    }
    let version = cursor.u32()?;
    match version {
        2 | 3 => Ok(version),
        // Small numbers written the other way round.
        _ if version != 0 && version & 0xffff == 0 => Err(GgufError::BigEndian { version: version.swap_bytes() }),
        _ => Err(GgufError::UnsupportedVersion { version }),
    }
}

fn read_count<R: ReadAt + ?Sized>(
    cursor: &mut Cursor<R>,
    min_entry_bytes: u64,
    cap: u64,
    error: impl FnOnce(u64, u64, u64) -> GgufError,
) -> Result<u64, GgufError> {
    let offset = cursor.pos;
    let count = cursor.u64()?;
    let max = cap.min(cursor.remaining() / min_entry_bytes);
    if count > max { Err(error(offset, count, max)) } else { Ok(count) }
}

fn read_key<R: ReadAt + ?Sized>(cursor: &mut Cursor<R>) -> Result<String, GgufError> {
    let offset = cursor.pos;
    let length = cursor.string_bytes(MAX_KEY_BYTES, string_too_long)?;
    if length == 0 {
        return Err(GgufError::EmptyKey { offset });
    }
    let mut key = Vec::with_capacity(length as usize);
    cursor.append(length, &mut key)?;
    String::from_utf8(key).map_err(|_| GgufError::KeyNotUtf8 { offset })
}

fn read_value<R: ReadAt + ?Sized>(cursor: &mut Cursor<R>, key: &str) -> Result<Value, GgufError> {
    let offset = cursor.pos;
    Ok(match cursor.u32()? {
        0 => Value::U8(u8::from_le_bytes(cursor.array()?)),
        1 => Value::I8(i8::from_le_bytes(cursor.array()?)),
        2 => Value::U16(u16::from_le_bytes(cursor.array()?)),
        3 => Value::I16(i16::from_le_bytes(cursor.array()?)),
        4 => Value::U32(cursor.u32()?),
        5 => Value::I32(i32::from_le_bytes(cursor.array()?)),
        6 => Value::F32(f32::from_le_bytes(cursor.array()?)),
        7 => Value::Bool(read_bool(cursor, key)?),
        8 => Value::String(cursor.string()?),
        9 => Value::Array(read_array(cursor, key)?),
        10 => Value::U64(cursor.u64()?),
        11 => Value::I64(i64::from_le_bytes(cursor.array()?)),
        12 => Value::F64(f64::from_le_bytes(cursor.array()?)),
        type_number => return Err(GgufError::UnknownValueType { offset, key: key.into(), type_number }),
    })
}

fn read_bool<R: ReadAt + ?Sized>(cursor: &mut Cursor<R>, key: &str) -> Result<bool, GgufError> {
    let offset = cursor.pos;
    match cursor.array()? {
        [0] => Ok(false),
        [1] => Ok(true),
        [value] => Err(GgufError::InvalidBool { offset, key: key.into(), value }),
    }
}

fn read_array<R: ReadAt + ?Sized>(cursor: &mut Cursor<R>, key: &str) -> Result<Array, GgufError> {
    let offset = cursor.pos;
    let type_number = cursor.u32()?;
    let min_item_bytes = match type_number {
        0 | 1 | 7 => 1,
        2 | 3 => 2,
        4..=6 => 4,
        8 | 10..=12 => 8,
        9 => return Err(GgufError::NestedArray { offset, key: key.into() }),
        _ => return Err(GgufError::UnknownValueType { offset, key: key.into(), type_number }),
    };
    let offset = cursor.pos;
    let n = cursor.u64()?;
    let bytes = n.checked_mul(min_item_bytes).filter(|&bytes| bytes <= cursor.remaining());
    let Some(bytes) = bytes else {
        return Err(GgufError::ArrayTooLong { offset, key: key.into(), count: n });
    };
    cursor.need(bytes)?;
    Ok(match type_number {
        0 => {
            let mut out = Vec::new();
            cursor.append(n, &mut out)?;
            out.shrink_to_fit();
            Array::U8(out)
        }
        1 => Array::I8(cursor.items(n, i8::from_le_bytes)?),
        2 => Array::U16(cursor.items(n, u16::from_le_bytes)?),
        3 => Array::I16(cursor.items(n, i16::from_le_bytes)?),
        4 => Array::U32(cursor.items(n, u32::from_le_bytes)?),
        5 => Array::I32(cursor.items(n, i32::from_le_bytes)?),
        6 => Array::F32(cursor.items(n, f32::from_le_bytes)?),
        7 => {
            let mut out = Vec::new();
            for _ in 0..n {
                out.push(read_bool(cursor, key)?);
            }
            Array::Bool(out)
        }
        8 => Array::Strings(read_strings(cursor, n)?),
        10 => Array::U64(cursor.items(n, u64::from_le_bytes)?),
        11 => Array::I64(cursor.items(n, i64::from_le_bytes)?),
        // The only number left of those that have an item size above.
        _ => Array::F64(cursor.items(n, f64::from_le_bytes)?),
    })
}

fn read_strings<R: ReadAt + ?Sized>(cursor: &mut Cursor<R>, n: u64) -> Result<Strings, GgufError> {
    let mut out = Strings::default();
    let mut piece = Vec::new();
    for _ in 0..n {
        let offset = cursor.pos;
        let length = cursor.string_bytes(MAX_STRING_BYTES, string_too_long)?;
        piece.clear();
        cursor.append(length, &mut piece)?;
        if !out.push(&piece) {
            return Err(GgufError::MetadataTooLarge { offset, max_bytes: MAX_METADATA_BYTES });
        }
    }
    out.shrink();
    Ok(out)
}

fn read_alignment(metadata: &Metadata) -> Result<u32, GgufError> {
    match metadata.get(ALIGNMENT_KEY) {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(&Value::U32(alignment)) if alignment.is_power_of_two() && (8..=1 << 20).contains(&alignment) => {
            Ok(alignment)
        }
        Some(&Value::U32(alignment)) => Err(GgufError::InvalidAlignment { alignment }),
        Some(other) => {
            Err(GgufError::WrongValueType { key: ALIGNMENT_KEY.into(), expected: "u32", found: other.type_name() })
        }
    }
}

/// A row of the tensor table; `offset` is still relative to the tensor data.
struct Entry {
    name: String,
    type_number: u32,
    ne: [u64; 4],
    n_dims: u32,
    offset: u64,
}

fn read_tensor<R: ReadAt + ?Sized>(cursor: &mut Cursor<R>) -> Result<Entry, GgufError> {
    let offset = cursor.pos;
    let length = cursor.string_bytes(MAX_NAME_BYTES, |offset, length, max_bytes| GgufError::TensorNameTooLong {
        offset,
        length,
        max_bytes,
    })?;
    let mut name = Vec::with_capacity(length as usize);
    cursor.append(length, &mut name)?;
    let name = String::from_utf8(name).map_err(|_| GgufError::InvalidTensorName { offset })?;
    if name.is_empty() || name.contains('\0') {
        return Err(GgufError::InvalidTensorName { offset });
    }

    let offset = cursor.pos;
    let n_dims = cursor.u32()?;
    if !(1..=MAX_DIMS).contains(&n_dims) {
        return Err(GgufError::TensorDims { offset, tensor: name, n_dims });
    }
    let mut ne = [1; 4];
    let mut elements = 1u64;
    for (dim, slot) in ne.iter_mut().take(n_dims as usize).enumerate() {
        let offset = cursor.pos;
        let extent = cursor.u64()?;
        if extent == 0 || extent > i64::MAX as u64 {
            return Err(GgufError::TensorExtent { offset, tensor: name, dim, extent });
        }
        *slot = extent;
        match elements.checked_mul(extent).filter(|&product| product <= i64::MAX as u64) {
            Some(product) => elements = product,
            None => return Err(GgufError::TensorTooLarge { tensor: name }),
        }
    }
    let type_number = cursor.u32()?;
    let offset = cursor.u64()?;
    Ok(Entry { name, type_number, ne, n_dims, offset })
}

type Placed = (Vec<TensorInfo>, Vec<UnknownTensor>, u64);

/// Turns relative offsets into checked absolute ranges. The cursor stands at the end of the tensor table.
fn place<R: ReadAt + ?Sized>(entries: Vec<Entry>, cursor: &Cursor<R>, alignment: u32) -> Result<Placed, GgufError> {
    let file_bytes = cursor.file_bytes;
    // At most 256 MiB + 1 MiB.
    let data_start = cursor.pos.next_multiple_of(alignment.into());
    // A file of metadata only may end without padding.
    if !entries.is_empty() && data_start > file_bytes {
        return Err(GgufError::DataStartPastEnd { offset: data_start, file_bytes });
    }

    let mut tensors = Vec::with_capacity(entries.len());
    let mut unknown = Vec::new();
    for Entry { name, type_number, ne, n_dims, offset } in entries {
        if !offset.is_multiple_of(alignment.into()) {
            return Err(GgufError::MisalignedTensor { tensor: name, offset, alignment });
        }
        let Some(ty) = GgmlType::from_u32(type_number) else {
            // Of unknown size, but it can't be smaller than a byte.
            match data_start.checked_add(offset).filter(|&offset| offset < file_bytes) {
                Some(offset) => unknown.push(UnknownTensor { name, type_number, ne, offset }),
                None => {
                    let offset = data_start.saturating_add(offset);
                    return Err(GgufError::TensorPastEnd { tensor: name, offset, nbytes: 1, file_bytes });
                }
            }
            continue;
        };
        if !ne[0].is_multiple_of(ty.block_len() as u64) {
            return Err(GgufError::RowNotWholeBlocks { tensor: name, ty, ne0: ne[0] });
        }
        let Some(nbytes) = tensor_bytes(ty, &ne, alignment) else {
            return Err(GgufError::TensorTooLarge { tensor: name });
        };
        let start = data_start.checked_add(offset);
        match start.filter(|start| start.checked_add(nbytes).is_some_and(|end| end <= file_bytes)) {
            Some(offset) => tensors.push(TensorInfo { name, ty, ne, n_dims, offset, nbytes, shard: 0 }),
            None => {
                let offset = data_start.saturating_add(offset);
                return Err(GgufError::TensorPastEnd { tensor: name, offset, nbytes, file_bytes });
            }
        }
    }
    check_overlap(&tensors, &unknown)?;
    Ok((tensors, unknown, data_start))
}

/// The tensor's bytes, if they and their padding to the alignment can be counted in 63 bits.
fn tensor_bytes(ty: GgmlType, ne: &[u64; 4], alignment: u32) -> Option<u64> {
    let mut nbytes = ty.row_bytes(ne[0])?;
    for &extent in &ne[1..] {
        nbytes = nbytes.checked_mul(extent)?;
    }
    let padded = nbytes.checked_next_multiple_of(alignment.into())?;
    (padded <= i64::MAX as u64).then_some(nbytes)
}

fn check_overlap(tensors: &[TensorInfo], unknown: &[UnknownTensor]) -> Result<(), GgufError> {
    let known = tensors.iter().map(|tensor| (tensor.offset, tensor.nbytes, tensor.name.as_str()));
    let mut ranges: Vec<_> =
        known.chain(unknown.iter().map(|tensor| (tensor.offset, 1, tensor.name.as_str()))).collect();
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        let ((start, nbytes, other), (offset, _, tensor)) = (pair[0], pair[1]);
        if offset - start < nbytes {
            return Err(GgufError::OverlappingTensors { tensor: tensor.into(), other: other.into(), offset });
        }
    }
    Ok(())
}
