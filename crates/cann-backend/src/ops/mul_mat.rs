//! MUL_MAT, and the matrix product that other operators share.

use acl_sys::*;

use super::*;
use crate::lower::{Arg, TensorArg};
use crate::refuse;

pub(super) const PREC: ParamDef = ParamDef {
    name: "prec",
    default: Default::Str("default"),
    doc: "'default' or 'f32'; sums are always f32, and with 'f32' no chip rounds b to f16 for a weight in its private format",
};

pub(super) static OPS: &[OpDef] = &[OpDef {
    name: "MUL_MAT",
    src: &["a", "b"],
    params: &[PREC, ParamDef { name: "hint", default: Default::Num(0.0), doc: "ggml's remark about a; not used" }],
    doc: "sum over k of a[k, i, s/r2, t/r3] b[k, j, s, t] at [i, j, s, t], with r2 = b.ne2/a.ne2, r3 = b.ne3/a.ne3",
    types: "a any float or block type; b f32, f16, bf16; the result is f32",
    infer,
    plan,
}];

fn infer(cx: &InferCx) -> Result<Inferred, Error> {
    let (a, b) = (cx.src(0), cx.src(1));
    cx.require(a.ne[0] == b.ne[0], || "a and b must have rows of the same length".into())?;
    weights_and_batches(cx)?;
    cx.packed(GgmlType::F32, [a.ne[1], b.ne[1], b.ne[2], b.ne[3]])
}

/// Types of a product's operands, and that b's batches are multiples of a's.
pub(super) fn weights_and_batches(cx: &InferCx) -> Result<(), Error> {
    let (a, b) = (cx.src(0), cx.src(1));
    let float = |n: &Node| matches!(n.ty, GgmlType::F32 | GgmlType::F16 | GgmlType::Bf16);
    cx.require(float(a) || a.ty.is_quantized(), || "a must be a float or block type".into())?;
    cx.require(float(b), || "b must be f32, f16 or bf16".into())?;
    let batches = (2..4).all(|d| a.ne[d] > 0 && b.ne[d] % a.ne[d] == 0);
    cx.require(batches || b.is_empty(), || "extents 2 and 3 of b must be multiples of a's".into())
}

fn plan(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let (a, b, out) = (cx.src(0), cx.src(1).arg()?, cx.dst.arg()?);
    if a.ne[0] == 0 {
        return lower.fill_scalar(&out, 0.0);
    }
    match a.layout {
        Layout::Plain | Layout::Blocks => {
            let weight = a.values(lower)?.permuted(&[1, 0, 2, 3]);
            product(lower, &b, &weight, &out)
        }
        _ => quantised(lower, a, &b, &out),
    }
}

/// `out[m, n, s, t] = sum over k of w[m, k, s/r2, t/r3] x[k, n, s, t]`, extents in ggml's order. `out` is packed.
pub(super) fn product(lower: &mut Lower, x: &TensorArg, w: &TensorArg, out: &TensorArg) -> Result<(), Unsupported> {
    let (mut x, mut w, mut out) = (x.clone(), w.clone(), out.clone());
    if !lower.caps.relaxed && x.dtype != w.dtype && (x.dtype == ACL_BF16 || w.dtype == ACL_BF16) {
        x = lower.to_dtype(&x, ACL_FLOAT)?;
        w = lower.to_dtype(&w, ACL_FLOAT)?;
    }
    if w.ne[2] == 1
        && w.ne[3] == 1
        && let Some(rows) = x.merged(1).and_then(|x| x.merged(1))
    {
        // One weight for all: one tall matrix.
        let (m, n) = (out.ne[0], rows.ne[1]);
        out = out.reshaped(&[m, n]);
        return multiply(lower, &rows, &w.at(3, 0).at(2, 0), &out);
    }
    for d in [3, 2] {
        let (groups, repeat) = (w.ne[d], x.ne[d] / w.ne[d]);
        if repeat > 1 && d == 2 && x.ne[1] == 1 {
            // One row a head: the heads that share a matrix become the rows of one product.
            x = x.split(d, repeat).at(1, 0);
            out = out.split(d, repeat).at(1, 0);
        } else if repeat > 1 && groups > 1 {
            x = x.split(d, repeat);
            out = out.split(d, repeat);
            w.ne.insert(d, 1);
            w.nb.insert(d, w.nb[d]);
        }
    }
    for d in (2..x.ne.len()).rev() {
        if x.ne[d] == 1 && w.ne[d] == 1 {
            (x, w, out) = (x.at(d, 0), w.at(d, 0), out.at(d, 0));
        }
    }
    multiply(lower, &x, &w, &out)
}

fn multiply(lower: &mut Lower, x: &TensorArg, w: &TensorArg, out: &TensorArg) -> Result<(), Unsupported> {
    let op = if x.ne.len() == 2 { AclOp::aclnnMm } else { AclOp::aclnnMatmul };
    let single = x.dtype == ACL_FLOAT || w.dtype == ACL_FLOAT;
    let cube = if single && !lower.caps.f32_matmul { ALLOW_FP32_DOWN_PRECISION } else { KEEP_DTYPE };
    lower.call(op, [x.clone().into(), w.clone().into(), out.clone().into(), Arg::I8(cube)])
}

