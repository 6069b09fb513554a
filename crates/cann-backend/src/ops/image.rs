//! Windows over planes and lines: UPSCALE POOL_2D IM2COL CONV_TRANSPOSE_1D.

use acl_sys::*;

use super::operand::packed_nb;
use super::steps::ONE;
use super::tile::{pad_constant, pick};
use super::*;
use crate::graph::checked_ne;
use crate::lower::{Arg, TensorArg};
use crate::refuse;

macro_rules! number {
    ($name:literal, $default:expr, $doc:literal) => {
        ParamDef { name: $name, default: $default, doc: $doc }
    };
}

pub(super) static OPS: &[OpDef] = &[
    OpDef {
        name: "UPSCALE",
        src: &["x"],
        params: &[
            number!("mode", Default::Str("nearest"), "'nearest', 'bilinear' or 'bicubic'"),
            number!("align_corners", Default::Bool(false), "corner elements keep their places"),
            number!("antialias", Default::Bool(false), "bilinear only: each result weighs all of x that it covers"),
        ],
        doc: "x at other extents, `result.ne`; dimensions 2 and 3 always take the nearest element",
        types: "f32, f16, bf16; nearest also i32",
        infer: infer_upscale,
        plan: plan_upscale,
    },
    OpDef {
        name: "POOL_2D",
        src: &["x"],
        params: &[
            number!("op", Default::Str("max"), "'max' or 'avg'"),
            number!("k0", Default::Required, "columns of a window"),
            number!("k1", Default::Required, "rows of a window"),
            number!("s0", Default::Required, "columns from window to window"),
            number!("s1", Default::Required, "rows from window to window"),
            number!("p0", Default::Num(0.0), "columns added on both sides"),
            number!("p1", Default::Num(0.0), "rows added on both sides"),
        ],
        doc: "the largest of each window, or its sum over k0 k1; what is added counts as 0 for 'avg' and never wins for 'max'",
        types: "f32, f16, bf16; the result is f32",
        infer: infer_pool,
        plan: plan_pool,
    },
    OpDef {
        name: "IM2COL",
        src: &["kernel", "x"],
        params: &[
            number!("s0", Default::Num(1.0), "columns from window to window"),
            number!("s1", Default::Num(1.0), "rows from window to window"),
            number!("p0", Default::Num(0.0), "columns of zeros added on both sides"),
            number!("p1", Default::Num(0.0), "rows of zeros added on both sides"),
            number!("d0", Default::Num(1.0), "distance of a window's columns"),
            number!("d1", Default::Num(1.0), "distance of a window's rows"),
            number!("is_2D", Default::Bool(true), "x is [w, h, channels, n], else [w, channels, n]"),
        ],
        doc: "the windows of x that a kernel of this shape sees: [k0 k1 channels, columns, rows, n], or [k0 channels, columns, n]",
        types: "x f32, f16, bf16; the result is of these, x's if `result.type` is not given",
        infer: infer_im2col,
        plan: plan_im2col,
    },
    OpDef {
        name: "CONV_TRANSPOSE_1D",
        src: &["kernel", "x"],
        params: &[
            number!("s0", Default::Num(1.0), "distance of neighbours of x in the result"),
            number!("p0", Default::Num(0.0), "must be 0"),
            number!("d0", Default::Num(1.0), "must be 1"),
        ],
        doc: "sum over l, c of kernel[i - l s0, o, c] x[l, c] at [i, o]; kernel [k, out, in], x [l, in]",
        types: "kernel f32, f16, bf16; x f32",
        infer: infer_conv_transpose,
        plan: plan_conv_transpose,
    },
];

fn infer_upscale(cx: &InferCx) -> Result<Inferred, Error> {
    let mode = cx.params.str("mode").unwrap_or_default();
    match mode {
        "nearest" => cx.is(0, &[GgmlType::F32, GgmlType::F16, GgmlType::Bf16, GgmlType::I32])?,
        "bilinear" | "bicubic" => cx.float(0)?,
        _ => return Err(cx.err(format!("mode must be 'nearest', 'bilinear' or 'bicubic', not '{mode}'"))),
    }
    let Some(ne) = &cx.result.ne else { return Err(cx.err("result.ne must say the extents")) };
    let ne = checked_ne(ne)?;
    let sizes = (0..4).all(|d| (cx.src(0).ne[d] == 0) == (ne[d] == 0) && ne[d].max(cx.src(0).ne[d]) < 1 << 24);
    cx.require(sizes, || format!("the result's extents {ne:?} must be 1 to 2^24, as x's"))?;
    cx.packed(cx.src(0).ty, ne)
}

