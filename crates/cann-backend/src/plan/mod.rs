//! Plans: a graph made ready for one backend, to run many times.
//!
//! [`Backend::prepare`] does everything that can be done once, on the worker: lowering (`lower.rs`), placement (`place.rs`),
//! constants, executors, and a captured model where the library can capture. `run.rs` replays. What a run needs on the
//! JavaScript thread (staging memory, shapes) is kept in the [`Plan`] so that starting one takes no lock of the worker.
//!
//! With a fallback backend, a graph with nodes that are refused here becomes several such plans (`split.rs`) that run one after
//! another (`relay.rs`). `handle.rs` is what users hold in either case.

mod handle;
mod indices;
mod lower;
mod place;
mod relay;
mod run;
mod select;
mod split;
mod weights;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use gguf::GgmlType;

use crate::Done;
use crate::acl::capture::Model;
use crate::acl::memory::{DeviceMem, PinnedMem};
use crate::acl::program::{Program, Region};
use crate::backend::Backend;
use crate::buffer::Storage;
use crate::caps::DeviceCaps;
use crate::error::{Error, Result};
use crate::graph::{Graph, Leaf, NodeId};
use crate::lower::{Lowering, Mem, Step};
use crate::pool::env_switch;
use crate::queue::{Closable, Segment, Worker};
use crate::repack::Layout;
use crate::tensor::Tensor;

pub use handle::{Plan, RunBuilder, RunResult};

/// Options of [`Backend::prepare`].
#[derive(Clone, Debug, Default)]
pub struct PrepareOptions {
    /// Replay a captured model where the library can capture. `None`: as `GGML_CANN_ACL_GRAPH` says, else yes.
    pub capture: Option<bool>,
    /// Let one call do the work of several nodes where an operator can. `None`: as `GGML_CANN_OPERATOR_FUSION` says, else yes.
    pub fuse: Option<bool>,
    /// Keep weights that only products read in the chip's private format. `None`: as `GGML_CANN_WEIGHT_NZ` says, else where it pays.
    pub private_weights: Option<bool>,
    /// Takes the nodes that this device refuses; without it, nothing moves.
    pub fallback: Option<Backend>,
}

/// One row of [`Plan::report`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportRow {
    pub node: String,
    pub op: String,
    pub device: String,
    pub calls: Vec<String>,
    pub note: Option<String>,
}

/// A graph input as runs see it.
#[derive(Clone, Debug)]
struct Input {
    pub name: String,
    pub ty: GgmlType,
    pub ne: [i64; 4],
    /// Bytes in ggml's layout: what a caller gives.
    pub bytes: u64,
    pub layout: Layout,
    pub elements: u64,
    /// Whether any step reads it.
    pub used: bool,
    /// Where the caller's bytes go in a run slot, and where their transformed copy goes when the layout differs.
    pub slot: u64,
    pub slot_device: Option<u64>,
    pub slot_f32: Option<u64>,
    /// What its values select, where they are indices.
    pub indices: Vec<indices::Bound>,
    /// Device addresses, 0 where not needed: as laid out, and dequantised.
    pub address: u64,
    pub address_f32: u64,
}

/// A graph output as runs see it.
#[derive(Clone, Debug)]
struct Output {
    pub name: String,
    pub ty: GgmlType,
    pub ne: [i64; 4],
    pub bytes: u64,
    pub layout: Layout,
    pub elements: u64,
    /// Where the device's bytes land in a run slot, and where the ggml blocks made of them go when the layout differs.
    pub slot: u64,
    pub slot_ggml: Option<u64>,
    pub address: u64,
}

/// What only the worker touches.
struct Encoded {
    program: Program,
    /// There is one when weights are read in the private format.
    encoding: Option<weights::Encoding>,
    /// Whether it may be captured: it is wanted, and the library did not refuse.
    captures: bool,
    /// First launch of each node, for traces.
    node_launches: Vec<usize>,
    /// Memory of the device tensors that the graph writes into.
    written: Vec<Arc<Storage>>,
}

impl Encoded {
    /// Puts another program in place when a weight it reads got its rows back. The old one, and its model, may still run.
    fn follow(&mut self, id: u64, worker: &mut Worker) -> Result<Option<(Option<Model>, Program)>> {
        let Some(encoding) = &mut self.encoding else { return Ok(None) };
        let Some(program) = encoding.follow(worker)? else { return Ok(None) };
        Ok(Some((worker.models.remove(id), std::mem::replace(&mut self.program, program))))
    }

