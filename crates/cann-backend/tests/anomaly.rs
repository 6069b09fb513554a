//! Every ACL call of five scenarios, failed one by one: once, and from there on, with several codes.
//!
//! A scenario is run without a fault first. Then call 1 fails, then call 2, … until a run meets no fault any more. Whatever
//! fails: nobody panics or waits for ever, the answer is right or an error that says which call failed how, everything is
//! closed and nothing is left on the device, and the next attempt works. Faults are process-wide, so one test runs at a time.

mod samples;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use acl_fault::{Fault, Mode};
use acl_sys::{AclFn, aclError};
use cann_backend::graph::{Graph, Params, ResultSpec};
use cann_backend::plan::{Plan, PrepareOptions};
use cann_backend::upload::LoadOptions;
use cann_backend::{
    Backend, Done, DriverEntry, DriverKind, Error, OpenOptions, PoolChoice, Registry, Result, Selector, Tensor,
    TensorSpec,
};
use gguf::{GgmlType, Writer};
use samples::{Random, blocks};

/// A wrong parameter, no memory, a kernel fault that loses the device, and a function the library does not have.
const CODES: [aclError; 4] = [107000, 207001, 507015, 200001];
const SICK: aclError = 507015;
/// More than any attempt takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Indices in a row that must meet no call before a scenario counts as passed: how often an event is asked varies.
const QUIET: u64 = 3;

static PANICS: AtomicU64 = AtomicU64::new(0);

static DRIVER: LazyLock<DriverEntry> = LazyLock::new(|| {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        before(info);
    }));
    acl_host::configure(acl_host::Config { devices: Some(2), ..Default::default() }).expect("before first use");
    let api = Arc::new(acl_fault::install(acl_host::api()));
    DriverEntry { api, kind: DriverKind::Host, prefix: "HOST", description: None }
});

fn alone() -> MutexGuard<'static, ()> {
    static GATE: Mutex<()> = Mutex::new(());
    // A test that failed says so itself.
    let alone = GATE.lock().unwrap_or_else(PoisonError::into_inner);
    LazyLock::force(&DRIVER);
    PANICS.store(0, Ordering::Relaxed);
    alone
}

fn wait<T: Send + 'static>(start: impl FnOnce(Done<T>)) -> Result<T> {
    let (send, receive) = mpsc::channel();
    start(Box::new(move |result| drop(send.send(result))));
    receive.recv().expect("a done is always called")
}

fn registry() -> Arc<Registry> {
    Arc::new(Registry::new(vec![DRIVER.clone()]))
}

/// What a scenario is told: when to begin counting, and what to do after an error.
struct Attempt {
    fault: Option<Fault>,
    /// On an error the work is done again on the same backend, with the fault gone.
    again: bool,
    failed_before: std::cell::Cell<Option<Error>>,
}

impl Attempt {
    fn begin(&self) {
        acl_fault::reset();
        if let Some(fault) = self.fault {
            acl_fault::arm(fault);
        }
    }

    /// Does `work`, which does not change the backend when it fails.
    fn work<T>(&self, work: impl Fn() -> Result<T>) -> Result<T> {
        match work() {
            Err(error) if self.again && !error.is_sticky() => {
                self.failed_before.set(Some(error));
                acl_fault::disarm();
                Ok(work().unwrap_or_else(|e| {
                    panic!("the backend is as good as before: {e:?} after {:?}", self.failed_before.take())
                }))
            }
            result => result,
        }
    }
}

type Scenario = dyn Fn(&Arc<Registry>, &Attempt) -> Result<Vec<u8>> + Send + Sync;

fn open(registry: &Arc<Registry>, pool: PoolChoice) -> Result<Backend> {
    let options = OpenOptions { device: None, pool, async_mode: None };
    wait(|done| Backend::open(registry.clone(), options, done))
}

/// Closes whatever happened before.
fn closing<T>(backend: Backend, result: Result<T>) -> Result<T> {
    let closed = wait(|done| backend.close(done));
    result.and_then(|value| closed.map(|()| value))
}

