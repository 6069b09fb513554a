//! A plan's steps as calls on real memory: encoded once, launched many times.
//!
//! This is the only caller of an operator's phases. Every tensor of every step is checked against the region it names before
//! its address is formed, so that a wrong lowering is an error here and never a wild access on the device.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use acl_sys::*;
use gguf::GgmlType;

use super::capture::{self, Model};
use super::driver::Lease;
use super::executor::Prepared;
use super::memory::PinnedMem;
use super::stream::Stream;
use super::tensor;
use crate::error::{Error, Result};
use crate::lower::{Lowering, Mem, Span, Step, TensorArg};

/// A range of device memory together with its owner: as long as a region is held, the memory is there.
#[derive(Clone)]
pub(crate) struct Region {
    address: u64,
    bytes: u64,
    keep: Arc<dyn Any + Send + Sync>,
}

impl Region {
    /// `keep` owns the `bytes` bytes at `address` (the memory contract of `stream.rs`).
    pub fn new(keep: Arc<dyn Any + Send + Sync>, address: u64, bytes: u64) -> Region {
        Region { address, bytes, keep }
    }

    pub fn address(&self) -> u64 {
        self.address
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A part of this region, cut to it.
    pub fn part(&self, offset: u64, bytes: u64) -> Region {
        let offset = offset.min(self.bytes);
        Region { address: self.address + offset, bytes: bytes.min(self.bytes - offset), keep: self.keep.clone() }
    }
}

/// One launch on the stream.
enum Launch {
    Call(Prepared),
    Copy { dst: u64, src: u64, bytes: u64 },
    Fill { dst: u64, bytes: u64, byte: u8 },
    Quantize(Quantize),
}

/// Values that the host turns into blocks between two launches.
struct Quantize {
    ty: GgmlType,
    src: u64,
    values: usize,
    dst: u64,
    bytes: usize,
}

/// Encoded steps and the memory they run on.
pub(crate) struct Program {
    // Fields drop in this order: the executors, then the memory they name.
    launches: Vec<Launch>,
    workspace: u64,
    workspace_bytes: u64,
    /// Values and blocks of a [`Quantize`] on the host; one serves all, because each waits for what the stream did before.
    staging: Option<PinnedMem>,
    staging_bytes: usize,
    keep: Vec<Arc<dyn Any + Send + Sync>>,
}

impl Program {
    /// Describes every step's arguments and runs the first phases. `resolve` gives the region of named memory; `name` is
    /// what errors call the node a step belongs to. The calling thread has the device selected.
    pub fn encode(
        api: &Arc<AclApi>,
        lowering: &Lowering,
        resolve: &dyn Fn(Mem) -> Option<Region>,
        name: &dyn Fn(usize) -> String,
    ) -> Result<Program> {
        let mut program = Program {
            launches: Vec::new(),
            workspace: 0,
            workspace_bytes: 0,
            staging: None,
            staging_bytes: 0,
            keep: Vec::new(),
        };
        for (position, range) in lowering.node_steps.iter().enumerate() {
            for step in &lowering.steps[range.clone()] {
                program.push(api, step, resolve).map_err(|e| with_op(e, &|| name(position)))?;
            }
        }
        Ok(program)
    }

