//! Promises that native threads settle.
//!
//! `create_deferred` keeps the event loop alive until it is settled and is safe when the environment ends first. The
//! resolver runs on the JavaScript thread, so that is where error objects and class instances are made.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use cann_backend::backend::Done;
use cann_backend::error::Error;
use napi::bindgen_prelude::{Object, ToNapiValue};
use napi::{Env, Result};

use crate::error::to_js;

type Resolver<T> = Box<dyn FnOnce(Env) -> Result<T> + Send>;

/// A promise for what `start` hands to its `Done`, turned into a JavaScript value by `wrap` on the JavaScript thread.
pub(crate) fn promise<'env, U, T>(
    env: &'env Env,
    start: impl FnOnce(Done<U>),
    wrap: impl FnOnce(&Env, U) -> Result<T> + Send + 'static,
) -> Result<Object<'env>>
where
    U: Send + 'static,
    T: ToNapiValue + 'static,
{
    let (deferred, promise) = env.create_deferred::<T, Resolver<T>>()?;
    start(Box::new(move |result| {
        deferred.resolve(Box::new(move |env| match result {
            Ok(value) => wrap(&env, value),
            Err(error) => Err(to_js(&env, &error)),
        }));
    }));
    Ok(promise)
}

/// As [`promise`], for work that gives nothing.
pub(crate) fn promise_unit<'env>(env: &'env Env, start: impl FnOnce(Done<()>)) -> Result<Object<'env>> {
    promise(env, start, |_, ()| Ok(()))
}

/// A promise for what `work` returns on a thread of its own: probing drivers and reading files' headers may block.
pub(crate) fn promise_on_thread<'env, U, T>(
    env: &'env Env,
    name: &str,
    work: impl FnOnce() -> std::result::Result<U, Error> + Send + 'static,
    wrap: impl FnOnce(&Env, U) -> Result<T> + Send + 'static,
) -> Result<Object<'env>>
where
    U: Send + 'static,
    T: ToNapiValue + 'static,
{
    promise(env, |done| on_thread(name, done, work, |value, done| done(Ok(value))), wrap)
}

/// Runs `work` on a thread of its own, then hands its result and the right to answer to `then`. A panic in `work` answers.
pub(crate) fn on_thread<A, U>(
    name: &str,
    done: Done<U>,
    work: impl FnOnce() -> std::result::Result<A, Error> + Send + 'static,
    then: impl FnOnce(A, Done<U>) + Send + 'static,
) where
    A: 'static,
    U: Send + 'static,
{
    // Either side may answer: the thread, or this one when there is no thread.
    let slot = Arc::new(Mutex::new(Some(done)));
    let theirs = slot.clone();
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        let result =
            catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(Error::Internal(panic_text(&*panic))));
        if let Some(done) = take(&theirs) {
            match result {
                Ok(value) => then(value, done),
                Err(error) => done(Err(error)),
            }
        }
    });
    if let Err(error) = spawned
        && let Some(done) = take(&slot)
    {
        done(Err(Error::Internal(format!("no thread could be started: {error}"))));
    }
}

fn take<T>(slot: &Mutex<Option<T>>) -> Option<T> {
    slot.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take()
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text =
        panic.downcast_ref::<&str>().map(|s| (*s).to_owned()).or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without a message".to_owned())
}
