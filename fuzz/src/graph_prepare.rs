//! Bytes as a graph: leaves, operators of the whole table with any parameters, views with any strides.
//!
//! What is refused must be refused with a typed error. What is accepted must prepare and run without an error of the device
//! and give the same bytes twice.

use std::sync::OnceLock;

use cann_backend::graph::{Graph, NodeId, Param, Params, ResultSpec};
use cann_backend::ops::{self, Default as Kind, OpDef};
use cann_backend::plan::{self, Plan, PrepareOptions};
use cann_backend::{Backend, Error};
use gguf::GgmlType;

use crate::Outcome;
use crate::bytes::{Bytes, Random, Trail};
use crate::device::{assert_nothing_found, backend, wait};

const MOST_OPS: usize = 6;
/// Larger graphs are planned, not run: what a kernel costs grows with the product of two operands.
const LARGEST_RUN_ELEMENTS: i64 = 1 << 12;
/// Tries per operator to find a seed that is accepted.
const SEED_TRIES: usize = 600;

const TYPES: [GgmlType; 16] = {
    use GgmlType as T;
    [
        T::F32,
        T::F32,
        T::F32,
        T::F32,
        T::F16,
        T::F16,
        T::I32,
        T::I32,
        T::Bf16,
        T::Q8_0,
        T::Q4_0,
        T::Q4_1,
        T::I64,
        T::I8,
        T::Q6K,
        T::Q5_0,
    ]
};
const EXTENTS: [i64; 16] = [1, 1, 1, 2, 2, 3, 4, 4, 5, 7, 8, 16, 32, 32, 64, 256];
const HOSTILE_EXTENTS: [i64; 8] = [0, -1, i64::MIN, i64::MAX, 1 << 32, 1 << 53, (1 << 31) - 1, 65_537];
const NUMBERS: [f64; 24] = [
    0.0,
    1.0,
    2.0,
    3.0,
    4.0,
    8.0,
    16.0,
    32.0,
    -1.0,
    0.5,
    1e-5,
    -0.5,
    10.0,
    10_000.0,
    -2.0,
    64.0,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    1e300,
    9_007_199_254_740_992.0,
    -2_147_483_649.0,
    4_294_967_296.0,
    1e19,
];
const STRINGS: [&str; 16] = [
    "", "asc", "desc", "nearest", "bilinear", "bicubic", "max", "avg", "lower", "upper", "default", "f32", "neox",
    "norm", "mrope", "\u{0}",
];

pub fn graph_prepare(data: &[u8]) -> Outcome {
    let mut trail = Trail::new();
    let mut bytes = Bytes::new(data);
    let built = build(&mut bytes, &mut trail);
    let backend = backend();
    let supported = plan_nodes(&built, backend, &mut trail);
    let _ = built.to_dot();
    let small = (built.nodes().iter()).all(|n| n.nelements() <= LARGEST_RUN_ELEMENTS && n.span_bytes() < 1 << 20);
    let ran = small && prepare_and_run(built, supported, &mut bytes, &mut trail);
    assert_nothing_found();
    Outcome { accepted: ran, signature: trail.value() }
}

/// For each operator the first random bytes that it is planned from, and a few that nothing is known about.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut random = Random::new(3);
    let mut seeds: Vec<Vec<u8>> = (0..ops::all().count()).filter_map(|op| seed_of(op as u8, &mut random)).collect();
    seeds.extend((0..16).map(|_| random.bytes(160)));
    seeds
}

fn seed_of(op: u8, random: &mut Random) -> Option<Vec<u8>> {
    (0..SEED_TRIES).find_map(|_| {
        // One leaf, one operator: see `build`.
        let seed = [&[0, random.number() as u8 & 7], &random.bytes(8)[..], &[0, op], &random.bytes(90)].concat();
        // One that panics is a seed above all: the driver meets it again and reports it.
        let planned = std::panic::catch_unwind(|| is_planned(&seed, op)).unwrap_or(true);
        planned.then_some(seed)
    })
}

