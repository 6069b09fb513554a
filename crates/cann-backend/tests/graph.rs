//! Graphs and lowering as data: inference against the shapes ggml gave, the calls of common nodes, refusals. Nothing runs.
//!
//! The golden cases are read from the folder in `CANN_NODE_GOLDEN`; without it that test says so and passes.

mod cases;
#[path = "common/driver.rs"]
mod driver;

use std::sync::Arc;

use acl_sys::AclOp;
use cann_backend::caps::DeviceCaps;
use cann_backend::error::Error;
use cann_backend::graph::{Graph, Node, NodeId, Param, Params, ResultSpec};
use cann_backend::lower::{Arg, Lower, Lowering, Mem, Step, TensorArg, Unsupported};
use cann_backend::ops::{self, NodeCx, Operand};
use cann_backend::repack::Layout;
use gguf::GgmlType;
use serde_json::Value;

// ---------------------------------------------------------------- the golden cases

/// What a user has to say about a result: the rest is inferred.
fn given(op: &str, record: &Value) -> ResultSpec {
    let ne = || Some(cases::ints(&record["ne"]));
    match op {
        "VIEW" => {
            let nb = cases::ints(&record["nb"]).iter().map(|n| *n as u64).collect();
            ResultSpec { ne: ne(), nb: Some(nb), ty: None }
        }
        // ggml takes the type of the columns as an argument.
        "IM2COL" => ResultSpec { ty: GgmlType::from_name(record["type"].as_str().unwrap()), ..ResultSpec::default() },
        "RESHAPE" | "CONT" | "REPEAT" | "UPSCALE" | "FILL" => ResultSpec { ne: ne(), ..ResultSpec::default() },
        _ => ResultSpec::default(),
    }
}

#[test]
fn golden_shapes() {
    let Ok(folder) = std::env::var("CANN_NODE_GOLDEN") else {
        println!("skipped: CANN_NODE_GOLDEN names no folder with cases.jsonl");
        return;
    };
    let list = cases::load(std::path::Path::new(&folder));
    assert!(!list.is_empty());
    let mut wrong = vec![];
    for case in &list {
        let name = case["name"].as_str().unwrap();
        match cases::build_with(case, given) {
            Err(e) => wrong.push(format!("{name}: {e}")),
            Ok(graph) => {
                let records = ["leaves", "nodes"].iter().flat_map(|part| case[part].as_array().unwrap());
                for (node, record) in graph.nodes().iter().zip(records) {
                    // ggml's in-place forms keep the strides of their source; here results are new and packed.
                    let nb: Vec<i64> = node.nb.iter().map(|n| *n as i64).collect();
                    let strides = nb == cases::ints(&record["nb"]) || node.root.index() == 0;
                    let in_place = record["view_src"].is_number() && node.is_contiguous();
                    let same = Some(node.ty.name()) == record["type"].as_str()
                        && node.ne.to_vec() == cases::ints(&record["ne"]);
                    if !same || !(strides || in_place) {
                        wrong.push(format!(
                            "{name}: {} is {} {:?} {nb:?}, not {record}",
                            node.op.name, node.ty, node.ne
                        ));
                    }
                }
            }
        }
    }
    println!("{} cases, {} wrong", list.len(), wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.iter().take(20).cloned().collect::<Vec<_>>().join("\n"));
}

// ---------------------------------------------------------------- lowering as data

fn caps(soc: &str) -> DeviceCaps {
    DeviceCaps::new(Arc::new(driver::api(Default::default())), soc)
}

fn layout(ty: GgmlType) -> Layout {
    match ty {
        GgmlType::Q8_0 => Layout::Q8_0,
        GgmlType::Q4_0 => Layout::Q4_0,
        GgmlType::Q4_1 => Layout::Int4Affine,
        _ if ty.is_quantized() => Layout::Blocks,
        _ => Layout::Plain,
    }
}

fn operand(graph: &Graph, id: NodeId) -> Operand {
    let node = graph.node(id);
    let root = graph.node(node.root);
    Operand {
        mem: Mem::Node(node.root),
        offset: node.offset,
        ty: node.ty,
        ne: node.ne,
        nb: node.nb,
        layout: layout(root.ty),
        root_elements: root.nelements() as u64,
        leaf: root.leaf.is_some(),
    }
}

