//! Scans over tokens: SSM_CONV GATED_LINEAR_ATTN.

use acl_sys::*;

use super::operand::axis;
use super::steps::ONE;
use super::*;
use crate::lower::{Arg, TensorArg};

pub(super) static OPS: &[OpDef] = &[
    OpDef {
        name: "SSM_CONV",
        src: &["x", "w"],
        params: &[],
        doc: "sum over k of x[t + k, d, s] w[k, d] at [d, t, s]",
        types: "f32",
        infer: infer_ssm_conv,
        plan: plan_ssm_conv,
    },
    OpDef {
        name: "GATED_LINEAR_ATTN",
        src: &["k", "v", "q", "g", "state"],
        params: &[ParamDef { name: "scale", default: Default::Num(1.0), doc: "factor of the outputs" }],
        doc: "per sequence, head and token: S[i, j] = S[i, j] g[i] + k[i] v[j], output scale sum over i of S[i, j] q[i]; \
              the result is the outputs of all tokens, then the final states",
        types: "f32",
        infer: infer_linear_attention,
        plan: plan_linear_attention,
    },
];

fn all_f32(cx: &InferCx) -> Result<(), Error> {
    (0..cx.def.src.len()).try_for_each(|k| cx.is(k, &[GgmlType::F32]))
}

fn infer_ssm_conv(cx: &InferCx) -> Result<Inferred, Error> {
    all_f32(cx)?;
    let (x, w) = (cx.src(0), cx.src(1));
    cx.require(x.ne[3] == 1, || "x has up to 3 dimensions".into())?;
    cx.require(w.ne[1..] == [x.ne[1], 1, 1], || "w must be [taps, x.ne1]".into())?;
    cx.require((1..=x.ne[0]).contains(&w.ne[0]), || "w must have 1 to x.ne0 taps".into())?;
    cx.packed(GgmlType::F32, [x.ne[1], x.ne[0] - w.ne[0] + 1, x.ne[2], 1])
}

/// Windows are a view of x, so the products are one call and the sums another.
fn plan_ssm_conv(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let (x, w, out) = (cx.src(0).arg()?, cx.src(1).arg()?, cx.dst.arg()?);
    let ne = [w.ne[0], out.ne[0], out.ne[1], out.ne[2]];
    let windows = x.view(&ne, &[x.nb[0], x.nb[1], x.nb[0], x.nb[2]], 0);
    let products = lower.scratch(ACL_FLOAT, &ne);
    lower.mul(&windows, &w, &products)?;
    sum_out(lower, &products, 0, &out.view(&ne[1..], &out.nb[..3], 0))
}

/// The sum over dimension `d`, which `out` does not have.
fn sum_out(lower: &mut Lower, x: &TensorArg, d: usize, out: &TensorArg) -> Result<(), Unsupported> {
    let dims = Arg::Ints(vec![axis(d)]);
    let (keep, dtype) = (Arg::Bool(false), Arg::DType(ACL_FLOAT));
    lower.call(AclOp::aclnnReduceSum, [x.clone().into(), dims, keep, dtype, out.clone().into()])
}

fn infer_linear_attention(cx: &InferCx) -> Result<Inferred, Error> {
    all_f32(cx)?;
    let (k, state) = (cx.src(0), cx.src(4));
    let [size, heads, tokens, one] = k.ne;
    let same = (1..4).all(|s| cx.src(s).ne == k.ne);
    cx.require(same && one == 1, || "k, v, q and g must be [size, heads, tokens]".into())?;
    let (sequences, whole) = (state.ne[1], size.saturating_mul(size).saturating_mul(heads));
    cx.require(state.nelements() == whole.saturating_mul(sequences), || {
        "the state must be [size * size * heads, sequences]".into()
    })?;
    cx.require(sequences > 0 && tokens % sequences == 0, || {
        "there must be as many tokens in each sequence, and a sequence".into()
    })?;
    cx.packed(GgmlType::F32, [size * heads, tokens.saturating_add(size.saturating_mul(sequences)), 1, 1])
}

/// Token after token, all sequences and heads at once. The state lives in its place in the result.
fn plan_linear_attention(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let (out, before) = (cx.dst.arg()?, cx.src(4).arg()?);
    let [size, heads, tokens, _] = cx.src(0).ne;
    let sequences = cx.src(4).ne[1];
    let (row, each) = (size * heads * 4, tokens / sequences);
    let square = [size, size, heads, sequences];

    // Fastest dimension j, then i.
    let state = super::operand::packed_nb(ACL_FLOAT, &square);
    let state = out.view(&square, &state, tokens * row);
    let before = lower.contiguous(&before)?;
    lower.assign(&state, &before.reshaped(&square))?;

    let scale = cx.params().f32("scale");
    let mut q = cx.src(2).arg()?;
    if scale != 1.0 {
        let scaled = lower.scratch_like(&q, ACL_FLOAT);
        lower.muls(&q, scale, &scaled)?;
        q = scaled;
    }
    let (k, v, g) = (cx.src(0).arg()?, cx.src(1).arg()?, cx.src(3).arg()?);
    let products = lower.scratch(ACL_FLOAT, &square);
    for t in 0..each {
        let along_i = |x: &TensorArg| {
            x.view(&[1, size, heads, sequences], &[x.nb[0], x.nb[0], x.nb[1], x.nb[2] * each], t * x.nb[2])
        };
        let along_j = v.view(&[size, 1, heads, sequences], &[v.nb[0], v.nb[0], v.nb[1], v.nb[2] * each], t * v.nb[2]);
        lower.mul(&along_i(&k), &along_j, &products)?;
        lower.call(AclOp::aclnnInplaceMul, [state.clone().into(), along_i(&g).into()])?;
        lower.call(AclOp::aclnnInplaceAdd, [state.clone().into(), products.clone().into(), ONE])?;
        lower.mul(&state, &along_i(&q), &products)?;
        let outputs = out.view(&[size, heads, sequences], &[4, size * 4, row * each], t * row);
        sum_out(lower, &products, 1, &outputs)?;
    }
    Ok(())
}
