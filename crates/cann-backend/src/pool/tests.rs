//! Every pool through the same door, and the rules that choose one.

use std::sync::Mutex;
use std::time::Duration;

use super::*;
use crate::acl::driver::{Binding, Target, granularity, init, memory_info};

/// The device of these tests: one test at a time, so that memory figures are its own.
static DEVICE: Mutex<()> = Mutex::new(());

struct Bench {
    ground: Ground,
    target: Target,
    granularity: u64,
}

impl Bench {
    fn pool(&self, choice: PoolChoice, budget: u64) -> Box<dyn Pool> {
        match choice {
            PoolChoice::Vmm => Box::new(VmmPool::new(&self.ground, budget, self.granularity)),
            PoolChoice::Priority => Box::new(shelf::ShelfPool::new(&self.ground, priority::BySize::default(), true)),
            PoolChoice::Legacy => Box::new(shelf::ShelfPool::new(&self.ground, legacy::Roomy::default(), true)),
            _ => Box::new(shelf::ShelfPool::new(&self.ground, buffer::BestFit::default(), true)),
        }
    }

    fn stats(&self) -> PoolStats {
        self.ground.gauges.stats("")
    }

    /// As if an event was recorded and is past.
    fn pass(&self) {
        let number = self.ground.position.record();
        self.ground.position.passed(number);
    }

    fn free_bytes(&self) -> u64 {
        memory_info(&self.target.api).unwrap().0
    }
}

const KINDS: [PoolChoice; 4] = [PoolChoice::Vmm, PoolChoice::Buffer, PoolChoice::Priority, PoolChoice::Legacy];

fn with_bench(test: impl Fn(&Bench, PoolChoice)) {
    let _one = DEVICE.lock().unwrap_or_else(|e| e.into_inner());
    let target = Target { api: Arc::new(acl_host::api()), id: 0, name: "HOST0".into(), epoch: Default::default() };
    init(&target.api).unwrap();
    let _binding = Binding::new(&target).unwrap();
    let granularity = granularity(&target);
    for kind in KINDS {
        if kind == PoolChoice::Vmm && granularity.is_none() {
            continue;
        }
        let home = Home::new(target.clone(), || ());
        home.settle_here();
        let ground = Ground { home, position: Arc::default(), gauges: Arc::default() };
        let bench = Bench { ground, target: target.clone(), granularity: granularity.unwrap_or(1) };
        let before = bench.free_bytes();
        test(&bench, kind);
        assert_eq!(bench.stats().bytes_in_use, 0, "{kind:?}");
        assert_eq!(bench.free_bytes(), before, "{kind:?} gives everything back");
    }
}

fn overlap(a: &Block, b: &Block) -> bool {
    a.address() < b.address() + b.bytes() && b.address() < a.address() + a.bytes()
}

#[test]
fn sizes_are_rounded_and_memory_is_used_again() {
    with_bench(|bench, kind| {
        let mut pool = bench.pool(kind, 64 << 20);
        for (asked, least) in [(0, 128), (1, 128), (128, 128), (129, 256)] {
            let block = pool.alloc(asked).unwrap();
            assert!(block.bytes() >= least && block.bytes() <= 512 && block.address() % 64 == 0, "{kind:?} {asked}");
        }
        let first = pool.alloc(3 << 20).unwrap();
        let address = first.address();
        drop(first);
        // Enqueued behind the last use, so it may be taken before that is past.
        assert_eq!(pool.alloc(3 << 20).unwrap().address(), address, "{kind:?}");
        assert!(bench.stats().reuses >= 1);
        assert!(pool.alloc(u64::MAX).is_err());
    });
}

#[test]
fn three_hundred_blocks_live_at_once_and_come_back_in_any_order() {
    with_bench(|bench, kind| {
        let mut pool = bench.pool(kind, 64 << 20);
        for step in [1, 7, 299] {
            let mut blocks: Vec<_> = (0..300u64).map(|i| Some(pool.alloc(1000 + i * 100).unwrap())).collect();
            for (i, a) in blocks.iter().flatten().enumerate() {
                assert!(blocks.iter().flatten().skip(i + 1).all(|b| !overlap(a, b)), "{kind:?}");
            }
            for k in 0..300 {
                drop(blocks[(k * step) % 300].take());
            }
        }
        assert_eq!(bench.stats().bytes_in_use, 0);
        assert!(bench.stats().reuses >= 300, "{kind:?} {:?}", bench.stats());
        assert_eq!(bench.stats().allocations, 900);
    });
}

#[test]
fn memory_goes_to_the_driver_only_past_its_fence() {
    with_bench(|bench, kind| {
        let mut pool = bench.pool(kind, 64 << 20);
        let blocks = [pool.alloc(4 << 20).unwrap(), pool.alloc(6 << 20).unwrap()];
        bench.pass();
        let reserved = bench.stats().bytes_reserved;
        assert!(reserved >= 10 << 20);
        drop(blocks);
        pool.trim();
        assert_eq!(bench.stats().bytes_reserved, reserved, "{kind:?}: nothing was recorded since");
        bench.pass();
        pool.trim();
        assert_eq!(bench.stats().bytes_reserved, 0, "{kind:?}");
        drop(pool.alloc(4 << 20).unwrap());
    });
}

