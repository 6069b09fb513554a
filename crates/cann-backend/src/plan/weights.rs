//! Which device tensors of a plan the chip may keep in its private format, chosen by use: by the calls that name them.

use std::collections::{HashMap, HashSet};

use acl_sys::*;

use super::lower::{self, Lowered};
use crate::acl::program::{Program, Region};
use crate::error::Result;
use crate::graph::{Graph, Leaf, NodeId};
use crate::lower::{Arg, Lowering, Mem, Step};
use crate::private;
use crate::queue::Worker;
use crate::tensor::Tensor;

/// A leaf of the graph that is a device tensor.
type Weight = (NodeId, Tensor);

/// What it takes to encode a plan again when a weight got its rows back.
pub(super) struct Encoding {
    steps: Lowering,
    regions: HashMap<Mem, Region>,
    /// What errors call each node.
    names: Vec<String>,
    /// Read in the private format.
    weights: Vec<Weight>,
    /// Where inputs and outputs lie.
    held: Vec<Region>,
}

/// A call `out = x w` with all of this matrix as `w`, turned round, and nothing else of it.
fn is_product(step: &Step, id: NodeId, tensor: &Tensor) -> bool {
    let Step::Call { op: AclOp::aclnnMm, args } = step else { return false };
    let [Arg::Tensor(x), Arg::Tensor(w), Arg::Tensor(out), _] = &args[..] else { return false };
    let (ne, nb) = (tensor.ne(), tensor.nb());
    let whole = w.offset == 0 && w.ne == [ne[1], ne[0]] && w.nb == [nb[1] as i64, nb[0] as i64];
    let own = Mem::Node(id);
    whole && w.mem == own && x.mem != own && out.mem != own
}

/// Transforms the weights that only products read, when that is wanted, and gives all others their rows back.
pub(super) fn choose(worker: &mut Worker, graph: &Graph, lowered: &Lowered, wanted: bool) -> Result<Vec<Weight>> {
    let leaf = |mem: Mem| match mem {
        Mem::Node(id) => match &graph.node(id).leaf {
            Some(Leaf::Tensor(tensor)) => Some((id, tensor)),
            _ => None,
        },
        _ => None,
    };
    // By tensor, because a graph may name one more than once.
    let (mut used, mut otherwise) = (Vec::<Weight>::new(), HashSet::new());
    let mut note = |mem: Mem, product: &dyn Fn(NodeId, &Tensor) -> bool| {
        if let Some((id, tensor)) = leaf(mem) {
            if !used.iter().any(|(known, _)| *known == id) {
                used.push((id, tensor.clone()));
            }
            if !product(id, tensor) {
                otherwise.insert(tensor.id());
            }
        }
    };
    for (position, range) in lowered.lowering.node_steps.iter().enumerate() {
        // Who insists on f32 is not given a product that rounds.
        let node = lowered.nodes.get(position).map(|id| graph.node(*id));
        let exact = node.is_some_and(|n| n.op.name == "MUL_MAT" && n.params.str("prec") == Some("f32"));
        for step in &lowered.lowering.steps[range.clone()] {
            lower::mems(step, &mut |mem| note(mem, &|id, tensor| !exact && is_product(step, id, tensor)));
        }
    }
    lowered.packed.iter().for_each(|output| note(output.mem, &|_, _| false));
    let mut weights = Vec::new();
    for (id, tensor) in used {
        let fit = wanted && !otherwise.contains(&tensor.id());
        match private::extents(&tensor).filter(|_| fit) {
            Some(extents) if tensor.form().is_private() || packed(worker, &tensor, extents)? => {
                weights.push((id, tensor));
            }
            // Also where the device refused: this plan reads rows, and a later one shall not try again.
            _ => private::unpack(worker, &tensor, &tensor.memory()?)?,
        }
    }
    Ok(weights)
}

/// Whether a tensor is in the private format now. What goes wrong leaves its rows, unless the device is lost.
fn packed(worker: &mut Worker, tensor: &Tensor, extents: [u64; 2]) -> Result<bool> {
    match private::pack(worker, tensor, &tensor.memory()?, extents) {
        Err(error) if !error.is_sticky() => {
            tracing::info!(%error, tensor = tensor.name(), "a weight stays as it is");
            Ok(false)
        }
        result => result,
    }
}

impl Encoding {
    pub fn new(
        lowered: &Lowered,
        weights: Vec<Weight>,
        names: Vec<String>,
        resolve: &dyn Fn(Mem) -> Option<Region>,
    ) -> Encoding {
        let lowering = &lowered.lowering;
        let steps =
            Lowering { steps: lowering.steps.clone(), node_steps: lowering.node_steps.clone(), ..Lowering::default() };
        let mut regions = HashMap::new();
        for step in &steps.steps {
            lower::mems(step, &mut |mem| {
                if let Some(region) = resolve(mem) {
                    regions.entry(mem).or_insert(region);
                }
            });
        }
        Encoding { steps, regions, names, weights, held: Vec::new() }
    }

    /// Keeps more memory than the steps name.
    pub fn hold(&mut self, region: &Region) {
        self.held.push(region.clone());
    }

    /// Whether the node at a position has its weight in the private format.
    pub fn reads_private(&self, position: usize) -> bool {
        let steps = &self.steps.steps[self.steps.node_steps[position].clone()];
        steps.iter().any(|step| self.weights.iter().any(|(id, tensor)| is_product(step, *id, tensor)))
    }

    /// The program, with its workspace.
    pub fn encode(&self, worker: &mut Worker) -> Result<Program> {
        self.encode_for(worker, &self.weights)
    }

    fn encode_for(&self, worker: &mut Worker, weights: &[Weight]) -> Result<Program> {
        let mut steps = self.steps.clone();
        for step in &mut steps.steps {
            if weights.iter().any(|(id, tensor)| is_product(step, *id, tensor))
                && let Step::Call { args, .. } = step
                && let [Arg::Tensor(x), Arg::Tensor(w), _, cube] = &mut args[..]
            {
                w.format = ACL_FORMAT_FRACTAL_NZ;
                // What a chip would do about two types in one product it can't do to a weight in this format.
                if x.dtype == ACL_FLOAT {
                    *cube = Arg::I8(USE_FP16);
                }
            }
        }
        let name = |position: usize| self.names.get(position).map_or("output", |name| name).to_owned();
        let mut program = Program::encode(&worker.api, &steps, &|mem| self.regions.get(&mem).cloned(), &name)?;
        super::equip(worker, &mut program)?;
        Ok(program)
    }

    /// A new program, when a weight got its rows back since the last; the plan's own is of no use then.
    pub fn follow(&mut self, worker: &mut Worker) -> Result<Option<Program>> {
        if self.weights.iter().all(|(_, tensor)| tensor.form().is_private()) {
            return Ok(None);
        }
        let left: Vec<Weight> = self.weights.iter().filter(|(_, t)| t.form().is_private()).cloned().collect();
        let program = self.encode_for(worker, &left)?;
        self.weights = left;
        Ok(Some(program))
    }
}
