//! A graph over two backends: which node goes where, in which order, and the parts that come of it.
//!
//! The primary gets every node that it takes; the fallback gets the rest, and what would only go to the primary and back. Nodes
//! are then ordered so that there are as few changes of side as dependencies allow: the nodes between two changes are a part, a
//! graph of its own. Memory that a part needs and an earlier one wrote is carried to it whole, as an input in ggml's layout;
//! views are repeated where they are used. A device tensor of the other side is mirrored. Nothing here touches a device.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::{lower, select};
use crate::caps::DeviceCaps;
use crate::error::{Error, Result};
use crate::graph::{Graph, Leaf, Node, NodeId};
use crate::ops;
use crate::tensor::Tensor;

/// Index of one of the two backends.
pub(super) type Side = usize;
pub(super) const PRIMARY: Side = 0;
pub(super) const FALLBACK: Side = 1;

/// What there is to know of a backend.
pub(super) struct Place<'a> {
    pub id: u64,
    pub name: &'a str,
    pub caps: &'a DeviceCaps,
}

/// Memory that an earlier part gives: an output there and an input here, under one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Carried {
    pub name: String,
    pub from: usize,
}

/// Nodes of one backend as a graph of their own.
#[derive(Debug)]
pub(super) struct Part {
    pub side: Side,
    pub graph: Graph,
    pub carried: Vec<Carried>,
    /// Outputs that later parts take.
    pub gives: Vec<String>,
    /// Leaves over tensors of the other side, to be replaced by their mirrors.
    pub mirrored: Vec<(NodeId, Tensor)>,
    /// For each node that runs: what was copied for it.
    pub notes: Vec<Option<String>>,
}

/// The parts in the order they run, and for each output of the graph the part that has it.
#[derive(Debug)]
pub(super) struct Parts {
    pub parts: Vec<Part>,
    pub outputs: Vec<usize>,
}

/// `None` when the primary can do everything by itself.
pub(super) fn split(graph: &Graph, places: &[Place; 2]) -> Result<Option<Parts>> {
    let (nodes, _) = select::selected(graph);
    let classes = classes(graph)?;
    let before = before(graph, &nodes, &classes);
    let sides = sides(graph, &nodes, &before, places)?;
    if sides.iter().all(|s| *s == PRIMARY) && tensors(graph).all(|(_, t)| t.backend_id() == places[PRIMARY].id) {
        return Ok(None);
    }
    let order = schedule(&before, &sides);
    let mut writers: HashMap<usize, BTreeSet<usize>> = HashMap::new();
    for (part, (_, positions)) in order.iter().enumerate() {
        for at in positions {
            writers.entry(classes[nodes[*at].index()]).or_default().insert(part);
        }
    }
    let mut cutter = Cutter {
        graph,
        places,
        classes,
        writers,
        cuts: order.iter().map(|(side, _)| Cut::new(*side)).collect(),
        wanted: vec![BTreeSet::new(); order.len()],
    };
    for (part, (_, positions)) in order.iter().enumerate() {
        for at in positions {
            cutter.node(part, nodes[*at])?;
        }
    }
    let outputs = graph.outputs().iter().map(|(name, id)| cutter.output(name, *id)).collect::<Result<Vec<_>>>()?;
    Ok(Some(Parts { parts: cutter.finish()?, outputs }))
}

fn tensors(graph: &Graph) -> impl Iterator<Item = (usize, &Tensor)> {
    graph.nodes().iter().enumerate().filter_map(|(i, n)| match &n.leaf {
        Some(Leaf::Tensor(tensor)) => Some((i, tensor)),
        _ => None,
    })
}

/// For each node the memory it lies in: a root of the graph; device tensors that share memory count as one.
fn classes(graph: &Graph) -> Result<Vec<usize>> {
    let mut own: Vec<usize> = (0..graph.nodes().len()).collect();
    let mut first = HashMap::new();
    for (i, tensor) in tensors(graph) {
        own[i] = *first.entry(Arc::as_ptr(&tensor.memory()?)).or_insert(i);
    }
    Ok(graph.nodes().iter().map(|n| own[n.root.index()]).collect())
}

