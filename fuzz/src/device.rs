//! One backend on the embedded device in checked mode, shared by all executions of a process.

use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use cann_backend::{Backend, Done, DriverEntry, DriverKind, OpenOptions, Registry, Result};

/// Longer than any execution may take; the driver complains much earlier.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

pub struct Answer<T>(mpsc::Receiver<Result<T>>);

impl<T> Answer<T> {
    pub fn get(self) -> Result<T> {
        self.0.recv_timeout(ANSWER_TIMEOUT).expect("every operation is answered")
    }
}

/// Asks; the answer is taken later.
pub fn later<T: Send + 'static>(ask: impl FnOnce(Done<T>)) -> Answer<T> {
    let (to, from) = mpsc::channel();
    // Whoever stopped listening does not need the answer.
    ask(Box::new(move |result| drop(to.send(result))));
    Answer(from)
}

pub fn wait<T: Send + 'static>(ask: impl FnOnce(Done<T>)) -> Result<T> {
    later(ask).get()
}

pub fn backend() -> &'static Backend {
    static BACKEND: OnceLock<Backend> = OnceLock::new();
    BACKEND.get_or_init(|| {
        let config = acl_host::Config {
            devices: Some(1),
            memory_bytes: Some(256 << 20),
            threads: Some(1),
            check: Some(true),
            ..Default::default()
        };
        acl_host::configure(config).expect("nothing used the device before");
        let api = Arc::new(acl_host::api());
        let entry = DriverEntry { api, kind: DriverKind::Host, prefix: "HOST", description: None };
        let registry = Arc::new(Registry::new(vec![entry]));
        wait(|done| Backend::open(registry, OpenOptions::default(), done)).expect("a backend")
    })
}

/// Fails if the checked device complained since the last time.
pub fn assert_nothing_found() {
    static SEEN: std::sync::Mutex<usize> = std::sync::Mutex::new(0);
    let findings = acl_host::findings();
    let mut seen = SEEN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let before = std::mem::replace(&mut *seen, findings.len());
    assert!(findings.len() <= before, "the device found: {}", findings[before..].join("; "));
}
