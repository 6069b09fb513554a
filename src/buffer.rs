//! Raw memory: on the device, and pinned on the host.

use cann_backend::buffer::{DeviceBuffer as CoreDevice, HostBuffer as CoreHost};
use napi::bindgen_prelude::{Object, Uint8ArraySlice};
use napi::{Env, Result};
use napi_derive::napi;

use crate::convert;
use crate::error::OrJs;
use crate::promise::promise_unit;

#[napi]
pub struct DeviceBuffer {
    pub(crate) inner: CoreDevice,
}

#[napi]
impl DeviceBuffer {
    #[napi(getter, catch_unwind)]
    pub fn size(&self) -> f64 {
        self.inner.size() as f64
    }

    #[napi(getter, catch_unwind)]
    pub fn device(&self) -> String {
        self.inner.device().to_owned()
    }

    #[napi(getter, catch_unwind)]
    pub fn disposed(&self) -> bool {
        self.inner.is_disposed()
    }

    #[napi(catch_unwind, ts_return_type = "Promise<void>")]
    pub fn clear<'env>(&self, env: &'env Env, value: u8) -> Result<Object<'env>> {
        promise_unit(env, |done| self.inner.clear(value, done))
    }

    #[napi(catch_unwind)]
    pub fn dispose(&self) {
        self.inner.dispose();
    }
}

#[napi]
pub struct HostBuffer {
    pub(crate) inner: CoreHost,
}

#[napi]
impl HostBuffer {
    #[napi(getter, catch_unwind)]
    pub fn size(&self) -> f64 {
        self.inner.size() as f64
    }

    #[napi(getter, catch_unwind)]
    pub fn pinned(&self) -> bool {
        self.inner.pinned()
    }

    #[napi(getter, catch_unwind)]
    pub fn disposed(&self) -> bool {
        self.inner.is_disposed()
    }

    #[napi(catch_unwind)]
    pub fn write(&self, env: &Env, data: &[u8], offset: f64) -> Result<()> {
        let offset = convert::bytes(offset, "offset").or_js(env)?;
        self.inner.write(data, offset).or_js(env)
    }

    /// A copy, in memory that V8 owns.
    #[napi(catch_unwind)]
    pub fn read<'env>(&self, env: &'env Env, offset: f64, size: f64) -> Result<Uint8ArraySlice<'env>> {
        let offset = convert::bytes(offset, "offset").or_js(env)?;
        let size = convert::bytes(size, "size").or_js(env)?;
        let data = self.inner.read(offset, size).or_js(env)?;
        Uint8ArraySlice::copy_from(env, data)
    }

    #[napi(catch_unwind)]
    pub fn dispose(&self) {
        self.inner.dispose();
    }
}