    fn push(&mut self, api: &Arc<AclApi>, step: &Step, resolve: &dyn Fn(Mem) -> Option<Region>) -> Result<()> {
        let find = |mem: Mem| {
            resolve(mem).ok_or_else(|| Error::Internal(format!("a lowering names memory that has no place: {mem:?}")))
        };
        let launch = match step {
            Step::Call { op, args } => {
                for t in args.iter().flat_map(tensors) {
                    let region = find(t.mem)?;
                    inside(t, &region)?;
                    self.hold(&region);
                }
                let address = |t: &TensorArg| resolve(t.mem).map_or(0, |r| r.address);
                // SAFETY: each tensor lies inside its region (just checked), the regions are held until after the
                // executors, and the caller has the device selected.
                let call = unsafe { Prepared::new(api, *op, args, &address) }?;
                self.workspace_bytes = self.workspace_bytes.max(call.workspace_bytes());
                Launch::Call(call)
            }
            Step::Copy { dst, src } => {
                let (to, from) = (find(dst.mem)?, find(src.mem)?);
                let bytes = src.bytes;
                self.hold(&to);
                self.hold(&from);
                Launch::Copy { dst: span(dst, &to)?, src: span(src, &from)?, bytes }
            }
            Step::Fill { dst, byte } => {
                let to = find(dst.mem)?;
                self.hold(&to);
                Launch::Fill { dst: span(dst, &to)?, bytes: dst.bytes, byte: *byte }
            }
            Step::Quantize { dst, src, ty } => {
                let (to, from) = (find(dst.mem)?, find(src.mem)?);
                let values = src.bytes / VALUE_BYTES as u64;
                if ty.row_bytes(values) != Some(dst.bytes) || !gguf::can_quantize(*ty) {
                    let text = format!("a lowering quantises {values} values to {} bytes of {ty}", dst.bytes);
                    return Err(Error::Internal(text));
                }
                self.hold(&to);
                self.hold(&from);
                let (values, bytes) = (values as usize, dst.bytes as usize);
                self.staging_bytes = self.staging_bytes.max(values * VALUE_BYTES + bytes);
                Launch::Quantize(Quantize { ty: *ty, src: span(src, &from)?, values, dst: span(dst, &to)?, bytes })
            }
        };
        self.launches.push(launch);
        Ok(())
    }

    /// Keeps a region's memory until the program is gone.
    pub fn hold(&mut self, region: &Region) {
        if !self.keep.iter().any(|k| Arc::ptr_eq(k, &region.keep)) {
            self.keep.push(region.keep.clone());
        }
    }

    pub fn len(&self) -> usize {
        self.launches.len()
    }

    /// What the largest call needs; one region serves all, because a stream runs one call after another.
    pub fn workspace_bytes(&self) -> u64 {
        self.workspace_bytes
    }

    /// Gives the calls their workspace, which is held from now on.
    pub fn set_workspace(&mut self, region: &Region) -> Result<()> {
        if region.bytes() < self.workspace_bytes {
            return Err(Error::Internal(format!(
                "a workspace of {} bytes where {} are needed",
                region.bytes(),
                self.workspace_bytes
            )));
        }
        self.workspace = region.address();
        self.hold(region);
        Ok(())
    }

    /// What the largest step of the host needs.
    pub fn staging_bytes(&self) -> u64 {
        self.staging_bytes as u64
    }

    /// Gives the steps of the host their memory.
    pub fn set_staging(&mut self, staging: PinnedMem) {
        self.staging = Some(staging);
    }

    /// Records all launches as one model, which must go before this program. `None` when the library refuses to capture them, or
    /// when the host takes part: they are then launched one by one.
    pub fn capture(&mut self, lease: &Arc<Lease>, stream: &Stream) -> Option<Model> {
        let all = 0..self.launches.len();
        let host = self.launches.iter().any(|launch| matches!(launch, Launch::Quantize(_)));
        if all.is_empty() || host || !capture::is_available(&lease.target.api) {
            return None;
        }
        let captured = capture::capture(lease, stream, || self.launch(all, stream));
        captured
            .inspect_err(
                |error| tracing::info!(%error, "this graph cannot be captured; its calls are launched one by one"),
            )
            .ok()
    }

    /// Enqueues each launch.
    pub fn launch_all(&mut self, stream: &Stream) -> Result<()> {
        self.launch(0..self.launches.len(), stream)
    }

