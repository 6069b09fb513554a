//! MUL_MAT_ID: products with experts chosen by index on the device; the host never sees an index.
//!
//! Few tokens: the chosen experts are gathered, in their own type, for as many tokens at once as the scratch bound allows.
//! Many tokens and few experts: every expert takes all rows in one product each, and the wanted results are gathered.

use acl_sys::*;

use super::mul_mat::{PREC, QuantWeight, check_quantised, multiply_quantised, product};
use super::operand::dtype_bytes;
use super::*;
use crate::lower::{Arg, ScalarArg, TensorArg};

/// Bytes of gathered experts held at once, if one token's fit.
const SCRATCH_BYTES: i64 = 64 << 20;

pub(super) static OPS: &[OpDef] = &[OpDef {
    name: "MUL_MAT_ID",
    src: &["experts", "b", "ids"],
    params: &[PREC],
    doc: "experts[:, :, ids[e, t]] times b[:, e mod b.ne1, t] at [:, e, t]",
    types: "experts any float or block type; b f32, f16, bf16; ids i32; the result is f32",
    infer,
    plan,
}];

fn infer(cx: &InferCx) -> Result<Inferred, Error> {
    let (experts, b, ids) = (cx.src(0), cx.src(1), cx.src(2));
    cx.float(1)?;
    cx.is(2, &[GgmlType::I32])?;
    let float = matches!(experts.ty, GgmlType::F32 | GgmlType::F16 | GgmlType::Bf16);
    cx.require(float || experts.ty.is_quantized(), || "experts must be a float or block type".into())?;
    cx.require(experts.ne[0] == b.ne[0], || "experts and b must have rows of the same length".into())?;
    cx.require(experts.ne[3] == 1 && b.ne[3] == 1, || "experts and b have up to 3 dimensions".into())?;
    let tokens = ids.ne[1] == b.ne[2] && ids.ne[2] == 1 && ids.ne[3] == 1;
    cx.require(tokens, || "ids must be [experts used, b.ne2]".into())?;
    cx.require(b.ne[1] > 0 && ids.ne[0] % b.ne[1] == 0, || "ids.ne0 must be a multiple of b.ne1".into())?;
    cx.packed(GgmlType::F32, [experts.ne[1], ids.ne[0], b.ne[2], 1])
}

fn plan(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let (experts, b, ids, out) = (cx.src(0), cx.src(1).arg()?, cx.src(2).arg()?, cx.dst.arg()?);
    let (k, used, tokens) = (experts.ne[0], ids.ne[0], ids.ne[1]);
    if k == 0 {
        return lower.fill_scalar(&out, 0.0);
    }
    // One input row for each expert of each token, `[k, used, tokens]`; a single row is left to broadcasting.
    let b = b.at(3, 0);
    let b = if b.ne[1] == 1 || b.ne[1] == used {
        b
    } else {
        let rows = lower.scratch(b.dtype, &[k, used, tokens]);
        let (into, from) = (rows.split(1, b.ne[1]), b.split(1, b.ne[1]));
        lower.call(AclOp::aclnnInplaceCopy, [into.into(), from.into()])?;
        rows
    };
    let (ids, out) = (ids.at(3, 0).at(2, 0), out.at(3, 0));
    // A product with many rows is worth several with one row, which also need their expert gathered.
    if tokens >= 16 && experts.ne[2] * b.ne[1] <= 8 * used {
        return all_experts(lower, experts, &b, &ids, &out);
    }
    let plain = matches!(experts.layout, Layout::Plain | Layout::Blocks);
    let (parts, x) = if plain {
        (vec![experts.values(lower)?.at(3, 0)], b)
    } else {
        check_quantised(lower, experts.layout, k)?;
        let dtype = if lower.caps.group_quant_f32 { ACL_FLOAT } else { ACL_FLOAT16 };
        let x = lower.to_dtype(&b, dtype)?;
        let x = lower.contiguous(&x)?;
        let groups = [Some(experts.packed_quants()?), Some(experts.scales()?), experts.offsets()?];
        (groups.into_iter().flatten().map(|t| t.at(4, 0)).collect(), x)
    };
    let bytes: i64 = parts.iter().map(|p| p.ne[..p.ne.len() - 1].iter().product::<i64>() * dtype_bytes(p.dtype)).sum();
    let step = (SCRATCH_BYTES / (bytes * used).max(1)).clamp(1, tokens);
    let gathered: Vec<TensorArg> = parts
        .iter()
        .map(|p| {
            let rest = p.ne.len() - 1;
            let ne: Vec<i64> = p.ne[..rest].iter().copied().chain([used, step]).collect();
            lower.scratch(p.dtype, &ne)
        })
        .collect();
    let mut first = 0;
    while first < tokens {
        let len = step.min(tokens - first);
        let index = ids.narrow(1, first, len);
        let chosen: Vec<TensorArg> = gathered.iter().map(|t| t.narrow(t.ne.len() - 1, 0, len)).collect();
        for (part, into) in parts.iter().zip(&chosen) {
            lower.gather(part, &index, into)?;
        }
        let (x, out) = (x.narrow(2, first, len), out.narrow(2, first, len));
        if plain {
            // A matrix for each row: rows and tokens are both batches, of products with one row.
            let lone =
                |t: &TensorArg| t.view(&[t.ne[0], 1, t.ne[1], t.ne[2]], &[t.nb[0], t.nb[1], t.nb[1], t.nb[2]], 0);
            product(lower, &lone(&x), &chosen[0].permuted(&[1, 0, 2, 3]), &lone(&out))?;
        } else {
            products_quantised(lower, experts.layout, &chosen, &x, &out)?;
        }
        first += len;
    }
    Ok(())
}

