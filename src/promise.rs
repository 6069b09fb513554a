//! Promises that native threads settle.
//!
//! What is ready waits in one queue an environment, in order with the progress reports of uploads. The thread that finds the queue
//! asleep wakes the environment, where the facade takes a little of it in each turn of the event loop, so that thousands of promises
//! that get ready at once hold nobody up; errors and class instances are made at that moment. One waker for all: napi's own
//! deferreds have one each, and libuv looks at every waker there is whenever it is woken, so that ten thousand pending runs took
//! twice the time.
//!
//! A pending promise keeps the event loop alive. When the environment ends first, what is ready is dropped.

use std::any::Any;
use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};

use cann_backend::backend::Done;
use cann_backend::error::Error;
use napi::bindgen_prelude::{Function, JsValue, JsValuesTupleIntoVec, Object, ToNapiValue, Unknown};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Env, Result, Status, check_status, sys};
use napi_derive::napi;

use crate::error::to_js;
use crate::state::State;

/// What one call of `settle_ready` settles.
const AT_A_TIME: usize = 64;

type Waker = ThreadsafeFunction<(), Unknown<'static>, (), Status, false, true>;
type Value = Box<dyn FnOnce(&Env) -> Result<Unknown<'_>> + Send>;
type Job = Box<dyn FnOnce(&Env, &Promises) -> Result<()> + Send>;

/// The promises of one environment.
pub(crate) struct Promises {
    ready: Arc<Ready>,
    pending: Cell<usize>,
}

/// What other threads have for an environment.
struct Ready {
    queue: Mutex<Queue>,
    waker: Waker,
}

struct Queue {
    jobs: VecDeque<Job>,
    /// The environment knows already that there is something.
    awake: bool,
    closed: bool,
}

/// The napi side of a pending promise.
struct Raw(sys::napi_deferred);

// SAFETY: other threads carry it and no more; `settle` and `begin` use it, on the thread of the environment that it is of.
unsafe impl Send for Raw {}

/// The right to settle a promise. Dropping it unused rejects: nobody waits for ever.
struct Deferred {
    raw: Option<Raw>,
    ready: Arc<Ready>,
}

impl Promises {
    /// `wake` is called on this environment's thread, with nothing, when `settle_ready` has something to do.
    pub(crate) fn new(wake: &Function<(), Unknown<'static>>) -> Result<Promises> {
        let waker = wake.build_threadsafe_function::<()>().weak::<true>().build()?;
        let queue = Mutex::new(Queue { jobs: VecDeque::new(), awake: false, closed: false });
        Ok(Promises { ready: Arc::new(Ready { queue, waker }), pending: Cell::new(0) })
    }

    pub(crate) fn of(env: &Env) -> Result<Rc<Promises>> {
        let promises = State::of(env).map(|state| state.promises.clone());
        promises.ok_or_else(|| napi::Error::from_reason("the addon was not initialised"))
    }

    /// What the end of the environment calls.
    pub(crate) fn closer(&self) -> impl FnOnce() + use<> {
        let ready = self.ready.clone();
        move || {
            let dropped = {
                let mut queue = ready.lock();
                queue.closed = true;
                std::mem::take(&mut queue.jobs)
            };
            drop(dropped);
        }
    }

    /// Calls `listener` with what any thread gives to the function that comes back: in order with the promises, and keeping nothing
    /// alive. What it throws is its own matter.
    pub(crate) fn reports<A>(&self, listener: &Function<A, Unknown<'static>>) -> Result<impl Fn(A) + Send + use<A>>
    where
        A: JsValuesTupleIntoVec + Send + 'static,
    {
        let listener = Arc::new(listener.create_ref()?);
        let ready = self.ready.clone();
        Ok(move |report| {
            let listener = listener.clone();
            ready.push(Box::new(move |env, _| listener.borrow_back(env)?.call(report).map(drop)));
        })
    }

    fn begin<'env>(&self, env: &'env Env) -> Result<(Deferred, Object<'env>)> {
        let (mut raw, mut promise) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the environment is live, and the calls fill both places or fail.
        check_status!(unsafe { sys::napi_create_promise(env.raw(), &mut raw, &mut promise) })?;
        self.count(env, self.pending.get() + 1)?;
        let promise = Object::from_raw(env.raw(), promise);
        Ok((Deferred { raw: Some(Raw(raw)), ready: self.ready.clone() }, promise))
    }

    fn settle(&self, env: &Env, raw: Raw, value: Value) -> Result<()> {
        self.count(env, self.pending.get() - 1)?;
        let (rejected, value) = match catch_unwind(AssertUnwindSafe(|| value(env))) {
            Ok(Ok(value)) => (false, value),
            Ok(Err(error)) => (true, error.into_unknown(env)?),
            Err(panic) => (true, to_js(env, &Error::Internal(panic_text(&*panic))).into_unknown(env)?),
        };
        let settle = if rejected { sys::napi_reject_deferred } else { sys::napi_resolve_deferred };
        // SAFETY: the environment is live; `raw` came from `begin` in it and is used up here.
        check_status!(unsafe { settle(env.raw(), raw.0, value.raw()) })
    }

    /// Counts pending promises: the first one keeps the event loop alive, the last one lets it go.
    fn count(&self, env: &Env, pending: usize) -> Result<()> {
        let change = match (self.pending.replace(pending), pending) {
            (0, 1) => sys::napi_ref_threadsafe_function,
            (1, 0) => sys::napi_unref_threadsafe_function,
            _ => return Ok(()),
        };
        // SAFETY: the environment is live and its waker ends with it; both are used on their own thread.
        check_status!(unsafe { change(env.raw(), self.ready.waker.raw()) })
    }
}

impl Ready {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn push(&self, job: Job) {
        let mut queue = self.lock();
        if queue.closed {
            // What `job` holds goes back without the lock.
            drop(queue);
            return;
        }
        queue.jobs.push_back(job);
        if !std::mem::replace(&mut queue.awake, true) {
            drop(queue);
            self.waker.call((), ThreadsafeFunctionCallMode::NonBlocking);
        }
    }

    fn settle(&self, raw: Raw, value: Value) {
        self.push(Box::new(move |env, promises| promises.settle(env, raw, value)));
    }
}

impl Deferred {
    fn settle(mut self, value: Value) {
        if let Some(raw) = self.raw.take() {
            self.ready.settle(raw, value);
        }
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        if let Some(raw) = self.raw.take() {
            let error = Error::Internal("the work was dropped before it was done".to_owned());
            self.ready.settle(raw, Box::new(move |env| Err(to_js(env, &error))));
        }
    }
}

/// Settles some of what is ready. True when there may be more, for a later turn of the event loop.
#[napi(catch_unwind)]
pub fn settle_ready(env: Env) -> Result<bool> {
    let promises = Promises::of(&env)?;
    for _ in 0..AT_A_TIME {
        let next = {
            let mut queue = promises.ready.lock();
            let next = queue.jobs.pop_front();
            queue.awake = next.is_some();
            next
        };
        let Some(job) = next else { return Ok(false) };
        job(&env, &promises)?;
    }
    Ok(true)
}

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
    let (deferred, promise) = Promises::of(env)?.begin(env)?;
    start(Box::new(move |result| {
        deferred.settle(Box::new(move |env| match result {
            Ok(value) => wrap(env, value)?.into_unknown(env),
            Err(error) => Err(to_js(env, &error)),
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
