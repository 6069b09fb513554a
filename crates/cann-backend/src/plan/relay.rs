//! A plan over two backends: ordinary plans that run one after another, each on its own worker.
//!
//! All steps of a run enter both queues at once, so a run has its place in the order of either backend, and runs of one plan
//! never overlap. A worker whose turn comes before the other's step is done waits for it. What one part gives to another stays in
//! its run slot until it is copied into the other's: through host memory, whatever the devices are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

use gguf::GgmlType;
use tokio_util::sync::CancellationToken;

use super::run::{SingleResult, SingleRun, Zero, missing_input, unknown};
use super::split::{self, Carried, FALLBACK, PRIMARY, Part, Place, Side};
use super::{Plan, PrepareOptions, ReportRow, Single};
use crate::Done;
use crate::backend::{Backend, pair_order};
use crate::buffer::Storage;
use crate::error::{Error, Result};
use crate::graph::{Graph, Leaf};
use crate::queue::{Shared, Task, Worker};
use crate::tensor::Tensor;

/// A plan whose parts run on two backends.
#[derive(Clone)]
pub(super) struct Relay(Arc<Inner>);

struct Inner {
    backends: [Backend; 2],
    legs: Vec<Leg>,
    inputs: Vec<Port>,
    /// With the leg that has it.
    outputs: Vec<(Port, usize)>,
    mirrors: Vec<Mirror>,
    report: Vec<ReportRow>,
    disposed: AtomicBool,
}

/// One part, prepared.
struct Leg {
    side: Side,
    plan: Single,
    carried: Vec<Carried>,
    gives: Vec<String>,
}

#[derive(Clone)]
struct Port {
    name: String,
    ty: GgmlType,
    ne: [i64; 4],
    bytes: u64,
}

/// A copy of a device tensor on the other side.
struct Mirror {
    source: Tensor,
    memory: Arc<Storage>,
    copy: Tensor,
    /// Where the copy is.
    side: Side,
    /// [`Storage::writes`] of the source when it was copied.
    writes: AtomicU64,
}

/// Splits and prepares, beginning on the primary's worker. Without a need for the fallback the result is an ordinary plan.
pub(super) fn prepare(
    backends: [Backend; 2],
    worker: &mut Worker,
    graph: Graph,
    options: PrepareOptions,
    done: Done<Plan>,
) {
    let places = [PRIMARY, FALLBACK].map(|side| Place {
        id: backends[side].id(),
        name: backends[side].name(),
        caps: backends[side].caps(),
    });
    let parts = match split::split(&graph, &places) {
        Ok(Some(parts)) => parts,
        Ok(None) => return done(super::prepare(&backends[PRIMARY], worker, &graph, &options).map(Plan::from)),
        Err(error) => return done(Err(error)),
    };
    let mut making = Making::new(backends, graph, options, parts);
    if let Err(error) = making.read(worker, PRIMARY) {
        return done(Err(error));
    }
    // A mirror is read by one worker and made by the other, so it takes a visit to the fallback and one back.
    making.backends[FALLBACK].clone().submit_or(done, move |worker, done| {
        let made = making.read(worker, FALLBACK).and_then(|()| making.make(worker, FALLBACK));
        if let Err(error) = made {
            return done(Err(error));
        }
        making.backends[PRIMARY].clone().submit_or(done, move |worker, done| {
            done(making.make(worker, PRIMARY).and_then(|()| making.finish()).map(Plan::from));
        });
    });
}

/// A mirror that is not there yet.
struct Plate {
    source: Tensor,
    side: Side,
    read: Option<(Arc<Storage>, u64, Vec<u8>)>,
    made: Option<Mirror>,
}

/// A relay being prepared.
struct Making {
    backends: [Backend; 2],
    graph: Graph,
    options: PrepareOptions,
    parts: Vec<Part>,
    outputs: Vec<usize>,
    plates: Vec<Plate>,
    plans: Vec<Option<Single>>,
}

impl Making {
    fn new(backends: [Backend; 2], graph: Graph, options: PrepareOptions, split: split::Parts) -> Making {
        let mut plates: Vec<Plate> = Vec::new();
        for part in &split.parts {
            for (_, tensor) in &part.mirrored {
                if !plates.iter().any(|p| p.side == part.side && p.source.id() == tensor.id()) {
                    plates.push(Plate { source: tensor.clone(), side: part.side, read: None, made: None });
                }
            }
        }
        let plans = split.parts.iter().map(|_| None).collect();
        Making { backends, graph, options, parts: split.parts, outputs: split.outputs, plates, plans }
    }

