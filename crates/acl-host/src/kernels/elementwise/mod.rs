//! One number in, one number out, over contiguous `f32`. Broadcasting, strides and other types are the callers' business.
//!
//! Functions follow the usual formulas through infinities: `silu(-inf)` and the gelus of `-inf` are NaN (`-inf * 0`).

mod scalar;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod vector;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) use vector::exp_of;

use super::isa::Isa;

type Unary = unsafe fn(usize, *const f32, *mut f32);
type Binary = unsafe fn(usize, *const f32, *const f32, *mut f32);
type Scaled = unsafe fn(usize, *const f32, *const f32, f32, *mut f32);
type WithScalar = unsafe fn(usize, *const f32, f32, *mut f32);

/// Functions of one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnaryOp {
    /// `x * sigmoid(x)`
    Silu,
    /// gelu in its tanh form
    Gelu,
    /// gelu with the error function
    GeluErf,
    /// `x * sigmoid(1.702 x)`
    GeluQuick,
    Sigmoid,
    Exp,
    Tanh,
    /// `max(x, 0)`; NaN stays
    Relu,
}

impl UnaryOp {
    pub const ALL: &[UnaryOp] = &[
        UnaryOp::Silu,
        UnaryOp::Gelu,
        UnaryOp::GeluErf,
        UnaryOp::GeluQuick,
        UnaryOp::Sigmoid,
        UnaryOp::Exp,
        UnaryOp::Tanh,
        UnaryOp::Relu,
    ];
}

/// Functions of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    /// `silu(a) * b`
    Swiglu,
}

impl BinaryOp {
    pub const ALL: &[BinaryOp] = &[BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Div, BinaryOp::Swiglu];
}

/// The functions of this family for one instruction set.
pub struct ElementwiseFns {
    silu: Unary,
    gelu: Unary,
    gelu_erf: Unary,
    gelu_quick: Unary,
    sigmoid: Unary,
    exp: Unary,
    tanh: Unary,
    relu: Unary,
    add: Binary,
    sub: Binary,
    mul: Binary,
    div: Binary,
    swiglu: Binary,
    add_scaled: Scaled,
    mul_scalar: WithScalar,
    add_scalar: WithScalar,
}

macro_rules! fill {
    ($from:ident) => {
        ElementwiseFns {
            silu: $from::silu,
            gelu: $from::gelu,
            gelu_erf: $from::gelu_erf,
            gelu_quick: $from::gelu_quick,
            sigmoid: $from::sigmoid,
            exp: $from::exp,
            tanh: $from::tanh,
            relu: $from::relu,
            add: $from::add,
            sub: $from::sub,
            mul: $from::mul,
            div: $from::div,
            swiglu: $from::swiglu,
            add_scaled: $from::add_scaled,
            mul_scalar: $from::mul_scalar,
            add_scalar: $from::add_scalar,
        }
    };
}

static SCALAR: ElementwiseFns = fill!(scalar);
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
static VECTOR: ElementwiseFns = fill!(vector);

/// The functions for `isa`, or the scalar ones where the processor lacks it.
pub fn table(isa: Isa) -> &'static ElementwiseFns {
    match isa {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        Isa::Avx2 | Isa::Neon | Isa::Dotprod if isa.is_available() => &VECTOR,
        _ => &SCALAR,
    }
}

/// The functions for the set in use.
pub fn current() -> &'static ElementwiseFns {
    table(Isa::current())
}

impl ElementwiseFns {
    fn unary_fn(&self, op: UnaryOp) -> Unary {
        match op {
            UnaryOp::Silu => self.silu,
            UnaryOp::Gelu => self.gelu,
            UnaryOp::GeluErf => self.gelu_erf,
            UnaryOp::GeluQuick => self.gelu_quick,
            UnaryOp::Sigmoid => self.sigmoid,
            UnaryOp::Exp => self.exp,
            UnaryOp::Tanh => self.tanh,
            UnaryOp::Relu => self.relu,
        }
    }

    fn binary_fn(&self, op: BinaryOp) -> Binary {
        match op {
            BinaryOp::Add => self.add,
            BinaryOp::Sub => self.sub,
            BinaryOp::Mul => self.mul,
            BinaryOp::Div => self.div,
            BinaryOp::Swiglu => self.swiglu,
        }
    }

    /// `out[i] = op(x[i])`.
    #[inline]
    pub fn unary(&self, op: UnaryOp, x: &[f32], out: &mut [f32]) {
        assert_eq!(x.len(), out.len());
        // SAFETY: `table` checked the processor; the slices hold that many elements and do not overlap.
        unsafe { self.unary_fn(op)(out.len(), x.as_ptr(), out.as_mut_ptr()) }
    }