/// For each position, earlier positions it must come after: it reads what they write, or writes what they read or write.
fn before(graph: &Graph, nodes: &[NodeId], classes: &[usize]) -> Vec<Vec<usize>> {
    let mut writer: HashMap<usize, usize> = HashMap::new();
    let mut readers: HashMap<usize, Vec<usize>> = HashMap::new();
    let mut before = vec![Vec::new(); nodes.len()];
    for (at, id) in nodes.iter().enumerate() {
        for source in graph.node(*id).src.iter().flatten() {
            let class = classes[source.index()];
            before[at].extend(writer.get(&class));
            readers.entry(class).or_default().push(at);
        }
        let class = classes[id.index()];
        before[at].extend(writer.insert(class, at));
        before[at].extend(readers.remove(&class).into_iter().flatten().filter(|r| *r != at));
    }
    before
}

/// Which backend gets each node.
fn sides(graph: &Graph, nodes: &[NodeId], before: &[Vec<usize>], places: &[Place; 2]) -> Result<Vec<Side>> {
    let owner = |id: NodeId| match &graph.node(id).leaf {
        Some(Leaf::Tensor(tensor)) => places.iter().position(|p| p.id == tensor.backend_id()),
        _ => None,
    };
    if let Some((_, tensor)) = tensors(graph).find(|(i, _)| owner(NodeId(*i as u32)).is_none()) {
        return Err(Error::invalid(
            format!("tensor '{}'", tensor.name()),
            format!("a tensor of {} or {}, where the graph is prepared", places[PRIMARY].name, places[FALLBACK].name),
        ));
    }
    let refusal = |id: NodeId, side: Side| lower::single(graph, id, places[side].caps).err();
    let refused = |id: NodeId, device: String, reason: String| {
        let node = graph.node(id);
        Error::UnsupportedOp { op: format!("{} ({})", node.op.name, node.name), device, reason }
    };
    // Nodes that may go to either side.
    let mut free = vec![false; nodes.len()];
    let mut sides = vec![PRIMARY; nodes.len()];
    for (at, id) in nodes.iter().enumerate() {
        if let Some(side) = owner(graph.node(*id).root) {
            // What writes into a tensor runs where the tensor is.
            if let Some(reason) = refusal(*id, side) {
                let reason = format!("{reason} (it writes into a tensor there, so it cannot run elsewhere)");
                return Err(refused(*id, places[side].name.to_owned(), reason));
            }
            sides[at] = side;
        } else if let Some(first) = refusal(*id, PRIMARY) {
            if let Some(second) = refusal(*id, FALLBACK) {
                let [a, b] = [places[PRIMARY].name, places[FALLBACK].name];
                return Err(refused(*id, format!("{a} and {b}"), format!("{a}: {first}; {b}: {second}")));
            }
            sides[at] = FALLBACK;
        } else {
            let reads_primary = |s: &NodeId| owner(graph.node(*s).root) == Some(PRIMARY);
            free[at] = !graph.node(*id).src.iter().flatten().any(reads_primary);
        }
    }
    // What would only be carried to the primary and back stays on the fallback, unless the primary has tensors for it.
    let mut after = vec![Vec::new(); nodes.len()];
    for (at, list) in before.iter().enumerate() {
        list.iter().for_each(|b| after[*b].push(at));
    }
    let surrounded = |sides: &[Side], list: &[usize]| !list.is_empty() && list.iter().all(|n| sides[*n] == FALLBACK);
    loop {
        let moved = (0..nodes.len()).find(|at| {
            sides[*at] == PRIMARY
                && free[*at]
                && surrounded(&sides, &before[*at])
                && surrounded(&sides, &after[*at])
                && refusal(nodes[*at], FALLBACK).is_none()
        });
        match moved {
            Some(at) => sides[at] = FALLBACK,
            None => return Ok(sides),
        }
    }
}

