//! Convolution and its unfolding.
//!
//! Both directions are products: the weights times a matrix whose columns hold, for each output position, the input values
//! it sees. Which those are is a table for each axis, made in phase one; the two directions differ in that table only. One
//! and two dims are computed as three.

use acl_sys::{ACL_FORMAT_NCDHW, ACL_FORMAT_NCHW, ACL_FORMAT_NCL};

use super::check::{ensure, is_flt, not_packed, rank_is, shape_is};
use super::elementwise::store;
use super::matmul::{Bytes, cube_takes, is_inference_card, threads};
use super::norm::{Rows, lend, scratch_rows, whole, whole_bytes};
use crate::executor::{Checked, Op, Refusal, bytes_of};
use crate::kernels::matmul::{self as kernel, DenseView, OutView, Problem, Weights};
use crate::tensor::{DType, Domain, Lane, Tensor, View};

/// Values of the unfolded input that a thread works on at a time: about half of a second-level cache.
const BLOCK_VALUES: usize = 64 << 10;
const MIN_POSITIONS: usize = 32;
const MAX_POSITIONS: usize = 1024;

/// Which input place kernel place `k` of output position `o` sees; none is padding.
#[derive(Clone)]
struct Axis {
    input: usize,
    kernel: usize,
    output: usize,
    sources: Vec<Option<u32>>,
}

impl Axis {
    fn unit() -> Axis {
        Axis { input: 1, kernel: 1, output: 1, sources: vec![Some(0)] }
    }

    fn new(input: usize, kernel: usize, output: usize, source: impl Fn(usize, usize) -> Option<usize>) -> Axis {
        let at = |k, o| source(k, o).filter(|&i| i < input).and_then(|i| u32::try_from(i).ok());
        let sources = (0..kernel).flat_map(|k| (0..output).map(move |o| (k, o))).map(|(k, o)| at(k, o)).collect();
        Axis { input, kernel, output, sources }
    }

    /// A window that moves over the padded input.
    fn window(input: usize, kernel: usize, output: usize, p: Placing) -> Axis {
        Axis::new(input, kernel, output, |k, o| (o * p.stride + k * p.dilation).checked_sub(p.begin))
    }

    /// The other direction: input `i` reaches output `i * stride + k * dilation - begin`.
    fn spread(input: usize, kernel: usize, output: usize, p: Placing) -> Axis {
        Axis::new(input, kernel, output, |k, o| {
            let at = (o + p.begin).checked_sub(k * p.dilation)?;
            at.is_multiple_of(p.stride).then_some(at / p.stride)
        })
    }

    /// The sources of kernel place `k`, by output position.
    fn of(&self, k: usize) -> &[Option<u32>] {
        &self.sources[k * self.output..][..self.output]
    }
}

/// How a kernel lies on an axis.
#[derive(Clone, Copy)]
struct Placing {
    stride: usize,
    dilation: usize,
    begin: usize,
    end: usize,
    output_padding: usize,
}

impl Placing {
    /// Output positions of a moving window.
    fn window_len(&self, input: usize, kernel: usize) -> Option<usize> {
        let reach = self.dilation.checked_mul(kernel.checked_sub(1)?)?.checked_add(1)?;
        Some((input.checked_add(self.begin)?.checked_add(self.end)?).checked_sub(reach)? / self.stride + 1)
    }

    fn spread_len(&self, input: usize, kernel: usize) -> Option<usize> {
        let reach =
            self.dilation.checked_mul(kernel.checked_sub(1)?)?.checked_add(self.output_padding)?.checked_add(1)?;
        input
            .checked_sub(1)?
            .checked_mul(self.stride)?
            .checked_add(reach)?
            .checked_sub(self.begin.checked_add(self.end)?)
    }
}

/// `values` as one number per axis, all at least `least`.
fn per_axis(name: &str, values: &[i64], axes: usize, least: usize) -> Result<Vec<usize>, Refusal> {
    let given: Option<Vec<usize>> = values.iter().map(|&v| usize::try_from(v).ok().filter(|v| *v >= least)).collect();
    given
        .filter(|v| v.len() == axes && v.iter().all(|v| *v <= u32::MAX as usize))
        .ok_or_else(|| Refusal::invalid(format!("{name} is {values:?}, needed are {axes} numbers from {least} on")))
}