/// The steps of every operator of a graph, in one lowering.
fn lower(graph: &Graph, caps: &DeviceCaps) -> Result<(Lowering, Vec<Vec<Step>>), Unsupported> {
    let mut out = Lowering::default();
    let mut steps = vec![];
    let computed = |n: &&Node| n.leaf.is_none() && !["VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"].contains(&n.op.name);
    for (position, node) in graph.nodes().iter().filter(computed).enumerate() {
        let id = (0..graph.nodes().len() as u32).map(NodeId).find(|id| std::ptr::eq(graph.node(*id), node)).unwrap();
        let src: Vec<Option<Operand>> = node.src.iter().map(|s| s.map(|s| operand(graph, s))).collect();
        let start = out.steps.len();
        out.notes.push(None);
        let cx = NodeCx { node, src: &src, dst: operand(graph, id) };
        ops::plan(&cx, &mut Lower { caps, out: &mut out, position })?;
        steps.push(out.steps[start..].to_vec());
    }
    Ok((out, steps))
}

fn names(steps: &[Step]) -> Vec<&'static str> {
    steps
        .iter()
        .map(|s| match s {
            Step::Call { op, .. } => op.name().trim_start_matches("aclnn"),
            Step::Copy { .. } => "copy",
            Step::Fill { .. } => "fill",
            Step::Quantize { .. } => "host quantize",
        })
        .collect()
}

/// The tensors of a call, in order.
fn tensors(step: &Step) -> Vec<TensorArg> {
    let Step::Call { args, .. } = step else { panic!("a call, not {step:?}") };
    args.iter().filter_map(|a| if let Arg::Tensor(t) = a { Some(t.clone()) } else { None }).collect()
}

/// A graph and shorthands to write it.
#[derive(Default)]
struct Builder(Graph);

impl Builder {
    fn leaf(&mut self, ty: GgmlType, ne: &[i64]) -> NodeId {
        let name = format!("leaf {}", self.0.nodes().len());
        self.0.input(&name, ty, ne).unwrap()
    }

    fn f32(&mut self, ne: &[i64]) -> NodeId {
        self.leaf(GgmlType::F32, ne)
    }

    fn op(&mut self, name: &str, src: &[NodeId]) -> NodeId {
        self.with(name, src, Params::default())
    }

    fn with(&mut self, name: &str, src: &[NodeId], params: Params) -> NodeId {
        let src: Vec<_> = src.iter().map(|s| Some(*s)).collect();
        self.0.op(name, &src, params, ResultSpec::default()).unwrap()
    }

    fn view(&mut self, x: NodeId, ne: &[i64], nb: &[u64], offset: u64) -> NodeId {
        let result = ResultSpec { ne: Some(ne.to_vec()), nb: Some(nb.to_vec()), ty: None };
        self.0.op("VIEW", &[Some(x)], Params::default().num("offset", offset as f64), result).unwrap()
    }

    fn permute(&mut self, x: NodeId, axes: [f64; 4]) -> NodeId {
        self.with("PERMUTE", &[x], Params::default().set("axes", Param::Nums(axes.to_vec())))
    }

    fn error(&mut self, name: &str, src: &[NodeId], params: Params) -> String {
        let src: Vec<_> = src.iter().map(|s| Some(*s)).collect();
        self.0.op(name, &src, params, ResultSpec::default()).unwrap_err().to_string()
    }

    fn last(&self, soc: &str) -> Vec<Step> {
        lower(&self.0, &caps(soc)).unwrap().1.pop().unwrap()
    }

    fn refusal(&self, soc: &str) -> String {
        lower(&self.0, &caps(soc)).unwrap_err().0
    }
}

#[test]
fn a_quantised_weight_is_one_call_on_f32() {
    let mut b = Builder::default();
    let (w, x) = (b.leaf(GgmlType::Q8_0, &[576, 1536]), b.f32(&[576, 3]));
    b.op("MUL_MAT", &[w, x]);
    let steps = b.last("Host");
    assert_eq!(names(&steps), ["WeightQuantBatchMatmulV2"]);
    let t = tensors(&steps[0]);
    assert_eq!((&t[1].ne[..], &t[1].nb[..], t[1].offset), (&[1536, 576][..], &[576, 1][..], 0));
    assert_eq!((&t[2].ne[..], &t[2].nb[..], t[2].offset), (&[1536, 18][..], &[36, 2][..], 576 * 1536));
    assert_eq!((&t[3].ne[..], t[3].mem), (&[1536, 3][..], Mem::Node(NodeId(2))));
}

