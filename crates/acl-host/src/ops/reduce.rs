//! Sums, means, norms and prefix sums along dims.
//!
//! Elements are cast to the result's type first and added in blocks whose partial sums are kept in f64, so that the length of
//! a row costs no precision.

use super::check::*;
use super::elementwise::BLOCK;
use crate::executor::{Checked, Op, Refusal, Run};
use crate::tensor::{DType, Domain, Lane, MAX_RANK, Scalar, Tensor, View};

/// A tensor seen as `kept` results of `reduced` elements each.
#[derive(Clone, Copy)]
struct Reduction {
    /// Kept dims, then reduced ones.
    rows: View,
    /// Reduced dims, then kept ones.
    columns: View,
    kept: usize,
    reduced: usize,
    /// Whether neighbours in memory belong to different results.
    across: bool,
    out: View,
}

impl Reduction {
    /// Checks `dims` (none means all) and the output's shape.
    fn new(x: &Tensor, dims: &[i64], keep: bool, out: &Tensor) -> Result<Reduction, Refusal> {
        not_packed("self", x)?;
        not_packed("out", out)?;
        let mut gone = [dims.is_empty(); MAX_RANK];
        for &dim in dims {
            let axis = axis(dim, x)?;
            ensure(!std::mem::replace(&mut gone[axis], true), || format!("dim {axis} is named twice"))?;
        }
        let rank = x.rank();
        let shape: Vec<usize> =
            (0..rank).filter(|&d| keep || !gone[d]).map(|d| if gone[d] { 1 } else { x.dim(d) }).collect();
        shape_is("out", out, &shape)?;
        let mut order = [0; MAX_RANK];
        let mut count = 0;
        for which in [false, true] {
            for d in (0..rank).filter(|&d| gone[d] == which) {
                order[count] = d;
                count += 1;
            }
        }
        let split = (0..rank).filter(|&d| !gone[d]).count();
        let rows = x.permuted(&order[..rank]);
        order[..rank].rotate_left(split);
        let columns = x.permuted(&order[..rank]);
        let nearest = (0..rank).filter(|&d| x.dim(d) > 1).min_by_key(|&d| x.strides()[d].unsigned_abs());
        Ok(Reduction {
            rows: rows.collapsed(),
            columns: columns.collapsed(),
            kept: out.numel(),
            reduced: (0..rank).filter(|&d| gone[d]).map(|d| x.dim(d)).product(),
            across: nearest.is_some_and(|d| !gone[d]),
            out: out.collapsed(),
        })
    }

    /// `out = finish(sum of f(x))`, with `f` on blocks.
    fn sum(&self, run: &Run, f: impl Fn(&mut [f32]) + Sync, finish: impl Fn(f64) -> f64 + Sync) {
        self.blocks::<f32, f64>(
            run,
            |x| {
                f(x);
                f64::from(sum_block(x))
            },
            |x, sums| {
                f(x);
                sums.iter_mut().zip(x).for_each(|(s, x)| *s += f64::from(*x));
            },
            |a, b| a + b,
            &|out, at, sums| sums.iter().enumerate().for_each(|(i, s)| out.set(at + i, finish(*s))),
        );
    }

    /// The loop: partial results of blocks of a row, or of blocks of neighbouring rows, combined.
    fn blocks<N: Lane, S: Copy + Default + Send>(
        &self,
        run: &Run,
        row: impl Fn(&mut [N]) -> S + Sync,
        column: impl Fn(&mut [N], &mut [S]) + Sync,
        combine: impl Fn(S, S) -> S + Sync,
        write: &(dyn Fn(&View, usize, &[S]) + Sync),
    ) {
        if self.across {
            run.split(self.kept, ((32 << 10) / self.reduced.max(1)).max(16), |range| {
                let mut block = [N::default(); BLOCK];
                for at in range.clone().step_by(BLOCK) {
                    let len = BLOCK.min(range.end - at);
                    let mut sums = [S::default(); BLOCK];
                    for r in 0..self.reduced {
                        self.columns.read_copy(r * self.kept + at, &mut block[..len]);
                        column(&mut block[..len], &mut sums[..len]);
                    }
                    write(&self.out, at, &sums[..len]);
                }
            });
        } else {
            run.split_rows(self.kept, self.reduced, |range| {
                let mut block = [N::default(); BLOCK];
                for at in range {
                    let mut sum = S::default();
                    for start in (0..self.reduced).step_by(BLOCK) {
                        let len = BLOCK.min(self.reduced - start);
                        self.rows.read_copy(at * self.reduced + start, &mut block[..len]);
                        sum = combine(sum, row(&mut block[..len]));
                    }
                    write(&self.out, at, &[sum]);
                }
            });
        }
    }
}

/// In sixteen strands, which vector code adds at once.
fn sum_block(x: &[f32]) -> f32 {
    let mut strands = [0f32; 16];
    let mut chunks = x.chunks_exact(16);
    for chunk in &mut chunks {
        for (s, x) in strands.iter_mut().zip(chunk) {
            *s += x;
        }
    }
    strands.iter().sum::<f32>() + chunks.remainder().iter().sum::<f32>()
}

