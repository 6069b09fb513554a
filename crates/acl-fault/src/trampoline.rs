//! The functions of the table that [`install`] gives.

use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use acl_sys::*;

use crate::state::{self, Fault, Outcome, Record};

/// What the trampolines call. Never freed: other threads may be in it.
static INNER: AtomicPtr<AclApi> = AtomicPtr::new(std::ptr::null_mut());

/// A table that counts, logs and fails calls on their way to `inner`. A second installation changes what the tables of the
/// first one call, too. What `inner` lacks is absent here as well.
pub fn install(inner: AclApi) -> AclApi {
    let present = inner.present.clone();
    INNER.store(Box::into_raw(Box::new(inner)), Ordering::Release);
    AclApi {
        aclmdlRICaptureEnd: capture_end,
        aclSetAclOpExecutorRepeatable: set_repeatable,
        aclDestroyAclOpExecutor: destroy_executor,
        ..table(present)
    }
}

/// Whether a function gives something back, so that failing it must not keep the thing alive.
pub fn is_release(function: AclFn) -> bool {
    use AclFn::*;
    function.name().starts_with("aclDestroy")
        || matches!(
            function,
            aclFinalize
                | aclrtResetDevice
                | aclrtResetDeviceForce
                | aclrtDeviceDisablePeerAccess
                | aclrtFree
                | aclrtFreeHost
                | aclrtReleaseMemAddress
                | aclrtFreePhysical
                | aclrtUnmapMem
                | aclrtDestroyStream
                | aclrtDestroyEvent
                | aclmdlRICaptureEnd
                | aclmdlRIDestroy
        )
}

fn inner() -> &'static AclApi {
    // SAFETY: trampolines are reached through a table of `install` only, which stored a leaked box before.
    unsafe { &*INNER.load(Ordering::Acquire) }
}

/// What a function returns.
trait Answer: Copy {
    fn failed(code: aclError) -> Self;
    fn outcome(self) -> Outcome;
}
impl Answer for aclError {
    fn failed(code: aclError) -> aclError {
        code
    }
    fn outcome(self) -> Outcome {
        Outcome::Status(self)
    }
}
impl<T> Answer for *const T {
    fn failed(_: aclError) -> *const T {
        std::ptr::null()
    }
    fn outcome(self) -> Outcome {
        Outcome::Pointer(!self.is_null())
    }
}
impl<T> Answer for *mut T {
    fn failed(_: aclError) -> *mut T {
        std::ptr::null_mut()
    }
    fn outcome(self) -> Outcome {
        Outcome::Pointer(!self.is_null())
    }
}

/// Counts a call, makes it or what a failure of it leaves, and logs the answer.
fn through<T: Answer>(function: AclFn, make: impl FnOnce() -> T, fail: impl FnOnce(&Fault)) -> T {
    let (number, fault) = state::with(|state| state.begin(function));
    let answer = match &fault {
        None => make(),
        Some(fault) => {
            fail(fault);
            T::failed(fault.code)
        }
    };
    let record = Record { number, function, outcome: answer.outcome(), injected: fault.is_some() };
    state::with(|state| state.end(record));
    answer
}

macro_rules! trampolines {
    (functions { $(fn $group:ident $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)* }
     operators { $(op $run:ident $size:ident($($oarg:ident: $oty:ty),*);)* }) => {
        $(unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            // SAFETY: the caller's duty is the inner function's.
            let call = || unsafe { (inner().$name)($($arg),*) };
            through(AclFn::$name, call, |fault| {
                if fault.release_inner && is_release(AclFn::$name) {
                    let _ = call();
                }
            })
        })*
        $(
            unsafe extern "C" fn $size(
                $($oarg: $oty,)*
                workspace_bytes: *mut u64,
                executor: *mut *mut aclOpExecutor,
            ) -> aclnnStatus {
                // SAFETY: as above.
                through(AclFn::$size, || unsafe { (inner().$size)($($oarg,)* workspace_bytes, executor) }, |_| ())
            }
            unsafe extern "C" fn $run(
                workspace: *mut c_void,
                workspace_bytes: u64,
                executor: *mut aclOpExecutor,
                stream: aclrtStream,
            ) -> aclnnStatus {
                // SAFETY: as above.
                let call = || unsafe { (inner().$run)(workspace, workspace_bytes, executor, stream) };
                // SAFETY: as above; a second phase gives up an executor that is not repeatable.
                through(AclFn::$run, call, |_| unsafe { consume(executor) })
            }
        )*

        fn table(present: Vec<bool>) -> AclApi {
            AclApi { $($name,)* $($size, $run,)* present }
        }
    };
}
acl_functions!(trampolines);

/// What a second phase does to its executor, whether it succeeds or not.
///
/// # Safety
/// `executor` is null or a live executor of the inner table that the caller uses no more unless it is repeatable.
unsafe fn consume(executor: *mut aclOpExecutor) {
    let kept = executor.is_null() || state::with(|state| state.repeatable.contains(&executor.addr()));
    if !kept {
        // The interface frees only what is repeatable.
        // SAFETY: the caller's promise.
        unsafe {
            if (inner().aclSetAclOpExecutorRepeatable)(executor) == ACL_SUCCESS {
                (inner().aclDestroyAclOpExecutor)(executor);
            }
        }
    }
}

unsafe extern "C" fn set_repeatable(executor: *mut aclOpExecutor) -> aclnnStatus {
    // SAFETY: the caller's duty is the inner function's.
    let make = || unsafe { (inner().aclSetAclOpExecutorRepeatable)(executor) };
    let code = through(AclFn::aclSetAclOpExecutorRepeatable, make, |_| ());
    if code == ACL_SUCCESS {
        state::with(|state| state.repeatable.insert(executor.addr()));
    }
    code
}

unsafe extern "C" fn destroy_executor(executor: *mut aclOpExecutor) -> aclnnStatus {
    // Before the call: the address may be another executor's as soon as it returns.
    state::with(|state| state.repeatable.remove(&executor.addr()));
    // SAFETY: the generated trampoline has the same contract.
    unsafe { aclDestroyAclOpExecutor(executor) }
}

unsafe extern "C" fn capture_end(stream: aclrtStream, model: *mut aclmdlRI) -> aclError {
    // SAFETY: the caller's duty is the inner function's.
    let make = || unsafe { (inner().aclmdlRICaptureEnd)(stream, model) };
    through(AclFn::aclmdlRICaptureEnd, make, |fault| {
        let mut unwanted = std::ptr::null_mut();
        // SAFETY: as above, with a local to write to; the model is known to nobody else.
        unsafe {
            if fault.release_inner
                && (inner().aclmdlRICaptureEnd)(stream, &mut unwanted) == ACL_SUCCESS
                && !unwanted.is_null()
            {
                (inner().aclmdlRIDestroy)(unwanted);
            }
        }
    })
}