#[test]
fn scales_of_a_slice_are_found_by_element() {
    let mut b = Builder::default();
    let (w, x) = (b.leaf(GgmlType::Q4_1, &[64, 8, 3]), b.f32(&[64, 1]));
    let slice = b.view(w, &[64, 8], &[20, 40], 2 * 8 * 40);
    b.op("MUL_MAT", &[slice, x]);
    let t = tensors(&b.last("Host")[0]);
    let (elements, first) = (64 * 8 * 3u64, 64 * 8 * 2u64);
    assert_eq!(t[1].offset, first / 2);
    assert_eq!(t[2].offset, elements / 2 + first / 32 * 2);
    assert_eq!(t[3].offset, elements / 2 + elements / 32 * 2 + first / 32 * 2);
}

#[test]
fn many_rows_are_split_where_a_chip_needs_it() {
    for (rows, parts) in [(65535, 1), (131070, 2), (151936, 3)] {
        let mut b = Builder::default();
        let (w, x) = (b.leaf(GgmlType::Q8_0, &[64, rows]), b.f32(&[64, 2]));
        b.op("MUL_MAT", &[w, x]);
        assert_eq!(b.last("Host").len(), 1);
        let steps = b.last("Ascend910B");
        let mut calls = vec!["Cast"];
        calls.extend(std::iter::repeat_n(["WeightQuantBatchMatmulV2", "Cast"], parts).flatten());
        assert_eq!(names(&steps), calls);
        let ends: Vec<(u64, i64)> =
            steps.iter().skip(2).step_by(2).map(|s| (tensors(s)[1].offset, tensors(s)[1].ne[0])).collect();
        let first = |i: usize| i as u64 * 65535;
        let expected: Vec<(u64, i64)> =
            (0..parts).map(|i| (first(i) * 4, (rows - first(i) as i64).min(65535))).collect();
        assert_eq!(ends, expected);
    }
}

#[test]
fn a_single_group_is_the_form_per_channel() {
    let mut b = Builder::default();
    let (w, x) = (b.leaf(GgmlType::Q4_0, &[32, 16]), b.f32(&[32, 2]));
    b.op("MUL_MAT", &[w, x]);
    let Step::Call { args, .. } = &b.last("Ascend910B")[1] else { panic!() };
    assert!(args.contains(&Arg::I32(0)));
}

#[test]
fn attention_products_copy_nothing() {
    let mut b = Builder::default();
    let cache = b.leaf(GgmlType::F16, &[64 * 3, 256]);
    let k = b.view(cache, &[64, 100, 3], &[2, 384, 128], 0);
    let q = b.f32(&[64, 9, 5]);
    let q = b.permute(q, [0.0, 2.0, 1.0, 3.0]);
    b.op("MUL_MAT", &[k, q]);
    let steps = b.last("Host");
    assert_eq!(names(&steps), ["Matmul"]);
    let t = tensors(&steps[0]);
    assert_eq!(
        (&t[0].ne[..], &t[1].ne[..], &t[2].ne[..]),
        (&[64, 5, 3, 3][..], &[100, 64, 1, 3][..], &[100, 5, 3, 3][..])
    );

    // One token: the heads of a group are rows of one product.
    let q = b.f32(&[64, 1, 9]);
    b.op("MUL_MAT", &[k, q]);
    let t = tensors(&b.last("Host")[0]);
    assert_eq!((&t[0].ne[..], &t[1].ne[..], &t[2].ne[..]), (&[64, 3, 3][..], &[100, 64, 3][..], &[100, 3, 3][..]));

    let values = b.leaf(GgmlType::F16, &[256, 64 * 3]);
    let v = b.view(values, &[100, 64, 3], &[2, 512, 512 * 64], 0);
    let p = b.f32(&[100, 5, 9]);
    b.op("MUL_MAT", &[v, p]);
    assert_eq!(names(&b.last("Host")), ["Matmul"]);

    let (w, x) = (b.f32(&[64, 32]), b.f32(&[64, 5, 2]));
    b.op("MUL_MAT", &[w, x]);
    let steps = b.last("Host");
    assert_eq!((names(&steps), tensors(&steps[0])[0].ne.clone()), (vec!["Mm"], vec![64, 10]));
    let Step::Call { args, .. } = &steps[0] else { panic!() };
    assert_eq!(args.last(), Some(&Arg::I8(acl_sys::KEEP_DTYPE)), "f32 stays f32");
}

