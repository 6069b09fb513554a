//! Eight floats with AVX2, FMA and F16C.

use std::arch::x86_64::*;

pub use std::arch::x86_64::{
    __m256 as F32s, __m256 as Mask, __m256i as I32s, _mm256_add_ps as plus, _mm256_blendv_ps as blend,
    _mm256_cvtepi32_ps as from_ints, _mm256_div_ps as over, _mm256_fmadd_ps as fma, _mm256_fmsub_ps as fms,
    _mm256_fnmadd_ps as fnma, _mm256_loadu_ps as load, _mm256_max_ps as greatest, _mm256_min_ps as least,
    _mm256_mul_ps as times, _mm256_or_ps as either, _mm256_set1_ps as splat, _mm256_storeu_ps as store,
    _mm256_sub_ps as minus,
};

pub const LANES: usize = 8;

vectorised! {
    pub fn zero() -> F32s {
        _mm256_setzero_ps()
    }

    pub fn negate(x: F32s) -> F32s {
        _mm256_xor_ps(x, splat(-0.0))
    }

    pub fn abs(x: F32s) -> F32s {
        _mm256_andnot_ps(splat(-0.0), x)
    }

    /// `x`, which is not negative, with the sign of `y`.
    pub fn with_sign_of(x: F32s, y: F32s) -> F32s {
        _mm256_or_ps(x, _mm256_and_ps(y, splat(-0.0)))
    }

    /// To the nearest integer, ties to even.
    pub fn round(x: F32s) -> F32s {
        _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x)
    }

    /// `x * 2^n` for integers `n`. The power is applied in two halves so that neither overflows early nor flushes denormal
    /// results.
    pub fn times_power_of_two(x: F32s, n: F32s) -> F32s {
        let n = _mm256_cvtps_epi32(n);
        let low = _mm256_srai_epi32::<1>(n);
        let high = _mm256_sub_epi32(n, low);
        let power = |n| _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(n, _mm256_set1_epi32(127))));
        times(times(x, power(low)), power(high))
    }

    pub fn greater(a: F32s, b: F32s) -> Mask {
        _mm256_cmp_ps::<_CMP_GT_OQ>(a, b)
    }

    pub fn is_nan(x: F32s) -> Mask {
        _mm256_cmp_ps::<_CMP_UNORD_Q>(x, x)
    }

    /// Where the sign bit is set.
    pub fn is_negative(x: F32s) -> Mask {
        x
    }

    pub fn any(mask: Mask) -> bool {
        _mm256_movemask_ps(mask) != 0
    }

    pub fn select(mask: Mask, yes: F32s, no: F32s) -> F32s {
        blend(no, yes, mask)
    }

    /// The first `n` lanes, and zeros.
    pub fn first_lanes(x: F32s, n: isize) -> F32s {
        _mm256_and_ps(x, _mm256_castsi256_ps(lanes(n)))
    }

    fn lanes(n: isize) -> __m256i {
        _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
    }

    pub fn horizontal_sum(v: F32s) -> f32 {
        let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
        _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
    }

    pub fn horizontal_max(v: F32s) -> f32 {
        let v = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let v = _mm_max_ps(v, _mm_movehl_ps(v, v));
        _mm_cvtss_f32(_mm_max_ss(v, _mm_movehdup_ps(v)))
    }

    /// `x[i] * cos[i] - x[i + 1] * sin[i]` in even lanes, `x[i] * cos[i] + x[i - 1] * sin[i]` in odd ones.
    pub fn rotate_pairs(x: F32s, cos: F32s, sin: F32s) -> F32s {
        let swapped = _mm256_permute_ps::<0b10_11_00_01>(x);
        _mm256_addsub_ps(times(x, cos), times(swapped, sin))
    }

    /// Lane `j` of row `i` becomes lane `i` of row `j`.
    pub fn transpose(rows: [F32s; LANES]) -> [F32s; LANES] {
        transpose_ints(rows.map(|row| _mm256_castps_si256(row))).map(|row| _mm256_castsi256_ps(row))
    }

    pub fn transpose_ints(r: [I32s; LANES]) -> [I32s; LANES] {
        let pair = |a, b| (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
        let ((a0, a1), (a2, a3)) = (pair(r[0], r[1]), pair(r[2], r[3]));
        let ((a4, a5), (a6, a7)) = (pair(r[4], r[5]), pair(r[6], r[7]));
        let quad = |a, b| (_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
        let ((b0, b1), (b2, b3)) = (quad(a0, a2), quad(a1, a3));
        let ((b4, b5), (b6, b7)) = (quad(a4, a6), quad(a5, a7));
        let low = |a, b| _mm256_permute2x128_si256::<0x20>(a, b);
        let high = |a, b| _mm256_permute2x128_si256::<0x31>(a, b);
        [low(b0, b4), low(b1, b5), low(b2, b6), low(b3, b7), high(b0, b4), high(b1, b5), high(b2, b6), high(b3, b7)]
    }

    /// The `n` elements at `p`, fewer than [`LANES`], and zeros.
    ///
    /// # Safety
    /// They are readable.
    pub unsafe fn load_first(p: *const f32, n: usize) -> F32s {
        // SAFETY: masked lanes touch no memory.
        unsafe { _mm256_maskload_ps(p, lanes(n as isize)) }
    }

    /// Writes the first `n` elements, fewer than [`LANES`].
    ///
    /// # Safety
    /// They are writable.
    pub unsafe fn store_first(p: *mut f32, n: usize, x: F32s) {
        // SAFETY: masked lanes touch no memory.
        unsafe { _mm256_maskstore_ps(p, lanes(n as isize), x) }
    }

    /// # Safety
    /// `p` is valid for reading eight halves.
    pub unsafe fn load_f16(p: *const u16) -> F32s {
        // SAFETY: the caller's duty.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(p.cast())) }
    }

    /// # Safety
    /// `p` is valid for writing eight halves.
    pub unsafe fn store_f16(p: *mut u16, x: F32s) {
        // SAFETY: the caller's duty.
        unsafe { _mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x)) }
    }

    /// # Safety
    /// `p` is valid for reading eight brain floats.
    pub unsafe fn load_bf16(p: *const u16) -> F32s {
        // SAFETY: the caller's duty.
        let wide = unsafe { _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast())) };
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
    }

    /// # Safety
    /// `p` is valid for writing eight brain floats.
    pub unsafe fn store_bf16(p: *mut u16, x: F32s) {
        let bits = _mm256_castps_si256(x);
        // Adding 0x7fff, and one more when the kept part is odd, carries exactly when nearest-even rounds up.
        let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
        let rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
        let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x0040_0000));
        let high = _mm256_srli_epi32::<16>(_mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(is_nan(x))));
        let packed = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(high, high));
        // SAFETY: the caller's duty.
        unsafe { _mm_storeu_si128(p.cast(), _mm256_castsi256_si128(packed)) }
    }

    /// # Safety
    /// `p` is valid for reading eight bytes.
    pub unsafe fn load_i8(p: *const i8) -> F32s {
        // SAFETY: the caller's duty.
        from_ints(_mm256_cvtepi8_epi32(unsafe { _mm_loadl_epi64(p.cast()) }))
    }

    /// The halves from index `at` on, with zeros beyond the end. It has no branch: a call or a copy in the loops that use it
    /// would cost them their registers.
    ///
    /// # Safety
    /// `all` holds at least eight numbers and `at` is an index of it.
    pub unsafe fn halves(all: &[u16], at: usize) -> F32s {
        /// Sixteen places, then sixteen times nothing.
        static SHIFT: [u8; 32] = [
            0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,
            128, 128, 128, 128, 128, 128,
        ];
        let start = at.min(all.len().wrapping_sub(8));
        // SAFETY: eight numbers from `start` on are inside the slice; `at - start` is at most seven.
        unsafe {
            let shift = _mm_loadu_si128(SHIFT.as_ptr().add(2 * (at - start)).cast());
            _mm256_cvtph_ps(_mm_shuffle_epi8(_mm_loadu_si128(all.as_ptr().add(start).cast()), shift))
        }
    }

    /// Asks for a cache line.
    pub fn prefetch(p: *const u8) {
        _mm_prefetch::<_MM_HINT_T0>(p.cast());
    }
}
