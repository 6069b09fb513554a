//! ROPE: rotary position embedding in all of ggml's modes.
//!
//! Everything that depends only on parameters (inverse frequencies, the YaRN mix, which position stream a pair follows) is a
//! constant computed here in f64. The device multiplies it by the positions and takes cosine and sine, once for all nodes with
//! the same positions and parameters; each node is then one call. Parts of a row outside of the rotated window are copied.

use acl_sys::*;

use super::steps::packed;
use super::*;
use crate::lower::{Arg, TensorArg};

const NEOX: i64 = 2;
const MROPE: i64 = 8;
const VISION: i64 = 24;
const IMROPE: i64 = 40;

pub(super) static OPS: &[OpDef] = &[OpDef {
    name: "ROPE",
    src: &["x", "positions", "freq_factors?"],
    params: &[
        ParamDef { name: "n_dims", default: Default::Num(0.0), doc: "rotated dimensions of a row; 0 for all" },
        ParamDef { name: "mode", default: Default::Num(0.0), doc: "0 normal, 2 neox, 8 mrope, 24 vision, 40 imrope" },
        ParamDef { name: "mode_name", default: Default::Str(""), doc: "the mode by name, instead of its number" },
        ParamDef { name: "n_ctx_orig", default: Default::Num(0.0), doc: "context length of training, for YaRN" },
        ParamDef { name: "freq_base", default: Default::Num(10000.0), doc: "base of the frequencies" },
        ParamDef { name: "freq_scale", default: Default::Num(1.0), doc: "factor of the angles" },
        ParamDef { name: "ext_factor", default: Default::Num(0.0), doc: "share of YaRN's extrapolation; 0 for none" },
        ParamDef { name: "attn_factor", default: Default::Num(1.0), doc: "factor of the result" },
        ParamDef { name: "beta_fast", default: Default::Num(32.0), doc: "YaRN's upper number of rotations" },
        ParamDef { name: "beta_slow", default: Default::Num(1.0), doc: "YaRN's lower number of rotations" },
        ParamDef {
            name: "sections",
            default: Default::Nums(&[0.0, 0.0, 0.0, 0.0]),
            doc: "pairs for each of the four position streams (mrope, vision, imrope)",
        },
        ParamDef { name: "n_offs", default: Default::Num(0.0), doc: "first rotated dimension" },
    ],
    doc: "Pairs of x rotated by position * freq_base^(-2 i / n_dims) / freq_factors[i], with YaRN's mix if ext_factor is not 0",
    types: "x f32, f16; positions i32; freq_factors f32",
    infer,
    plan,
}];

fn mode(params: &Params) -> Option<i64> {
    let number = match params.str("mode_name") {
        None | Some("") => params.i64("mode"),
        Some("normal") => 0,
        Some("neox") => NEOX,
        Some("mrope") => MROPE,
        Some("vision") => VISION,
        Some("imrope") => IMROPE,
        Some(_) => return None,
    };
    [0, NEOX, MROPE, VISION, IMROPE].contains(&number).then_some(number)
}

fn n_dims(params: &Params, ne0: i64, mode: i64) -> i64 {
    match params.i64("n_dims") {
        0 if mode == VISION => ne0 / 2,
        0 => ne0,
        n => n,
    }
}

fn infer(cx: &InferCx) -> Result<Inferred, Error> {
    cx.is(0, &[GgmlType::F32, GgmlType::F16])?;
    cx.is(1, &[GgmlType::I32])?;
    let (x, positions) = (cx.src(0), cx.src(1));
    let Some(mode) = mode(cx.params) else {
        return Err(cx.err("mode must be 0 (normal), 2 (neox), 8 (mrope), 24 (vision) or 40 (imrope)"));
    };
    let n_dims = n_dims(cx.params, x.ne[0], mode);
    let width = if mode == VISION { n_dims.saturating_mul(2) } else { n_dims };
    let n_offs = cx.params.i64("n_offs");
    cx.require(n_dims > 0 && n_dims % 2 == 0 && n_offs >= 0 && n_offs.saturating_add(width) <= x.ne[0], || {
        format!("n_dims {n_dims} must be even, and {width} dimensions from {n_offs} on must be in rows of x")
    })?;
    let streams = if mode & MROPE != 0 { 4 } else { 1 };
    cx.require(positions.ne == [x.ne[2] * streams, 1, 1, 1], || {
        format!("positions must have {streams} numbers for each of x's {} tokens", x.ne[2])
    })?;
    if streams == 4 {
        let sections = cx.params.nums("sections");
        let fine = sections.len() <= 4
            && sections.iter().all(|s| (0.0..2f64.powi(31)).contains(s))
            && sections.iter().sum::<f64>() >= 1.0;
        cx.require(fine, || {
            format!("sections must be up to four counts of pairs that are not all 0, not {sections:?}")
        })?;
    }
    if let Some(factors) = cx.opt(2) {
        cx.is(2, &[GgmlType::F32])?;
        cx.require(factors.ne[0] >= width / 2, || format!("freq_factors must have {} numbers", width / 2))?;
    }
    cx.like(0)
}

