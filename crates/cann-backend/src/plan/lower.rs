//! From a graph to steps and named memory: selection, fusion, lowering, lifetimes.

use std::ops::Range;

use acl_sys::AclOp;
use gguf::GgmlType;

use super::select;
use crate::caps::DeviceCaps;
use crate::error::{Error, Result};
use crate::graph::{Graph, Leaf, Node, NodeId};
use crate::lower::{Arg, Lower, Lowering, Mem, Step, TensorArg, Unsupported};
use crate::ops::{self, NodeCx, Operand};
use crate::repack::Layout;

/// How a graph input is laid out on the device: quantised types that operators read get their layout, others keep blocks.
pub(super) fn input_layout(ty: GgmlType) -> Layout {
    match ty {
        GgmlType::Q8_0 => Layout::Q8_0,
        GgmlType::Q4_0 => Layout::Q4_0,
        _ if ty.is_quantized() => Layout::Blocks,
        _ => Layout::Plain,
    }
}

/// How the memory a node owns is laid out.
pub(super) fn layout(node: &Node) -> Layout {
    match &node.leaf {
        Some(Leaf::Tensor(tensor)) => tensor.layout(),
        _ => input_layout(node.ty),
    }
}

/// A node as an operand.
pub(super) fn operand(graph: &Graph, id: NodeId) -> Operand {
    let node = graph.node(id);
    let root = graph.node(node.root);
    Operand {
        mem: Mem::Node(node.root),
        offset: node.offset,
        ty: node.ty,
        ne: node.ne,
        nb: node.nb,
        layout: layout(root),
        root_elements: root.nelements().unsigned_abs(),
        // A leaf that the graph writes into is no longer what the host could dequantise.
        leaf: root.leaf.is_some() && !graph.nodes().iter().any(|n| n.root == node.root && select::computes(n)),
    }
}

/// Runs a node's plan function.
fn lower_node(graph: &Graph, id: NodeId, lower: &mut Lower) -> Result<(), Unsupported> {
    let node = graph.node(id);
    let src: Vec<Option<Operand>> = node.src.iter().map(|s| s.map(|s| operand(graph, s))).collect();
    ops::plan(&NodeCx { node, src: &src, dst: operand(graph, id) }, lower)
}

/// The steps of one node by itself, without their arguments, or the rule that refuses it.
pub(super) fn single(graph: &Graph, id: NodeId, caps: &DeviceCaps) -> Result<Vec<Step>, String> {
    if !select::computes(graph.node(id)) || graph.node(id).is_empty() {
        return Ok(Vec::new());
    }
    let mut out = Lowering { notes: vec![None], names_only: true, ..Lowering::default() };
    lower_node(graph, id, &mut Lower { caps, out: &mut out, position: 0 }).map_err(|u| u.0)?;
    Ok(out.steps)
}

/// A graph lowered for one device: what runs, by which steps, and how long each memory is needed.
pub(super) struct Lowered {
    pub nodes: Vec<NodeId>,
    pub lowering: Lowering,
    /// First and last position at which each root of the graph is touched; `None` for memory that is not touched.
    pub lives: Vec<Option<Range<usize>>>,
    /// Leaves whose dequantised twin is named.
    pub dequantized: Vec<NodeId>,
    /// For each output that is not packed plain memory: the operand that holds it packed.
    pub packed: Vec<Operand>,
}

/// Lowers every node that runs, then a packing copy for each output whose memory has gaps.
pub(super) fn lower(graph: &Graph, caps: &DeviceCaps, device: &str, fuse: bool) -> Result<Lowered> {
    let (nodes, _) = select::selected(graph);
    let mut out = Lowering::default();
    let end = nodes.len();
    let fused = if fuse { fusions(graph, &nodes, caps) } else { vec![Fused::No; nodes.len()] };
    for (position, id) in nodes.iter().enumerate() {
        let node = graph.node(*id);
        let start = out.steps.len();
        out.notes.push(None);
        let mut lower = Lower { caps, out: &mut out, position };
        let result = match fused[position] {
            Fused::Into(other) => {
                lower.note(format!("folded into {other}"));
                Ok(())
            }
            Fused::Sum { norm, mul } => {
                let also = mul.map_or(String::new(), |mul| format!(" and {}", graph.node(mul).name));
                lower.note(format!("computes {}{also} too", graph.node(norm).name));
                lower_sum(graph, *id, norm, mul, &mut lower)
            }
            Fused::With(norm) if !node.is_empty() => {
                lower.note(format!("computes {} too", graph.node(norm).name));
                lower_fused(graph, norm, *id, &mut lower)
            }
            _ if node.is_empty() => Ok(()),
            _ => lower_node(graph, *id, &mut lower),
        };
        result.map_err(|Unsupported(reason)| Error::UnsupportedOp {
            op: format!("{} ({})", node.op.name, node.name),
            device: device.to_owned(),
            reason,
        })?;
        out.node_steps.push(start..out.steps.len());
    }
    let mut packed = Vec::with_capacity(graph.outputs().len());
    let start = out.steps.len();
    out.notes.push(None);
    for (name, id) in graph.outputs() {
        let source = operand(graph, *id);
        let mut lower = Lower { caps, out: &mut out, position: end };
        packed.push(pack_output(graph, *id, source, &mut lower).map_err(|Unsupported(reason)| {
            Error::UnsupportedOp { op: format!("output '{name}'"), device: device.to_owned(), reason }
        })?);
    }
    out.node_steps.push(start..out.steps.len());
    let (lives, dequantized) = lifetimes(graph, &nodes, &fused, &out, &packed);
    Ok(Lowered { nodes, lowering: out, lives, dequantized, packed })
}