    /// `x[i] = op(x[i])`.
    #[inline]
    pub fn unary_in_place(&self, op: UnaryOp, x: &mut [f32]) {
        // SAFETY: as in `unary`; input and output are the same elements.
        unsafe { self.unary_raw(op, x.len(), x.as_mut_ptr(), x.as_mut_ptr()) }
    }

    /// `out[i] = op(x[i])` for memory that cannot be borrowed twice.
    ///
    /// # Safety
    /// `x` is valid for reading and `out` for writing `n` elements; they are equal or do not overlap.
    #[inline]
    pub unsafe fn unary_raw(&self, op: UnaryOp, n: usize, x: *const f32, out: *mut f32) {
        // SAFETY: `table` checked the processor; the rest is this function's contract.
        unsafe { self.unary_fn(op)(n, x, out) }
    }

    /// `out[i] = op(a[i], b[i])`.
    #[inline]
    pub fn binary(&self, op: BinaryOp, a: &[f32], b: &[f32], out: &mut [f32]) {
        assert!(a.len() == out.len() && b.len() == out.len());
        // SAFETY: `table` checked the processor; the slices hold that many elements and `out` overlaps neither.
        unsafe { self.binary_fn(op)(out.len(), a.as_ptr(), b.as_ptr(), out.as_mut_ptr()) }
    }

    /// `a[i] = op(a[i], b[i])`.
    #[inline]
    pub fn binary_in_place(&self, op: BinaryOp, a: &mut [f32], b: &[f32]) {
        assert_eq!(a.len(), b.len());
        // SAFETY: as in `binary`; `a` is input and output.
        unsafe { self.binary_raw(op, a.len(), a.as_mut_ptr(), b.as_ptr(), a.as_mut_ptr()) }
    }

    /// `out[i] = op(a[i], b[i])` for memory that cannot be borrowed twice.
    ///
    /// # Safety
    /// `a` and `b` are valid for reading and `out` for writing `n` elements; `out` equals each input or does not overlap it.
    #[inline]
    pub unsafe fn binary_raw(&self, op: BinaryOp, n: usize, a: *const f32, b: *const f32, out: *mut f32) {
        // SAFETY: `table` checked the processor; the rest is this function's contract.
        unsafe { self.binary_fn(op)(n, a, b, out) }
    }

    /// `out[i] = a[i] + scale * b[i]`.
    #[inline]
    pub fn add_scaled(&self, a: &[f32], b: &[f32], scale: f32, out: &mut [f32]) {
        assert!(a.len() == out.len() && b.len() == out.len());
        // SAFETY: as in `binary`.
        unsafe { (self.add_scaled)(out.len(), a.as_ptr(), b.as_ptr(), scale, out.as_mut_ptr()) }
    }

    /// `a[i] += scale * b[i]`.
    #[inline]
    pub fn add_scaled_in_place(&self, a: &mut [f32], b: &[f32], scale: f32) {
        assert_eq!(a.len(), b.len());
        // SAFETY: as in `binary_in_place`.
        unsafe { (self.add_scaled)(a.len(), a.as_mut_ptr(), b.as_ptr(), scale, a.as_mut_ptr()) }
    }

    /// `out[i] = x[i] * s`.
    #[inline]
    pub fn mul_scalar(&self, x: &[f32], s: f32, out: &mut [f32]) {
        assert_eq!(x.len(), out.len());
        // SAFETY: as in `unary`.
        unsafe { (self.mul_scalar)(out.len(), x.as_ptr(), s, out.as_mut_ptr()) }
    }

    /// `x[i] *= s`.
    #[inline]
    pub fn mul_scalar_in_place(&self, x: &mut [f32], s: f32) {
        // SAFETY: as in `unary_in_place`.
        unsafe { (self.mul_scalar)(x.len(), x.as_mut_ptr(), s, x.as_mut_ptr()) }
    }

