//! One device opened: the class that makes everything else.

use std::path::PathBuf;

use cann_backend::backend::{Backend as Core, OpenOptions, TensorSpec};
use cann_backend::device::Selector;
use cann_backend::error::Error;
use cann_backend::plan::PrepareOptions;
use cann_backend::pool::PoolChoice;
use cann_backend::repack::Layout;
use napi::bindgen_prelude::{Either, Object};
use napi::{Env, Result};
use napi_derive::napi;

use crate::buffer::{DeviceBuffer, HostBuffer};
use crate::convert;
use crate::device::{self, DeviceInfo};
use crate::error::OrJs;
use crate::event::Event;
use crate::graph::Graph;
use crate::plan::Plan;
use crate::promise::{on_thread, promise, promise_unit};
use crate::state::CancelToken;
use crate::tensor::Tensor;
use crate::weights;

#[napi(object, object_to_js = false)]
pub struct BackendOptions {
    pub device: Option<Either<String, f64>>,
    pub pool: Option<String>,
    pub async_mode: Option<bool>,
    pub threads: Option<u32>,
}

#[napi(object, object_from_js = false)]
pub struct PoolStats {
    pub kind: String,
    pub bytes_reserved: f64,
    pub bytes_in_use: f64,
    pub peak_bytes: f64,
    pub allocations: f64,
    pub reuses: f64,
}

#[napi(object, object_from_js = false)]
pub struct QueueStats {
    pub capacity: f64,
    pub depth: f64,
    pub submitted: f64,
    pub completed: f64,
}

#[napi(object, object_from_js = false)]
pub struct BufferStats {
    pub count: f64,
    pub bytes: f64,
}

/// Copies between devices, by how they went.
#[napi(object, object_from_js = false)]
pub struct CopyStats {
    pub peer: f64,
    pub staged: f64,
}

#[napi(object, object_from_js = false)]
pub struct BackendStats {
    pub pool: PoolStats,
    pub queue: QueueStats,
    pub buffers: BufferStats,
    pub copies: CopyStats,
}

#[napi]
pub struct Backend {
    pub(crate) inner: Core,
}

