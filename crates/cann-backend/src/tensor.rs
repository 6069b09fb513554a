//! Tensors in device memory: ggml's shape for users, the device's layout underneath.
//!
//! Reads and writes name bytes of ggml's layout; quantised types go through `repack`, block by block in bounded pieces,
//! and the device bytes are the same for any order and size of writes.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gguf::GgmlType;

use crate::Done;
use crate::buffer::{DeviceBuffer, Holder, Storage};
use crate::error::{Error, Result};
use crate::graph::{checked_ne, contiguous_nb};
use crate::private::{self, Form};
use crate::queue::{Shared, Worker};
use crate::repack::{self, Layout, touched};

/// A tensor in a buffer starts at a multiple of this.
pub const TENSOR_ALIGNMENT_BYTES: u64 = 64;

/// Rows of quantised types are padded to this many elements at the end of the tensor.
const ROW_PADDING_ELEMENTS: u64 = 512;

/// ggml bytes converted at a time.
const PIECE_BYTES: u64 = 4 << 20;

/// A tensor to be made.
#[derive(Clone, Debug)]
pub struct TensorSpec {
    pub ty: GgmlType,
    pub ne: Vec<i64>,
    pub name: String,
    /// Where to place it; memory of its own if `None`.
    pub buffer: Option<DeviceBuffer>,
    pub offset: u64,
    /// [`Layout::native`] of the type if `None`.
    pub layout: Option<Layout>,
    /// What a file had; the type itself if `None`.
    pub source_type: Option<GgmlType>,
    /// Whether it is a weight of a file, mostly read, in memory that no other tensor lies in: the chip may keep it as it likes.
    pub weight: bool,
}

impl TensorSpec {
    pub fn new(ty: GgmlType, ne: &[i64]) -> TensorSpec {
        TensorSpec {
            ty,
            ne: ne.to_vec(),
            name: String::new(),
            buffer: None,
            offset: 0,
            layout: None,
            source_type: None,
            weight: false,
        }
    }

    pub fn named(mut self, name: impl Into<String>) -> TensorSpec {
        self.name = name.into();
        self
    }

    pub fn placed(mut self, buffer: &DeviceBuffer, offset: u64) -> TensorSpec {
        (self.buffer, self.offset) = (Some(buffer.clone()), offset);
        self
    }
}

/// A tensor in device memory. Clones are the same tensor.
#[derive(Clone)]
pub struct Tensor(Arc<Inner>);

struct Inner {
    shape: Shape,
    holder: Arc<Holder>,
    /// Whether the memory is the tensor's own.
    owns: bool,
    offset: u64,
    disposed: AtomicBool,
    id: u64,
    form: Form,
}

/// Everything about a tensor that needs no memory.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    name: String,
    ty: GgmlType,
    source_type: GgmlType,
    ne: [i64; 4],
    nb: [u64; 4],
    nbytes: u64,
    alloc_bytes: u64,
    layout: Layout,
    weight: bool,
}

/// Bytes a tensor takes in device memory: its data, and once the rest of a row of quantised blocks to 512 elements.
pub(crate) fn alloc_size(ty: GgmlType, ne: &[i64]) -> Result<u64> {
    let ne = checked_ne(ne)?;
    let nbytes = nbytes(ty, ne)?;
    let rest = ne[0] as u64 % ROW_PADDING_ELEMENTS;
    if !ty.is_quantized() || rest == 0 {
        return Ok(nbytes);
    }
    let padding = ty.row_bytes(ROW_PADDING_ELEMENTS - rest).ok_or_else(|| too_large(ne))?;
    nbytes.checked_add(padding).ok_or_else(|| too_large(ne))
}

fn nbytes(ty: GgmlType, ne: [i64; 4]) -> Result<u64> {
    let nb = contiguous_nb(ty, ne).ok_or_else(|| not_blocks(ty, ne))?;
    nb[3].checked_mul(ne[3] as u64).ok_or_else(|| too_large(ne))
}

