//! Golden cases as graphs (the format is `__test__/golden/README.md`'s).
#![allow(dead_code)]

use std::collections::HashMap;

use cann_backend::Error;
use cann_backend::graph::{Graph, NodeId, Param, Params, ResultSpec};
use gguf::GgmlType;
use serde_json::Value;

/// Every case of a folder, or nothing (and a printed line) where there is none.
pub fn load(folder: &std::path::Path) -> Vec<Value> {
    let Ok(text) = std::fs::read_to_string(folder.join("cases.jsonl")) else {
        println!("skipped: no golden cases in {}", folder.display());
        return Vec::new();
    };
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub fn ints(v: &Value) -> Vec<i64> {
    v.as_array().unwrap().iter().map(|x| x.as_i64().unwrap()).collect()
}

fn param(v: &Value) -> Option<Param> {
    Some(match v {
        Value::Number(n) => Param::Num(n.as_f64()?),
        Value::Bool(b) => Param::Bool(*b),
        Value::String(s) => match s.as_str() {
            "inf" => Param::Num(f64::INFINITY),
            "-inf" => Param::Num(f64::NEG_INFINITY),
            "nan" => Param::Num(f64::NAN),
            _ => Param::Str(s.clone()),
        },
        Value::Array(a) => Param::Nums(a.iter().map(|x| x.as_f64()).collect::<Option<_>>()?),
        _ => return None,
    })
}

/// Builds a case's graph, type and shape of every result given as the file has them.
pub fn build(case: &Value) -> Result<Graph, Error> {
    build_with(case, |_, node| ResultSpec {
        ty: GgmlType::from_name(node["type"].as_str().unwrap()),
        ne: Some(ints(&node["ne"])),
        nb: Some(ints(&node["nb"]).iter().map(|n| *n as u64).collect()),
    })
}

/// Builds a case's graph; `result` says what is given about the result of an operator's record.
pub fn build_with(case: &Value, result: impl Fn(&str, &Value) -> ResultSpec) -> Result<Graph, Error> {
    let mut graph = Graph::new();
    let mut ids: HashMap<i64, NodeId> = HashMap::new();
    for leaf in case["leaves"].as_array().unwrap() {
        let ty = GgmlType::from_name(leaf["type"].as_str().unwrap()).unwrap();
        let id = graph.input(&format!("leaf_{}", leaf["id"]), ty, &ints(&leaf["ne"]))?;
        ids.insert(leaf["id"].as_i64().unwrap(), id);
    }
    for node in case["nodes"].as_array().unwrap() {
        let op = match node["op"].as_str().unwrap() {
            "UNARY" | "GLU" => node["sub"].as_str().unwrap(),
            op => op,
        };
        let src: Vec<Option<NodeId>> =
            node["src"].as_array().unwrap().iter().map(|s| s.as_i64().map(|s| ids[&s])).collect();
        let mut params = Params::default();
        for (name, value) in node["params"].as_object().unwrap() {
            if let Some(value) = param(value) {
                params = params.set(name, value);
            }
        }
        if op == "VIEW" {
            let root = src[0].map(|s| graph.node(s).offset).unwrap_or(0);
            let offset = node["view_offs"].as_u64().unwrap_or(0);
            params = params.num("offset", (offset - root) as f64);
        }
        let id = graph.op(op, &src, params, result(op, node))?;
        ids.insert(node["id"].as_i64().unwrap(), id);
    }
    graph.output("out", ids[&case["output"]["id"].as_i64().unwrap()])?;
    Ok(graph)
}