#[test]
fn norms_share_their_ones_and_take_a_weight() {
    let mut b = Builder::default();
    let (x, w) = (b.f32(&[576, 4]), b.f32(&[576]));
    let first = b.op("RMS_NORM", &[x]);
    b.op("RMS_NORM", &[first]);
    let (lowering, steps) = lower(&b.0, &caps("Host")).unwrap();
    assert_eq!(steps.iter().map(|s| names(s)).collect::<Vec<_>>(), [["RmsNorm"], ["RmsNorm"]]);
    assert_eq!(lowering.constants.len(), 1);
    let t = tensors(&steps[0][0]);
    assert_eq!(t[3].ne, [1, 4, 1, 1], "one statistic a row");

    let product = b.op("MUL", &[first, w]);
    let caps = caps("Host");
    let mut out = Lowering::default();
    let [x, w, dst] = [x, w, product].map(|id| operand(&b.0, id));
    ops::rms_norm_mul(b.0.node(first), &x, &w, &dst, &mut Lower { caps: &caps, out: &mut out, position: 0 }).unwrap();
    assert_eq!(names(&out.steps), ["RmsNorm"]);
    let t = tensors(&out.steps[0]);
    assert_eq!((t[1].mem, t[2].mem), (w.mem, dst.mem));
}

#[test]
fn rotary_tables_are_made_once() {
    let mut b = Builder::default();
    let positions = b.leaf(GgmlType::I32, &[5]);
    let (q, k) = (b.f32(&[64, 9, 5]), b.f32(&[64, 3, 5]));
    let neox = Params::default().num("mode", 2.0).num("n_dims", 64.0).num("freq_base", 1e5);
    b.with("ROPE", &[q, positions], neox.clone());
    b.with("ROPE", &[k, positions], neox.clone());
    b.with("ROPE", &[k, positions], neox.num("freq_scale", 0.5));
    let (_, steps) = lower(&b.0, &caps("Host")).unwrap();
    assert_eq!(names(&steps[0]), ["Mul", "Cos", "Sin", "RotaryPositionEmbedding"]);
    assert_eq!(names(&steps[1]), ["RotaryPositionEmbedding"]);
    assert_eq!(steps[2].len(), 4, "other parameters, other tables");
    let Step::Call { args, .. } = &steps[1][0] else { panic!() };
    assert_eq!(args[3], Arg::I64(0), "neox pairs halves");
    let t = tensors(&steps[1][0]);
    assert_eq!((&t[1].ne[..], &t[3].ne[..]), (&[64, 1, 5, 1][..], &[64, 3, 5, 1][..]));

    let (_, steps) = lower(&b.0, &caps("Ascend310P3")).unwrap();
    assert_eq!(names(&steps[1]), ["Muls", "InplaceCopy", "Mul", "Mul", "Add"]);
    let written =
        |s: &Step| if names(std::slice::from_ref(s))[0].starts_with("Inplace") { 0 } else { tensors(s).len() - 1 };
    assert!(steps[1].iter().all(|s| tensors(s)[written(s)].mem != Mem::Node(k)), "the source is not written");
}

