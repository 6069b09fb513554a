//! The cases behind `defects.rs` and `defects_910b.rs`.

#[path = "../common/driver.rs"]
mod driver;

use std::sync::{Arc, mpsc};

use cann_backend::graph::{Graph, NodeId, Params, ResultSpec};
use cann_backend::{Backend, Done, DriverEntry, DriverKind, Error, OpenOptions, Registry};
use gguf::GgmlType::{self, *};

pub fn wait<T: Send + 'static>(start: impl FnOnce(Done<T>)) -> Result<T, Error> {
    let (send, receive) = mpsc::channel();
    start(Box::new(move |result| send.send(result).unwrap_or(())));
    receive.recv().expect("a done is always called")
}

/// A backend on the embedded device under a chip's name; one name per test binary.
pub fn open(soc: Option<&str>) -> Backend {
    let api = driver::api(acl_host::Config { soc: soc.map(String::from), ..Default::default() });
    let driver = DriverEntry { api: Arc::new(api), kind: DriverKind::Host, prefix: "HOST", description: None };
    wait(|done| Backend::open(Arc::new(Registry::new(vec![driver])), OpenOptions::default(), done)).unwrap()
}

fn node(graph: &mut Graph, op: &str, src: &[NodeId]) -> NodeId {
    let src: Vec<Option<NodeId>> = src.iter().copied().map(Some).collect();
    graph.op(op, &src, Params::default(), ResultSpec::default()).unwrap()
}

/// Runs a graph whose outputs are f32 (or i64, read as such by the caller).
fn run(backend: &Backend, graph: &Graph, inputs: &[(&str, Vec<u8>)], times: usize) -> Vec<Vec<Vec<u8>>> {
    let plan = wait(|done| backend.prepare(graph.clone(), Default::default(), done)).unwrap();
    (0..times)
        .map(|_| {
            let mut run = plan.start().unwrap();
            inputs.iter().for_each(|(name, bytes)| run.input(name, bytes).unwrap());
            let result = wait(|done| run.submit(done)).unwrap();
            plan.outputs().iter().map(|name| result.output(name).unwrap().to_vec()).collect()
        })
        .collect()
}

