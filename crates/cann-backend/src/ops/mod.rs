//! The op table: the list of operators, and what a row holds. No operator's logic lives here.
//!
//! An operator is one row: its parameters, its shape inference and its plan function. The plan function checks everything
//! (types, shapes, the chip, the library's functions) and writes the steps; asking whether an operator is supported is
//! running the same function. It makes no ACL call.

use std::collections::HashMap;
use std::sync::OnceLock;

use gguf::GgmlType;

use crate::error::Error;
use crate::graph::{Node, Param, Params, ResultSpec, checked_ne, contiguous_nb};
use crate::lower::{Lower, Mem, Unsupported};
use crate::repack::Layout;

mod operand;
mod steps;

mod binary;
mod blocks;
mod copy;
mod flash_attn_ext;
mod generate;
mod get_rows;
mod glu;
mod image;
mod mul_mat;
mod mul_mat_id;
mod norm;
mod order;
mod out_prod;
mod place;
mod quantise;
mod recurrent;
mod reduce;
mod rope;
mod set_rows;
mod soft_max;
mod tile;
mod triangle;
mod unary;
mod view;

pub use copy::packed_copy;
pub use norm::{add_rms_norm, rms_norm_mul};
pub use operand::Operand;

/// One parameter: ggml's name, its default (none: it must be given) and what it means.
#[derive(Debug)]
pub struct ParamDef {
    pub name: &'static str,
    pub default: Default,
    pub doc: &'static str,
}

/// Kind and default of a parameter in one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Default {
    /// A number that must be given.
    Required,
    Num(f64),
    Bool(bool),
    Str(&'static str),
    Nums(&'static [f64]),
}

/// A row of the op table.
#[derive(Debug)]
pub struct OpDef {
    /// ggml's name; the kinds of UNARY and GLU are operators of their own here ("SILU", "SWIGLU").
    pub name: &'static str,
    /// Names of the sources, in order; a name that ends in `?` may be null or left out.
    pub src: &'static [&'static str],
    pub params: &'static [ParamDef],
    /// One sentence with the formula, for docs/ops.md and the typed methods.
    pub doc: &'static str,
    /// Which types are taken, for docs/ops.md.
    pub types: &'static str,
    pub infer: fn(&InferCx) -> Result<Inferred, Error>,
    pub plan: fn(&NodeCx, &mut Lower) -> Result<(), Unsupported>,
}

/// What inference sees.
pub struct InferCx<'a> {
    pub def: &'static OpDef,
    pub src: &'a [Option<&'a Node>],
    pub params: &'a Params,
    pub result: &'a ResultSpec,
}

/// What inference says: type, extents, strides, and for a view the source it looks into and the byte offset there.
#[derive(Clone, Debug, PartialEq)]
pub struct Inferred {
    pub ty: GgmlType,
    pub ne: [i64; 4],
    pub nb: [u64; 4],
    pub view: Option<(usize, u64)>,
}

/// What a plan function sees: the node's parameters and its operands as memory.
pub struct NodeCx<'a> {
    pub node: &'a Node,
    pub src: &'a [Option<Operand>],
    pub dst: Operand,
}

/// Every family's rows.
static FAMILIES: &[&[OpDef]] = &[
    view::OPS,
    copy::OPS,
    get_rows::OPS,
    set_rows::OPS,
    binary::OPS,
    place::OPS,
    unary::OPS,
    glu::OPS,
    norm::OPS,
    soft_max::OPS,
    rope::OPS,
    mul_mat::OPS,
    mul_mat_id::OPS,
    out_prod::OPS,
    flash_attn_ext::OPS,
    tile::OPS,
    generate::OPS,
    reduce::OPS,
    order::OPS,
    triangle::OPS,
    image::OPS,
    recurrent::OPS,
];

/// Every row of the table, family after family.
pub fn all() -> impl Iterator<Item = &'static OpDef> {
    FAMILIES.iter().flat_map(|family| family.iter())
}

