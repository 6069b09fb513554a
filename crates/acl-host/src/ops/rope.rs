//! Rotary position embedding: `y = x * cos + rot(x) * sin`, where `rot` swaps the members of each pair and negates the first.

use super::check::{broadcast, contiguous, ensure, is_flt, rank_is, shape_is};
use super::elementwise::{load, store};
use super::matmul::not_on_inference_cards;
use super::norm::Rows;
use crate::executor::{Checked, Op, Refusal};
use crate::kernels::rows::{self, RopePairs, RowFns};
use crate::tensor::Tensor;

/// The documented limit on the last dim.
const MAX_D: usize = 1024;

/// Which elements of a row of `d` make a pair.
#[derive(Clone, Copy)]
enum Mode {
    /// `i` with `i + d/2`.
    Half,
    /// `2i` with `2i + 1`.
    Interleave,
    /// Each half of the row by itself as in `Half`.
    Quarter,
    /// The even elements move to the front half and the odd ones behind, then as in `Half`.
    InterleaveHalf,
}

impl Mode {
    fn from_code(code: i64) -> Option<Mode> {
        [Mode::Half, Mode::Interleave, Mode::Quarter, Mode::InterleaveHalf].get(usize::try_from(code).ok()?).copied()
    }

    fn rotate(self, f: &RowFns, x: &[f32], cos: &[f32], sin: &[f32], out: &mut [f32], spare: &mut [f32]) {
        match self {
            Mode::Half => f.rope(RopePairs::Half, x, cos, sin, out),
            Mode::Interleave => f.rope(RopePairs::Interleaved, x, cos, sin, out),
            Mode::Quarter => {
                let h = x.len() / 2;
                let (front, back) = out.split_at_mut(h);
                f.rope(RopePairs::Half, &x[..h], &cos[..h], &sin[..h], front);
                f.rope(RopePairs::Half, &x[h..], &cos[h..], &sin[h..], back);
            }
            Mode::InterleaveHalf => {
                let h = x.len() / 2;
                for (i, pair) in x.chunks_exact(2).enumerate() {
                    (spare[i], spare[i + h]) = (pair[0], pair[1]);
                }
                f.rope(RopePairs::Half, spare, cos, sin, out);
            }
        }
    }
}

pub(crate) fn aclnnRotaryPositionEmbedding(x: &Tensor, cos: &Tensor, sin: &Tensor, mode: i64, out: &Tensor) -> Checked {
    not_on_inference_cards()?;
    let (x, cos, sin, y) = (x.view(), cos.view(), sin.view(), out.view());
    is_flt("x", &x)?;
    for (name, view) in [("x", &x), ("cos", &cos), ("sin", &sin), ("out", &y)] {
        rank_is(name, view, 4)?;
        ensure(view.dtype() == x.dtype(), || format!("{name} is {:?} for x of {:?}", view.dtype(), x.dtype()))?;
    }
    shape_is("out", &y, x.dims())?;
    shape_is("sin", &sin, cos.dims())?;
    contiguous("out", &y)?;
    let mode = Mode::from_code(mode).ok_or_else(|| Refusal::invalid(format!("mode is {mode}, known are 0 to 3")))?;
    let d = x.dim(3);
    let unit = if matches!(mode, Mode::Quarter) { 4 } else { 2 };
    ensure(d.is_multiple_of(unit) && d <= MAX_D, || {
        format!("the last dim is {d}, needed is a multiple of {unit} up to {MAX_D}")
    })?;
    ensure(cos.dim(3) == d, || format!("cos has {} elements in a row, x has {d}", cos.dim(3)))?;
    let (cos, sin) = (broadcast("cos", &cos, x.dims())?, broadcast("sin", &sin, x.dims())?);
    if x.is_empty() {
        return Ok(Op::nothing());
    }
    let plan = Rows::new(x.rows(), d);
    let alias = x.overlaps(&y);
    Ok(Op::new(plan.bytes::<f32>(5), move |run| {
        let f = rows::current();
        plan.each::<f32, 5>(run, |row, [xs, cs, ss, ys, spare]| {
            let start = row * d;
            let xs = load(&x, alias, start, xs);
            let (cs, ss) = (cos.read(start, cs), sin.read(start, ss));
            store(&y, start, ys, |ys| mode.rotate(f, xs, cs, ss, ys, spare));
        });
    }))
}
