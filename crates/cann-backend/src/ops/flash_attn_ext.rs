//! FLASH_ATTN_EXT: the fused operator where the device has it and the node fits it, else products and a softmax.

use acl_sys::*;

use super::mul_mat::{PREC, product};
use super::soft_max::{sloped, soft_max};
use super::*;
use crate::lower::{Arg, TensorArg};

pub(super) static OPS: &[OpDef] = &[OpDef {
    name: "FLASH_ATTN_EXT",
    src: &["q", "k", "v", "mask?", "sinks?"],
    params: &[
        ParamDef { name: "scale", default: Default::Num(1.0), doc: "factor of the products of q and k" },
        ParamDef { name: "max_bias", default: Default::Num(0.0), doc: "largest ALiBi exponent; 0 for no slopes" },
        ParamDef {
            name: "logit_softcap",
            default: Default::Num(0.0),
            doc: "c in c tanh(logit / c), before the mask; 0 for none",
        },
        PREC,
    ],
    doc: "softmax(scale q k + slope(head) mask) v for q [d, n, heads, batch], k and v [d, kv, kv_heads, batch]; the result is [d_v, heads, n, batch]",
    types: "q f32; k, v any float or block type; mask f16, f32; sinks f32",
    infer,
    plan,
}];

fn infer(cx: &InferCx) -> Result<Inferred, Error> {
    cx.is(0, &[GgmlType::F32, GgmlType::F16])?;
    let (q, k, v) = (cx.src(0), cx.src(1), cx.src(2));
    let known = |n: &Node| n.ty.is_quantized() || matches!(n.ty, GgmlType::F32 | GgmlType::F16 | GgmlType::Bf16);
    cx.require(known(k) && known(v), || "k and v must be float or block types".into())?;
    cx.require(q.ne[0] == k.ne[0], || "q and k must have rows of the same length".into())?;
    cx.require(k.ne[1..] == v.ne[1..], || "k and v must agree in rows, heads and batch".into())?;
    let divides = (2..4).all(|d| k.ne[d] > 0 && q.ne[d] % k.ne[d] == 0);
    cx.require(divides, || "q's heads and batch must be multiples of k's".into())?;
    match cx.opt(3) {
        Some(mask) => {
            cx.is(3, &[GgmlType::F16, GgmlType::F32])?;
            let repeats = (2..4).all(|d| mask.ne[d] > 0 && q.ne[d] % mask.ne[d] == 0);
            cx.require(mask.ne[0] == k.ne[1] && mask.ne[1] >= q.ne[1] && repeats, || {
                "the mask needs k.ne1 columns, at least q.ne1 rows, and extents 2 and 3 that divide q's".into()
            })?;
        }
        None => cx.require(cx.params.f64("max_bias") == 0.0, || "max_bias needs a mask".into())?,
    }
    if let Some(sinks) = cx.opt(4) {
        cx.is(4, &[GgmlType::F32])?;
        cx.require(sinks.ne == [q.ne[2], 1, 1, 1], || "sinks must be [q.ne2]".into())?;
    }
    cx.packed(GgmlType::F32, [v.ne[0], q.ne[2], q.ne[1], q.ne[3]])
}

fn plan(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let (q, kv, v) = (cx.src(0).arg()?, cx.src(1), cx.src(2));
    let (k, v) = (kv.values(lower)?, v.values(lower)?);
    let params = cx.params();
    let mask = match cx.opt(3) {
        Some(mask) => {
            let rows = mask.arg()?.narrow(1, 0, q.ne[1]);
            let max_bias = params.f64("max_bias");
            Some(if max_bias > 0.0 { sloped(lower, &rows, q.ne[2], max_bias)? } else { rows })
        }
        None => None,
    };
    let sinks = cx.opt(4).map(|s| s.arg()).transpose()?;
    let out = cx.dst.arg()?;
    let plain = sinks.is_none() && params.f32("logit_softcap") == 0.0;
    let same_batch = k.ne[3] == q.ne[3] && q.ne[2] / k.ne[2] <= 64;
    let mask_fits = mask.as_ref().is_none_or(|m| m.ne[2] == 1 || m.ne[2] == q.ne[2])
        && mask.as_ref().is_none_or(|m| m.ne[3] == 1 || m.ne[3] == q.ne[3]);
    let caps = lower.caps;
    let width = caps.fused_attention_any || (q.ne[0] % 16 == 0 && v.ne[0] == q.ne[0]);
    if caps.fused_attention
        && plain
        && same_batch
        && mask_fits
        && width
        && !k.ne.contains(&0)
        && caps.api.has_op(AclOp::aclnnFusedInferAttentionScoreV2)
    {
        return fused(lower, &q, &k, &v, mask.as_ref(), params.f32("scale"), &out);
    }
    composed(cx, lower, &q, &k, &v, mask.as_ref(), sinks.as_ref(), &out)
}

