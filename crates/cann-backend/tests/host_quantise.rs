//! Rows of types that the host quantises between launches: the blocks, the report, and runs that overlap.

mod common;

use cann_backend::Backend;
use cann_backend::graph::{Graph, NodeId, Params, ResultSpec};
use cann_backend::plan::{Plan, PrepareOptions};
use common::{later, open, tensor, wait};
use gguf::GgmlType;

const TYPES: [GgmlType; 7] =
    [GgmlType::Q2K, GgmlType::Q3K, GgmlType::Q4K, GgmlType::Q5K, GgmlType::Q6K, GgmlType::Iq4Nl, GgmlType::Iq4Xs];

fn values(n: usize, seed: u32) -> Vec<f32> {
    (0..n as u32).map(|i| ((i ^ seed << 20).wrapping_mul(2_654_435_761) >> 8) as f32 / 8_388_608.0 - 1.0).collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn quantized(ty: GgmlType, values: &[f32]) -> Vec<u8> {
    let mut blocks = vec![0; ty.row_bytes(values.len() as u64).unwrap() as usize];
    gguf::quantize(ty, values, &mut blocks).unwrap();
    blocks
}

fn op(graph: &mut Graph, name: &str, src: &[NodeId], ne: Option<(&[i64], &[u64])>) -> NodeId {
    let src: Vec<_> = src.iter().map(|s| Some(*s)).collect();
    let result = match ne {
        Some((ne, nb)) => ResultSpec { ne: Some(ne.to_vec()), nb: Some(nb.to_vec()), ty: None },
        None => ResultSpec::default(),
    };
    graph.op(name, &src, Params::default(), result).unwrap()
}

fn prepare(backend: &Backend, graph: Graph) -> Plan {
    wait(|done| backend.prepare(graph, PrepareOptions { capture: Some(true), ..Default::default() }, done)).unwrap()
}

#[test]
fn a_copy_gives_the_blocks_of_the_reference_and_is_reported() {
    let backend = open(0);
    for ty in TYPES {
        let mut graph = Graph::default();
        let x = graph.input("x", GgmlType::F32, &[768, 5]).unwrap();
        let cpy = graph
            .op("CPY", &[Some(x), None], Params::default(), ResultSpec { ty: Some(ty), ..ResultSpec::default() })
            .unwrap();
        graph.output("out", cpy).unwrap();
        let plan = prepare(&backend, graph);
        let row = &plan.report()[0];
        assert_eq!(row.calls, ["host quantize"]);
        assert!(row.note.as_ref().is_some_and(|n| n.contains(ty.name()) && n.contains("host")), "{:?}", row.note);
        // Runs that are not waited for share the plan's staging memory one after another.
        let answers: Vec<_> = (0..6)
            .map(|seed| {
                let mut run = plan.start().unwrap();
                run.input("x", &bytes(&values(768 * 5, seed))).unwrap();
                later(|done| run.submit(done))
            })
            .collect();
        for (seed, answer) in answers.into_iter().enumerate() {
            let result = answer.get().unwrap();
            assert!(result.output("out").unwrap() == quantized(ty, &values(768 * 5, seed as u32)), "{ty} {seed}");
        }
    }
}

#[test]
fn rows_go_where_indices_say_and_the_rest_stays() {
    let backend = open(0);
    for ty in TYPES {
        let cache = tensor(&backend, ty, &[256, 8]);
        let mut graph = Graph::default();
        let into = graph.tensor(cache.clone()).unwrap();
        let rows = graph.input("rows", GgmlType::F32, &[256, 3]).unwrap();
        let ids = graph.input("ids", GgmlType::I64, &[3]).unwrap();
        op(&mut graph, "SET_ROWS", &[rows, ids, into], None);
        let plan = prepare(&backend, graph);
        assert!(plan.report()[0].calls.contains(&"host quantize".to_owned()));
        let mut expected = quantized(ty, &values(256 * 8, 99));
        wait(|done| cache.write(expected.clone(), 0, done)).unwrap();
        let new = values(256 * 3, 1);
        let mut run = plan.start().unwrap();
        run.input("rows", &bytes(&new)).unwrap();
        run.input("ids", &[6i64, 0, 3].map(i64::to_le_bytes).concat()).unwrap();
        wait(|done| run.submit(done)).unwrap();
        let row = expected.len() / 8;
        for (from, to) in [6, 0, 3].into_iter().enumerate() {
            expected[to * row..(to + 1) * row].copy_from_slice(&quantized(ty, &new[from * 256..(from + 1) * 256]));
        }
        assert!(wait(|done| cache.read(0, expected.len() as u64, done)).unwrap() == expected, "{ty}");
    }
}

#[test]
fn a_destination_with_gaps_gets_whole_rows() {
    let backend = open(0);
    let ty = GgmlType::Q6K;
    let row = ty.row_bytes(256).unwrap();
    let whole = tensor(&backend, ty, &[256, 6]);
    wait(|done| whole.fill(0, done)).unwrap();
    let mut graph = Graph::default();
    let into = graph.tensor(whole.clone()).unwrap();
    let every_other = op(&mut graph, "VIEW", &[into], Some((&[256, 3], &[210, 2 * row])));
    let x = graph.input("x", GgmlType::F32, &[256, 3]).unwrap();
    // Two steps of the host in one plan.
    let doubled = op(&mut graph, "ADD", &[x, x], None);
    let cpy = op(&mut graph, "CPY", &[doubled, every_other], None);
    let packed = graph
        .op("CPY", &[Some(x), None], Params::default(), ResultSpec { ty: Some(ty), ..ResultSpec::default() })
        .unwrap();
    graph.output("gaps", cpy).unwrap();
    graph.output("packed", packed).unwrap();
    let plan = prepare(&backend, graph);
    let x = values(256 * 3, 5);
    let twice: Vec<f32> = x.iter().map(|x| x + x).collect();
    let mut run = plan.start().unwrap();
    run.input("x", &bytes(&x)).unwrap();
    let result = wait(|done| run.submit(done)).unwrap();
    assert!(result.output("gaps").unwrap() == quantized(ty, &twice));
    assert!(result.output("packed").unwrap() == quantized(ty, &x));
    let all = wait(|done| whole.read(0, 6 * row, done)).unwrap();
    for (i, blocks) in all.chunks(row as usize).enumerate() {
        let expected = if i % 2 == 0 { quantized(ty, &twice[i / 2 * 256..][..256]) } else { vec![0; row as usize] };
        assert!(blocks == expected, "row {i}");
    }
}
