//! Four floats with NEON, which every AArch64 processor has. What the pinned Rust has no stable intrinsic for is an
//! instruction by name.

use std::arch::aarch64::*;
use std::arch::asm;

pub use std::arch::aarch64::{
    float32x4_t as F32s, int32x4_t as I32s, uint32x4_t as Mask, vabsq_f32 as abs, vaddq_f32 as plus,
    vaddvq_f32 as horizontal_sum, vbslq_f32 as select, vcgtq_f32 as greater, vcvtq_f32_s32 as from_ints,
    vdivq_f32 as over, vdupq_n_f32 as splat, vld1q_f32 as load, vmaxq_f32 as greatest, vmaxvq_f32 as horizontal_max,
    vminq_f32 as least, vmulq_f32 as times, vnegq_f32 as negate, vorrq_u32 as either, vrndnq_f32 as round,
    vst1q_f32 as store, vsubq_f32 as minus,
};

pub const LANES: usize = 4;

vectorised! {
    pub fn zero() -> F32s {
        splat(0.0)
    }

    /// `a * b + c`.
    pub fn fma(a: F32s, b: F32s, c: F32s) -> F32s {
        vfmaq_f32(c, a, b)
    }

    /// `a * b - c`.
    pub fn fms(a: F32s, b: F32s, c: F32s) -> F32s {
        vfmaq_f32(negate(c), a, b)
    }

    /// `c - a * b`.
    pub fn fnma(a: F32s, b: F32s, c: F32s) -> F32s {
        vfmsq_f32(c, a, b)
    }

    /// `x`, which is not negative, with the sign of `y`.
    pub fn with_sign_of(x: F32s, y: F32s) -> F32s {
        select(vdupq_n_u32(1 << 31), y, x)
    }

    /// `x * 2^n` for integers `n`. The power is applied in two halves so that neither overflows early nor flushes denormal
    /// results.
    pub fn times_power_of_two(x: F32s, n: F32s) -> F32s {
        let n = vcvtq_s32_f32(n);
        let low = vshrq_n_s32::<1>(n);
        let high = vsubq_s32(n, low);
        let power = |n| vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(n, vdupq_n_s32(127))));
        times(times(x, power(low)), power(high))
    }

    pub fn is_nan(x: F32s) -> Mask {
        vmvnq_u32(vceqq_f32(x, x))
    }

    /// Where the sign bit is set.
    pub fn is_negative(x: F32s) -> Mask {
        vcltzq_s32(vreinterpretq_s32_f32(x))
    }

    pub fn any(mask: Mask) -> bool {
        vmaxvq_u32(mask) != 0
    }

    /// The first `n` lanes, and zeros.
    pub fn first_lanes(x: F32s, n: isize) -> F32s {
        let lane = vcombine_s32(vcreate_s32(1 << 32), vcreate_s32(3 << 32 | 2));
        let keep = vcgtq_s32(vdupq_n_s32(n as i32), lane);
        vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(x), keep))
    }

    /// `x[i] * cos[i] - x[i + 1] * sin[i]` in even lanes, `x[i] * cos[i] + x[i - 1] * sin[i]` in odd ones.
    pub fn rotate_pairs(x: F32s, cos: F32s, sin: F32s) -> F32s {
        let swapped = vrev64q_f32(x);
        let even = vreinterpretq_u32_u64(vdupq_n_u64(0x8000_0000));
        let sin = vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(sin), even));
        plus(times(x, cos), times(swapped, sin))
    }

    /// Lane `j` of row `i` becomes lane `i` of row `j`.
    pub fn transpose(r: [F32s; LANES]) -> [F32s; LANES] {
        let pair = |a, b| (vreinterpretq_f64_f32(vtrn1q_f32(a, b)), vreinterpretq_f64_f32(vtrn2q_f32(a, b)));
        let ((a0, a1), (a2, a3)) = (pair(r[0], r[1]), pair(r[2], r[3]));
        [vtrn1q_f64(a0, a2), vtrn1q_f64(a1, a3), vtrn2q_f64(a0, a2), vtrn2q_f64(a1, a3)]
            .map(|v| vreinterpretq_f32_f64(v))
    }

    /// The `n` elements at `p`, fewer than [`LANES`], and zeros.
    ///
    /// # Safety
    /// They are readable.
    pub unsafe fn load_first(p: *const f32, n: usize) -> F32s {
        let mut buffer = [0.0; LANES];
        // SAFETY: `n` elements are readable, and the buffer holds more.
        unsafe {
            std::ptr::copy_nonoverlapping(p, buffer.as_mut_ptr(), n);
            load(buffer.as_ptr())
        }
    }

    /// Writes the first `n` elements, fewer than [`LANES`].
    ///
    /// # Safety
    /// They are writable.
    pub unsafe fn store_first(p: *mut f32, n: usize, x: F32s) {
        let mut buffer = [0.0; LANES];
        // SAFETY: the buffer holds more than `n` elements, which are writable.
        unsafe {
            store(buffer.as_mut_ptr(), x);
            std::ptr::copy_nonoverlapping(buffer.as_ptr(), p, n);
        }
    }

    fn widen(half: uint16x4_t) -> F32s {
        let wide: F32s;
        // SAFETY: a conversion between registers that every processor with NEON has.
        unsafe {
            asm!("fcvtl {0:v}.4s, {1:v}.4h", out(vreg) wide, in(vreg) half, options(pure, nomem, nostack, preserves_flags));
        }
        wide
    }

    /// # Safety
    /// `p` is valid for reading four halves.
    pub unsafe fn load_f16(p: *const u16) -> F32s {
        // SAFETY: the caller's duty.
        widen(unsafe { vld1_u16(p) })
    }

    /// # Safety
    /// `p` is valid for writing four halves.
    pub unsafe fn store_f16(p: *mut u16, x: F32s) {
        let half: uint16x4_t;
        // SAFETY: as in `widen`; writing is the caller's duty.
        unsafe {
            asm!("fcvtn {0:v}.4h, {1:v}.4s", out(vreg) half, in(vreg) x, options(pure, nomem, nostack, preserves_flags));
            vst1_u16(p, half);
        }
    }

    /// # Safety
    /// `p` is valid for reading four brain floats.
    pub unsafe fn load_bf16(p: *const u16) -> F32s {
        // SAFETY: the caller's duty.
        vreinterpretq_f32_u32(vshlq_n_u32::<16>(vmovl_u16(unsafe { vld1_u16(p) })))
    }

    /// # Safety
    /// `p` is valid for writing four brain floats.
    pub unsafe fn store_bf16(p: *mut u16, x: F32s) {
        let bits = vreinterpretq_u32_f32(x);
        // Adding 0x7fff, and one more when the kept part is odd, carries exactly when nearest-even rounds up.
        let odd = vandq_u32(vshrq_n_u32::<16>(bits), vdupq_n_u32(1));
        let rounded = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
        let quiet = vorrq_u32(bits, vdupq_n_u32(0x0040_0000));
        // SAFETY: the caller's duty.
        unsafe { vst1_u16(p, vshrn_n_u32::<16>(vbslq_u32(is_nan(x), quiet, rounded))) }
    }

    /// # Safety
    /// `p` is valid for reading four bytes.
    pub unsafe fn load_i8(p: *const i8) -> F32s {
        // SAFETY: the caller's duty.
        let bytes = vcreate_s8(u64::from(unsafe { p.cast::<u32>().read_unaligned() }));
        from_ints(vmovl_s16(vget_low_s16(vmovl_s8(bytes))))
    }

    /// The halves from index `at` on, with zeros beyond the end. It has no branch: a call or a copy in the loops that use it
    /// would cost them their registers.
    ///
    /// # Safety
    /// `all` holds at least four numbers, and `at` is at most three more than their number.
    pub unsafe fn halves(all: &[u16], at: usize) -> F32s {
        /// Eight places, then nothing.
        static SHIFT: [u8; 24] =
            [0, 1, 2, 3, 4, 5, 6, 7, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128];
        let start = at.min(all.len().wrapping_sub(4));
        // SAFETY: four numbers from `start` on are inside the slice; `at - start` is at most seven.
        unsafe {
            let shift = vld1_u8(SHIFT.as_ptr().add(2 * (at - start)));
            let found = vtbl1_u8(vreinterpret_u8_u16(vld1_u16(all.as_ptr().add(start))), shift);
            widen(vreinterpret_u16_u8(found))
        }
    }

    /// Asks for a cache line.
    pub fn prefetch(p: *const u8) {
        // SAFETY: a hint; any address will do.
        unsafe { asm!("prfm pldl1keep, [{0}]", in(reg) p, options(readonly, nostack, preserves_flags)) }
    }
}
