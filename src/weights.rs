//! GGUF files: what they say, and their tensors on a device.

use std::path::PathBuf;

use cann_backend::backend::Backend as Core;
use cann_backend::error::{Error, Result as CoreResult};
use cann_backend::repack::convert::Convert;
use cann_backend::upload::{LoadOptions, Progress, read_gguf as read_file};
use cann_backend::weights::{GgufInfo as CoreInfo, Weights as CoreWeights};
use gguf::{Array as GgufArray, Metadata, Value};
use napi::bindgen_prelude::{
    Array, BigInt, BigInt64ArraySlice, BigUint64ArraySlice, Float32ArraySlice, Float64ArraySlice, Function,
    Int8ArraySlice, Int16ArraySlice, Int32ArraySlice, Object, Uint8ArraySlice, Uint16ArraySlice, Uint32ArraySlice,
    Unknown,
};
use napi::{Env, Result};
use napi_derive::napi;
use tokio_util::sync::CancellationToken;

use crate::error::OrJs;
use crate::promise::{Promises, promise};
use crate::state;
use crate::tensor::Tensor;

/// How far an upload is.
#[napi(object, object_from_js = false)]
pub struct LoadProgress {
    pub bytes_done: f64,
    pub bytes_total: f64,
    pub tensor: String,
}

pub(crate) type ProgressFn<'env> = Function<'env, LoadProgress, Unknown<'static>>;

/// Starts an upload that also stops when the environment ends.
pub(crate) fn load<'env>(
    env: &'env Env,
    backend: &Core,
    path: PathBuf,
    names: Option<Vec<String>>,
    convert: Option<&str>,
    cancel: &CancellationToken,
    progress: Option<ProgressFn<'env>>,
) -> Result<Object<'env>> {
    let convert = parse_convert(convert).or_js(env)?;
    let report = match progress {
        None => None,
        Some(listener) => {
            let send = Promises::of(env)?.reports(&listener)?;
            let report = move |p: Progress| {
                send(LoadProgress {
                    bytes_done: p.bytes_done as f64,
                    bytes_total: p.bytes_total as f64,
                    tensor: p.tensor,
                });
            };
            Some(Box::new(report) as Box<dyn FnMut(Progress) + Send>)
        }
    };
    let options = LoadOptions { progress: report, cancel: cancel.clone(), names, convert };
    state::cancel_at_exit(env, cancel);
    let over = cancel.clone();
    let start = |done: cann_backend::backend::Done<CoreWeights>| {
        let done = Box::new(move |result| {
            state::upload_over(&over);
            done(result);
        });
        backend.load_weights(path, options, done);
    };
    promise(env, start, |_, inner| Ok(Weights { inner }))
}

fn parse_convert(name: Option<&str>) -> CoreResult<Convert> {
    Ok(match name {
        None | Some("auto") => Convert::Auto,
        Some("f16") => Convert::F16,
        Some("q8_0") => Convert::Q8_0,
        Some("never") => Convert::Never,
        Some(other) => {
            return Err(Error::invalid(
                "options.convert",
                format!("one of auto, f16, q8_0, never (but received '{other}')"),
            ));
        }
    })
}

#[napi]
pub struct Weights {
    inner: CoreWeights,
}

#[napi]
impl Weights {
    /// Keys and values by turns; undefined stands for a list of texts.
    #[napi(catch_unwind, ts_return_type = "Array<unknown>")]
    pub fn metadata<'env>(&self, env: &'env Env) -> Result<Array<'env>> {
        metadata(env, self.inner.metadata())
    }

    /// At most `count` texts of a list, from `start` on.
    #[napi(catch_unwind, ts_return_type = "Array<string | Uint8Array>")]
    pub fn texts<'env>(&self, env: &'env Env, key: String, start: u32, count: u32) -> Result<Array<'env>> {
        texts(env, self.inner.metadata(), &key, start, count)
    }

    #[napi(getter, catch_unwind)]
    pub fn names(&self) -> Vec<String> {
        self.inner.names().map(str::to_owned).collect()
    }

    #[napi(getter, catch_unwind)]
    pub fn bytes(&self) -> f64 {
        self.inner.bytes() as f64
    }

    #[napi(catch_unwind)]
    pub fn has(&self, name: String) -> bool {
        self.inner.has(&name)
    }

    #[napi(catch_unwind)]
    pub fn get(&self, env: &Env, name: String) -> Result<Tensor> {
        Ok(Tensor { inner: self.inner.get(&name).or_js(env)?.clone() })
    }

    #[napi(catch_unwind)]
    pub fn dispose(&self) {
        self.inner.dispose();
    }
}

#[napi(object, object_from_js = false)]
pub struct GgufTensor {
    pub name: String,
    #[napi(js_name = "type")]
    pub ty: String,
    pub ne: Vec<f64>,
    pub offset: f64,
    pub nbytes: f64,
}

/// What a GGUF file says without its data.
#[napi]
pub struct GgufFile {
    inner: CoreInfo,
}

#[napi]
impl GgufFile {
    #[napi(getter, catch_unwind)]
    pub fn version(&self) -> u32 {
        self.inner.version
    }

