//! Captured models and memory across runs and plans: what is captured when, what is destroyed when, and that a run allocates
//! nothing. ACL calls are counted in the whole process, so one test runs at a time.

use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, mpsc};

use acl_sys::AclFn;
use cann_backend::graph::{Graph, NodeId, Params, ResultSpec};
use cann_backend::plan::{Plan, PrepareOptions};
use cann_backend::{
    Backend, Done, DriverEntry, DriverKind, OpenOptions, PoolChoice, Registry, Result, Tensor, TensorSpec,
};
use gguf::GgmlType;

/// What `GGML_CANN_GRAPH_CACHE_CAPACITY` is by default.
const CAPACITY: usize = 12;

static DRIVER: LazyLock<DriverEntry> = LazyLock::new(|| {
    acl_host::configure(acl_host::Config { check: Some(true), ..Default::default() }).expect("before first use");
    let api = Arc::new(acl_fault::install(acl_host::api()));
    DriverEntry { api, kind: DriverKind::Host, prefix: "HOST", description: None }
});

fn alone() -> MutexGuard<'static, ()> {
    static GATE: Mutex<()> = Mutex::new(());
    let alone = GATE.lock().unwrap_or_else(PoisonError::into_inner);
    LazyLock::force(&DRIVER);
    alone
}

fn wait<T: Send + 'static>(start: impl FnOnce(Done<T>)) -> Result<T> {
    let (send, receive) = mpsc::channel();
    start(Box::new(move |result| drop(send.send(result))));
    receive.recv().expect("a done is always called")
}

