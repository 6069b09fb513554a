//! Plans over two backends. The primary is the embedded device without some of its operators, the fallback has all.

mod common;

use std::sync::{Arc, Mutex, mpsc};

use acl_sys::AclOp;
use cann_backend::graph::{Graph, NodeId, Params, ResultSpec};
use cann_backend::plan::{Plan, PrepareOptions, RunResult};
use cann_backend::{Backend, DriverEntry, DriverKind, Error, OpenOptions, PoolChoice, Registry, Tensor};
use common::{noise, open, tensor, wait};
use gguf::GgmlType::{self, F32, I32, Q8_0};
use tokio_util::sync::CancellationToken;

/// A backend whose library lacks these operators; its devices are called LESS0, LESS1 …
fn lacking(ops: &[AclOp]) -> Backend {
    let mut api = common::api();
    ops.iter().for_each(|op| api.present[op.phase_two() as usize] = false);
    let entry = DriverEntry { api: Arc::new(api), kind: DriverKind::Cann, prefix: "LESS", description: None };
    let options = OpenOptions { device: None, pool: PoolChoice::Auto, async_mode: None };
    wait(|done| Backend::open(Arc::new(Registry::new(vec![entry])), options, done)).unwrap()
}

/// A primary without SILU and RMS_NORM, and a fallback with everything.
fn pair() -> (Backend, Backend) {
    (lacking(&[AclOp::aclnnSilu, AclOp::aclnnRmsNorm]), open(1))
}

fn le(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

fn ramp(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i as f32 * 0.37).sin()).collect()
}

fn with(graph: &mut Graph, name: &str, src: &[NodeId], params: Params, result: ResultSpec) -> NodeId {
    let src: Vec<_> = src.iter().copied().map(Some).collect();
    graph.op(name, &src, params, result).unwrap()
}

fn op(graph: &mut Graph, name: &str, src: &[NodeId]) -> NodeId {
    with(graph, name, src, Params::default(), ResultSpec::default())
}

fn scale(graph: &mut Graph, x: NodeId, by: f64) -> NodeId {
    with(graph, "SCALE", &[x], Params::default().num("s", by), ResultSpec::default())
}

fn prepare(primary: &Backend, fallback: Option<&Backend>, graph: &Graph) -> Result<Plan, Error> {
    let options = PrepareOptions { fallback: fallback.cloned(), ..Default::default() };
    wait(|done| primary.prepare(graph.clone(), options, done))
}

fn run(plan: &Plan, inputs: &[(&str, Vec<u8>)]) -> Result<RunResult, Error> {
    let mut run = plan.start()?;
    inputs.iter().try_for_each(|(name, bytes)| run.input(name, bytes))?;
    wait(|done| run.submit(done))
}

/// The devices of the report's rows, shortened to P and F.
fn sides(plan: &Plan) -> String {
    plan.report().iter().map(|row| if row.device == "LESS0" { 'P' } else { 'F' }).collect()
}

/// Runs the graph split and on the fallback alone: all outputs are equal.
fn same(graph: &Graph, inputs: &[(&str, Vec<u8>)], expected: &str) -> Plan {
    let (primary, fallback) = pair();
    let split = prepare(&primary, Some(&fallback), graph).unwrap();
    let alone = prepare(&fallback, None, graph).unwrap();
    assert_eq!(sides(&split), expected);
    assert_eq!((split.inputs(), split.outputs()), (alone.inputs(), alone.outputs()));
    let (a, b) = (run(&split, inputs).unwrap(), run(&alone, inputs).unwrap());
    for name in alone.outputs() {
        assert_eq!(split.output_info(&name), alone.output_info(&name));
        assert_eq!(a.output(&name).unwrap(), b.output(&name).unwrap(), "output {name}");
    }
    assert!(split.inputs().iter().all(|name| split.input_info(name) == alone.input_info(name)));
    split
}

fn input(graph: &mut Graph, ty: GgmlType, ne: &[i64]) -> NodeId {
    graph.input("x", ty, ne).unwrap()
}