/// The outcome of one attempt.
struct Ran {
    result: Result<Vec<u8>>,
    /// The error of work that was done again, or of the result.
    error: Option<Error>,
    calls: u64,
    failed: u64,
    which: Option<AclFn>,
    /// No executor could be made repeatable, however often that was tried.
    unrepeatable: bool,
}

fn run(name: &str, scenario: &'static Scenario, registry: &Arc<Registry>, fault: Option<Fault>, again: bool) -> Ran {
    let (send, receive) = mpsc::channel();
    let registry = registry.clone();
    let thread = std::thread::spawn(move || {
        let attempt = Attempt { fault, again, failed_before: Default::default() };
        let result = scenario(&registry, &attempt);
        drop(registry);
        send.send((result, attempt.failed_before.take())).expect("somebody waits");
    });
    let answer = receive.recv_timeout(PATIENCE);
    if matches!(answer, Err(mpsc::RecvTimeoutError::Timeout)) {
        println!("{name} hangs with {fault:?}; the last calls were:");
        acl_fault::log().iter().rev().take(30).rev().for_each(|record| println!("  {record:?}"));
        // The thread cannot be ended, so the process is.
        std::process::exit(70);
    }
    let (calls, failed) = (acl_fault::calls(), acl_fault::failed());
    let log = acl_fault::log();
    let mut injected = log.iter().filter(|record| record.injected).map(|record| record.function);
    let unrepeatable = fault.is_some_and(|fault| fault.mode == Mode::From)
        && injected.clone().any(|function| function == AclFn::aclSetAclOpExecutorRepeatable);
    let which = injected.next();
    acl_fault::disarm();
    thread.join().unwrap_or_else(|_| panic!("{name} panicked with {fault:?} at {which:?}"));
    let (result, before) = answer.expect("the thread did not panic");
    let error = before.or_else(|| result.as_ref().err().cloned());
    Ran { result, error, calls, failed, which, unrepeatable }
}

