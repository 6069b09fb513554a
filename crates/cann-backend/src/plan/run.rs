//! One run of a plan on one backend: what starts on the caller's thread, what the worker enqueues, and what comes back.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use gguf::GgmlType;
use tokio_util::sync::CancellationToken;

use super::{Encoded, Inner, Input, Single, lock};
use crate::Done;
use crate::acl::memory::PinnedMem;
use crate::buffer::Storage;
use crate::error::{Error, Result};
use crate::private;
use crate::queue::Worker;
use crate::repack::{self, Layout, Regions};
use crate::tensor::Tensor;

/// A run that can be cancelled is enqueued in pieces of this many launches, and the device finishes each before the next.
const CANCEL_BATCH: usize = 32;

/// Staging memory of one run: the plan's own while there is some, else ordinary memory.
enum Slot {
    Pinned(PinnedMem),
    Plain(Vec<u8>),
}

impl Slot {
    fn bytes(&self) -> &[u8] {
        match self {
            Slot::Pinned(memory) => memory.as_slice(),
            Slot::Plain(memory) => memory,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Slot::Pinned(memory) => memory.as_mut_slice(),
            Slot::Plain(memory) => memory,
        }
    }

    fn part(&self, offset: u64, bytes: u64) -> &[u8] {
        &self.bytes()[offset as usize..(offset + bytes) as usize]
    }

    fn part_mut(&mut self, offset: u64, bytes: u64) -> &mut [u8] {
        &mut self.bytes_mut()[offset as usize..(offset + bytes) as usize]
    }
}

/// A device tensor that takes part in a run. Its memory is held from when it was named: disposing it later changes nothing.
struct Held {
    address: u64,
    memory: Arc<Storage>,
    tensor: Tensor,
}

impl Held {
    fn new(tensor: &Tensor) -> Result<Held> {
        let memory = tensor.memory()?;
        Ok(Held { address: memory.address() + tensor.memory_offset(), memory, tensor: tensor.clone() })
    }
}

/// How an input is given.
enum Given {
    /// So many bytes of it, from its beginning on.
    Bytes(u64),
    Tensor(Held),
}

/// A run being put together on the caller's thread.
pub(super) struct SingleRun {
    pub plan: Single,
    slot: Slot,
    given: Vec<Option<Given>>,
    wanted: Vec<bool>,
    output_to: Vec<(usize, Held)>,
    cancel: Option<CancellationToken>,
    trace: Option<Zero>,
}

/// Where a trace counts from, and the process it shows.
#[derive(Clone, Copy)]
pub(super) struct Zero {
    pub begin: Instant,
    pub process: usize,
}

impl Single {
    /// Begins a run. Takes staging memory, makes no ACL call and does not block.
    pub fn start(&self) -> Result<SingleRun> {
        if self.is_disposed() {
            return Err(Error::Disposed { what: "plan" });
        }
        let slot = match lock(&self.0.slots).pop() {
            Some(memory) => Slot::Pinned(memory),
            None => Slot::Plain(vec![0; self.0.slot_bytes as usize]),
        };
        Ok(SingleRun {
            given: self.0.inputs.iter().map(|_| None).collect(),
            wanted: vec![true; self.0.outputs.len()],
            output_to: Vec::new(),
            cancel: None,
            trace: None,
            slot,
            plan: self.clone(),
        })
    }
}

impl SingleRun {
    /// Gives an input what follows of its bytes, in ggml's layout; `offset` says where that begins. They are copied now.
    pub fn input(&mut self, name: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        let at = self.input_index(name)?;
        let input = &self.plan.0.inputs[at];
        let end = offset.saturating_add(bytes.len() as u64);
        let follows = match self.given[at] {
            Some(Given::Bytes(have)) => offset == have || offset == 0,
            _ => offset == 0,
        };
        if !follows || end > input.bytes {
            let got = format!("{} from {offset} on", bytes.len());
            return Err(Error::invalid(
                format!("inputs.{name}"),
                format!("{} bytes ({} {:?}) in order, not {got}", input.bytes, input.ty.name(), input.ne),
            ));
        }
        if input.used {
            self.slot.part_mut(input.slot + offset, bytes.len() as u64).copy_from_slice(bytes);
            if end == input.bytes {
                let all = self.slot.part(input.slot, input.bytes);
                input.indices.iter().try_for_each(|bound| bound.check(name, input.ty, all))?;
            }
        }
        self.given[at] = Some(Given::Bytes(end));
        Ok(())
    }