/// Whether the last node is the operator and the device takes it.
fn is_planned(seed: &[u8], op: u8) -> bool {
    let graph = build(&mut Bytes::new(seed), &mut Trail::new());
    let Some((last, node)) = graph.nodes().iter().enumerate().next_back() else { return false };
    node.op.name == table()[usize::from(op) % table().len()].name
        && node.nelements() <= LARGEST_RUN_ELEMENTS
        && plan::calls(&graph, NodeId(last as u32), backend().caps()).is_ok()
}

fn table() -> &'static [&'static OpDef] {
    static TABLE: OnceLock<Vec<&'static OpDef>> = OnceLock::new();
    TABLE.get_or_init(|| ops::all().collect())
}

fn build(bytes: &mut Bytes, trail: &mut Trail) -> Graph {
    let mut graph = Graph::new();
    for _ in 0..=bytes.u8() % 3 {
        leaf(&mut graph, bytes, None);
    }
    for _ in 0..=usize::from(bytes.u8()) % MOST_OPS {
        let def = table()[usize::from(bytes.u8()) % table().len()];
        let mut src: Vec<Option<NodeId>> = Vec::new();
        for name in def.src {
            src.push(source(&mut graph, bytes, &src, name.ends_with('?')));
        }
        if bytes.one_in(64) {
            src.push(Some(NodeId(u32::from(bytes.u8()))));
        }
        let params = params(def, bytes);
        let result = result(def, &graph, &src, bytes);
        trail.add(def.name.as_bytes());
        match graph.op(def.name, &src, params, result) {
            Ok(id) => trail.add(&[graph.node(id).root.index().min(1) as u8, graph.node(id).is_empty().into()]),
            Err(error) => {
                assert!(matches!(error, Error::Shape { .. } | Error::InvalidArg { .. }), "{}: {error}", def.name);
                trail.add_rule(&error);
            }
        }
    }
    for i in 0..graph.nodes().len() {
        let unused = !graph.nodes().iter().any(|n| n.src.contains(&Some(NodeId(i as u32))));
        if unused || bytes.one_in(8) {
            graph.output(&format!("out{i}"), NodeId(i as u32)).expect("a name of its own");
        }
    }
    graph
}

fn leaf(graph: &mut Graph, bytes: &mut Bytes, like: Option<[i64; 4]>) -> Option<NodeId> {
    let ty = bytes.pick(&TYPES);
    let mut ne = match like {
        Some(ne) => ne.to_vec(),
        None => (0..=bytes.u8() % 4).map(|_| bytes.pick(&EXTENTS)).collect(),
    };
    if like.is_some() && bytes.one_in(2) {
        let axis = usize::from(bytes.u8()) % ne.len();
        ne[axis] = bytes.pick(&EXTENTS);
    }
    if bytes.one_in(32) {
        let axis = usize::from(bytes.u8()) % ne.len();
        ne[axis] = if bytes.one_in(2) { bytes.u64() as i64 } else { bytes.pick(&HOSTILE_EXTENTS) };
    }
    if ty.is_quantized() && ne[0] > 0 && ne[0] < 1 << 20 {
        ne[0] = (ne[0] as u64).next_multiple_of(ty.block_len() as u64) as i64;
    }
    let name = format!("in{}", graph.nodes().len());
    match graph.input(&name, ty, &ne) {
        Ok(id) => Some(id),
        Err(error) => {
            assert!(matches!(error, Error::Shape { .. } | Error::InvalidArg { .. }), "{error}");
            None
        }
    }
}

/// Any node so far, or a new leaf, shaped like the first source or with extents of two of them.
fn source(graph: &mut Graph, bytes: &mut Bytes, before: &[Option<NodeId>], optional: bool) -> Option<NodeId> {
    if optional && !bytes.one_in(3) {
        return None;
    }
    let shape = |graph: &Graph, k: usize| before.get(k).copied().flatten().map(|id| graph.node(id).ne);
    let like = match bytes.u8() % 8 {
        0..=2 => {
            let n = graph.nodes().len();
            return (n > 0).then(|| NodeId((n - 1 - usize::from(bytes.u8()) % n) as u32));
        }
        3 | 4 => shape(graph, 0),
        // A row, or one element for each row.
        5 => shape(graph, 0).map(|ne| [ne[usize::from(bytes.u8()) % 4], 1, 1, 1]),
        6 => shape(graph, before.len().saturating_sub(1)),
        _ => None,
    };
    leaf(graph, bytes, like)
}