    /// `out[i] = x[i] + s`.
    #[inline]
    pub fn add_scalar(&self, x: &[f32], s: f32, out: &mut [f32]) {
        assert_eq!(x.len(), out.len());
        // SAFETY: as in `unary`.
        unsafe { (self.add_scalar)(out.len(), x.as_ptr(), s, out.as_mut_ptr()) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{AWKWARD, Random, assert_near, isas};
    use super::*;

    fn inputs() -> Vec<f32> {
        let mut v = AWKWARD.to_vec();
        let mut random = Random::new(7);
        for scale in [0.01, 1.0, 10.0, 120.0] {
            v.extend(random.floats(3000, scale));
        }
        v
    }

    /// Vector and scalar functions differ by the polynomials' few ulp: 2^-23 is 1.2e-7, the longest chain (exp, divide,
    /// multiply) stays under eight of them; where `exp` takes a rounded argument, 88 times half an ulp comes on top. The absolute part admits zero where `exp` overflows: 88.7 / f32::MAX is 2.6e-37.
    #[test]
    fn unary_functions_agree() {
        let x = inputs();
        for &isa in isas() {
            for &op in UnaryOp::ALL {
                let (mut got, mut want) = (vec![0.0; x.len()], vec![0.0; x.len()]);
                table(isa).unary(op, &x, &mut got);
                table(Isa::Scalar).unary(op, &x, &mut want);
                let rel = if matches!(op, UnaryOp::Gelu | UnaryOp::GeluQuick) { 1e-5 } else { 1e-6 };
                assert_near(&got, &want, rel, 3e-37, &format!("{op:?}"));
                for len in 0..=19 {
                    for start in 0..3 {
                        let mut part = x[start..start + len].to_vec();
                        table(isa).unary_in_place(op, &mut part);
                        for (p, g) in part.iter().zip(&got[start..]) {
                            assert!(
                                p.to_bits() == g.to_bits() || (p.is_nan() && g.is_nan()),
                                "{op:?} depends on position"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn exp_is_within_two_ulp() {
        let x: Vec<f32> = (-8700..8870).map(|i| i as f32 * 0.01).collect();
        for &isa in isas() {
            let mut got = vec![0.0; x.len()];
            table(isa).unary(UnaryOp::Exp, &x, &mut got);
            for (x, g) in x.iter().zip(&got) {
                let want = f64::from(*x).exp();
                assert!((f64::from(*g) - want).abs() <= want * 2.4e-7, "exp({x}) = {g}");
            }
        }
    }

    #[test]
    fn binary_functions_agree() {
        let a = inputs();
        let mut b = a.clone();
        b.rotate_left(5);
        for &isa in isas() {
            for &op in BinaryOp::ALL {
                for len in (0..=19).chain([a.len()]) {
                    let (a, b) = (&a[a.len() - len..], &b[b.len() - len..]);
                    let (mut got, mut want) = (vec![0.0; len], vec![0.0; len]);
                    table(isa).binary(op, a, b, &mut got);
                    table(Isa::Scalar).binary(op, a, b, &mut want);
                    // The four basic functions are exact in IEEE arithmetic.
                    let rel = if op == BinaryOp::Swiglu { 1e-6 } else { 0.0 };
                    assert_near(&got, &want, rel, if rel > 0.0 { 1e-34 } else { 0.0 }, &format!("{op:?}"));
                    let mut place = a.to_vec();
                    table(isa).binary_in_place(op, &mut place, b);
                    assert_near(&place, &got, 0.0, 0.0, "in place");
                }
            }
            for len in 0..=19 {
                let (a, b) = (&a[..len], &b[..len]);
                let (mut got, mut want) = (vec![0.0; len], vec![0.0; len]);
                let (t, s) = (table(isa), table(Isa::Scalar));
                t.add_scaled(a, b, 0.37, &mut got);
                s.add_scaled(a, b, 0.37, &mut want);
                // The vectors round once, not twice; inputs reach 1e38, so the bound is relative to the greater term.
                for (i, (g, w)) in got.iter().zip(&want).enumerate() {
                    let bound = 1.2e-7 * (a[i].abs() + b[i].abs());
                    assert_near(&[*g], &[*w], 0.0, bound, "add_scaled");
                }
                t.mul_scalar(a, -1.5, &mut got);
                s.mul_scalar(a, -1.5, &mut want);
                assert_near(&got, &want, 0.0, 0.0, "mul_scalar");
                t.add_scalar(a, -1.5, &mut got);
                s.add_scalar(a, -1.5, &mut want);
                assert_near(&got, &want, 0.0, 0.0, "add_scalar");
            }
        }
    }

    #[test]
    fn scalar_matches_known_values() {
        let one = |op, x: f32| {
            let mut out = [0.0];
            table(Isa::Scalar).unary(op, &[x], &mut out);
            out[0]
        };
        let near = |a: f32, b: f32| assert!((a - b).abs() <= 1e-6 * b.abs(), "{a} {b}");
        near(one(UnaryOp::GeluErf, 1.0), 0.841_344_7);
        near(one(UnaryOp::GeluErf, -3.0), -0.004_049_694);
        near(one(UnaryOp::Gelu, 1.0), 0.841_192);
        near(one(UnaryOp::GeluQuick, 1.0), 0.845_795_6);
        near(one(UnaryOp::Silu, -2.0), -0.238_405_84);
        near(one(UnaryOp::GeluErf, -10.0), -7.619_853e-23);
    }
}
