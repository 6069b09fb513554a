//! SET_ROWS: rows written into a tensor by index, as KV caches are.

use acl_sys::*;

use super::operand::axis;
use super::*;
use crate::lower::{Arg, TensorArg};
use crate::refuse;

pub(super) static OPS: &[OpDef] = &[OpDef {
    name: "SET_ROWS",
    src: &["rows", "ids", "into"],
    params: &[],
    doc: "row ids[i, j mod ids.ne1, k mod ids.ne2] of into[:, :, j, k] becomes rows[:, i, j, k]; the result is `into`",
    types: "rows f32, f16, bf16; ids i64, i32; into f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, and by the host q2_K, q3_K, q4_K, q5_K, q6_K, iq4_nl, iq4_xs",
    infer,
    plan,
}];

fn infer(cx: &InferCx) -> Result<Inferred, Error> {
    cx.float(0)?;
    cx.is(1, &[GgmlType::I64, GgmlType::I32])?;
    let (rows, ids, into) = (cx.src(0), cx.src(1), cx.src(2));
    let shapes = rows.ne[0] == into.ne[0] && rows.ne[2] == into.ne[2] && rows.ne[3] == into.ne[3];
    cx.require(shapes, || "rows and into must agree in extents 0, 2 and 3".into())?;
    let divides = (1..3).all(|d| ids.ne[d] > 0 && rows.ne[d + 1] % ids.ne[d] == 0);
    cx.require(ids.ne[0] == rows.ne[1] && divides && ids.ne[3] == 1, || {
        "ids must be [rows.ne1, a divisor of rows.ne2, a divisor of rows.ne3]".into()
    })?;
    Ok(Inferred { ty: into.ty, ne: into.ne, nb: into.nb, view: Some((2, 0)) })
}

fn plan(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let (rows, ids, into) = (cx.src(0), cx.src(1).arg()?, cx.src(2));
    if rows.is_empty() {
        return Ok(());
    }
    match into.layout {
        Layout::Plain => {
            let into = into.arg()?;
            let rows = lower.to_dtype(&rows.arg()?, into.dtype)?;
            scatter(lower, &into, &ids, &rows)
        }
        Layout::Blocks => {
            lower.note(format!("quantised to {} on the device", into.ty.name()));
            let x = rows.as_f32(lower)?;
            let Some(nb) = contiguous_nb(into.ty, rows.ne) else {
                refuse!("rows of {} that do not fill blocks", into.ty.name())
            };
            let mut blocks = Operand { ty: into.ty, ne: rows.ne, nb, offset: 0, leaf: false, ..into.clone() };
            blocks.mem = lower.temp(blocks.packed_bytes());
            super::quantise::quantise(lower, &x, &blocks)?;
            scatter(lower, &super::copy::block_rows(into)?, &ids, &super::copy::block_rows(&blocks)?)
        }
        layout => {
            lower.note(format!("quantised to {} on the device", into.ty.name()));
            let x = rows.as_f32(lower)?;
            let row = |t: TensorArg| t.merged(0).expect("groups of a row follow each other");
            let (quants, scales, offsets) = (into.packed_quants()?, into.scales()?, into.offsets()?);
            let like = |lower: &mut Lower, t: &TensorArg| {
                lower.scratch(t.dtype, &[t.ne[0], t.ne[1], x.ne[1], x.ne[2], x.ne[3]])
            };
            let (q, s) = (like(lower, &quants), like(lower, &scales));
            let o = offsets.as_ref().map(|t| like(lower, t));
            super::quantise::quantise_groups(lower, layout, &x.split(0, Operand::GROUP), &q, &s, o.as_ref())?;
            scatter(lower, &row(quants), &ids, &row(q))?;
            scatter(lower, &row(scales), &ids, &row(s))?;
            match (offsets, o) {
                (Some(into), Some(o)) => scatter(lower, &row(into), &ids, &row(o)),
                _ => Ok(()),
            }
        }
    }
}

/// All batches at once where they share their indices, else one call each.
fn scatter(lower: &mut Lower, into: &TensorArg, ids: &TensorArg, rows: &TensorArg) -> Result<(), Unsupported> {
    let mut write = |into: TensorArg, index: TensorArg, rows: TensorArg| {
        lower.call(AclOp::aclnnInplaceIndexCopy, [into.into(), Arg::I64(axis(1)), index.into(), rows.into()])
    };
    let index = |j: i64, k: i64| ids.at(3, 0).at(2, k).at(1, j);
    if ids.ne[1] == 1 && ids.ne[2] == 1 {
        let flat = |t: &TensorArg| if t.ne[2] == 1 && t.ne[3] == 1 { t.at(3, 0).at(2, 0) } else { t.clone() };
        return write(flat(into), index(0, 0), flat(rows));
    }
    for k in 0..rows.ne[3] {
        for j in 0..rows.ne[2] {
            let matrix = |t: &TensorArg| t.at(3, k).at(2, j);
            write(matrix(into), index(j % ids.ne[1], k % ids.ne[2]), matrix(rows))?;
        }
    }
    Ok(())
}
