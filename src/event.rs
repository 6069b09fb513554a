//! Events between backends.

use cann_backend::backend::Event as Core;
use napi::bindgen_prelude::Object;
use napi::{Env, Result};
use napi_derive::napi;

use crate::promise::promise_unit;

#[napi]
pub struct Event {
    pub(crate) inner: Core,
}

#[napi]
impl Event {
    #[napi(catch_unwind)]
    pub fn query(&self) -> bool {
        self.inner.query()
    }

    #[napi(getter, catch_unwind)]
    pub fn disposed(&self) -> bool {
        self.inner.is_disposed()
    }

    #[napi(catch_unwind, ts_return_type = "Promise<void>")]
    pub fn synchronize<'env>(&self, env: &'env Env) -> Result<Object<'env>> {
        promise_unit(env, |done| self.inner.synchronize(done))
    }

    #[napi(catch_unwind)]
    pub fn dispose(&self) {
        self.inner.dispose();
    }
}
