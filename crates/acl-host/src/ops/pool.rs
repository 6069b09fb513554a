//! Pooling over images `(N, C, H, W)` or `(C, H, W)`.

use super::check::{ensure, is_flt, shape_is};
use super::matmul::not_on_inference_cards;
use super::norm::Rows;
use crate::executor::{Checked, Op, Refusal};
use crate::tensor::{Tensor, View};

/// Windows along one axis.
#[derive(Clone, Copy)]
struct Windows {
    input: usize,
    kernel: usize,
    stride: usize,
    begin: usize,
    end: usize,
    output: usize,
}

impl Windows {
    fn new(
        input: usize,
        kernel: usize,
        stride: usize,
        begin: usize,
        end: usize,
        ceil: bool,
    ) -> Result<Windows, Refusal> {
        let room = (input + begin + end).checked_sub(kernel);
        let room =
            room.ok_or_else(|| Refusal::invalid(format!("a window of {kernel} does not fit an input of {input}")))?;
        let mut output = if ceil { room.div_ceil(stride) } else { room / stride } + 1;
        // A window that would begin behind the input sees nothing.
        if ceil && (output - 1) * stride >= input + begin {
            output -= 1;
        }
        Ok(Windows { input, kernel, stride, begin, end, output })
    }

    /// The places of the input that window `o` sees, and how many it covers with its padding.
    fn of(&self, o: usize) -> (std::ops::Range<usize>, usize) {
        let start = o * self.stride;
        let stop = (start + self.kernel).min(self.input + self.begin + self.end);
        let low = start.saturating_sub(self.begin);
        let high = stop.saturating_sub(self.begin).min(self.input);
        (low..high.max(low), stop - start)
    }
}

/// One or two numbers; one stands for both axes.
fn pair(name: &str, values: &[i64], least: i64) -> Result<[usize; 2], Refusal> {
    let pair = match values {
        [both] => [*both, *both],
        [h, w] => [*h, *w],
        _ => return Err(Refusal::invalid(format!("{name} has {} numbers, needed are 1 or 2", values.len()))),
    };
    ensure(pair.iter().all(|v| (least..=i64::from(i32::MAX)).contains(v)), || {
        format!("{name} is {values:?}, needed are numbers from {least} on")
    })?;
    Ok(pair.map(|v| v as usize))
}

fn is_image(name: &str, view: &View) -> Result<(), Refusal> {
    is_flt(name, view)?;
    ensure(matches!(view.rank(), 3 | 4), || format!("{name} has {} dims, needed are 3 or 4", view.rank()))
}

pub(crate) fn aclnnAvgPool2d(
    self_: &Tensor,
    kernel_size: &[i64],
    strides: &[i64],
    paddings: &[i64],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: i64,
    cube_math_type: i8,
    out: &Tensor,
) -> Checked {
    let (x, y) = (self_.view(), out.view());
    is_image("self", &x)?;
    is_flt("out", &y)?;
    ensure((0..=4).contains(&cube_math_type), || format!("cubeMathType is {cube_math_type}, known are 0 to 4"))?;
    let kernel = pair("kernelSize", kernel_size, 1)?;
    let stride = if strides.is_empty() { kernel } else { pair("strides", strides, 1)? };
    let padding = if paddings.is_empty() { [0; 2] } else { pair("paddings", paddings, 0)? };
    ensure((0..2).all(|i| padding[i] <= kernel[i] / 2), || {
        format!("paddings {padding:?} are more than half of the kernel {kernel:?}")
    })?;
    let lead = x.rank() - 2;
    let axis = |i: usize| Windows::new(x.dim(lead + i), kernel[i], stride[i], padding[i], padding[i], ceil_mode);
    let (rows, cols) = (axis(0)?, axis(1)?);
    pooled(
        x,
        y,
        rows,
        cols,
        0.0,
        |sum, v| sum + v,
        move |sum, seen, covered| {
            let count = match divisor_override {
                0 if count_include_pad => covered as f32,
                0 => seen as f32,
                given => given as f32,
            };
            sum / count
        },
    )
}

pub(crate) fn aclnnMaxPool(
    self_: &Tensor,
    kernel_shape: &[i64],
    strides: &[i64],
    auto_pad: i64,
    pads: &[i64],
    dilations: &[i64],
    ceil_mode: i64,
    out: &Tensor,
) -> Checked {
    not_on_inference_cards()?;
    let (x, y) = (self_.view(), out.view());
    is_image("self", &x)?;
    ensure(y.dtype() == x.dtype(), || format!("out is {:?} for self of {:?}", y.dtype(), x.dtype()))?;
    ensure(auto_pad == 0, || format!("autoPad is {auto_pad}, needed is 0"))?;
    ensure(dilations.iter().all(|d| *d == 1), || format!("dilations are {dilations:?}, needed are ones"))?;
    let kernel = pair("kernelShape", kernel_shape, 1)?;
    let stride = if strides.is_empty() { [1; 2] } else { pair("strides", strides, 1)? };
    let (begin, end) = match pads {
        [] => ([0; 2], [0; 2]),
        [begin @ .., _, _] if begin.len() == 2 => (pair("pads", begin, 0)?, pair("pads", &pads[2..], 0)?),
        _ => (pair("pads", pads, 0)?, pair("pads", pads, 0)?),
    };
    ensure((0..2).all(|i| begin[i] + end[i] <= kernel[i]), || format!("pads {pads:?} exceed the kernel {kernel:?}"))?;
    let lead = x.rank() - 2;
    let axis = |i: usize| Windows::new(x.dim(lead + i), kernel[i], stride[i], begin[i], end[i], ceil_mode != 0);
    let (rows, cols) = (axis(0)?, axis(1)?);
    let greater = |max: f32, v: f32| if v > max || v.is_nan() { v } else { max };
    pooled(x, y, rows, cols, f32::NEG_INFINITY, greater, |max, _, _| max)
}

/// `finish(fold of the values seen, how many they are, how many places the window covers)` for each window.
fn pooled(
    x: View,
    y: View,
    rows: Windows,
    cols: Windows,
    start: f32,
    fold: impl Fn(f32, f32) -> f32 + Send + Sync + 'static,
    finish: impl Fn(f32, usize, usize) -> f32 + Send + Sync + 'static,
) -> Checked {
    let lead = x.rank() - 2;
    shape_is("out", &y, &[&x.dims()[..lead], &[rows.output, cols.output]].concat())?;
    if y.is_empty() {
        return Ok(Op::nothing());
    }
    let lines = y.rows();
    let plan = Rows::with_cost(lines, cols.input.max(cols.output), cols.output * rows.kernel * cols.kernel);
    Ok(Op::new(plan.bytes::<f32>(2), move |run| {
        plan.each::<f32, 2>(run, |line, [row, sums]| {
            let (plane, o) = (line / rows.output, line % rows.output);
            let (seen_rows, covered_rows) = rows.of(o);
            let sums = &mut sums[..cols.output];
            sums.fill(start);
            for r in seen_rows.clone() {
                let row = x.read((plane * rows.input + r) * cols.input, &mut row[..cols.input]);
                for (o, sum) in sums.iter_mut().enumerate() {
                    *sum = row[cols.of(o).0].iter().fold(*sum, |sum, v| fold(sum, *v));
                }
            }
            for (o, sum) in sums.iter_mut().enumerate() {
                let (seen, covered) = cols.of(o);
                *sum = finish(*sum, seen_rows.len() * seen.len(), covered_rows * covered);
            }
            y.write(line * cols.output, sums);
        });
    }))
}