fn not_blocks(ty: GgmlType, ne: [i64; 4]) -> Error {
    Error::Shape {
        op: "tensor".into(),
        reason: format!("rows of {} elements do not fill blocks of {} ({})", ne[0], ty.block_len(), ty.name()),
    }
}

fn too_large(ne: [i64; 4]) -> Error {
    Error::invalid("ne", format!("extents whose size in bytes fits 64 bits, not {ne:?}"))
}

impl Shape {
    pub fn new(spec: &TensorSpec) -> Result<Shape> {
        let ty = spec.ty;
        let ne = checked_ne(&spec.ne)?;
        let layout = spec.layout.unwrap_or(Layout::native(ty));
        if !layout.holds(ty) {
            return Err(Error::invalid("layout", format!("a layout of {}, not {layout:?}", ty.name())));
        }
        Ok(Shape {
            name: spec.name.clone(),
            ty,
            source_type: spec.source_type.unwrap_or(ty),
            ne,
            nb: contiguous_nb(ty, ne).ok_or_else(|| not_blocks(ty, ne))?,
            nbytes: nbytes(ty, ne)?,
            alloc_bytes: alloc_size(ty, &ne)?,
            layout,
            weight: spec.weight,
        })
    }

    pub fn alloc_bytes(&self) -> u64 {
        self.alloc_bytes
    }

    fn elements(&self) -> u64 {
        self.ne.iter().map(|n| *n as u64).product()
    }
}

impl Tensor {
    /// A tensor over a holder's memory from `offset`, which lies inside it and is aligned.
    pub(crate) fn new(shape: Shape, holder: Arc<Holder>, owns: bool, offset: u64) -> Tensor {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let form = Form::new(shape.weight);
        Tensor(Arc::new(Inner { shape, holder, owns, offset, disposed: AtomicBool::new(false), id, form }))
    }

    pub fn name(&self) -> &str {
        &self.0.shape.name
    }

    /// What is stored.
    pub fn ty(&self) -> GgmlType {
        self.0.shape.ty
    }

    /// What the file had.
    pub fn source_type(&self) -> GgmlType {
        self.0.shape.source_type
    }

    pub fn ne(&self) -> [i64; 4] {
        self.0.shape.ne
    }

    pub fn nb(&self) -> [u64; 4] {
        self.0.shape.nb
    }

    /// Bytes in ggml's layout.
    pub fn nbytes(&self) -> u64 {
        self.0.shape.nbytes
    }

    pub fn nelements(&self) -> u64 {
        self.0.shape.elements()
    }

    pub fn layout(&self) -> Layout {
        self.0.shape.layout
    }

    pub fn backend_id(&self) -> u64 {
        self.0.holder.shared().id
    }

    /// The name of the device it is on.
    pub fn device(&self) -> &str {
        self.0.holder.shared().name()
    }

    /// Distinguishes tensors of a process.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// Writes bytes of ggml's layout, from byte `offset`.
    pub fn write(&self, data: Vec<u8>, offset: u64, done: Done<()>) {
        let range = match self.range(offset, data.len() as u64) {
            Ok(range) => range,
            Err(error) => return done(Err(error)),
        };
        if self.layout().writes_whole_blocks() {
            let block = self.ty().block_bytes() as u64;
            if range.start % block != 0 || range.end % block != 0 {
                let expected = format!("whole blocks of {block} bytes ({}), not {range:?}", self.ty().name());
                return done(Err(Error::invalid("offset", expected)));
            }
        }
        self.task(done, move |tensor, worker, storage, done| {
            storage.touch();
            let written = tensor.write_now(worker, &storage, &data, range.start);
            worker.settle_with(written, (storage, data), done);
        });
    }