/// An output that can be copied out as it lies, or a packed copy of it.
fn pack_output(graph: &Graph, id: NodeId, source: Operand, lower: &mut Lower) -> Result<Operand, Unsupported> {
    if graph.node(id).is_contiguous() {
        return Ok(source);
    }
    ops::packed_copy(&source, lower)
}

/// RMS_NORM and the MUL that reads it, as one call.
fn lower_fused(graph: &Graph, norm: NodeId, mul: NodeId, lower: &mut Lower) -> Result<(), Unsupported> {
    let (Some(x), Some(weight)) = (graph.node(norm).src[0], graph.node(mul).src[1]) else {
        return Err(Unsupported("a fused pair without its sources".into()));
    };
    ops::rms_norm_mul(graph.node(norm), &operand(graph, x), &operand(graph, weight), &operand(graph, mul), lower)
}

/// ADD, the RMS_NORM of its result, and perhaps the MUL of that, as one call.
fn lower_sum(
    graph: &Graph,
    add: NodeId,
    norm: NodeId,
    mul: Option<NodeId>,
    lower: &mut Lower,
) -> Result<(), Unsupported> {
    let (node, last) = (graph.node(add), mul.unwrap_or(norm));
    let [Some(a), Some(b)] = node.src[..] else {
        return Err(Unsupported("a fused sum without its sources".into()));
    };
    let weight = mul.and_then(|mul| graph.node(mul).src[1]).map(|weight| operand(graph, weight));
    let [a, b, sum, out] = [a, b, add, last].map(|id| operand(graph, id));
    ops::add_rms_norm(graph.node(norm), [&a, &b], weight.as_ref(), [&sum, &out], lower)
}

