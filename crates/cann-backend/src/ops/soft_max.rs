//! SOFT_MAX with mask, ALiBi slopes and sinks, and DIAG_MASK_INF.

use acl_sys::*;

use super::operand::{axis, repeat_split};
use super::*;
use crate::lower::{Arg, TensorArg};

pub(super) static OPS: &[OpDef] = &[
    OpDef {
        name: "SOFT_MAX",
        src: &["x", "mask?", "sinks?"],
        params: &[
            ParamDef { name: "scale", default: Default::Num(1.0), doc: "factor of x" },
            ParamDef { name: "max_bias", default: Default::Num(0.0), doc: "largest ALiBi exponent; 0 for no slopes" },
        ],
        doc: "softmax along ne0 of scale x + slope(head) mask; a sink is one more logit of its head, in the denominator only",
        types: "x f32; mask f32, f16; sinks f32",
        infer,
        plan,
    },
    OpDef {
        name: "DIAG_MASK_INF",
        src: &["x"],
        params: &[ParamDef { name: "n_past", default: Default::Num(0.0), doc: "columns before the diagonal" }],
        doc: "x with minus infinity where column > n_past + row",
        types: "f32",
        infer: |cx| {
            cx.is(0, &[GgmlType::F32])?;
            cx.like(0)
        },
        plan: plan_diag_mask,
    },
];

fn infer(cx: &InferCx) -> Result<Inferred, Error> {
    cx.is(0, &[GgmlType::F32])?;
    let x = cx.src(0);
    match cx.opt(1) {
        Some(mask) => {
            cx.is(1, &[GgmlType::F32, GgmlType::F16])?;
            let rows = mask.ne[0] == x.ne[0] && mask.ne[1] >= x.ne[1];
            let repeats = (2..4).all(|d| mask.ne[d] > 0 && x.ne[d] % mask.ne[d] == 0);
            cx.require(rows && repeats, || {
                "the mask needs x.ne0 columns, at least x.ne1 rows, and extents 2 and 3 that divide x's".into()
            })?;
        }
        None => cx.require(cx.params.f64("max_bias") == 0.0, || "max_bias needs a mask".into())?,
    }
    if let Some(sinks) = cx.opt(2) {
        cx.is(2, &[GgmlType::F32])?;
        cx.require(sinks.ne == [x.ne[2], 1, 1, 1], || "sinks must be [x.ne2]".into())?;
    }
    cx.like(0)
}

/// ALiBi's factor of the mask for each of `heads`.
pub(super) fn slopes(heads: i64, max_bias: f64) -> Vec<f32> {
    let whole = 1i64 << heads.max(1).ilog2();
    let (even, odd) = (2f64.powf(-max_bias / whole as f64), 2f64.powf(-max_bias / 2.0 / whole as f64));
    let slope = |h: i64| if h < whole { even.powi(h as i32 + 1) } else { odd.powi((2 * (h - whole) + 1) as i32) };
    (0..heads).map(|h| slope(h) as f32).collect()
}

/// `slope(head) * mask`, `[ne0, ne1, heads, ne3 of the mask]`: the mask repeats over heads.
pub(super) fn sloped(lower: &mut Lower, mask: &TensorArg, heads: i64, max_bias: f64) -> Result<TensorArg, Unsupported> {
    super::steps::listed(heads)?;
    let slopes = lower.constant_f32(&slopes(heads, max_bias), &[1, 1, heads, 1]);
    let out = lower.scratch(ACL_FLOAT, &[mask.ne[0], mask.ne[1], heads, mask.ne[3]]);
    let repeated = mask.ne[2];
    lower.mul(&mask.split(2, repeated), &slopes.split(2, repeated), &out.split(2, repeated))?;
    Ok(out)
}

/// Softmax of `scale x + mask` with sinks, into `out`. `x` and `out` are `[columns, rows, heads, batch]`.
pub(super) fn soft_max(
    lower: &mut Lower,
    x: &TensorArg,
    scale: f32,
    mask: Option<&TensorArg>,
    sinks: Option<&TensorArg>,
    out: &TensorArg,
) -> Result<(), Unsupported> {
    let columns = x.ne[0];
    let mut wide = x.ne.clone();
    wide[0] += i64::from(sinks.is_some());
    let softmax = |lower: &mut Lower, x: TensorArg, out: TensorArg| {
        lower.call(AclOp::aclnnSoftmax, [x.into(), Arg::I64(axis(0)), out.into()])
    };
    if mask.is_none() && sinks.is_none() && scale == 1.0 {
        return softmax(lower, x.clone(), out.clone());
    }
    let logits = lower.scratch(ACL_FLOAT, &wide);
    let own = logits.narrow(0, 0, columns);
    match mask {
        Some(mask) => {
            let [x, mask, own] = repeat_split(x, mask, &own);
            lower.add(&mask, &x, scale, &own)?;
        }
        None => lower.muls(x, scale, &own)?,
    }
    let Some(sinks) = sinks else { return softmax(lower, logits, out.clone()) };
    let column = sinks.view(&[1, 1, x.ne[2], 1], &[4, 4, sinks.nb[0], sinks.nb[0]], 0);
    lower.call(AclOp::aclnnInplaceCopy, [logits.narrow(0, columns, 1).into(), column.into()])?;
    let all = lower.scratch(ACL_FLOAT, &wide);
    softmax(lower, logits, all.clone())?;
    lower.assign(out, &all.narrow(0, 0, columns))
}

fn plan(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let (x, out) = (cx.src(0).arg()?, cx.dst.arg()?);
    let mask = match cx.opt(1) {
        Some(mask) => {
            let rows = mask.arg()?.narrow(1, 0, x.ne[1]);
            let max_bias = cx.params().f64("max_bias");
            Some(if max_bias > 0.0 { sloped(lower, &rows, x.ne[2], max_bias)? } else { rows })
        }
        None => None,
    };
    let sinks = cx.opt(2).map(|s| s.arg()).transpose()?;
    soft_max(lower, &x, cx.params().f32("scale"), mask.as_ref(), sinks.as_ref(), &out)
}

/// Infinity is added above the diagonal where x was set to zero first, so that no infinity of x meets it.
fn plan_diag_mask(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let (x, out) = (cx.src(0).arg()?, cx.dst.arg()?);
    let (ne0, ne1) = (x.ne[0], x.ne[1]);
    // Diagonals further out than the corners are all the same.
    let n_past = cx.params().i64("n_past").clamp(-ne1, ne0);
    let key = format!("diag_mask {ne0} {ne1} {n_past}");
    let mem = lower.shared(key, (ne0 * ne1 * 4) as u64, |lower, mem| {
        let t = super::steps::packed(mem, ACL_FLOAT, &[ne0, ne1]);
        lower.fill_scalar(&t, f32::NEG_INFINITY)?;
        lower.call(AclOp::aclnnInplaceTriu, [t.into(), Arg::I64(n_past + 1)])
    })?;
    let above = super::steps::packed(mem, ACL_FLOAT, &[ne0, ne1]);
    lower.call(AclOp::aclnnTril, [x.into(), Arg::I64(n_past), out.clone().into()])?;
    lower.call(AclOp::aclnnInplaceAdd, [out.into(), above.into(), super::steps::ONE])
}