/// Most rows of a weight in one call on an NPU.
const MAX_ROWS: i64 = 65535;

/// A weight's quants `[m, k]`, scales and offsets `[m, groups]`, as the operator takes them.
pub(super) struct QuantWeight {
    pub quants: TensorArg,
    pub scales: TensorArg,
    pub offsets: Option<TensorArg>,
}

impl QuantWeight {
    /// Matrix `[k, m]` number `(j, l)` of an operand.
    pub fn of(a: &Operand, j: i64, l: i64) -> Result<QuantWeight, Unsupported> {
        let matrix = |t: TensorArg| t.at(4, l).at(3, j);
        Ok(QuantWeight::from_groups(&matrix(a.quants()?), &matrix(a.scales()?), a.offsets()?.map(matrix).as_ref()))
    }

    /// From `[32, groups, m]` and `[1, groups, m]`.
    pub fn from_groups(quants: &TensorArg, scales: &TensorArg, offsets: Option<&TensorArg>) -> QuantWeight {
        let scale = |t: &TensorArg| t.view(&[t.ne[2], t.ne[1]], &[t.nb[2], t.nb[1]], 0);
        QuantWeight {
            quants: quants.view(&[quants.ne[2], quants.ne[0] * quants.ne[1]], &[quants.nb[2], quants.nb[0]], 0),
            scales: scale(scales),
            offsets: offsets.map(scale),
        }
    }

    fn rows(&self, first: i64, len: i64) -> QuantWeight {
        let part = |t: &TensorArg| t.narrow(0, first, len);
        QuantWeight { quants: part(&self.quants), scales: part(&self.scales), offsets: self.offsets.as_ref().map(part) }
    }
}

/// Whether the device multiplies with this layout; the reason if not.
pub(super) fn check_quantised(lower: &Lower, layout: Layout, k: i64) -> Result<(), Unsupported> {
    let caps = lower.caps;
    if !caps.group_quant {
        refuse!("{} has no products with weights quantised in groups", caps.soc_name);
    }
    if layout != Layout::Q8_0 && !caps.int4 {
        refuse!("{} has no int4 weights", caps.soc_name);
    }
    if !caps.group_quant_f32 && k > MAX_ROWS {
        refuse!("rows of {k} elements; {} multiplies quantised weights with up to {MAX_ROWS}", caps.soc_name);
    }
    Ok(())
}

fn quantised(lower: &mut Lower, a: &Operand, b: &TensorArg, out: &TensorArg) -> Result<(), Unsupported> {
    check_quantised(lower, a.layout, a.ne[0])?;
    let dtype = if lower.caps.group_quant_f32 { ACL_FLOAT } else { ACL_FLOAT16 };
    let x = lower.to_dtype(b, dtype)?;
    let x = lower.contiguous(&x)?;
    let (k, m) = (a.ne[0], a.ne[1]);
    // Rows of x that share a matrix follow each other in groups of n * r2.
    let rows = x.ne[1] * (x.ne[2] / a.ne[2]);
    let repeat3 = x.ne[3] / a.ne[3];
    let (single, outer) = if a.ne[2] == 1 && a.ne[3] == 1 { (rows * x.ne[3], 1) } else { (rows, x.ne[3]) };
    let (x, out) = (x.reshaped(&[k, single, a.ne[2], outer]), out.reshaped(&[m, single, a.ne[2], outer]));
    for l in 0..outer {
        for j in 0..a.ne[2] {
            let weight = QuantWeight::of(a, j, l / repeat3)?;
            let matrix = |t: &TensorArg| t.at(3, l).at(2, j);
            multiply_quantised(lower, &matrix(&x), &weight, &matrix(&out))?;
        }
    }
    Ok(())
}

/// `out[m, n] = weight[m, k] x[k, n]`; `x` is packed, of f16 or what the device takes besides; `out` is f32.
pub(super) fn multiply_quantised(
    lower: &mut Lower,
    x: &TensorArg,
    weight: &QuantWeight,
    out: &TensorArg,
) -> Result<(), Unsupported> {
    let (k, m) = (x.ne[0], weight.quants.ne[0]);
    // A single group is the vendor's form with one scale a column.
    let group = if k > Operand::GROUP { Operand::GROUP as i32 } else { 0 };
    let step = if lower.caps.group_quant_f32 { m } else { MAX_ROWS };
    let mut first = 0;
    while first < m {
        let len = step.min(m - first);
        let part = weight.rows(first, len);
        let into = out.narrow(0, first, len);
        let y = if x.dtype == ACL_FLOAT { into.clone() } else { lower.scratch(x.dtype, &[len, x.ne[1]]) };
        let none = || Arg::NoTensor;
        let offsets = part.offsets.map_or(Arg::NoTensor, Arg::Tensor);
        let args = [
            x.clone().into(),
            part.quants.into(),
            part.scales.into(),
            offsets,
            none(),
            none(),
            none(),
            Arg::I32(group),
            y.clone().into(),
        ];
        lower.call(AclOp::aclnnWeightQuantBatchMatmulV2, args)?;
        if y.dtype != into.dtype {
            lower.assign(&into, &y)?;
        }
        first += len;
    }
    Ok(())
}