/// One pair of a row: what its angle is multiplied with, and the position stream it follows.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Pair {
    frequency: f64,
    stream: usize,
}

/// The pairs of a row in order.
fn pairs(params: &Params, mode: i64, n_dims: i64) -> Vec<Pair> {
    let section: [i64; 4] = std::array::from_fn(|i| params.nums("sections").get(i).map_or(0, |s| *s as i64));
    let total: i64 = section.iter().sum();
    let starts = [0, section[0], section[0] + section[1], section[0] + section[1] + section[2]];
    let count = if mode == VISION { n_dims } else { n_dims / 2 };
    let scale = f64::from(params.f32("freq_scale"));
    let base = f64::from(params.f32("freq_base"));
    (0..count)
        .map(|i| {
            let k = if mode & MROPE != 0 { i % total } else { 0 };
            let stream = match mode {
                MROPE | VISION => (0..4).rev().find(|s| k >= starts[*s] && section[*s] > 0).unwrap_or(0),
                IMROPE => match k % 3 {
                    1 if k < 3 * section[1] => 1,
                    2 if k < 3 * section[2] => 2,
                    0 if k < 3 * section[0] => 0,
                    _ => 3,
                },
                _ => 0,
            };
            let exponent = if mode == VISION { k - starts[stream] } else { i };
            let extrapolated = base.powf(-2.0 * exponent as f64 / n_dims as f64);
            let mix = yarn_mix(params, n_dims, i);
            Pair { frequency: extrapolated * (scale * (1.0 - mix) + mix), stream }
        })
        .collect()
}

/// The share of the unscaled angle in pair `i`.
fn yarn_mix(params: &Params, n_dims: i64, i: i64) -> f64 {
    let ext_factor = f64::from(params.f32("ext_factor"));
    if ext_factor == 0.0 {
        return 0.0;
    }
    let correction = |rotations: f64| {
        let turns = params.f64("n_ctx_orig") / (rotations * 2.0 * std::f64::consts::PI);
        n_dims as f64 * turns.ln() / (2.0 * params.f64("freq_base").ln())
    };
    let low = correction(params.f64("beta_fast")).floor().max(0.0);
    let high = correction(params.f64("beta_slow")).ceil().min(n_dims as f64 - 1.0);
    let ramp = (i as f64 - low) / (high - low).max(0.001);
    (1.0 - ramp.clamp(0.0, 1.0)) * ext_factor
}

/// The factor of cosine and sine.
fn magnitude(params: &Params) -> f32 {
    let attn_factor = f64::from(params.f32("attn_factor"));
    if params.f32("ext_factor") == 0.0 {
        return attn_factor as f32;
    }
    (attn_factor * (1.0 + 0.1 * (1.0 / f64::from(params.f32("freq_scale"))).ln())) as f32
}

/// How the members of a pair lie in a row of `width`.
#[derive(Clone, Copy, PartialEq)]
enum Lay {
    /// Neighbours.
    Interleaved,
    /// Half a row apart.
    Halves,
}

impl Lay {
    /// A row of `width` as pairs: which of the two dimensions `[fast, slow]` counts the members.
    fn by_pair(self, row: &TensorArg) -> TensorArg {
        match self {
            Lay::Interleaved => row.split(0, 2),
            Lay::Halves => row.split(0, row.ne[0] / 2),
        }
    }

    /// One number a pair, shaped as [`Lay::by_pair`] with one member.
    fn one_each(self, row: &TensorArg) -> TensorArg {
        match self {
            Lay::Interleaved => row.split(0, 1),
            Lay::Halves => row.split(0, row.ne[0]),
        }
    }

    /// First and second members of all pairs of `t` along dimension 0.
    fn members(self, t: &TensorArg) -> [TensorArg; 2] {
        let half = t.ne[0] / 2;
        match self {
            Lay::Halves => [t.narrow(0, 0, half), t.narrow(0, half, half)],
            Lay::Interleaved => [0, 1].map(|first| {
                let mut m = t.narrow(0, first, half);
                m.nb[0] *= 2;
                m
            }),
        }
    }
}

