//! A device that is lost: who waits is told, other devices go on, and it can be opened again. Faults are injected into the
//! calls of one worker at a moment when no other makes such calls; a fault is the process's, so this is one test.

use std::sync::{Arc, mpsc};

use acl_fault::{Fault, Mode};
use acl_sys::AclFn;
use cann_backend::graph::{Graph, NodeId};
use cann_backend::plan::{Plan, PrepareOptions, RunResult};
use cann_backend::{
    Backend, Done, DriverEntry, DriverKind, Error, OpenOptions, Registry, Result, Selector, Tensor, TensorSpec,
};
use gguf::GgmlType;

/// Kernel faults, timeouts, memory errors, a lost heartbeat.
const STICKY: [i32; 9] = [507000, 507010, 507011, 507014, 507015, 507018, 507034, 507053, 507899];
/// Of the same hundreds, and no reason to give a device up.
const PASSING: [i32; 3] = [507002, 507004, 507007];

struct Answer<T>(mpsc::Receiver<Result<T>>);

impl<T> Answer<T> {
    fn get(self) -> Result<T> {
        self.0.recv_timeout(std::time::Duration::from_secs(60)).expect("an answer in a minute")
    }
}

fn later<T: Send + 'static>(start: impl FnOnce(Done<T>)) -> Answer<T> {
    let (send, receive) = mpsc::channel();
    start(Box::new(move |result| drop(send.send(result))));
    Answer(receive)
}

fn wait<T: Send + 'static>(start: impl FnOnce(Done<T>)) -> Result<T> {
    later(start).get()
}

fn open(registry: &Arc<Registry>, device: usize) -> Backend {
    let options = OpenOptions { device: Some(Selector::Index(device)), ..Default::default() };
    wait(|done| Backend::open(registry.clone(), options, done)).expect("a backend")
}

fn tensor(backend: &Backend, byte: u8) -> Tensor {
    let tensor = wait(|done| backend.create_tensor(TensorSpec::new(GgmlType::F32, &[64]), done)).expect("a tensor");
    wait(|done| tensor.fill(byte, done)).expect("filled");
    tensor
}

fn content(tensor: &Tensor) -> Result<Vec<u8>> {
    wait(|done| tensor.read(0, tensor.nbytes(), done))
}

fn fail(function: AclFn, code: i32) {
    acl_fault::reset();
    acl_fault::arm(Fault { function: Some(function), code, mode: Mode::Once, ..Fault::nth(1) });
}

#[track_caller]
fn assert_lost<T: std::fmt::Debug>(result: Result<T>, name: &str, code: i32) {
    match result {
        Err(Error::DeviceLost { device, cause }) => {
            assert!(device == name && cause.contains(&code.to_string()), "{device}: {cause}");
        }
        other => panic!("{other:?}"),
    }
}

/// neg(x²) by way of a tensor of the fallback.
fn over_two(primary: &Backend, fallback: &Backend, by_way_of: &Tensor) -> Plan {
    let mut graph = Graph::new();
    let op = |graph: &mut Graph, name: &str, src: &[NodeId]| {
        let src: Vec<_> = src.iter().copied().map(Some).collect();
        graph.op(name, &src, Default::default(), Default::default()).expect(name)
    };
    let x = graph.input("x", GgmlType::F32, &[64]).expect("an input");
    let squared = op(&mut graph, "SQR", &[x]);
    let tensor = graph.tensor(by_way_of.clone()).expect("a leaf");
    let stored = op(&mut graph, "CPY", &[squared, tensor]);
    let negative = op(&mut graph, "NEG", &[stored]);
    graph.output("y", negative).expect("an output");
    let options = PrepareOptions { capture: Some(false), fallback: Some(fallback.clone()), ..Default::default() };
    let plan = wait(|done| primary.prepare(graph, options, done)).expect("a plan");
    let devices: Vec<_> = plan.report().iter().map(|row| &*row.device).collect();
    assert_eq!(devices, ["HOST1", "HOST0", "HOST1"]);
    assert_eq!(plan.report()[1].calls, ["aclnnCast"]);
    plan
}

fn run(plan: &Plan) -> Answer<RunResult> {
    let mut run = plan.start().expect("a run");
    run.input("x", &[0; 256]).expect("an input");
    later(|done| run.submit(done))
}