/// Results of every expert for every row, then a gather by expert and row.
fn all_experts(
    lower: &mut Lower,
    experts: &Operand,
    b: &TensorArg,
    ids: &TensorArg,
    out: &TensorArg,
) -> Result<(), Unsupported> {
    let (k, m, count) = (experts.ne[0], experts.ne[1], experts.ne[2]);
    let (slots, used, tokens) = (b.ne[1], out.ne[1], out.ne[2]);
    let plain = matches!(experts.layout, Layout::Plain | Layout::Blocks);
    let (weights, x) = if plain {
        (Some(experts.values(lower)?), b.clone())
    } else {
        check_quantised(lower, experts.layout, k)?;
        let dtype = if lower.caps.group_quant_f32 { ACL_FLOAT } else { ACL_FLOAT16 };
        (None, lower.to_dtype(b, dtype)?)
    };
    let x = lower.contiguous(&x)?;
    let step = (SCRATCH_BYTES / (count * slots * m * 4).max(1)).clamp(1, tokens);
    let results = lower.scratch(ACL_FLOAT, &[m, step * slots, count]);
    let index = lower.scratch(ACL_INT32, &[used, step]);
    let mut first = 0;
    while first < tokens {
        let len = step.min(tokens - first);
        let rows = len * slots;
        let x = x.narrow(2, first, len).reshaped(&[k, rows]);
        // Packed for this many tokens, so that experts follow each other in whole steps of `rows`.
        let results = results.view(&[m, rows, count], &[4, m * 4, m * rows * 4], 0);
        match &weights {
            Some(weights) if takes_group(lower, &x, weights) => grouped(lower, &x, weights, &results)?,
            Some(weights) => {
                let batch = |t: &TensorArg| t.view(&[t.ne[0], t.ne[1], 1, 1], &[t.nb[0], t.nb[1], 4, 4], 0);
                for e in 0..count {
                    let weight = weights.at(3, 0).at(2, e).permuted(&[1, 0]);
                    product(lower, &batch(&x), &batch(&weight), &batch(&results.at(2, e)))?;
                }
            }
            None => {
                for e in 0..count {
                    multiply_quantised(lower, &x, &QuantWeight::of(experts, e, 0)?, &results.at(2, e))?;
                }
            }
        }
        super::steps::listed(len * used)?;
        let places: Vec<i32> =
            (0..len * used).map(|i| (i / used * slots + if slots == 1 { 0 } else { i % used }) as i32).collect();
        let places = lower.constant_i32(&places, &[used, len]);
        let index = index.narrow(1, 0, len);
        let scale = Arg::Scalar(ScalarArg::I64(rows));
        // place + rows * expert
        lower.call(AclOp::aclnnAdd, [places.into(), ids.narrow(1, first, len).into(), scale, index.clone().into()])?;
        lower.gather(&results.view(&[m, rows * count], &[4, m * 4], 0), &index, &out.narrow(2, first, len))?;
        first += len;
    }
    Ok(())
}

/// Matrices that one call of GroupedMatmul takes.
const MOST_GROUPED: i64 = 128;

/// Whether the products of all experts may be one call: it wants one type for all, and matrices whose transposition shows.
fn takes_group(lower: &Lower, x: &TensorArg, weights: &TensorArg) -> bool {
    let float = x.dtype == ACL_FLOAT && weights.dtype == ACL_FLOAT && lower.caps.f32_matmul;
    float && lower.caps.api.has_op(AclOp::aclnnGroupedMatmulV2) && weights.ne[..2].iter().chain(&x.ne).all(|n| *n > 1)
}

/// The rows of `x` times every expert, side by side.
fn grouped(lower: &mut Lower, x: &TensorArg, weights: &TensorArg, results: &TensorArg) -> Result<(), Unsupported> {
    let count = results.ne[2];
    for first in (0..count).step_by(MOST_GROUPED as usize) {
        let experts = first..count.min(first + MOST_GROUPED);
        let weight = |e| weights.at(3, 0).at(2, e).permuted(&[1, 0]);
        let lists = [
            Arg::Tensors(experts.clone().map(|_| x.clone()).collect()),
            Arg::Tensors(experts.clone().map(weight).collect()),
        ];
        // No bias, no quantisation, no group list: each product stands for itself (group type -1).
        let none = std::iter::repeat_n(Arg::NoTensors, 5).chain([Arg::NoInts, Arg::I64(0), Arg::I64(-1)]);
        let outputs = Arg::Tensors(experts.map(|e| results.at(2, e)).collect());
        lower.call(AclOp::aclnnGroupedMatmulV2, lists.into_iter().chain(none).chain([outputs]))?;
    }
    Ok(())
}

fn products_quantised(
    lower: &mut Lower,
    layout: Layout,
    chosen: &[TensorArg],
    x: &TensorArg,
    out: &TensorArg,
) -> Result<(), Unsupported> {
    for t in 0..out.ne[2] {
        for e in 0..out.ne[1] {
            let matrix = |p: &TensorArg| p.at(4, t).at(3, e);
            let mut quants = matrix(&chosen[0]);
            if layout != Layout::Q8_0 {
                // Gathered as bytes, multiplied as int4.
                quants.dtype = ACL_INT4;
                quants.ne[0] *= 2;
                quants.nb.iter_mut().skip(1).for_each(|n| *n *= 2);
            }
            let offsets = chosen.get(2).map(matrix);
            let weight = QuantWeight::from_groups(&quants, &matrix(&chosen[1]), offsets.as_ref());
            let row = |p: &TensorArg, e: i64| p.at(2, t).narrow(1, e, 1);
            multiply_quantised(lower, &row(x, e % x.ne[1]), &weight, &row(out, e))?;
        }
    }
    Ok(())
}