    /// Gives an input the content a device tensor has when the run starts.
    pub fn input_tensor(&mut self, name: &str, tensor: &Tensor) -> Result<()> {
        let at = self.input_index(name)?;
        let input = &self.plan.0.inputs[at];
        let what = || format!("inputs.{name}");
        let held = Held::new(tensor)?;
        if tensor.backend_id() != self.plan.0.backend.id() {
            return Err(Error::invalid(what(), "a tensor of the backend that made the plan"));
        }
        if tensor.ty() != input.ty || tensor.ne() != input.ne || tensor.layout() != input.layout {
            return Err(Error::invalid(
                what(),
                format!("{} {:?}, not {} {:?}", input.ty.name(), input.ne, tensor.ty().name(), tensor.ne()),
            ));
        }
        if input.slot_f32.is_some() {
            return Err(Error::Unsupported {
                what: what(),
                reason: format!("{} blocks are dequantised by the host: give the bytes", input.ty.name()),
            });
        }
        self.given[at] = Some(Given::Tensor(held));
        Ok(())
    }

    /// Which outputs are read back; all by default.
    pub fn outputs(&mut self, names: Option<Vec<String>>) -> Result<()> {
        if let Some(names) = names {
            self.wanted.fill(false);
            for name in names {
                let at = self.output_index(&name)?;
                self.wanted[at] = true;
            }
        }
        Ok(())
    }

    /// Leaves an output in a device tensor of the same type and extents.
    pub fn output_to(&mut self, name: &str, tensor: &Tensor) -> Result<()> {
        let at = self.output_index(name)?;
        let output = &self.plan.0.outputs[at];
        let held = Held::new(tensor)?;
        if tensor.backend_id() != self.plan.0.backend.id() {
            return Err(Error::invalid(format!("outputTo.{name}"), "a tensor of the backend that made the plan"));
        }
        if tensor.ty() != output.ty || tensor.ne() != output.ne || tensor.layout() != output.layout {
            return Err(Error::invalid(
                format!("outputTo.{name}"),
                format!("{} {:?}, not {} {:?}", output.ty.name(), output.ne, tensor.ty().name(), tensor.ne()),
            ));
        }
        self.output_to.push((at, held));
        Ok(())
    }

    pub fn cancel(&mut self, token: CancellationToken) {
        self.cancel = Some(token);
    }

    /// Times every node; see [`super::Plan::trace`].
    pub fn trace(&mut self, zero: Option<Zero>) {
        self.trace = zero;
    }

    /// Queues the run.
    pub fn submit(self, done: Done<SingleResult>) {
        let lacks = |input: &Input, given: &Option<Given>| match given {
            None => true,
            Some(Given::Bytes(have)) => *have < input.bytes,
            Some(Given::Tensor(_)) => false,
        };
        let missing = self.plan.0.inputs.iter().zip(&self.given).find(|(i, given)| i.used && lacks(i, given));
        if let Some((input, _)) = missing {
            return done(Err(missing_input(&input.name, input.ty, input.ne)));
        }
        let backend = self.plan.0.backend.clone();
        backend.submit_or(done, move |worker, done| self.execute(worker, done));
    }

    fn input_index(&self, name: &str) -> Result<usize> {
        let inputs = &self.plan.0.inputs;
        inputs
            .iter()
            .position(|i| i.name == name)
            .ok_or_else(|| unknown("input", name, inputs.iter().map(|i| &*i.name)))
    }