#[napi]
impl Backend {
    #[napi(catch_unwind, ts_return_type = "Promise<Backend>")]
    pub fn open<'env>(env: &'env Env, options: BackendOptions) -> Result<Object<'env>> {
        let (options, threads) = parse_options(options).or_js(env)?;
        let start = |done| {
            let prepare = move || {
                threads.map_or(Ok(()), device::configure_threads)?;
                Ok(device::registry())
            };
            on_thread("cann-probe", done, prepare, move |registry, done| Core::open(registry, options, done));
        };
        promise(env, start, |_, inner| Ok(Backend { inner }))
    }

    #[napi(getter, catch_unwind)]
    pub fn name(&self) -> String {
        self.inner.name().to_owned()
    }

    #[napi(getter, catch_unwind)]
    pub fn guid(&self) -> &'static str {
        self.inner.guid()
    }

    #[napi(getter, catch_unwind)]
    pub fn device(&self) -> DeviceInfo {
        device::device_info(self.inner.device())
    }

    #[napi(getter, catch_unwind)]
    pub fn closed(&self) -> bool {
        self.inner.is_closed()
    }

    #[napi(catch_unwind, ts_return_type = "Promise<DeviceBuffer>")]
    pub fn alloc_buffer<'env>(&self, env: &'env Env, size: f64) -> Result<Object<'env>> {
        let size = convert::bytes(size, "size").or_js(env)?;
        promise(env, |done| self.inner.alloc_buffer(size, done), |_, inner| Ok(DeviceBuffer { inner }))
    }

    #[napi(catch_unwind, ts_return_type = "Promise<HostBuffer>")]
    pub fn alloc_host_buffer<'env>(&self, env: &'env Env, size: f64) -> Result<Object<'env>> {
        let size = convert::bytes(size, "size").or_js(env)?;
        promise(env, |done| self.inner.alloc_host_buffer(size, done), |_, inner| Ok(HostBuffer { inner }))
    }

    #[napi(catch_unwind, ts_return_type = "Promise<Tensor>")]
    pub fn create_tensor<'env>(
        &self,
        env: &'env Env,
        dtype: String,
        ne: Vec<f64>,
        name: Option<String>,
        buffer: Option<&DeviceBuffer>,
        offset: Option<f64>,
    ) -> Result<Object<'env>> {
        let spec = (|| {
            let ty = convert::dtype(&dtype, "spec.type")?;
            Ok(TensorSpec {
                ty,
                ne: convert::whole(&ne, "spec.ne")?,
                name: name.unwrap_or_default(),
                buffer: buffer.map(|buffer| buffer.inner.clone()),
                offset: convert::bytes(offset.unwrap_or(0.0), "spec.offset")?,
                // What comes from JavaScript stays bit for bit; the native layout of q4_1 rounds.
                layout: Some(Layout::native(ty))
                    .filter(|layout| !layout.writes_whole_blocks())
                    .or(Some(Layout::Blocks)),
                source_type: None,
                weight: false,
            })
        })()
        .or_js(env)?;
        promise(env, |done| self.inner.create_tensor(spec, done), |_, inner| Ok(Tensor { inner }))
    }

    /// `names` are the tensors to upload; without it all are.
    #[napi(catch_unwind, ts_return_type = "Promise<Weights>")]
    pub fn load_weights<'env>(
        &self,
        env: &'env Env,
        path: String,
        names: Option<Vec<String>>,
        convert: Option<String>,
        cancel: &CancelToken,
        #[napi(ts_arg_type = "((progress: LoadProgress) => void) | undefined | null")] progress: Option<
            weights::ProgressFn<'env>,
        >,
    ) -> Result<Object<'env>> {
        weights::load(env, &self.inner, PathBuf::from(path), names, convert.as_deref(), &cancel.inner, progress)
    }

    #[napi(catch_unwind, ts_return_type = "Promise<void>")]
    pub fn copy<'env>(&self, env: &'env Env, src: &Tensor, dst: &Tensor) -> Result<Object<'env>> {
        promise_unit(env, |done| self.inner.copy(&src.inner, &dst.inner, done))
    }

    #[napi(catch_unwind)]
    pub fn supports_op(&self, env: &Env, graph: &Graph, node: u32) -> Result<bool> {
        let id = graph.checked(node).or_js(env)?;
        Ok(self.inner.supports_op(&graph.inner.borrow(), id))
    }

    #[napi(catch_unwind, ts_return_type = "string | null")]
    pub fn explain_op(&self, env: &Env, graph: &Graph, node: u32) -> Result<device::Nullable> {
        let id = graph.checked(node).or_js(env)?;
        Ok(device::nullable(self.inner.explain_op(&graph.inner.borrow(), id)))
    }

    #[napi(catch_unwind)]
    pub fn offload_op(&self, env: &Env, graph: &Graph, node: u32) -> Result<bool> {
        let id = graph.checked(node).or_js(env)?;
        Ok(self.inner.offload_op(&graph.inner.borrow(), id))
    }

    #[napi(catch_unwind)]
    pub fn supports_buffer(&self, buffer: &DeviceBuffer) -> bool {
        self.inner.supports_buffer(&buffer.inner)
    }

    #[napi(catch_unwind)]
    pub fn supports_host_buffer(&self, buffer: &HostBuffer) -> bool {
        buffer.inner.backend_id() == self.inner.id()
    }

    #[napi(catch_unwind)]
    pub fn alloc_size(env: &Env, dtype: String, ne: Vec<f64>) -> Result<f64> {
        let size = (|| Core::alloc_size(convert::dtype(&dtype, "spec.type")?, &convert::whole(&ne, "spec.ne")?))();
        Ok(size.or_js(env)? as f64)
    }

    #[napi(catch_unwind, ts_return_type = "Promise<Plan>")]
    pub fn prepare<'env>(&self, env: &'env Env, graph: &Graph, fallback: Option<&Backend>) -> Result<Object<'env>> {
        let snapshot = graph.inner.borrow().clone();
        let options = PrepareOptions { fallback: fallback.map(|other| other.inner.clone()), ..Default::default() };
        promise(env, |done| self.inner.prepare(snapshot, options, done), |_, inner| Ok(Plan::new(inner)))
    }

    #[napi(catch_unwind, ts_return_type = "Promise<Event>")]
    pub fn create_event<'env>(&self, env: &'env Env) -> Result<Object<'env>> {
        promise(env, |done| self.inner.create_event(done), |_, inner| Ok(Event { inner }))
    }

    #[napi(catch_unwind, ts_return_type = "Promise<void>")]
    pub fn record<'env>(&self, env: &'env Env, event: &Event) -> Result<Object<'env>> {
        promise_unit(env, |done| self.inner.record(&event.inner, done))
    }

    #[napi(catch_unwind, ts_return_type = "Promise<void>")]
    pub fn wait<'env>(&self, env: &'env Env, event: &Event) -> Result<Object<'env>> {
        promise_unit(env, |done| self.inner.wait(&event.inner, done))
    }

    #[napi(catch_unwind, ts_return_type = "Promise<void>")]
    pub fn synchronize<'env>(&self, env: &'env Env) -> Result<Object<'env>> {
        promise_unit(env, |done| self.inner.synchronize(done))
    }

    #[napi(catch_unwind)]
    pub fn stats(&self) -> BackendStats {
        let stats = self.inner.stats();
        BackendStats {
            pool: PoolStats {
                kind: stats.pool.kind.to_string(),
                bytes_reserved: stats.pool.bytes_reserved as f64,
                bytes_in_use: stats.pool.bytes_in_use as f64,
                peak_bytes: stats.pool.peak_bytes as f64,
                allocations: stats.pool.allocations as f64,
                reuses: stats.pool.reuses as f64,
            },
            queue: QueueStats {
                capacity: stats.queue.capacity as f64,
                depth: stats.queue.depth as f64,
                submitted: stats.queue.submitted as f64,
                completed: stats.queue.completed as f64,
            },
            buffers: BufferStats { count: stats.buffers.count as f64, bytes: stats.buffers.bytes as f64 },
            copies: CopyStats { peer: stats.copies.peer as f64, staged: stats.copies.staged as f64 },
        }
    }

    #[napi(catch_unwind, ts_return_type = "Promise<void>")]
    pub fn close<'env>(&self, env: &'env Env) -> Result<Object<'env>> {
        promise_unit(env, |done| self.inner.close(done))
    }
}

fn parse_options(options: BackendOptions) -> std::result::Result<(OpenOptions, Option<usize>), Error> {
    let device = match options.device {
        None => None,
        Some(Either::A(name)) => Some(Selector::Name(name)),
        Some(Either::B(index)) => Some(Selector::Index(convert::bytes(index, "options.device")? as usize)),
    };
    let pool = match options.pool.as_deref() {
        None | Some("auto") => PoolChoice::Auto,
        Some("vmm") => PoolChoice::Vmm,
        Some("buffer") => PoolChoice::Buffer,
        Some("priority") => PoolChoice::Priority,
        Some("legacy") => PoolChoice::Legacy,
        Some(other) => {
            let expected = format!("one of auto, vmm, buffer, priority, legacy (but received '{other}')");
            return Err(Error::invalid("options.pool", expected));
        }
    };
    let open = OpenOptions { device, pool, async_mode: options.async_mode };
    Ok((open, options.threads.map(|threads| threads as usize)))
}
