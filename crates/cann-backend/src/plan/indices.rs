//! Indices that come from outside are checked before anything runs: a device does not, or calls it a fault.
//!
//! Only inputs given as bytes can be looked at. Indices that an operator computes (ARGSORT, TOP_K …) are in range by what they are;
//! copies of unchecked ones are not, and the device answers for those.

use gguf::GgmlType;

use crate::error::{Error, Result};
use crate::graph::{Graph, Leaf, Node, NodeId};

/// A part of an input whose values index something of `limit` entries.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bound {
    /// The operator that uses them, for the message.
    op: String,
    limit: i64,
    ne: [i64; 4],
    nb: [u64; 4],
    offset: u64,
}

/// Which source of a node holds indices, and into how many entries.
fn indexed(graph: &Graph, node: &Node) -> Option<(NodeId, i64)> {
    let source = |k: usize| node.src.get(k).copied().flatten();
    let extent = |k: usize, d: usize| source(k).map(|id| graph.node(id).ne[d]);
    match node.op.name {
        "GET_ROWS" => Some((source(1)?, extent(0, 1)?)),
        // The result is the destination's memory, with its shape.
        "SET_ROWS" => Some((source(1)?, node.ne[1])),
        "MUL_MAT_ID" => Some((source(2)?, extent(0, 2)?)),
        "ADD_ID" => Some((source(2)?, extent(1, 1)?)),
        _ => None,
    }
}

/// The bounds on the values of one graph input, over all nodes that run.
pub(super) fn bounds(graph: &Graph, nodes: &[NodeId], input: NodeId) -> Vec<Bound> {
    let mut list: Vec<Bound> = Vec::new();
    for node in nodes.iter().map(|id| graph.node(*id)) {
        let Some((ids, limit)) = indexed(graph, node) else { continue };
        let ids = graph.node(ids);
        if ids.root != input || !matches!(graph.node(input).leaf, Some(Leaf::Input)) {
            continue;
        }
        let bound = Bound {
            op: format!("{} ({})", node.op.name, node.name),
            limit,
            ne: ids.ne,
            nb: ids.nb,
            offset: ids.offset,
        };
        // Every layer of a model may use the same indices on tables of one size.
        let known = list.iter().any(|b| Bound { op: b.op.clone(), ..bound.clone() } == *b);
        if !known {
            list.push(bound);
        }
    }
    list
}

impl Bound {
    /// Fails on the first value that selects nothing.
    pub fn check(&self, input: &str, ty: GgmlType, bytes: &[u8]) -> Result<()> {
        let at = |i: [i64; 4]| {
            let start = self.offset + (0..4).map(|d| i[d].unsigned_abs() * self.nb[d]).sum::<u64>();
            &bytes[start as usize..]
        };
        for i3 in 0..self.ne[3] {
            for i2 in 0..self.ne[2] {
                for i1 in 0..self.ne[1] {
                    for i0 in 0..self.ne[0] {
                        let place = [i0, i1, i2, i3];
                        let value = match (ty, at(place)) {
                            (GgmlType::I32, [a, b, c, d, ..]) => i64::from(i32::from_le_bytes([*a, *b, *c, *d])),
                            (GgmlType::I64, [a, b, c, d, e, f, g, h, ..]) => {
                                i64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h])
                            }
                            // Other types are no indices; the operator's own rule says so.
                            _ => continue,
                        };
                        if !(0..self.limit).contains(&value) {
                            return Err(Error::invalid(
                                format!("inputs.{input}"),
                                format!(
                                    "indices from 0 to {} for {}, not {value} at {place:?}",
                                    self.limit - 1,
                                    self.op
                                ),
                            ));
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Params, ResultSpec};

    #[test]
    fn a_row_that_is_not_there_is_named() {
        let mut graph = Graph::new();
        let table = graph.input("table", GgmlType::F32, &[4, 10]).unwrap();
        let ids = graph.input("ids", GgmlType::I32, &[3]).unwrap();
        let rows = graph.op("GET_ROWS", &[Some(table), Some(ids)], Params::default(), ResultSpec::default()).unwrap();
        let bounds = bounds(&graph, &[rows], ids);
        assert_eq!(bounds.len(), 1);
        let bytes = |v: [i32; 3]| v.map(i32::to_le_bytes).concat();
        assert!(bounds[0].check("ids", GgmlType::I32, &bytes([0, 9, 4])).is_ok());
        for wrong in [10, -1] {
            let error = bounds[0].check("ids", GgmlType::I32, &bytes([0, 3, wrong])).unwrap_err().to_string();
            assert!(error.contains("indices from 0 to 9") && error.contains(&wrong.to_string()), "{error}");
        }
        assert!(super::bounds(&graph, &[rows], table).is_empty());
    }
}
