//! The definitions, through `f64` where a formula cancels or chains.

macro_rules! unary {
    ($($name:ident = $f:expr;)*) => {$(
        /// # Safety
        /// `x` is valid for reading and `out` for writing `n` elements; they are equal or do not overlap.
        pub unsafe fn $name(n: usize, x: *const f32, out: *mut f32) {
            let f: fn(f32) -> f32 = $f;
            // SAFETY: `i < n`.
            (0..n).for_each(|i| unsafe { *out.add(i) = f(*x.add(i)) });
        }
    )*};
}

macro_rules! binary {
    ($($name:ident = $f:expr;)*) => {$(
        /// # Safety
        /// `a` and `b` are valid for reading and `out` for writing `n` elements; `out` equals each or overlaps neither.
        pub unsafe fn $name(n: usize, a: *const f32, b: *const f32, out: *mut f32) {
            let f: fn(f32, f32) -> f32 = $f;
            // SAFETY: `i < n`.
            (0..n).for_each(|i| unsafe { *out.add(i) = f(*a.add(i), *b.add(i)) });
        }
    )*};
}

unary! {
    silu = |x| sigmoid_times(x, 1.0);
    gelu = |x| {
        let x = f64::from(x);
        // tanh form, rewritten: (1 + tanh u) / 2 = sigmoid(2u).
        let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
        (x / (1.0 + (-2.0 * u).exp())) as f32
    };
    gelu_erf = |x| {
        let x = f64::from(x);
        (0.5 * x * erfc(-x / std::f64::consts::SQRT_2)) as f32
    };
    gelu_quick = |x| sigmoid_times(x, 1.702);
    sigmoid = |x| (1.0 / (1.0 + (-f64::from(x)).exp())) as f32;
    exp = |x| f64::from(x).exp() as f32;
    tanh = |x| f64::from(x).tanh() as f32;
    relu = |x| if x < 0.0 { 0.0 } else { x };
}

binary! {
    add = |a, b| a + b;
    sub = |a, b| a - b;
    mul = |a, b| a * b;
    div = |a, b| a / b;
    swiglu = |a, b| sigmoid_times(a, 1.0) * b;
}

/// # Safety
/// As the binary functions.
pub unsafe fn add_scaled(n: usize, a: *const f32, b: *const f32, scale: f32, out: *mut f32) {
    // SAFETY: `i < n`.
    (0..n).for_each(|i| unsafe { *out.add(i) = *a.add(i) + scale * *b.add(i) });
}

/// # Safety
/// As the unary functions.
pub unsafe fn mul_scalar(n: usize, x: *const f32, s: f32, out: *mut f32) {
    // SAFETY: `i < n`.
    (0..n).for_each(|i| unsafe { *out.add(i) = *x.add(i) * s });
}

/// # Safety
/// As the unary functions.
pub unsafe fn add_scalar(n: usize, x: *const f32, s: f32, out: *mut f32) {
    // SAFETY: `i < n`.
    (0..n).for_each(|i| unsafe { *out.add(i) = *x.add(i) + s });
}

/// `x * sigmoid(steepness * x)`.
fn sigmoid_times(x: f32, steepness: f64) -> f32 {
    let x = f64::from(x);
    (x / (1.0 + (-steepness * x).exp())) as f32
}

/// The complementary error function: its Taylor series near zero, its continued fraction beyond.
fn erfc(x: f64) -> f64 {
    let a = x.abs();
    if a.is_nan() || a < 2.0 {
        let (mut term, mut sum) = (a, a);
        for n in 1..60 {
            term *= -a * a / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        return 1.0 - (sum * std::f64::consts::FRAC_2_SQRT_PI).copysign(x);
    }
    let mut tail = 0.0;
    for n in (1..=60).rev() {
        tail = f64::from(n) / 2.0 / (a + tail);
    }
    let positive = (-a * a).exp() / (a + tail) / std::f64::consts::PI.sqrt();
    if x < 0.0 { 2.0 - positive } else { positive }
}