fn fused(
    lower: &mut Lower,
    q: &TensorArg,
    k: &TensorArg,
    v: &TensorArg,
    mask: Option<&TensorArg>,
    scale: f32,
    out: &TensorArg,
) -> Result<(), Unsupported> {
    let any = lower.caps.fused_attention_any;
    let (heads, kv_heads, rows) = (q.ne[2], k.ne[2], q.ne[1]);
    // Batch, sequence, heads, elements, as projections and caches lie in memory.
    let order = |t: &TensorArg| t.permuted(&[0, 2, 1, 3]);
    let half = |lower: &mut Lower, t: &TensorArg| if any { Ok(t.clone()) } else { lower.to_dtype(t, ACL_FLOAT16) };
    let q = half(lower, &order(q))?;
    let (k, v) = (half(lower, &order(k))?, half(lower, &order(v))?);
    let shift = match mask {
        Some(mask) if !any => {
            // A chip wants the mask of every head, in f16.
            let full = lower.scratch(ACL_FLOAT16, &[mask.ne[0], mask.ne[1], heads, mask.ne[3]]);
            lower.call(AclOp::aclnnInplaceCopy, [full.clone().into(), mask.clone().into()])?;
            Arg::Tensor(full)
        }
        Some(mask) => mask.clone().into(),
        None => Arg::NoTensor,
    };
    let result = if any { out.clone() } else { lower.scratch_like(out, ACL_FLOAT16) };
    let mut args =
        vec![q.into(), Arg::Tensors(vec![k]), Arg::Tensors(vec![v]), shift, Arg::NoTensor, Arg::NoInts, Arg::NoInts];
    // Quantisation, paging, padding and shared prefixes.
    args.extend(std::iter::repeat_n(Arg::NoTensor, 16));
    args.push(Arg::NoInts);
    let everything = 65535;
    args.extend([
        Arg::I64(heads),
        Arg::F64(f64::from(scale)),
        Arg::I64(everything),
        Arg::I64(everything),
        Arg::Str(c"BSND"),
        Arg::I64(kv_heads),
        Arg::I64(0),
        Arg::I64(if rows == 1 { 0 } else { 2 }),
        Arg::I64(0),
        Arg::I64(0),
        Arg::Bool(false),
        Arg::I64(0),
        Arg::I64(0),
        result.clone().into(),
        Arg::NoTensor,
    ]);
    lower.call(AclOp::aclnnFusedInferAttentionScoreV2, args)?;
    if any { Ok(()) } else { lower.assign(out, &result) }
}

#[allow(clippy::too_many_arguments)]
fn composed(
    cx: &NodeCx,
    lower: &mut Lower,
    q: &TensorArg,
    k: &TensorArg,
    v: &TensorArg,
    mask: Option<&TensorArg>,
    sinks: Option<&TensorArg>,
    out: &TensorArg,
) -> Result<(), Unsupported> {
    let (scale, cap) = (cx.params().f32("scale"), cx.params().f32("logit_softcap"));
    let logits = lower.scratch(ACL_FLOAT, &[k.ne[1], q.ne[1], q.ne[2], q.ne[3]]);
    if k.ne[1] == 0 {
        return lower.fill_scalar(out, 0.0);
    }
    product(lower, q, &k.permuted(&[1, 0, 2, 3]), &logits)?;
    let scale = if cap == 0.0 {
        scale
    } else {
        lower.muls(&logits, scale / cap, &logits)?;
        lower.unary(AclOp::aclnnTanh, &logits, &logits)?;
        cap
    };
    let weights = lower.scratch_like(&logits, ACL_FLOAT);
    soft_max(lower, &logits, scale, mask, sinks, &weights)?;
    // The product gives [d_v, n, heads, batch]; with one row that is how the result lies.
    let into = out.permuted(&[0, 2, 1, 3]);
    let result = if into.is_packed() { into.clone() } else { lower.scratch_like(&into, ACL_FLOAT) };
    product(lower, &weights, v, &result)?;
    lower.assign(&into, &result)
}
