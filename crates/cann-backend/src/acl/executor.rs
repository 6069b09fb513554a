//! One operator call, made ready once and launched many times.
//!
//! The C objects of its arguments live as long as the call: a repeatable executor refers to them. Where a library cannot make
//! an executor repeatable, the first phase is run again before each launch.

use std::ffi::c_void;
use std::sync::Arc;

use acl_sys::*;

use super::args::{self, CArg};
use super::status;
use super::tensor;
use crate::error::{Error, Result};
use crate::lower::{Arg, ScalarArg, TensorArg};

/// Owns the C objects of one call's arguments.
struct Objects {
    api: Arc<AclApi>,
    args: Vec<CArg>,
}

// SAFETY: aclnn objects are plain host descriptions; the interface allows any thread that has the device selected to use
// them, and a Prepared is used by one thread at a time.
unsafe impl Send for Objects {}

impl Drop for Objects {
    fn drop(&mut self) {
        for arg in &self.args {
            // SAFETY: each object was created in `Objects::new`, is destroyed once, and no launch that uses it is to come.
            // A list destroys its elements.
            unsafe {
                match *arg {
                    CArg::Tensor(p) if !p.is_null() => (self.api.aclDestroyTensor)(p),
                    CArg::Tensors(p) if !p.is_null() => (self.api.aclDestroyTensorList)(p),
                    CArg::Scalar(p) if !p.is_null() => (self.api.aclDestroyScalar)(p),
                    CArg::Ints(p) if !p.is_null() => (self.api.aclDestroyIntArray)(p),
                    _ => ACL_SUCCESS,
                };
            }
        }
    }
}

impl Objects {
    /// # Safety
    /// `address` gives, for each tensor, the address of memory that outlives every launch.
    unsafe fn new(api: &Arc<AclApi>, op: AclOp, args: &[Arg], address: &dyn Fn(&TensorArg) -> u64) -> Result<Objects> {
        let mut objects = Objects { api: api.clone(), args: Vec::with_capacity(args.len()) };
        for (position, arg) in args.iter().enumerate() {
            // SAFETY: passed on.
            let made = unsafe { Self::make(api, arg, address) }.ok_or_else(|| {
                let call =
                    if matches!(arg, Arg::Tensors(_)) { AclFn::aclCreateTensorList } else { AclFn::aclCreateTensor };
                let detail = format!("argument {position} of {} could not be described: {arg:?}", op.name());
                Error::acl(call, ACLNN_ERR_PARAM_INVALID, detail)
            })?;
            objects.args.push(made);
        }
        Ok(objects)
    }

    /// # Safety
    /// As [`Objects::new`].
    unsafe fn make(api: &AclApi, arg: &Arg, address: &dyn Fn(&TensorArg) -> u64) -> Option<CArg> {
        let not_null = |made: CArg, null: bool| (!null).then_some(made);
        // SAFETY: values are read during the calls; tensor memory is the caller's promise.
        unsafe {
            match arg {
                Arg::Tensor(t) => tensor::create(api, t, address(t)).map(CArg::Tensor),
                Arg::NoTensor => Some(CArg::Tensor(std::ptr::null_mut())),
                Arg::NoTensors => Some(CArg::Tensors(std::ptr::null_mut())),
                Arg::NoInts => Some(CArg::Ints(std::ptr::null_mut())),
                Arg::Tensors(list) => {
                    let mut made: Vec<*const aclTensor> = Vec::with_capacity(list.len());
                    for t in list {
                        match tensor::create(api, t, address(t)) {
                            Some(p) => made.push(p),
                            None => {
                                made.iter().for_each(|p| {
                                    (api.aclDestroyTensor)(*p);
                                });
                                return None;
                            }
                        }
                    }
                    let list = (api.aclCreateTensorList)(made.as_ptr(), made.len() as u64);
                    if list.is_null() {
                        made.iter().for_each(|p| {
                            (api.aclDestroyTensor)(*p);
                        });
                    }
                    not_null(CArg::Tensors(list), list.is_null())
                }
                Arg::Scalar(ScalarArg::F32(v)) => {
                    let p = (api.aclCreateScalar)((v as *const f32).cast_mut().cast::<c_void>(), ACL_FLOAT);
                    not_null(CArg::Scalar(p), p.is_null())
                }
                Arg::Scalar(ScalarArg::I64(v)) => {
                    let p = (api.aclCreateScalar)((v as *const i64).cast_mut().cast::<c_void>(), ACL_INT64);
                    not_null(CArg::Scalar(p), p.is_null())
                }
                Arg::Ints(v) => {
                    let p = (api.aclCreateIntArray)(v.as_ptr(), v.len() as u64);
                    not_null(CArg::Ints(p), p.is_null())
                }
                Arg::I64(v) => Some(CArg::I64(*v)),
                Arg::I32(v) => Some(CArg::I32(*v)),
                Arg::I8(v) => Some(CArg::I8(*v)),
                Arg::F64(v) => Some(CArg::F64(*v)),
                Arg::Bool(v) => Some(CArg::Bool(*v)),
                Arg::DType(v) => Some(CArg::I32(*v)),
                Arg::Str(v) => Some(CArg::Str(v.as_ptr())),
            }
        }
    }
}

