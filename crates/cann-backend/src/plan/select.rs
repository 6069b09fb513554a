//! Which nodes of a graph run: those an output depends on, and those that write into a device tensor.

use crate::graph::{Graph, Leaf, Node, NodeId};

/// Whether a node computes something (views and leaves only name memory).
pub(super) fn computes(node: &Node) -> bool {
    node.leaf.is_none() && !matches!(node.op.name, "NONE" | "RESHAPE" | "VIEW" | "PERMUTE" | "TRANSPOSE")
}

/// Whether a node's result lies in the memory of a device tensor that was given to the graph.
fn writes_tensor(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    computes(node) && matches!(graph.node(node.root).leaf, Some(Leaf::Tensor(_)))
}

/// The nodes that run, in the order they were created, and for every node of the graph whether it is used at all.
pub(super) fn selected(graph: &Graph) -> (Vec<NodeId>, Vec<bool>) {
    let all = || (0..graph.nodes().len() as u32).map(NodeId);
    let mut used = vec![false; graph.nodes().len()];
    let mut stack: Vec<NodeId> = graph.outputs().iter().map(|(_, id)| *id).collect();
    stack.extend(all().filter(|id| writes_tensor(graph, *id)));
    while let Some(id) = stack.pop() {
        if !std::mem::replace(&mut used[id.index()], true) {
            let node = graph.node(id);
            stack.extend(node.src.iter().flatten());
            stack.push(node.root);
        }
    }
    (all().filter(|id| used[id.index()] && computes(graph.node(*id))).collect(), used)
}