/// Positions by part: as many nodes as can run on one side, then as many as can on the other, and so on, from the side that makes
/// fewer parts.
fn schedule(before: &[Vec<usize>], sides: &[Side]) -> Vec<(Side, Vec<usize>)> {
    let from = |first: Side| {
        let (mut parts, mut placed, mut side) = (Vec::new(), vec![false; sides.len()], first);
        let mut left = sides.len();
        while left > 0 {
            let mut part = Vec::new();
            for at in 0..sides.len() {
                if !placed[at] && sides[at] == side && before[at].iter().all(|b| placed[*b]) {
                    placed[at] = true;
                    part.push(at);
                }
            }
            left -= part.len();
            if !part.is_empty() {
                parts.push((side, part));
            }
            side = 1 - side;
        }
        parts
    };
    let (a, b) = (from(PRIMARY), from(FALLBACK));
    let best = if b.len() < a.len() { b } else { a };
    // Outputs that nothing computes still need a part.
    if best.is_empty() { vec![(PRIMARY, Vec::new())] } else { best }
}

/// A part being made.
struct Cut {
    part: Part,
    /// Nodes of the whole graph and what stands for them here.
    map: HashMap<NodeId, NodeId>,
    /// Copies that the node being added is the first to need.
    note: Vec<String>,
    /// Nodes of this part that write, by what they write to.
    writes: HashMap<usize, Vec<NodeId>>,
}

impl Cut {
    fn new(side: Side) -> Cut {
        let part = Part {
            side,
            graph: Graph::new(),
            carried: Vec::new(),
            gives: Vec::new(),
            mirrored: Vec::new(),
            notes: Vec::new(),
        };
        Cut { part, map: HashMap::new(), note: Vec::new(), writes: HashMap::new() }
    }
}

struct Cutter<'a> {
    graph: &'a Graph,
    places: &'a [Place<'a>; 2],
    classes: Vec<usize>,
    /// Parts that write, by what they write to.
    writers: HashMap<usize, BTreeSet<usize>>,
    cuts: Vec<Cut>,
    /// For each part, roots that later parts need from it.
    wanted: Vec<BTreeSet<NodeId>>,
}