fn open(pool: PoolChoice) -> Backend {
    let registry = Arc::new(Registry::new(vec![DRIVER.clone()]));
    wait(|done| Backend::open(registry, OpenOptions { device: None, pool, async_mode: None }, done)).unwrap()
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn filled(backend: &Backend, value: f32) -> Tensor {
    let tensor = wait(|done| backend.create_tensor(TensorSpec::new(GgmlType::F32, &[256, 16]), done)).unwrap();
    wait(|done| tensor.write(floats(&[value; 4096]), 0, done)).unwrap();
    tensor
}

fn op(graph: &mut Graph, name: &str, src: &[NodeId]) -> NodeId {
    let src: Vec<_> = src.iter().copied().map(Some).collect();
    graph.op(name, &src, Params::default(), ResultSpec::default()).unwrap()
}

/// y = x c + x, with c in a device tensor.
fn plan(backend: &Backend, c: &Tensor, capture: bool) -> Plan {
    let mut graph = Graph::new();
    let x = graph.input("x", GgmlType::F32, &[256, 16]).unwrap();
    let c = graph.tensor(c.clone()).unwrap();
    let product = op(&mut graph, "MUL", &[x, c]);
    let y = op(&mut graph, "ADD", &[product, x]);
    graph.output("y", y).unwrap();
    wait(|done| backend.prepare(graph, PrepareOptions { capture: Some(capture), ..Default::default() }, done)).unwrap()
}

/// Runs from tensor to tensor; the first value of the result.
fn run_on(plan: &Plan, x: &Tensor, y: &Tensor) -> f32 {
    let mut run = plan.start().unwrap();
    run.input_tensor("x", x).unwrap();
    run.output_to("y", y).unwrap();
    run.outputs(Some(vec![])).unwrap();
    wait(|done| run.submit(done)).unwrap();
    let bytes = wait(|done| y.read(0, 4, done)).unwrap();
    f32::from_le_bytes(bytes[..].try_into().unwrap())
}

fn run(plan: &Plan, x: f32) -> Vec<u8> {
    let mut run = plan.start().unwrap();
    run.input("x", &floats(&[x; 4096])).unwrap();
    let result = wait(|done| run.submit(done)).unwrap();
    result.output("y").unwrap().to_vec()
}

fn captures() -> u64 {
    acl_fault::calls_of(AclFn::aclmdlRICaptureBegin)
}

fn replays() -> u64 {
    acl_fault::calls_of(AclFn::aclmdlRIExecuteAsync)
}

#[test]
fn thirteen_bindings_in_turn_replay_one_model() {
    let _alone = alone();
    let backend = open(PoolChoice::Auto);
    let c = filled(&backend, 2.0);
    let (plan, eager) = (plan(&backend, &c, true), plan(&backend, &c, false));
    let bindings: Vec<_> = (0..13).map(|i| (filled(&backend, i as f32), filled(&backend, -1.0))).collect();
    acl_fault::reset();
    for _ in 0..3 {
        for (i, (x, y)) in bindings.iter().enumerate() {
            assert_eq!(run_on(&plan, x, y), 3.0 * i as f32);
        }
    }
    assert_eq!((captures(), replays()), (0, 39));
    for (x, y) in &bindings {
        let captured = run_on(&plan, x, y);
        assert_eq!(captured.to_bits(), run_on(&eager, x, y).to_bits());
    }
    wait(|done| backend.close(done)).unwrap();
}

#[test]
fn a_thirteenth_plan_takes_the_oldest_place_and_every_plan_stays_right() {
    let _alone = alone();
    let models = || acl_host::live().models as usize;
    assert_eq!(models(), 0);
    let backend = open(PoolChoice::Auto);
    let constants: Vec<_> = (0..=CAPACITY).map(|i| filled(&backend, i as f32)).collect();
    let mut plans = Vec::new();
    for (i, c) in constants.iter().enumerate() {
        plans.push(plan(&backend, c, true));
        wait(|done| backend.synchronize(done)).unwrap();
        assert_eq!(models(), (i + 1).min(CAPACITY), "a model more than there are places");
    }
    acl_fault::reset();
    for round in 0..4 {
        for (i, plan) in plans.iter().enumerate() {
            assert_eq!(run(plan, 2.0), floats(&[2.0 * i as f32 + 2.0; 4096]), "plan {i} in round {round}");
        }
    }
    // The first has lost its place; it does not take another's in turn.
    assert_eq!((captures(), replays()), (0, 4 * CAPACITY as u64));
    // Used alone, it gets one in the end.
    (0..70).for_each(|_| drop(run(&plans[0], 1.0)));
    assert_eq!((captures(), models()), (1, CAPACITY));
    // Plans that go take their models with them, and make room.
    plans.drain(2..).for_each(|plan| plan.dispose());
    wait(|done| backend.synchronize(done)).unwrap();
    assert!(models() <= 2);
    assert_eq!(run(&plans[1], 1.0), floats(&[2.0; 4096]));
    drop(plans);
    wait(|done| backend.synchronize(done)).unwrap();
    assert_eq!(models(), 0);
    let last = plan(&backend, &constants[0], true);
    wait(|done| backend.close(done)).unwrap();
    assert_eq!(models(), 0);
    drop(last);
}

#[test]
fn an_address_that_is_used_again_replays_nothing_stale() {
    let _alone = alone();
    let backend = open(PoolChoice::Auto);
    let y = filled(&backend, 0.0);
    let buffer = wait(|done| backend.alloc_buffer(2 * 4096 * 4, done)).unwrap();
    // Tensors that lie where others lay.
    let placed = |at: u64, value: f32| {
        let spec = TensorSpec::new(GgmlType::F32, &[256, 16]).placed(&buffer, at * 4096 * 4);
        let tensor = wait(|done| backend.create_tensor(spec, done)).unwrap();
        wait(|done| tensor.write(floats(&[value; 4096]), 0, done)).unwrap();
        tensor
    };
    for round in 0..6 {
        let value = round as f32 + 1.0;
        let (c, x) = (placed(0, value), placed(1, 10.0));
        let plan = plan(&backend, &c, true);
        assert_eq!(run_on(&plan, &x, &y), 10.0 * value + 10.0);
        x.dispose();
        let other = placed(1, 1.0);
        assert_eq!(run_on(&plan, &other, &y), value + 1.0);
        if round % 2 == 0 {
            plan.dispose();
        }
        [c, other].iter().for_each(Tensor::dispose);
    }
    // A tensor with memory of its own: the plan holds it, so nobody else can get it.
    let c = filled(&backend, 5.0);
    let plan = plan(&backend, &c, true);
    c.dispose();
    drop(c);
    let others: Vec<_> = (0..8).map(|_| filled(&backend, 9.0)).collect();
    assert_eq!(run_on(&plan, &others[0], &y), 54.0);
    wait(|done| backend.close(done)).unwrap();
}

#[test]
fn a_run_allocates_nothing_and_plans_of_a_backend_share_their_scratch() {
    let _alone = alone();
    for pool in [PoolChoice::Vmm, PoolChoice::Buffer] {
        let backend = open(pool);
        let c = filled(&backend, 2.0);
        // A product needs workspace, a quantised one more.
        let product = |rows: i64| {
            let mut graph = Graph::new();
            let w = graph.input("w", GgmlType::Q8_0, &[256, 64]).unwrap();
            let x = graph.input("x", GgmlType::F32, &[256, rows]).unwrap();
            let y = op(&mut graph, "MUL_MAT", &[w, x]);
            let y = op(&mut graph, "RMS_NORM", &[y]);
            graph.output("y", y).unwrap();
            wait(|done| backend.prepare(graph, PrepareOptions::default(), done)).unwrap()
        };
        let large = product(64);
        let held = backend.stats().pool;
        let plans = [plan(&backend, &c, true), product(64), product(1)];
        let more = backend.stats().pool;
        assert_eq!(more.bytes_in_use, held.bytes_in_use, "smaller plans take no scratch of their own");
        let run = |plan: &Plan| {
            let mut run = plan.start().unwrap();
            for name in plan.inputs() {
                run.input(&name, &vec![0; plan.input_info(&name).unwrap().2 as usize]).unwrap();
            }
            wait(|done| run.submit(done)).unwrap();
        };
        // Events and the like are kept from the first run on.
        plans.iter().chain([&large]).for_each(run);
        acl_fault::reset();
        (0..50).for_each(|_| plans.iter().chain([&large]).for_each(run));
        let made = [
            AclFn::aclrtMalloc,
            AclFn::aclrtMallocHost,
            AclFn::aclrtMallocPhysical,
            AclFn::aclrtReserveMemAddress,
            AclFn::aclrtCreateEvent,
            AclFn::aclrtCreateEventWithFlag,
            AclFn::aclCreateTensor,
            AclFn::aclmdlRICaptureBegin,
        ];
        assert_eq!(made.map(acl_fault::calls_of), [0; 8]);
        let after = backend.stats().pool;
        assert_eq!((after.allocations, after.bytes_reserved), (more.allocations, more.bytes_reserved));
        // Another backend of the same device runs beside this one, so it has workspace of its own.
        let other = open(pool);
        assert_eq!(other.stats().pool.bytes_in_use, 0);
        wait(|done| other.close(done)).unwrap();
        wait(|done| backend.close(done)).unwrap();
    }
}