fn number(bytes: &mut Bytes) -> f64 {
    match bytes.u8() % 16 {
        0 => f64::from_bits(bytes.u64()),
        1 => bytes.pick(&NUMBERS),
        2..=5 => f64::from(bytes.u8()) / 64.0,
        _ => NUMBERS[usize::from(bytes.u8()) % 8],
    }
}

fn params(def: &OpDef, bytes: &mut Bytes) -> Params {
    let mut params = Params::default();
    for p in def.params {
        if p.default != Kind::Required && bytes.one_in(2) {
            continue;
        }
        let value = match p.default {
            Kind::Required | Kind::Num(_) => Param::Num(number(bytes)),
            Kind::Bool(_) => Param::Bool(bytes.one_in(2)),
            Kind::Str(_) => Param::Str(bytes.pick(&STRINGS).to_owned()),
            Kind::Nums(_) if bytes.one_in(2) => {
                // An order of the axes is what most lists are.
                let shift = usize::from(bytes.u8());
                Param::Nums((0..4).map(|i| ((i + shift) % 4) as f64).collect())
            }
            Kind::Nums(_) => Param::Nums((0..bytes.u8() % 6).map(|_| number(bytes)).collect()),
        };
        params = params.set(p.name, value);
    }
    if bytes.one_in(64) {
        params = params.num("no such parameter", 1.0);
    }
    params
}

fn result(def: &OpDef, graph: &Graph, src: &[Option<NodeId>], bytes: &mut Bytes) -> ResultSpec {
    let mut result = ResultSpec::default();
    let first = src.first().copied().flatten().and_then(|id| graph.nodes().get(id.index()));
    let wanted = matches!(def.name, "VIEW" | "RESHAPE") || bytes.one_in(8);
    if !wanted {
        return result;
    }
    result.ne = match (first, bytes.u8() % 4) {
        (Some(node), 0) => Some(node.ne.to_vec()),
        (Some(node), 1) => Some(vec![node.nelements()]),
        (Some(node), 2) => Some(node.ne.iter().map(|n| (n / 2).max(1)).collect()),
        _ => Some((0..=bytes.u8() % 5).map(|_| bytes.pick(&EXTENTS)).collect()),
    };
    if bytes.one_in(16)
        && let Some(ne) = &mut result.ne
    {
        ne[0] = bytes.pick(&HOSTILE_EXTENTS);
    }
    result.nb = match (first, bytes.u8() % 4) {
        (Some(node), 0 | 1) => Some(node.nb.to_vec()),
        (Some(node), 2) => {
            let axis = usize::from(bytes.u8()) % 4;
            let mut nb = node.nb;
            nb[axis] = if bytes.one_in(4) { bytes.u64() } else { u64::from(bytes.u8()) * 4 };
            Some(nb.to_vec())
        }
        _ => None,
    };
    if bytes.one_in(2) {
        result.ty = Some(bytes.pick(&TYPES));
    }
    result
}

/// Plans each node by itself; whether all of them are supported.
fn plan_nodes(graph: &Graph, backend: &Backend, trail: &mut Trail) -> bool {
    let mut supported = true;
    for i in 0..graph.nodes().len() {
        let id = NodeId(i as u32);
        let calls = plan::calls(graph, id, backend.caps());
        assert_eq!(calls.is_ok(), backend.supports_op(graph, id), "{}", graph.node(id).op.name);
        assert_eq!(calls.is_ok(), backend.explain_op(graph, id).is_none(), "{}", graph.node(id).op.name);
        let _ = backend.offload_op(graph, id);
        match calls {
            Ok(calls) => calls.iter().for_each(|call| trail.add(call.as_bytes())),
            Err(reason) => {
                supported = false;
                trail.add_rule(&reason);
            }
        }
    }
    supported
}