    /// Makes a model of the program, unless the library refuses.
    fn capture(&mut self, id: u64, worker: &mut Worker) {
        match self.program.capture(&worker.lease, &worker.stream) {
            Some(model) => worker.models.insert(id, model),
            None => self.captures = false,
        }
    }
}

/// f32 values of a device tensor that is kept in ggml blocks: made when the plan is prepared, and again when it was written.
struct Twin {
    tensor: Tensor,
    memory: Arc<Storage>,
    values: Region,
    writes: u64,
}

impl Twin {
    /// On the worker, in stream order. A disposed tensor cannot change any more.
    fn refresh(&mut self, worker: &mut Worker) -> Result<()> {
        let writes = self.memory.writes();
        if self.writes != writes && !self.tensor.is_disposed() {
            let values = dequantized(worker, &self.tensor)?;
            worker.stream.copy_in(self.values.address(), &values)?;
            self.writes = writes;
        }
        Ok(())
    }
}

/// The values of a tensor in ggml blocks, as the bytes of f32.
fn dequantized(worker: &mut Worker, tensor: &Tensor) -> Result<Vec<u8>> {
    let blocks = tensor.read_whole(worker)?;
    let mut values = vec![0f32; tensor.nelements() as usize];
    gguf::dequantize(tensor.ty(), &blocks, &mut values).map_err(Error::from)?;
    Ok(values.iter().flat_map(|v| v.to_le_bytes()).collect())
}

struct Inner {
    backend: Backend,
    /// Its key in [`Worker::models`].
    id: u64,
    inputs: Vec<Input>,
    outputs: Vec<Output>,
    scratch_bytes: u64,
    report: Vec<ReportRow>,
    slot_bytes: u64,
    slots: Mutex<Vec<PinnedMem>>,
    twins: Mutex<Vec<Twin>>,
    /// `None` once disposed.
    encoded: Mutex<Option<Encoded>>,
    disposed: AtomicBool,
    trace: Mutex<Option<String>>,
}

/// A graph prepared for one backend. Clones share it; the last one gone gives its memory back on the worker.
#[derive(Clone)]
struct Single(Arc<Inner>);

/// Staging for this many runs is made with the plan; runs that wait behind them begin in ordinary memory.
const PINNED_SLOTS: usize = 4;

impl Backend {
    /// Makes a graph ready to run here.
    pub fn prepare(&self, graph: Graph, options: PrepareOptions, done: Done<Plan>) {
        let backend = self.clone();
        self.submit_or(done, move |worker, done| {
            let span = tracing::info_span!("graph.prepare", nodes = graph.nodes().len());
            let _here = span.enter();
            match options.fallback.clone().filter(|other| other.id() != backend.id()) {
                Some(fallback) => relay::prepare([backend, fallback], worker, graph, options, done),
                None => done(prepare(&backend, worker, &graph, &options).map(Plan::from)),
            }
        });
    }

    /// Whether this device takes a node.
    pub fn supports_op(&self, graph: &Graph, node: NodeId) -> bool {
        self.explain_op(graph, node).is_none()
    }

    /// The rule that refuses a node here; `None` when it is supported.
    pub fn explain_op(&self, graph: &Graph, node: NodeId) -> Option<String> {
        lower::single(graph, node, self.caps()).err()
    }

    /// ggml's rule for moving a node with its weights to the device: batches of 32 and more (or
    /// `GGML_OP_OFFLOAD_MIN_BATCH`), and no GET_ROWS.
    pub fn offload_op(&self, graph: &Graph, node: NodeId) -> bool {
        let node = graph.node(node);
        let least = std::env::var("GGML_OP_OFFLOAD_MIN_BATCH").ok().and_then(|v| v.parse().ok()).unwrap_or(32);
        let batch = if node.op.name == "MUL_MAT_ID" { node.ne[2] } else { node.ne[1] };
        batch >= least && node.op.name != "GET_ROWS"
    }
}

/// The ACL calls a node is lowered to on a device of these capabilities, in order, or the rule that refuses it.
pub fn calls(graph: &Graph, node: NodeId, caps: &DeviceCaps) -> std::result::Result<Vec<&'static str>, String> {
    lower::single(graph, node, caps).map(|steps| steps.iter().map(call_name).collect())
}

