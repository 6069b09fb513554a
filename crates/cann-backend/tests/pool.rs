//! Pools as users meet them: chosen by option, seen in the figures, gone after the close. One test, because it looks at what
//! is live in the whole process.

mod common;

use cann_backend::*;
use common::*;
use gguf::GgmlType;

#[test]
fn whatever_the_pool_a_close_leaves_nothing_behind() {
    let registry = registry();
    let free = || registry.devices().iter().map(|d| d.memory_free).collect::<Vec<_>>();
    let (before, live) = (free(), driver::live());
    for (choice, kind) in [
        (PoolChoice::Vmm, "vmm"),
        (PoolChoice::Buffer, "buffer"),
        (PoolChoice::Priority, "priority"),
        (PoolChoice::Legacy, "legacy"),
    ] {
        let backend = open_with(&registry, 0, choice);
        assert_eq!(backend.stats().pool.kind, kind);
        let held: Vec<_> = (0..300).map(|i| tensor(&backend, GgmlType::F32, &[i + 1])).collect();
        let host = wait(|done| backend.alloc_host_buffer(1 << 20, done)).unwrap();
        let buffer = wait(|done| backend.alloc_buffer(1 << 20, done)).unwrap();
        let event = wait(|done| backend.create_event(done)).unwrap();
        wait(|done| backend.record(&event, done)).unwrap();
        let running: Vec<_> = held.iter().map(|t| later(|done| t.fill(1, done))).collect();
        wait(|done| backend.close(done)).unwrap();
        assert!(running.into_iter().all(|r| r.get().is_ok()));
        // Users still hold everything; the device holds nothing.
        assert_eq!(free(), before, "{kind}");
        assert_eq!(driver::live(), live, "{kind}");
        drop((held, host, buffer, event, backend));
        assert_eq!(driver::live(), live, "{kind}");
    }
    // Without a close: the last handle does it.
    let backend = open_with(&registry, 1, PoolChoice::Auto);
    let held = tensor(&backend, GgmlType::F32, &[1000]);
    drop(backend);
    let ended = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while driver::live() != live {
        assert!(std::time::Instant::now() < ended, "{:?}", driver::live());
        std::thread::yield_now();
    }
    assert!(held.is_disposed());
}