impl Cutter<'_> {
    /// Adds a node that runs in this part.
    fn node(&mut self, part: usize, id: NodeId) -> Result<()> {
        let node = self.graph.node(id);
        let src = self.sources(part, node)?;
        let root = if node.root == id { None } else { Some(self.import(part, node.root)?) };
        let cut = &mut self.cuts[part];
        let new = cut.part.graph.adopt(Node { src, ..node.clone() }, root);
        cut.map.insert(id, new);
        cut.writes.entry(self.classes[id.index()]).or_default().push(new);
        let note = std::mem::take(&mut cut.note);
        cut.part.notes.push((!note.is_empty()).then(|| note.join("; ")));
        Ok(())
    }

    fn sources(&mut self, part: usize, node: &Node) -> Result<Vec<Option<NodeId>>> {
        node.src.iter().map(|s| s.map(|s| self.import(part, s)).transpose()).collect()
    }

    /// What stands for a node in a part where it does not run.
    fn import(&mut self, part: usize, id: NodeId) -> Result<NodeId> {
        if let Some(new) = self.cuts[part].map.get(&id) {
            return Ok(*new);
        }
        let node = self.graph.node(id);
        let new = if node.root == id {
            self.memory(part, id)?
        } else {
            let root = self.import(part, node.root)?;
            if select::computes(node) {
                // It ran elsewhere, in place: here it is a look at the memory.
                self.cuts[part].part.graph.adopt(look(node, vec![Some(root)]), Some(root))
            } else {
                let src = self.sources(part, node)?;
                self.cuts[part].part.graph.adopt(Node { src, ..node.clone() }, Some(root))
            }
        };
        self.cuts[part].map.insert(id, new);
        Ok(new)
    }

    /// Memory that no node of this part has made so far.
    fn memory(&mut self, part: usize, id: NodeId) -> Result<NodeId> {
        let node = self.graph.node(id);
        let side = self.cuts[part].part.side;
        if let Some(Leaf::Tensor(tensor)) = &node.leaf
            && tensor.backend_id() == self.places[side].id
        {
            return self.cuts[part].part.graph.tensor(tensor.clone());
        }
        let written = self.writers.get(&self.classes[id.index()]);
        if let Some(from) = written.and_then(|parts| parts.range(..part).next_back().copied()) {
            if !node.is_contiguous() {
                return Err(Error::Internal(format!("the memory of {} has gaps", node.name)));
            }
            let name = self.name(id);
            let device = self.places[self.cuts[from].part.side].name;
            self.wanted[from].insert(id);
            let cut = &mut self.cuts[part];
            cut.note.push(format!("{} copied from {device}", node.name));
            cut.part.carried.push(Carried { name: name.clone(), from });
            return cut.part.graph.input(&name, node.ty, &node.ne);
        }
        let cut = &mut self.cuts[part];
        match &node.leaf {
            Some(Leaf::Input) => cut.part.graph.input(&node.name, node.ty, &node.ne),
            Some(Leaf::Tensor(tensor)) => {
                let new = cut.part.graph.tensor(tensor.clone())?;
                cut.note.push(format!("{} copied from {}, again when it changes", node.name, tensor.device()));
                cut.part.mirrored.push((new, tensor.clone()));
                Ok(new)
            }
            None => Err(Error::Internal(format!("{} is used before it is computed", node.name))),
        }
    }

    /// The name under which memory goes from part to part: no input or output of the graph has it.
    fn name(&self, id: NodeId) -> String {
        let mut name = format!("{} (node {})", self.graph.node(id).name, id.0);
        let taken = |name: &str| {
            self.graph.input_named(name).is_some() || self.graph.outputs().iter().any(|(output, _)| output == name)
        };
        while taken(&name) {
            name.push('\'');
        }
        name
    }

    /// Declares an output of the graph where its memory is written last. Answers which part that is.
    fn output(&mut self, name: &str, id: NodeId) -> Result<usize> {
        let root = self.graph.node(id).root;
        let written = self.writers.get(&self.classes[root.index()]).and_then(|parts| parts.last().copied());
        let owned = || match &self.graph.node(root).leaf {
            Some(Leaf::Tensor(t)) => self.cuts.iter().position(|c| self.places[c.part.side].id == t.backend_id()),
            _ => None,
        };
        let part = written.or_else(owned).unwrap_or(0);
        let new = self.import(part, id)?;
        self.cuts[part].part.graph.output(name, new)?;
        Ok(part)
    }

    /// Declares what parts give to later ones.
    fn finish(mut self) -> Result<Vec<Part>> {
        for part in 0..self.cuts.len() {
            for id in std::mem::take(&mut self.wanted[part]) {
                let root = self.import(part, id)?;
                let name = self.name(id);
                let cut = &mut self.cuts[part];
                let mut src = cut.writes.get(&self.classes[id.index()]).cloned().unwrap_or_default();
                let given = if src == [root] {
                    root
                } else {
                    // All of the memory, after everything here that writes into it.
                    src.push(root);
                    let src = src.into_iter().map(Some).collect();
                    cut.part.graph.adopt(look(self.graph.node(id), src), Some(root))
                };
                cut.part.graph.output(&name, given)?;
                cut.part.gives.push(name);
            }
        }
        Ok(self.cuts.into_iter().map(|cut| cut.part).collect())
    }
}

/// A view with the shape of a node.
fn look(node: &Node, src: Vec<Option<NodeId>>) -> Node {
    let op = ops::find("VIEW").expect("VIEW is in the op table");
    Node { op, src, leaf: None, params: Default::default(), ..node.clone() }
}
