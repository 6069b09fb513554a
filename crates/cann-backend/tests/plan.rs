//! Plans and runs: what a caller may do and what it is told.

mod common;

use std::sync::{Arc, Mutex, mpsc};

use cann_backend::Error;
use cann_backend::graph::{Graph, Params, ResultSpec};
use common::{open, tensor, wait};
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