/// What a step calls.
fn call_name(step: &Step) -> &'static str {
    match step {
        Step::Call { op, .. } => op.name(),
        Step::Copy { .. } => "aclrtMemcpyAsync",
        Step::Fill { .. } => "aclrtMemsetAsync",
        Step::Quantize { .. } => "host quantize",
    }
}

impl Single {
    pub fn scratch_bytes(&self) -> u64 {
        self.0.scratch_bytes
    }

    pub fn inputs(&self) -> Vec<String> {
        self.0.inputs.iter().map(|i| i.name.clone()).collect()
    }

    pub fn outputs(&self) -> Vec<String> {
        self.0.outputs.iter().map(|o| o.name.clone()).collect()
    }

    /// Type, extents and bytes of an input.
    pub fn input_info(&self, name: &str) -> Option<(GgmlType, [i64; 4], u64)> {
        self.0.inputs.iter().find(|i| i.name == name).map(|i| (i.ty, i.ne, i.bytes))
    }

    /// Whether a run needs this input.
    fn uses_input(&self, name: &str) -> bool {
        self.0.inputs.iter().any(|i| i.name == name && i.used)
    }

    /// Type, extents and bytes of an output.
    pub fn output_info(&self, name: &str) -> Option<(GgmlType, [i64; 4], u64)> {
        self.0.outputs.iter().find(|o| o.name == name).map(|o| (o.ty, o.ne, o.bytes))
    }

    /// What runs where, by which calls.
    pub fn report(&self) -> &[ReportRow] {
        &self.0.report
    }

    /// Events of the last run that asked for a trace, separated by commas.
    pub fn trace(&self) -> Option<String> {
        lock(&self.0.trace).clone()
    }

    /// Marks the plan at once; its memory goes back when the last run is past.
    pub fn dispose(&self) {
        if !self.0.disposed.swap(true, Ordering::AcqRel) {
            let inner = self.0.clone();
            // In stream order. A closed backend has freed everything already.
            let _ = self.0.backend.submit(move |worker| {
                let model = worker.models.remove(inner.id);
                worker.settle_after(model, move |_| inner.free());
            });
        }
    }

    pub fn is_disposed(&self) -> bool {
        self.0.disposed.load(Ordering::Acquire)
    }
}

impl Inner {
    /// On the worker, when the stream is past every run.
    fn free(&self) {
        drop(lock(&self.encoded).take());
        lock(&self.slots).clear();
        lock(&self.twins).clear();
    }
}

impl Closable for Inner {
    fn close(&self, worker: &mut Worker) {
        self.disposed.store(true, Ordering::Release);
        drop(worker.models.remove(self.id));
        self.free();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Executors and models go where ACL is called: on the worker, in stream order.
        let encoded = lock(&self.encoded).take();
        if let Some(encoded) = encoded {
            let (id, slots) = (self.id, std::mem::take(&mut *lock(&self.slots)));
            // A closed backend has dropped the model.
            let _ = self.backend.submit(move |worker| {
                let model = worker.models.remove(id);
                worker.settle_after((model, encoded, slots), |_| ());
            });
        }
    }
}

/// A tensor's memory, alive as long as the region is.
fn tensor_region(tensor: &Tensor) -> Result<Region> {
    let memory = tensor.memory()?;
    let (address, bytes) = (memory.address() + tensor.memory_offset(), memory.bytes() - tensor.memory_offset());
    Ok(Region::new(memory, address, bytes))
}

