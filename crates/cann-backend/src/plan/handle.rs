//! What users hold: a plan, a run and its results, on one backend or over two.

use std::time::Instant;

use gguf::GgmlType;
use tokio_util::sync::CancellationToken;

use super::relay::{Relay, RelayResult, RelayRun};
use super::run::{SingleResult, SingleRun, Zero};
use super::{ReportRow, Single};
use crate::Done;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// A prepared graph. Clones share it; the last one gone gives its memory back on the workers.
#[derive(Clone)]
pub struct Plan(Kind);

#[derive(Clone)]
enum Kind {
    Single(Single),
    Relay(Relay),
}

/// Calls the same method of whichever it is.
macro_rules! either {
    ($self:expr, $kind:ident, $plan:ident => $body:expr) => {
        match $self {
            $kind::Single($plan) => $body,
            $kind::Relay($plan) => $body,
        }
    };
}

impl From<Single> for Plan {
    fn from(plan: Single) -> Plan {
        Plan(Kind::Single(plan))
    }
}

impl From<Relay> for Plan {
    fn from(plan: Relay) -> Plan {
        Plan(Kind::Relay(plan))
    }
}

impl Plan {
    pub fn scratch_bytes(&self) -> u64 {
        either!(&self.0, Kind, plan => plan.scratch_bytes())
    }

    pub fn inputs(&self) -> Vec<String> {
        either!(&self.0, Kind, plan => plan.inputs())
    }

    pub fn outputs(&self) -> Vec<String> {
        either!(&self.0, Kind, plan => plan.outputs())
    }

    /// Type, extents and bytes of an input.
    pub fn input_info(&self, name: &str) -> Option<(GgmlType, [i64; 4], u64)> {
        either!(&self.0, Kind, plan => plan.input_info(name))
    }

    /// Type, extents and bytes of an output.
    pub fn output_info(&self, name: &str) -> Option<(GgmlType, [i64; 4], u64)> {
        either!(&self.0, Kind, plan => plan.output_info(name))
    }

    /// What runs where, by which calls.
    pub fn report(&self) -> &[ReportRow] {
        either!(&self.0, Kind, plan => plan.report())
    }

    /// Trace-event JSON of the last run that asked for it. Each backend is a process of its own.
    pub fn trace(&self) -> Option<String> {
        let events = either!(&self.0, Kind, plan => plan.trace())?;
        Some(format!("{{\"traceEvents\":[{events}],\"displayTimeUnit\":\"ms\"}}"))
    }

    /// Begins a run. Takes staging memory, makes no ACL call and does not block.
    pub fn start(&self) -> Result<RunBuilder> {
        Ok(RunBuilder(match &self.0 {
            Kind::Single(plan) => RunKind::Single(plan.start()?),
            Kind::Relay(plan) => RunKind::Relay(plan.start()?),
        }))
    }

    /// Marks the plan at once; its memory goes back when the last run is past.
    pub fn dispose(&self) {
        either!(&self.0, Kind, plan => plan.dispose());
    }

    pub fn is_disposed(&self) -> bool {
        either!(&self.0, Kind, plan => plan.is_disposed())
    }
}

/// A run being put together on the caller's thread.
pub struct RunBuilder(RunKind);

enum RunKind {
    Single(SingleRun),
    Relay(RelayRun),
}

impl RunBuilder {
    /// Gives an input its bytes, in ggml's layout. They are copied now.
    pub fn input(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let info = either!(&self.0, RunKind, run => run.plan.input_info(name));
        if let Some((ty, ne, whole)) = info.filter(|info| info.2 != bytes.len() as u64) {
            let expected = format!("{whole} bytes ({} {ne:?}), not {}", ty.name(), bytes.len());
            return Err(Error::invalid(format!("inputs.{name}"), expected));
        }
        self.input_part(name, 0, bytes)
    }

    /// Gives an input a part of its bytes. Parts come in order and without gaps; what is not complete is missing at [`Self::submit`].
    pub fn input_part(&mut self, name: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        either!(&mut self.0, RunKind, run => run.input(name, offset, bytes))
    }

    /// Gives an input the content a device tensor has when the run starts.
    pub fn input_tensor(&mut self, name: &str, tensor: &Tensor) -> Result<()> {
        either!(&mut self.0, RunKind, run => run.input_tensor(name, tensor))
    }

    /// Which outputs are read back; all by default.
    pub fn outputs(&mut self, names: Option<Vec<String>>) -> Result<()> {
        either!(&mut self.0, RunKind, run => run.outputs(names))
    }

    /// Leaves an output in a device tensor of the same type and extents.
    pub fn output_to(&mut self, name: &str, tensor: &Tensor) -> Result<()> {
        either!(&mut self.0, RunKind, run => run.output_to(name, tensor))
    }

    pub fn cancel(&mut self, token: CancellationToken) {
        either!(&mut self.0, RunKind, run => run.cancel(token));
    }

    /// Times every node; see [`Plan::trace`].
    pub fn trace(&mut self, on: bool) {
        let zero = on.then(|| Zero { begin: Instant::now(), process: 1 });
        either!(&mut self.0, RunKind, run => run.trace(zero));
    }

    /// Queues the run. `done` is called when the results are in, in the order runs were submitted.
    pub fn submit(self, done: Done<RunResult>) {
        match self.0 {
            RunKind::Single(run) => {
                run.submit(Box::new(move |result| done(result.map(|r| RunResult(ResultKind::Single(r))))));
            }
            RunKind::Relay(run) => {
                run.submit(Box::new(move |result| done(result.map(|r| RunResult(ResultKind::Relay(r))))));
            }
        }
    }
}

/// The results of a run, in staging memory. Dropping it gives the memory back to the plan.
pub struct RunResult(ResultKind);

enum ResultKind {
    Single(SingleResult),
    Relay(RelayResult),
}

impl RunResult {
    /// The packed bytes of an output that was asked for.
    pub fn output(&self, name: &str) -> Option<&[u8]> {
        either!(&self.0, ResultKind, result => result.output(name))
    }

    /// Names of the outputs that were asked for.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let names: Vec<&str> = either!(&self.0, ResultKind, result => result.names().collect());
        names.into_iter()
    }
}