/// Cosines and sines `[width, 1, tokens, 1]` of a node.
fn tables(cx: &NodeCx, lower: &mut Lower, mode: i64, width: i64, lay: Lay) -> Result<[TensorArg; 2], Unsupported> {
    let params = cx.params();
    let positions = cx.src(1).arg()?;
    let factors = cx.opt(2).map(|f| f.arg()).transpose()?;
    let tokens = cx.src(0).ne[2];
    let n_dims = if mode == VISION { width / 2 } else { width };
    let key = format!(
        "rope {mode} {width} {tokens} {:?}+{} {:?} {:?}",
        positions.mem,
        positions.offset,
        factors.as_ref().map(|f| (f.mem, f.offset)),
        params
            .0
            .iter()
            .filter(|(name, _)| *name != "n_offs" && *name != "mode" && *name != "mode_name")
            .collect::<Vec<_>>()
    );
    let elements = width * tokens;
    let view =
        |mem: Mem, at: i64| packed(mem, ACL_FLOAT, &[width, tokens]).view(&[width, tokens], &[4, width * 4], at * 4);
    let mem = lower.shared(key, (elements * 8) as u64, |lower, mem| {
        let (cos, sin) = (view(mem, 0), view(mem, elements));
        let angles = angles(lower, params, mode, n_dims, lay, &positions, factors.as_ref(), tokens)?;
        lower.unary(AclOp::aclnnCos, &angles, &cos)?;
        lower.unary(AclOp::aclnnSin, &angles, &sin)?;
        let magnitude = magnitude(params);
        if magnitude != 1.0 {
            let both = packed(mem, ACL_FLOAT, &[2 * elements]);
            lower.call(AclOp::aclnnInplaceMuls, [both.into(), super::steps::scalar(magnitude)])?;
        }
        Ok(())
    })?;
    Ok([0, elements].map(|at| view(mem, at).view(&[width, 1, tokens, 1], &[4, width * 4, width * 4, elements * 4], 0)))
}

/// `[width, tokens]`: each pair's angle, twice.
#[allow(clippy::too_many_arguments)]
fn angles(
    lower: &mut Lower,
    params: &Params,
    mode: i64,
    n_dims: i64,
    lay: Lay,
    positions: &TensorArg,
    factors: Option<&TensorArg>,
    tokens: i64,
) -> Result<TensorArg, Unsupported> {
    super::steps::listed(n_dims)?;
    let pairs = pairs(params, mode, n_dims);
    let width = 2 * pairs.len() as i64;
    let mut angles: Option<TensorArg> = None;
    for stream in 0..4 {
        if !pairs.iter().any(|p| p.stream == stream) {
            continue;
        }
        let own: Vec<f32> = pairs.iter().map(|p| if p.stream == stream { p.frequency as f32 } else { 0.0 }).collect();
        let row: Vec<f32> = match lay {
            Lay::Interleaved => own.iter().flat_map(|f| [*f, *f]).collect(),
            Lay::Halves => own.iter().chain(&own).copied().collect(),
        };
        let mut frequencies = lower.constant_f32(&row, &[width, 1]);
        if let Some(factors) = factors {
            let divided = lower.scratch(ACL_FLOAT, &[width, 1]);
            let each = factors.at(3, 0).at(2, 0).at(1, 0).narrow(0, 0, width / 2);
            let flat = |t: &TensorArg| lay.by_pair(&t.at(1, 0));
            lower.div(&flat(&frequencies), &lay.one_each(&each), &flat(&divided))?;
            frequencies = divided;
        }
        let first = stream as i64 * tokens * positions.nb[0];
        let positions = positions.view(&[1, tokens], &[positions.nb[0]; 2], first);
        let product = lower.scratch(ACL_FLOAT, &[width, tokens]);
        lower.mul(&positions, &frequencies, &product)?;
        match &angles {
            None => angles = Some(product),
            Some(sum) => {
                lower.call(AclOp::aclnnInplaceAdd, [sum.clone().into(), product.into(), super::steps::ONE])?;
            }
        }
    }
    Ok(angles.expect("each pair has a stream"))
}