/// Weights of a line are a matrix that the host makes: no more than 64 MiB of it.
const LARGEST_WEIGHTS: i64 = 1 << 24;

/// How a line of `from` elements becomes one of `to`.
#[derive(Clone, Copy)]
struct Resize {
    from: i64,
    to: i64,
    /// Result elements per element; in f32, because the nearest element depends on how it is rounded.
    scale: f32,
    /// Half an element unless corners are aligned.
    shift: f64,
}

impl Resize {
    fn new(from: i64, to: i64, align_corners: bool) -> Resize {
        let scale = if align_corners && to > 1 && from > 1 {
            (to - 1) as f32 / (from - 1) as f32
        } else {
            to as f32 / from as f32
        };
        Resize { from, to, scale, shift: if align_corners { 0.0 } else { 0.5 } }
    }

    /// The element under each result's corner; none if nothing changes.
    fn nearest(self) -> Option<Vec<i32>> {
        let source = |i: i64| ((i as f32 / self.scale) as i64).min(self.from - 1) as i32;
        (self.from != self.to).then(|| (0..self.to).map(source).collect())
    }

    /// Weights of all elements for each result, result fastest.
    fn weights(self, of: impl Fn(Resize, i64, &mut dyn FnMut(i64, f64))) -> Vec<f32> {
        let mut all = vec![0f64; (self.from * self.to) as usize];
        for i in 0..self.to {
            of(self, i, &mut |from, weight| {
                all[(from.clamp(0, self.from - 1) * self.to + i) as usize] += weight;
            });
        }
        all.into_iter().map(|w| w as f32).collect()
    }

    /// Cubic convolution of the four nearest with a = -0.75.
    fn bicubic(self, i: i64, add: &mut dyn FnMut(i64, f64)) {
        const A: f64 = -0.75;
        let at = (i as f64 + self.shift) / f64::from(self.scale) - self.shift;
        let (first, t) = (at.floor() as i64 - 1, at - at.floor());
        let near = |x: f64| ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
        let far = |x: f64| ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A;
        let weights = [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)];
        (first..).zip(weights).for_each(|(from, weight)| add(from, weight));
    }

    /// A triangle as wide as a result element, at least as one of x.
    fn triangle(self, i: i64, add: &mut dyn FnMut(i64, f64)) {
        let scale = f64::from(self.scale);
        let support = (1.0 / scale).max(1.0);
        let at = (i as f64 + self.shift) / scale;
        let low = ((at - support + self.shift) as i64).max(0);
        let high = ((at + support + self.shift) as i64).min(self.from);
        let weight = |from: i64| (1.0 - ((from as f64 - at + self.shift) / support).abs()).max(0.0);
        let total: f64 = (low..high).map(weight).sum();
        if total > 0.0 {
            (low..high).for_each(|from| add(from, weight(from) / total));
        }
    }
}

fn plan_upscale(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let (x, out) = (cx.src(0).arg()?, cx.dst.arg()?);
    let align = cx.params().bool("align_corners");
    let mode = cx.params().str("mode").unwrap_or_default();
    // Only planes have corners to align.
    let lines = [0, 1, 2, 3].map(|d| Resize::new(x.ne[d], out.ne[d], align && d < 2));
    if mode == "nearest" {
        if (0..4).all(|d| out.ne[d] % x.ne[d] == 0) && !align {
            return spread(lower, &x, &out);
        }
        return pick(lower, &x, lines.map(Resize::nearest), &out);
    }
    let planes = [None, None, lines[2].nearest(), lines[3].nearest()];
    let x = if planes.iter().any(Option::is_some) {
        let picked = lower.scratch(x.dtype, &[x.ne[0], x.ne[1], out.ne[2], out.ne[3]]);
        pick(lower, &x, planes, &picked)?;
        picked
    } else {
        x
    };
    if mode == "bilinear" && !cx.params().bool("antialias") {
        let image = |t: &TensorArg| Arg::from(t.with_format(ACL_FORMAT_NCHW));
        let size = Arg::Ints(vec![out.ne[1], out.ne[0]]);
        let args = [image(&x), size, Arg::Bool(align), Arg::F64(0.0), Arg::F64(0.0), image(&out)];
        return lower.call(AclOp::aclnnUpsampleBilinear2d, args);
    }
    if let Some(line) = lines[..2].iter().find(|line| line.from * line.to > LARGEST_WEIGHTS) {
        refuse!("{} elements resized to {} take more than {LARGEST_WEIGHTS} weights", line.from, line.to);
    }
    let of = if mode == "bicubic" { Resize::bicubic } else { Resize::triangle };
    resample(lower, &x, [lines[0], lines[1]].map(|line| (line, line.weights(of))), &out)
}