#[test]
fn common_nodes_are_few_calls() {
    let mut b = Builder::default();
    let (x, mask) = (b.f32(&[100, 5, 9]), b.leaf(GgmlType::F16, &[100, 32]));
    b.with("SOFT_MAX", &[x, mask], Params::default().num("scale", 0.125));
    assert_eq!(names(&b.last("Host")), ["Add", "Softmax"]);

    let (gate, up) = (b.f32(&[1536, 2]), b.f32(&[1536, 2]));
    b.op("SWIGLU", &[gate, up]);
    assert_eq!(names(&b.last("Host")), ["Silu", "Mul"]);
    let both = b.f32(&[3072, 2]);
    b.op("SWIGLU", &[both]);
    assert_eq!(names(&b.last("Host")), ["SwiGlu"]);

    let (cache, rows, ids) = (b.leaf(GgmlType::F16, &[192, 256]), b.f32(&[192, 5]), b.leaf(GgmlType::I64, &[5]));
    let written = b.op("SET_ROWS", &[rows, ids, cache]);
    assert_eq!(names(&b.last("Host")), ["Cast", "InplaceIndexCopy"]);
    assert_eq!(b.0.node(written).root, cache);

    let (q, k, v) = (b.f32(&[64, 1, 9]), b.leaf(GgmlType::F16, &[64, 256, 3]), b.leaf(GgmlType::F16, &[64, 256, 3]));
    let mask = b.leaf(GgmlType::F16, &[256, 1]);
    b.with("FLASH_ATTN_EXT", &[q, k, v, mask], Params::default().num("scale", 0.125));
    assert_eq!(names(&b.last("Host")), ["FusedInferAttentionScoreV2"]);
    assert!(!names(&b.last("Ascend310P3")).contains(&"FusedInferAttentionScoreV2"));

    let (table, ids) = (b.leaf(GgmlType::Q8_0, &[576, 49152]), b.leaf(GgmlType::I32, &[3]));
    b.op("GET_ROWS", &[table, ids]);
    let steps = b.last("Host");
    assert_eq!(names(&steps), ["GatherV2", "GatherV2", "Cast", "InplaceMul"]);
    assert_eq!(tensors(&steps[2])[0].ne, [32, 18, 3, 1, 1], "only the rows that were asked for are converted");
}

#[test]
fn in_place_forms_and_clamp() {
    let mut b = Builder::default();
    let (a, small) = (b.f32(&[8, 4]), b.f32(&[4, 2]));
    let corner = b.view(a, &[4, 2], &[4, 32], 64);
    let copied = b.op("CPY", &[small, corner]);
    assert_eq!((b.0.node(copied).root, b.0.node(copied).offset), (a, 64));
    assert_eq!(names(&b.last("Host")), ["InplaceCopy"]);
    let inside = b.with("ACC", &[a, small], Params::default().set("inplace", Param::Bool(true)).num("offset", 8.0));
    assert_eq!((b.0.node(inside).root, names(&b.last("Host"))), (a, vec!["InplaceAdd"]));
    let apart = b.with("SET", &[a, small], Params::default());
    assert_eq!((b.0.node(apart).root, names(&b.last("Host"))), (apart, vec!["copy", "InplaceCopy"]));
    let clamped = b.with("CLAMP", &[a], Params::default().num("min", -1.0));
    assert_eq!(b.0.node(clamped).root, clamped);
    let message = b.error("ACC", &[a, small], Params::default().num("offset", 100.0));
    assert!(message.contains("outside"), "{message}");
}

#[test]
fn what_a_device_refuses_and_why() {
    let mut b = Builder::default();
    let (w, x) = (b.leaf(GgmlType::Q8_0, &[64, 8]), b.f32(&[64, 2]));
    b.op("MUL_MAT", &[w, x]);
    assert!(b.refusal("Ascend310P3").contains("Ascend310P3"));

    let mut b = Builder::default();
    let x = b.leaf(GgmlType::Bf16, &[8]);
    b.op("ABS", &[x]);
    assert!(b.refusal("Ascend910A").contains("bf16"));
    assert_eq!(names(&b.last("Ascend910B")), ["Abs"]);

    let mut missing = driver::api(Default::default());
    missing.present[AclOp::aclnnAbs.phase_two() as usize] = false;
    let refused = lower(&b.0, &DeviceCaps::new(Arc::new(missing), "Host")).unwrap_err();
    assert!(refused.0.contains("aclnnAbs"));

    let mut b = Builder::default();
    let (x, into) = (b.f32(&[256, 2]), b.leaf(GgmlType::Iq2S, &[256, 2]));
    b.op("CPY", &[x, into]);
    assert!(b.refusal("Host").contains("iq2_s"));
}

