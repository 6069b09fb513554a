//! Contiguous rows from one number type to another. Narrowing rounds to nearest, ties to even; infinities stay, NaN stays
//! NaN (its payload is not kept). Strided gathers are the callers' business.

mod scalar;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod vector;

use super::isa::Isa;

macro_rules! table {
    ($($(#[$doc:meta])* $name:ident: $from:ty => $to:ty;)*) => {
        /// One function per pair of types; each converts as many elements as the slices have, which must agree.
        pub struct ConvertFns {
            $($name: unsafe fn(&[$from], &mut [$to]),)*
        }

        impl ConvertFns {
            $(
                $(#[$doc])*
                #[inline]
                pub fn $name(&self, from: &[$from], to: &mut [$to]) {
                    assert_eq!(from.len(), to.len());
                    // SAFETY: `table` checked the processor, and the lengths agree.
                    unsafe { (self.$name)(from, to) }
                }
            )*
        }

        static SCALAR: ConvertFns = ConvertFns { $($name: scalar::$name,)* };
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        static VECTOR: ConvertFns = ConvertFns { $($name: vector::$name,)* };
    };
}

table! {
    /// Half precision, given as bits, to single precision.
    f16_to_f32: u16 => f32;
    /// Single to half precision.
    f32_to_f16: f32 => u16;
    /// Brain floats, given as bits, to single precision.
    bf16_to_f32: u16 => f32;
    /// Single precision to brain floats.
    f32_to_bf16: f32 => u16;
    /// Small integers to single precision, exactly.
    i8_to_f32: i8 => f32;
}

/// The functions for `isa`, or the scalar ones where the processor lacks it.
pub fn table(isa: Isa) -> &'static ConvertFns {
    match isa {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        Isa::Avx2 | Isa::Neon | Isa::Dotprod if isa.is_available() => &VECTOR,
        _ => &SCALAR,
    }
}

/// The functions for the set in use.
pub fn current() -> &'static ConvertFns {
    table(Isa::current())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{AWKWARD, isas};
    use super::*;

    #[test]
    fn all_half_values_widen_alike() {
        let bits: Vec<u16> = (0..=u16::MAX).collect();
        for &isa in isas() {
            for start in 0..3 {
                let from = &bits[start..];
                let (mut a, mut b) = (vec![0f32; from.len()], vec![0f32; from.len()]);
                for pick in [ConvertFns::f16_to_f32, ConvertFns::bf16_to_f32] {
                    pick(table(isa), from, &mut a);
                    pick(table(Isa::Scalar), from, &mut b);
                    assert!(a.iter().zip(&b).all(|(x, y)| x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan())));
                }
            }
        }
    }

    #[test]
    fn narrowing_agrees_on_every_tail_and_round_trips() {
        let values: Vec<f32> =
            AWKWARD.iter().copied().chain((0..200_000u32).map(|i| f32::from_bits(i.wrapping_mul(21_473)))).collect();
        let same =
            |a: &[u16], b: &[u16], nan: fn(u16) -> bool| a.iter().zip(b).all(|(&x, &y)| x == y || (nan(x) && nan(y)));
        for &isa in isas() {
            for len in (0..=19).chain([values.len()]) {
                let from = &values[values.len() - len..];
                let (mut a, mut b) = (vec![0u16; len], vec![0u16; len]);
                table(isa).f32_to_f16(from, &mut a);
                table(Isa::Scalar).f32_to_f16(from, &mut b);
                assert!(same(&a, &b, |x| half::f16::from_bits(x).is_nan()));
                table(isa).f32_to_bf16(from, &mut a);
                table(Isa::Scalar).f32_to_bf16(from, &mut b);
                assert!(same(&a, &b, |x| half::bf16::from_bits(x).is_nan()));
            }
            let mut head = vec![0u16; AWKWARD.len()];
            table(isa).f32_to_bf16(AWKWARD, &mut head);
            assert!(AWKWARD.iter().zip(&head).all(|(v, &b)| v.is_nan() == half::bf16::from_bits(b).is_nan()));
        }
    }

    #[test]
    fn integers_are_exact() {
        let from: Vec<i8> = (i8::MIN..=i8::MAX).collect();
        for &isa in isas() {
            for len in 0..=from.len() {
                let mut to = vec![0.0; len];
                table(isa).i8_to_f32(&from[..len], &mut to);
                assert!(to.iter().zip(&from).all(|(t, f)| *t == f32::from(*f)));
            }
        }
    }
}