    /// Reads what the other side mirrors, on the worker of `side`.
    fn read(&mut self, worker: &mut Worker, side: Side) -> Result<()> {
        for plate in self.plates.iter_mut().filter(|p| p.side != side) {
            let memory = plate.source.memory()?;
            let writes = memory.writes();
            let bytes = plate.source.read_held(worker, &memory)?;
            plate.read = Some((memory, writes, bytes));
        }
        Ok(())
    }

    /// Makes the mirrors and plans of `side`, on its worker.
    fn make(&mut self, worker: &mut Worker, side: Side) -> Result<()> {
        for plate in self.plates.iter_mut().filter(|p| p.side == side) {
            let Some((memory, writes, bytes)) = plate.read.take() else {
                return Err(Error::Internal("a mirror is made before it is read".into()));
            };
            let copy = plate.source.copy_here(worker, bytes)?;
            plate.made = Some(Mirror { source: plate.source.clone(), memory, copy, side, writes: writes.into() });
        }
        for (part, plan) in self.parts.iter_mut().zip(&mut self.plans).filter(|(part, _)| part.side == side) {
            for (leaf, tensor) in &part.mirrored {
                let plate = self.plates.iter().find(|p| p.side == side && p.source.id() == tensor.id());
                if let Some(mirror) = plate.and_then(|p| p.made.as_ref()) {
                    part.graph.replace_tensor(*leaf, mirror.copy.clone());
                }
            }
            *plan = Some(super::prepare(&self.backends[side], worker, &part.graph, &self.options)?);
        }
        Ok(())
    }

    fn finish(self) -> Result<Relay> {
        let mut legs = Vec::new();
        let mut report = Vec::new();
        for (part, plan) in self.parts.into_iter().zip(self.plans) {
            let plan = plan.ok_or_else(|| Error::Internal("a part was not prepared".into()))?;
            for (row, copied) in plan.report().iter().zip(part.notes.iter().chain(std::iter::repeat(&None))) {
                let notes: Vec<&str> = copied.iter().chain(&row.note).map(String::as_str).collect();
                report.push(ReportRow { note: (!notes.is_empty()).then(|| notes.join("; ")), ..row.clone() });
            }
            legs.push(Leg { side: part.side, plan, carried: part.carried, gives: part.gives });
        }
        let inputs = self.graph.nodes().iter().filter(|n| matches!(n.leaf, Some(Leaf::Input))).map(|n| Port {
            name: n.name.clone(),
            ty: n.ty,
            ne: n.ne,
            bytes: if n.is_empty() { 0 } else { n.nb[3] * n.ne[3].unsigned_abs() },
        });
        let inputs = inputs.collect();
        let mut outputs = Vec::new();
        for ((name, _), at) in self.graph.outputs().iter().zip(self.outputs) {
            let info = legs[at].plan.output_info(name);
            let (ty, ne, bytes) = info.ok_or_else(|| Error::Internal(format!("no part has output '{name}'")))?;
            outputs.push((Port { name: name.clone(), ty, ne, bytes }, at));
        }
        let mirrors = self.plates.into_iter().filter_map(|p| p.made).collect();
        let disposed = AtomicBool::new(false);
        Ok(Relay(Arc::new(Inner { backends: self.backends, legs, inputs, outputs, mirrors, report, disposed })))
    }
}

impl Relay {
    pub fn scratch_bytes(&self) -> u64 {
        self.0.legs.iter().map(|leg| leg.plan.scratch_bytes()).sum()
    }

    pub fn inputs(&self) -> Vec<String> {
        self.0.inputs.iter().map(|port| port.name.clone()).collect()
    }

    pub fn outputs(&self) -> Vec<String> {
        self.0.outputs.iter().map(|(port, _)| port.name.clone()).collect()
    }

    pub fn input_info(&self, name: &str) -> Option<(GgmlType, [i64; 4], u64)> {
        self.0.inputs.iter().find(|p| p.name == name).map(|p| (p.ty, p.ne, p.bytes))
    }

    pub fn output_info(&self, name: &str) -> Option<(GgmlType, [i64; 4], u64)> {
        self.0.outputs.iter().find(|(p, _)| p.name == name).map(|(p, _)| (p.ty, p.ne, p.bytes))
    }

    pub fn report(&self) -> &[ReportRow] {
        &self.0.report
    }

    /// The events of all parts, when all have some.
    pub fn trace(&self) -> Option<String> {
        let traces: Option<Vec<String>> = self.0.legs.iter().map(|leg| leg.plan.trace()).collect();
        Some(traces?.into_iter().filter(|t| !t.is_empty()).collect::<Vec<_>>().join(","))
    }