pub(crate) fn aclnnReduceSum(self_: &Tensor, dims: &[i64], keep_dims: bool, dtype: DType, out: &Tensor) -> Checked {
    dtype_is("out", out, dtype)?;
    let reduction = Reduction::new(self_, dims, keep_dims, out)?;
    if out.is_empty() {
        return Ok(Op::nothing());
    }
    Ok(match dtype.domain() {
        Domain::F32 if self_.dtype() != DType::F64 => Op::new(0, move |run| reduction.sum(run, |_| (), |s| s)),
        Domain::F32 | Domain::F64 => Op::new(0, move |run| {
            reduction.blocks::<f64, f64>(
                run,
                |x| x.iter().sum(),
                |x, sums| sums.iter_mut().zip(x).for_each(|(s, x)| *s += *x),
                |a, b| a + b,
                &|out, at, sums| out.write(at, sums),
            );
        }),
        Domain::I64 => Op::new(0, move |run| {
            reduction.blocks::<i64, i64>(
                run,
                |x| x.iter().fold(0, |s, x| s.wrapping_add(*x)),
                |x, sums| sums.iter_mut().zip(x).for_each(|(s, x)| *s = s.wrapping_add(*x)),
                i64::wrapping_add,
                &|out, at, sums| out.write(at, sums),
            );
        }),
    })
}

pub(crate) fn aclnnMean(self_: &Tensor, dim: &[i64], keep_dim: bool, dtype: DType, out: &Tensor) -> Checked {
    ensure(dtype.is_float(), || format!("a mean of type {dtype:?}"))?;
    dtype_is("out", out, dtype)?;
    let reduction = Reduction::new(self_, dim, keep_dim, out)?;
    if out.is_empty() {
        return Ok(Op::nothing());
    }
    let count = reduction.reduced as f64;
    Ok(Op::new(0, move |run| reduction.sum(run, |_| (), |s| s / count)))
}

pub(crate) fn aclnnNorm(self_: &Tensor, p_scalar: &Scalar, dim: &[i64], keepdim: bool, out: &Tensor) -> Checked {
    is_flt("self", self_)?;
    convertible(self_.dtype(), out)?;
    let reduction = Reduction::new(self_, dim, keepdim, out)?;
    if out.is_empty() {
        return Ok(Op::nothing());
    }
    let p = p_scalar.f64();
    let each = |f: fn(f32) -> f32| move |x: &mut [f32]| x.iter_mut().for_each(|x| *x = f(*x));
    Ok(match p {
        0.0 => Op::new(0, move |run| reduction.sum(run, each(|x| f32::from(u8::from(x != 0.0))), |s| s)),
        1.0 => Op::new(0, move |run| reduction.sum(run, each(f32::abs), |s| s)),
        _ if p.is_infinite() => Op::new(0, move |run| {
            // Magnitudes are not negative, so one less than all of them can start the fold.
            let better = move |a: f32, b: f32| if a.is_nan() || ((a > b) == (p > 0.0) && a != b) { a } else { b };
            let start = if p > 0.0 { 0.0 } else { f32::INFINITY };
            reduction.blocks::<f32, Option<f32>>(
                run,
                |x| Some(x.iter().fold(start, |s, x| better(x.abs(), s))),
                |x, sums| {
                    sums.iter_mut().zip(x).for_each(|(s, x)| *s = Some(better(x.abs(), s.unwrap_or(start))));
                },
                |a, b| Some(better(a.unwrap_or(start), b.unwrap_or(start))),
                &|out, at, sums| sums.iter().enumerate().for_each(|(i, s)| out.set(at + i, s.unwrap_or(0.0))),
            );
        }),
        2.0 => Op::new(0, move |run| {
            reduction.blocks::<f64, f64>(
                run,
                |x| x.iter().map(|x| x * x).sum(),
                |x, sums| sums.iter_mut().zip(x).for_each(|(s, x)| *s += *x * *x),
                |a, b| a + b,
                &|out, at, sums| sums.iter().enumerate().for_each(|(i, s)| out.set(at + i, s.sqrt())),
            );
        }),
        _ => Op::new(0, move |run| {
            reduction.blocks::<f64, f64>(
                run,
                |x| x.iter().map(|x| x.abs().powf(p)).sum(),
                |x, sums| sums.iter_mut().zip(x).for_each(|(s, x)| *s += x.abs().powf(p)),
                |a, b| a + b,
                &|out, at, sums| sums.iter().enumerate().for_each(|(i, s)| out.set(at + i, s.powf(1.0 / p))),
            );
        }),
    })
}

pub(crate) fn aclnnCumsum(self_: &Tensor, dim: i64, dtype: DType, out: &Tensor) -> Checked {
    not_packed("self", self_)?;
    dtype_is("out", out, dtype)?;
    shape_is("out", out, self_.dims())?;
    let axis = axis(dim, self_)?;
    if out.is_empty() {
        return Ok(Op::nothing());
    }
    let (x, out) = match self_.rank() {
        0 => (self_.with_unit_dim(0), out.with_unit_dim(0)),
        _ => (self_.axis_last(axis), out.axis_last(axis)),
    };
    Ok(if dtype.domain() == Domain::I64 {
        Op::new(0, move |run| running(run, x, out, i64::wrapping_add))
    } else {
        Op::new(0, move |run| running(run, x, out, |a: f64, b| a + b))
    })
}

fn running<N: Lane>(run: &Run, x: View, out: View, add: impl Fn(N, N) -> N + Sync) {
    let len = x.row_len();
    let (rows, x, out) = (x.rows(), x.collapsed(), out.collapsed());
    run.split_rows(rows, len, |range| {
        let mut block = [N::default(); BLOCK];
        for row in range {
            let mut sum = N::default();
            for start in (0..len).step_by(BLOCK) {
                let block = &mut block[..BLOCK.min(len - start)];
                x.read_copy(row * len + start, block);
                for b in block.iter_mut() {
                    sum = add(sum, *b);
                    *b = sum;
                }
                out.write(row * len + start, block);
            }
        }
    });
}
