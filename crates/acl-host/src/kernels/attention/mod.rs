//! Fused attention of one head and a block of queries: `softmax(q k^T * scale + slope * mask) v` without the whole score
//! matrix, by going through keys in blocks with a running maximum and sum.
//!
//! This family has no vector code of its own: it is made of products and row functions, and follows their instruction set.
//! Spreading heads and blocks of queries over threads is the caller's business, [`attend`] computes on the calling thread.

use super::convert::{self, ConvertFns};
use super::elementwise;
use super::isa::Isa;
use super::matmul::{self, DenseType, DenseView, OutView, Problem, Weights};
use super::rows::{self, MaskRow};

/// Keys per step: with 64 queries their scores fill half of a 32 KiB cache, and one query's decode makes few steps.
const KEYS: usize = 64;
/// Keys per step when there are few queries, which are read in place rather than packed.
const KEYS_FEW: usize = 256;
const FEW: usize = 4;

/// Most queries [`attend`] takes at once.
pub const MAX_QUERIES: usize = 64;

/// One head's attention for up to [`MAX_QUERIES`] queries.
#[derive(Debug)]
pub struct Attention<'a> {
    /// queries x head size
    pub q: DenseView<'a>,
    /// keys x head size
    pub k: DenseView<'a>,
    /// keys x value size
    pub v: DenseView<'a>,
    /// queries x keys, added to the scores; its rows are of adjacent `f32` or `f16`
    pub mask: Option<DenseView<'a>>,
    pub scale: f32,
    /// Multiplies the mask (ALiBi; 1 without).
    pub slope: f32,
    /// Scores become `cap * tanh(score / cap)` before the mask is added.
    pub soft_cap: Option<f32>,
    /// A score that takes part in the sum and has no value.
    pub sink: Option<f32>,
    /// queries x value size
    pub out: OutView<'a>,
}

/// Scratch memory, in bytes, that [`attend`] needs for these extents.
pub fn scratch_bytes(queries: usize, head_size: usize, value_size: usize) -> usize {
    let keys = keys_per_step(queries);
    let floats = queries * (keys + 2 * value_size + head_size + 2) + keys + 64;
    let products =
        matmul::scratch_bytes(1, queries, keys, head_size).max(matmul::scratch_bytes(1, queries, value_size, keys));
    floats * 4 + products
}

/// Computes `a.out`. A query whose keys are all masked by negative infinity gets zeros. The bits of a result do not depend
/// on threads, but do on how queries are grouped into calls.
///
/// # Panics
/// When extents do not fit, there are more than [`MAX_QUERIES`] queries, or `scratch` is shorter than [`scratch_bytes`].
pub fn attend(a: Attention<'_>, scratch: &mut [u8]) {
    attend_with(Isa::current(), a, scratch);
}