    /// Mirrors go after the runs that were submitted: those still write to them. A closed backend has freed its own already.
    pub fn dispose(&self) {
        if !self.0.disposed.swap(true, Ordering::AcqRel) {
            self.0.legs.iter().for_each(|leg| leg.plan.dispose());
            for mirror in &self.0.mirrors {
                let copy = mirror.copy.clone();
                let _ = self.0.backends[mirror.side].submit(move |_| copy.dispose());
            }
        }
    }

    pub fn is_disposed(&self) -> bool {
        self.0.disposed.load(Ordering::Acquire) || self.0.legs.iter().any(|leg| leg.plan.is_disposed())
    }

    pub fn start(&self) -> Result<RelayRun> {
        if self.is_disposed() {
            return Err(Error::Disposed { what: "plan" });
        }
        Ok(RelayRun {
            runs: self.0.legs.iter().map(|leg| leg.plan.start()).collect::<Result<_>>()?,
            given: vec![false; self.0.inputs.len()],
            wanted: vec![true; self.0.outputs.len()],
            fetches: Vec::new(),
            plan: self.clone(),
        })
    }
}

/// A device tensor given for an input that parts on the other side read.
struct Fetch {
    tensor: Tensor,
    memory: Arc<Storage>,
    owner: Side,
    name: String,
}

/// A run being put together: one of each part's plan.
pub(super) struct RelayRun {
    pub plan: Relay,
    runs: Vec<SingleRun>,
    given: Vec<bool>,
    wanted: Vec<bool>,
    fetches: Vec<Fetch>,
}

impl RelayRun {
    pub fn input(&mut self, name: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        let at = self.input_index(name)?;
        // Each part of the plan that reads it checks and copies it.
        for (leg, run) in self.plan.0.legs.iter().zip(&mut self.runs) {
            if leg.plan.input_info(name).is_some() {
                run.input(name, offset, bytes)?;
            }
        }
        self.fetches.retain(|fetch| fetch.name != name);
        self.given[at] = offset + bytes.len() as u64 == self.plan.0.inputs[at].bytes;
        Ok(())
    }

    pub fn input_tensor(&mut self, name: &str, tensor: &Tensor) -> Result<()> {
        let at = self.input_index(name)?;
        let port = &self.plan.0.inputs[at];
        let what = || format!("inputs.{name}");
        let memory = tensor.memory()?;
        let owner = self.plan.0.backends.iter().position(|b| b.id() == tensor.backend_id());
        let owner = owner.ok_or_else(|| Error::invalid(what(), "a tensor of a backend that the plan runs on"))?;
        if tensor.ty() != port.ty || tensor.ne() != port.ne {
            let got = format!("{} {:?}", tensor.ty().name(), tensor.ne());
            return Err(Error::invalid(what(), format!("{} {:?}, not {got}", port.ty.name(), port.ne)));
        }
        let mut far = false;
        for (leg, run) in self.plan.0.legs.iter().zip(&mut self.runs) {
            if leg.plan.input_info(name).is_some() {
                if leg.side == owner {
                    run.input_tensor(name, tensor)?;
                } else {
                    far = true;
                }
            }
        }
        self.fetches.retain(|fetch| fetch.name != name);
        if far {
            self.fetches.push(Fetch { tensor: tensor.clone(), memory, owner, name: name.to_owned() });
        }
        self.given[at] = true;
        Ok(())
    }

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

    pub fn output_to(&mut self, name: &str, tensor: &Tensor) -> Result<()> {
        let at = self.output_index(name)?;
        let leg = self.plan.0.outputs[at].1;
        let backend = &self.plan.0.backends[self.plan.0.legs[leg].side];
        if tensor.backend_id() != backend.id() {
            let expected = format!("a tensor of {}, where this output is computed", backend.name());
            return Err(Error::invalid(format!("outputTo.{name}"), expected));
        }
        self.runs[leg].output_to(name, tensor)
    }

    pub fn cancel(&mut self, token: CancellationToken) {
        self.runs.iter_mut().for_each(|run| run.cancel(token.clone()));
    }

    pub fn trace(&mut self, zero: Option<Zero>) {
        for (leg, run) in self.plan.0.legs.iter().zip(&mut self.runs) {
            run.trace(zero.map(|zero| Zero { process: leg.side + 1, ..zero }));
        }
    }