fn x32() -> [(&'static str, Vec<u8>); 1] {
    [("x", le(&ramp(32)))]
}

#[test]
fn a_refused_node_in_the_middle_first_and_last() {
    for (ops, expected) in [
        (&["SQR", "SILU", "NEG"][..], "PFP"),
        (&["SILU", "NEG", "SQR"], "FPP"),
        (&["SQR", "NEG", "SILU"], "PPF"),
        (&["SILU"], "F"),
        // One between two refused ones stays with them, two do not.
        (&["SILU", "NEG", "SILU"], "FFF"),
        (&["SILU", "NEG", "SQR", "SILU"], "FPPF"),
    ] {
        let mut graph = Graph::new();
        let x = input(&mut graph, F32, &[8, 4]);
        let y = ops.iter().fold(x, |x, name| op(&mut graph, name, &[x]));
        graph.output("y", y).unwrap();
        same(&graph, &x32(), expected);
    }
}

#[test]
fn the_report_names_devices_and_copies() {
    let mut graph = Graph::new();
    let x = input(&mut graph, F32, &[8, 4]);
    let a = op(&mut graph, "SQR", &[x]);
    let b = op(&mut graph, "SILU", &[a]);
    let c = op(&mut graph, "ADD", &[a, b]);
    graph.output("y", c).unwrap();
    let plan = same(&graph, &x32(), "PFP");
    let rows = plan.report();
    assert_eq!(rows.iter().map(|r| &*r.device).collect::<Vec<_>>(), ["LESS0", "HOST1", "LESS0"]);
    assert_eq!(rows[0].note, None);
    assert_eq!(rows[1].note.as_deref(), Some("node_1 copied from LESS0"));
    assert_eq!(rows[2].note.as_deref(), Some("node_1 copied from LESS0; node_2 copied from HOST1"));
    assert_eq!(rows[1].calls, ["aclnnSilu"]);
}

#[test]
fn independent_branches_cost_two_changes_of_side() {
    let mut graph = Graph::new();
    let x = input(&mut graph, F32, &[8, 4]);
    for (i, by) in [2.0, 3.0, 4.0].into_iter().enumerate() {
        let a = scale(&mut graph, x, by);
        let b = op(&mut graph, "SILU", &[a]);
        let c = op(&mut graph, "NEG", &[b]);
        graph.output(&format!("y{i}"), c).unwrap();
    }
    same(&graph, &x32(), "PPPFFFPPP");
}

#[test]
fn views_across_the_border_and_outputs_on_both_sides() {
    let mut graph = Graph::new();
    let x = input(&mut graph, F32, &[8, 4]);
    let a = op(&mut graph, "SQR", &[x]);
    let turned = op(&mut graph, "TRANSPOSE", &[a]);
    let window = with(
        &mut graph,
        "VIEW",
        &[a],
        Params::default().num("offset", 32.0),
        ResultSpec { ne: Some(vec![8, 2]), ..Default::default() },
    );
    let s = op(&mut graph, "SILU", &[window]);
    let r =
        with(&mut graph, "RESHAPE", &[s], Params::default(), ResultSpec { ne: Some(vec![4, 4]), ..Default::default() });
    let n = op(&mut graph, "NEG", &[r]);
    graph.output("turned", turned).unwrap();
    graph.output("window", window).unwrap();
    graph.output("s", s).unwrap();
    graph.output("reshaped", r).unwrap();
    graph.output("n", n).unwrap();
    graph.output("x", x).unwrap();
    same(&graph, &x32(), "PFP");
}

#[test]
fn memory_that_is_written_in_place_is_carried_with_what_was_written() {
    let mut graph = Graph::new();
    let x = input(&mut graph, F32, &[8, 4]);
    let a = op(&mut graph, "SQR", &[x]);
    let row = with(&mut graph, "VIEW", &[a], Params::default(), ResultSpec { ne: Some(vec![8]), ..Default::default() });
    let first =
        with(&mut graph, "VIEW", &[x], Params::default(), ResultSpec { ne: Some(vec![8]), ..Default::default() });
    // Written here, read there, written there too, and read here again.
    let copied = op(&mut graph, "CPY", &[first, row]);
    let silu = op(&mut graph, "SILU", &[copied]);
    let norm = op(&mut graph, "RMS_NORM", &[a]);
    let back = op(&mut graph, "CPY", &[silu, row]);
    let sum = op(&mut graph, "ADD", &[norm, a]);
    let y = op(&mut graph, "MUL", &[sum, back]);
    graph.output("y", y).unwrap();
    graph.output("a", a).unwrap();
    let (primary, fallback) = pair();
    let split = prepare(&primary, Some(&fallback), &graph).unwrap();
    let alone = prepare(&fallback, None, &graph).unwrap();
    assert!(sides(&split).contains("PF"), "{}", sides(&split));
    let (got, expected) = (run(&split, &x32()).unwrap(), run(&alone, &x32()).unwrap());
    for name in ["y", "a"] {
        assert_eq!(floats(got.output(name).unwrap()), floats(expected.output(name).unwrap()), "{name}");
    }
}

#[test]
fn quantised_and_index_values_cross() {
    let mut graph = Graph::new();
    let x = input(&mut graph, F32, &[32, 4]);
    let silu = op(&mut graph, "SILU", &[x]);
    let q = with(&mut graph, "CPY", &[silu], Params::default(), ResultSpec { ty: Some(Q8_0), ..Default::default() });
    let order = op(&mut graph, "ARGSORT", &[silu]);
    let ids =
        with(&mut graph, "VIEW", &[order], Params::default(), ResultSpec { ne: Some(vec![1]), ..Default::default() });
    let table = graph.input("table", F32, &[4, 32]).unwrap();
    let picked = op(&mut graph, "GET_ROWS", &[table, ids]);
    let product = op(&mut graph, "MUL_MAT", &[q, x]);
    let last = op(&mut graph, "SILU", &[picked]);
    graph.output("q", q).unwrap();
    graph.output("product", product).unwrap();
    graph.output("last", last).unwrap();
    assert_eq!(graph.node(order).ty, I32);
    let inputs = [("x", le(&ramp(128))), ("table", le(&ramp(128)))];
    let (primary, fallback) = pair();
    let split = prepare(&primary, Some(&fallback), &graph).unwrap();
    assert!(sides(&split).contains('P') && sides(&split).contains('F'), "{}", sides(&split));
    let alone = prepare(&fallback, None, &graph).unwrap();
    let (got, expected) = (run(&split, &inputs).unwrap(), run(&alone, &inputs).unwrap());
    for name in alone.outputs() {
        assert_eq!(got.output(&name).unwrap(), expected.output(&name).unwrap(), "{name}");
    }
}

/// silu(x · w) and x + w, w being the primary's.
fn weighted(w: &Tensor) -> Graph {
    let mut graph = Graph::new();
    let x = input(&mut graph, F32, &w.ne()[..2]);
    let w = graph.tensor(w.clone()).unwrap();
    let norm = op(&mut graph, "RMS_NORM", &[x]);
    let scaled = op(&mut graph, "MUL", &[norm, w]);
    let glu = op(&mut graph, "SILU", &[w]);
    let y = op(&mut graph, "ADD", &[scaled, glu]);
    graph.output("y", y).unwrap();
    graph
}

#[test]
fn a_weight_of_the_primary_is_mirrored_and_mirrored_again_when_written() {
    let (primary, fallback) = pair();
    let (w, same_on_fallback) = (tensor(&primary, F32, &[8, 4]), tensor(&fallback, F32, &[8, 4]));
    let write = |seed: u64| {
        let values = le(&noise(32, seed).iter().map(|b| f32::from(*b) / 64.0).collect::<Vec<_>>());
        wait(|done| w.write(values.clone(), 0, done)).unwrap();
        wait(|done| same_on_fallback.write(values, 0, done)).unwrap();
    };
    write(1);
    let split = prepare(&primary, Some(&fallback), &weighted(&w)).unwrap();
    let alone = prepare(&fallback, None, &weighted(&same_on_fallback)).unwrap();
    assert!(split.report().iter().any(|r| r.note.as_deref().is_some_and(|n| n.contains("copied from LESS0, again"))));
    for seed in [1, 1, 2, 3] {
        write(seed);
        let (a, b) = (run(&split, &x32()).unwrap(), run(&alone, &x32()).unwrap());
        assert_eq!(a.output("y"), b.output("y"), "seed {seed}");
    }
    // Each run sees what was written before it was called, and not what was written after.
    let mut answers = Vec::new();
    for i in 0..20 {
        w.write(le(&[i as f32; 32]), 0, Box::new(|written| written.unwrap()));
        let mut run = split.start().unwrap();
        run.input("x", &le(&[0.0; 32])).unwrap();
        answers.push(common::later(|done| run.submit(done)));
    }
    for (i, answer) in answers.into_iter().enumerate() {
        let w = i as f32;
        let got = floats(answer.get().unwrap().output("y").unwrap())[0];
        assert!((got - w / (1.0 + (-w).exp())).abs() < 1e-4, "run {i}: {got}");
    }
    // A disposed source cannot change any more; the plan goes on.
    w.dispose();
    run(&split, &x32()).unwrap();
}

#[test]
fn a_tensor_that_the_graph_writes_is_carried_and_read_at_its_turn() {
    let (primary, fallback) = pair();
    let graph = |cache: &Tensor| {
        let mut graph = Graph::new();
        let x = input(&mut graph, F32, &[8, 4]);
        let cache = graph.tensor(cache.clone()).unwrap();
        let before = op(&mut graph, "SILU", &[cache]);
        let doubled = op(&mut graph, "ADD", &[cache, x]);
        let stored = op(&mut graph, "CPY", &[doubled, cache]);
        let after = op(&mut graph, "SILU", &[stored]);
        graph.output("before", before).unwrap();
        graph.output("after", after).unwrap();
        graph
    };
    let (ours, theirs) = (tensor(&primary, F32, &[8, 4]), tensor(&fallback, F32, &[8, 4]));
    for cache in [&ours, &theirs] {
        wait(|done| cache.fill(0, done)).unwrap();
    }
    let split = prepare(&primary, Some(&fallback), &graph(&ours)).unwrap();
    let alone = prepare(&fallback, None, &graph(&theirs)).unwrap();
    for round in 0..3 {
        let (a, b) = (run(&split, &x32()).unwrap(), run(&alone, &x32()).unwrap());
        for name in ["before", "after"] {
            assert_eq!(a.output(name), b.output(name), "{name} in round {round}");
        }
    }
    let [a, b] = [&ours, &theirs].map(|cache| wait(|done| cache.read(0, 128, done)).unwrap());
    assert_eq!(a, b);
    // A node that writes into a tensor runs where the tensor is, or not at all.
    let mut graph = Graph::new();
    let cache = graph.tensor(theirs.clone()).unwrap();
    let x = input(&mut graph, F32, &[8, 4]);
    let squared = op(&mut graph, "SQR", &[x]);
    op(&mut graph, "CPY", &[squared, cache]);
    let plan = prepare(&primary, Some(&fallback), &graph).unwrap();
    assert_eq!(sides(&plan), "PF");
    run(&plan, &x32()).unwrap();
    let read = wait(|done| theirs.read(0, 128, done)).unwrap();
    assert_eq!(floats(&read), ramp(32).iter().map(|v| v * v).collect::<Vec<_>>());
}

#[test]
fn both_refuse_and_none_refuses() {
    let primary = lacking(&[AclOp::aclnnSilu]);
    let other = lacking(&[AclOp::aclnnSilu]);
    let mut graph = Graph::new();
    let x = input(&mut graph, F32, &[8, 4]);
    let y = op(&mut graph, "SILU", &[x]);
    graph.output("y", y).unwrap();
    let refused = |result: Result<Plan, Error>| match result.err().unwrap() {
        Error::UnsupportedOp { op, device, reason } => (op, device, reason),
        other => panic!("{other}"),
    };
    let (op_name, device, reason) = refused(prepare(&primary, Some(&other), &graph));
    assert_eq!((&*op_name, &*device), ("SILU (node_1)", "LESS0 and LESS0"));
    assert_eq!(reason.matches("the library has no aclnnSilu").count(), 2, "{reason}");
    // Without a fallback nothing moves, and a backend is no fallback of its own.
    for fallback in [None, Some(&primary)] {
        assert_eq!(refused(prepare(&primary, fallback, &graph)).1, "LESS0");
    }
    let mut graph = Graph::new();
    let x = input(&mut graph, F32, &[8, 4]);
    let y = op(&mut graph, "NEG", &[x]);
    graph.output("y", y).unwrap();
    let third = open(2);
    let plan = prepare(&primary, Some(&third), &graph).unwrap();
    assert_eq!(sides(&plan), "P");
    assert_eq!(third.stats().queue.submitted, 0);
    // A tensor of neither.
    let stranger = tensor(&third, F32, &[8, 4]);
    graph.tensor(stranger).unwrap();
    let error = prepare(&primary, Some(&other), &graph).err().unwrap();
    assert!(matches!(&error, Error::InvalidArg { expected, .. } if expected.contains("LESS0 or LESS0")), "{error}");
}

/// neg(silu(sqr(x))): over the border and back.
fn bridge() -> Graph {
    let mut graph = Graph::new();
    let x = input(&mut graph, F32, &[8, 4]);
    let a = op(&mut graph, "SQR", &[x]);
    let b = op(&mut graph, "SILU", &[a]);
    let c = op(&mut graph, "NEG", &[b]);
    graph.output("b", b).unwrap();
    graph.output("y", c).unwrap();
    graph
}

#[test]
fn a_hundred_runs_in_flight_settle_in_order() {
    let (primary, fallback) = pair();
    let plans = [&bridge(), &bridge()].map(|graph| prepare(&primary, Some(&fallback), graph).unwrap());
    let order = Arc::new(Mutex::new(Vec::new()));
    let (send, receive) = mpsc::channel();
    // Copies between the two wait for each other's queues as well.
    let (from, to) = (tensor(&primary, F32, &[1 << 16]), tensor(&fallback, F32, &[1 << 16]));
    let mut copies = Vec::new();
    for i in 0..100 {
        let mut run = plans[i % 2].start().unwrap();
        run.input("x", &le(&[i as f32; 32])).unwrap();
        let (order, send) = (order.clone(), send.clone());
        run.submit(Box::new(move |result| {
            let squared = (i * i) as f32;
            let got = floats(result.unwrap().output("y").unwrap())[7];
            assert!((got + squared / (1.0 + (-squared).exp())).abs() <= squared * 1e-5, "run {i}: {got}");
            order.lock().unwrap().push(i);
            send.send(()).unwrap();
        }));
        if i % 10 == 0 {
            copies.push(common::later(|done| fallback.copy(&from, &to, done)));
            copies.push(common::later(|done| primary.copy(&to, &from, done)));
            let event = wait(|done| primary.create_event(done)).unwrap();
            primary.record(&event, Box::new(|_| ()));
            copies.push(common::later(|done| fallback.wait(&event, done)));
        }
    }
    (0..100).for_each(|_| receive.recv_timeout(std::time::Duration::from_secs(60)).unwrap());
    assert_eq!(*order.lock().unwrap(), (0..100).collect::<Vec<_>>());
    copies.into_iter().for_each(|copy| copy.get().unwrap());
}

#[test]
fn what_a_caller_may_do_is_checked() {
    let (primary, fallback) = pair();
    let plan = prepare(&primary, Some(&fallback), &bridge()).unwrap();
    assert!(plan.scratch_bytes() > 0);
    let mut run = plan.start().unwrap();
    assert!(matches!(run.input("x", &[0; 15]), Err(Error::InvalidArg { name, .. }) if name == "inputs.x"));
    assert!(matches!(run.input("node_1 (node 1)", &[0; 128]), Err(Error::InvalidArg { .. })));
    assert!(matches!(run.outputs(Some(vec!["z".into()])), Err(Error::InvalidArg { .. })));
    let missing = wait(|done| run.submit(done)).err().unwrap();
    assert!(matches!(missing, Error::InvalidArg { name, .. } if name == "inputs.x"));

    // Device tensors of either side as inputs; outputs go to tensors of the side that computes them.
    let [ours, theirs] = [&primary, &fallback].map(|backend| {
        let tensor = tensor(backend, F32, &[8, 4]);
        wait(|done| tensor.write(le(&ramp(32)), 0, done)).unwrap();
        tensor
    });
    let expected = crate::run(&plan, &x32()).unwrap();
    for given in [&ours, &theirs] {
        let mut run = plan.start().unwrap();
        run.input_tensor("x", given).unwrap();
        run.outputs(Some(vec!["y".into()])).unwrap();
        let wrong = run.output_to("b", &ours).err().unwrap();
        assert!(matches!(&wrong, Error::InvalidArg { expected, .. } if expected.contains("HOST1")), "{wrong}");
        let target = tensor(&fallback, F32, &[8, 4]);
        run.output_to("b", &target).unwrap();
        let result = wait(|done| run.submit(done)).unwrap();
        assert_eq!(result.names().collect::<Vec<_>>(), ["y"]);
        assert_eq!((result.output("y"), result.output("b")), (expected.output("y"), None));
        assert_eq!(&wait(|done| target.read(0, 128, done)).unwrap(), expected.output("b").unwrap());
    }
}

#[test]
fn a_trace_has_a_process_for_each_backend() {
    let (primary, fallback) = pair();
    let plan = prepare(&primary, Some(&fallback), &bridge()).unwrap();
    assert_eq!(plan.trace(), None);
    let mut run = plan.start().unwrap();
    run.input("x", &le(&ramp(32))).unwrap();
    run.trace(true);
    wait(|done| run.submit(done)).unwrap();
    let trace: serde_json::Value = serde_json::from_str(&plan.trace().unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let seen: Vec<_> = (events.iter().filter(|e| e["name"] != "OUTPUT"))
        .map(|e| (e["name"].as_str().unwrap(), e["pid"].as_u64().unwrap()))
        .collect();
    assert_eq!(seen, [("SQR", 1), ("SILU", 2), ("NEG", 1)]);
    let starts: Vec<_> = events.iter().map(|e| e["ts"].as_f64().unwrap()).collect();
    assert!(starts.is_sorted());
}

#[test]
fn cancelled_disposed_and_closed() {
    let (primary, fallback) = pair();
    let plan = prepare(&primary, Some(&fallback), &bridge()).unwrap();
    let token = CancellationToken::new();
    let mut cancelled = plan.start().unwrap();
    cancelled.input("x", &le(&ramp(32))).unwrap();
    cancelled.cancel(token.clone());
    token.cancel();
    assert!(matches!(wait(|done| cancelled.submit(done)).err().unwrap(), Error::Cancelled));
    run(&plan, &x32()).unwrap();

    // What was submitted before still runs.
    let mut last = plan.start().unwrap();
    last.input("x", &le(&ramp(32))).unwrap();
    let answer = common::later(|done| last.submit(done));
    plan.dispose();
    plan.dispose();
    answer.get().unwrap();
    assert!(matches!(plan.start(), Err(Error::Disposed { .. })));

    for close_primary in [true, false] {
        let (primary, fallback) = pair();
        let plan = prepare(&primary, Some(&fallback), &bridge()).unwrap();
        let mut submitted = plan.start().unwrap();
        submitted.input("x", &le(&ramp(32))).unwrap();
        let answer = common::later(|done| submitted.submit(done));
        let mut late = plan.start().unwrap();
        late.input("x", &le(&ramp(32))).unwrap();
        let closed = if close_primary { &primary } else { &fallback };
        wait(|done| closed.close(done)).unwrap();
        answer.get().unwrap();
        assert!(matches!(wait(|done| late.submit(done)), Err(Error::Disposed { .. })));
        assert!(matches!(plan.start(), Err(Error::Disposed { .. })));
        assert!(matches!(prepare(&primary, Some(&fallback), &bridge()), Err(Error::Disposed { .. })));
    }
}

#[test]
fn plans_both_ways_do_not_wait_in_a_circle() {
    let (primary, fallback) = pair();
    // From the fallback's side: over a tensor of the other and back.
    let cache = tensor(&primary, F32, &[8, 4]);
    let mut graph = Graph::new();
    let x = input(&mut graph, F32, &[8, 4]);
    let a = op(&mut graph, "SQR", &[x]);
    let leaf = graph.tensor(cache).unwrap();
    let stored = op(&mut graph, "CPY", &[a, leaf]);
    let y = op(&mut graph, "NEG", &[stored]);
    graph.output("y", y).unwrap();
    let plans =
        [prepare(&primary, Some(&fallback), &bridge()).unwrap(), prepare(&fallback, Some(&primary), &graph).unwrap()];
    assert_eq!(sides(&plans[1]), "FPF");
    std::thread::scope(|scope| {
        for plan in &plans {
            scope.spawn(move || {
                let start = || {
                    let mut run = plan.start().unwrap();
                    run.input("x", &le(&ramp(32))).unwrap();
                    common::later(|done| run.submit(done))
                };
                let answers: Vec<_> = (0..60).map(|_| start()).collect();
                answers.into_iter().for_each(|answer| drop(answer.get().unwrap()));
            });
        }
    });
}

fn close(a: &[f32], b: &[f32]) -> bool {
    let alike = |(a, b): (&f32, &f32)| a == b || (a - b).abs() <= 1e-5 * a.abs().max(1.0) || (a.is_nan() && b.is_nan());
    a.len() == b.len() && a.iter().zip(b).all(alike)
}

#[test]
fn random_graphs_give_what_one_backend_gives() {
    let (primary, fallback) = pair();
    let caches = [&primary, &fallback].map(|backend| tensor(backend, F32, &[8, 4]));
    let weights = [&primary, &fallback].map(|backend| tensor(backend, F32, &[8, 4]));
    weights.iter().for_each(|w| wait(|done| w.write(le(&ramp(32)), 0, done)).unwrap());
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..150 {
        let bytes = noise(120, seed);
        // The same graph over each backend's own tensors.
        let graph = |side: usize| {
            let mut graph = Graph::new();
            let mut bytes = bytes.iter().map(|b| usize::from(*b));
            let mut draw = |n: usize| bytes.next().unwrap() % n;
            let x = input(&mut graph, F32, &[8, 4]);
            let mut whole = vec![x, graph.tensor(weights[side].clone()).unwrap()];
            let cache = graph.tensor(caches[side].clone()).unwrap();
            for _ in 0..4 + draw(14) {
                let a = whole[draw(whole.len())];
                let b = whole[draw(whole.len())];
                let row = |graph: &mut Graph, of: NodeId, at: usize| {
                    let params = Params::default().num("offset", 32.0 * at as f64);
                    with(graph, "VIEW", &[of], params, ResultSpec { ne: Some(vec![8]), ..Default::default() })
                };
                let new = match draw(9) {
                    0 => op(&mut graph, "NEG", &[a]),
                    1 => op(&mut graph, "ABS", &[a]),
                    2 => op(&mut graph, "ADD", &[a, b]),
                    3 | 4 => op(&mut graph, "SILU", &[a]),
                    5 => op(&mut graph, "RMS_NORM", &[a]),
                    6 => {
                        let row = row(&mut graph, a, draw(4));
                        op(&mut graph, "ADD", &[b, row])
                    }
                    7 => {
                        // In place: a row of anything but the weight.
                        let into = whole[draw(whole.len())];
                        let into = if into == whole[1] { x } else { into };
                        let (from, into) = (row(&mut graph, b, draw(4)), row(&mut graph, into, draw(4)));
                        let copied = op(&mut graph, "CPY", &[from, into]);
                        op(&mut graph, "ADD", &[a, copied])
                    }
                    _ => op(&mut graph, "CPY", &[a, cache]),
                };
                whole.push(new);
            }
            let last = *whole.last().unwrap();
            graph.output("last", last).unwrap();
            graph.output("some", whole[draw(whole.len())]).unwrap();
            let turned = op(&mut graph, "TRANSPOSE", &[whole[draw(whole.len())]]);
            graph.output("turned", turned).unwrap();
            graph
        };
        caches.iter().for_each(|cache| wait(|done| cache.fill(0, done)).unwrap());
        let split = prepare(&primary, Some(&fallback), &graph(0)).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let alone = prepare(&fallback, None, &graph(1)).unwrap();
        seen.insert(sides(&split));
        for round in 0..2 {
            let (a, b) = (run(&split, &x32()).unwrap(), run(&alone, &x32()).unwrap());
            for name in alone.outputs() {
                let [a, b] = [&a, &b].map(|r| floats(r.output(&name).unwrap()));
                assert!(close(&a, &b), "seed {seed}, round {round}, {name}, {}: {a:?}, not {b:?}", sides(&split));
            }
        }
        let [a, b] = [&caches[0], &caches[1]].map(|cache| floats(&wait(|done| cache.read(0, 128, done)).unwrap()));
        assert!(close(&a, &b), "seed {seed}: the cache");
    }
    assert!(seen.len() > 40, "{seen:?}");
}
