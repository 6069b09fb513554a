//! Triangular systems.

use super::check::{broadcast, ensure, shape_is};
use super::norm::{Rows, lend, scratch_rows};
use crate::executor::{Checked, Op, Refusal, bytes_of};
use crate::tensor::{DType, MAX_RANK, Tensor, broadcast_shape};

/// Solves `A x = b` for each batch, `b` being `self`; `mOut` becomes a copy of `A`. Computed in f64, rounded once.
pub(crate) fn aclnnTriangularSolve(
    self_: &Tensor,
    a: &Tensor,
    upper: bool,
    transpose: bool,
    unitriangular: bool,
    x_out: &Tensor,
    m_out: &Tensor,
) -> Checked {
    let (b, a, x, m) = (self_.view(), a.view(), x_out.view(), m_out.view());
    for (name, view) in [("self", &b), ("A", &a), ("xOut", &x), ("mOut", &m)] {
        ensure(matches!(view.dtype(), DType::F32 | DType::F64) && view.dtype() == b.dtype(), || {
            format!("{name} is {:?}, needed is F32 or F64, all alike", view.dtype())
        })?;
        ensure(view.rank() >= 2, || format!("{name} has {} dims, needed are 2 or more", view.rank()))?;
    }
    let (n, columns) = (b.dim(b.rank() - 2), b.row_len());
    ensure(a.dims()[a.rank() - 2..] == [n, n], || format!("A of {:?} does not fit self of {:?}", a.dims(), b.dims()))?;
    let batch = broadcast_shape(&b.dims()[..b.rank() - 2], &a.dims()[..a.rank() - 2]);
    let batch = batch.filter(|batch| batch.len() <= MAX_RANK - 2);
    let Some(batch) = batch else {
        return Err(Refusal::invalid(format!("batches of {:?} and {:?} do not broadcast", b.dims(), a.dims())));
    };
    let with = |tail: [usize; 2]| [&batch[..], &tail].concat();
    shape_is("xOut", &x, &with([n, columns]))?;
    shape_is("mOut", &m, &with([n, n]))?;
    let (b, a) = (broadcast("self", &b, x.dims())?, broadcast("A", &a, m.dims())?);
    if m.is_empty() {
        return Ok(Op::nothing());
    }
    let batches = m.numel() / (n * n);
    let plan = Rows::with_cost(batches, 0, n * n * columns.max(1));
    let pieces = batches.min(plan.pieces());
    let bytes = bytes_of::<f64>(pieces * n * n) + bytes_of::<f64>(pieces * n * columns);
    // The transpose of an upper triangle is solved from the top.
    let from_top = upper == transpose;
    Ok(Op::new(bytes, move |run| {
        let matrices = scratch_rows::<f64>(run, pieces, n * n);
        let solutions = scratch_rows::<f64>(run, pieces, n * columns);
        let each = batches.div_ceil(pieces);
        run.team.run(pieces, &|piece| {
            let (matrix, solution) = (lend::<f64>(&matrices, piece), lend::<f64>(&solutions, piece));
            for batch in piece * each..((piece + 1) * each).min(batches) {
                a.read_copy(batch * n * n, matrix);
                m.write(batch * n * n, matrix);
                if columns == 0 {
                    continue;
                }
                b.read_copy(batch * n * columns, solution);
                let at = |row: usize, column: usize| {
                    if transpose { matrix[column * n + row] } else { matrix[row * n + column] }
                };
                for step in 0..n {
                    let i = if from_top { step } else { n - 1 - step };
                    let known = if from_top { 0..i } else { i + 1..n };
                    for j in known {
                        let factor = at(i, j);
                        let (low, high) = solution.split_at_mut(i.max(j) * columns);
                        let (low, high) = (&mut low[i.min(j) * columns..][..columns], &mut high[..columns]);
                        let (own, other) = if i < j { (low, high) } else { (high, low) };
                        own.iter_mut().zip(other).for_each(|(own, other)| *own -= factor * *other);
                    }
                    if !unitriangular {
                        let pivot = at(i, i);
                        solution[i * columns..][..columns].iter_mut().for_each(|v| *v /= pivot);
                    }
                }
                x.write(batch * n * columns, solution);
            }
        });
    }))
}
