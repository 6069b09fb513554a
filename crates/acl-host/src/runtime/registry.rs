//! Handles. What C code holds is a number that was never an address, so a stale or invented handle is found out, not followed.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, RwLock};

/// Locks whatever a panicking thread left behind: states are changed in single steps and stay whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A handle never used before, by any kind of object.
pub(crate) fn fresh_handle() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0x100);
    NEXT.fetch_add(0x10, Ordering::Relaxed)
}

pub(crate) fn handle_pointer(handle: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(handle)
}

/// Live objects of one kind by handle.
pub(crate) struct Registry<T> {
    objects: LazyLock<RwLock<HashMap<usize, Arc<T>>>>,
}

impl<T> Registry<T> {
    pub(crate) const fn new() -> Registry<T> {
        Registry { objects: LazyLock::new(|| RwLock::new(HashMap::new())) }
    }

    pub(crate) fn insert(&self, handle: usize, object: Arc<T>) {
        self.objects.write().unwrap_or_else(PoisonError::into_inner).insert(handle, object);
    }

    pub(crate) fn find(&self, handle: *const c_void) -> Option<Arc<T>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).get(&handle.addr()).cloned()
    }

    pub(crate) fn remove(&self, handle: *const c_void) -> Option<Arc<T>> {
        self.objects.write().unwrap_or_else(PoisonError::into_inner).remove(&handle.addr())
    }

    pub(crate) fn select(&self, mut wanted: impl FnMut(&T) -> bool) -> Vec<Arc<T>> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        objects.values().filter(|object| wanted(object)).cloned().collect()
    }

    pub(crate) fn remove_all(&self, mut unwanted: impl FnMut(&T) -> bool) -> Vec<Arc<T>> {
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        objects.extract_if(|_, object| unwanted(object)).map(|(_, object)| object).collect()
    }
}
