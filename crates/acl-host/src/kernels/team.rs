//! A persistent team of threads that computes regions of independent chunks together with the calling thread.
//!
//! Workers spin for a moment after a region, because the next one usually follows within microseconds, and then park. A
//! worker that wakes too late never joins, so a region waits for nobody who holds none of its chunks. The team serves one
//! caller at a time; others, nested ones included, run their chunks inline, which keeps the number of busy threads at what
//! was asked for. Absent on purpose: queues, futures, priorities, and allocation per region.

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How long a worker looks for the next region before it parks.
const SPIN: Duration = Duration::from_micros(50);
/// Pauses between two looks at the clock.
const SPINS_PER_LOOK: u32 = 64;

/// `state`: bits 0..16 count the workers inside the region, bit 16 says it may be joined, the rest numbers regions.
const OPEN: u64 = 1 << 16;
const JOINED: u64 = OPEN - 1;
const EPOCH_SHIFT: u32 = 17;

/// Called with the chunk and the slot of the thread that runs it.
type Body<'a> = &'a (dyn Fn(usize, usize) + Sync);

/// Threads that compute chunks together; see the module.
pub struct Team {
    shared: Arc<Shared>,
    workers: Vec<Worker>,
}

impl Team {
    /// A team of `threads` threads, the caller counted: one thread means that no other is ever started. When the system
    /// refuses a thread the team is smaller.
    pub fn new(threads: usize) -> Team {
        let wanted = threads.clamp(1, JOINED as usize) - 1;
        let shared = Arc::new(Shared {
            busy: AtomicBool::new(false),
            state: AtomicU64::new(0),
            next: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            region: UnsafeCell::new(None),
            panic: Mutex::new(None),
            parked: (0..wanted).map(|_| AtomicBool::new(false)).collect(),
        });
        let mut workers = Vec::with_capacity(wanted);
        for i in 0..wanted {
            let own = Arc::clone(&shared);
            let spawned = std::thread::Builder::new().name(format!("cann-team-{}", i + 1)).spawn(move || own.work(i));
            let Ok(join) = spawned else { break };
            workers.push(Worker { thread: join.thread().clone(), join: Some(join) });
        }
        Team { shared, workers }
    }

    /// How many threads compute a region at most, the caller counted.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `f(chunk)` once for each chunk below `chunks` and returns when all are done. A panic in a chunk skips the
    /// chunks nobody has begun and is raised here once the region is over.
    pub fn run(&self, chunks: usize, f: &(dyn Fn(usize) + Sync)) {
        self.run_slots(chunks, &|chunk, _| f(chunk));
    }

    /// Like [`Team::run`] with the thread's slot, below [`Team::threads`], as second argument. Within one region no two
    /// threads have the same slot, so it may index scratch memory.
    pub fn run_slots(&self, chunks: usize, f: Body<'_>) {
        if chunks > 1 && !self.workers.is_empty() && !self.shared.busy.swap(true, Ordering::Acquire) {
            self.region(chunks, f);
        } else {
            (0..chunks).for_each(|chunk| f(chunk, 0));
        }
    }

    /// One region; the caller holds `busy`.
    fn region(&self, chunks: usize, f: Body<'_>) {
        let shared = &*self.shared;
        // SAFETY: only the lifetime is erased. Workers use the region only between joining and leaving, and this function
        // returns after it has closed the region and seen all of them leave.
        let body = unsafe { std::mem::transmute::<Body<'_>, Body<'static>>(f) };
        // SAFETY: `busy` is held and the last region ended with no worker inside, so nobody else looks at the cell.
        unsafe { *shared.region.get() = Some((body, chunks)) };
        shared.next.store(0, Ordering::Relaxed);
        shared.state.fetch_add((1 << EPOCH_SHIFT) | OPEN, Ordering::Release);
        // Pairs with the fence in `work`: either the worker sees the open region or we see that it parks.
        fence(Ordering::SeqCst);
        for (worker, parked) in self.workers.iter().zip(&shared.parked) {
            if parked.load(Ordering::Relaxed) && parked.swap(false, Ordering::AcqRel) {
                worker.thread.unpark();
            }
        }
        shared.claim(body, chunks, 0);
        shared.state.fetch_and(!OPEN, Ordering::AcqRel);
        let mut looks = 0u32;
        while shared.state.load(Ordering::Acquire) & JOINED != 0 {
            looks = looks.wrapping_add(1);
            // A worker that was preempted needs the core more than we do.
            if looks > 20_000 { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
        let panic = shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        shared.busy.store(false, Ordering::Release);
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for worker in &mut self.workers {
            worker.thread.unpark();
            if let Some(join) = worker.join.take() {
                // A worker catches every panic of a chunk, so there is nothing to learn from the result.
                let _ = join.join();
            }
        }
    }
}

impl std::fmt::Debug for Team {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Team").field("threads", &self.threads()).finish()
    }
}

struct Worker {
    thread: Thread,
    join: Option<JoinHandle<()>>,
}

struct Shared {
    /// Held by the caller whose region the team computes.
    busy: AtomicBool,
    state: AtomicU64,
    /// The next chunk nobody has claimed.
    next: AtomicUsize,
    stop: AtomicBool,
    /// The open region's body and number of chunks.
    region: UnsafeCell<Option<(Body<'static>, usize)>>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    parked: Box<[AtomicBool]>,
}

// SAFETY: `region` is the only part that is not `Sync` by itself. It is written by the holder of `busy` while no worker is
// joined, and read by workers that joined after the write was published by `state`; its body is `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: as above; the body may be called from any thread.
unsafe impl Send for Shared {}

impl Shared {
    fn claim(&self, body: Body<'_>, chunks: usize, slot: usize) {
        let run = AssertUnwindSafe(|| {
            loop {
                let chunk = self.next.fetch_add(1, Ordering::Relaxed);
                if chunk >= chunks {
                    break;
                }
                body(chunk, slot);
            }
        });
        if let Err(payload) = catch_unwind(run) {
            self.next.store(chunks, Ordering::Relaxed);
            self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(payload);
        }
    }