/// Padding before and after each axis; one number per axis stands for both sides.
fn both_sides(values: &[i64], axes: usize) -> Result<Vec<(usize, usize)>, Refusal> {
    if axes < 3 && values.len() == 2 * axes {
        let sides = per_axis("padding", values, 2 * axes, 0)?;
        return Ok(sides.chunks_exact(2).map(|side| (side[0], side[1])).collect());
    }
    Ok(per_axis("padding", values, axes, 0)?.into_iter().map(|p| (p, p)).collect())
}

pub(crate) fn aclnnConvolution(
    input: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    stride: &[i64],
    padding: &[i64],
    dilation: &[i64],
    transposed: bool,
    output_padding: &[i64],
    groups: i64,
    output: &Tensor,
    cube_math_type: i8,
) -> Checked {
    let (x, weight, out) = (input.view(), weight.view(), output.view());
    cube_takes(cube_math_type, [x.dtype(), weight.dtype()])?;
    ensure((3..=5).contains(&x.rank()), || format!("input has {} dims, needed are 3 to 5", x.rank()))?;
    let axes = x.rank() - 2;
    ensure(!(is_inference_card() && (axes == 3 || transposed)), || {
        "this chip convolves forward, one or two dims".into()
    })?;
    let format = [ACL_FORMAT_NCL, ACL_FORMAT_NCHW, ACL_FORMAT_NCDHW][axes - 1];
    for (name, view) in [("input", &x), ("weight", &weight), ("output", &out)] {
        is_flt(name, view)?;
        rank_is(name, view, axes + 2)?;
        ensure(view.format() == format, || {
            format!("{name} has format {}, needed is {format} for {} dims", view.format(), axes + 2)
        })?;
    }
    let strides = per_axis("stride", stride, axes, 1)?;
    let dilations = per_axis("dilation", dilation, axes, 1)?;
    let paddings = both_sides(padding, axes)?;
    // Forward convolutions have none, and some callers pass an empty array then.
    let output_paddings = match (transposed, output_padding) {
        (false, _) => vec![0; axes],
        (true, given) => per_axis("outputPadding", given, axes, 0)?,
    };

    let (n, channels) = (x.dim(0), x.dim(1));
    let groups = usize::try_from(groups).ok().filter(|&g| g > 0 && channels.is_multiple_of(g));
    let groups =
        groups.ok_or_else(|| Refusal::invalid(format!("{channels} channels do not divide in these groups")))?;
    let inputs = channels / groups;
    let (outputs, fits) = match transposed {
        false => (weight.dim(0) / groups, weight.dim(1) == inputs && weight.dim(0).is_multiple_of(groups)),
        true => (weight.dim(1), weight.dim(0) == channels),
    };
    ensure(fits, || format!("weight of {:?} does not fit {channels} channels in {groups} groups", weight.dims()))?;

    let mut space = vec![Axis::unit(); 3 - axes];
    for i in 0..axes {
        let (begin, end) = paddings[i];
        let place =
            Placing { stride: strides[i], dilation: dilations[i], begin, end, output_padding: output_paddings[i] };
        ensure(place.output_padding == 0 || place.output_padding < place.stride.max(place.dilation), || {
            format!("outputPadding {} reaches stride and dilation", place.output_padding)
        })?;
        let (own, kernel) = (x.dim(2 + i), weight.dim(2 + i));
        let len = if transposed { place.spread_len(own, kernel) } else { place.window_len(own, kernel) };
        let len = len.filter(|&len| len > 0 && own <= u32::MAX as usize);
        let len =
            len.ok_or_else(|| Refusal::invalid(format!("a kernel of {kernel} does not fit an input of {own}")))?;
        ensure(out.dim(2 + i) == len, || {
            format!("output has {} places on axis {i}, needed are {len}", out.dim(2 + i))
        })?;
        let build = if transposed { Axis::spread } else { Axis::window };
        space.push(build(own, kernel, len, place));
    }
    let bias = bias.map(Tensor::view);
    if let Some(bias) = &bias {
        is_flt("bias", bias)?;
        shape_is("bias", bias, &[outputs * groups])?;
    }
    ensure(out.dim(0) == n && out.dim(1) == outputs * groups, || {
        format!("output has shape {:?}, needed are {n} images of {} channels", out.dims(), outputs * groups)
    })?;
    if out.is_empty() {
        return Ok(Op::nothing());
    }
    ensure(inputs > 0, || "input has no channels".into())?;

    // Rows are outputs; columns are inputs, then kernel places.
    let taps: usize = space.iter().map(|axis| axis.kernel).product();
    let depth = inputs * taps;
    let space: [Axis; 3] = match space.try_into() {
        Ok(space) => space,
        Err(_) => unreachable!("there are three axes"),
    };
    let positions: usize = space.iter().map(|axis| axis.output).product();
    let block = (BLOCK_VALUES / depth).clamp(MIN_POSITIONS, MAX_POSITIONS).min(positions);
    let blocks = positions.div_ceil(block);
    let threads = threads();
    let kernel_bytes = bytes_of::<u8>(kernel::scratch_bytes(1, outputs, block, depth));
    let row_len = space[2].input;
    let bytes = bytes_of::<f32>(groups * outputs * depth)
        + whole_bytes::<f32>(bias.as_ref())
        + bytes_of::<f32>(threads * depth * block)
        + bytes_of::<f32>(threads * outputs * block)
        + bytes_of::<f32>(threads * row_len)
        + bytes_of::<u8>(threads * kernel_bytes);
    let unfold = Unfold { x, space, row_len };
    Ok(Op::new(bytes, move |run| {
        let matrix = scratch_rows::<f32>(run, groups * outputs, depth);
        run.split_rows(groups * outputs, depth, |rows| {
            for row in rows {
                let to = lend::<f32>(&matrix, row);
                if !transposed {
                    weight.read_copy(row * depth, to);
                    continue;
                }
                let (group, o) = (row / outputs, row % outputs);
                for (c, to) in to.chunks_exact_mut(taps).enumerate() {
                    weight.read_copy(((group * inputs + c) * outputs + o) * taps, to);
                }
            }
        });
        let bias = whole::<f32>(run, bias.as_ref());
        let columns = scratch_rows::<f32>(run, threads, depth * block);
        let sums = scratch_rows::<f32>(run, threads, outputs * block);
        let rows = scratch_rows::<f32>(run, threads, row_len);
        let scratch = run.take::<u8>(threads * kernel_bytes);
        let scratch = Bytes::of(scratch);
        run.team.run_slots(n * groups * blocks, &|chunk, slot| {
            let (image, group, first) = (chunk / (groups * blocks), chunk / blocks % groups, chunk % blocks * block);
            let len = block.min(positions - first);
            let columns = &mut lend::<f32>(&columns, slot)[..depth * len];
            let row = lend::<f32>(&rows, slot);
            for (c, columns) in columns.chunks_exact_mut(taps * len).enumerate() {
                unfold.channel(image * channels + group * inputs + c, first, columns, row);
            }
            let sums = &mut lend::<f32>(&sums, slot)[..outputs * len];
            let own = matrix.slice::<f32>(group * outputs * depth, outputs * depth).unwrap_or_default();
            let operands = DenseView::from_f32(own, outputs, depth).zip(DenseView::from_f32(columns, depth, len));
            if let Some(((x, w), out)) = operands.zip(OutView::from_f32(sums, outputs, len)) {
                let scratch = scratch.write(slot * kernel_bytes..(slot + 1) * kernel_bytes);
                kernel::matmul_alone(Problem { x, w: Weights::Dense(w.transposed()), out }, scratch);
            }
            for (o, sums) in sums.chunks_exact_mut(len).enumerate() {
                let o = group * outputs + o;
                if let Some(bias) = bias {
                    sums.iter_mut().for_each(|v| *v += bias[o]);
                }
                out.write((image * groups * outputs + o) * positions + first, sums);
            }
        });
    }))
}