/// Each element as a block of equal ones: one broadcast copy.
fn spread(lower: &mut Lower, x: &TensorArg, out: &TensorArg) -> Result<(), Unsupported> {
    let (mut x, mut out) = (x.clone(), out.clone());
    for d in (0..4).rev() {
        let times = out.ne[d] / x.ne[d];
        if times > 1 {
            out = out.split(d, times);
            x.ne.insert(d, 1);
            x.nb.insert(d, x.nb[d]);
        }
    }
    if x.ne == out.ne { lower.assign(&out, &x) } else { lower.call(AclOp::aclnnInplaceCopy, [out.into(), x.into()]) }
}

/// Rows, then columns, by products with matrices of weights.
fn resample(
    lower: &mut Lower,
    x: &TensorArg,
    [(across, across_weights), (down, down_weights)]: [(Resize, Vec<f32>); 2],
    out: &TensorArg,
) -> Result<(), Unsupported> {
    let x = lower.to_dtype(x, ACL_FLOAT)?;
    let x = lower.contiguous(&x)?;
    let result = if out.dtype == ACL_FLOAT { out.clone() } else { lower.scratch_like(out, ACL_FLOAT) };
    let weight = lower.constant_f32(&across_weights, &[across.to, across.from]);
    let rows = lower.scratch(ACL_FLOAT, &[across.to, x.ne[1], x.ne[2], x.ne[3]]);
    let tall = |t: &TensorArg| t.reshaped(&[t.ne[0], t.ne[1] * t.ne[2] * t.ne[3]]);
    product(lower, AclOp::aclnnMm, &tall(&x), &weight, &tall(&rows))?;
    let weight = lower.constant_f32(&down_weights, &[down.to, down.from]).permuted(&[1, 0]);
    let planes = |t: &TensorArg| t.reshaped(&[t.ne[0], t.ne[1], t.ne[2] * t.ne[3]]);
    product(lower, AclOp::aclnnMatmul, &weight, &planes(&rows), &planes(&result))?;
    if result == *out { Ok(()) } else { lower.assign(out, &result) }
}

/// ACL's product of two f32 operands: `out[m, n] = sum over k of right[m, k] left[k, n]` in ggml's order.
fn product(
    lower: &mut Lower,
    op: AclOp,
    left: &TensorArg,
    right: &TensorArg,
    out: &TensorArg,
) -> Result<(), Unsupported> {
    lower.call(op, [left.clone().into(), right.clone().into(), out.clone().into(), Arg::I8(cube(lower))])
}

/// f32 in the cube unit, or what is nearest to it on chips that have none.
fn cube(lower: &Lower) -> i8 {
    if lower.caps.f32_matmul { KEEP_DTYPE } else { ALLOW_FP32_DOWN_PRECISION }
}

/// Windows of `k` places, `d` apart, over `n` elements with `p` more on both sides, `s` from one to the next.
fn windows(cx: &InferCx, n: i64, [k, s, p, d]: [i64; 4]) -> Result<i64, Error> {
    let small = |v: i64, least: i64| (least..1 << 31).contains(&v);
    cx.require(small(k, 1) && small(s, 1) && small(p, 0) && small(d, 1), || {
        format!("windows, strides and dilations must be at least 1, paddings at least 0 (window {k}, stride {s}, padding {p}, dilation {d})")
    })?;
    // All factors are below 2^31.
    let room = n.saturating_add(2 * p) - d * (k - 1) - 1;
    cx.require(room >= 0, || format!("a window of {k} places does not fit {n} elements padded by {p}"))?;
    Ok(room / s + 1)
}

