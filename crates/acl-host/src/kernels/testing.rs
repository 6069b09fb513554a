//! What the families' tests share: a seeded generator, awkward values, and a way to compare floats.

use super::isa::Isa;

/// A small reproducible generator (xorshift); quality does not matter here.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    /// In -1 ..= 1.
    pub fn float(&mut self) -> f32 {
        (self.bits() % 200_001) as f32 / 100_000.0 - 1.0
    }

    pub fn floats(&mut self, n: usize, scale: f32) -> Vec<f32> {
        (0..n).map(|_| self.float() * scale).collect()
    }
}

/// Values at the edges of what kernels must get right.
pub const AWKWARD: &[f32] = &[
    0.0,
    -0.0,
    1.0,
    -1.0,
    f32::NAN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::MAX,
    f32::MIN,
    f32::MIN_POSITIVE,
    -1e-45,
    1e-40,
    65504.0,
    65520.0,
    1e-8,
    88.7,
    88.8,
    -87.4,
    -103.5,
    -104.5,
    0.624,
    0.626,
    -9.5,
    12.0,
    3.1e-5,
    -6.1e-5,
    5.9e-8,
    1e20,
    -1e20,
];

/// The sets to compare with `Scalar`; says which, so that a skip shows in the log.
pub fn isas() -> &'static [Isa] {
    let all = Isa::available();
    println!("kernel tables tested: {}", all.iter().map(|i| i.name()).collect::<Vec<_>>().join(", "));
    all
}

/// Fails unless `got` is within `rel` of `want` relatively or `abs` absolutely; NaN and infinities must agree.
pub fn assert_near(got: &[f32], want: &[f32], rel: f32, abs: f32, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (&g, &w)) in got.iter().zip(want).enumerate() {
        let same = g == w || (g.is_nan() && w.is_nan()) || (g - w).abs() <= abs + rel * w.abs();
        assert!(same, "{what}: [{i}] is {g:e}, expected {w:e}");
    }
}