    /// Enqueues some of the launches, in order. The calling thread has the device selected.
    pub fn launch(&mut self, range: Range<usize>, stream: &Stream) -> Result<()> {
        if self.workspace_bytes > 0 && self.workspace == 0 {
            return Err(Error::Internal("a program was launched without its workspace".into()));
        }
        for launch in &mut self.launches[range] {
            match launch {
                // SAFETY: the workspace is large enough (set_workspace) and only used in this stream's order; memory is held.
                Launch::Call(call) => unsafe { call.launch(self.workspace, stream.raw()) }?,
                Launch::Copy { dst, src, bytes } => stream.copy_device(*dst, *src, *bytes)?,
                Launch::Fill { dst, bytes, byte } => stream.fill(*dst, *byte, *bytes)?,
                Launch::Quantize(step) => {
                    let staging = self.staging.as_mut().filter(|s| s.len() >= self.staging_bytes);
                    let missing = || Error::Internal("a program was launched without its staging memory".into());
                    step.run(staging.ok_or_else(missing)?.as_mut_slice(), stream)?;
                }
            }
        }
        Ok(())
    }
}

const VALUE_BYTES: usize = size_of::<f32>();

impl Quantize {
    /// Waits for the values, quantises them, and enqueues the copy of the blocks to the device. `staging` is left alone until
    /// the stream is past that copy: whoever uses it next waits for the stream first.
    fn run(&self, staging: &mut [u8], stream: &Stream) -> Result<()> {
        // Values that are converted at a time: whole blocks of every type.
        const PART: usize = 1024;
        let (values, rest) = staging.split_at_mut(self.values * VALUE_BYTES);
        let blocks = &mut rest[..self.bytes];
        stream.copy_out(values, self.src)?;
        stream.synchronize()?;
        let part_bytes = PART / self.ty.block_len() * self.ty.block_bytes();
        let mut part = [0f32; PART];
        for (values, blocks) in values.chunks(PART * VALUE_BYTES).zip(blocks.chunks_mut(part_bytes)) {
            let part = &mut part[..values.len() / VALUE_BYTES];
            part.iter_mut().zip(values.as_chunks().0).for_each(|(v, bytes)| *v = f32::from_le_bytes(*bytes));
            gguf::quantize(self.ty, part, blocks).map_err(Error::from)?;
        }
        stream.copy_in(self.dst, blocks)
    }
}

fn tensors(arg: &crate::lower::Arg) -> &[TensorArg] {
    match arg {
        crate::lower::Arg::Tensor(t) => std::slice::from_ref(t),
        crate::lower::Arg::Tensors(list) => list,
        _ => &[],
    }
}

/// Checks that a tensor lies inside its region.
fn inside(t: &TensorArg, region: &Region) -> Result<()> {
    let shape = tensor::acl_shape(t).ok_or_else(|| {
        Error::Internal(format!("a lowering has a stride that is no whole number of elements: {t:?}"))
    })?;
    if t.ne.contains(&0) {
        return Ok(());
    }
    let negative = shape.strides.iter().any(|s| *s < 0) || shape.dims.iter().any(|d| *d < 0);
    let end = tensor::storage_bytes(&shape, t.dtype);
    if negative || end > region.bytes() {
        return Err(Error::Internal(format!("a lowering reaches byte {end} of a region of {}: {t:?}", region.bytes())));
    }
    Ok(())
}

/// The address of a span, checked against its region.
fn span(span: &Span, region: &Region) -> Result<u64> {
    match span.offset.checked_add(span.bytes) {
        Some(end) if end <= region.bytes() => Ok(region.address() + span.offset),
        _ => Err(Error::Internal(format!("a lowering's span leaves its region of {} bytes: {span:?}", region.bytes()))),
    }
}

/// Names the node in an error of the library.
fn with_op(error: Error, name: &dyn Fn() -> String) -> Error {
    match error {
        Error::Acl { call, code, detail, op: None } => Error::Acl { call, code, detail, op: Some(name()) },
        Error::Internal(text) => Error::Internal(format!("{}: {text}", name())),
        other => other,
    }
}