    /// The life of worker `index`, whose slot is `index + 1`.
    fn work(&self, index: usize) {
        let mut seen = 0;
        let mut idle_since = Instant::now();
        let mut looks = 0u32;
        while !self.stop.load(Ordering::Relaxed) {
            if self.join(&mut seen, index + 1) {
                idle_since = Instant::now();
                looks = 0;
                continue;
            }
            std::hint::spin_loop();
            looks += 1;
            if looks < SPINS_PER_LOOK {
                continue;
            }
            looks = 0;
            if idle_since.elapsed() < SPIN {
                continue;
            }
            self.parked[index].store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let state = self.state.load(Ordering::Relaxed);
            if (state & OPEN == 0 || state >> EPOCH_SHIFT == seen) && !self.stop.load(Ordering::SeqCst) {
                std::thread::park();
            }
            self.parked[index].store(false, Ordering::Relaxed);
            idle_since = Instant::now();
        }
    }

    /// Joins the open region unless this worker has been in it, and computes chunks until none is left.
    fn join(&self, seen: &mut u64, slot: usize) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        if state & OPEN == 0 || state >> EPOCH_SHIFT == *seen {
            return false;
        }
        if self.state.compare_exchange_weak(state, state + 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        *seen = state >> EPOCH_SHIFT;
        // SAFETY: joined, so the cell was published by the store that opened the region and is not written until we leave.
        if let Some((body, chunks)) = unsafe { *self.region.get() } {
            self.claim(body, chunks, slot);
        }
        self.state.fetch_sub(1, Ordering::Release);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(team: &Team, chunks: usize) {
        let hits: Vec<AtomicUsize> = (0..chunks).map(|_| AtomicUsize::new(0)).collect();
        team.run_slots(chunks, &|chunk, slot| {
            assert!(slot < team.threads());
            hits[chunk].fetch_add(1, Ordering::Relaxed);
        });
        assert!(hits.iter().all(|h| h.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn every_chunk_runs_once() {
        for threads in [1, 2, 4] {
            let team = Team::new(threads);
            assert_eq!(team.threads(), threads);
            for chunks in [0, 1, 2, 3, 17, 1000] {
                count(&team, chunks);
            }
            std::thread::sleep(Duration::from_millis(2));
            count(&team, 100);
        }
    }

    #[test]
    fn many_small_regions() {
        let team = Team::new(2);
        let total = AtomicUsize::new(0);
        for _ in 0..100_000 {
            team.run(2, &|c| {
                total.fetch_add(c + 1, Ordering::Relaxed);
            });
        }
        assert_eq!(total.into_inner(), 300_000);
    }

    #[test]
    fn a_panic_is_raised_by_the_caller_and_the_team_lives_on() {
        for threads in [1, 3] {
            let team = Team::new(threads);
            for _ in 0..50 {
                let raised = catch_unwind(AssertUnwindSafe(|| {
                    team.run(64, &|c| {
                        if c == 13 {
                            resume_unwind(Box::new("thirteen"));
                        }
                    });
                }));
                assert_eq!(raised.unwrap_err().downcast_ref::<&str>(), Some(&"thirteen"));
                count(&team, 64);
            }
        }
    }

    #[test]
    fn nested_and_concurrent_callers_are_served() {
        let team = Team::new(2);
        team.run(8, &|_| count(&team, 5));
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| (0..500).for_each(|_| count(&team, 7)));
            }
        });
    }
}