#[test]
fn errors_name_operator_operands_and_rule() {
    let mut b = Builder::default();
    let (a, c) = (b.f32(&[4, 3]), b.f32(&[5, 3]));
    let message = b.error("MUL_MAT", &[a, c], Params::default());
    for part in ["MUL_MAT", "a f32 [4, 3, 1, 1]", "b f32 [5, 3, 1, 1]", "same length"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(b.error("MULMAT", &[a, c], Params::default()).contains("MUL_MAT"));
    assert!(b.error("ADD", &[a], Params::default()).contains("source 1 (b) is missing"));
    assert!(b.error("ABS", &[a, c], Params::default()).contains("at most 1"));
    assert!(b.error("SCALE", &[a], Params::default().num("scale", 1.0)).contains("only s, b"));
    let text = Params::default().set("s", Param::Str("2".into()));
    assert!(b.error("SCALE", &[a], text).contains("params.s"));
    assert!(b.error("GROUP_NORM", &[a], Params::default()).contains("params.n_groups"));
    let outside = ResultSpec { ne: Some(vec![4, 4]), ..ResultSpec::default() };
    assert!(matches!(b.0.op("VIEW", &[Some(a)], Params::default(), outside), Err(Error::Shape { .. })));
}

/// Each of these once ended in an overflow or in memory without end.
#[test]
fn hostile_numbers_are_planned_or_refused() {
    let caps = caps("Host");
    let plan = |name: &str, leaves: &[&[i64]], params: Params, ne: Option<Vec<i64>>, nb: Option<Vec<u64>>| {
        let mut graph = Graph::new();
        let src = leaves.iter().enumerate().map(|(i, ne)| graph.input(&format!("in{i}"), GgmlType::F32, ne).ok());
        let src: Vec<_> = src.collect();
        let node = graph.op(name, &src, params, ResultSpec { ne, nb, ty: None }).map_err(|e| e.to_string())?;
        let next =
            graph.op("SQR", &[Some(node)], Params::default(), ResultSpec::default()).map_err(|e| e.to_string())?;
        cann_backend::plan::calls(&graph, next, &caps).and_then(|_| cann_backend::plan::calls(&graph, node, &caps))
    };
    let none = Params::default;
    let groups = none().num("n_groups", 1e300);
    assert!(plan("GROUP_NORM", &[&[4, 4, 4]], groups, None, None).is_ok());
    for n_past in [1e300, -1e300] {
        assert!(plan("DIAG_MASK_INF", &[&[4, 3]], none().num("n_past", n_past), None, None).is_ok());
    }
    for b in [[1], [0]] {
        assert!(plan("SET", &[&[8], &b], none().num("offset", 1e300), None, None).is_err());
    }
    let around = none().set("circular", Param::Bool(true)).num("rp0", 4_294_967_296.0);
    assert!(plan("PAD", &[&[8]], around, None, None).unwrap_err().contains("list"));
    assert!(plan("RMS_NORM", &[&[1 << 50]], none(), None, None).unwrap_err().contains("list"));
    let twice = none().set("circular", Param::Bool(true)).num("lp0", 1e300).num("rp0", 1e300);
    assert!(plan("PAD", &[&[0]], twice, None, None).is_err());
    let cubic = none().set("mode", Param::Str("bicubic".into()));
    assert!(plan("UPSCALE", &[&[5000, 2]], cubic, Some(vec![5_000_000, 2]), None).unwrap_err().contains("weights"));
    let strides = Some(vec![4, 32, 66, u64::MAX / 2 + 1]);
    assert!(plan("VIEW", &[&[8, 2]], none(), Some(vec![8, 2, 1, 1]), strides).is_ok());
    let (long, state): (&[i64], &[i64]) = (&[1 << 40, 1, 1], &[1 << 40, 1]);
    assert!(plan("GATED_LINEAR_ATTN", &[long, long, long, long, state], none(), None, None).is_err());
    let (many, state): (&[i64], &[i64]) = (&[1, 1, 1 << 40], &[1, 1]);
    let refused = plan("GATED_LINEAR_ATTN", &[many, many, many, many, state], none(), None, None);
    assert!(refused.unwrap_err().contains("calls"));
}

#[test]
fn the_table_lists_each_operator_once() {
    let mut seen: Vec<&str> = ops::all().map(|def| def.name).collect();
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), count);
}