/// An operator call with its executor.
pub(crate) struct Prepared {
    op: AclOp,
    // Before `objects`: an executor goes before what it refers to.
    executor: *mut aclOpExecutor,
    repeatable: bool,
    workspace_bytes: u64,
    objects: Objects,
}

// SAFETY: as for Objects: executors carry their context and may be launched from any thread with the device selected.
unsafe impl Send for Prepared {}

impl Prepared {
    /// Describes the arguments and runs the first phase.
    ///
    /// # Safety
    /// `address` gives, for each tensor, the address of memory that outlives every launch; the calling thread has the device
    /// selected.
    pub unsafe fn new(
        api: &Arc<AclApi>,
        op: AclOp,
        args: &[Arg],
        address: &dyn Fn(&TensorArg) -> u64,
    ) -> Result<Prepared> {
        // SAFETY: passed on.
        let objects = unsafe { Objects::new(api, op, args, address) }?;
        let mut prepared =
            Prepared { op, executor: std::ptr::null_mut(), repeatable: false, workspace_bytes: 0, objects };
        prepared.first_phase()?;
        // SAFETY: a fresh executor of this library.
        prepared.repeatable = unsafe { (api.aclSetAclOpExecutorRepeatable)(prepared.executor) } == ACL_SUCCESS;
        Ok(prepared)
    }

    pub fn workspace_bytes(&self) -> u64 {
        self.workspace_bytes
    }

    fn first_phase(&mut self) -> Result<()> {
        let api = &self.objects.api;
        let (mut bytes, mut executor) = (0, std::ptr::null_mut());
        // SAFETY: the objects are alive and ours; the device is selected, as `new` and `launch` demand.
        let code = unsafe { args::first_phase(api, self.op, &self.objects.args, &mut bytes, &mut executor) }.map_err(
            |position| Error::Internal(format!("the lowering of {} has a wrong argument {position}", self.op.name())),
        )?;
        status::check(api, self.op.phase_one(), code)?;
        if executor.is_null() {
            return Err(Error::Internal(format!("{} gave no executor", self.op.phase_one().name())));
        }
        self.executor = executor;
        self.workspace_bytes = bytes;
        Ok(())
    }

    /// Enqueues the call. An executor that is not repeatable is made anew by the launch after it.
    ///
    /// # Safety
    /// `workspace` is the device address of at least `workspace_bytes()` bytes that later work of the same stream may reuse;
    /// `stream` is live; the calling thread has the device selected.
    pub unsafe fn launch(&mut self, workspace: u64, stream: aclrtStream) -> Result<()> {
        if self.executor.is_null() {
            self.first_phase()?;
        }
        let executor = self.executor;
        if !self.repeatable {
            // The second phase consumes it, whether it succeeds or not.
            self.executor = std::ptr::null_mut();
        }
        let api = &self.objects.api;
        // SAFETY: the executor is unspent and its objects are alive; the rest is the caller's duty.
        let code = unsafe { (api.run(self.op))(workspace as *mut c_void, self.workspace_bytes, executor, stream) };
        status::check(api, self.op.phase_two(), code)
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if self.executor.is_null() {
            return;
        }
        let api = &self.objects.api;
        // Only a repeatable executor can be freed without a launch. One that could not be made so is asked once more; if it
        // really is none, it stays: the interface has no call for it.
        // SAFETY: an executor of this library that was not launched.
        if self.repeatable || unsafe { (api.aclSetAclOpExecutorRepeatable)(self.executor) } == ACL_SUCCESS {
            // SAFETY: repeatable, ours, and destroyed once.
            let code = unsafe { (api.aclDestroyAclOpExecutor)(self.executor) };
            if code != ACL_SUCCESS {
                tracing::warn!(op = self.op.name(), code, "an executor could not be destroyed");
            }
        }
    }
}
