//! Functions of one contiguous `f32` row: reductions, softmax, norms, rotary embedding.
//!
//! Sums run in `f32` over a fixed number of lanes, so a result depends on the row and the instruction set only.

mod scalar;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod vector;

use super::isa::Isa;

/// A row added to scores before softmax.
#[derive(Clone, Copy, Debug)]
pub enum MaskRow<'a> {
    F32(&'a [f32]),
    /// Half precision, given as bits.
    F16(&'a [u16]),
}

impl MaskRow<'_> {
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            MaskRow::F32(m) => m.len(),
            MaskRow::F16(m) => m.len(),
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// How rotary embedding pairs the elements of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RopePairs {
    /// `i` with `i + d/2`.
    Half,
    /// `2i` with `2i + 1`.
    Interleaved,
}

/// The functions of this family for one instruction set.
// Each type is spelt once, here.
#[allow(clippy::type_complexity)]
pub struct RowFns {
    sum: unsafe fn(&[f32]) -> f32,
    max: unsafe fn(&[f32]) -> f32,
    dot: unsafe fn(&[f32], &[f32]) -> f32,
    square_sum: unsafe fn(&[f32], f32) -> f32,
    scores: unsafe fn(&[f32], f32, Option<MaskRow<'_>>, f32, &mut [f32]) -> f32,
    exp_sum: unsafe fn(&mut [f32], f32) -> f32,
    scale: unsafe fn(&mut [f32], f32),
    affine: unsafe fn(&[f32], f32, f32, Option<&[f32]>, Option<&[f32]>, &mut [f32]),
    rope_half: unsafe fn(&[f32], &[f32], &[f32], &mut [f32]),
    rope_interleaved: unsafe fn(&[f32], &[f32], &[f32], &mut [f32]),
}

macro_rules! fill {
    ($from:ident) => {
        RowFns {
            sum: $from::sum,
            max: $from::max,
            dot: $from::dot,
            square_sum: $from::square_sum,
            scores: $from::scores,
            exp_sum: $from::exp_sum,
            scale: $from::scale,
            affine: $from::affine,
            rope_half: $from::rope_half,
            rope_interleaved: $from::rope_interleaved,
        }
    };
}

static SCALAR: RowFns = fill!(scalar);
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
static VECTOR: RowFns = fill!(vector);

/// The functions for `isa`, or the scalar ones where the processor lacks it.
pub fn table(isa: Isa) -> &'static RowFns {
    match isa {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        Isa::Avx2 | Isa::Neon | Isa::Dotprod if isa.is_available() => &VECTOR,
        _ => &SCALAR,
    }
}

/// The functions for the set in use.
pub fn current() -> &'static RowFns {
    table(Isa::current())
}

impl RowFns {
    /// The sum; 0 for an empty row.
    #[inline]
    pub fn sum(&self, x: &[f32]) -> f32 {
        // SAFETY: `table` checked the processor.
        unsafe { (self.sum)(x) }
    }

    /// The greatest element; negative infinity for an empty row, NaN if there is one.
    #[inline]
    pub fn max(&self, x: &[f32]) -> f32 {
        // SAFETY: `table` checked the processor.
        unsafe { (self.max)(x) }
    }

    /// The inner product.
    #[inline]
    pub fn dot(&self, a: &[f32], b: &[f32]) -> f32 {
        assert_eq!(a.len(), b.len());
        // SAFETY: `table` checked the processor, and the lengths agree.
        unsafe { (self.dot)(a, b) }
    }

    /// `out[i] = x[i] * scale + slope * mask[i]`; returns the greatest result (NaN need not be noticed).
    #[inline]
    pub fn scores(&self, x: &[f32], scale: f32, mask: Option<MaskRow<'_>>, slope: f32, out: &mut [f32]) -> f32 {
        assert!(x.len() == out.len() && mask.is_none_or(|m| m.len() == x.len()));
        // SAFETY: `table` checked the processor, and the lengths agree.
        unsafe { (self.scores)(x, scale, mask, slope, out) }
    }