/// Threads that are about to end may hold something for a moment.
fn settled(start: acl_host::LiveObjects) -> acl_host::LiveObjects {
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        let live = acl_host::live();
        if live == start || Instant::now() > until {
            return live;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether an error tells of a call that failed with `code`.
fn is_told(error: &Error, code: aclError) -> bool {
    match error {
        Error::Acl { code: told, call, .. } => *told == code || call.starts_with("aclCreate"),
        Error::OutOfMemory { .. } => code == 207001,
        Error::DeviceLost { cause, .. } => code == SICK && cause.contains("507015"),
        // The question for it failed.
        Error::Unsupported { what, .. } => what == "the vmm pool",
        // A driver that does not start, or whose devices do not answer, is left out.
        Error::NotFound { what, .. } => *what == "device",
        _ => false,
    }
}

/// Fails each call of a scenario; answers how many calls were failed.
fn fail_each(name: &str, scenario: &'static Scenario) -> u64 {
    let mut start = acl_host::live();
    let mut stuck = 0;
    let first = run(name, scenario, &registry(), None, false);
    let expected = first.result.unwrap_or_else(|e| panic!("{name} without a fault: {e}"));
    assert_eq!(settled(start), start, "{name} without a fault leaves something");
    let began = Instant::now();
    let (mut attempts, mut met, mut tolerated) = (0, 0, 0);
    for (code, mode) in CODES.into_iter().flat_map(|code| [(code, Mode::Once), (code, Mode::From)]) {
        let (mut nth, mut quiet) = (1, 0);
        while quiet < QUIET || nth <= first.calls {
            let fault = Fault { mode, code, ..Fault::nth(nth) };
            let registry = registry();
            // A fault that goes away is followed by the same work on the same backend.
            let again = mode == Mode::Once && nth % 2 == 0;
            let ran = run(name, scenario, &registry, Some(fault), again);
            let at = format!("{name}: {mode:?} {code} at call {nth} ({:?})", ran.which.map(AclFn::name));
            quiet = if ran.failed == 0 { quiet + 1 } else { 0 };
            met += ran.failed;
            attempts += 1;
            match (&ran.result, &ran.error) {
                (_, Some(error)) => assert!(is_told(error, code), "{at}: {error:?}"),
                (Ok(_), None) => tolerated += u64::from(ran.failed > 0),
                (Err(error), None) => unreachable!("{error}"),
            }
            if let Ok(bytes) = &ran.result {
                assert!(*bytes == expected, "{at}: another result");
            }
            if ran.unrepeatable {
                // The interface frees an executor that is not repeatable by its launch only, and there was none.
                let executors = acl_host::live().executors;
                stuck += executors - start.executors;
                start.executors = executors;
            }
            assert_eq!(settled(start), start, "{at} leaves something: {:?}", ran.error);
            let next = run(name, scenario, &registry, None, false);
            let bytes = next.result.unwrap_or_else(|e| panic!("{at}: the next attempt: {e}"));
            assert!(bytes == expected, "{at}: another result in the next attempt");
            drop(registry);
            assert_eq!(settled(start), start, "{at}: the next attempt leaves something");
            assert_eq!(PANICS.load(Ordering::Relaxed), 0, "{at}: a panic");
            nth += 1;
        }
    }
    println!(
        "{name}: {} calls; {attempts} attempts failed {met} calls, {tolerated} attempts went well all the same, {stuck} \
         executors could not be freed; {:.1} s",
        first.calls,
        began.elapsed().as_secs_f64()
    );
    met
}

#[test]
fn enumerate() {
    let _alone = alone();
    fail_each("enumerate", &|registry, attempt| {
        attempt.begin();
        let devices = attempt.work(|| registry.find(None).map(|_| registry.devices()))?;
        // A device that does not answer is left out of the list, not made up.
        assert!(devices.iter().all(|d| d.name == format!("HOST{}", d.index) && d.memory_total > 0));
        assert!(attempt.fault.is_some() || devices.len() == 2);
        Ok(Vec::new())
    });
}

#[test]
fn open_and_close() {
    let _alone = alone();
    for pool in [PoolChoice::Vmm, PoolChoice::Buffer] {
        let scenario: Box<Scenario> = Box::new(move |registry, attempt| {
            attempt.begin();
            let backend = attempt.work(|| open(registry, pool))?;
            let synchronized = attempt.work(|| wait(|done| backend.synchronize(done)));
            closing(backend, synchronized).map(|()| Vec::new())
        });
        fail_each(&format!("open with {pool:?}"), Box::leak(scenario));
    }
}

/// Types the device has, and types that are converted.
const TYPES: [GgmlType; 9] = [
    GgmlType::F32,
    GgmlType::F16,
    GgmlType::Bf16,
    GgmlType::Q4_0,
    GgmlType::Q8_0,
    GgmlType::Q4_1,
    GgmlType::Q4K,
    GgmlType::Q6K,
    GgmlType::Iq4Nl,
];

fn model() -> PathBuf {
    let mut writer = Writer::new().kv("general.name", "anomaly");
    let mut random = Random(3);
    for ty in TYPES {
        writer = writer.tensor(ty.name(), ty, [256, 4], blocks(ty, 1024, &mut random));
    }
    let path = std::env::temp_dir().join(format!("cann-node-anomaly-{}.gguf", std::process::id()));
    std::fs::write(&path, writer.finish()).expect("a file in the temporary folder");
    path
}

fn load_and_read(backend: &Backend, path: &Path) -> Result<Vec<u8>> {
    let weights = wait(|done| backend.load_weights(path.to_owned(), LoadOptions::default(), done))?;
    let mut bytes = Vec::new();
    for tensor in weights.tensors() {
        bytes.extend(wait(|done| tensor.read(0, tensor.nbytes(), done))?);
    }
    weights.dispose();
    Ok(bytes)
}

#[test]
fn load_a_model() {
    let _alone = alone();
    let path = model();
    let model = path.clone();
    let scenario: Box<Scenario> = Box::new(move |registry, attempt| {
        let backend = open(registry, PoolChoice::Auto).expect("no fault yet");
        attempt.begin();
        let read = attempt.work(|| load_and_read(&backend, &model));
        if read.is_err() && attempt.fault.is_some_and(|f| f.mode == Mode::Once) && !is_lost(&read) {
            wait(|done| backend.synchronize(done)).expect("one fault, one error");
            assert_eq!(backend.stats().buffers.bytes, 0, "a load that failed gives everything back");
        }
        closing(backend, read)
    });
    fail_each("load", Box::leak(scenario));
    let _ = std::fs::remove_file(path);
}

fn is_lost<T>(result: &Result<T>) -> bool {
    matches!(result, Err(error) if error.is_sticky())
}

fn tensor(backend: &Backend, ty: GgmlType, ne: &[i64]) -> Result<Tensor> {
    let tensor = wait(|done| backend.create_tensor(TensorSpec::new(ty, ne), done))?;
    let elements = ne.iter().product::<i64>() as usize;
    wait(|done| tensor.write(blocks(ty, elements, &mut Random(elements as u64)), 0, done))?;
    Ok(tensor)
}

const HEAD: i64 = 32;
const TOKENS: i64 = 4;

/// q4_0 weights, a norm, a rotation, rows into a device tensor, and a softmax; two outputs.
fn graph(weight: &Tensor, cache: &Tensor) -> Result<Graph> {
    let mut graph = Graph::new();
    let none = ResultSpec::default;
    let x = graph.input("x", GgmlType::F32, &[64, TOKENS])?;
    let positions = graph.input("positions", GgmlType::I32, &[TOKENS])?;
    let rows = graph.input("rows", GgmlType::I64, &[TOKENS])?;
    let (w, kv) = (graph.tensor(weight.clone())?, graph.tensor(cache.clone())?);
    let product = graph.op("MUL_MAT", &[Some(w), Some(x)], Params::default(), none())?;
    let norm = graph.op("RMS_NORM", &[Some(product)], Params::default().num("eps", 1e-5), none())?;
    let heads = ResultSpec { ne: Some(vec![HEAD, 64 / HEAD, TOKENS]), ..none() };
    let heads = graph.op("RESHAPE", &[Some(norm)], Params::default(), heads)?;
    let rotated = graph.op("ROPE", &[Some(heads), Some(positions)], Params::default(), none())?;
    let stored = graph.op("SET_ROWS", &[Some(norm), Some(rows), Some(kv)], Params::default(), none())?;
    let soft = graph.op("SOFT_MAX", &[Some(norm)], Params::default().num("scale", 0.5), none())?;
    graph.output("rotated", rotated)?;
    graph.output("soft", soft)?;
    graph.output("stored", stored)?;
    Ok(graph)
}

fn compute(backend: &Backend, weight: &Tensor, cache: &Tensor, capture: bool) -> Result<Vec<u8>> {
    let graph = graph(weight, cache)?;
    let plan =
        wait(|done| backend.prepare(graph, PrepareOptions { capture: Some(capture), ..Default::default() }, done))?;
    let mut bytes = Vec::new();
    for round in 0..2 {
        let mut run = plan.start()?;
        run.input("x", &blocks(GgmlType::F32, 64 * TOKENS as usize, &mut Random(round)))?;
        run.input("positions", &(0..TOKENS as i32).flat_map(i32::to_le_bytes).collect::<Vec<_>>())?;
        run.input("rows", &(0..TOKENS).map(|i| (i * 3) % 8).flat_map(i64::to_le_bytes).collect::<Vec<_>>())?;
        let result = wait(|done| run.submit(done))?;
        for name in ["rotated", "soft", "stored"] {
            bytes.extend(result.output(name).expect("asked for"));
        }
    }
    let copy = tensor(backend, GgmlType::F16, &[64, 8])?;
    let event = wait(|done| backend.create_event(done))?;
    wait(|done| backend.copy(cache, &copy, done))?;
    wait(|done| backend.record(&event, done))?;
    wait(|done| backend.wait(&event, done))?;
    wait(|done| event.synchronize(done))?;
    let host = wait(|done| backend.alloc_host_buffer(64, done))?;
    host.write(&[7; 64], 0)?;
    bytes.extend(wait(|done| copy.read(0, copy.nbytes(), done))?);
    bytes.extend(wait(|done| cache.read(0, cache.nbytes(), done))?);
    plan.dispose();
    wait(|done| backend.synchronize(done))?;
    Ok(bytes)
}

#[test]
fn build_run_and_copy() {
    let _alone = alone();
    for (capture, pool) in [(false, PoolChoice::Vmm), (true, PoolChoice::Vmm), (false, PoolChoice::Buffer)] {
        let scenario: Box<Scenario> = Box::new(move |registry, attempt| {
            let backend = open(registry, pool).expect("no fault yet");
            let weight = tensor(&backend, GgmlType::Q4_0, &[64, 64]).expect("no fault yet");
            let cache = tensor(&backend, GgmlType::F16, &[64, 8]).expect("no fault yet");
            attempt.begin();
            let ran = attempt.work(|| compute(&backend, &weight, &cache, capture));
            closing(backend, ran)
        });
        fail_each(&format!("run, capture {capture}, {pool:?}"), Box::leak(scenario));
    }
}

/// Weights that become private, are read, are wanted otherwise, and are read again.
fn private_weights(backend: &Backend, path: &Path) -> Result<Vec<u8>> {
    let weights = wait(|done| backend.load_weights(path.to_owned(), LoadOptions::default(), done))?;
    let [up, down] = ["up", "down"].map(|name| weights.get(name).expect("in the file"));
    let none = ResultSpec::default;
    let mut graph = Graph::new();
    let x = graph.input("x", GgmlType::F32, &[32, 10])?;
    let (a, b) = (graph.tensor(up.clone())?, graph.tensor(down.clone())?);
    let h = graph.op("MUL_MAT", &[Some(a), Some(x)], Params::default(), none())?;
    let y = graph.op("MUL_MAT", &[Some(b), Some(h)], Params::default(), none())?;
    graph.output("y", y)?;
    let options = || PrepareOptions { private_weights: Some(true), ..Default::default() };
    let products = wait(|done| backend.prepare(graph, options(), done))?;
    let mut graph = Graph::new();
    let (table, ids) = (graph.tensor(up.clone())?, graph.input("x", GgmlType::I32, &[2])?);
    let y = graph.op("GET_ROWS", &[Some(table), Some(ids)], Params::default(), none())?;
    graph.output("y", y)?;
    let mut bytes = Vec::new();
    let mut run = |plan: &Plan, x: &[u8]| -> Result<()> {
        let mut run = plan.start()?;
        run.input("x", x)?;
        let result = wait(|done| run.submit(done))?;
        bytes.extend(result.output("y").expect("asked for"));
        Ok(())
    };
    let x = blocks(GgmlType::F32, 320, &mut Random(3));
    run(&products, &x)?;
    let rows = wait(|done| backend.prepare(graph, options(), done))?;
    run(&rows, &[5i32, 0].map(i32::to_le_bytes).concat())?;
    run(&products, &x)?;
    for weight in [up, down] {
        bytes.extend(wait(|done| weight.read(0, weight.nbytes(), done))?);
    }
    weights.dispose();
    [products, rows].iter().for_each(Plan::dispose);
    wait(|done| backend.synchronize(done))?;
    Ok(bytes)
}

#[test]
fn weights_in_the_private_format() {
    let _alone = alone();
    let random = &mut Random(11);
    let weight = |random: &mut Random| blocks(GgmlType::F16, 32 * 32, random);
    let writer = Writer::new().tensor("up", GgmlType::F16, [32, 32], weight(random)).tensor(
        "down",
        GgmlType::F16,
        [32, 32],
        weight(random),
    );
    let path = std::env::temp_dir().join(format!("cann-node-anomaly-private-{}.gguf", std::process::id()));
    std::fs::write(&path, writer.finish()).unwrap();
    let file = path.clone();
    let scenario: Box<Scenario> = Box::new(move |registry, attempt| {
        let backend = open(registry, PoolChoice::Vmm).expect("no fault yet");
        attempt.begin();
        let ran = attempt.work(|| private_weights(&backend, &file));
        closing(backend, ran)
    });
    fail_each("private weights", Box::leak(scenario));
    std::fs::remove_file(path).unwrap();
}

/// Three backends on two devices: copies and events between them, the ways of which need two workers each.
fn exchange(backends: &[Backend; 3], tensors: &[Tensor; 3]) -> Result<Vec<u8>> {
    let [here, same, far] = backends;
    let [x, y, z] = tensors;
    let event = wait(|done| here.create_event(done))?;
    wait(|done| x.write(vec![1; x.nbytes() as usize], 0, done))?;
    wait(|done| same.copy(x, y, done))?;
    wait(|done| far.copy(y, z, done))?;
    wait(|done| here.copy(z, x, done))?;
    wait(|done| here.record(&event, done))?;
    wait(|done| same.wait(&event, done))?;
    wait(|done| far.wait(&event, done))?;
    let mut bytes = Vec::new();
    for tensor in tensors {
        bytes.extend(wait(|done| tensor.read(0, tensor.nbytes(), done))?);
    }
    Ok(bytes)
}

#[test]
fn copy_between_backends() {
    let _alone = alone();
    let scenario: Box<Scenario> = Box::new(|registry, attempt| {
        let open = |device| {
            let options =
                OpenOptions { device: Some(Selector::Index(device)), pool: PoolChoice::Auto, async_mode: None };
            wait(|done| Backend::open(registry.clone(), options, done)).expect("no fault yet")
        };
        let backends = [0, 0, 1].map(open);
        let tensors = [0, 1, 2].map(|i: usize| tensor(&backends[i], GgmlType::Q8_0, &[64, 3]).expect("no fault yet"));
        attempt.begin();
        let mut result = attempt.work(|| exchange(&backends, &tensors));
        for backend in backends {
            result = closing(backend, result);
        }
        result
    });
    fail_each("copies between backends", Box::leak(scenario));
}

#[test]
fn close_with_everything_alive() {
    let _alone = alone();
    let path = model();
    let model = path.clone();
    let scenario: Box<Scenario> = Box::new(move |registry, attempt| {
        let expect = "no fault yet";
        let backend = open(registry, PoolChoice::Auto).expect(expect);
        let weights = wait(|done| backend.load_weights(model.clone(), LoadOptions::default(), done)).expect(expect);
        let weight = tensor(&backend, GgmlType::Q4_0, &[64, 64]).expect(expect);
        let cache = tensor(&backend, GgmlType::F16, &[64, 8]).expect(expect);
        let plan = graph(&weight, &cache).expect(expect);
        let plan = wait(|done| backend.prepare(plan, PrepareOptions::default(), done)).expect(expect);
        let event = wait(|done| backend.create_event(done)).expect(expect);
        let host = wait(|done| backend.alloc_host_buffer(64, done)).expect(expect);
        let buffer = wait(|done| backend.alloc_buffer(4096, done)).expect(expect);
        attempt.begin();
        // Work is on its way when the backend closes.
        let (send, receive) = mpsc::channel();
        let pending = {
            let send = send.clone();
            move || -> Done<()> { Box::new(move |result| drop(send.send(result))) }
        };
        drop(send);
        cache.fill(1, pending.clone()());
        buffer.clear(2, pending.clone()());
        backend.record(&event, pending.clone()());
        backend.synchronize(pending.clone()());
        drop(pending);
        let closed = wait(|done| backend.close(done));
        let answers: Vec<Result<()>> = receive.iter().collect();
        assert_eq!(answers.len(), 4, "everything that was asked is answered");
        assert!(weights.tensors()[0].is_disposed() && host.is_disposed() && event.is_disposed());
        // They go after their backend, in no special order.
        drop((host, plan, weights, buffer, event));
        answers.into_iter().chain([closed]).collect::<Result<Vec<()>>>().map(|_| Vec::new())
    });
    fail_each("close", Box::leak(scenario));
    let _ = std::fs::remove_file(path);
}