fn infer_pool(cx: &InferCx) -> Result<Inferred, Error> {
    cx.float(0)?;
    let op = cx.params.str("op").unwrap_or_default();
    cx.require(["max", "avg"].contains(&op), || format!("op must be 'max' or 'avg', not '{op}'"))?;
    let (x, p) = (cx.src(0), cx.params);
    let ne0 = windows(cx, x.ne[0], [p.i64("k0"), p.i64("s0"), p.i64("p0"), 1])?;
    let ne1 = windows(cx, x.ne[1], [p.i64("k1"), p.i64("s1"), p.i64("p1"), 1])?;
    cx.packed(GgmlType::F32, [ne0, ne1, x.ne[2], x.ne[3]])
}

fn plan_pool(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let (x, out, p) = (cx.src(0).arg()?, cx.dst.arg()?, cx.params());
    let (k, s) = ([p.i64("k0"), p.i64("k1")], [p.i64("s0"), p.i64("s1")]);
    let mut pads = [p.i64("p0"), p.i64("p1")];
    let average = p.str("op") == Some("avg");
    if cx.src(0).is_empty() {
        return lower.fill_scalar(&out, if average { 0.0 } else { -f32::MAX });
    }
    let mut x = lower.to_dtype(&x, ACL_FLOAT)?;
    // The averaging operator pads by up to half a window; the other one is not to see paddings at all.
    let inside = average && (0..2).all(|d| pads[d] <= k[d] / 2);
    if !inside && pads != [0, 0] {
        let ne = [x.ne[0] + 2 * pads[0], x.ne[1] + 2 * pads[1], x.ne[2], x.ne[3]];
        let padded = lower.scratch(ACL_FLOAT, &ne);
        let value = if average { 0.0 } else { -f32::MAX };
        pad_constant(lower, &x, &[(pads[0], pads[0]), (pads[1], pads[1])], value, &padded)?;
        (x, pads) = (padded, [0, 0]);
    }
    let image = |t: &TensorArg| Arg::from(t.with_format(ACL_FORMAT_NCHW));
    let pair = |v: [i64; 2]| Arg::Ints(vec![v[1], v[0]]);
    if average {
        let no = Arg::Bool(false);
        let args = [image(&x), pair(k), pair(s), pair(pads), no, Arg::Bool(true), Arg::I64(0)];
        return lower.call(AclOp::aclnnAvgPool2d, args.into_iter().chain([Arg::I8(cube(lower)), image(&out)]));
    }
    if lower.caps.max_pool {
        let ones = Arg::Ints(vec![1, 1]);
        let args = [image(&x), pair(k), pair(s), Arg::I64(0), Arg::Ints(vec![0; 4]), ones, Arg::I64(0), image(&out)];
        return lower.call(AclOp::aclnnMaxPool, args);
    }
    if k[0] + k[1] > 1024 {
        refuse!(
            "{} has no max pooling, and a window of {} by {} takes too many steps",
            lower.caps.soc_name,
            k[0],
            k[1]
        );
    }
    // Along rows, then down columns: a maximum of shifted views for each place of the window.
    let rows = lower.scratch(ACL_FLOAT, &[out.ne[0], x.ne[1], x.ne[2], x.ne[3]]);
    maximum_along(lower, &x, 0, k[0], s[0], &rows)?;
    maximum_along(lower, &rows, 1, k[1], s[1], &out)
}

fn maximum_along(
    lower: &mut Lower,
    x: &TensorArg,
    d: usize,
    k: i64,
    stride: i64,
    out: &TensorArg,
) -> Result<(), Unsupported> {
    let mut nb = x.nb.clone();
    nb[d] *= stride;
    let shifted = |place: i64| x.view(&out.ne, &nb, place * x.nb[d]);
    lower.assign(out, &shifted(0))?;
    (1..k).try_for_each(|place| {
        lower.call(AclOp::aclnnMaximum, [out.clone().into(), shifted(place).into(), out.clone().into()])
    })
}

