//! Image resizing, `(N, C, H, W)`.

use super::check::{ensure, rank_is, shape_is};
use super::norm::Rows;
use crate::executor::{Checked, Op, Refusal};
use crate::tensor::{DType, Domain, Lane, Tensor, View};

fn resized(x: &View, out: &View, output_size: &[i64]) -> Result<(), Refusal> {
    rank_is("self", x, 4)?;
    ensure(out.dtype() == x.dtype(), || format!("out is {:?} for self of {:?}", out.dtype(), x.dtype()))?;
    let size = match output_size {
        [h, w] => [*h, *w].map(|d| usize::try_from(d).unwrap_or(0)),
        _ => return Err(Refusal::invalid(format!("outputSize has {} numbers, needed are 2", output_size.len()))),
    };
    ensure(!size.contains(&0) && !x.dims()[1..].contains(&0), || {
        format!("outputSize is {output_size:?} for self of {:?}", x.dims())
    })?;
    shape_is("out", out, &[x.dim(0), x.dim(1), size[0], size[1]])
}

/// Each output takes the input under its corner: `min(floor(o * in / out), in - 1)` in f32.
pub(crate) fn aclnnUpsampleNearest2d(self_: &Tensor, output_size: &[i64], out: &Tensor) -> Checked {
    let (x, out) = (self_.view(), out.view());
    ensure(x.dtype().is_float() || x.dtype() == DType::U8, || {
        format!("self is {:?}, needed is F32, F16, BF16, F64 or U8", x.dtype())
    })?;
    resized(&x, &out, output_size)?;
    if out.is_empty() {
        return Ok(Op::nothing());
    }
    Ok(match x.dtype().domain() {
        Domain::F32 => nearest::<f32>(x, out),
        Domain::F64 => nearest::<f64>(x, out),
        Domain::I64 => nearest::<i64>(x, out),
    })
}

fn nearest<N: Lane>(x: View, out: View) -> Op {
    let sources = |axis: usize| -> Vec<usize> {
        let (own, len) = (x.dim(axis), out.dim(axis));
        let scale = own as f32 / len as f32;
        (0..len).map(|o| ((o as f32 * scale) as usize).min(own - 1)).collect()
    };
    let (ys, xs) = (sources(2), sources(3));
    let (height, width, len) = (x.dim(2), x.dim(3), out.dim(3));
    let plan = Rows::new(out.rows(), width.max(len));
    Op::new(plan.bytes::<N>(2), move |run| {
        plan.each::<N, 2>(run, |line, [row, to]| {
            let (plane, y) = (line / ys.len(), ys[line % ys.len()]);
            let row = x.read((plane * height + y) * width, &mut row[..width]);
            let to = &mut to[..len];
            to.iter_mut().zip(&xs).for_each(|(to, &from)| *to = row[from]);
            out.write(line * len, to);
        });
    })
}

/// Two inputs and the weight of the second.
#[derive(Clone, Copy)]
struct Between {
    low: usize,
    high: usize,
    weight: f64,
}

/// Linear on both axes, between pixel centres or, with `align_corners`, between corners. A scale above 0 is how much larger
/// the output is, else the sizes tell.
pub(crate) fn aclnnUpsampleBilinear2d(
    self_: &Tensor,
    output_size: &[i64],
    align_corners: bool,
    scales_h: f64,
    scales_w: f64,
    out: &Tensor,
) -> Checked {
    let (x, out) = (self_.view(), out.view());
    ensure(x.dtype().is_float(), || format!("self is {:?}, needed is F32, F16, BF16 or F64", x.dtype()))?;
    resized(&x, &out, output_size)?;
    if out.is_empty() {
        return Ok(Op::nothing());
    }
    let places = |axis: usize, given: f64| -> Vec<Between> {
        let (own, len) = (x.dim(axis), out.dim(axis));
        let step = match align_corners {
            true if len == 1 => 0.0,
            true => (own - 1) as f64 / (len - 1) as f64,
            false if given > 0.0 => 1.0 / given,
            false => own as f64 / len as f64,
        };
        let place = |o: usize| {
            let at = if align_corners { o as f64 * step } else { ((o as f64 + 0.5) * step - 0.5).max(0.0) };
            let low = (at as usize).min(own - 1);
            Between { low, high: (low + 1).min(own - 1), weight: (at - low as f64).clamp(0.0, 1.0) }
        };
        (0..len).map(place).collect()
    };
    let (ys, xs) = (places(2, scales_h), places(3, scales_w));
    let (height, width, len) = (x.dim(2), x.dim(3), out.dim(3));
    let plan = Rows::with_cost(out.rows(), width.max(len), len * 8);
    Ok(Op::new(plan.bytes::<f64>(3), move |run| {
        plan.each::<f64, 3>(run, |line, [upper, lower, to]| {
            let (plane, y) = (line / ys.len(), ys[line % ys.len()]);
            let row = |y: usize| (plane * height + y) * width;
            let upper = x.read(row(y.low), &mut upper[..width]);
            let lower = x.read(row(y.high), &mut lower[..width]);
            let to = &mut to[..len];
            for (to, x) in to.iter_mut().zip(&xs) {
                let along = |row: &[f64]| row[x.low] + (row[x.high] - row[x.low]) * x.weight;
                let (a, b) = (along(upper), along(lower));
                *to = a + (b - a) * y.weight;
            }
            out.write(line * len, to);
        });
    }))
}
