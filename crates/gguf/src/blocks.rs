//! Where the fields of each block type lie.
//!
//! A view names the fields of one block's bytes without copying them; its size is checked against [`GgmlType`] when the
//! crate is compiled. All numbers are little-endian. Views have no arithmetic: what a code stands for is in the
//! dequantiser, and in whoever repacks blocks for a device.

use half::f16;

use crate::error::GgufError;
use crate::types::GgmlType;

/// Elements in a block of the simple types.
pub const QK: usize = 32;
/// Elements in a super-block of the k-quants and most iq types.
pub const QK_K: usize = 256;

macro_rules! block {
    ($(#[$doc:meta])* $name:ident = $ty:ident { $($field:ident: $bytes:literal),* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name<'a> {
            $(pub $field: &'a [u8; $bytes],)*
        }

        impl<'a> $name<'a> {
            pub const BYTES: usize = 0 $(+ $bytes)*;

            #[inline(always)]
            pub fn new(block: &'a [u8; 0 $(+ $bytes)*]) -> Self {
                let rest: &[u8] = block;
                $(let ($field, rest) = front(rest);)*
                debug_assert!(rest.is_empty());
                Self { $($field),* }
            }
        }

        const _: () = assert!($name::BYTES == GgmlType::$ty.block_bytes());
    };
}

block!(BlockQ4_0 = Q4_0 { d: 2, qs: 16 });
block!(BlockQ4_1 = Q4_1 { d: 2, m: 2, qs: 16 });
block!(BlockQ5_0 = Q5_0 { d: 2, qh: 4, qs: 16 });
block!(BlockQ5_1 = Q5_1 { d: 2, m: 2, qh: 4, qs: 16 });
block!(BlockQ8_0 = Q8_0 { d: 2, qs: 32 });
block!(
    /// Activations only, never in a file; `s` is d times the sum of the codes.
    BlockQ8_1 = Q8_1 { d: 2, s: 2, qs: 32 }
);
block!(BlockQ2K = Q2K { scales: 16, qs: 64, d: 2, dmin: 2 });
block!(BlockQ3K = Q3K { hmask: 32, qs: 64, scales: 12, d: 2 });
block!(BlockQ4K = Q4K { d: 2, dmin: 2, scales: 12, qs: 128 });
block!(BlockQ5K = Q5K { d: 2, dmin: 2, scales: 12, qh: 32, qs: 128 });
block!(BlockQ6K = Q6K { ql: 128, qh: 64, scales: 16, d: 2 });
block!(
    /// Activations only, never in a file; `d` is an f32, `bsums` are 16 sums of 16 codes.
    BlockQ8K = Q8K { d: 4, qs: 256, bsums: 32 }
);
block!(BlockIq2Xxs = Iq2Xxs { d: 2, qs: 64 });
block!(BlockIq2Xs = Iq2Xs { d: 2, qs: 64, scales: 8 });
block!(BlockIq2S = Iq2S { d: 2, qs: 32, signs: 32, qh: 8, scales: 8 });
block!(BlockIq3Xxs = Iq3Xxs { d: 2, qs: 64, scales_signs: 32 });
block!(BlockIq3S = Iq3S { d: 2, qs: 64, qh: 8, signs: 32, scales: 4 });
block!(BlockIq1S = Iq1S { d: 2, qs: 32, qh: 16 });
block!(
    /// The four top nibbles of the 16-bit `scales` are the block's f16 scale.
    BlockIq1M = Iq1M { qs: 32, qh: 16, scales: 8 }
);
block!(BlockIq4Nl = Iq4Nl { d: 2, qs: 16 });
block!(BlockIq4Xs = Iq4Xs { d: 2, scales_h: 2, scales_l: 4, qs: 128 });
block!(BlockTq1_0 = Tq1_0 { qs: 48, qh: 4, d: 2 });
block!(BlockTq2_0 = Tq2_0 { qs: 64, d: 2 });
block!(BlockMxfp4 = Mxfp4 { e: 1, qs: 16 });

/// Scale and minimum, six bits each, of group `g` (0 … 7, 32 elements) of a q4_K or q5_K block.
#[inline]
pub fn k4_scale_min(scales: &[u8; 12], g: usize) -> (u8, u8) {
    if g < 4 {
        (scales[g] & 63, scales[g + 4] & 63)
    } else {
        let low = scales[g + 4];
        (low & 15 | scales[g - 4] >> 6 << 4, low >> 4 | scales[g] >> 6 << 4)
    }
}

/// Scale of the sixteen elements `k` (0 … 15) of a q3_K block, from -32 to 31.
#[inline]
pub fn q3k_scale(scales: &[u8; 12], k: usize) -> i8 {
    let low = if k < 8 { scales[k] & 15 } else { scales[k - 8] >> 4 };
    let high = scales[8 + k % 4] >> (2 * (k / 4)) & 3;
    (low | high << 4) as i8 - 32
}

/// A field that holds an f16.
#[inline(always)]
pub fn f16_field(bytes: &[u8; 2]) -> f32 {
    f16::from_le_bytes(*bytes).to_f32()
}

/// Whether `bytes` bytes are the whole blocks of `values` values.
pub(crate) fn check_sizes(ty: GgmlType, values: usize, bytes: usize) -> Result<(), GgufError> {
    if !values.is_multiple_of(ty.block_len()) {
        return Err(GgufError::NotWholeBlocks { ty, values });
    }
    // A slice of values can't be long enough for this to saturate.
    let expected_bytes = (values / ty.block_len()).saturating_mul(ty.block_bytes());
    if bytes != expected_bytes {
        return Err(GgufError::BlockBytes { ty, values, expected_bytes, found_bytes: bytes });
    }
    Ok(())
}

#[inline(always)]
fn front<const N: usize>(bytes: &[u8]) -> (&[u8; N], &[u8]) {
    // A view's fields add up to its block: `block!` computes one from the other.
    bytes.split_first_chunk().expect("fields fill the block")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_follow_each_other() {
        let bytes: [u8; 20] = std::array::from_fn(|i| i as u8);
        let block = BlockQ4_1::new(&bytes);
        assert_eq!((block.d, block.m, block.qs[0], block.qs[15]), (&[0, 1], &[2, 3], 4, 19));
    }

    #[test]
    fn six_bit_scales_use_every_bit_once() {
        let ones = [0xff; 12];
        for g in 0..8 {
            assert_eq!(k4_scale_min(&ones, g), (63, 63));
        }
        for k in 0..16 {
            assert_eq!(q3k_scale(&ones, k), 31);
            assert_eq!(q3k_scale(&[0; 12], k), -32);
        }
        for bit in 0..96 {
            let mut scales = [0; 12];
            scales[bit / 8] = 1 << (bit % 8);
            let pairs = (0..8).map(|g| k4_scale_min(&scales, g));
            assert_eq!(pairs.map(|(s, m)| s.count_ones() + m.count_ones()).sum::<u32>(), 1);
            let moved = (0..16).filter(|&k| q3k_scale(&scales, k) != -32);
            assert_eq!(moved.count(), 1);
        }
    }
}
