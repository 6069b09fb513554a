//! OUT_PROD.

use super::mul_mat::{product, weights_and_batches};
use super::*;

pub(super) static OPS: &[OpDef] = &[OpDef {
    name: "OUT_PROD",
    src: &["a", "b"],
    params: &[],
    doc: "sum over k of a[i, k, s/r2, t/r3] b[j, k, s, t] at [i, j, s, t], with r2 = b.ne2/a.ne2, r3 = b.ne3/a.ne3",
    types: "a any float or block type; b f32, f16, bf16; the result is f32",
    infer: |cx| {
        let (a, b) = (cx.src(0), cx.src(1));
        cx.require(a.ne[1] == b.ne[1], || "a and b must have as many rows".into())?;
        weights_and_batches(cx)?;
        cx.packed(GgmlType::F32, [a.ne[0], b.ne[0], b.ne[2], b.ne[3]])
    },
    plan: |cx, lower| {
        let out = cx.dst.arg()?;
        if cx.src(0).ne[1] == 0 {
            return lower.fill_scalar(&out, 0.0);
        }
        let a = cx.src(0).values(lower)?;
        let b = cx.src(1).arg()?.permuted(&[1, 0, 2, 3]);
        product(lower, &b, &a, &out)
    },
}];
