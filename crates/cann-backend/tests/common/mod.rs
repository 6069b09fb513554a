//! Four virtual devices in checked mode, and futures turned into calls.
#![allow(dead_code)]

pub mod driver;

use std::sync::{Arc, mpsc};
use std::time::Duration;

use acl_sys::AclApi;
use cann_backend::{
    Backend, Done, DriverEntry, DriverKind, OpenOptions, PoolChoice, Registry, Result, Selector, Tensor, TensorSpec,
};
use gguf::GgmlType;

/// Asks and waits for the answer.
pub fn wait<T: Send + 'static>(ask: impl FnOnce(Done<T>)) -> Result<T> {
    later(ask).get()
}

/// Asks; the answer is taken later.
pub fn later<T: Send + 'static>(ask: impl FnOnce(Done<T>)) -> Answer<T> {
    let (to, from) = mpsc::channel();
    ask(Box::new(move |result| {
        // A test that failed is not listening any more.
        let _ = to.send(result);
    }));
    Answer(from)
}

pub struct Answer<T>(mpsc::Receiver<Result<T>>);

impl<T> Answer<T> {
    pub fn get(self) -> Result<T> {
        let result = self.0.recv_timeout(Duration::from_secs(60)).expect("an answer in a minute");
        // Called once: the sender is gone now.
        assert!(self.0.recv_timeout(Duration::from_secs(10)).is_err());
        result
    }

    pub fn is_there(&self) -> bool {
        !matches!(self.0.try_recv(), Err(mpsc::TryRecvError::Empty))
    }
}

/// The table of four devices in checked mode.
pub fn api() -> AclApi {
    driver::api(acl_host::Config { devices: Some(4), check: Some(true), ..Default::default() })
}

pub fn registry() -> Arc<Registry> {
    let entry = DriverEntry { api: Arc::new(api()), kind: DriverKind::Host, prefix: "HOST", description: None };
    Arc::new(Registry::new(vec![entry]))
}

pub fn open_with(registry: &Arc<Registry>, device: usize, pool: PoolChoice) -> Backend {
    let options = OpenOptions { device: Some(Selector::Index(device)), pool, async_mode: None };
    wait(|done| Backend::open(registry.clone(), options, done)).expect("a backend")
}

pub fn open(device: usize) -> Backend {
    open_with(&registry(), device, PoolChoice::Auto)
}

pub fn tensor(backend: &Backend, ty: GgmlType, ne: &[i64]) -> Tensor {
    wait(|done| backend.create_tensor(TensorSpec::new(ty, ne), done)).expect("a tensor")
}

/// Bytes that are no pattern, and whose f16 scales are finite.
pub fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}
