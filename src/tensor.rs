//! Device tensors. Data goes in as bytes copied before the call returns, and comes out as [`Bytes`].

use cann_backend::tensor::Tensor as Core;
use napi::bindgen_prelude::{BufferSlice, Object};
use napi::{Env, Result};
use napi_derive::napi;

use crate::convert;
use crate::error::OrJs;
use crate::promise::{promise, promise_unit};

#[napi]
pub struct Tensor {
    pub(crate) inner: Core,
}

#[napi]
impl Tensor {
    #[napi(getter, catch_unwind)]
    pub fn name(&self) -> String {
        self.inner.name().to_owned()
    }

    #[napi(getter, js_name = "type", catch_unwind)]
    pub fn dtype(&self) -> &'static str {
        self.inner.ty().name()
    }

    #[napi(getter, catch_unwind)]
    pub fn source_type(&self) -> &'static str {
        self.inner.source_type().name()
    }

    #[napi(getter, catch_unwind)]
    pub fn ne(&self) -> Vec<f64> {
        convert::numbers(&self.inner.ne())
    }

    #[napi(getter, catch_unwind)]
    pub fn nb(&self) -> Vec<f64> {
        convert::unsigned_numbers(&self.inner.nb())
    }

    #[napi(getter, catch_unwind)]
    pub fn nbytes(&self) -> f64 {
        self.inner.nbytes() as f64
    }

    #[napi(getter, catch_unwind)]
    pub fn disposed(&self) -> bool {
        self.inner.is_disposed()
    }

    #[napi(catch_unwind, ts_return_type = "Promise<void>")]
    pub fn write<'env>(&self, env: &'env Env, data: &[u8], offset: f64) -> Result<Object<'env>> {
        let offset = convert::bytes(offset, "offset").or_js(env)?;
        let data = data.to_vec();
        promise_unit(env, |done| self.inner.write(data, offset, done))
    }

    #[napi(catch_unwind, ts_return_type = "Promise<Bytes>")]
    pub fn read<'env>(&self, env: &'env Env, offset: f64, size: f64) -> Result<Object<'env>> {
        let offset = convert::bytes(offset, "offset").or_js(env)?;
        let size = convert::bytes(size, "size").or_js(env)?;
        promise(env, |done| self.inner.read(offset, size, done), |_, data| Ok(Bytes { data }))
    }

    #[napi(catch_unwind, ts_return_type = "Promise<void>")]
    pub fn fill<'env>(&self, env: &'env Env, byte: u8) -> Result<Object<'env>> {
        promise_unit(env, |done| self.inner.fill(byte, done))
    }

    #[napi(catch_unwind)]
    pub fn dispose(&self) {
        self.inner.dispose();
    }
}

/// What a read gave. The facade copies it into an array that V8 owns, piece by piece and on the JavaScript thread.
#[napi]
pub struct Bytes {
    data: Vec<u8>,
}

#[napi]
impl Bytes {
    /// Copies what begins at `offset` into all of `dst`; false when there is not as much.
    #[napi(catch_unwind)]
    pub fn copy(&self, mut dst: BufferSlice, offset: f64) -> bool {
        convert::copy_part(&self.data, offset, &mut dst)
    }

    #[napi(catch_unwind)]
    pub fn release(&mut self) {
        self.data = Vec::new();
    }
}