#[test]
fn a_lost_device_takes_nobody_with_it() {
    // Without peer access, copies between devices go through the host and both workers.
    let config = acl_host::Config { devices: Some(2), peer: Some(false), ..Default::default() };
    acl_host::configure(config).expect("before first use");
    let api = Arc::new(acl_fault::install(acl_host::api()));
    let entry = DriverEntry { api, kind: DriverKind::Host, prefix: "HOST", description: None };
    let registry = Arc::new(Registry::new(vec![entry]));
    let start = acl_host::live();
    let healthy = open(&registry, 1);
    let own = tensor(&healthy, 9);
    let mut lost = 0;

    for code in STICKY {
        // Everything that waits on the device is told.
        let sick = open(&registry, 0);
        let x = tensor(&sick, 1);
        fail(AclFn::aclrtMemsetAsync, code);
        let waiting: Vec<_> = (0..50).map(|_| later(|done| x.fill(2, done))).collect();
        waiting.into_iter().for_each(|answer| assert_lost(answer.get(), "HOST0", code));
        assert_lost(wait(|done| sick.synchronize(done)), "HOST0", code);
        assert_lost(content(&x), "HOST0", code);
        assert_lost(wait(|done| sick.copy(&own, &x, done)), "HOST0", code);
        assert_eq!(content(&own).expect("the other device goes on"), [9; 256]);
        wait(|done| sick.close(done)).expect("a lost backend closes");

        // A record that fails is no fault of who waits for it.
        let sick = open(&registry, 0);
        let event = wait(|done| sick.create_event(done)).expect("an event");
        fail(AclFn::aclrtRecordEvent, code);
        assert_lost(wait(|done| sick.record(&event, done)), "HOST0", code);
        assert_lost(wait(|done| healthy.wait(&event, done)), "HOST0", code);
        wait(|done| healthy.synchronize(done)).expect("the other device goes on");

        // Nor is a copy whose source is lost on the way. Opened while the one before is still held.
        let sick_too = open(&registry, 0);
        let (x, y) = (tensor(&sick_too, 3), tensor(&healthy, 4));
        fail(AclFn::aclrtMemcpyAsync, code);
        assert_lost(wait(|done| healthy.copy(&x, &y, done)), "HOST0", code);
        wait(|done| sick_too.close(done)).expect("a lost backend closes");

        // Nor is a run over two backends, in the middle of which one is lost. The runs behind it are told as well.
        let sick_third = open(&registry, 0);
        let z = wait(|done| sick_third.create_tensor(TensorSpec::new(GgmlType::F16, &[64]), done)).expect("a tensor");
        let plan = over_two(&healthy, &sick_third, &z);
        run(&plan).get().expect("both are well");
        fail(AclFn::aclnnCast, code);
        let waiting: Vec<_> = (0..20).map(|_| run(&plan)).collect();
        waiting.into_iter().for_each(|answer| assert_lost(answer.get().map(drop), "HOST0", code));
        wait(|done| healthy.synchronize(done)).expect("the other device goes on");
        wait(|done| sick_third.close(done)).expect("a lost backend closes");
        drop((sick, sick_too, sick_third, event, plan));
        assert_eq!(content(&y).expect("the other device goes on"), [4; 256]);

        // Another backend of the same device is told as well, before the reset and after it.
        let (sick, idle, busy) = (open(&registry, 0), open(&registry, 0), open(&registry, 0));
        let (x, theirs, held) = (tensor(&sick, 6), tensor(&idle, 7), tensor(&busy, 8));
        fail(AclFn::aclrtMemsetAsync, code);
        assert_lost(wait(|done| x.fill(2, done)), "HOST0", code);
        assert_lost(content(&held), "HOST0", code);
        let well = open(&registry, 0);
        assert_lost(wait(|done| theirs.fill(2, done)), "HOST0", code);
        assert_lost(wait(|done| idle.synchronize(done)), "HOST0", code);
        let z = tensor(&well, 5);
        for backend in [&sick, &idle, &busy] {
            wait(|done| backend.close(done)).expect("a lost backend closes");
        }
        drop((sick, idle, busy, x, theirs, held));
        assert_eq!(content(&z).expect("what was opened after the reset goes on"), [5; 256]);
        wait(|done| well.close(done)).expect("closed");
        assert!(matches!(content(&z), Err(Error::Disposed { .. })), "closed and not lost");
        lost += 8;

        // A device that is lost while it is opened is reset by who opens it next. Who cannot reset it is told why.
        let try_open = || {
            let options = OpenOptions { device: Some(Selector::Index(0)), ..Default::default() };
            wait(|done| Backend::open(registry.clone(), options, done))
        };
        fail(AclFn::aclrtCreateStream, code);
        assert_lost(try_open(), "HOST0", code);
        fail(AclFn::aclrtSetDevice, 107001);
        let refused = try_open();
        assert!(matches!(refused, Err(Error::Acl { code: 107001, .. })), "{refused:?}");

        // After all that it works.
        let well = open(&registry, 0);
        let z = tensor(&well, 5);
        wait(|done| well.copy(&y, &z, done)).expect("copied");
        assert_eq!(content(&z).expect("read"), [4; 256]);
        wait(|done| well.close(done)).expect("closed");
    }

    for code in PASSING {
        let backend = open(&registry, 0);
        let x = tensor(&backend, 1);
        fail(AclFn::aclrtMemsetAsync, code);
        let failed = wait(|done| x.fill(2, done));
        assert!(matches!(failed, Err(Error::Acl { code: told, .. }) if told == code), "{failed:?}");
        assert_eq!(content(&x).expect("the backend goes on"), [1; 256]);
        wait(|done| backend.close(done)).expect("closed");
    }

    wait(|done| healthy.close(done)).expect("closed");
    drop((healthy, own));
    for _ in 0..5000 {
        if acl_host::live() == start {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!(acl_host::live(), start);
    println!("{lost} backends lost with {} codes", STICKY.len());
}
