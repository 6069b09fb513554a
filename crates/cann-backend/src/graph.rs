//! Graphs as users build them: nodes with a shape, a type and sources, no data and no device.
//!
//! Shapes are inferred by the op table as each node is added, so a wrong graph fails where it is written. A graph only grows;
//! `prepare()` takes a snapshot.

use std::collections::{BTreeMap, HashMap};

use gguf::GgmlType;

use crate::error::Error;
use crate::ops::{self, OpDef};
use crate::tensor::Tensor;

/// A node of one graph, by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl NodeId {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A parameter of an operator.
#[derive(Clone, Debug, PartialEq)]
pub enum Param {
    Num(f64),
    Bool(bool),
    Str(String),
    Nums(Vec<f64>),
}

/// Parameters by ggml's names. Read through the typed getters; the op table supplies defaults and rejects unknown names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Params(pub BTreeMap<String, Param>);

impl Params {
    pub fn set(mut self, name: &str, value: Param) -> Self {
        self.0.insert(name.to_owned(), value);
        self
    }

    pub fn num(mut self, name: &str, value: f64) -> Self {
        self.0.insert(name.to_owned(), Param::Num(value));
        self
    }

    pub fn f64(&self, name: &str) -> f64 {
        match self.0.get(name) {
            Some(Param::Num(v)) => *v,
            Some(Param::Bool(b)) => f64::from(u8::from(*b)),
            _ => 0.0,
        }
    }

    pub fn f32(&self, name: &str) -> f32 {
        self.f64(name) as f32
    }

    pub fn i64(&self, name: &str) -> i64 {
        self.f64(name) as i64
    }

    pub fn bool(&self, name: &str) -> bool {
        self.f64(name) != 0.0
    }

    pub fn str(&self, name: &str) -> Option<&str> {
        match self.0.get(name) {
            Some(Param::Str(s)) => Some(s),
            _ => None,
        }
    }

    pub fn nums(&self, name: &str) -> &[f64] {
        match self.0.get(name) {
            Some(Param::Nums(v)) => v,
            _ => &[],
        }
    }
}

/// Where a leaf's data comes from.
#[derive(Clone, Debug)]
pub enum Leaf {
    /// Given with each run.
    Input,
    /// A tensor that lives on a device.
    Tensor(Tensor),
}

/// One node: a leaf or an operator.
#[derive(Clone, Debug)]
pub struct Node {
    pub name: String,
    pub op: &'static OpDef,
    pub params: Params,
    pub src: Vec<Option<NodeId>>,
    pub ty: GgmlType,
    pub ne: [i64; 4],
    /// Byte strides in ggml's layout of the memory, quantised types included.
    pub nb: [u64; 4],
    /// The node that owns the memory (itself unless this is a view), and the byte offset in it, in ggml's layout.
    pub root: NodeId,
    pub offset: u64,
    pub leaf: Option<Leaf>,
}

impl Node {
    pub fn nelements(&self) -> i64 {
        self.ne.iter().product()
    }

    pub fn is_empty(&self) -> bool {
        self.ne.contains(&0)
    }

    /// Rows packed one after another without gaps.
    pub fn is_contiguous(&self) -> bool {
        contiguous_nb(self.ty, self.ne)
            .is_some_and(|nb| (0..4).all(|d| self.ne[d] == 1 || self.nb[d] == nb[d]) || self.is_empty())
    }

    /// Bytes from the first to past the last element in ggml's layout.
    pub fn span_bytes(&self) -> u64 {
        if self.is_empty() {
            return 0;
        }
        let block = self.ty.block_len() as u64;
        let row = self.ne[0] as u64 / block * self.nb[0];
        let tail = if (self.ne[0] as u64).is_multiple_of(block) { 0 } else { self.nb[0] };
        row + tail - self.nb[0]
            + self.ty.block_bytes() as u64
            + (1..4).map(|d| (self.ne[d] as u64 - 1) * self.nb[d]).sum::<u64>()
    }
}

