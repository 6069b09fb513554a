//! Conversions eight elements at a time; tails are scalar.

use super::scalar;
use std::arch::x86_64::*;

/// Splits both slices into vectors of eight, runs `$body` on each pair, and gives the tails to `$scalar`.
macro_rules! rows {
    ($name:ident, $from:ty => $to:ty, $body:ident) => {
        #[target_feature(enable = "avx2,fma,f16c")]
        pub fn $name(from: &[$from], to: &mut [$to]) {
            let (from8, from_tail) = from.as_chunks::<8>();
            let (to8, to_tail) = to.as_chunks_mut::<8>();
            for (f, t) in from8.iter().zip(to8) {
                $body(f, t);
            }
            scalar::$name(from_tail, to_tail);
        }
    };
}

rows!(f16_to_f32, u16 => f32, widen_f16);
rows!(f32_to_f16, f32 => u16, narrow_f16);
rows!(bf16_to_f32, u16 => f32, widen_bf16);
rows!(f32_to_bf16, f32 => u16, narrow_bf16);
rows!(i8_to_f32, i8 => f32, widen_i8);

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn widen_f16(from: &[u16; 8], to: &mut [f32; 8]) {
    // SAFETY: both arrays hold eight elements, 16 and 32 bytes.
    unsafe { _mm256_storeu_ps(to.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().cast()))) }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn narrow_f16(from: &[f32; 8], to: &mut [u16; 8]) {
    // SAFETY: as in `widen_f16`, the other way round.
    unsafe {
        let half = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(from.as_ptr()));
        _mm_storeu_si128(to.as_mut_ptr().cast(), half);
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn widen_bf16(from: &[u16; 8], to: &mut [f32; 8]) {
    // SAFETY: as in `widen_f16`.
    unsafe {
        let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.as_ptr().cast()));
        _mm256_storeu_si256(to.as_mut_ptr().cast(), _mm256_slli_epi32::<16>(wide));
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn narrow_bf16(from: &[f32; 8], to: &mut [u16; 8]) {
    // SAFETY: as in `narrow_f16`.
    unsafe {
        let value = _mm256_loadu_ps(from.as_ptr());
        let bits = _mm256_castps_si256(value);
        // Adding 0x7fff, and one more when the kept part is odd, carries exactly when nearest-even rounds up.
        let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
        let rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
        let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x0040_0000));
        let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(value, value));
        let high = _mm256_srli_epi32::<16>(_mm256_blendv_epi8(rounded, quiet, nan));
        let packed = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(high, high));
        _mm_storeu_si128(to.as_mut_ptr().cast(), _mm256_castsi256_si128(packed));
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn widen_i8(from: &[i8; 8], to: &mut [f32; 8]) {
    // SAFETY: eight bytes are read, 32 written.
    unsafe {
        let wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64(from.as_ptr().cast()));
        _mm256_storeu_ps(to.as_mut_ptr(), _mm256_cvtepi32_ps(wide));
    }
}