    /// Reads bytes of ggml's layout.
    pub fn read(&self, offset: u64, size: u64, done: Done<Vec<u8>>) {
        let range = match self.range(offset, size) {
            Ok(range) => range,
            Err(error) => return done(Err(error)),
        };
        self.task(done, move |tensor, worker, storage, done| {
            // Pageable host memory: the copy is done when the call returns, so there is nothing to settle later.
            let mut bytes = Vec::new();
            if let Err(error) = reserve(&mut bytes, range.end - range.start) {
                return done(Err(error));
            }
            done(tensor.read_now(worker, &storage, &mut bytes, range.start).map(|()| bytes));
        });
    }

    /// Sets every byte of ggml's layout.
    pub fn fill(&self, byte: u8, done: Done<()>) {
        self.task(done, move |tensor, worker, storage, done| {
            storage.touch();
            let filled = tensor.fill_now(worker, &storage, byte);
            worker.settle_with(filled, storage, done);
        });
    }

    /// Marks the tensor at once; memory of its own goes back when the last task that uses it is past.
    pub fn dispose(&self) {
        self.0.disposed.store(true, Ordering::Release);
        if self.0.owns {
            self.0.holder.dispose();
        }
    }

    pub fn is_disposed(&self) -> bool {
        self.0.disposed.load(Ordering::Acquire) || self.0.holder.is_disposed()
    }

    /// The memory it lies in: a task keeps this until the stream is past it.
    pub(crate) fn memory(&self) -> Result<Arc<Storage>> {
        if self.0.disposed.load(Ordering::Acquire) {
            return Err(Error::Disposed { what: "the tensor" });
        }
        self.0.holder.storage(if self.0.owns { "the tensor" } else { "the tensor's buffer" })
    }

    /// How the device keeps it: the worker's affair.
    pub(crate) fn form(&self) -> &Form {
        &self.0.form
    }

    /// Byte offset in [`Tensor::memory`].
    pub(crate) fn memory_offset(&self) -> u64 {
        self.0.offset
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        self.0.holder.shared()
    }

    /// All of it in ggml's layout, after everything that is enqueued.
    pub(crate) fn read_whole(&self, worker: &mut Worker) -> Result<Vec<u8>> {
        self.read_held(worker, &self.memory()?)
    }

