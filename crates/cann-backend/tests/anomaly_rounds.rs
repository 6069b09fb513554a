//! The same work again and again: on two small devices, from a new thread each time, with a fault in every third round. Nothing
//! stays, neither on the devices nor in the process. And a model that is too large for them.

mod samples;

use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use acl_fault::{Fault, Mode};
use cann_backend::graph::{Graph, Params, ResultSpec};
use cann_backend::upload::LoadOptions;
use cann_backend::weights::Weights;
use cann_backend::{Backend, Done, DriverEntry, DriverKind, Error, OpenOptions, Registry, Result, Selector};
use gguf::{GgmlType, Writer};
use samples::{Random, blocks};

const DEVICE_BYTES: usize = 64 << 20;
const ROUNDS: usize = 100;
/// Rounds until caches, thread stacks and arenas have the size they keep.
const WARM: usize = 10;
const GROWTH_BYTES: usize = 5 << 20;

static REGISTRY: LazyLock<Arc<Registry>> = LazyLock::new(|| {
    // Checked mode keeps freed memory for a while, which is what is measured here.
    let memory_bytes = Some(DEVICE_BYTES);
    let config = acl_host::Config { devices: Some(2), memory_bytes, check: Some(false), ..Default::default() };
    acl_host::configure(config).expect("before first use");
    let api = Arc::new(acl_fault::install(acl_host::api()));
    let entry = DriverEntry { api, kind: DriverKind::Host, prefix: "HOST", description: None };
    Arc::new(Registry::new(vec![entry]))
});

/// Live objects and the faults are the process's.
static ALONE: Mutex<()> = Mutex::new(());

fn wait<T: Send + 'static>(start: impl FnOnce(Done<T>)) -> Result<T> {
    let (send, receive) = mpsc::channel();
    start(Box::new(move |result| drop(send.send(result))));
    receive.recv_timeout(Duration::from_secs(60)).expect("an answer in a minute")
}

struct Temp(PathBuf);

impl Temp {
    fn gguf(name: &str, writer: &Writer) -> Temp {
        let path = std::env::temp_dir().join(format!("cann-node-rounds-{}-{name}.gguf", std::process::id()));
        std::fs::write(&path, writer.finish()).expect("a file in the temporary folder");
        Temp(path)
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn open(device: usize) -> Result<Backend> {
    let options = OpenOptions { device: Some(Selector::Index(device)), ..Default::default() };
    wait(|done| Backend::open(REGISTRY.clone(), options, done))
}

fn load(backend: &Backend, file: &Temp) -> Result<Weights> {
    wait(|done| backend.load_weights(file.0.clone(), LoadOptions::default(), done))
}

/// Loads, runs, unloads; the product of the weights and ones.
fn round(device: usize, file: &Temp) -> Result<Vec<u8>> {
    let backend = open(device)?;
    let work = || {
        let weights = load(&backend, file)?;
        let mut graph = Graph::new();
        let x = graph.input("x", GgmlType::F32, &[256, 2])?;
        for (i, tensor) in weights.tensors().iter().enumerate() {
            let w = graph.tensor(tensor.clone())?;
            let y = graph.op("MUL_MAT", &[Some(w), Some(x)], Params::default(), ResultSpec::default())?;
            graph.output(&format!("y{i}"), y)?;
        }
        let plan = wait(|done| backend.prepare(graph, Default::default(), done))?;
        let mut run = plan.start()?;
        run.input("x", &1f32.to_le_bytes().repeat(512))?;
        let result = wait(|done| run.submit(done))?;
        let bytes = (0..weights.tensors().len()).flat_map(|i| result.output(&format!("y{i}")).expect("asked").to_vec());
        let bytes = bytes.collect();
        plan.dispose();
        weights.dispose();
        Ok(bytes)
    };
    let result = work();
    let closed = wait(|done| backend.close(done));
    result.and_then(|bytes| closed.map(|()| bytes))
}

fn settled(start: acl_host::LiveObjects) -> acl_host::LiveObjects {
    let until = Instant::now() + Duration::from_secs(5);
    while acl_host::live() != start && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    acl_host::live()
}

/// Resident bytes of this process, where the system tells.
fn resident() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<usize>().ok()? * 1024)
}

#[test]
fn a_hundred_rounds_leave_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    LazyLock::force(&REGISTRY);
    let mut random = Random(11);
    let mut writer = Writer::new();
    for ty in [GgmlType::Q4_0, GgmlType::Q8_0, GgmlType::F16, GgmlType::Q4K, GgmlType::Q6K] {
        writer = writer.tensor(ty.name(), ty, [256, 512], blocks(ty, 256 * 512, &mut random));
    }
    let file = Arc::new(Temp::gguf("rounds", &writer));
    let start = acl_host::live();
    let expected = round(0, &file).expect("no fault");
    let (mut warm, mut most, mut failed) = (None, 0, 0);
    for i in 0..ROUNDS {
        acl_fault::reset();
        if i % 3 == 2 {
            let code = [107000, 207001, 507015][i / 3 % 3];
            acl_fault::arm(Fault { mode: Mode::Once, code, ..Fault::nth(5 + i as u64) });
        }
        let file = file.clone();
        let thread = std::thread::spawn(move || round(i % 2, &file));
        let result = thread.join().expect("no panic");
        match result {
            Ok(bytes) => assert!(bytes == expected, "round {i}: another result"),
            Err(error) => {
                failed += 1;
                assert_eq!(acl_fault::failed(), 1, "round {i} without a fault: {error}");
            }
        }
        assert_eq!(settled(start), start, "round {i} leaves something");
        if i == WARM {
            warm = resident();
        } else if i > WARM {
            most = most.max(resident().unwrap_or(0));
        }
    }
    acl_fault::reset();
    let Some(warm) = warm else { return println!("{ROUNDS} rounds, {failed} failed as they should") };
    let growth = most.saturating_sub(warm);
    println!("{ROUNDS} rounds, {failed} failed as they should; {} KiB more than after round {WARM}", growth / 1024);
    assert!(growth < GROWTH_BYTES, "{growth} bytes more than after round {WARM}");
}

#[test]
fn a_model_that_is_too_large_is_refused_and_a_smaller_one_loads() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    LazyLock::force(&REGISTRY);
    let model = |name: &str, tensors: usize| {
        let writer = (0..tensors).fold(Writer::new(), |writer, i| {
            writer.tensor(format!("blk.{i}"), GgmlType::F16, [1 << 10, 5 << 10], vec![0; 10 << 20])
        });
        Temp::gguf(name, &writer)
    };
    let (large, small) = (model("large", 9), model("small", 3));
    let start = acl_host::live();
    let backend = open(0).expect("a backend");
    let before = acl_host::live();
    for _ in 0..3 {
        match load(&backend, &large).err() {
            Some(Error::OutOfMemory { device, requested_bytes, free_bytes, tensor }) => {
                assert_eq!(device, "HOST0");
                assert!(requested_bytes >= 90 << 20, "{requested_bytes}");
                assert!(free_bytes.is_some_and(|free| free <= DEVICE_BYTES as u64), "{free_bytes:?}");
                assert!(tensor.is_some_and(|name| name.starts_with("blk.")));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(settled(before).bytes, before.bytes, "device memory is back at its start");
        let weights = load(&backend, &small).expect("a model that fits");
        assert_eq!(weights.bytes(), 30 << 20);
        weights.dispose();
        drop(weights);
        wait(|done| backend.synchronize(done)).expect("synchronised");
    }
    wait(|done| backend.close(done)).expect("closed");
    assert_eq!(settled(start), start);
}