/// Strides of a packed tensor; `None` when a row does not fill blocks or a size overflows.
pub fn contiguous_nb(ty: GgmlType, ne: [i64; 4]) -> Option<[u64; 4]> {
    let extent = |d: usize| u64::try_from(ne[d]).ok();
    let nb0 = ty.block_bytes() as u64;
    let nb1 = ty.row_bytes(extent(0)?)?;
    let nb2 = nb1.checked_mul(extent(1)?)?;
    let nb3 = nb2.checked_mul(extent(2)?)?;
    nb3.checked_mul(extent(3)?)?;
    Some([nb0, nb1, nb2, nb3])
}

/// What a user may say about the result of an operator: `VIEW` and `RESHAPE` need it, casts may use it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResultSpec {
    pub ty: Option<GgmlType>,
    pub ne: Option<Vec<i64>>,
    pub nb: Option<Vec<u64>>,
}

/// A graph under construction, or its snapshot.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    nodes: Vec<Node>,
    outputs: Vec<(String, NodeId)>,
    inputs: HashMap<String, NodeId>,
}

impl Graph {
    pub fn new() -> Graph {
        Graph::default()
    }

    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// Name and node of each output, in the order they were declared.
    pub fn outputs(&self) -> &[(String, NodeId)] {
        &self.outputs
    }

    pub fn input_named(&self, name: &str) -> Option<NodeId> {
        self.inputs.get(name).copied()
    }

    /// A leaf that is given with each run.
    pub fn input(&mut self, name: &str, ty: GgmlType, ne: &[i64]) -> Result<NodeId, Error> {
        let ne = checked_ne(ne)?;
        let nb = contiguous_nb(ty, ne).ok_or_else(|| Error::Shape {
            op: "INPUT".into(),
            reason: format!(
                "input '{name}': rows of {} elements do not fill blocks of {} ({})",
                ne[0],
                ty.block_len(),
                ty.name()
            ),
        })?;
        if name.is_empty() || self.inputs.contains_key(name) {
            return Err(Error::invalid(
                "name",
                format!("an input name that is not empty and not in use yet, not '{name}'"),
            ));
        }
        let id =
            self.push(name.to_owned(), ops::leaf(), Params::default(), vec![], ty, ne, nb, None, Some(Leaf::Input));
        self.inputs.insert(name.to_owned(), id);
        Ok(id)
    }

    /// A device tensor as a leaf.
    pub fn tensor(&mut self, tensor: Tensor) -> Result<NodeId, Error> {
        if tensor.is_disposed() {
            return Err(Error::Disposed { what: "the tensor" });
        }
        let (name, ty, ne, nb) = (tensor.name().to_owned(), tensor.ty(), tensor.ne(), tensor.nb());
        Ok(self.push(name, ops::leaf(), Params::default(), vec![], ty, ne, nb, None, Some(Leaf::Tensor(tensor))))
    }

    /// Any operator by name. Shape and type are inferred; a wrong arity, shape or type is an error that says which.
    pub fn op(
        &mut self,
        name: &str,
        src: &[Option<NodeId>],
        params: Params,
        result: ResultSpec,
    ) -> Result<NodeId, Error> {
        let def = ops::find(name).ok_or_else(|| ops::unknown(name))?;
        if let Some(bad) = src.iter().flatten().find(|id| id.index() >= self.nodes.len()) {
            return Err(Error::invalid("src", format!("nodes of this graph, not node {}", bad.0)));
        }
        let params = ops::with_defaults(def, params)?;
        let sources: Vec<Option<&Node>> = src.iter().map(|s| s.map(|id| self.node(id))).collect();
        ops::check_arity(def, &sources)?;
        let inferred = (def.infer)(&ops::InferCx { def, src: &sources, params: &params, result: &result })?;
        let view = inferred.view.map(|(index, offset)| {
            let id = src[index].expect("infer names a source that is present");
            let source = self.node(id);
            (source.root, source.offset + offset)
        });
        let label = format!("node_{}", self.nodes.len());
        Ok(self.push(label, def, params, src.to_vec(), inferred.ty, inferred.ne, inferred.nb, view, None))
    }