    fn output_index(&self, name: &str) -> Result<usize> {
        let outputs = &self.plan.0.outputs;
        let names = || outputs.iter().map(|o| &*o.name);
        outputs.iter().position(|o| o.name == name).ok_or_else(|| unknown("output", name, names()))
    }

    /// The run itself, on the worker.
    pub fn execute(mut self, worker: &mut Worker, done: Done<SingleResult>) {
        let plan = self.plan.clone();
        if self.is_cancelled() {
            return done(Err(Error::Cancelled));
        }
        self.pin();
        // Reading a tensor settles what is in flight, so no lock is held meanwhile.
        let mut twins = std::mem::take(&mut *lock(&plan.0.twins));
        let refreshed = twins.iter_mut().try_for_each(|twin| twin.refresh(worker));
        *lock(&plan.0.twins) = twins;
        if let Err(error) = refreshed {
            return done(Err(error));
        }
        // What is copied from or to is rows.
        let given = self.given.iter().flatten().filter_map(|given| match given {
            Given::Tensor(held) => Some(held),
            Given::Bytes(_) => None,
        });
        let mut held = given.chain(self.output_to.iter().map(|(_, held)| held));
        if let Err(error) = held.try_for_each(|held| private::unpack(worker, &held.tensor, &held.memory)) {
            return done(Err(error));
        }
        // The lock is gone before anybody's `done` is called.
        let mut old = None;
        let enqueued = lock(&plan.0.encoded).as_mut().map(|encoded| {
            let into = self.output_to.iter().map(|(_, held)| &held.memory);
            encoded.written.iter().chain(into).for_each(|memory| memory.touch());
            old = encoded.follow(plan.0.id, worker)?;
            self.enqueue(worker, &plan.0, encoded)
        });
        let Some(enqueued) = enqueued else {
            return done(Err(Error::Disposed { what: "plan" }));
        };
        // Whatever was enqueued still uses the slot and the tensors: they stay until the stream is past it. So does a model that
        // gave way.
        let held = (std::mem::take(&mut self.given), std::mem::take(&mut self.output_to));
        let keep = (worker.models.take_evicted(), old, plan.clone(), held);
        worker.settle_after(keep, move |past| match enqueued.and(past) {
            Ok(()) => {
                self.unpack();
                done(Ok(SingleResult { run: self }));
            }
            Err(error) => done(Err(error)),
        });
    }

    /// Moves inputs that waited in ordinary memory to staging that became free meanwhile: copies from there do not block.
    fn pin(&mut self) {
        if let Slot::Plain(bytes) = &self.slot
            && let Some(mut memory) = lock(&self.plan.0.slots).pop()
        {
            for input in self.plan.0.inputs.iter().filter(|i| i.used) {
                let range = input.slot as usize..(input.slot + input.bytes) as usize;
                memory.as_mut_slice()[range.clone()].copy_from_slice(&bytes[range]);
            }
            self.slot = Slot::Pinned(memory);
        }
    }

    fn enqueue(&mut self, worker: &mut Worker, plan: &Inner, encoded: &mut Encoded) -> Result<()> {
        for (at, input) in plan.inputs.iter().enumerate().filter(|(_, i)| i.used) {
            self.enqueue_input(worker, at, input)?;
        }
        if self.trace.is_some() || encoded.program.staging_bytes() > 0 {
            // These wait for the stream on their way.
            worker.settle();
        }
        let mut launched = encoded.program.len() as u64;
        if let Some(zero) = self.trace {
            let trace = launch_traced(worker, plan, encoded, zero)?;
            *lock(&plan.trace) = Some(trace);
        } else if self.cancel.is_some() {
            let launches = encoded.program.len();
            for start in (0..launches).step_by(CANCEL_BATCH) {
                if start > 0 {
                    worker.settle();
                    worker.stream.synchronize()?;
                    if self.is_cancelled() {
                        return Err(Error::Cancelled);
                    }
                }
                encoded.program.launch(start..launches.min(start + CANCEL_BATCH), &worker.stream)?;
            }
        } else {
            launched = launch(worker, plan, encoded)?;
        }
        worker.count_launches(launched);
        for (at, tensor) in &self.output_to {
            let output = &plan.outputs[*at];
            worker.stream.copy_device(tensor.address, output.address, output.bytes)?;
        }
        for (output, _) in plan.outputs.iter().zip(&self.wanted).filter(|(_, wanted)| **wanted) {
            worker.stream.copy_out(self.slot.part_mut(output.slot, output.bytes), output.address)?;
        }
        Ok(())
    }

