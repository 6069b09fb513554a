//! Triangular matrices: TRI DIAG SOLVE_TRI.

use acl_sys::*;

use super::*;
use crate::lower::Arg;

const TYPES: &[GgmlType] = &[GgmlType::F32, GgmlType::F16, GgmlType::Bf16, GgmlType::I32];
const NAMES: &str = "f32, f16, bf16, i32";

pub(super) static OPS: &[OpDef] = &[
    OpDef {
        name: "TRI",
        src: &["x"],
        params: &[ParamDef {
            name: "type",
            default: Default::Str("lower"),
            doc: "'lower', 'lower_diag', 'upper' or 'upper_diag'",
        }],
        doc: "x where column < row (lower), <= (lower_diag), > (upper) or >= (upper_diag), 0 elsewhere",
        types: NAMES,
        infer: |cx| {
            cx.is(0, TYPES)?;
            let ty = cx.params.str("type").unwrap_or_default();
            cx.require(triangle(ty).is_some(), || {
                format!("type must be 'lower', 'lower_diag', 'upper' or 'upper_diag', not '{ty}'")
            })?;
            cx.like(0)
        },
        plan: |cx, lower| {
            let (op, diagonal) =
                triangle(cx.params().str("type").unwrap_or_default()).expect("inference checked the type");
            lower.call(op, [cx.src(0).arg()?.into(), Arg::I64(diagonal), cx.dst.arg()?.into()])
        },
    },
    OpDef {
        name: "DIAG",
        src: &["x"],
        params: &[],
        doc: "each row as the diagonal of a matrix of zeros",
        types: NAMES,
        infer: |cx| {
            cx.is(0, TYPES)?;
            let x = cx.src(0);
            cx.require(x.ne[1] == 1, || "x must have one row (ne1 = 1)".into())?;
            cx.packed(x.ty, [x.ne[0], x.ne[0], x.ne[2], x.ne[3]])
        },
        plan: |cx, lower| {
            let (x, out) = (cx.src(0).arg()?, cx.dst.arg()?);
            lower.fill_scalar(&out, 0.0)?;
            let diagonal = out.view(&x.ne, &[out.nb[0] + out.nb[1], out.nb[1], out.nb[2], out.nb[3]], 0);
            lower.assign(&diagonal, &x)
        },
    },
    OpDef {
        name: "SOLVE_TRI",
        src: &["a", "b"],
        params: &[],
        doc: "the matrix X with a X = b, a lower triangular with its rows along ne1",
        types: "f32",
        infer: |cx| {
            cx.is(0, &[GgmlType::F32])?;
            cx.is(1, &[GgmlType::F32])?;
            let (a, b) = (cx.src(0), cx.src(1));
            cx.require(a.ne[0] == a.ne[1], || "a must be square".into())?;
            cx.require(a.ne[1..] == b.ne[1..], || "b must have a's extents in dimensions 1 to 3".into())?;
            cx.like(1)
        },
        plan: |cx, lower| {
            let (a, b, out) = (cx.src(0).arg()?, cx.src(1).arg()?, cx.dst.arg()?);
            let copy = lower.scratch_like(&a, ACL_FLOAT);
            let flags = [(); 3].map(|()| Arg::Bool(false));
            let args = [b.into(), a.into()].into_iter().chain(flags).chain([out.into(), copy.into()]);
            lower.call(AclOp::aclnnTriangularSolve, args)
        },
    },
];

/// The operator, and the diagonal that bounds what it keeps.
fn triangle(ty: &str) -> Option<(AclOp, i64)> {
    Some(match ty {
        "lower" => (AclOp::aclnnTril, -1),
        "lower_diag" => (AclOp::aclnnTril, 0),
        "upper" => (AclOp::aclnnTriu, 1),
        "upper_diag" => (AclOp::aclnnTriu, 0),
        _ => return None,
    })
}
