//! The chip's private format of weights (FRACTAL_NZ): how a tensor gets it, and how its rows come back.
//!
//! Products read a matrix faster in strips of 16 columns. Which matrices those are is not a matter of names: a tensor of a file
//! that all plans so far read by products alone is transformed in place when a plan is prepared (`plan/weights.rs` chooses).
//! Users never meet it. Reads put rows together on the way; whoever needs rows on the device (another use in a graph, a copy, a
//! write) gets them back for good, so a tensor changes its form at most twice in its life and nothing goes to and fro.
//!
//! What the format is was written down, not seen: before the first transformation a backend tries a small matrix there and back,
//! and a device that does otherwise keeps rows.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use acl_sys::*;
use gguf::GgmlType;
use half::f16;

use crate::acl::program::{Program, Region};
use crate::acl::tensor::matmul_weight_elements;
use crate::buffer::Storage;
use crate::error::Result;
use crate::lower::{Arg, Lowering, Mem, Step, TensorArg};
use crate::queue::Worker;
use crate::repack::Layout;
use crate::tensor::Tensor;

/// Rows of a block; columns of a strip.
const BLOCK: u64 = 16;
const ELEMENT_BYTES: u64 = 2;
/// Bytes of rows that are put together at a time.
const PIECE_BYTES: u64 = 4 << 20;

/// How a tensor lies on the device. Changed by the worker alone, in stream order.
#[derive(Debug)]
pub(crate) struct Form(AtomicU8);

const ROWS: u8 = 0;
const PRIVATE: u8 = 1;
const ROWS_FOR_GOOD: u8 = 2;

impl Form {
    /// `weight`: made by a load, so that nobody else has the memory.
    pub fn new(weight: bool) -> Form {
        Form(AtomicU8::new(if weight { ROWS } else { ROWS_FOR_GOOD }))
    }

    fn get(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, form: u8) {
        self.0.store(form, Ordering::Relaxed);
    }

    pub fn is_private(&self) -> bool {
        self.get() == PRIVATE
    }
}

/// The extents of a tensor that may be transformed: `[k, m]`, in whole blocks, so that it takes the same bytes.
pub(crate) fn extents(tensor: &Tensor) -> Option<[u64; 2]> {
    let [k, m, 1, 1] = tensor.ne() else { return None };
    let [k, m] = [u64::try_from(k).ok()?, u64::try_from(m).ok()?];
    let whole = k > 0 && m > 0 && k.is_multiple_of(BLOCK) && m.is_multiple_of(BLOCK);
    let plain = tensor.ty() == GgmlType::F16 && tensor.layout() == Layout::Plain;
    (whole && plain && tensor.form().get() != ROWS_FOR_GOOD).then_some([k, m])
}

/// The rows of a matrix in memory that is called `mem`.
fn rows(mem: Mem, [k, m]: [u64; 2]) -> TensorArg {
    let ne = vec![k as i64, m as i64];
    let nb = vec![ELEMENT_BYTES as i64, (k * ELEMENT_BYTES) as i64];
    TensorArg { mem, offset: 0, dtype: ACL_FLOAT16, ne, nb, format: ACL_FORMAT_ND }
}

/// Some rows of blocks of a matrix in the private format, as the elements of packed rows in order.
fn blocks(mem: Mem, [k, m]: [u64; 2], range: &Range<u64>) -> TensorArg {
    let ne = [BLOCK, k / BLOCK, BLOCK, range.end - range.start];
    let nb = [1, m * BLOCK, BLOCK, BLOCK * BLOCK];
    TensorArg {
        mem,
        offset: range.start * BLOCK * BLOCK * ELEMENT_BYTES,
        dtype: ACL_FLOAT16,
        ne: ne.map(|n| n as i64).to_vec(),
        nb: nb.map(|n| (n * ELEMENT_BYTES) as i64).to_vec(),
        format: ACL_FORMAT_ND,
    }
}

/// [`blocks`] as packed rows elsewhere.
fn unpacked(mem: Mem, k: u64, range: &Range<u64>) -> TensorArg {
    let arg = blocks(mem, [k, 0], range);
    let nb = [1, BLOCK, k, k * BLOCK].map(|n| (n * ELEMENT_BYTES) as i64).to_vec();
    TensorArg { offset: 0, nb, ..arg }
}

const MATRIX: Mem = Mem::Temp(0);
const OTHER: Mem = Mem::Temp(1);

/// Launches steps over [`MATRIX`] and [`OTHER`].
fn launch(worker: &mut Worker, name: &str, steps: Vec<Step>, matrix: &Region, other: Option<&Region>) -> Result<()> {
    let node_steps = std::iter::once(0..steps.len()).collect();
    let lowering = Lowering { steps, node_steps, ..Lowering::default() };
    let resolve = |mem| if mem == MATRIX { Some(matrix.clone()) } else { other.cloned() };
    let mut program = Program::encode(&worker.api, &lowering, &resolve, &|_| name.to_owned())?;
    if program.workspace_bytes() > 0 {
        let region = scratch(worker, program.workspace_bytes())?;
        program.set_workspace(&region)?;
    }
    let launched = program.launch_all(&worker.stream);
    settle(worker, launched, program)
}

/// What was enqueued with `result` keeps `keep`. A device that is lost meanwhile is told here, to whoever relies on the result.
fn settle(worker: &mut Worker, result: Result<()>, keep: impl std::any::Any) -> Result<()> {
    worker.settle_after(keep, |_| ());
    result.and_then(|()| worker.lost().map_or(Ok(()), Err))
}