    fn enqueue_input(&mut self, worker: &mut Worker, at: usize, input: &Input) -> Result<()> {
        let stream = &worker.stream;
        match &self.given[at] {
            Some(Given::Tensor(tensor)) => {
                return stream.copy_device(input.address, tensor.address, input.bytes);
            }
            Some(Given::Bytes(_)) => {}
            // `submit` checked that every used input is given.
            None => return Err(Error::Internal(format!("input '{}' has no value", input.name))),
        }
        if let Some(f32_at) = input.slot_f32 {
            let mut values = vec![0f32; input.elements as usize];
            gguf::dequantize(input.ty, self.slot.part(input.slot, input.bytes), &mut values).map_err(Error::from)?;
            let place = self.slot.part_mut(f32_at, input.elements * 4);
            place.as_chunks_mut::<4>().0.iter_mut().zip(&values).for_each(|(b, v)| *b = v.to_le_bytes());
            stream.copy_in(input.address_f32, self.slot.part(f32_at, input.elements * 4))?;
        }
        if input.address == 0 {
            return Ok(());
        }
        let from = match input.slot_device {
            Some(device_at) => {
                let (blocks, place) = self.slot.bytes_mut().split_at_mut(device_at as usize);
                let blocks = &blocks[input.slot as usize..(input.slot + input.bytes) as usize];
                pack(input.layout, input.ty, input.elements, blocks, &mut place[..input.bytes as usize])?;
                device_at
            }
            None => input.slot,
        };
        stream.copy_in(input.address, self.slot.part(from, input.bytes))
    }

    /// Turns what the device laid out its own way back into ggml blocks, when the copies have arrived.
    fn unpack(&mut self) {
        for (output, _) in self.plan.0.outputs.iter().zip(&self.wanted).filter(|(_, wanted)| **wanted) {
            if let Some(ggml_at) = output.slot_ggml {
                let (device, place) = self.slot.bytes_mut().split_at_mut(ggml_at as usize);
                let device = &device[output.slot as usize..(output.slot + output.bytes) as usize];
                unpack(output.layout, output.ty, output.elements, device, &mut place[..output.bytes as usize]);
            }
        }
    }

    fn is_cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(CancellationToken::is_cancelled)
    }
}

/// Enqueues all of a plan: as one submission where it has a model or may have one now. Answers how many submissions it took.
fn launch(worker: &mut Worker, plan: &Inner, encoded: &mut Encoded) -> Result<u64> {
    if encoded.captures {
        // A disposed plan has given its place away for good.
        let make = !worker.models.has(plan.id) && worker.models.has_room() && !plan.disposed.load(Ordering::Acquire);
        if make {
            encoded.capture(plan.id, worker);
        }
        if let Some(model) = worker.models.replay(plan.id) {
            model.execute(&worker.stream)?;
            return Ok(1);
        }
    }
    encoded.program.launch_all(&worker.stream)?;
    Ok(encoded.program.len() as u64)
}

impl Drop for SingleRun {
    fn drop(&mut self) {
        let plan = &self.plan.0;
        let slot = std::mem::replace(&mut self.slot, Slot::Plain(Vec::new()));
        if let (Slot::Pinned(memory), false) = (slot, plan.disposed.load(Ordering::Acquire)) {
            lock(&plan.slots).push(memory);
        }
    }
}