/// [`attend`] with the functions of a given instruction set.
pub fn attend_with(isa: Isa, a: Attention<'_>, scratch: &mut [u8]) {
    let (queries, keys, size) = (a.q.rows, a.k.rows, a.v.cols);
    assert!(queries <= MAX_QUERIES, "too many queries");
    assert!(a.k.cols == a.q.cols && a.v.rows == keys, "keys and values do not fit");
    assert!(a.out.rows == queries && a.out.cols == size, "output does not fit");
    assert!(a.mask.is_none_or(|m| m.rows == queries && m.cols == keys), "mask does not fit");
    if queries == 0 || size == 0 {
        return;
    }
    let (rows, elements, convert) = (rows::table(isa), elementwise::table(isa), convert::table(isa));
    let step = keys_per_step(queries);
    let skip = scratch.as_ptr().align_offset(64);
    let (floats, scratch) = scratch[skip..].split_at_mut(4 * (queries * (step + 2 * size + a.q.cols) + step));
    // SAFETY: the bytes are aligned and any bytes are an `f32`.
    let floats = unsafe { std::slice::from_raw_parts_mut(floats.as_mut_ptr().cast::<f32>(), floats.len() / 4) };
    let (scores, floats) = floats.split_at_mut(queries * step);
    let (sums, floats) = floats.split_at_mut(queries * size);
    let (values, floats) = floats.split_at_mut(queries * size);
    let (q, wide_mask) = floats.split_at_mut(queries * a.q.cols);
    // The sink starts the running sum as if its score had been seen before all keys.
    let mut max = [a.sink.unwrap_or(f32::NEG_INFINITY); MAX_QUERIES];
    let mut total = [if a.sink.is_some() { 1.0 } else { 0.0 }; MAX_QUERIES];
    sums.fill(0.0);
    for (r, q) in q.chunks_exact_mut(a.q.cols.max(1)).enumerate() {
        gather(convert, &a.q, r, 0, q);
        // Scaling the queries scales their scores, and is cheaper.
        q.iter_mut().for_each(|v| *v *= a.scale);
    }
    let q = &*q;
    for k0 in (0..keys).step_by(step) {
        let step = step.min(keys - k0);
        if a.mask.is_some_and(|m| hidden(&m, k0, step)) {
            continue;
        }
        let scores = &mut scores[..queries * step];
        product(isa, q, Weights::Dense(a.k.row_range(k0, step)), scores, (queries, step, a.q.cols), scratch);
        if let Some(cap) = a.soft_cap {
            elements.mul_scalar_in_place(scores, 1.0 / cap);
            elements.unary_in_place(elementwise::UnaryOp::Tanh, scores);
            elements.mul_scalar_in_place(scores, cap);
        }
        for (r, row) in scores.chunks_exact_mut(step).enumerate() {
            let top = match a.mask {
                None => rows.max(row),
                Some(mask) => {
                    let wide = &mut wide_mask[..step];
                    gather(convert, &mask, r, k0, wide);
                    elements.add_scaled_in_place(row, wide, a.slope);
                    rows.max(row)
                }
            };
            // NaN anywhere makes the query's result NaN, as the formula has it.
            let new_max = if top.is_nan() { top } else { max[r].max(top) };
            if new_max == f32::NEG_INFINITY {
                row.fill(0.0);
                continue;
            }
            let fade = (max[r] - new_max).exp();
            total[r] = total[r] * fade + rows.exp_sum(row, new_max);
            max[r] = new_max;
            if fade != 1.0 {
                elements.mul_scalar_in_place(&mut sums[r * size..][..size], fade);
            }
        }
        let v = Weights::Dense(a.v.row_range(k0, step).transposed());
        product(isa, scores, v, values, (queries, size, step), scratch);
        elements.binary_in_place(elementwise::BinaryOp::Add, sums, values);
    }
    for (r, sums) in sums.chunks_exact_mut(size).enumerate() {
        let factor = if total[r] == 0.0 { 0.0 } else { 1.0 / total[r] };
        elements.mul_scalar_in_place(sums, factor);
        // SAFETY: `a.out` is ours alone.
        unsafe { a.out.store(convert, r, 0, sums) }
    }
}

fn keys_per_step(queries: usize) -> usize {
    if queries <= FEW { KEYS_FEW } else { KEYS }
}

/// `out = x w^T` for a row-major `x`; extents are `m`, `n`, `k`.
fn product(isa: Isa, x: &[f32], w: Weights<'_>, out: &mut [f32], (m, n, k): (usize, usize, usize), scratch: &mut [u8]) {
    // The slices were cut to these extents.
    let (Some(x), Some(out)) = (DenseView::from_f32(x, m, k), OutView::from_f32(out, m, n)) else {
        unreachable!("operands shorter than their extents")
    };
    matmul::matmul_alone_with(isa, Problem { x, w, out }, scratch);
}

/// Part of a row as floats.
fn gather(convert: &ConvertFns, x: &DenseView<'_>, row: usize, col: usize, out: &mut [f32]) {
    match adjacent(x, row, col, out.len()) {
        Some(MaskRow::F32(from)) => out.copy_from_slice(from),
        Some(MaskRow::F16(from)) => convert.f16_to_f32(from, out),
        None => out.iter_mut().enumerate().for_each(|(c, v)| *v = x.at(row, col + c)),
    }
}

/// Part of a row in place, if its elements are adjacent `f32` or `f16`.
fn adjacent<'a>(x: &DenseView<'a>, row: usize, col: usize, len: usize) -> Option<MaskRow<'a>> {
    match x.ty {
        DenseType::F32 => x.row_f32(row, col, len).map(MaskRow::F32),
        DenseType::F16 => x.row_f16(row, col, len).map(MaskRow::F16),
        DenseType::Bf16 => None,
    }
}

