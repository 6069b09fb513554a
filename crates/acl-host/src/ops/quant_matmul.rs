//! Products with quantised weights: `y = x * ((w + offset) * scale) + bias`, accumulated in f32.
//!
//! Weights are I8 or packed I4, any way round; rows of `k` quants with F16 scales per 32 of them, lying the same way, are
//! what the fast kernels read (see [`kernels::matmul`] for what they do to `x`). Beyond the documented operator this device
//! takes F32 for `x` and `y`, which saves two conversions, writes any float type, and knows no limits on extents, unless it
//! goes by a chip's name: then the chip's rules hold. Absent: requantising `y`, and weights packed eight to an I32.

use super::check::{ensure, is_flt, rank_is, shape_is};
use super::matmul::{Bytes, Dense, dense_type, is_chip, is_inference_card, threads, write_with_bias};
use super::norm::{scratch_rows, whole, whole_bytes};
use crate::executor::{Checked, Op, Refusal, bytes_of};
use crate::kernels::matmul::{self as kernel, OutView, Problem, QuantBits, QuantWeights, Weights};
use crate::runtime::config::{self, Family};
use crate::tensor::{DType, Tensor, View};

/// The chips' limit on `k` and `n`.
const MAX_EXTENT: usize = 65535;
/// Groups are multiples of this.
const GROUP_UNIT: usize = 32;