/// What becomes of a node in fusion.
#[derive(Clone, Copy, PartialEq)]
enum Fused {
    No,
    /// Its work is done by another node: what that is to this one.
    Into(&'static str),
    /// It does the work of this RMS_NORM as well.
    With(NodeId),
    /// A sum that does the work of its RMS_NORM, and of a MUL of that, as well.
    Sum {
        norm: NodeId,
        mul: Option<NodeId>,
    },
}

/// Nodes that become one call: RMS_NORM with the MUL by a row of weights that is its only reader, then ADD with either.
fn fusions(graph: &Graph, nodes: &[NodeId], caps: &DeviceCaps) -> Vec<Fused> {
    let mut readers = vec![0u32; graph.nodes().len()];
    let mut read = |id: NodeId| readers[id.index()] += 1;
    for id in nodes {
        graph.node(*id).src.iter().flatten().for_each(|s| read(*s));
    }
    graph.outputs().iter().for_each(|(_, id)| read(*id));
    // A view of a node reads it too, whoever reads the view.
    for (i, n) in graph.nodes().iter().enumerate() {
        if n.root.index() != i && n.leaf.is_none() {
            n.src.iter().flatten().for_each(|s| read(*s));
        }
    }
    let mut fused = vec![Fused::No; nodes.len()];
    for position in 1..nodes.len() {
        let mul = graph.node(nodes[position]);
        let [Some(x), Some(weight)] = mul.src[..] else { continue };
        let Some(norm_at) = nodes[..position].iter().rposition(|n| *n == x) else { continue };
        let (norm, gamma) = (graph.node(x), graph.node(weight));
        let row = gamma.ty == GgmlType::F32
            && gamma.ne == [norm.ne[0], 1, 1, 1]
            && gamma.is_contiguous()
            // The weight must not be computed or written between the two.
            && matches!(graph.node(gamma.root).leaf, Some(Leaf::Tensor(_) | Leaf::Input));
        let plain = mul.op.name == "MUL"
            && norm.op.name == "RMS_NORM"
            && norm.ty == GgmlType::F32
            && mul.ty == GgmlType::F32
            && readers[x.index()] == 1
            && norm.src[0].is_some_and(|s| unwritten(graph, &nodes[norm_at..position], graph.node(s).root));
        if row && plain && fused[norm_at] == Fused::No {
            fused[norm_at] = Fused::Into("the multiplication after it");
            fused[position] = Fused::With(x);
        }
    }
    if caps.api.has_op(AclOp::aclnnAddRmsNorm) {
        for position in 0..nodes.len() {
            fuse_sum(graph, nodes, position, &mut fused);
        }
    }
    fused
}

/// The sum at `position` with the first RMS_NORM of it. Everything happens where the sum was: nothing may write it before it was
/// normalised, nor the weight before it was used.
fn fuse_sum(graph: &Graph, nodes: &[NodeId], position: usize, fused: &mut [Fused]) {
    const BY: Fused = Fused::Into("the sum before it");
    let (id, add) = (nodes[position], graph.node(nodes[position]));
    let alike = |n: &Node| n.ty == GgmlType::F32 && n.ne == add.ne && n.is_contiguous();
    let sources = add.src.iter().flatten().all(|s| alike(graph.node(*s)));
    if add.op.name != "ADD" || !alike(add) || !sources || add.is_empty() || fused[position] != Fused::No {
        return;
    }
    let normalises = |n: &NodeId| graph.node(*n).op.name == "RMS_NORM" && graph.node(*n).src[0] == Some(id);
    let Some(norm_at) = nodes[position..].iter().position(normalises).map(|at| position + at) else { return };
    let norm = nodes[norm_at];
    let mul_at = fused.iter().position(|f| *f == Fused::With(norm));
    let weight = mul_at.and_then(|at| graph.node(nodes[at]).src[1]);
    let untouched = unwritten(graph, &nodes[position + 1..norm_at], add.root)
        && weight.is_none_or(|w| unwritten(graph, &nodes[position..mul_at.unwrap_or(norm_at)], graph.node(w).root));
    if untouched {
        fused[norm_at] = BY;
        if let Some(at) = mul_at {
            fused[at] = BY;
        }
        fused[position] = Fused::Sum { norm, mul: mul_at.map(|at| nodes[at]) };
    }
}

/// Whether none of these nodes writes into the memory of `root`.
fn unwritten(graph: &Graph, nodes: &[NodeId], root: NodeId) -> bool {
    nodes.iter().all(|n| graph.node(*n).root != root)
}

fn lifetimes(
    graph: &Graph,
    nodes: &[NodeId],
    fused: &[Fused],
    lowering: &Lowering,
    packed: &[Operand],
) -> (Vec<Option<Range<usize>>>, Vec<NodeId>) {
    let mut lives: Vec<Option<Range<usize>>> = vec![None; graph.nodes().len()];
    let mut dequantized = Vec::new();
    let mut touch = |mem: Mem, position: usize| match mem {
        Mem::Node(root) => {
            // Inputs are written before the first step.
            let first = if matches!(graph.node(root).leaf, Some(Leaf::Input)) { 0 } else { position };
            let life = lives[root.index()].get_or_insert(first..position);
            life.end = life.end.max(position);
        }
        Mem::Dequant(root) if !dequantized.contains(&root) => dequantized.push(root),
        _ => {}
    };
    for (position, id) in nodes.iter().enumerate() {
        let node = graph.node(*id);
        if !matches!(fused[position], Fused::Into(_)) {
            touch(Mem::Node(node.root), position);
        }
        for step in &lowering.steps[lowering.node_steps[position].clone()] {
            mems(step, &mut |mem| touch(mem, position));
        }
    }
    for step in &lowering.steps[lowering.node_steps[nodes.len()].clone()] {
        mems(step, &mut |mem| touch(mem, nodes.len()));
    }
    packed.iter().for_each(|o| touch(o.mem, nodes.len()));
    (lives, dequantized)
}

/// Calls `f` with every memory a step names.
pub(super) fn mems(step: &Step, f: &mut dyn FnMut(Mem)) {
    let mut tensor = |t: &TensorArg| f(t.mem);
    match step {
        Step::Call { args, .. } => args.iter().for_each(|a| match a {
            Arg::Tensor(t) => tensor(t),
            Arg::Tensors(list) => list.iter().for_each(&mut tensor),
            _ => {}
        }),
        Step::Copy { dst, src } | Step::Quantize { dst, src, .. } => {
            f(dst.mem);
            f(src.mem);
        }
        Step::Fill { dst, .. } => f(dst.mem),
    }
}