    /// As [`Tensor::read_whole`], from memory that was taken before the tensor may have been disposed.
    pub(crate) fn read_held(&self, worker: &mut Worker, storage: &Arc<Storage>) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        reserve(&mut bytes, self.nbytes())?;
        self.read_now(worker, storage, &mut bytes, 0)?;
        Ok(bytes)
    }

    /// Writes all of it, on the worker.
    pub(crate) fn write_whole(&self, worker: &mut Worker, bytes: Vec<u8>) -> Result<()> {
        let storage = self.memory()?;
        storage.touch();
        let written = self.write_now(worker, &storage, &bytes, 0);
        worker.settle_after((storage, bytes), |_| ());
        written
    }

    /// A tensor like this one with memory of its own on the worker's device, filled with `bytes`.
    pub(crate) fn copy_here(&self, worker: &mut Worker, bytes: Vec<u8>) -> Result<Tensor> {
        let shape = Shape { weight: false, ..self.0.shape.clone() };
        let memory = worker.device_mem(shape.alloc_bytes()).map_err(|e| e.for_tensor(self.name()))?;
        let tensor = Tensor::new(shape, Holder::new(Storage::new(memory, &worker.shared)), true, 0);
        tensor.zero_padding(worker, &*tensor.memory()?)?;
        tensor.write_whole(worker, bytes)?;
        Ok(tensor)
    }

    fn task<T: 'static>(
        &self,
        done: Done<T>,
        act: impl FnOnce(&Tensor, &mut Worker, Arc<Storage>, Done<T>) + Send + 'static,
    ) {
        let storage = match self.memory() {
            Ok(storage) => storage,
            Err(error) => return done(Err(error)),
        };
        let tensor = self.clone();
        self.shared().submit_or(done, move |worker, done| act(&tensor, worker, storage, done));
    }

    fn range(&self, offset: u64, size: u64) -> Result<Range<u64>> {
        let end = offset.checked_add(size).filter(|end| *end <= self.nbytes());
        end.map(|end| offset..end).ok_or_else(|| {
            let expected = format!("a range inside the tensor's {} bytes, not {size} bytes at {offset}", self.nbytes());
            Error::invalid("offset", expected)
        })
    }

    /// Zeroes what lies behind the data: kernels may read a padded row.
    pub(crate) fn zero_padding(&self, worker: &Worker, storage: &Storage) -> Result<()> {
        let shape = &self.0.shape;
        let start = storage.address() + self.0.offset + shape.nbytes;
        worker.stream.fill(start, 0, shape.alloc_bytes - shape.nbytes)
    }

    fn write_now(&self, worker: &mut Worker, storage: &Arc<Storage>, data: &[u8], offset: u64) -> Result<()> {
        private::unpack(worker, self, storage)?;
        let base = storage.address() + self.0.offset;
        if self.layout().is_verbatim() {
            return worker.stream.copy_in(base + offset, data);
        }
        let end = offset + data.len() as u64;
        for piece in pieces(offset..end, self.ty()) {
            let part = &data[(piece.start - offset) as usize..(piece.end - offset) as usize];
            let mut blocks = Blocks::new(self, piece)?;
            if !blocks.touched.whole {
                blocks.read(worker, base)?;
            }
            blocks.patch(part);
            blocks.write(worker, base)?;
        }
        Ok(())
    }

    /// Fills `bytes`; done when it returns.
    fn read_now(&self, worker: &mut Worker, storage: &Arc<Storage>, bytes: &mut [u8], offset: u64) -> Result<()> {
        if self.form().is_private() {
            return private::read(worker, self, storage, bytes, offset);
        }
        let base = storage.address() + self.0.offset;
        if self.layout().is_verbatim() {
            return worker.d2h_now(bytes, base + offset);
        }
        let end = offset + bytes.len() as u64;
        for piece in pieces(offset..end, self.ty()) {
            let part = (piece.start - offset) as usize..(piece.end - offset) as usize;
            let mut blocks = Blocks::new(self, piece)?;
            blocks.read(worker, base)?;
            bytes[part].copy_from_slice(blocks.range());
        }
        Ok(())
    }

    fn fill_now(&self, worker: &mut Worker, storage: &Arc<Storage>, byte: u8) -> Result<()> {
        private::unpack(worker, self, storage)?;
        let nbytes = self.nbytes();
        // Where every byte moves as it is, a constant stays one.
        if self.layout().is_verbatim() || self.layout() == Layout::Q8_0 {
            return worker.stream.fill(storage.address() + self.0.offset, byte, nbytes);
        }
        for piece in pieces(0..nbytes, self.ty()) {
            let data = vec![byte; (piece.end - piece.start) as usize];
            self.write_now(worker, storage, &data, piece.start)?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shape = &self.0.shape;
        write!(f, "Tensor({:?}, {} {:?} on {})", shape.name, shape.ty.name(), shape.ne, self.device())
    }
}

/// Cuts a range of ggml bytes where blocks begin, so that a piece has at most [`PIECE_BYTES`] and inner pieces are whole.
fn pieces(range: Range<u64>, ty: GgmlType) -> impl Iterator<Item = Range<u64>> {
    let block = ty.block_bytes() as u64;
    let step = (PIECE_BYTES / block).max(1) * block;
    let mut start = range.start;
    std::iter::from_fn(move || {
        (start < range.end).then(|| {
            let end = (start / block * block + step).min(range.end);
            let piece = start..end;
            start = end;
            piece
        })
    })
}

/// Blocks that a piece touches, as ggml has them and as the device does.
struct Blocks {
    layout: Layout,
    touched: repack::Touched,
    ggml: Vec<u8>,
    parts: [Vec<u8>; 3],
}