    /// Marks a node as a result that runs can read, under `name`.
    pub fn output(&mut self, name: &str, id: NodeId) -> Result<(), Error> {
        if id.index() >= self.nodes.len() {
            return Err(Error::invalid("t", format!("a node of this graph, not node {}", id.0)));
        }
        if name.is_empty() || self.outputs.iter().any(|(n, _)| n == name) {
            return Err(Error::invalid(
                "name",
                format!("an output name that is not empty and not in use yet, not '{name}'"),
            ));
        }
        self.outputs.push((name.to_owned(), id));
        Ok(())
    }

    /// Appends a node that another graph inferred. Its sources are nodes of this graph, and so is `root`; without one it owns its
    /// memory.
    pub(crate) fn adopt(&mut self, node: Node, root: Option<NodeId>) -> NodeId {
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(Node { root: root.unwrap_or(id), ..node });
        id
    }

    /// Puts another tensor of the same shape in a leaf's place.
    pub(crate) fn replace_tensor(&mut self, id: NodeId, tensor: Tensor) {
        self.nodes[id.index()].leaf = Some(Leaf::Tensor(tensor));
    }

    /// Graphviz text: leaves as boxes, operators with type and shape, views dashed.
    pub fn to_dot(&self) -> String {
        use std::fmt::Write;
        let mut dot = String::from("digraph G {\n  node [fontname=\"monospace\"];\n");
        for (i, n) in self.nodes.iter().enumerate() {
            let shape = if n.leaf.is_some() { "box" } else { "ellipse" };
            let style = if n.root.index() != i { ", style=dashed" } else { "" };
            let name = n.name.replace('\\', "\\\\").replace('"', "\\\"");
            // Writing to a String cannot fail.
            let _ = writeln!(
                dot,
                "  n{i} [shape={shape}{style}, label=\"{}\\n{name}\\n{} {:?}\"];",
                n.op.name,
                n.ty.name(),
                n.ne
            );
            for (k, s) in n.src.iter().enumerate() {
                if let Some(s) = s {
                    let _ = writeln!(dot, "  n{} -> n{i} [label=\"{k}\"];", s.0);
                }
            }
        }
        for (name, id) in &self.outputs {
            let name = name.replace('\\', "\\\\").replace('"', "\\\"");
            let _ = writeln!(dot, "  \"out:{name}\" [shape=box, style=bold];\n  n{} -> \"out:{name}\";", id.0);
        }
        dot.push_str("}\n");
        dot
    }

    #[allow(clippy::too_many_arguments)]
    fn push(
        &mut self,
        name: String,
        op: &'static OpDef,
        params: Params,
        src: Vec<Option<NodeId>>,
        ty: GgmlType,
        ne: [i64; 4],
        nb: [u64; 4],
        view: Option<(NodeId, u64)>,
        leaf: Option<Leaf>,
    ) -> NodeId {
        let id = NodeId(self.nodes.len() as u32);
        let (root, offset) = view.unwrap_or((id, 0));
        self.nodes.push(Node { name, op, params, src, ty, ne, nb, root, offset, leaf });
        id
    }
}

/// One to four extents, each at least 0, whose product fits.
pub fn checked_ne(ne: &[i64]) -> Result<[i64; 4], Error> {
    let wrong = || Error::invalid("ne", format!("1 to 4 extents of at least 0 whose product fits in 2^53, not {ne:?}"));
    if ne.is_empty() || ne.len() > 4 || ne.iter().any(|n| *n < 0) {
        return Err(wrong());
    }
    let mut full = [1; 4];
    full[..ne.len()].copy_from_slice(ne);
    let product = full.iter().try_fold(1i64, |p, n| p.checked_mul((*n).max(1))).ok_or_else(wrong)?;
    if product > 1 << 53 {
        return Err(wrong());
    }
    Ok(full)
}
