//! Rows in vectors; sums keep several vectors in flight and add them in a fixed order.

use super::super::elementwise::exp_of;
use super::super::lanes::*;
use super::{MaskRow, scalar};

vectorised! {
    fn get(x: &[f32; LANES]) -> F32s {
        // SAFETY: the array holds a vector's elements.
        unsafe { load(x.as_ptr()) }
    }

    fn put(x: &mut [f32; LANES], v: F32s) {
        // SAFETY: the array holds a vector's elements.
        unsafe { store(x.as_mut_ptr(), v) }
    }

    /// The elements of `x`, with `fill` behind them.
    fn get_tail(x: &[f32], fill: f32) -> F32s {
        let mut buffer = [fill; LANES];
        buffer[..x.len()].copy_from_slice(x);
        get(&buffer)
    }

    pub fn sum(x: &[f32]) -> f32 {
        let mut acc = [zero(); 4];
        let (whole, tail) = x.as_chunks::<LANES>();
        for (i, v) in whole.iter().enumerate() {
            acc[i % 4] = plus(acc[i % 4], get(v));
        }
        acc[0] = plus(acc[0], get_tail(tail, 0.0));
        horizontal_sum(plus(plus(acc[0], acc[1]), plus(acc[2], acc[3])))
    }

    pub fn max(x: &[f32]) -> f32 {
        let mut acc = splat(f32::NEG_INFINITY);
        let mut nan = is_nan(acc);
        let (whole, tail) = x.as_chunks::<LANES>();
        for v in whole.iter().map(|v| get(v)).chain([get_tail(tail, f32::NEG_INFINITY)]) {
            acc = greatest(acc, v);
            nan = either(nan, is_nan(v));
        }
        if any(nan) { f32::NAN } else { horizontal_max(acc) }
    }

    pub fn dot(a: &[f32], b: &[f32]) -> f32 {
        let mut acc = [zero(); 4];
        let ((av, a_tail), (bv, b_tail)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
        for (i, (a, b)) in av.iter().zip(bv).enumerate() {
            acc[i % 4] = fma(get(a), get(b), acc[i % 4]);
        }
        acc[0] = fma(get_tail(a_tail, 0.0), get_tail(b_tail, 0.0), acc[0]);
        horizontal_sum(plus(plus(acc[0], acc[1]), plus(acc[2], acc[3])))
    }

    pub fn square_sum(x: &[f32], mean: f32) -> f32 {
        let mut acc = [zero(); 4];
        let m = splat(mean);
        let (whole, tail) = x.as_chunks::<LANES>();
        for (i, v) in whole.iter().enumerate() {
            let d = minus(get(v), m);
            acc[i % 4] = fma(d, d, acc[i % 4]);
        }
        let d = minus(get_tail(tail, mean), m);
        acc[0] = fma(d, d, acc[0]);
        horizontal_sum(plus(plus(acc[0], acc[1]), plus(acc[2], acc[3])))
    }

    pub fn scores(x: &[f32], scale: f32, mask: Option<MaskRow<'_>>, slope: f32, out: &mut [f32]) -> f32 {
        let whole = x.len() - x.len() % LANES;
        let (s, slopes) = (splat(scale), splat(slope));
        let mut max = splat(f32::NEG_INFINITY);
        let (xs, _) = x.as_chunks::<LANES>();
        let (outs, out_tail) = out.as_chunks_mut::<LANES>();
        for (i, (x, out)) in xs.iter().zip(outs).enumerate() {
            let mut v = times(get(x), s);
            match mask {
                None => (),
                Some(MaskRow::F32(m)) => v = fma(slopes, get(&m.as_chunks::<LANES>().0[i]), v),
                Some(MaskRow::F16(m)) => {
                    // SAFETY: chunk `i` of the mask holds a vector's elements.
                    let m = unsafe { load_f16(m.as_chunks::<LANES>().0[i].as_ptr()) };
                    v = fma(slopes, m, v);
                }
            }
            max = greatest(v, max);
            put(out, v);
        }
        let mask = mask.map(|m| match m {
            MaskRow::F32(m) => MaskRow::F32(&m[whole..]),
            MaskRow::F16(m) => MaskRow::F16(&m[whole..]),
        });
        scalar::scores(&x[whole..], scale, mask, slope, out_tail).max(horizontal_max(max))
    }

    pub fn exp_sum(x: &mut [f32], shift: f32) -> f32 {
        let s = splat(shift);
        let mut acc = [zero(); 2];
        let (whole, tail) = x.as_chunks_mut::<LANES>();
        for (i, v) in whole.iter_mut().enumerate() {
            let e = exp_of(minus(get(v), s));
            acc[i % 2] = plus(acc[i % 2], e);
            put(v, e);
        }
        let mut sum = horizontal_sum(plus(acc[0], acc[1]));
        let mut buffer = [0.0; LANES];
        let e = exp_of(minus(get_tail(tail, 0.0), s));
        put(&mut buffer, e);
        for (t, b) in tail.iter_mut().zip(buffer) {
            *t = b;
            sum += b;
        }
        sum
    }

    pub fn scale(x: &mut [f32], s: f32) {
        let (whole, tail) = x.as_chunks_mut::<LANES>();
        for v in whole {
            let scaled = times(get(v), splat(s));
            put(v, scaled);
        }
        scalar::scale(tail, s);
    }

    pub fn affine(x: &[f32], mean: f32, factor: f32, weight: Option<&[f32]>, bias: Option<&[f32]>, out: &mut [f32]) {
        let whole = x.len() - x.len() % LANES;
        let (m, f) = (splat(mean), splat(factor));
        let (xs, x_tail) = x.as_chunks::<LANES>();
        let (outs, out_tail) = out.as_chunks_mut::<LANES>();
        for (i, (x, out)) in xs.iter().zip(outs).enumerate() {
            let mut v = times(minus(get(x), m), f);
            if let Some(w) = weight {
                v = times(v, get(&w.as_chunks::<LANES>().0[i]));
            }
            if let Some(b) = bias {
                v = plus(v, get(&b.as_chunks::<LANES>().0[i]));
            }
            put(out, v);
        }
        scalar::affine(x_tail, mean, factor, weight.map(|w| &w[whole..]), bias.map(|b| &b[whole..]), out_tail);
    }

    pub fn rope_half(x: &[f32], cos: &[f32], sin: &[f32], out: &mut [f32]) {
        let h = x.len() / 2;
        let ((xa, xb), (ca, cb), (sa, sb)) = (x.split_at(h), cos.split_at(h), sin.split_at(h));
        let (oa, ob) = out.split_at_mut(h);
        for i in 0..h / LANES {
            let at = |row: &[f32]| get(&row.as_chunks::<LANES>().0[i]);
            let (a, b) = (at(xa), at(xb));
            put(&mut oa.as_chunks_mut::<LANES>().0[i], fnma(b, at(sa), times(a, at(ca))));
            put(&mut ob.as_chunks_mut::<LANES>().0[i], fma(a, at(sb), times(b, at(cb))));
        }
        for i in h - h % LANES..h {
            oa[i] = xa[i] * ca[i] - xb[i] * sa[i];
            ob[i] = xb[i] * cb[i] + xa[i] * sb[i];
        }
    }

    pub fn rope_interleaved(x: &[f32], cos: &[f32], sin: &[f32], out: &mut [f32]) {
        let whole = x.len() - x.len() % LANES;
        let (xs, x_tail) = x.as_chunks::<LANES>();
        let (outs, out_tail) = out.as_chunks_mut::<LANES>();
        for (i, (x, out)) in xs.iter().zip(outs).enumerate() {
            let at = |row: &[f32]| get(&row.as_chunks::<LANES>().0[i]);
            put(out, rotate_pairs(get(x), at(cos), at(sin)));
        }
        scalar::rope_interleaved(x_tail, &cos[whole..], &sin[whole..], out_tail);
    }
}