impl Blocks {
    fn new(tensor: &Tensor, piece: Range<u64>) -> Result<Blocks> {
        let (layout, ty) = (tensor.layout(), tensor.ty());
        let touched = touched(layout, ty, tensor.nelements(), piece)
            .ok_or_else(|| Error::Internal("a checked range lies outside its tensor".into()))?;
        let ggml = vec![0; touched.ggml_bytes(layout, ty) as usize];
        let parts =
            [0, 1, 2].map(|k: usize| vec![0; touched.parts[k].as_ref().map_or(0, |r| r.end - r.start) as usize]);
        Ok(Blocks { layout, touched, ggml, parts })
    }

    /// From the device, after all that is enqueued.
    fn read(&mut self, worker: &mut Worker, base: u64) -> Result<()> {
        for (part, range) in self.parts.iter_mut().zip(&self.touched.parts) {
            if let Some(range) = range {
                worker.d2h_now(part, base + range.start)?;
            }
        }
        let [quants, scales, offsets] = &self.parts;
        repack::from_device(self.layout, quants, scales, offsets, &mut self.ggml);
        Ok(())
    }

    fn range(&self) -> &[u8] {
        &self.ggml[self.touched.within.start as usize..self.touched.within.end as usize]
    }

    fn patch(&mut self, bytes: &[u8]) {
        let within = self.touched.within.start as usize..self.touched.within.end as usize;
        self.ggml[within].copy_from_slice(bytes);
    }

    /// To the device; the staging is settled by the worker.
    fn write(self, worker: &mut Worker, base: u64) -> Result<()> {
        let Blocks { layout, touched, ggml, mut parts } = self;
        let [quants, scales, offsets] = &mut parts;
        repack::to_device(layout, &ggml, quants, scales, offsets).map_err(|e| {
            let block = touched.blocks.start + e.block as u64;
            Error::invalid("data", format!("blocks with a finite scale and minimum; block {block} has none"))
        })?;
        let mut copied = Ok(());
        for (part, range) in parts.iter().zip(&touched.parts) {
            if let Some(range) = range {
                copied = copied.and_then(|()| worker.h2d(base + range.start, part));
            }
        }
        worker.settle_after(parts, |_| ());
        copied
    }
}

fn reserve(bytes: &mut Vec<u8>, size: u64) -> Result<()> {
    let too_much =
        || Error::OutOfMemory { device: "host".into(), requested_bytes: size, free_bytes: None, tensor: None };
    let size_host = usize::try_from(size).map_err(|_| too_much())?;
    bytes.try_reserve_exact(size_host).map_err(|_| too_much())?;
    bytes.resize(size_host, 0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_with_padding() {
        for (ty, ne, bytes) in [
            (GgmlType::Q4_0, vec![32, 1], 288),
            (GgmlType::Q8_0, vec![544, 3], 2244),
            (GgmlType::Q8_0, vec![4096, 4], 17408),
            (GgmlType::F32, vec![3], 12),
            (GgmlType::F32, vec![0, 7], 0),
        ] {
            assert_eq!(alloc_size(ty, &ne).unwrap(), bytes, "{} {ne:?}", ty.name());
        }
        assert!(matches!(alloc_size(GgmlType::Q4_0, &[33]), Err(Error::Shape { .. })));
        assert!(matches!(alloc_size(GgmlType::F32, &[-1]), Err(Error::InvalidArg { .. })));
        assert!(alloc_size(GgmlType::F64, &[1 << 53, 1 << 10]).is_err());
    }

    #[test]
    fn pieces_cover_a_range_and_break_at_blocks() {
        let all: Vec<_> = pieces(5..(PIECE_BYTES * 2 + 7), GgmlType::Q8_0).collect();
        assert_eq!(all.first().unwrap().start, 5);
        assert_eq!(all.last().unwrap().end, PIECE_BYTES * 2 + 7);
        assert!(all.windows(2).all(|w| w[0].end == w[1].start && w[0].end % 34 == 0));
        assert!(all.iter().all(|p| p.end - p.start <= PIECE_BYTES));
        assert_eq!(pieces(3..3, GgmlType::Q8_0).count(), 0);
    }
}