/// An input seen through a kernel.
struct Unfold {
    /// Images, channels, then up to three axes.
    x: View,
    space: [Axis; 3],
    row_len: usize,
}

impl Unfold {
    /// The values that output positions from `first` on see of plane `plane` (images and channels counted through): a row
    /// of positions for each kernel place. `row` is scratch for a row of the input.
    fn channel<N: Lane>(&self, plane: usize, first: usize, columns: &mut [N], row: &mut [N]) {
        let [zs, ys, xs] = &self.space;
        let taps = zs.kernel * ys.kernel * xs.kernel;
        let len = columns.len() / taps;
        for (outer, columns) in columns.chunks_exact_mut(xs.kernel * len).enumerate() {
            let (z_sources, y_sources) = (zs.of(outer / ys.kernel), ys.of(outer % ys.kernel));
            let mut done = 0;
            // Positions come in pieces of one output row.
            while done < len {
                let at = first + done;
                let (line, from) = (at / xs.output, at % xs.output);
                let piece = (xs.output - from).min(len - done);
                let source = z_sources[line / ys.output].zip(y_sources[line % ys.output]);
                let input = source.map(|(z, y)| {
                    let start = ((plane * zs.input + z as usize) * ys.input + y as usize) * self.row_len;
                    self.x.read(start, &mut *row)
                });
                for (kx, column) in columns.chunks_exact_mut(len).enumerate() {
                    let to = &mut column[done..done + piece];
                    match input {
                        None => to.fill(N::default()),
                        Some(input) => {
                            for (to, source) in to.iter_mut().zip(&xs.of(kx)[from..]) {
                                *to = source.map_or(N::default(), |i| input[i as usize]);
                            }
                        }
                    }
                }
                done += piece;
            }
        }
    }
}

