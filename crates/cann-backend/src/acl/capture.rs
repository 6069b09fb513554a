//! Capturing what is enqueued on a stream, to replay it as one submission.

use std::sync::Arc;

use acl_sys::*;

use super::driver::Lease;
use super::status::{check, dropped};
use super::stream::Stream;
use crate::error::Result;

/// A recorded sequence of launches. What it names by address must live as long as it does.
#[derive(Debug)]
pub(crate) struct Model {
    lease: Arc<Lease>,
    raw: aclmdlRI,
}

// SAFETY: a process-wide handle; it is executed by the worker only and destroying it needs no binding.
unsafe impl Send for Model {}

/// Whether the library can capture at all.
pub(crate) fn is_available(api: &AclApi) -> bool {
    [
        AclFn::aclmdlRICaptureBegin,
        AclFn::aclmdlRICaptureGetInfo,
        AclFn::aclmdlRICaptureEnd,
        AclFn::aclmdlRIExecuteAsync,
        AclFn::aclmdlRIDestroy,
    ]
    .iter()
    .all(|f| api.has(*f))
}

/// Records what `enqueue` puts on the stream instead of running it. When `enqueue` fails the capture is ended and thrown away.
pub(crate) fn capture(lease: &Arc<Lease>, stream: &Stream, enqueue: impl FnOnce() -> Result<()>) -> Result<Model> {
    let api = &lease.target.api;
    // Thread-local: other backends of the process may allocate and copy meanwhile.
    // SAFETY: the stream is alive.
    let code = unsafe { (api.aclmdlRICaptureBegin)(stream.raw(), ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL) };
    check(api, AclFn::aclmdlRICaptureBegin, code)?;
    let mut recording = Recording { lease, stream, ended: false };
    enqueue()?;
    recording.end()
}

/// Ends the capture on every path, a panic included.
struct Recording<'a> {
    lease: &'a Arc<Lease>,
    stream: &'a Stream,
    ended: bool,
}

impl Recording<'_> {
    fn end(&mut self) -> Result<Model> {
        self.ended = true;
        let api = &self.lease.target.api;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the stream is alive and the pointer is to a local of the right type.
        check(api, AclFn::aclmdlRICaptureEnd, unsafe { (api.aclmdlRICaptureEnd)(self.stream.raw(), &mut raw) })?;
        Ok(Model { lease: self.lease.clone(), raw })
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        if !self.ended {
            // What was recorded is dropped with the model; an error here is logged by the check.
            drop(self.end());
        }
    }
}

impl Model {
    /// Enqueues the recorded launches.
    pub fn execute(&self, stream: &Stream) -> Result<()> {
        let api = &self.lease.target.api;
        // SAFETY: both handles are alive.
        check(api, AclFn::aclmdlRIExecuteAsync, unsafe { (api.aclmdlRIExecuteAsync)(self.raw, stream.raw()) })
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        if !self.raw.is_null()
            && let Some(_epoch) = self.lease.target.epoch.hold()
        {
            let api = &self.lease.target.api;
            // SAFETY: the handle is ours and used no more; whoever drops it has waited for its last execution.
            dropped(api, AclFn::aclmdlRIDestroy, unsafe { (api.aclmdlRIDestroy)(self.raw) });
        }
    }
}
