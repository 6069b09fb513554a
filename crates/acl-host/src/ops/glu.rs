//! Gated activations: one half of a dim gates the other.

use super::check::*;
use super::elementwise::{map, zip};
use crate::executor::{Checked, Op, Refusal};
use crate::kernels::elementwise::{self as kernel, BinaryOp, UnaryOp};
use crate::tensor::{Tensor, View};

/// Both halves of dim `dim`, and the shape of one.
fn halves(x: &Tensor, dim: i64) -> Result<(View, View), Refusal> {
    is_flt("x", x)?;
    ensure(x.rank() > 0, || "x has no dims".into())?;
    let axis = axis(dim, x)?;
    let size = x.dim(axis);
    ensure(size.is_multiple_of(2), || format!("dim {axis} has {size} elements, an even number is needed"))?;
    Ok((x.narrowed(axis, 0, size / 2, 1), x.narrowed(axis, size / 2, size / 2, 1)))
}

pub(crate) fn aclnnSwiGlu(x: &Tensor, dim: i64, out: &Tensor) -> Checked {
    let (gate, up) = halves(x, dim)?;
    contiguous("x", x)?;
    contiguous("out", out)?;
    shape_is("out", out, gate.dims())?;
    dtype_is("out", out, x.dtype())?;
    if out.is_empty() {
        return Ok(Op::nothing());
    }
    let out = out.view();
    let fns = kernel::current();
    Ok(Op::new(0, move |run| zip::<f32>(run, gate, up, out, |a, b, out| fns.binary(BinaryOp::Swiglu, a, b, out))))
}

pub(crate) fn aclnnGeGluV3(
    self_: &Tensor,
    dim: i64,
    approximate: i64,
    activate_left: bool,
    out: &Tensor,
    out_gelu: &Tensor,
) -> Checked {
    let (left, right) = halves(self_, dim)?;
    let (gate, up) = if activate_left { (left, right) } else { (right, left) };
    let gelu = match approximate {
        0 => UnaryOp::GeluErf,
        1 => UnaryOp::Gelu,
        _ => return Err(Refusal::invalid(format!("approximate is {approximate}, needed is 0 or 1"))),
    };
    for (name, t) in [("out", out), ("outGelu", out_gelu)] {
        shape_is(name, t, gate.dims())?;
        dtype_is(name, t, self_.dtype())?;
    }
    if out.is_empty() {
        return Ok(Op::nothing());
    }
    let (out, out_gelu) = (out.view(), out_gelu.view());
    let fns = kernel::current();
    Ok(Op::new(0, move |run| {
        // The product first, from the unrounded gate: `outGelu` may be the input's own memory.
        zip::<f32>(run, gate, up, out, |a, b, out| {
            fns.unary(gelu, a, out);
            for (o, b) in out.iter_mut().zip(b) {
                *o *= b;
            }
        });
        map::<f32>(run, gate, out_gelu, |a, out| fns.unary(gelu, a, out));
    }))
}