    /// `x[i] = exp(x[i] - shift)`; returns the sum.
    #[inline]
    pub fn exp_sum(&self, x: &mut [f32], shift: f32) -> f32 {
        // SAFETY: `table` checked the processor.
        unsafe { (self.exp_sum)(x, shift) }
    }

    /// `softmax(x * scale + slope * mask)`. A row with nothing but negative infinity becomes NaN, as the formula has it.
    #[inline]
    pub fn softmax(&self, x: &[f32], scale: f32, mask: Option<MaskRow<'_>>, slope: f32, out: &mut [f32]) {
        let max = self.scores(x, scale, mask, slope, out);
        let sum = self.exp_sum(out, max);
        // SAFETY: `table` checked the processor.
        unsafe { (self.scale)(out, 1.0 / sum) }
    }

    /// `out[i] = x[i] / sqrt(mean(x^2) + eps) * gamma[i]`; returns the factor before gamma.
    #[inline]
    pub fn rms_norm(&self, x: &[f32], gamma: Option<&[f32]>, eps: f32, out: &mut [f32]) -> f32 {
        assert!(x.len() == out.len() && gamma.is_none_or(|g| g.len() == x.len()));
        // SAFETY: `table` checked the processor, and the lengths agree.
        unsafe {
            let factor = 1.0 / ((self.square_sum)(x, 0.0) / x.len() as f32 + eps).sqrt();
            (self.affine)(x, 0.0, factor, gamma, None, out);
            factor
        }
    }

    /// `out[i] = (x[i] - mean) / sqrt(variance + eps) * weight[i] + bias[i]` with the population's variance; returns the
    /// mean and the factor.
    #[inline]
    pub fn layer_norm(
        &self,
        x: &[f32],
        weight: Option<&[f32]>,
        bias: Option<&[f32]>,
        eps: f32,
        out: &mut [f32],
    ) -> (f32, f32) {
        let fits = |row: Option<&[f32]>| row.is_none_or(|r| r.len() == x.len());
        assert!(x.len() == out.len() && fits(weight) && fits(bias));
        let n = x.len() as f32;
        // SAFETY: `table` checked the processor, and the lengths agree.
        unsafe {
            let mean = (self.sum)(x) / n;
            let factor = 1.0 / ((self.square_sum)(x, mean) / n + eps).sqrt();
            (self.affine)(x, mean, factor, weight, bias, out);
            (mean, factor)
        }
    }