fn le(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

/// Values in -1..1 that differ from place to place.
fn noise(n: usize, seed: u32) -> Vec<f32> {
    (0..n)
        .map(|i| {
            let x = (i as u32 + 1).wrapping_mul(2654435761).wrapping_add(seed.wrapping_mul(40503));
            (x >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

fn blocks(ty: GgmlType, values: &[f32]) -> (Vec<u8>, Vec<f32>) {
    let mut bytes = vec![0; values.len() / ty.block_len() * ty.block_bytes()];
    gguf::quantize(ty, values, &mut bytes).unwrap();
    let mut back = vec![0.0; values.len()];
    gguf::dequantize(ty, &bytes, &mut back).unwrap();
    (bytes, back)
}

/// R25, R26: more rows than a chip takes at once, and an exact multiple of that, with batches of 1, 2 and 3.
pub fn large_vocabulary(backend: &Backend, tolerance: f64) {
    const K: usize = 64;
    for ty in [Q8_0, Q4_0] {
        for rows in [151936usize, 131070] {
            let (weights, values) = blocks(ty, &noise(K * rows, 1));
            for n in 1..=3 {
                let x = noise(K * n, 2);
                let mut graph = Graph::new();
                let w = graph.input("w", ty, &[K as i64, rows as i64]).unwrap();
                let input = graph.input("x", F32, &[K as i64, n as i64]).unwrap();
                let y = node(&mut graph, "MUL_MAT", &[w, input]);
                graph.output("y", y).unwrap();
                let got = floats(&run(backend, &graph, &[("w", weights.clone()), ("x", le(&x))], 1)[0][0]);
                let (mut error, mut norm) = (0.0, 0.0);
                for (i, got) in got.iter().enumerate() {
                    let (row, col) = (i % rows, i / rows);
                    let exact: f64 = (0..K).map(|k| f64::from(values[row * K + k]) * f64::from(x[col * K + k])).sum();
                    error += (exact - f64::from(*got)).powi(2);
                    norm += exact * exact;
                }
                assert!(error / norm < tolerance, "{} {rows} rows, batch {n}: NMSE {}", ty.name(), error / norm);
            }
        }
    }
}

/// R34: neither the range nor the precision of f16.
pub fn f32_product(backend: &Backend) {
    let mut graph = Graph::new();
    let w = graph.input("w", F32, &[2, 1]).unwrap();
    let x = graph.input("x", F32, &[2, 1]).unwrap();
    let y = node(&mut graph, "MUL_MAT", &[w, x]);
    graph.output("y", y).unwrap();
    let got = run(backend, &graph, &[("w", le(&[1e6, 1.0])), ("x", le(&[1.0, 0.25]))], 1);
    assert_eq!(floats(&got[0][0]), [1_000_000.25]);
}

/// R19, R20: SQR and COUNT_EQUAL change neither the graph nor what they read.
pub fn squares_and_counts(backend: &Backend) {
    let mut graph = Graph::new();
    let x = graph.input("x", F32, &[5]).unwrap();
    let a = graph.input("a", I32, &[6]).unwrap();
    let b = graph.input("b", I32, &[6]).unwrap();
    for (name, op, src) in [("squares", "SQR", vec![x]), ("equal", "COUNT_EQUAL", vec![a, b])] {
        let y = node(&mut graph, op, &src);
        graph.output(name, y).unwrap();
    }
    graph.output("x after", x).unwrap();
    graph.output("a after", a).unwrap();
    let values = le(&[1.0, -2.0, 3.0, 0.5, -0.25]);
    let ints = |v: [i32; 6]| v.map(i32::to_le_bytes).concat();
    let (left, right) = (ints([1, 2, 3, 4, 5, 6]), ints([1, 0, 3, 4, 0, 6]));
    let inputs = [("x", values.clone()), ("a", left.clone()), ("b", right)];
    for got in run(backend, &graph, &inputs, 3) {
        assert_eq!(floats(&got[0]), [1.0, 4.0, 9.0, 0.25, 0.0625]);
        assert_eq!(got[1], 4i64.to_le_bytes());
        assert_eq!(got[2], values);
        assert_eq!(got[3], left);
    }
}

/// R32: not the erf form, which is off by 0.02 near -2.27.
pub fn quick_gelu(backend: &Backend) {
    let values: Vec<f32> = (0..400).map(|i| (i - 200) as f32 / 40.0).collect();
    let mut graph = Graph::new();
    let x = graph.input("x", F32, &[400]).unwrap();
    let y = node(&mut graph, "GELU_QUICK", &[x]);
    graph.output("y", y).unwrap();
    let got = floats(&run(backend, &graph, &[("x", le(&values))], 1)[0][0]);
    for (x, y) in values.iter().zip(got) {
        let exact = f64::from(*x) / (1.0 + (-1.702 * f64::from(*x)).exp());
        assert!((f64::from(y) - exact).abs() < 1e-5, "{x}: {y}, not {exact}");
    }
}

/// Extents of zero go through every kind of operator and give what is left of the shape.
pub fn empties(backend: &Backend) {
    let mut graph = Graph::new();
    let none = graph.input("none", F32, &[4, 0]).unwrap();
    let w = graph.input("w", F32, &[4, 3]).unwrap();
    let zero_k = graph.input("zero k", F32, &[0, 3]).unwrap();
    let zero_x = graph.input("zero x", F32, &[0, 2]).unwrap();
    for (name, op, src) in [
        ("added", "ADD", vec![none, none]),
        ("normed", "RMS_NORM", vec![none]),
        ("softmax", "SOFT_MAX", vec![none]),
        ("product", "MUL_MAT", vec![w, none]),
        ("copied", "CONT", vec![none]),
        ("nothing summed", "MUL_MAT", vec![zero_k, zero_x]),
    ] {
        let y = node(&mut graph, op, &src);
        graph.output(name, y).unwrap();
    }
    let inputs = [("none", vec![]), ("w", le(&noise(12, 3))), ("zero k", vec![]), ("zero x", vec![])];
    let got = run(backend, &graph, &inputs, 2);
    for results in got {
        assert!(results[..5].iter().all(Vec::is_empty));
        assert_eq!(floats(&results[5]), [0.0; 6], "a sum over nothing is zero");
    }
}

/// R37: the promise rejects, nothing ran, and the device is there for the next run.
pub fn wrong_index(backend: &Backend) {
    let mut graph = Graph::new();
    let table = graph.input("table", F32, &[2, 3]).unwrap();
    let ids = graph.input("ids", I32, &[2]).unwrap();
    let rows = node(&mut graph, "GET_ROWS", &[table, ids]);
    graph.output("rows", rows).unwrap();
    let plan = wait(|done| backend.prepare(graph, Default::default(), done)).unwrap();
    let table = le(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let ids = |v: [i32; 2]| v.map(i32::to_le_bytes).concat();
    for wrong in [3, -1] {
        let mut run = plan.start().unwrap();
        run.input("table", &table).unwrap();
        let error = run.input("ids", &ids([0, wrong])).unwrap_err();
        assert!(matches!(&error, Error::InvalidArg { name, .. } if name == "inputs.ids"), "{error}");
    }
    let mut run = plan.start().unwrap();
    run.input("table", &table).unwrap();
    run.input("ids", &ids([2, 0])).unwrap();
    let result = wait(|done| run.submit(done)).unwrap();
    assert_eq!(floats(result.output("rows").unwrap()), [5.0, 6.0, 1.0, 2.0]);
}

/// R18, R36: an error with operator, node and reason, before anything is launched.
pub fn refusal(backend: &Backend) {
    let mut graph = Graph::new();
    let x = graph.input("x", F64, &[4]).unwrap();
    let refused = graph.op("SILU", &[Some(x)], Params::default(), ResultSpec::default());
    let error = match refused {
        Err(error) => error,
        Ok(y) => {
            graph.output("y", y).unwrap();
            wait(|done| backend.prepare(graph, Default::default(), done)).err().expect("f64 has no SILU")
        }
    };
    assert!(error.to_string().contains("SILU"), "{error}");
}