/// The operator of this name.
pub fn find(name: &str) -> Option<&'static OpDef> {
    static INDEX: OnceLock<HashMap<&'static str, &'static OpDef>> = OnceLock::new();
    INDEX.get_or_init(|| all().map(|def| (def.name, def)).collect()).get(name).copied()
}

/// The row of graph inputs and device tensors.
pub fn leaf() -> &'static OpDef {
    &view::OPS[0]
}

/// The error for a name that is no operator, with the names nearest to it.
pub fn unknown(name: &str) -> Error {
    let wanted = name.to_ascii_uppercase();
    let mut near: Vec<(usize, &str)> = all().map(|def| (edits(&wanted, def.name), def.name)).collect();
    near.sort_unstable();
    let near: Vec<&str> = near.iter().take(3).map(|(_, name)| *name).collect();
    Error::invalid("op", format!("an operator such as {}, not '{name}'", near.join(", ")))
}

/// Levenshtein distance.
fn edits(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let substitute = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// The parameters with defaults filled in; an unknown name, a wrong kind or a missing value is an error that names it.
pub fn with_defaults(def: &'static OpDef, params: Params) -> Result<Params, Error> {
    let mut full = params;
    for name in full.0.keys() {
        if !def.params.iter().any(|p| p.name == name) {
            let known: Vec<&str> = def.params.iter().map(|p| p.name).collect();
            let known = if known.is_empty() { "no parameters".into() } else { format!("only {}", known.join(", ")) };
            return Err(Error::invalid(format!("params.{name}"), format!("{known} for {}", def.name)));
        }
    }
    for p in def.params {
        let wrong = |kind: &str| Error::invalid(format!("params.{}", p.name), format!("{kind} ({})", def.name));
        match (p.default, full.0.get(p.name)) {
            (Default::Required, None) => return Err(wrong("a number")),
            (Default::Required | Default::Num(_), Some(v)) if !matches!(v, Param::Num(_) | Param::Bool(_)) => {
                return Err(wrong("a number"));
            }
            (Default::Bool(_), Some(v)) if !matches!(v, Param::Num(_) | Param::Bool(_)) => {
                return Err(wrong("a boolean"));
            }
            (Default::Str(_), Some(v)) if !matches!(v, Param::Str(_)) => return Err(wrong("a string")),
            (Default::Nums(_), Some(v)) if !matches!(v, Param::Nums(_)) => return Err(wrong("an array of numbers")),
            (_, Some(_)) => {}
            (default, None) => {
                let value = match default {
                    Default::Num(v) => Param::Num(v),
                    Default::Bool(v) => Param::Bool(v),
                    Default::Str(v) => Param::Str(v.to_owned()),
                    Default::Nums(v) => Param::Nums(v.to_vec()),
                    Default::Required => continue,
                };
                full.0.insert(p.name.to_owned(), value);
            }
        }
    }
    Ok(full)
}

/// Refuses too many sources, and null where one is needed.
pub fn check_arity(def: &'static OpDef, src: &[Option<&Node>]) -> Result<(), Error> {
    let least = def.src.iter().filter(|name| !name.ends_with('?')).count();
    let wrong = |reason: String| Error::Shape { op: def.name.into(), reason };
    if src.len() > def.src.len() {
        return Err(wrong(format!(
            "{} sources given, at most {} are taken ({})",
            src.len(),
            def.src.len(),
            def.src.join(", ")
        )));
    }
    for (k, name) in def.src.iter().enumerate() {
        if !name.ends_with('?') && src.get(k).copied().flatten().is_none() {
            return Err(wrong(format!("source {k} ({name}) is missing; at least {least} are needed")));
        }
    }
    Ok(())
}

/// Writes the steps of a node, or says why the device does not take it. The one door to a row's plan function: what holds for
/// every operator is checked here.
pub fn plan(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let operands = || cx.src.iter().flatten().chain([&cx.dst]);
    if !lower.caps.bf16 && operands().any(|o| o.ty == GgmlType::Bf16) {
        crate::refuse!("{} has no bf16", lower.caps.soc_name);
    }
    if cx.dst.is_empty() {
        return Ok(());
    }
    (cx.node.op.plan)(cx, lower)
}

impl OpDef {
    /// Parameters with defaults and meaning, as one cell of docs/ops.md.
    pub fn params_text(&self) -> String {
        let one = |p: &ParamDef| match p.default {
            Default::Required => format!("`{}`: {}", p.name, p.doc),
            Default::Num(v) => format!("`{}` = {v}: {}", p.name, p.doc),
            Default::Bool(v) => format!("`{}` = {v}: {}", p.name, p.doc),
            Default::Str(v) => format!("`{}` = '{v}': {}", p.name, p.doc),
            Default::Nums(v) => format!("`{}` = {v:?}: {}", p.name, p.doc),
        };
        self.params.iter().map(one).collect::<Vec<_>>().join("; ")
    }
}

impl<'a> InferCx<'a> {
    /// A source that the arity check saw.
    pub fn src(&self, k: usize) -> &'a Node {
        self.src[k].expect("check_arity ran")
    }

    pub fn opt(&self, k: usize) -> Option<&'a Node> {
        self.src.get(k).copied().flatten()
    }

    /// An error that names the operator, the shapes of all sources and the rule.
    pub fn err(&self, rule: impl std::fmt::Display) -> Error {
        let shapes: Vec<String> = (self.def.src.iter().zip(self.src))
            .map(|(name, node)| match node {
                Some(n) => format!("{} {} {:?}", name.trim_end_matches('?'), n.ty.name(), n.ne),
                None => format!("{} null", name.trim_end_matches('?')),
            })
            .collect();
        let shapes = if shapes.is_empty() { "no sources".into() } else { shapes.join(", ") };
        Error::Shape { op: self.def.name.into(), reason: format!("{rule} (got {shapes})") }
    }

    pub fn require(&self, ok: bool, rule: impl FnOnce() -> String) -> Result<(), Error> {
        if ok { Ok(()) } else { Err(self.err(rule())) }
    }

    /// Source `k` holds f32, f16 or bf16.
    pub fn float(&self, k: usize) -> Result<(), Error> {
        self.is(k, &[GgmlType::F32, GgmlType::F16, GgmlType::Bf16])
    }

    /// Source `k` has one of these types.
    pub fn is(&self, k: usize, types: &[GgmlType]) -> Result<(), Error> {
        let names = || types.iter().map(|t| t.name()).collect::<Vec<_>>().join(", ");
        self.require(types.contains(&self.src(k).ty), || {
            format!("{} must be {}", self.def.src[k].trim_end_matches('?'), names())
        })
    }

    /// A result of its own, packed.
    pub fn packed(&self, ty: GgmlType, ne: [i64; 4]) -> Result<Inferred, Error> {
        checked_ne(&ne).map_err(|e| self.err(e))?;
        let nb = contiguous_nb(ty, ne)
            .ok_or_else(|| self.err(format!("a result {} {ne:?} does not fill whole blocks", ty.name())))?;
        Ok(Inferred { ty, ne, nb, view: None })
    }

    /// A result of its own with the type and shape of source `k`.
    pub fn like(&self, k: usize) -> Result<Inferred, Error> {
        self.packed(self.src(k).ty, self.src(k).ne)
    }
}

impl<'a> NodeCx<'a> {
    /// A source that the arity check saw.
    pub fn src(&self, k: usize) -> &'a Operand {
        self.src[k].as_ref().expect("the graph checked the arity")
    }

    pub fn opt(&self, k: usize) -> Option<&'a Operand> {
        self.src.get(k).and_then(|s| s.as_ref())
    }

    pub fn params(&self) -> &'a Params {
        &self.node.params
    }
}