fn plan(cx: &NodeCx, lower: &mut Lower) -> Result<(), Unsupported> {
    let (x, out) = (cx.src(0).arg()?, cx.dst.arg()?);
    let mode = mode(cx.params()).expect("inference checked the mode");
    let n_dims = n_dims(cx.params(), x.ne[0], mode);
    let width = if mode == VISION { 2 * n_dims } else { n_dims };
    let n_offs = cx.params().i64("n_offs");
    let lay = if mode == 0 { Lay::Interleaved } else { Lay::Halves };
    let [cos, sin] = tables(cx, lower, mode, width, lay)?;

    let after = n_offs + width;
    for (start, len) in [(0, n_offs), (after, x.ne[0] - after)] {
        if len > 0 {
            lower.assign(&out.narrow(0, start, len), &x.narrow(0, start, len))?;
        }
    }
    let (x, out) = (x.narrow(0, n_offs, width), out.narrow(0, n_offs, width));
    let x = lower.to_dtype(&x, ACL_FLOAT)?;
    let (heads, batch) = (x.ne[1], x.ne[3]);
    let in_bounds = match lay {
        Lay::Interleaved => heads * batch < 1000,
        Lay::Halves => heads < 1000 && batch < 1000,
    };
    let documented = if lower.caps.relaxed { width <= 1024 } else { width < 896 && in_bounds };
    if !(lower.caps.rotary && documented && lower.caps.api.has_op(AclOp::aclnnRotaryPositionEmbedding)) {
        return rotate_composed(lower, lay, &x, &cos, &sin, &out);
    }
    // The operator writes packed results only.
    let direct = out.is_packed() && out.dtype == ACL_FLOAT;
    let rotated = if direct { out.clone() } else { lower.scratch_like(&x, ACL_FLOAT) };
    let code = Arg::I64(if lay == Lay::Halves { 0 } else { 1 });
    let args = [x.into(), cos.into(), sin.into(), code, rotated.clone().into()];
    lower.call(AclOp::aclnnRotaryPositionEmbedding, args)?;
    if direct { Ok(()) } else { lower.assign(&out, &rotated) }
}

/// `x cos + rot(x) sin` from basic operators.
fn rotate_composed(
    lower: &mut Lower,
    lay: Lay,
    x: &TensorArg,
    cos: &TensorArg,
    sin: &TensorArg,
    out: &TensorArg,
) -> Result<(), Unsupported> {
    let turned = lower.scratch_like(x, ACL_FLOAT);
    let ([x0, x1], [t0, t1]) = (lay.members(x), lay.members(&turned));
    lower.muls(&x1, -1.0, &t0)?;
    lower.call(AclOp::aclnnInplaceCopy, [t1.into(), x0.into()])?;
    lower.mul(&turned, sin, &turned)?;
    let straight = lower.scratch_like(x, ACL_FLOAT);
    lower.mul(x, cos, &straight)?;
    lower.add(&straight, &turned, 1.0, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(values: &[(&str, f64)]) -> Params {
        let def = find("ROPE").unwrap();
        let given = values.iter().fold(Params::default(), |p, (name, v)| p.num(name, *v));
        with_defaults(def, given).unwrap()
    }

    #[test]
    fn sections_choose_streams() {
        let sections = |s: [f64; 4]| params(&[]).set("sections", Param::Nums(s.to_vec()));
        let streams = |mode, n_dims, s| pairs(&sections(s), mode, n_dims).iter().map(|p| p.stream).collect::<Vec<_>>();
        assert_eq!(streams(MROPE, 12, [2.0, 1.0, 1.0, 0.0]), [0, 0, 1, 2, 0, 0]);
        assert_eq!(streams(IMROPE, 12, [2.0, 2.0, 2.0, 0.0]), [0, 1, 2, 0, 1, 2]);
        assert_eq!(streams(IMROPE, 12, [2.0, 1.0, 1.0, 2.0]), [0, 1, 2, 0, 3, 3]);
        let vision = pairs(&sections([2.0, 2.0, 0.0, 0.0]), VISION, 4);
        assert_eq!(vision.iter().map(|p| p.stream).collect::<Vec<_>>(), [0, 0, 1, 1]);
        assert_eq!(vision[0].frequency, vision[2].frequency);
    }

    #[test]
    fn yarn_mixes_between_the_correction_dimensions() {
        let p = params(&[("ext_factor", 1.0), ("freq_scale", 0.25), ("n_ctx_orig", 4096.0)]);
        let all = pairs(&p, NEOX, 128);
        assert_eq!(all[0].frequency, 1.0, "fast pairs keep the unscaled angle");
        let slowest = 10000f64.powf(-126.0 / 128.0);
        assert!((all[63].frequency / slowest - 0.25).abs() < 1e-12, "slow pairs are scaled");
        assert!((magnitude(&p) - (1.0 + 0.1 * 4f32.ln())).abs() < 1e-6);
    }
}