/// A whole tensor's ggml blocks in the device's layout.
fn pack(layout: Layout, ty: GgmlType, elements: u64, blocks: &[u8], device: &mut [u8]) -> Result<()> {
    let regions = Regions::new(layout, ty, elements).ok_or_else(|| Error::Internal("an input has no layout".into()))?;
    let (quants, rest) = device.split_at_mut(regions.quants.end as usize);
    let (scales, offsets) = rest.split_at_mut((regions.scales.end - regions.scales.start) as usize);
    repack::to_device(layout, blocks, quants, scales, offsets)
        .map_err(|e| Error::invalid("inputs", format!("finite scales; block {} has none", e.block)))
}

/// The inverse of [`pack`].
fn unpack(layout: Layout, ty: GgmlType, elements: u64, device: &[u8], blocks: &mut [u8]) {
    if let Some(regions) = Regions::new(layout, ty, elements) {
        let part = |r: &std::ops::Range<u64>| &device[r.start as usize..r.end as usize];
        repack::from_device(layout, part(&regions.quants), part(&regions.scales), part(&regions.offsets), blocks);
    }
}

/// An input that has no value.
pub(super) fn missing_input(name: &str, ty: GgmlType, ne: [i64; 4]) -> Error {
    Error::invalid(format!("inputs.{name}"), format!("a value: {} {ne:?}", ty.name()))
}

pub(super) fn unknown<'a>(what: &'static str, name: &str, known: impl Iterator<Item = &'a str>) -> Error {
    let known: Vec<_> = known.collect();
    Error::invalid(format!("{what} '{name}'"), format!("an {what} of the plan: {}", known.join(", ")))
}

/// The results of a run, in staging memory. Dropping it gives the memory back to the plan.
pub(super) struct SingleResult {
    run: SingleRun,
}

impl SingleResult {
    /// The packed bytes of an output that was asked for.
    pub fn output(&self, name: &str) -> Option<&[u8]> {
        let outputs = &self.run.plan.0.outputs;
        let at = outputs.iter().position(|o| o.name == name).filter(|at| self.run.wanted[*at])?;
        let output = &outputs[at];
        Some(self.run.slot.part(output.slot_ggml.unwrap_or(output.slot), output.bytes))
    }

    /// Names of the outputs that were asked for.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.run.plan.0.outputs.iter().zip(&self.run.wanted).filter(|(_, wanted)| **wanted).map(|(o, _)| &*o.name)
    }
}

/// Runs node by node, each to its end, and writes down how long each took: trace events, separated by commas.
fn launch_traced(worker: &Worker, plan: &Inner, encoded: &mut Encoded, zero: Zero) -> Result<String> {
    let stream = &worker.stream;
    stream.synchronize()?;
    let mut json = String::new();
    let ends = encoded.node_launches.iter().skip(1).copied().chain([encoded.program.len()]);
    let ranges: Vec<_> = encoded.node_launches.iter().copied().zip(ends).collect();
    for (position, (start, end)) in ranges.into_iter().enumerate() {
        let from = zero.begin.elapsed();
        encoded.program.launch(start..end, stream)?;
        stream.synchronize()?;
        let took = zero.begin.elapsed() - from;
        let (op, node, calls) = match plan.report.get(position) {
            Some(row) => (&*row.op, &*row.node, row.calls.join(",")),
            None => ("OUTPUT", "outputs", String::new()),
        };
        let comma = if position == 0 { "" } else { "," };
        // Writing to a String cannot fail.
        let _ = write!(
            json,
            "{comma}{{\"name\":{},\"cat\":\"node\",\"ph\":\"X\",\"ts\":{:.3},\"dur\":{:.3},\"pid\":{},\"tid\":1,\
             \"args\":{{\"node\":{},\"calls\":{}}}}}",
            quoted(op),
            from.as_secs_f64() * 1e6,
            took.as_secs_f64() * 1e6,
            zero.process,
            quoted(node),
            quoted(&calls)
        );
    }
    Ok(json)
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if u32::from(c) < 0x20 => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn json_strings_are_escaped() {
        assert_eq!(super::quoted("a\"b\\\n"), "\"a\\\"b\\\\\\u000a\"");
    }
}