/// Memory of the pool, until the last who holds it is past.
fn scratch(worker: &mut Worker, bytes: u64) -> Result<Region> {
    let block = Arc::new(worker.block(bytes)?);
    let (address, bytes) = (block.address(), block.bytes());
    Ok(Region::new(block, address, bytes))
}

fn region(tensor: &Tensor, storage: &Arc<Storage>) -> Region {
    Region::new(storage.clone(), storage.address() + tensor.memory_offset(), tensor.nbytes())
}

fn pack_step(extents: [u64; 2]) -> Step {
    Step::Call { op: AclOp::aclnnTransMatmulWeight, args: vec![Arg::Tensor(rows(MATRIX, extents))] }
}

fn unpack_step(extents: [u64; 2], range: &Range<u64>) -> Step {
    let args = vec![unpacked(OTHER, extents[0], range).into(), blocks(MATRIX, extents, range).into()];
    Step::Call { op: AclOp::aclnnInplaceCopy, args }
}

/// Whether the device's private format is the one this module puts rows together from. Tried until there is an answer.
fn works(worker: &mut Worker) -> Result<bool> {
    if let Some(known) = worker.private_format {
        return Ok(known);
    }
    let works = try_it(worker)?;
    if !works {
        tracing::info!(device = worker.shared.name(), "weights stay as they are: another private format");
    }
    worker.private_format = Some(works);
    Ok(works)
}

fn try_it(worker: &mut Worker) -> Result<bool> {
    let extents @ [k, m] = [3 * BLOCK, 2 * BLOCK];
    if matmul_weight_elements(&worker.api, &[m as i64, k as i64])? != k * m {
        return Ok(false);
    }
    let bytes: Vec<u8> = (0..k * m).flat_map(|i| f16::from_f32(i as f32).to_le_bytes()).collect();
    let (matrix, other) = (scratch(worker, bytes.len() as u64)?, scratch(worker, bytes.len() as u64)?);
    worker.stream.copy_in(matrix.address(), &bytes)?;
    launch(worker, "the private format", vec![pack_step(extents)], &matrix, None)?;
    launch(worker, "the private format", vec![unpack_step(extents, &(0..m / BLOCK))], &matrix, Some(&other))?;
    let (mut packed, mut back) = (vec![0; bytes.len()], vec![0; bytes.len()]);
    worker.d2h_now(&mut packed, matrix.address())?;
    worker.d2h_now(&mut back, other.address())?;
    Ok(packed != bytes && back == bytes)
}

/// Transforms a tensor for which [`extents`] are given. Whatever fails, its rows are still there.
pub(crate) fn pack(worker: &mut Worker, tensor: &Tensor, storage: &Arc<Storage>, extents: [u64; 2]) -> Result<bool> {
    let [k, m] = extents;
    if !works(worker)? || matmul_weight_elements(&worker.api, &[m as i64, k as i64])? != k * m {
        return Ok(false);
    }
    launch(worker, tensor.name(), vec![pack_step(extents)], &region(tensor, storage), None)?;
    tensor.form().set(PRIVATE);
    Ok(true)
}

/// Gives a tensor its rows back, for good. When it fails, nothing has changed.
pub(crate) fn unpack(worker: &mut Worker, tensor: &Tensor, storage: &Arc<Storage>) -> Result<()> {
    let Some(extents) = extents(tensor).filter(|_| tensor.form().is_private()) else {
        // Who asked relies on rows from now on: nobody may transform it behind their back.
        tensor.form().set(ROWS_FOR_GOOD);
        return Ok(());
    };
    let (matrix, other) = (region(tensor, storage), scratch(worker, tensor.nbytes())?);
    launch(worker, tensor.name(), vec![unpack_step(extents, &(0..extents[1] / BLOCK))], &matrix, Some(&other))?;
    let copied = worker.stream.copy_device(matrix.address(), other.address(), matrix.bytes());
    settle(worker, copied, (matrix, other))?;
    tensor.form().set(ROWS_FOR_GOOD);
    Ok(())
}

/// Fills `bytes` with rows of a tensor in the private format, from byte `offset`; done when it returns.
pub(crate) fn read(
    worker: &mut Worker,
    tensor: &Tensor,
    storage: &Arc<Storage>,
    bytes: &mut [u8],
    offset: u64,
) -> Result<()> {
    let Some(extents) = extents(tensor) else {
        return Err(crate::error::Error::Internal("a private tensor has no blocks".into()));
    };
    let block_bytes = extents[0] * BLOCK * ELEMENT_BYTES;
    let end = offset + bytes.len() as u64;
    let step = (PIECE_BYTES / block_bytes).max(1);
    let matrix = region(tensor, storage);
    let mut at = offset;
    while at < end {
        let first = at / block_bytes;
        let range = first..(first + step).min(end.div_ceil(block_bytes));
        let other = scratch(worker, (range.end - range.start) * block_bytes)?;
        launch(worker, tensor.name(), vec![unpack_step(extents, &range)], &matrix, Some(&other))?;
        let upto = end.min(range.end * block_bytes);
        let part = &mut bytes[(at - offset) as usize..(upto - offset) as usize];
        worker.d2h_now(part, other.address() + at - first * block_bytes)?;
        at = upto;
    }
    Ok(())
}