/// Rows of kernel places, columns of output positions: `out[n, (c, ky, kx), position]`.
pub(crate) fn aclnnIm2col(
    self_: &Tensor,
    kernel_size: &[i64],
    dilation: &[i64],
    padding: &[i64],
    stride: &[i64],
    out: &Tensor,
) -> Checked {
    let (x, out) = (self_.view(), out.view());
    not_packed("self", &x)?;
    ensure(x.dtype() == out.dtype() && x.dtype() != DType::Bool, || {
        format!("self is {:?} and out {:?}, needed is one type of number", x.dtype(), out.dtype())
    })?;
    ensure(matches!(x.rank(), 3 | 4), || format!("self has {} dims, needed are 3 or 4", x.rank()))?;
    let lead = x.rank() - 2;
    let kernel = per_axis("kernelSize", kernel_size, 2, 1)?;
    let dilations = per_axis("dilation", dilation, 2, 1)?;
    let paddings = per_axis("padding", padding, 2, 0)?;
    let strides = per_axis("stride", stride, 2, 1)?;
    let mut space = [Axis::unit(), Axis::unit(), Axis::unit()];
    for i in 0..2 {
        let (begin, own) = (paddings[i], x.dim(lead + i));
        let place = Placing { stride: strides[i], dilation: dilations[i], begin, end: begin, output_padding: 0 };
        let len = place.window_len(own, kernel[i]).filter(|_| own <= u32::MAX as usize);
        let len =
            len.ok_or_else(|| Refusal::invalid(format!("a kernel of {} does not fit an input of {own}", kernel[i])))?;
        space[1 + i] = Axis::window(own, kernel[i], len, place);
    }
    let taps = kernel[0] * kernel[1];
    let positions = space[1].output * space[2].output;
    let shape = [&x.dims()[..lead - 1], &[x.dim(lead - 1) * taps, positions]].concat();
    shape_is("out", &out, &shape)?;
    if out.is_empty() {
        return Ok(Op::nothing());
    }
    let row_len = space[2].input;
    let unfold = Unfold { x, space, row_len };
    let planes = out.numel() / (taps * positions);
    Ok(match x.dtype().domain() {
        Domain::F32 => im2col::<f32>(unfold, out, planes, taps, positions),
        Domain::F64 => im2col::<f64>(unfold, out, planes, taps, positions),
        Domain::I64 => im2col::<i64>(unfold, out, planes, taps, positions),
    })
}

fn im2col<N: Lane>(unfold: Unfold, out: View, planes: usize, taps: usize, positions: usize) -> Op {
    let size = taps * positions;
    let plan = Rows::new(planes, size.max(unfold.row_len));
    Op::new(plan.bytes::<N>(2), move |run| {
        plan.each::<N, 2>(run, |plane, [values, row]| {
            let row = &mut row[..unfold.row_len];
            store(&out, plane * size, &mut values[..size], |values| unfold.channel(plane, 0, values, row));
        });
    })
}
