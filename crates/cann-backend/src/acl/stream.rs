//! A stream, and what is enqueued on it that is not an operator.
//!
//! **The memory contract of this crate.** Device addresses are numbers. Whoever enqueues work keeps both ends of a copy alive,
//! and does not touch the host end, until an event recorded afterwards is past: they hand the owners to
//! `Worker::settle_after`, or call [`Stream::synchronize`] before letting go. Lengths are checked here against what the caller says;
//! addresses come from owners in `memory.rs` only.

use std::sync::Arc;

use acl_sys::*;

use super::driver::Lease;
use super::event::AclEvent;
use super::status::{check, dropped};
use crate::error::Result;

/// A stream of one device; work on it runs in order. Belongs to the worker thread that made it.
#[derive(Debug)]
pub(crate) struct Stream {
    lease: Arc<Lease>,
    raw: aclrtStream,
}

impl Stream {
    pub fn create(lease: &Arc<Lease>) -> Result<Stream> {
        let api = &lease.target.api;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is to a local of the right type.
        check(api, AclFn::aclrtCreateStream, unsafe { (api.aclrtCreateStream)(&mut raw) })?;
        Ok(Stream { lease: lease.clone(), raw })
    }

    pub fn raw(&self) -> aclrtStream {
        self.raw
    }

    /// Blocks until all that was enqueued is done. Kernel faults surface here.
    pub fn synchronize(&self) -> Result<()> {
        let api = self.api();
        // SAFETY: the stream is alive.
        check(api, AclFn::aclrtSynchronizeStream, unsafe { (api.aclrtSynchronizeStream)(self.raw) })
    }

    /// Host to device. From pageable memory the call blocks until the copy is done, from pinned memory it returns at once.
    pub fn copy_in(&self, dst: u64, src: &[u8]) -> Result<()> {
        self.copy(dst, src.as_ptr() as u64, src.len() as u64, ACL_MEMCPY_HOST_TO_DEVICE)
    }

    /// Device to host; the slice has its content when an event after this is past.
    pub fn copy_out(&self, dst: &mut [u8], src: u64) -> Result<()> {
        self.copy(dst.as_mut_ptr() as u64, src, dst.len() as u64, ACL_MEMCPY_DEVICE_TO_HOST)
    }

    /// Device to device.
    pub fn copy_device(&self, dst: u64, src: u64, bytes: u64) -> Result<()> {
        self.copy(dst, src, bytes, ACL_MEMCPY_DEVICE_TO_DEVICE)
    }

    /// Sets `bytes` bytes to `byte`.
    pub fn fill(&self, dst: u64, byte: u8, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let (api, n) = (self.api(), bytes as usize);
        // SAFETY: the contract above: the caller owns `bytes` bytes at `dst` until the stream is past this.
        let code = unsafe { (api.aclrtMemsetAsync)(dst as *mut _, n, i32::from(byte), n, self.raw) };
        check(api, AclFn::aclrtMemsetAsync, code)
    }

    pub fn record(&self, event: &AclEvent) -> Result<()> {
        let api = self.api();
        // SAFETY: both handles are alive.
        check(api, AclFn::aclrtRecordEvent, unsafe { (api.aclrtRecordEvent)(event.raw(), self.raw) })
    }

    /// What is enqueued after this runs once the device is past the event.
    pub fn wait(&self, event: &AclEvent) -> Result<()> {
        let api = self.api();
        // SAFETY: both handles are alive.
        check(api, AclFn::aclrtStreamWaitEvent, unsafe { (api.aclrtStreamWaitEvent)(self.raw, event.raw()) })
    }

    fn copy(&self, dst: u64, src: u64, bytes: u64, kind: aclrtMemcpyKind) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let (api, n) = (self.api(), bytes as usize);
        // SAFETY: the contract above: both ends hold `bytes` bytes and stay until the stream is past this.
        let code = unsafe { (api.aclrtMemcpyAsync)(dst as *mut _, n, src as *const _, n, kind, self.raw) };
        check(api, AclFn::aclrtMemcpyAsync, code)
    }

    fn api(&self) -> &AclApi {
        &self.lease.target.api
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let Some(_epoch) = self.lease.target.epoch.hold() else { return };
        let api = self.api();
        // SAFETY: the handle is ours and used no more; the worker that drops it is bound to the device.
        dropped(api, AclFn::aclrtDestroyStream, unsafe { (api.aclrtDestroyStream)(self.raw) });
    }
}