    pub fn submit(mut self, done: Done<RelayResult>) {
        let inner = self.plan.0.clone();
        let used = |name: &str| inner.legs.iter().any(|leg| leg.plan.uses_input(name));
        if let Some((port, _)) = inner.inputs.iter().zip(&self.given).find(|(p, given)| !**given && used(&p.name)) {
            return done(Err(missing_input(&port.name, port.ty, port.ne)));
        }
        if let Some(refusal) = inner.backends.iter().find_map(|b| b.shared().refusal()) {
            return done(Err(refusal));
        }
        for (at, (leg, run)) in inner.legs.iter().zip(&mut self.runs).enumerate() {
            let outputs = inner.outputs.iter().zip(&self.wanted).filter(|((_, leg), wanted)| *leg == at && **wanted);
            let names = outputs.map(|((port, _), _)| port.name.clone()).chain(leg.gives.iter().cloned());
            if let Err(error) = run.outputs(Some(names.collect())) {
                return done(Err(error));
            }
        }
        let tasks = self.tasks(done);
        let refused: Vec<Task> = {
            let _order = pair_order();
            tasks.into_iter().filter_map(|(shared, task)| shared.push(task).err().map(|(_, task)| task)).collect()
        };
        // They answer as they are dropped, which must not be under a lock.
        drop(refused);
    }

    /// The tasks of the run, in order, with the queue of each.
    fn tasks(self, done: Done<RelayResult>) -> Vec<(Arc<Shared>, Task)> {
        let RelayRun { plan, runs, wanted, fetches, .. } = self;
        let inner = &plan.0;
        let mut steps: Vec<(Side, Step)> = Vec::new();
        let (mut from_primary, mut from_fallback) = (Vec::new(), Vec::new());
        for fetch in fetches {
            if fetch.owner == PRIMARY { from_primary.push(fetch) } else { from_fallback.push(fetch) }
        }
        for (side, fetches) in [(PRIMARY, from_primary), (FALLBACK, from_fallback)] {
            if !fetches.is_empty() || inner.mirrors.iter().any(|m| m.side != side) {
                let plan = plan.clone();
                let gather: Step =
                    Box::new(move |worker, load, next| next(gather(worker, &plan.0, side, &fetches, load)));
                steps.push((side, gather));
            }
        }
        for (at, run) in runs.into_iter().enumerate() {
            let plan = plan.clone();
            steps.push((
                inner.legs[at].side,
                Box::new(move |worker, load, next| leg(worker, &plan.0, at, run, load, next)),
            ));
        }
        let last = steps.len() - 1;
        let mut tasks: Vec<(Arc<Shared>, Task)> = Vec::with_capacity(steps.len());
        let mut previous: Option<Baton> = None;
        let mut done = Some(done);
        for (i, (side, step)) in steps.into_iter().enumerate() {
            let shared = inner.backends[side].shared().clone();
            let baton = previous.take();
            let task: Task = if i < last {
                let (to, from) = sync_channel(1);
                previous = Some(Baton { from, giver: shared.clone() });
                let own = shared.clone();
                // Whoever waits may be gone: its backend was closed or lost, and its promise has been told.
                let next: Next = Box::new(move |load| drop(to.send(load.map_err(|e| own.translate(e)))));
                Box::new(move |worker| {
                    match receive(worker, baton) {
                        Ok(load) => step(worker, load, next),
                        Err(error) => next(Err(error)),
                    }
                    // What was started here has to be past: the other worker may be waiting for it, and this one may wait next.
                    // Errors go to what was waiting to be settled.
                    let _ = worker.drain();
                })
            } else {
                let (plan, wanted) = (plan.clone(), wanted.clone());
                // The loop comes here once.
                let done = done.take().expect("one last step");
                shared.promised(done, move |worker, done| {
                    let next: Next = Box::new(move |load| {
                        done(load.map(|load| RelayResult { plan, wanted, results: load.results }))
                    });
                    match receive(worker, baton) {
                        Ok(load) => step(worker, load, next),
                        // In the order of the runs before it.
                        Err(error) => worker.settle_after((), move |_| next(Err(error))),
                    }
                })
            };
            tasks.push((shared, task));
        }
        tasks
    }

    fn input_index(&self, name: &str) -> Result<usize> {
        let inputs = &self.plan.0.inputs;
        inputs
            .iter()
            .position(|p| p.name == name)
            .ok_or_else(|| unknown("input", name, inputs.iter().map(|p| &*p.name)))
    }

    fn output_index(&self, name: &str) -> Result<usize> {
        let outputs = &self.plan.0.outputs;
        outputs
            .iter()
            .position(|(p, _)| p.name == name)
            .ok_or_else(|| unknown("output", name, outputs.iter().map(|(p, _)| &*p.name)))
    }
}