/// Whether the mask hides these keys from every query; cheap, because a causal mask shows itself in its corners.
fn hidden(mask: &DenseView<'_>, k0: usize, step: usize) -> bool {
    (0..mask.rows).rev().all(|r| match adjacent(mask, r, k0, step) {
        Some(MaskRow::F32(row)) => row.iter().all(|v| *v == f32::NEG_INFINITY),
        Some(MaskRow::F16(row)) => row.iter().all(|v| *v == 0xfc00),
        None => (k0..k0 + step).all(|c| mask.at(r, c) == f32::NEG_INFINITY),
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Random, isas};
    use super::*;
    use half::f16;

    struct Case {
        queries: usize,
        keys: usize,
        size: usize,
        value_size: usize,
        masked: bool,
        half: bool,
        soft_cap: Option<f32>,
        sink: Option<f32>,
    }

    fn raw<T>(v: &[T]) -> &[u8] {
        // SAFETY: used with numbers only, which are readable as bytes.
        unsafe { std::slice::from_raw_parts(v.as_ptr().cast(), size_of_val(v)) }
    }

    /// Against the formula in `f64`. Scores stay below about 10 in magnitude and are computed to 1e-6 of that, which moves
    /// a weight by 1e-5 of itself; values are at most 1.
    fn check(c: &Case) {
        let mut random = Random::new(c.keys as u64 + 100);
        let q = random.floats(c.queries * c.size, 1.0);
        // Keys and values lie interleaved, as a cache of several heads has them.
        let stride = c.size + c.value_size + 3;
        let kv = random.floats(c.keys * stride, 1.0);
        let kv16: Vec<u16> = kv.iter().map(|v| f16::from_f32(*v).to_bits()).collect();
        let (ty, data) = if c.half { (DenseType::F16, raw(&kv16)) } else { (DenseType::F32, raw(&kv)) };
        let view =
            |from: usize, cols| DenseView::new(&data[from * ty.bytes()..], ty, (c.keys, cols), (stride, 1)).unwrap();
        let (k, v) = (view(0, c.size), view(c.size, c.value_size));
        let past = c.keys.saturating_sub(c.queries);
        let mask: Vec<u16> = (0..c.queries * c.keys)
            .map(|i| {
                let (r, col) = (i / c.keys, i % c.keys);
                // Query 2 sees nothing at all.
                let shown = col <= past + r && r != 2;
                f16::from_f32(if shown { random.float() } else { f32::NEG_INFINITY }).to_bits()
            })
            .collect();
        let mask_view = DenseView::new(raw(&mask), DenseType::F16, (c.queries, c.keys), (c.keys, 1)).unwrap();
        let mask_view = c.masked.then_some(mask_view);
        let (scale, slope) = (0.3, 0.5);
        for &isa in isas() {
            let mut out = vec![f32::NAN; c.queries * c.value_size];
            let mut scratch = vec![0xffu8; scratch_bytes(c.queries, c.size, c.value_size)];
            let a = Attention {
                q: DenseView::from_f32(&q, c.queries, c.size).unwrap(),
                k,
                v,
                mask: mask_view,
                scale,
                slope,
                soft_cap: c.soft_cap,
                sink: c.sink,
                out: OutView::from_f32(&mut out, c.queries, c.value_size).unwrap(),
            };
            attend_with(isa, a, &mut scratch);
            for r in 0..c.queries {
                let scores: Vec<f64> = (0..c.keys)
                    .map(|j| {
                        let dot: f64 = (0..c.size).map(|d| f64::from(q[r * c.size + d]) * f64::from(k.at(j, d))).sum();
                        let dot = dot * f64::from(scale);
                        let dot = c.soft_cap.map_or(dot, |cap| f64::from(cap) * (dot / f64::from(cap)).tanh());
                        dot + mask_view.map_or(0.0, |m| f64::from(slope) * f64::from(m.at(r, j)))
                    })
                    .collect();
                let sink = c.sink.map_or(0.0, |s| f64::from(s).exp());
                let total: f64 = scores.iter().map(|s| s.exp()).sum::<f64>() + sink;
                for d in 0..c.value_size {
                    let sum: f64 = scores.iter().enumerate().map(|(j, s)| s.exp() * f64::from(v.at(j, d))).sum();
                    let want = if total == 0.0 { 0.0 } else { sum / total };
                    let got = f64::from(out[r * c.value_size + d]);
                    assert!((got - want).abs() < 2e-5, "{isa:?} {}x{}: [{r},{d}] {got} for {want}", c.queries, c.keys);
                }
            }
        }
    }

    #[test]
    fn attention_follows_the_formula() {
        for (queries, keys, size, value_size) in [
            (1, 1, 64, 64),
            (1, 600, 64, 64),
            (3, 70, 64, 40),
            (4, 257, 32, 64),
            (5, 5, 8, 8),
            (33, 200, 64, 64),
            (64, 64, 20, 12),
        ] {
            for (masked, half) in [(false, false), (true, true), (true, false)] {
                for (soft_cap, sink) in [(None, None), (Some(1.5), None), (None, Some(0.7))] {
                    check(&Case { queries, keys, size, value_size, masked, half, soft_cap, sink });
                }
            }
        }
    }
}
