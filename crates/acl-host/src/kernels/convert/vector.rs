//! Conversions of whole vectors; tails are scalar.

use super::super::lanes::*;
use super::scalar;

/// Splits both slices into vectors, reads each with `$read`, writes it with `$write`, and gives the tails to the scalar function.
macro_rules! rows {
    ($($name:ident: $from:ty => $to:ty, $read:ident, $write:ident;)*) => { vectorised! {$(
        pub fn $name(from: &[$from], to: &mut [$to]) {
            let (vectors, from_tail) = from.as_chunks::<LANES>();
            let (to_vectors, to_tail) = to.as_chunks_mut::<LANES>();
            for (f, t) in vectors.iter().zip(to_vectors) {
                // SAFETY: both arrays hold a vector's elements.
                unsafe { $write(t.as_mut_ptr(), $read(f.as_ptr())) }
            }
            scalar::$name(from_tail, to_tail);
        }
    )*}};
}

rows! {
    f16_to_f32: u16 => f32, load_f16, store;
    f32_to_f16: f32 => u16, load, store_f16;
    bf16_to_f32: u16 => f32, load_bf16, store;
    f32_to_bf16: f32 => u16, load, store_bf16;
    i8_to_f32: i8 => f32, load_i8, store;
}