/// What a run has so far, handed from step to step.
#[derive(Default)]
struct Load {
    /// Of each part that ran.
    results: Vec<SingleResult>,
    /// Mirrors that are out of date: index, writes and bytes.
    stale: Vec<(usize, u64, Vec<u8>)>,
    /// Inputs that were read from device tensors, with the side they were read on.
    fetched: Vec<(Side, String, Vec<u8>)>,
}

type Next = Box<dyn FnOnce(Result<Load>) + Send>;
type Step = Box<dyn FnOnce(&mut Worker, Load, Next) + Send>;

/// Where a step gets its load from, and whose step that is.
struct Baton {
    from: Receiver<Result<Load>>,
    giver: Arc<Shared>,
}

/// The load of the step before. Waits for it if it must, with nothing of this worker's left unsettled.
fn receive(worker: &mut Worker, baton: Option<Baton>) -> Result<Load> {
    let Some(Baton { from, giver }) = baton else { return Ok(Load::default()) };
    let load = match from.try_recv() {
        Err(TryRecvError::Empty) => {
            worker.drain()?;
            from.recv().ok()
        }
        other => other.ok(),
    };
    load.unwrap_or_else(|| {
        let lost = || Error::Internal(format!("a part of the run on {} ended without a result", giver.name()));
        Err(giver.refusal().unwrap_or_else(lost))
    })
}

/// Reads what the other side needs of this one: mirrored tensors that were written, and tensors given for inputs.
fn gather(worker: &mut Worker, inner: &Inner, side: Side, fetches: &[Fetch], mut load: Load) -> Result<Load> {
    for (i, mirror) in inner.mirrors.iter().enumerate().filter(|(_, m)| m.side != side) {
        let writes = mirror.memory.writes();
        // A disposed tensor cannot change any more.
        if writes != mirror.writes.load(Ordering::Relaxed) && !mirror.source.is_disposed() {
            load.stale.push((i, writes, mirror.source.read_held(worker, &mirror.memory)?));
        }
    }
    for fetch in fetches {
        load.fetched.push((side, fetch.name.clone(), fetch.tensor.read_held(worker, &fetch.memory)?));
    }
    Ok(load)
}

/// Runs one part.
fn leg(worker: &mut Worker, inner: &Inner, at: usize, mut run: SingleRun, mut load: Load, next: Next) {
    if let Err(error) = supply(worker, inner, at, &mut run, &mut load) {
        // In the order of the runs before it.
        return worker.settle_after((), move |_| next(Err(error)));
    }
    run.execute(
        worker,
        Box::new(move |result| {
            next(result.map(|result| {
                load.results.push(result);
                load
            }));
        }),
    );
}

/// Gives a part what comes from elsewhere.
fn supply(worker: &mut Worker, inner: &Inner, at: usize, run: &mut SingleRun, load: &mut Load) -> Result<()> {
    let leg = &inner.legs[at];
    let (here, later) =
        std::mem::take(&mut load.stale).into_iter().partition(|(i, ..)| inner.mirrors[*i].side == leg.side);
    load.stale = later;
    let here: Vec<(usize, u64, Vec<u8>)> = here;
    for (i, writes, bytes) in here {
        let mirror = &inner.mirrors[i];
        mirror.copy.write_whole(worker, bytes)?;
        mirror.writes.store(writes, Ordering::Relaxed);
    }
    for (owner, name, bytes) in &load.fetched {
        if *owner != leg.side && leg.plan.input_info(name).is_some() {
            run.input(name, 0, bytes)?;
        }
    }
    for carried in &leg.carried {
        let bytes = load.results[carried.from].output(&carried.name);
        let bytes = bytes.ok_or_else(|| Error::Internal(format!("no part gave {}", carried.name)))?;
        run.input(&carried.name, 0, bytes)?;
    }
    Ok(())
}

/// The results of all parts.
pub(super) struct RelayResult {
    plan: Relay,
    wanted: Vec<bool>,
    results: Vec<SingleResult>,
}

impl RelayResult {
    pub fn output(&self, name: &str) -> Option<&[u8]> {
        let outputs = &self.plan.0.outputs;
        let at = outputs.iter().position(|(p, _)| p.name == name).filter(|at| self.wanted[*at])?;
        self.results[outputs[at].1].output(name)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.plan.0.outputs.iter().zip(&self.wanted).filter(|(_, wanted)| **wanted).map(|((p, _), _)| &*p.name)
    }
}