    /// Rotary embedding of a row of even length: with `y` the partner of `x[i]`, negated in the first place of each pair,
    /// `out[i] = x[i] * cos[i] + y * sin[i]`. `cos` and `sin` are as long as the row.
    #[inline]
    pub fn rope(&self, pairs: RopePairs, x: &[f32], cos: &[f32], sin: &[f32], out: &mut [f32]) {
        let n = x.len();
        assert!(n.is_multiple_of(2) && cos.len() == n && sin.len() == n && out.len() == n);
        let f = match pairs {
            RopePairs::Half => self.rope_half,
            RopePairs::Interleaved => self.rope_interleaved,
        };
        // SAFETY: `table` checked the processor, and the lengths agree.
        unsafe { f(x, cos, sin, out) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Random, assert_near, isas};
    use super::*;

    /// Each lane adds at most n/8 terms; 1e-6 of the terms' magnitudes covers that and the scalar sum's own rounding.
    #[test]
    fn reductions_agree() {
        let mut random = Random::new(3);
        for &isa in isas() {
            let (t, s) = (table(isa), table(Isa::Scalar));
            for len in (0..=19).chain([63, 64, 65, 576, 1536]) {
                let (a, b) = (random.floats(len + 1, 3.0), random.floats(len + 1, 2.0));
                let (a, b) = (&a[1..], &b[1..]);
                let bound = 1e-6 * (1.0 + 9.0 * len as f32);
                assert!((t.sum(a) - s.sum(a)).abs() <= bound);
                assert!((t.dot(a, b) - s.dot(a, b)).abs() <= bound);
                assert_eq!(t.max(a), s.max(a));
                if len > 0 {
                    let mut c = a.to_vec();
                    c[len / 2] = f32::NAN;
                    assert!(t.max(&c).is_nan() && s.max(&c).is_nan());
                    c[len / 2] = f32::INFINITY;
                    assert_eq!(t.max(&c), f32::INFINITY);
                }
            }
        }
    }

    #[test]
    fn softmax_agrees() {
        let mut random = Random::new(4);
        for &isa in isas() {
            let (t, s) = (table(isa), table(Isa::Scalar));
            for len in (1..=19).chain([256, 1000]) {
                let x = random.floats(len, 20.0);
                let mut m = random.floats(len, 1.0);
                (0..len).filter(|i| i % 3 == 1).for_each(|i| m[i] = f32::NEG_INFINITY);
                let h: Vec<u16> = m.iter().map(|v| half::f16::from_f32(*v).to_bits()).collect();
                for mask in [None, Some(MaskRow::F32(&m)), Some(MaskRow::F16(&h))] {
                    let (mut got, mut want) = (vec![0.0; len], vec![0.0; len]);
                    t.softmax(&x, 0.7, mask, 0.5, &mut got);
                    s.softmax(&x, 0.7, mask, 0.5, &mut want);
                    // An argument of magnitude 40 rounded to 2^-24 relative moves the exponential by 2e-6.
                    assert_near(&got, &want, 6e-6, 1e-30, "softmax");
                    assert!((got.iter().sum::<f32>() - 1.0).abs() < 1e-5);
                }
            }
            let mut out = [0.0; 9];
            t.softmax(&[f32::NEG_INFINITY; 9], 1.0, None, 0.0, &mut out);
            assert!(out.iter().all(|v| v.is_nan()));
            t.softmax(&[1e30, -1e30, 0.0], 1.0, None, 0.0, &mut out[..3]);
            assert_eq!(out[..3], [1.0, 0.0, 0.0]);
        }
    }

    #[test]
    fn norms_and_rope_agree() {
        let mut random = Random::new(5);
        for &isa in isas() {
            let (t, s) = (table(isa), table(Isa::Scalar));
            for len in (1..=19).chain([64, 576]) {
                let x = random.floats(len, 4.0);
                let (w, b) = (random.floats(len, 1.0), random.floats(len, 1.0));
                let (mut got, mut want) = (vec![0.0; len], vec![0.0; len]);
                for gamma in [None, Some(&w[..])] {
                    t.rms_norm(&x, gamma, 1e-5, &mut got);
                    s.rms_norm(&x, gamma, 1e-5, &mut want);
                    assert_near(&got, &want, 2e-6, 1e-6, "rms_norm");
                    for bias in [None, Some(&b[..])] {
                        // A single element has variance 0, and 1/sqrt(eps) magnifies the mean's rounding.
                        t.layer_norm(&x, gamma, bias, 1e-2, &mut got);
                        s.layer_norm(&x, gamma, bias, 1e-2, &mut want);
                        assert_near(&got, &want, 1e-5, 1e-5, "layer_norm");
                    }
                }
                if len % 2 == 0 {
                    for pairs in [RopePairs::Half, RopePairs::Interleaved] {
                        t.rope(pairs, &x, &w, &b, &mut got);
                        s.rope(pairs, &x, &w, &b, &mut want);
                        assert_near(&got, &want, 1e-6, 1e-6, "rope");
                    }
                }
            }
        }
        let mut out = [0.0; 4];
        table(Isa::Scalar).rope(RopePairs::Half, &[1.0, 2.0, 3.0, 4.0], &[0.0; 4], &[1.0; 4], &mut out);
        assert_eq!(out, [-3.0, -4.0, 1.0, 2.0]);
        table(Isa::Scalar).rope(RopePairs::Interleaved, &[1.0, 2.0, 3.0, 4.0], &[0.0; 4], &[1.0; 4], &mut out);
        assert_eq!(out, [-2.0, 1.0, -4.0, 3.0]);
    }
}
