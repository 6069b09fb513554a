//! What one JavaScript environment (main thread or worker) owns in the addon.

use std::cell::RefCell;
use std::rc::Rc;

use napi::bindgen_prelude::{FnArgs, Function, FunctionRef, Unknown};
use napi::{Env, Result};
use napi_derive::napi;
use tokio_util::sync::CancellationToken;

use crate::error::ErrorFields;
use crate::log;
use crate::promise::Promises;

pub(crate) type ErrorArgs = FnArgs<(String, String, ErrorFields)>;

/// Instance data of an environment.
pub(crate) struct State {
    pub(crate) error_factory: FunctionRef<ErrorArgs, Unknown<'static>>,
    pub(crate) log_sink: u64,
    pub(crate) promises: Rc<Promises>,
    uploads: Rc<RefCell<Vec<CancellationToken>>>,
}

impl State {
    pub(crate) fn of(env: &Env) -> Option<&'static mut State> {
        env.get_instance_data::<State>().ok().flatten()
    }
}

/// Prepares this environment. `errorFactory(code, message, fields)` makes the error objects that calls throw and reject with;
/// `wake()` is called when promises are ready: it calls `settleReady()`, turn by turn, until that returns false.
#[napi(catch_unwind)]
pub fn init(
    env: Env,
    #[napi(ts_arg_type = "(code: string, message: string, fields: ErrorFields) => Error")] error_factory: Function<
        ErrorArgs,
        Unknown<'static>,
    >,
    #[napi(ts_arg_type = "() => void")] wake: Function<(), Unknown<'static>>,
) -> Result<()> {
    let uploads = Rc::new(RefCell::new(Vec::<CancellationToken>::new()));
    let log_sink = log::new_sink_id();
    let promises = Rc::new(Promises::new(&wake)?);
    let close_promises = promises.closer();
    let state = State { error_factory: error_factory.create_ref()?, log_sink, promises, uploads: uploads.clone() };
    env.set_instance_data(state, (), |_| ())?;
    env.add_env_cleanup_hook((), move |()| {
        log::remove_sink(log_sink);
        close_promises();
        for token in uploads.borrow().iter() {
            token.cancel();
        }
    })?;
    Ok(())
}

/// A cancellation request that an upload or a run polls. The facade makes one per AbortSignal; the end of the
/// environment cancels those of uploads.
#[napi]
pub struct CancelToken {
    pub(crate) inner: CancellationToken,
}

#[napi]
impl CancelToken {
    #[napi(constructor, catch_unwind)]
    #[allow(clippy::new_without_default)]
    pub fn new() -> CancelToken {
        CancelToken { inner: CancellationToken::new() }
    }

    #[napi(catch_unwind)]
    pub fn cancel(&self) {
        self.inner.cancel();
    }
}

/// Cancels `token` when the environment ends; forgets tokens of uploads that are over.
pub(crate) fn cancel_at_exit(env: &Env, token: &CancellationToken) {
    if let Some(state) = State::of(env) {
        let mut uploads = state.uploads.borrow_mut();
        uploads.retain(|token| !token.is_cancelled());
        uploads.push(token.clone());
    }
}

/// The upload of `token` is over. Cancelling it marks it as forgotten.
pub(crate) fn upload_over(token: &CancellationToken) {
    token.cancel();
}
