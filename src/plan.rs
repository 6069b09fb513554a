//! Plans and their runs. A run is started, given its inputs (copied at once into the plan's staging) and submitted.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use cann_backend::plan::{Plan as Core, RunBuilder, RunResult};
use napi::bindgen_prelude::{BufferSlice, Object};
use napi::{Env, Result};
use napi_derive::napi;

use crate::convert;
use crate::device::{Nullable, nullable};
use crate::error::OrJs;
use crate::promise::promise;
use crate::state::CancelToken;
use crate::tensor::Tensor;

#[napi(object, object_from_js = false)]
pub struct PlanPort {
    #[napi(js_name = "type")]
    pub ty: &'static str,
    pub ne: Vec<f64>,
    pub nbytes: f64,
}

#[napi(object, object_from_js = false)]
pub struct ReportRow {
    pub node: String,
    pub op: String,
    pub device: String,
    pub calls: Vec<String>,
    #[napi(ts_type = "string | null")]
    pub note: Nullable,
}

#[napi]
pub struct Plan {
    pub(crate) inner: Core,
    results: Arc<Mutex<Results>>,
}

/// What runs gave, still in the plan's staging, by number: an object each would be much for the garbage collector when
/// thousands are queued.
#[derive(Default)]
struct Results {
    last: u64,
    results: HashMap<u64, RunResult>,
}

#[napi]
impl Plan {
    #[napi(getter, catch_unwind)]
    pub fn scratch_bytes(&self) -> f64 {
        self.inner.scratch_bytes() as f64
    }

    #[napi(getter, catch_unwind)]
    pub fn inputs(&self) -> Vec<String> {
        self.inner.inputs()
    }

    #[napi(getter, catch_unwind)]
    pub fn outputs(&self) -> Vec<String> {
        self.inner.outputs()
    }

    #[napi(catch_unwind, ts_return_type = "PlanPort | null")]
    pub fn input_info(&self, name: String) -> Option<PlanPort> {
        self.inner.input_info(&name).map(port)
    }

    #[napi(catch_unwind, ts_return_type = "PlanPort | null")]
    pub fn output_info(&self, name: String) -> Option<PlanPort> {
        self.inner.output_info(&name).map(port)
    }

    /// A run to give inputs and to submit. `spare`, one that was submitted, becomes it; without one it comes back.
    #[napi(catch_unwind, ts_return_type = "Run | null")]
    pub fn start(&self, env: &Env, spare: Option<&mut Run>) -> Result<Option<Run>> {
        let builder = Some(self.inner.start().or_js(env)?);
        let results = self.results.clone();
        match spare {
            Some(run) => *run = Run { builder, results },
            None => return Ok(Some(Run { builder, results })),
        }
        Ok(None)
    }

    /// Copies what begins at `offset` of a run's output into all of `dst`; false when it was not read or is shorter.
    #[napi(catch_unwind)]
    pub fn copy_output(&self, run: f64, name: String, mut dst: BufferSlice, offset: f64) -> bool {
        let results = lock(&self.results);
        let output = results.results.get(&(run as u64)).and_then(|result| result.output(&name));
        output.is_some_and(|bytes| convert::copy_part(bytes, offset, &mut dst))
    }

    /// Gives the staging of a run's outputs back.
    #[napi(catch_unwind)]
    pub fn release_outputs(&self, run: f64) {
        let result = lock(&self.results).results.remove(&(run as u64));
        drop(result);
    }

    #[napi(catch_unwind)]
    pub fn report(&self) -> Vec<ReportRow> {
        let rows = self.inner.report().iter();
        rows.map(|row| ReportRow {
            node: row.node.clone(),
            op: row.op.clone(),
            device: row.device.clone(),
            calls: row.calls.clone(),
            note: nullable(row.note.clone()),
        })
        .collect()
    }

    #[napi(catch_unwind, ts_return_type = "string | null")]
    pub fn trace(&self) -> Nullable {
        nullable(self.inner.trace())
    }

    #[napi(catch_unwind)]
    pub fn dispose(&self) {
        self.inner.dispose();
    }
}

impl Plan {
    pub(crate) fn new(inner: Core) -> Plan {
        Plan { inner, results: Arc::default() }
    }
}

fn lock(results: &Mutex<Results>) -> MutexGuard<'_, Results> {
    results.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn port((ty, ne, nbytes): (gguf::GgmlType, [i64; 4], u64)) -> PlanPort {
    PlanPort { ty: ty.name(), ne: convert::numbers(&ne), nbytes: nbytes as f64 }
}

/// One run being set up. Dropping it without `submit` gives its staging back.
#[napi]
pub struct Run {
    builder: Option<RunBuilder>,
    results: Arc<Mutex<Results>>,
}

#[napi]
impl Run {
    #[napi(catch_unwind)]
    pub fn input(&mut self, env: &Env, name: String, data: &[u8]) -> Result<()> {
        self.builder()?.input(&name, data).or_js(env)
    }

    /// A part of an input; parts come in order.
    #[napi(catch_unwind)]
    pub fn input_part(&mut self, env: &Env, name: String, offset: f64, data: &[u8]) -> Result<()> {
        let offset = convert::bytes(offset, "offset").or_js(env)?;
        self.builder()?.input_part(&name, offset, data).or_js(env)
    }

    #[napi(catch_unwind)]
    pub fn input_tensor(&mut self, env: &Env, name: String, tensor: &Tensor) -> Result<()> {
        self.builder()?.input_tensor(&name, &tensor.inner).or_js(env)
    }

    #[napi(catch_unwind)]
    pub fn outputs(&mut self, env: &Env, names: Vec<String>) -> Result<()> {
        self.builder()?.outputs(Some(names)).or_js(env)
    }

    #[napi(catch_unwind)]
    pub fn output_to(&mut self, env: &Env, name: String, tensor: &Tensor) -> Result<()> {
        self.builder()?.output_to(&name, &tensor.inner).or_js(env)
    }

    #[napi(catch_unwind)]
    pub fn cancel(&mut self, token: &CancelToken) -> Result<()> {
        self.builder()?.cancel(token.inner.clone());
        Ok(())
    }

    #[napi(catch_unwind)]
    pub fn trace(&mut self, on: bool) -> Result<()> {
        self.builder()?.trace(on);
        Ok(())
    }

    /// Queues the run. Resolves to a number for its outputs, until `releaseOutputs`.
    #[napi(catch_unwind, ts_return_type = "Promise<number>")]
    pub fn submit<'env>(&mut self, env: &'env Env) -> Result<Object<'env>> {
        self.builder()?;
        // Just checked; taking it makes a second submit an error.
        let builder = self.builder.take().expect("the builder is there");
        let results = self.results.clone();
        let keep = move |_: &Env, result| {
            let mut results = lock(&results);
            results.last += 1;
            let number = results.last;
            results.results.insert(number, result);
            Ok(number as f64)
        };
        promise(env, |done| builder.submit(done), keep)
    }

    /// Gives the staging back without running.
    #[napi(catch_unwind)]
    pub fn abandon(&mut self) {
        self.builder = None;
    }
}

impl Run {
    fn builder(&mut self) -> Result<&mut RunBuilder> {
        self.builder.as_mut().ok_or_else(|| napi::Error::from_reason("the run was submitted already"))
    }
}
