//! Graphs: nodes by number. The facade makes objects of the numbers.

use std::cell::RefCell;
use std::collections::HashMap;

use cann_backend::error::Error;
use cann_backend::graph::{Graph as Core, NodeId, Param, Params, ResultSpec};
use cann_backend::ops;
use napi::bindgen_prelude::Either4;
use napi::{Env, Result};
use napi_derive::napi;

use crate::convert;
use crate::error::OrJs;
use crate::tensor::Tensor;

type ParamValue = Either4<f64, bool, String, Vec<f64>>;

#[napi(object, object_to_js = false)]
pub struct ResultOptions {
    #[napi(js_name = "type")]
    pub ty: Option<String>,
    pub ne: Option<Vec<f64>>,
    pub nb: Option<Vec<f64>>,
}

#[napi(object, object_from_js = false)]
pub struct NodeInfo {
    pub name: String,
    pub op: &'static str,
    #[napi(js_name = "type")]
    pub ty: &'static str,
    pub ne: Vec<f64>,
    pub nb: Vec<f64>,
}

#[napi]
pub struct Graph {
    pub(crate) inner: RefCell<Core>,
}

#[napi]
impl Graph {
    #[napi(constructor, catch_unwind)]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Graph {
        Graph { inner: RefCell::new(Core::new()) }
    }

    #[napi(getter, catch_unwind)]
    pub fn size(&self) -> u32 {
        self.inner.borrow().nodes().len() as u32
    }

    #[napi(catch_unwind)]
    pub fn info(&self, env: &Env, node: u32) -> Result<NodeInfo> {
        let id = self.checked(node).or_js(env)?;
        let graph = self.inner.borrow();
        let node = graph.node(id);
        Ok(NodeInfo {
            name: node.name.clone(),
            op: node.op.name,
            ty: node.ty.name(),
            ne: convert::numbers(&node.ne),
            nb: convert::unsigned_numbers(&node.nb),
        })
    }

    #[napi(catch_unwind)]
    pub fn input(&self, env: &Env, name: String, dtype: String, ne: Vec<f64>) -> Result<u32> {
        let made = (|| {
            let (ty, ne) = (convert::dtype(&dtype, "type")?, convert::whole(&ne, "ne")?);
            self.inner.borrow_mut().input(&name, ty, &ne)
        })();
        Ok(made.or_js(env)?.0)
    }

    #[napi(catch_unwind)]
    pub fn tensor(&self, env: &Env, tensor: &Tensor) -> Result<u32> {
        Ok(self.inner.borrow_mut().tensor(tensor.inner.clone()).or_js(env)?.0)
    }

    /// `src` holds node numbers; -1 is none.
    #[napi(catch_unwind)]
    pub fn op(
        &self,
        env: &Env,
        op: String,
        src: Vec<i32>,
        #[napi(ts_arg_type = "Record<string, number | boolean | string | number[]> | undefined | null")] params: Option<
            HashMap<String, ParamValue>,
        >,
        result: Option<ResultOptions>,
    ) -> Result<u32> {
        let made = (|| {
            let src: Vec<Option<NodeId>> = src.iter().map(|id| u32::try_from(*id).ok().map(NodeId)).collect();
            let params = params.unwrap_or_default().into_iter().map(|(name, value)| (name, param(value))).collect();
            self.inner.borrow_mut().op(&op, &src, Params(params), result_spec(result)?)
        })();
        Ok(made.or_js(env)?.0)
    }

    #[napi(catch_unwind)]
    pub fn output(&self, env: &Env, name: String, node: u32) -> Result<()> {
        self.inner.borrow_mut().output(&name, NodeId(node)).or_js(env)
    }

    /// A copy of the graph as it is now.
    #[napi(catch_unwind)]
    pub fn snapshot(&self) -> Graph {
        Graph { inner: RefCell::new(self.inner.borrow().clone()) }
    }

    #[napi(catch_unwind)]
    pub fn to_dot(&self) -> String {
        self.inner.borrow().to_dot()
    }
}

impl Graph {
    /// The node of a number that came from JavaScript.
    pub(crate) fn checked(&self, node: u32) -> std::result::Result<NodeId, Error> {
        if (node as usize) < self.inner.borrow().nodes().len() {
            Ok(NodeId(node))
        } else {
            Err(Error::invalid("node", format!("a node of this graph, not node {node}")))
        }
    }
}

fn param(value: ParamValue) -> Param {
    match value {
        Either4::A(number) => Param::Num(number),
        Either4::B(flag) => Param::Bool(flag),
        Either4::C(text) => Param::Str(text),
        Either4::D(numbers) => Param::Nums(numbers),
    }
}

fn result_spec(result: Option<ResultOptions>) -> std::result::Result<ResultSpec, Error> {
    let Some(result) = result else { return Ok(ResultSpec::default()) };
    let strides = |nb: Vec<f64>| {
        nb.iter().map(|n| convert::bytes(*n, "result.nb")).collect::<std::result::Result<Vec<u64>, Error>>()
    };
    Ok(ResultSpec {
        ty: result.ty.map(|name| convert::dtype(&name, "result.type")).transpose()?,
        ne: result.ne.map(|ne| convert::whole(&ne, "result.ne")).transpose()?,
        nb: result.nb.map(strides).transpose()?,
    })
}

#[napi(object, object_from_js = false)]
pub struct OpParam {
    pub name: &'static str,
    #[napi(ts_type = "'number' | 'boolean' | 'string' | 'number[]'")]
    pub kind: &'static str,
    pub required: bool,
    /// As text, for documentation.
    pub default: String,
    pub doc: &'static str,
}

#[napi(object, object_from_js = false)]
pub struct OpRow {
    pub name: &'static str,
    /// Names of the sources; one that ends in `?` is optional.
    pub src: Vec<&'static str>,
    pub params: Vec<OpParam>,
    pub doc: &'static str,
    pub types: &'static str,
}

/// The op table: what the typed methods and their documentation are generated from.
#[napi(catch_unwind)]
pub fn op_table() -> Vec<OpRow> {
    let param = |p: &ops::ParamDef| {
        let (kind, default) = match p.default {
            ops::Default::Required => ("number", None),
            ops::Default::Num(v) => ("number", Some(v.to_string())),
            ops::Default::Bool(v) => ("boolean", Some(v.to_string())),
            ops::Default::Str(v) => ("string", Some(format!("'{v}'"))),
            ops::Default::Nums(v) => ("number[]", Some(format!("{v:?}"))),
        };
        let (required, default) = (default.is_none(), default.unwrap_or_default());
        OpParam { name: p.name, kind, required, default, doc: p.doc }
    };
    let row = |def: &'static ops::OpDef| OpRow {
        name: def.name,
        src: def.src.to_vec(),
        params: def.params.iter().map(param).collect(),
        doc: def.doc,
        types: def.types,
    };
    ops::all().map(row).collect()
}