#[test]
fn idle_buffers_are_evicted_late_and_only_past_their_fence() {
    with_bench(|bench, kind| {
        if kind == PoolChoice::Vmm {
            return;
        }
        let mut pool = bench.pool(kind, 0);
        drop([pool.alloc(8 << 20).unwrap(), pool.alloc(1 << 10).unwrap()]);
        std::thread::sleep(Duration::from_millis(130));
        // Collected by the first call, idle since then.
        drop(pool.alloc(128).unwrap());
        std::thread::sleep(Duration::from_millis(130));
        drop(pool.alloc(128).unwrap());
        assert!(bench.stats().bytes_reserved > 8 << 20, "{kind:?}: the stream is not past it");
        bench.pass();
        drop(pool.alloc(128).unwrap());
        assert!(bench.stats().bytes_reserved < 8 << 20, "{kind:?}");
    });
}

#[test]
fn a_large_buffer_does_not_serve_a_small_request() {
    with_bench(|bench, kind| {
        if kind == PoolChoice::Vmm {
            return;
        }
        let mut pool = bench.pool(kind, 0);
        drop(pool.alloc(6 << 20).unwrap());
        drop(pool.alloc(1 << 20).unwrap());
        let reuses = bench.stats().reuses;
        assert_eq!(reuses, u64::from(kind == PoolChoice::Legacy), "{kind:?}");
    });
}

#[test]
fn the_vmm_pool_joins_what_is_free_and_grows_in_place() {
    with_bench(|bench, kind| {
        if kind != PoolChoice::Vmm {
            return;
        }
        let unit = bench.granularity;
        let mut pool = bench.pool(kind, 8 * unit);
        let parts: Vec<_> = (0..4).map(|_| pool.alloc(unit).unwrap()).collect();
        let start = parts[0].address();
        let [a, b, c, d] = <[Block; 4]>::try_from(parts).unwrap();
        drop(a);
        drop(c);
        drop(b);
        assert_eq!(pool.alloc(3 * unit).unwrap().address(), start, "three neighbours are one");
        assert!(pool.extend(&d, 2 * unit).unwrap());
        assert_eq!((d.bytes(), bench.stats().bytes_reserved), (2 * unit, 5 * unit));
        // More than the budget: an error, and nothing changed.
        assert!(matches!(pool.extend(&d, 20 * unit), Err(Error::OutOfMemory { .. })));
        assert!(matches!(pool.alloc(9 * unit), Err(Error::OutOfMemory { .. })));
        assert_eq!((d.bytes(), bench.stats().bytes_reserved), (2 * unit, 5 * unit));
        drop(pool.alloc(3 * unit).unwrap());
        drop(d);
        bench.pass();
        pool.trim();
        assert_eq!(bench.stats().bytes_reserved, 0);
    });
}

#[test]
fn blocks_may_outlive_their_pool() {
    with_bench(|bench, kind| {
        let mut pool = bench.pool(kind, 64 << 20);
        let block = pool.alloc(1000).unwrap();
        drop(pool);
        bench.ground.home.free_all();
        drop(block);
    });
}

#[test]
fn the_rule_of_the_environment() {
    let choose = |vmm, on: &[&str], named| choose(vmm, &|name| on.contains(&name).then_some(true), named);
    let (no_vmm, prio) = ("GGML_CANN_DISABLE_VMM_POOL", "GGML_CANN_ENABLE_BUF_PRIO_POOL");
    assert_eq!(choose(true, &[], None), PoolChoice::Vmm);
    assert_eq!(choose(true, &[prio], None), PoolChoice::Vmm);
    assert_eq!(choose(true, &[no_vmm], None), PoolChoice::Buffer);
    assert_eq!(choose(true, &[no_vmm, prio], None), PoolChoice::Priority);
    assert_eq!(choose(false, &[], None), PoolChoice::Buffer);
    assert_eq!(choose(false, &[prio], None), PoolChoice::Priority);
    assert_eq!(choose(true, &[], Some("PRIO")), PoolChoice::Priority);
    assert_eq!(choose(true, &[], Some("leg")), PoolChoice::Buffer);
    assert_eq!(choose(true, &[no_vmm], Some("vmm")), PoolChoice::Vmm);
    assert_eq!(choose(false, &[prio], Some("vmm")), PoolChoice::Priority);
    assert_eq!(choose(true, &[], Some("what")), PoolChoice::Vmm);
}

#[test]
fn switches_are_parsed() {
    for (text, value) in [
        ("1", Some(true)),
        (" ON ", Some(true)),
        ("enable", Some(true)),
        ("0", Some(false)),
        ("no", Some(false)),
        ("2", None),
    ] {
        assert_eq!(parse_switch(text), value, "{text}");
    }
}