    /// Keys and values by turns; undefined stands for a list of texts.
    #[napi(catch_unwind, ts_return_type = "Array<unknown>")]
    pub fn metadata<'env>(&self, env: &'env Env) -> Result<Array<'env>> {
        metadata(env, &self.inner.metadata)
    }

    /// At most `count` texts of a list, from `start` on.
    #[napi(catch_unwind, ts_return_type = "Array<string | Uint8Array>")]
    pub fn texts<'env>(&self, env: &'env Env, key: String, start: u32, count: u32) -> Result<Array<'env>> {
        texts(env, &self.inner.metadata, &key, start, count)
    }

    #[napi(catch_unwind)]
    pub fn tensors(&self) -> Vec<GgufTensor> {
        let rows = self.inner.tensors.iter();
        rows.map(|row| GgufTensor {
            name: row.name.clone(),
            ty: row.ty.map_or_else(|| format!("unknown({})", row.type_number), |ty| ty.name().to_owned()),
            ne: row.ne.iter().map(|n| *n as f64).collect(),
            offset: row.offset as f64,
            nbytes: row.nbytes as f64,
        })
        .collect()
    }
}

#[napi(catch_unwind, ts_return_type = "Promise<GgufFile>")]
pub fn read_gguf(env: &Env, path: String) -> Result<Object<'_>> {
    promise(env, |done| read_file(PathBuf::from(path), done), |_, inner| Ok(GgufFile { inner }))
}

fn metadata<'env>(env: &'env Env, metadata: &Metadata) -> Result<Array<'env>> {
    let mut list = env.create_array(2 * metadata.len() as u32)?;
    for (i, (key, value)) in metadata.iter().enumerate() {
        list.set(2 * i as u32, key)?;
        set(env, &mut list, 2 * i as u32 + 1, value)?;
    }
    Ok(list)
}

/// A vocabulary takes long to turn into strings: the facade asks for it piece by piece.
fn texts<'env>(env: &'env Env, metadata: &Metadata, key: &str, start: u32, count: u32) -> Result<Array<'env>> {
    let strings = metadata.strings(key).map_err(Error::from).or_js(env)?;
    let start = start as usize;
    let n = strings.len().saturating_sub(start).min(count as usize);
    let mut list = env.create_array(n as u32)?;
    for i in 0..n {
        set_text(env, &mut list, i as u32, strings.get(start + i).unwrap_or_default())?;
    }
    Ok(list)
}

/// Numbers stay numbers as long as they are exact; a string that is not UTF-8 is its bytes; numeric arrays are typed.
fn set(env: &Env, list: &mut Array, at: u32, value: &Value) -> Result<()> {
    match value {
        Value::U8(v) => list.set(at, *v),
        Value::I8(v) => list.set(at, *v),
        Value::U16(v) => list.set(at, *v),
        Value::I16(v) => list.set(at, *v),
        Value::U32(v) => list.set(at, *v),
        Value::I32(v) => list.set(at, *v),
        Value::F32(v) => list.set(at, f64::from(*v)),
        Value::F64(v) => list.set(at, *v),
        Value::Bool(v) => list.set(at, *v),
        Value::U64(v) if *v < 1 << 53 => list.set(at, *v as f64),
        Value::U64(v) => list.set(at, BigInt::from(*v)),
        Value::I64(v) if v.unsigned_abs() < 1 << 53 => list.set(at, *v as f64),
        Value::I64(v) => list.set(at, BigInt::from(*v)),
        Value::String(bytes) => set_text(env, list, at, bytes),
        Value::Array(array) => match array {
            GgufArray::U8(v) => list.set(at, Uint8ArraySlice::copy_from(env, v)?),
            GgufArray::I8(v) => list.set(at, Int8ArraySlice::copy_from(env, v)?),
            GgufArray::U16(v) => list.set(at, Uint16ArraySlice::copy_from(env, v)?),
            GgufArray::I16(v) => list.set(at, Int16ArraySlice::copy_from(env, v)?),
            GgufArray::U32(v) => list.set(at, Uint32ArraySlice::copy_from(env, v)?),
            GgufArray::I32(v) => list.set(at, Int32ArraySlice::copy_from(env, v)?),
            GgufArray::F32(v) => list.set(at, Float32ArraySlice::copy_from(env, v)?),
            GgufArray::F64(v) => list.set(at, Float64ArraySlice::copy_from(env, v)?),
            GgufArray::U64(v) => list.set(at, BigUint64ArraySlice::copy_from(env, v)?),
            GgufArray::I64(v) => list.set(at, BigInt64ArraySlice::copy_from(env, v)?),
            GgufArray::Bool(v) => list.set(at, v.clone()),
            GgufArray::Strings(_) => list.set(at, ()),
        },
    }
}

fn set_text(env: &Env, list: &mut Array, at: u32, bytes: &[u8]) -> Result<()> {
    match std::str::from_utf8(bytes) {
        Ok(text) => list.set(at, text),
        Err(_) => list.set(at, Uint8ArraySlice::copy_from(env, bytes)?),
    }
}