fn infer_im2col(cx: &InferCx) -> Result<Inferred, Error> {
    cx.float(1)?;
    let (kernel, x, p) = (cx.src(0), cx.src(1), cx.params);
    let ty = cx.result.ty.unwrap_or(x.ty);
    cx.require(matches!(ty, GgmlType::F32 | GgmlType::F16 | GgmlType::Bf16), || {
        format!("the result must be f32, f16 or bf16, not {}", ty.name())
    })?;
    let columns = windows(cx, x.ne[0], [kernel.ne[0], p.i64("s0"), p.i64("p0"), p.i64("d0")])?;
    if !p.bool("is_2D") {
        cx.require(kernel.ne[1] == x.ne[1] && x.ne[3] == 1, || {
            "kernel and x must have the same ne1 (channels), x up to 3 dimensions".into()
        })?;
        return cx.packed(ty, [kernel.ne[1] * kernel.ne[0], columns, x.ne[2], 1]);
    }
    cx.require(kernel.ne[2] == x.ne[2], || "kernel and x must have the same ne2 (channels)".into())?;
    let rows = windows(cx, x.ne[1], [kernel.ne[1], p.i64("s1"), p.i64("p1"), p.i64("d1")])?;
    cx.packed(ty, [kernel.ne[2] * kernel.ne[1] * kernel.ne[0], columns, rows, x.ne[3]])
}

/// Windows are a view of the padded x with overlapping strides, so one copy writes them all, in the wanted type.
fn plan_im2col(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let (kernel, out, p) = (cx.src(0).ne, cx.dst.arg()?, cx.params());
    let mut x = cx.src(1).arg()?;
    let plane = p.bool("is_2D");
    let (k1, s1, p1, d1) = if plane {
        (kernel[1], p.i64("s1"), p.i64("p1"), p.i64("d1"))
    } else {
        // A line is a plane of one row; its channels are the planes.
        x = x.view(&[x.ne[0], 1, x.ne[1], x.ne[2]], &[x.nb[0], x.nb[1], x.nb[1], x.nb[2]], 0);
        (1, 1, 0, 1)
    };
    let (k0, s0, p0, d0) = (kernel[0], p.i64("s0"), p.i64("p0"), p.i64("d0"));
    if cx.src(1).is_empty() {
        return lower.fill_scalar(&out, 0.0);
    }
    if (p0, p1) != (0, 0) {
        let padded = lower.scratch(x.dtype, &[x.ne[0] + 2 * p0, x.ne[1] + 2 * p1, x.ne[2], x.ne[3]]);
        pad_constant(lower, &x, &[(p0, p0), (p1, p1)], 0.0, &padded)?;
        x = padded;
    }
    let (columns, rows) = (out.ne[1], if plane { out.ne[2] } else { 1 });
    let ne = [k0, k1, x.ne[2], columns, rows, x.ne[3]];
    let nb = [x.nb[0] * d0, x.nb[1] * d1, x.nb[2], x.nb[0] * s0, x.nb[1] * s1, x.nb[3]];
    lower.assign(&out.view(&ne, &packed_nb(out.dtype, &ne), 0), &x.view(&ne, &nb, 0))
}

fn infer_conv_transpose(cx: &InferCx) -> Result<Inferred, Error> {
    cx.float(0)?;
    cx.is(1, &[GgmlType::F32])?;
    let (kernel, x, p) = (cx.src(0), cx.src(1), cx.params);
    cx.require(x.ne[2..] == [1, 1] && kernel.ne[3] == 1, || "x has up to 2 dimensions, kernel up to 3".into())?;
    cx.require(kernel.ne[2] == x.ne[1], || "kernel.ne2 and x.ne1 must be the same (input channels)".into())?;
    cx.require(!kernel.is_empty() && !x.is_empty(), || "kernel and x must not be empty".into())?;
    cx.require(p.f64("p0") == 0.0 && p.f64("d0") == 1.0, || "p0 must be 0 and d0 must be 1".into())?;
    let s0 = p.i64("s0");
    cx.require((1..1 << 31).contains(&s0), || format!("s0 must be at least 1, not {s0}"))?;
    let len = (x.ne[0] - 1).checked_mul(s0).and_then(|n| n.checked_add(kernel.ne[0]));
    let len = len.ok_or_else(|| cx.err("the result is too long"))?;
    cx.packed(GgmlType::F32, [len, kernel.ne[1], 1, 1])
}