pub(crate) fn aclnnWeightQuantBatchMatmulV2(
    x: &Tensor,
    weight: &Tensor,
    antiquant_scale: &Tensor,
    antiquant_offset_optional: Option<&Tensor>,
    quant_scale_optional: Option<&Tensor>,
    quant_offset_optional: Option<&Tensor>,
    bias_optional: Option<&Tensor>,
    antiquant_group_size: i32,
    y: &Tensor,
) -> Checked {
    let (x, weight, out) = (x.view(), weight.view(), y.view());
    ensure(quant_scale_optional.is_none() && quant_offset_optional.is_none(), || "y is never requantised here".into())?;
    let chip = is_chip();
    ensure(config::settings().family != Family::Ascend910A, || "this chip does not have the operator".into())?;
    is_flt("x", &x)?;
    is_flt("y", &out)?;
    for (name, view) in [("x", &x), ("weight", &weight), ("y", &out)] {
        rank_is(name, view, 2)?;
    }
    let bits = match weight.dtype() {
        DType::I8 => QuantBits::I8,
        DType::I4 => QuantBits::I4,
        other => return Err(Refusal::invalid(format!("weight is {other:?}, needed is I8 or I4"))),
    };
    let (m, k, n) = (x.dim(0), x.dim(1), weight.dim(1));
    ensure(weight.dim(0) == k, || format!("inner dims {k} and {} differ", weight.dim(0)))?;
    shape_is("y", &out, &[m, n])?;
    ensure(m > 0 && k > 0 && n > 0, || format!("a product of {m} x {k} x {n} is empty"))?;
    if chip {
        ensure(k <= MAX_EXTENT && n <= MAX_EXTENT, || format!("k = {k} and n = {n} go up to {MAX_EXTENT}"))?;
        ensure(x.dtype() != DType::F32 && out.dtype() == x.dtype(), || {
            format!("x and y are {:?} and {:?}, needed are both F16 or both BF16", x.dtype(), out.dtype())
        })?;
    }

    let group = match usize::try_from(antiquant_group_size) {
        Ok(0) => None,
        Ok(g) if g.is_multiple_of(GROUP_UNIT) && !(chip && g >= k) => Some(g),
        _ => {
            return Err(Refusal::invalid(format!(
                "antiquantGroupSize is {antiquant_group_size} for k = {k}, needed is 0 or a multiple of {GROUP_UNIT} below k"
            )));
        }
    };
    ensure(!(is_inference_card() && (bits == QuantBits::I4 || group.is_some())), || {
        "this chip takes I8 with one scale per output only".into()
    })?;
    let scale = antiquant_scale.view();
    let scale_rows = per_output("antiquantScale", &scale, n, k, group)?;
    let offset = antiquant_offset_optional.map(Tensor::view);
    let offset_rows = match &offset {
        Some(view) => {
            ensure(view.dtype() == scale.dtype(), || {
                format!("antiquantOffset is {:?} for a scale of {:?}", view.dtype(), scale.dtype())
            })?;
            shape_is("antiquantOffset", view, scale.dims())?;
            Some(per_output("antiquantOffset", view, n, k, group)?)
        }
        None => None,
    };
    if chip {
        ensure(scale.dtype() == x.dtype(), || {
            format!("antiquantScale is {:?} for x of {:?}", scale.dtype(), x.dtype())
        })?;
    }
    let bias = bias_optional.map(Tensor::view);
    if let Some(bias) = &bias {
        is_flt("bias", bias)?;
        ensure(bias.dims() == [n] || bias.dims() == [1, n], || {
            format!("bias has shape {:?}, needed is [{n}]", bias.dims())
        })?;
    }

    let stride = |i: usize| if weight.dim(i) == 1 { Some(0) } else { usize::try_from(weight.strides()[i]).ok() };
    let (Some(k_stride), Some(n_stride)) = (stride(0), stride(1)) else {
        return Err(Refusal::invalid(format!("weight has strides {:?}", weight.strides())));
    };
    // What a unit dim is strided by is free: this is how the fast kernels want it.
    let (k_stride, n_stride) = (if k == 1 { 1 } else { k_stride }, if n == 1 && k_stride == 1 { k } else { n_stride });
    let quants = Bytes::under(&weight);
    if bits == QuantBits::I4 {
        let reach = (k - 1) * k_stride + if n == 1 { 0 } else { (n - 1) * n_stride };
        ensure(quants.len() == reach / 2 + 1, || "weight begins in the middle of a byte".into())?;
    }

    let x = Dense::new("x", &x)?;
    let group = group.unwrap_or(k);
    let scratch_bytes = bytes_of::<u8>(kernel::scratch_bytes(threads(), m, n, k));
    let ty = dense_type(out.dtype()).filter(|_| bias.is_none() && out.is_contiguous());
    let out_bytes = Bytes::under(&out);
    let spare_bytes = if ty.is_some() { 0 } else { bytes_of::<f32>(m * n) + whole_bytes::<f32>(bias.as_ref()) };
    Ok(Op::new(scratch_bytes + spare_bytes, move |run| {
        let scratch = run.take::<u8>(scratch_bytes);
        let offsets = offset_rows.as_ref().map(Dense::view);
        let w = QuantWeights::new(quants.read(), bits, (n, k), (n_stride, k_stride), scale_rows.view(), offsets, group);
        let Some(w) = w else { unreachable!("extents were checked in phase one") };
        let (x, w) = (x.view(), Weights::Quant(w));
        match ty {
            Some(ty) => {
                if let Some(out) = OutView::new(out_bytes.write(0..out_bytes.len()), ty, (m, n), n) {
                    kernel::matmul(run.team, Problem { x, w, out }, scratch);
                }
            }
            None => {
                let bias = whole::<f32>(run, bias.as_ref());
                let sums = scratch_rows::<f32>(run, m, n);
                if let Some(sums) = sums.slice_mut(0, m * n).and_then(|sums| OutView::from_f32(sums, m, n)) {
                    kernel::matmul(run.team, Problem { x, w, out: sums }, scratch);
                }
                write_with_bias(run, &sums, bias, &out);
            }
        }
    }))
}

/// A scale or offset as a row per output and a column per group: it comes as one number, one per output, or
/// `(groups, n)`.
fn per_output(name: &str, view: &View, n: usize, k: usize, group: Option<usize>) -> Result<Dense, Refusal> {
    is_flt(name, view)?;
    let groups = group.map_or(1, |g| k.div_ceil(g));
    let rows = match (group, view.dims()) {
        (None, [1] | [1, 1]) => view.broadcast_to(&[1, n]),
        (None, [own]) if *own == n => view.broadcast_to(&[1, n]),
        (None, [1, own]) if *own == n => Some(*view),
        (Some(_), dims) if dims == [groups, n] => Some(*view),
        _ => None,
    };
    let rows = rows.ok_or_else(|| {
        Refusal::invalid(format!("{name} has shape {:?}, needed is [{groups}, {n}] or one per output", view.dims()))
    })?;
    Dense::new(name, &rows.transposed())
}
