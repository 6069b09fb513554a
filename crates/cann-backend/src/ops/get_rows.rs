//! GET_ROWS: rows are gathered first and converted after, so a large table costs only the rows that are asked for.

use super::*;
use crate::lower::TensorArg;
use crate::refuse;

pub(super) static OPS: &[OpDef] = &[OpDef {
    name: "GET_ROWS",
    src: &["table", "ids"],
    params: &[],
    doc: "table[:, ids[i, j, k], j, k]; block types and 16-bit floats come out as f32",
    types: "any; ids i32",
    infer,
    plan,
}];

fn infer(cx: &InferCx) -> Result<Inferred, Error> {
    cx.is(1, &[GgmlType::I32, GgmlType::I64])?;
    let (table, ids) = (cx.src(0), cx.src(1));
    let batches = ids.ne[1] == table.ne[2] && ids.ne[2] == table.ne[3] && ids.ne[3] == 1;
    cx.require(batches, || "ids must be [n, table.ne2, table.ne3]".into())?;
    let ty = if table.ty == GgmlType::I32 { GgmlType::I32 } else { GgmlType::F32 };
    cx.packed(ty, [table.ne[0], ids.ne[0], ids.ne[1], ids.ne[2]])
}

fn plan(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let (table, ids, out) = (cx.src(0), cx.src(1).arg()?, cx.dst.arg()?);
    if table.layout == Layout::Blocks && super::blocks::decodes(table.ty) {
        let Some(nb) = contiguous_nb(table.ty, cx.dst.ne) else {
            refuse!("rows of {} that do not fill blocks", table.ty.name())
        };
        let mut rows = Operand { ne: cx.dst.ne, nb, offset: 0, leaf: false, ..table.clone() };
        rows.mem = lower.temp(rows.packed_bytes());
        gather_batches(lower, &super::copy::block_rows(table)?, &ids, &super::copy::block_rows(&rows)?)?;
        let values = super::blocks::decode(lower, &rows)?;
        return lower.assign(&out, &values);
    }
    // Everything that is gathered, as tables `[row, n, ne2, ne3]`.
    let parts: Vec<TensorArg> = match table.layout {
        Layout::Plain | Layout::Blocks => vec![table.values(lower)?],
        _ => {
            let groups = [Some(table.packed_quants()?), Some(table.scales()?), table.offsets()?];
            groups.into_iter().flatten().map(|t| t.merged(0).expect("groups of a row follow each other")).collect()
        }
    };
    let direct = parts.len() == 1 && parts[0].dtype == out.dtype;
    let gathered: Vec<TensorArg> = if direct {
        vec![out.clone()]
    } else {
        parts.iter().map(|p| lower.scratch(p.dtype, &[p.ne[0], out.ne[1], out.ne[2], out.ne[3]])).collect()
    };
    for (part, rows) in parts.iter().zip(&gathered) {
        gather_batches(lower, part, &ids, rows)?;
    }
    if direct {
        return Ok(());
    }
    if parts.len() == 1 {
        return lower.assign(&out, &gathered[0]);
    }
    let group = |t: &TensorArg| t.split(0, t.ne[0] / (table.ne[0] / Operand::GROUP));
    let offsets = gathered.get(2).map(group);
    let out = out.split(0, Operand::GROUP);
    lower.dequantise(table.layout, &group(&gathered[0]), &group(&gathered[1]), offsets.as_ref(), &out)
}

/// `rows[:, i, j, k] = table[:, ids[i, j, k], j, k]`.
fn gather_batches(lower: &mut Lower, table: &TensorArg, ids: &TensorArg, rows: &TensorArg) -> Result<(), Unsupported> {
    for k in 0..table.ne[3] {
        for j in 0..table.ne[2] {
            let matrix = |t: &TensorArg| t.at(3, k).at(2, j);
            lower.gather(&matrix(table), &ids.at(3, 0).at(2, k).at(1, j), &matrix(rows))?;
        }
    }
    Ok(())
}
