//! Events: marks in a stream.

use std::sync::Arc;

use acl_sys::*;

use super::driver::Lease;
use super::status::{check, dropped};
use crate::error::Result;

/// An event of one device. Recording it again moves the mark.
#[derive(Debug)]
pub(crate) struct AclEvent {
    lease: Arc<Lease>,
    raw: aclrtEvent,
}

// SAFETY: ACL handles are process-wide; any thread may use them while the device is bound there, which the callers see to,
// and destroying one needs no binding.
unsafe impl Send for AclEvent {}
// SAFETY: as above; every function takes the handle by value and the library locks for itself.
unsafe impl Sync for AclEvent {}

impl AclEvent {
    pub fn create(lease: &Arc<Lease>) -> Result<AclEvent> {
        let api = &lease.target.api;
        let mut raw = std::ptr::null_mut();
        if api.has(AclFn::aclrtCreateEventWithFlag) {
            // SAFETY: the pointer is to a local of the right type.
            let code = unsafe { (api.aclrtCreateEventWithFlag)(&mut raw, ACL_EVENT_SYNC) };
            check(api, AclFn::aclrtCreateEventWithFlag, code)?;
        } else {
            // SAFETY: as above.
            check(api, AclFn::aclrtCreateEvent, unsafe { (api.aclrtCreateEvent)(&mut raw) })?;
        }
        Ok(AclEvent { lease: lease.clone(), raw })
    }

    pub fn raw(&self) -> aclrtEvent {
        self.raw
    }

    /// Whether the device is past the mark. An event that was never recorded is.
    pub fn is_past(&self) -> Result<bool> {
        let api = &self.lease.target.api;
        let mut status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
        // SAFETY: the event is alive and the pointer is to a local of the right type.
        let code = unsafe { (api.aclrtQueryEventStatus)(self.raw, &mut status) };
        check(api, AclFn::aclrtQueryEventStatus, code)?;
        Ok(status == ACL_EVENT_RECORDED_STATUS_COMPLETE)
    }

    /// Blocks until the device is past the mark.
    pub fn synchronize(&self) -> Result<()> {
        let api = &self.lease.target.api;
        // SAFETY: the event is alive.
        check(api, AclFn::aclrtSynchronizeEvent, unsafe { (api.aclrtSynchronizeEvent)(self.raw) })
    }
}

impl Drop for AclEvent {
    fn drop(&mut self) {
        let Some(_epoch) = self.lease.target.epoch.hold() else { return };
        let api = &self.lease.target.api;
        // SAFETY: the handle is ours and used no more; the lease keeps its device up.
        dropped(api, AclFn::aclrtDestroyEvent, unsafe { (api.aclrtDestroyEvent)(self.raw) });
    }
}