/// Longest kernel of one transposed convolution on an NPU.
const MAX_KERNEL: i64 = 255;

fn plan_conv_transpose(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let (kernel, x, out) = (cx.src(0).arg()?, cx.src(1).arg()?, cx.dst.arg()?);
    let kernel = lower.to_dtype(&kernel, ACL_FLOAT)?;
    let kernel = kernel.view(&kernel.ne[..3], &kernel.nb[..3], 0);
    let (k, s0) = (kernel.ne[0], cx.params().i64("s0"));
    let line = |t: &TensorArg| t.view(&[t.ne[0], t.ne[1], 1], &[t.nb[0], t.nb[1], t.nb[1] * t.ne[1]], 0);
    let (x, out) = (line(&x), line(&out));
    if !lower.caps.f32_matmul {
        return conv_transpose_by_products(lower, &kernel, &x, s0, &out);
    }
    let most = if lower.caps.relaxed { k } else { MAX_KERNEL };
    if k <= most {
        return conv_transpose(lower, &kernel, &x, s0, &out);
    }
    // A piece of the kernel reaches a piece of the result.
    lower.fill_scalar(&out, 0.0)?;
    for first in (0..k).step_by(most as usize) {
        let piece = kernel.narrow(0, first, most.min(k - first));
        let part = lower.scratch(ACL_FLOAT, &[(x.ne[0] - 1) * s0 + piece.ne[0], out.ne[1], 1]);
        conv_transpose(lower, &piece, &x, s0, &part)?;
        let reached = out.narrow(0, first, part.ne[0]);
        lower.call(AclOp::aclnnInplaceAdd, [reached.into(), part.into(), ONE])?;
    }
    Ok(())
}

fn conv_transpose(
    lower: &mut Lower,
    kernel: &TensorArg,
    x: &TensorArg,
    s0: i64,
    out: &TensorArg,
) -> Result<(), Unsupported> {
    let ncl = |t: &TensorArg| Arg::from(t.with_format(ACL_FORMAT_NCL));
    let one = |v: i64| Arg::Ints(vec![v]);
    let args = [ncl(x), ncl(kernel), Arg::NoTensor, one(s0), one(0), one(1), Arg::Bool(true), one(0), Arg::I64(1)];
    lower.call(AclOp::aclnnConvolution, args.into_iter().chain([ncl(out), Arg::I8(cube(lower))]))
}

/// On chips without transposed convolution: all products first, then one sum of shifted rows for each place of the kernel, or
/// for each of x, whichever are fewer.
fn conv_transpose_by_products(
    lower: &mut Lower,
    kernel: &TensorArg,
    x: &TensorArg,
    s0: i64,
    out: &TensorArg,
) -> Result<(), Unsupported> {
    let (k, channels, len) = (kernel.ne[0], kernel.ne[1], x.ne[0]);
    if k.min(len) > 1024 {
        refuse!("{} has no transposed convolution, and {} steps are too many", lower.caps.soc_name, k.min(len));
    }
    // [k out, l] = sum over in of kernel[k out, in] x[l, in].
    let kernel = lower.contiguous(kernel)?;
    let products = lower.scratch(ACL_FLOAT, &[k * channels, len]);
    let left = x.at(2, 0).permuted(&[1, 0]);
    product(lower, AclOp::aclnnMm, &left, &kernel.reshaped(&[k * channels, kernel.ne[2]]), &products)?;
    let products = products.reshaped(&[k, channels, len]);
    let out = out.at(2, 0);
    lower.fill_scalar(&out, 0.0)?;
    for i in 0..k.min(len) {
        let (part, reached) = if k <= len {
            let part = products.at(0, i).permuted(&[1, 0]);
            (part, out.view(&[len, channels], &[out.nb[0] * s0, out.nb[1]], i * out.nb[0]))
        } else {
            (products.at(2, i), out.narrow(0, i * s0, k))
        };
        lower.call(AclOp::aclnnInplaceAdd, [reached.into(), part.into(), ONE])?;
    }
    Ok(())
}