fn segment_region(segment: Arc<Segment>) -> Region {
    let (address, bytes) = (segment.address(), segment.bytes());
    Region::new(segment, address, bytes)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while a lock was held is reported where it happened; the data are replaced whole, never half.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives a program what its calls work in.
fn equip(worker: &mut Worker, program: &mut Program) -> Result<()> {
    let workspace_bytes = program.workspace_bytes();
    if workspace_bytes > 0 {
        program.set_workspace(&segment_region(worker.workspace(workspace_bytes)?))?;
    }
    let staging_bytes = program.staging_bytes();
    if staging_bytes > 0 {
        program.set_staging(worker.pinned(staging_bytes)?);
    }
    Ok(())
}

const OVERFLOW: &str = "the sizes of this graph overflow";

fn prepare(backend: &Backend, worker: &mut Worker, graph: &Graph, options: &PrepareOptions) -> Result<Single> {
    let device = backend.name().to_owned();
    let fuse = options.fuse.unwrap_or_else(|| env_switch("GGML_CANN_OPERATOR_FUSION").unwrap_or(true));
    let lowered = lower::lower(graph, &worker.caps, &device, fuse)?;
    let mut slot = SlotLayout::default();
    let mut inputs = inputs(graph, &lowered, &mut slot)?;
    let mut outputs = outputs(graph, &lowered, &mut slot)?;

    // Everything that needs scratch memory, placed by lifetime.
    let mut items = Vec::new();
    let mut root_items = vec![None; graph.nodes().len()];
    for (i, life) in lowered.lives.iter().enumerate() {
        let node = &graph.nodes()[i];
        if let (Some(life), false) = (life, matches!(node.leaf, Some(Leaf::Tensor(_)))) {
            let bytes = lower::layout(node)
                .device_bytes(node.ty, node.nelements().unsigned_abs())
                .ok_or_else(|| Error::invalid("graph", OVERFLOW))?;
            root_items[i] = Some(items.len());
            items.push(place::Item { bytes: bytes.max(node.span_bytes()), first: life.start, last: life.end });
        }
    }
    let first_temp = items.len();
    items.extend(lowered.lowering.temps.iter().map(|t| place::Item { bytes: t.bytes, first: t.first, last: t.last }));
    let first_twin = items.len();
    let twins: Vec<NodeId> =
        lowered.dequantized.iter().copied().filter(|id| matches!(graph.node(*id).leaf, Some(Leaf::Input))).collect();
    for id in &twins {
        let bytes = (graph.node(*id).nelements().unsigned_abs()).checked_mul(4);
        let bytes = bytes.ok_or_else(|| Error::invalid("graph", OVERFLOW))?;
        items.push(place::Item { bytes, first: 0, last: lowered.nodes.len() });
    }
    let (offsets, arena_bytes) = place::place(&items).ok_or_else(|| Error::invalid("graph", OVERFLOW))?;

    let arena = segment_region(worker.scratch(arena_bytes.max(1))?);
    let constants = constants(worker, graph, &lowered)?;
    let part = |item: usize| arena.part(offsets[item], items[item].bytes.max(1));
    let resolve = |mem: Mem| -> Option<Region> {
        match mem {
            Mem::Node(id) => match &graph.node(id).leaf {
                Some(Leaf::Tensor(tensor)) => tensor_region(tensor).ok(),
                _ => root_items[id.index()].map(part),
            },
            Mem::Temp(i) => Some(part(first_temp + i)),
            Mem::Const(i) => constants.parts.get(i).cloned(),
            Mem::Dequant(id) => match twins.iter().position(|t| *t == id) {
                Some(i) => Some(part(first_twin + i)),
                None => constants.twins.iter().find(|(t, _)| *t == id).map(|(_, r)| r.clone()),
            },
        }
    };
    for leaf in graph.nodes() {
        if let Some(Leaf::Tensor(tensor)) = &leaf.leaf {
            // A disposed tensor is reported as such, not as memory without a place.
            if tensor.backend_id() != backend.id() {
                return Err(Error::invalid(
                    format!("tensor '{}'", tensor.name()),
                    format!("a tensor of {device}, where the graph is prepared"),
                ));
            }
            tensor_region(tensor)?;
        }
    }
    let name = |position: usize| match lowered.nodes.get(position) {
        Some(id) => format!("{} ({})", graph.node(*id).op.name, graph.node(*id).name),
        None => "output".to_owned(),
    };
    let caps = &worker.caps;
    let pays = || env_switch("GGML_CANN_WEIGHT_NZ").unwrap_or(caps.weight_nz_pays);
    let wanted = caps.weight_nz && options.private_weights.unwrap_or_else(pays);
    let weights = weights::choose(worker, graph, &lowered, wanted)?;
    let names = || (0..lowered.nodes.len()).map(name).collect();
    let mut encoding = (!weights.is_empty()).then(|| weights::Encoding::new(&lowered, weights, names(), &resolve));
    let mut program = match &encoding {
        Some(encoding) => encoding.encode(worker)?,
        None => {
            let mut program = Program::encode(&worker.api, &lowered.lowering, &resolve, &name)?;
            equip(worker, &mut program)?;
            program
        }
    };
    let workspace_bytes = program.workspace_bytes();
    for input in inputs.iter_mut().filter(|i| i.used) {
        let id = graph.input_named(&input.name).expect("inputs come from the graph");
        input.address = resolve(Mem::Node(id)).map_or(0, |r| r.address());
        if input.slot_f32.is_some() {
            input.address_f32 = resolve(Mem::Dequant(id)).map_or(0, |r| r.address());
        }
        program.hold(&arena);
    }
    for (output, operand) in outputs.iter_mut().zip(&lowered.packed) {
        let region = resolve(operand.mem).ok_or_else(|| Error::Internal("an output has no place".into()))?;
        output.address = region.address() + operand.offset;
        program.hold(&region);
        encoding.iter_mut().for_each(|e| e.hold(&region));
    }
    encoding.iter_mut().for_each(|e| e.hold(&arena));
    let slots = (0..PINNED_SLOTS).map(|_| worker.pinned(slot.bytes.max(1))).collect::<Result<Vec<_>>>()?;
    let mut twins_of_tensors = Vec::new();
    for (id, values) in &constants.twins {
        if let Some(Leaf::Tensor(tensor)) = &graph.node(*id).leaf {
            let memory = tensor.memory()?;
            let (tensor, values, writes) = (tensor.clone(), values.clone(), memory.writes());
            twins_of_tensors.push(Twin { tensor, memory, values, writes });
        }
    }
    let mut written: Vec<Arc<Storage>> = Vec::new();
    for id in &lowered.nodes {
        if let Some(Leaf::Tensor(tensor)) = &graph.node(graph.node(*id).root).leaf {
            let memory = tensor.memory()?;
            if !written.iter().any(|w| Arc::ptr_eq(w, &memory)) {
                written.push(memory);
            }
        }
    }
    let mut report = report(graph, &lowered, &device);
    for (position, row) in report.iter_mut().enumerate() {
        if encoding.as_ref().is_some_and(|e| e.reads_private(position)) {
            let note = row.note.take().map_or(String::new(), |note| note + "; ");
            row.note = Some(note + "weight kept as FRACTAL_NZ");
        }
    }
    let wanted = options.capture.unwrap_or_else(|| env_switch("GGML_CANN_ACL_GRAPH").unwrap_or(true));
    let node_launches = lowered.lowering.node_steps.iter().map(|r| r.start).collect();
    let captures = wanted && worker.caps.capture;
    let mut encoded = Encoded { program, encoding, captures, node_launches, written };
    static NEXT_ID: AtomicU64 = AtomicU64::new(1);
    let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
    if encoded.captures && worker.models.takes_new() {
        encoded.capture(id, worker);
        let evicted = worker.models.take_evicted();
        worker.settle_after(evicted, |_| ());
    }
    let inner = Arc::new(Inner {
        backend: backend.clone(),
        id,
        inputs,
        outputs,
        scratch_bytes: arena_bytes + workspace_bytes + constants.bytes,
        report,
        slot_bytes: slot.bytes.max(1),
        slots: Mutex::new(slots),
        twins: Mutex::new(twins_of_tensors),
        encoded: Mutex::new(Some(encoded)),
        disposed: AtomicBool::new(false),
        trace: Mutex::new(None),
    });
    let closable: Weak<dyn Closable> = Arc::downgrade(&(inner.clone() as Arc<dyn Closable>));
    backend.shared().register(closable);
    Ok(Single(inner))
}

/// Offsets in a run slot, 64-byte aligned.
#[derive(Default)]
struct SlotLayout {
    bytes: u64,
}

impl SlotLayout {
    fn take(&mut self, bytes: u64) -> Result<u64> {
        let at = self.bytes;
        self.bytes = at
            .checked_add(bytes)
            .and_then(|b| b.checked_next_multiple_of(64))
            .ok_or_else(|| Error::invalid("graph", OVERFLOW))?;
        Ok(at)
    }
}

fn inputs(graph: &Graph, lowered: &lower::Lowered, slot: &mut SlotLayout) -> Result<Vec<Input>> {
    let mut list = Vec::new();
    for (i, node) in graph.nodes().iter().enumerate() {
        let id = NodeId(i as u32);
        if !matches!(node.leaf, Some(Leaf::Input)) {
            continue;
        }
        let twin = lowered.dequantized.contains(&id);
        let used = lowered.lives[i].is_some() || twin;
        let elements = node.nelements().unsigned_abs();
        let layout = lower::input_layout(node.ty);
        let bytes = if node.is_empty() { 0 } else { node.nb[3] * node.ne[3].unsigned_abs() };
        let mut input = Input {
            name: node.name.clone(),
            ty: node.ty,
            ne: node.ne,
            bytes,
            layout,
            elements,
            used,
            slot: 0,
            slot_device: None,
            slot_f32: None,
            indices: indices::bounds(graph, &lowered.nodes, id),
            address: 0,
            address_f32: 0,
        };
        if used {
            input.slot = slot.take(bytes)?;
            if !matches!(layout, Layout::Plain | Layout::Blocks) {
                input.slot_device = Some(slot.take(bytes)?);
            }
            if twin {
                input.slot_f32 = Some(slot.take(elements * 4)?);
            }
        }
        list.push(input);
    }
    Ok(list)
}

fn outputs(graph: &Graph, lowered: &lower::Lowered, slot: &mut SlotLayout) -> Result<Vec<Output>> {
    let mut list = Vec::new();
    for ((name, id), operand) in graph.outputs().iter().zip(&lowered.packed) {
        let node = graph.node(*id);
        let elements = node.nelements().unsigned_abs();
        let bytes = if node.is_empty() {
            0
        } else {
            crate::graph::contiguous_nb(node.ty, node.ne)
                .map(|nb| nb[3] * node.ne[3].unsigned_abs())
                .ok_or_else(|| Error::invalid("graph", OVERFLOW))?
        };
        let at = slot.take(bytes)?;
        let transformed = !matches!(operand.layout, Layout::Plain | Layout::Blocks);
        if transformed && elements != operand.root_elements {
            return Err(Error::Unsupported {
                what: format!("output '{name}'"),
                reason: "a part of a quantised tensor cannot be read as an output; read the whole, or dequantise it"
                    .into(),
            });
        }
        let slot_ggml = if transformed { Some(slot.take(bytes)?) } else { None };
        list.push(Output {
            name: name.clone(),
            ty: node.ty,
            ne: node.ne,
            bytes,
            layout: operand.layout,
            elements,
            slot: at,
            slot_ggml,
            address: 0,
        });
    }
    Ok(list)
}

/// Constants of the lowering and dequantised device tensors, on the device.
struct Constants {
    parts: Vec<Region>,
    twins: Vec<(NodeId, Region)>,
    bytes: u64,
}

fn constants(worker: &mut Worker, graph: &Graph, lowered: &lower::Lowered) -> Result<Constants> {
    let mut host: Vec<(Option<NodeId>, Vec<u8>)> =
        lowered.lowering.constants.iter().map(|c| (None, c.clone())).collect();
    for id in &lowered.dequantized {
        if let Some(Leaf::Tensor(tensor)) = &graph.node(*id).leaf {
            host.push((Some(*id), dequantized(worker, tensor)?));
        }
    }
    let mut list = Constants { parts: Vec::new(), twins: Vec::new(), bytes: 0 };
    let offsets: Vec<u64> = host
        .iter()
        .map(|(_, bytes)| {
            let at = list.bytes;
            list.bytes += (bytes.len() as u64).max(1).next_multiple_of(place::ALIGNMENT);
            at
        })
        .collect();
    if host.is_empty() {
        return Ok(list);
    }
    let memory: Arc<DeviceMem> = Arc::new(worker.device_mem(list.bytes)?);
    let (address, bytes) = (memory.address(), memory.bytes());
    let region = Region::new(memory, address, bytes);
    // The sources are ordinary memory, which the copies are done with when they return.
    for ((id, bytes), offset) in host.iter().zip(offsets) {
        worker.stream.copy_in(region.address() + offset, bytes)?;
        let part = region.part(offset, bytes.len() as u64);
        match id {
            None => list.parts.push(part),
            Some(id) => list.twins.push((*id, part)),
        }
    }
    Ok(list)
}

fn report(graph: &Graph, lowered: &lower::Lowered, device: &str) -> Vec<ReportRow> {
    let calls = |lowering: &Lowering, position: usize| -> Vec<String> {
        lowering.steps[lowering.node_steps[position].clone()].iter().map(|s| call_name(s).to_owned()).collect()
    };
    let row = |(position, id): (usize, &NodeId)| ReportRow {
        node: graph.node(*id).name.clone(),
        op: graph.node(*id).op.name.to_owned(),
        device: device.to_owned(),
        calls: calls(&lowered.lowering, position),
        note: lowered.lowering.notes[position].clone(),
    };
    lowered.nodes.iter().enumerate().map(row).collect()
}