fn prepare_and_run(graph: Graph, supported: bool, bytes: &mut Bytes, trail: &mut Trail) -> bool {
    let names: Vec<&str> = graph.nodes().iter().filter(|n| n.leaf.is_none()).map(|n| n.op.name).collect();
    let names = names.join(" ");
    let options = PrepareOptions { capture: Some(bytes.one_in(2)), ..PrepareOptions::default() };
    let plan = match wait(|done| backend().prepare(graph, options, done)) {
        Ok(plan) => plan,
        Err(error) => {
            let refused =
                matches!(error, Error::UnsupportedOp { .. } | Error::Unsupported { .. } | Error::InvalidArg { .. });
            assert!(refused, "{names}: prepare: {error}");
            // Outputs have a rule of their own: blocks must come in whole rows.
            let of_a_node = matches!(&error, Error::UnsupportedOp { op, .. } if !op.starts_with("output"));
            assert!(!(supported && of_a_node), "{names}: supported, but {error}");
            trail.add_rule(&error);
            return false;
        }
    };
    let inputs: Vec<(String, Vec<u8>)> = plan
        .inputs()
        .into_iter()
        .map(|name| {
            let (ty, _, size) = plan.input_info(&name).expect("an input that the plan named");
            let data = values(ty, size as usize, bytes);
            (name, data)
        })
        .collect();
    let first = run(&plan, &inputs, &names, trail);
    if let Some(first) = &first {
        let second = run(&plan, &inputs, &names, trail);
        assert!(second.as_ref() == Some(first), "{names}: a second run gives other bytes");
    }
    plan.dispose();
    first.is_some()
}

/// The bytes of every output, or `None` where the inputs were refused.
fn run(plan: &Plan, inputs: &[(String, Vec<u8>)], names: &str, trail: &mut Trail) -> Option<Vec<Vec<u8>>> {
    let mut builder = plan.start().expect("a plan that was not disposed");
    for (name, data) in inputs {
        if let Err(error) = builder.input(name, data) {
            assert!(matches!(error, Error::InvalidArg { .. }), "{names}: {name}: {error}");
            trail.add_rule(&error);
            return None;
        }
    }
    let result = match wait(|done| builder.submit(done)) {
        Ok(result) => result,
        // Scales that are not finite have no place in the device's layout.
        Err(Error::InvalidArg { .. }) => return None,
        // Indices that the graph computes are nobody's to check before the device sees them.
        Err(Error::Acl { detail, .. }) if detail.contains("is outside a dim") => return None,
        Err(error) => panic!("{names}: run: {error}"),
    };
    let outputs = plan.outputs().into_iter().map(|name| {
        let (_, _, size) = plan.output_info(&name).expect("an output that the plan named");
        let data = result.output(&name).expect("an output that was asked for");
        assert_eq!(data.len() as u64, size, "{names}: {name}");
        data.to_vec()
    });
    Some(outputs.collect())
}

/// An input's bytes: small numbers, indices that mostly exist, or anything.
fn values(ty: GgmlType, size: usize, bytes: &mut Bytes) -> Vec<u8> {
    let how = bytes.u8() % 8;
    let mut random = Random::new(u64::from(bytes.u8()));
    let below = usize::from(bytes.u8() % 4) + 1;
    let each = |n: usize, mut value: Box<dyn FnMut() -> Vec<u8> + '_>| (0..size / n).flat_map(|_| value()).collect();
    match (ty, how) {
        (_, 7) => random.bytes(size),
        (GgmlType::F32, _) => {
            each(4, Box::new(move || ((random.below(65) as f32 - 32.0) / 16.0).to_le_bytes().to_vec()))
        }
        (GgmlType::I32, _) => each(4, Box::new(move || (random.below(below) as i32).to_le_bytes().to_vec())),
        (GgmlType::I64, _) => each(8, Box::new(move || (random.below(below) as i64).to_le_bytes().to_vec())),
        // Plain halves from 2^-15 to 2; of blocks, finite scales wherever they are.
        _ => random.bytes(size).into_iter().map(|b| b & 0xbf).collect(),
    }
}
