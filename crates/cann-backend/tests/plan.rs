//! Plans and runs: what a caller may do and what it is told.

mod common;

use std::sync::{Arc, Mutex, mpsc};

use cann_backend::Error;
use cann_backend::graph::{Graph, Params, ResultSpec};
use cann_backend::plan::{Plan, PrepareOptions};
use common::{later, open, tensor, wait};
use gguf::GgmlType;
use tokio_util::sync::CancellationToken;

fn le(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

fn op(graph: &mut Graph, name: &str, src: &[cann_backend::graph::NodeId]) -> cann_backend::graph::NodeId {
    let src: Vec<_> = src.iter().copied().map(Some).collect();
    graph.op(name, &src, Params::default(), ResultSpec::default()).unwrap()
}

/// y = x + x
fn doubling() -> Graph {
    let mut graph = Graph::new();
    let x = graph.input("x", GgmlType::F32, &[4]).unwrap();
    let y = op(&mut graph, "ADD", &[x, x]);
    graph.output("y", y).unwrap();
    graph
}

#[test]
fn inputs_are_checked_before_anything_is_queued() {
    let backend = open(0);
    let plan = wait(|done| backend.prepare(doubling(), Default::default(), done)).unwrap();
    let mut run = plan.start().unwrap();
    assert!(matches!(run.input("x", &[0; 15]), Err(Error::InvalidArg { name, .. }) if name == "inputs.x"));
    assert!(matches!(run.input("z", &[]), Err(Error::InvalidArg { .. })));
    assert!(matches!(run.outputs(Some(vec!["z".into()])), Err(Error::InvalidArg { .. })));
    let missing = wait(|done| plan.start().unwrap().submit(done)).err().unwrap();
    assert!(matches!(missing, Error::InvalidArg { name, .. } if name == "inputs.x"));
}

#[test]
fn runs_settle_in_the_order_they_were_called() {
    let backend = open(0);
    let plan = wait(|done| backend.prepare(doubling(), Default::default(), done)).unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let (send, receive) = mpsc::channel();
    for i in 0..2000 {
        let mut run = plan.start().unwrap();
        run.input("x", &le(&[i as f32; 4])).unwrap();
        let (order, send) = (order.clone(), send.clone());
        run.submit(Box::new(move |result| {
            assert_eq!(floats(result.unwrap().output("y").unwrap()), [2.0 * i as f32; 4]);
            order.lock().unwrap().push(i);
            send.send(()).unwrap();
        }));
    }
    (0..2000).for_each(|_| receive.recv().unwrap());
    assert_eq!(*order.lock().unwrap(), (0..2000).collect::<Vec<_>>());
}

#[test]
fn device_tensors_as_inputs_and_outputs() {
    let backend = open(0);
    let plan = wait(|done| backend.prepare(doubling(), Default::default(), done)).unwrap();
    let (from, to) = (tensor(&backend, GgmlType::F32, &[4]), tensor(&backend, GgmlType::F32, &[4]));
    wait(|done| from.write(le(&[1.0, 2.0, 3.0, 4.0]), 0, done)).unwrap();
    let mut run = plan.start().unwrap();
    run.input_tensor("x", &from).unwrap();
    run.output_to("y", &to).unwrap();
    run.outputs(Some(vec![])).unwrap();
    // What a run was given stays alive for it.
    from.dispose();
    let result = wait(|done| run.submit(done)).unwrap();
    assert_eq!(result.names().count(), 0);
    let read = wait(|done| to.read(0, 16, done)).unwrap();
    assert_eq!(floats(&read), [2.0, 4.0, 6.0, 8.0]);
    let other = tensor(&backend, GgmlType::F32, &[5]);
    assert!(matches!(plan.start().unwrap().input_tensor("x", &other), Err(Error::InvalidArg { .. })));
    assert!(matches!(plan.start().unwrap().input_tensor("x", &from), Err(Error::Disposed { .. })));
}

#[test]
fn a_cancelled_run_never_starts() {
    let backend = open(0);
    let plan = wait(|done| backend.prepare(doubling(), Default::default(), done)).unwrap();
    let token = CancellationToken::new();
    let mut run = plan.start().unwrap();
    run.input("x", &le(&[1.0; 4])).unwrap();
    run.cancel(token.clone());
    token.cancel();
    assert!(matches!(wait(|done| run.submit(done)).err().unwrap(), Error::Cancelled));
}

/// The device finds an index wrong that nobody could check before. That run is refused, and no other: not the ones in flight
/// before it, nor the ones behind it, however they wait.
#[test]
fn a_run_that_fails_on_the_device_is_told_and_no_other() {
    let backend = open(0);
    let mut graph = Graph::new();
    let table = graph.input("table", GgmlType::F32, &[2, 4]).unwrap();
    let ids = graph.input("ids", GgmlType::I32, &[2]).unwrap();
    let copied = op(&mut graph, "CONT", &[ids]);
    let rows = op(&mut graph, "GET_ROWS", &[table, copied]);
    graph.output("y", rows).unwrap();
    // Long enough for a run that may be cancelled to look whether it is.
    let mut long = Graph::new();
    let mut x = long.input("x", GgmlType::F32, &[4]).unwrap();
    for _ in 0..200 {
        x = op(&mut long, "NEG", &[x]);
    }
    long.output("y", x).unwrap();
    let plan = wait(|done| backend.prepare(graph, Default::default(), done)).unwrap();
    let long = wait(|done| backend.prepare(long, Default::default(), done)).unwrap();
    let busy = tensor(&backend, GgmlType::I8, &[1 << 20]);
    for round in 0..60 {
        let before: Vec<_> = (0..4).map(|i| later(|done| busy.fill(i, done))).collect();
        let mut bad = plan.start().unwrap();
        bad.input("table", &[0; 32]).unwrap();
        bad.input("ids", &[1, 0, 0, 0, 9, 0, 0, 0]).unwrap();
        let bad = later(|done| bad.submit(done));
        let mut good = long.start().unwrap();
        good.input("x", &le(&[1.0; 4])).unwrap();
        match round % 3 {
            0 => good.cancel(CancellationToken::new()),
            1 => good.trace(true),
            _ => (),
        }
        let good = later(|done| good.submit(done));
        let synced = later(|done| backend.synchronize(done));
        before.into_iter().for_each(|fill| fill.get().unwrap());
        match bad.get() {
            Err(Error::Acl { detail, .. }) => assert!(detail.contains("index 9 at place 1"), "{detail}"),
            other => panic!("{:?}", other.map(|_| "a result")),
        }
        assert_eq!(floats(good.get().unwrap().output("y").unwrap()), [1.0; 4], "round {round}");
        synced.get().unwrap();
    }
}

#[test]
fn blocks_that_are_written_again_are_read_again() {
    let backend = open(0);
    let table = tensor(&backend, GgmlType::Q5_0, &[32, 1]);
    let blocks = |v: f32| {
        let mut bytes = vec![0; 22];
        gguf::quantize(GgmlType::Q5_0, &[v; 32], &mut bytes).unwrap();
        bytes
    };
    wait(|done| table.write(blocks(1.0), 0, done)).unwrap();
    let mut graph = Graph::new();
    let w = graph.tensor(table.clone()).unwrap();
    let x = graph.input("x", GgmlType::F32, &[32]).unwrap();
    let y = op(&mut graph, "MUL_MAT", &[w, x]);
    graph.output("y", y).unwrap();
    let plan = wait(|done| backend.prepare(graph, Default::default(), done)).unwrap();
    for (value, sum) in [(1.0, 32.0), (1.0, 32.0), (-0.5, -16.0)] {
        wait(|done| table.write(blocks(value), 0, done)).unwrap();
        let mut run = plan.start().unwrap();
        run.input("x", &le(&[1.0; 32])).unwrap();
        let result = wait(|done| run.submit(done)).unwrap();
        let got = floats(result.output("y").unwrap())[0];
        assert!((got - sum).abs() < 0.05, "{got}, not {sum}");
    }
}

#[test]
fn a_trace_names_every_node() {
    let backend = open(0);
    let plan = wait(|done| backend.prepare(doubling(), Default::default(), done)).unwrap();
    let mut run = plan.start().unwrap();
    run.input("x", &le(&[1.0; 4])).unwrap();
    run.trace(true);
    wait(|done| run.submit(done)).unwrap();
    let trace: serde_json::Value = serde_json::from_str(&plan.trace().unwrap()).unwrap();
    assert_eq!(trace["traceEvents"][0]["name"], "ADD");
}

#[test]
fn a_plan_outlived_by_nothing() {
    let backend = open(0);
    let plan = wait(|done| backend.prepare(doubling(), Default::default(), done)).unwrap();
    plan.dispose();
    plan.dispose();
    assert!(matches!(plan.start(), Err(Error::Disposed { .. })));
    let other = wait(|done| backend.prepare(doubling(), Default::default(), done)).unwrap();
    wait(|done| backend.close(done)).unwrap();
    let mut run = match other.start() {
        Ok(run) => run,
        Err(error) => return assert!(matches!(error, Error::Disposed { .. })),
    };
    run.input("x", &le(&[1.0; 4])).unwrap();
    assert!(matches!(wait(|done| run.submit(done)), Err(Error::Disposed { .. })));
}

/// Prepares, with nodes fused or not; the plan and the calls of its nodes.
fn prepared(backend: &cann_backend::Backend, graph: Graph, fuse: bool) -> (Plan, Vec<String>) {
    let options = PrepareOptions { fuse: Some(fuse), ..Default::default() };
    let plan = wait(|done| backend.prepare(graph, options, done)).unwrap();
    let calls = plan.report().iter().map(|row| format!("{}:{}", row.op, row.calls.join("+"))).collect();
    (plan, calls)
}

/// Every output of a run, in the order of the names.
fn outputs(plan: &Plan, inputs: &[(&str, Vec<u8>)]) -> Vec<Vec<u8>> {
    let mut run = plan.start().unwrap();
    inputs.iter().for_each(|(name, bytes)| run.input(name, bytes).unwrap());
    let result = wait(|done| run.submit(done)).unwrap();
    plan.outputs().iter().map(|name| result.output(name).unwrap().to_vec()).collect()
}

const WIDE: [i64; 3] = [96, 5, 2];

/// Inputs a, b [96, 5, 2] and w [96], with values of many sizes.
fn wide_inputs() -> Vec<(&'static str, Vec<u8>)> {
    let row = |n: usize, k: f32| le(&(0..n).map(|i| ((i as f32 * k).sin() * 7.0).powi(3)).collect::<Vec<_>>());
    vec![("a", row(960, 0.37)), ("b", row(960, 1.13)), ("w", row(96, 0.71))]
}

fn wide_leaves(graph: &mut Graph) -> [cann_backend::graph::NodeId; 3] {
    [("a", &WIDE[..]), ("b", &WIDE[..]), ("w", &WIDE[..1])].map(|(n, ne)| graph.input(n, GgmlType::F32, ne).unwrap())
}

#[test]
fn a_sum_and_its_norm_are_one_call_with_the_same_bits() {
    let backend = open(0);
    // With and without a weight; the sum is an output, read before the norm's end, and read after it.
    for (weight, between, after) in
        [(true, false, true), (true, true, true), (false, false, true), (true, false, false)]
    {
        let build = || {
            let mut graph = Graph::new();
            let [a, b, w] = wide_leaves(&mut graph);
            let sum = op(&mut graph, "ADD", &[a, b]);
            let norm = op(&mut graph, "RMS_NORM", &[sum]);
            let other = if between { op(&mut graph, "SILU", &[sum]) } else { sum };
            let last = if weight { op(&mut graph, "MUL", &[norm, w]) } else { norm };
            let up = op(&mut graph, "SQR", &[last]);
            let next = op(&mut graph, "ADD", &[up, other]);
            graph.output("next", next).unwrap();
            if after {
                graph.output("sum", sum).unwrap();
                graph.output("norm", last).unwrap();
            }
            graph
        };
        let (fused, calls) = prepared(&backend, build(), true);
        let (plain, plain_calls) = prepared(&backend, build(), false);
        assert_eq!(calls[..2], ["ADD:aclnnAddRmsNorm", "RMS_NORM:"], "{weight} {between}");
        assert_eq!(calls.contains(&"MUL:".to_owned()), weight);
        assert_eq!(plain_calls[..2], ["ADD:aclnnAdd", "RMS_NORM:aclnnRmsNorm"]);
        let note = fused.report()[0].note.clone().unwrap();
        assert!(note.starts_with("computes ") && note.contains(" and ") == weight, "{note}");
        for _ in 0..2 {
            assert_eq!(outputs(&fused, &wide_inputs()), outputs(&plain, &wide_inputs()), "{weight} {between} {after}");
        }
    }
}

#[test]
fn what_is_written_in_between_keeps_its_own_calls() {
    let backend = open(0);
    // The sum is overwritten before it is normalised; the weight before it is used.
    for weight_too in [false, true] {
        let target = tensor(&backend, GgmlType::F32, &WIDE[..1]);
        let build = || {
            let mut graph = Graph::new();
            let [a, b, w] = wide_leaves(&mut graph);
            let gamma = graph.tensor(target.clone()).unwrap();
            let sum = op(&mut graph, "ADD", &[a, b]);
            let written =
                if weight_too { op(&mut graph, "CPY", &[w, gamma]) } else { op(&mut graph, "CPY", &[b, sum]) };
            let norm = op(&mut graph, "RMS_NORM", &[sum]);
            let last = op(&mut graph, "MUL", &[norm, gamma]);
            graph.output("last", last).unwrap();
            graph.output("written", written).unwrap();
            graph
        };
        let (plan, calls) = prepared(&backend, build(), true);
        assert_eq!(calls[0], "ADD:aclnnAdd", "{weight_too}: {calls:?}");
        let (plain, _) = prepared(&backend, build(), false);
        let mut results = Vec::new();
        for plan in [plain, plan] {
            wait(|done| target.write(le(&[0.5; 96]), 0, done)).unwrap();
            results.push(outputs(&plan, &wide_inputs()));
        }
        assert_eq!(results[0], results[1]);
    }
    // Neither broadcasting nor another type is the operator's.
    for (ty, ne) in [(GgmlType::F32, &WIDE[..1]), (GgmlType::F16, &WIDE[..])] {
        let mut graph = Graph::new();
        let a = graph.input("a", GgmlType::F32, &WIDE).unwrap();
        let b = graph.input("b", ty, ne).unwrap();
        let sum = op(&mut graph, "ADD", &[a, b]);
        let norm = op(&mut graph, "RMS_NORM", &[sum]);
        graph.output("norm", norm).unwrap();
        assert_eq!(prepared(&backend, graph, true).1[0], "ADD:aclnnAdd");
    }
}
