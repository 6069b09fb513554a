//! What is peculiar to NEON in quantised products. [`Long`] multiplies 16-bit numbers into 32-bit sums. [`Dot`] takes `x` apart
//! into bytes, `x = 256 high + low + 128`, for the instruction that multiplies and adds four bytes of each lane: two of
//! those replace four long products.

use super::super::lanes::*;
use super::operand::{GROUP, GroupedWeights, QuantBits};
use super::vector::GroupProducts;
use super::{MR, NR, Tile};
use std::arch::aarch64::*;
use std::arch::asm;

/// Vectors of a row of a tile.
const COLS: usize = NR / LANES;
/// Steps of four through a group.
const FOURS: usize = GROUP / 4;

type Sums = [[int32x4_t; COLS]; MR];

/// Groups as four vectors of 16-bit numbers.
pub struct Long;

impl GroupProducts for Long {
    type X = [int16x8_t; 4];
    type W = [int16x8_t; 4];

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn x(x: *const i16) -> Self::X {
        // SAFETY: a group is four vectors of eight.
        std::array::from_fn(|i| unsafe { vld1q_s16(x.add(8 * i)) })
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn w<const I4: bool>(w: *const u8) -> Self::W {
        // SAFETY: handed on.
        let [a, b] = unsafe { load_quants::<I4>(w) };
        [vmovl_s8(vget_low_s8(a)), vmovl_high_s8(a), vmovl_s8(vget_low_s8(b)), vmovl_high_s8(b)]
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn products(w: Self::W, x: Self::X) -> I32s {
        let mut low = vmull_s16(vget_low_s16(w[0]), vget_low_s16(x[0]));
        let mut high = vmull_high_s16(w[0], x[0]);
        for i in 1..4 {
            low = vmlal_s16(low, vget_low_s16(w[i]), vget_low_s16(x[i]));
            high = vmlal_high_s16(high, w[i], x[i]);
        }
        vaddq_s32(low, high)
    }
}

/// Groups as bytes.
pub struct Dot;

#[derive(Clone, Copy)]
pub struct Bytes {
    high: [int8x16_t; 2],
    low: [int8x16_t; 2],
}

#[derive(Clone, Copy)]
pub struct Quants {
    quants: [int8x16_t; 2],
    /// 128 times their sum, four by four.
    bias: int32x4_t,
}

impl GroupProducts for Dot {
    type X = Bytes;
    type W = Quants;

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn x(x: *const i16) -> Self::X {
        // SAFETY: a group is two times 16 numbers.
        let halves: [int8x16x2_t; 2] = std::array::from_fn(|i| unsafe { vld2q_s8(x.add(16 * i).cast()) });
        Bytes { high: halves.map(|v| v.1), low: halves.map(|v| veorq_s8(v.0, vdupq_n_s8(-128))) }
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn w<const I4: bool>(w: *const u8) -> Self::W {
        // SAFETY: handed on.
        unsafe {
            let quants = load_quants::<I4>(w);
            let negative = dot(quants, [vdupq_n_s8(-128); 2], vdupq_n_s32(0));
            Quants { quants, bias: vnegq_s32(negative) }
        }
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn products(w: Self::W, x: Self::X) -> I32s {
        // SAFETY: the caller's duty.
        let (high, low) = unsafe { (dot(w.quants, x.high, vdupq_n_s32(0)), dot(w.quants, x.low, w.bias)) };
        vaddq_s32(vshlq_n_s32::<8>(high), low)
    }
}

vectorised! {
    /// `sum + a * b`, four bytes to a lane. The intrinsic of this instruction is not stable yet.
    ///
    /// # Safety
    /// The processor has `dotprod`.
    unsafe fn sdot(sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
        let mut sum = sum;
        // SAFETY: the instruction is there; it works between registers.
        unsafe {
            asm!(
                ".arch_extension dotprod",
                "sdot {0:v}.4s, {1:v}.16b, {2:v}.16b",
                inout(vreg) sum,
                in(vreg) a,
                in(vreg) b,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        sum
    }

    /// # Safety
    /// As `sdot`.
    unsafe fn dot(a: [int8x16_t; 2], b: [int8x16_t; 2], sum: int32x4_t) -> int32x4_t {
        // SAFETY: handed on.
        unsafe { sdot(sdot(sum, a[0], b[0]), a[1], b[1]) }
    }

    /// A group as bytes; of two per byte, the even elements and then the odd ones.
    ///
    /// # Safety
    /// `w` points to a group.
    unsafe fn load_quants<const I4: bool>(w: *const u8) -> [int8x16_t; 2] {
        // SAFETY: a group is 16 bytes of two, or 32.
        unsafe {
            let first = vld1q_s8(w.cast());
            if I4 {
                [vshrq_n_s8::<4>(vshlq_n_s8::<4>(first)), vshrq_n_s8::<4>(first)]
            } else {
                [first, vld1q_s8(w.add(16).cast())]
            }
        }
    }

    pub fn quantise(x: &[f32], q: &mut [i16], scales: &mut [f32], sums: &mut [f32], split: bool) {
        assert!(q.len() == x.len() && scales.len() == x.len() / GROUP && sums.len() == scales.len());
        let (groups, _) = x.as_chunks::<GROUP>();
        let (q, _) = q.as_chunks_mut::<GROUP>();
        for (g, (x, q)) in groups.iter().zip(q).enumerate() {
            // SAFETY: a group is eight vectors.
            let v: [float32x4_t; 8] = std::array::from_fn(|i| unsafe { vld1q_f32(x.as_ptr().add(4 * i)) });
            // Without their signs, floats are ordered like the integers they are made of, NaN last.
            let m = v.iter().fold(vdupq_n_u32(0), |m, v| vmaxq_u32(m, vreinterpretq_u32_f32(vabsq_f32(*v))));
            let max = f32::from_bits(vmaxvq_u32(m));
            let usable = max.is_finite() && max >= 1e-30;
            let factor = if usable { 32767.0 / max } else { 0.0 };
            // What is not finite becomes NaN times nothing, which converts to 0.
            let i = v.map(|v| vcvtnq_s32_f32(vmulq_n_f32(v, factor)));
            let sum = vaddvq_s32(i.iter().fold(vdupq_n_s32(0), |sum, i| vaddq_s32(sum, *i)));
            scales[g] = if max.is_finite() { max * (1.0 / 32767.0) } else { f32::NAN };
            sums[g] = sum as f32 * scales[g];
            let pack = |at: usize| vqmovn_high_s32(vqmovn_s32(i[at]), i[at + 1]);
            let [a, b, c, d] = [pack(0), pack(2), pack(4), pack(6)];
            let packed = if split {
                [vuzp1q_s16(a, b), vuzp1q_s16(c, d), vuzp2q_s16(a, b), vuzp2q_s16(c, d)]
            } else {
                [a, b, c, d]
            };
            for (to, v) in q.as_chunks_mut::<8>().0.iter_mut().zip(packed) {
                // SAFETY: eight elements.
                unsafe { vst1q_s16(to.as_mut_ptr(), v) }
            }
        }
    }

    /// Packs as `[k][16]`.
    ///
    /// # Safety
    /// As [`super::MatmulFns`] says of lengths.
    pub unsafe fn pack_quant(w: &GroupedWeights<'_>, n0: usize, g0: usize, panel: &mut [i16], scales: &mut [f32]) {
        pack(w, n0, g0, panel, scales, |rows, panel| {
            for half in [0, 8] {
                for part in 0..4 {
                    let lines = std::array::from_fn(|i| {
                        let bytes = rows[half + i][part / 2];
                        if part % 2 == 0 { vmovl_s8(vget_low_s8(bytes)) } else { vmovl_high_s8(bytes) }
                    });
                    for (i, line) in transpose8(lines).into_iter().enumerate() {
                        let to = &mut panel[(8 * part + i) * NR + half..][..8];
                        // SAFETY: eight elements.
                        unsafe { vst1q_s16(to.as_mut_ptr(), line) }
                    }
                }
            }
        });
    }

    /// Packs as bytes `[four of k][16][4]`, in half of the panel, and behind them 128 times each column's sum.
    ///
    /// # Safety
    /// As [`super::MatmulFns`] says of lengths.
    pub unsafe fn pack_bytes(w: &GroupedWeights<'_>, n0: usize, g0: usize, panel: &mut [i16], scales: &mut [f32]) {
        pack(w, n0, g0, panel, scales, |rows, panel| {
            for col in (0..NR).step_by(LANES) {
                for half in 0..2 {
                    let lines = std::array::from_fn(|i| vreinterpretq_f32_s8(rows[col + i][half]));
                    for (i, line) in transpose(lines).into_iter().enumerate() {
                        let to = &mut panel[((4 * half + i) * NR + col) * 2..][..8];
                        // SAFETY: eight elements of two bytes.
                        unsafe { vst1q_s16(to.as_mut_ptr(), vreinterpretq_s16_f32(line)) }
                    }
                }
            }
            let (biases, _) = panel[FOURS * NR * 2..].as_chunks_mut::<2>();
            for (to, row) in biases.iter_mut().zip(rows) {
                let sum = i32::from(vaddlvq_s8(row[0])) + i32::from(vaddlvq_s8(row[1]));
                // SAFETY: two elements of two bytes.
                unsafe { to.as_mut_ptr().cast::<i32>().write_unaligned(128 * sum) }
            }
        });
    }

    /// Packs scales and offsets, and has `arrange` pack the quants of a group of 16 rows.
    fn pack(
        w: &GroupedWeights<'_>,
        n0: usize,
        g0: usize,
        panel: &mut [i16],
        scales: &mut [f32],
        arrange: impl Fn(&[[int8x16_t; 2]; NR], &mut [i16; GROUP * NR]),
    ) {
        let groups = scales.len() / (2 * NR);
        assert!(n0 < w.n && g0 + groups <= w.groups && panel.len() == groups * GROUP * NR);
        let rows: [usize; NR] = std::array::from_fn(|i| (n0 + i).min(w.n - 1) * w.groups + g0);
        let (panels, _) = panel.as_chunks_mut::<{ GROUP * NR }>();
        let (scales, _) = scales.as_chunks_mut::<{ 2 * NR }>();
        for (g, (panel, scales)) in panels.iter_mut().zip(scales).enumerate() {
            let quants = rows.map(|row| {
                let group = w.quants[(row + g) * w.group_bytes()..][..w.group_bytes()].as_ptr();
                // SAFETY: the group's bytes are there.
                unsafe {
                    match w.bits {
                        QuantBits::I8 => load_quants::<false>(group),
                        QuantBits::I4 => {
                            let [even, odd] = load_quants::<true>(group);
                            [vzip1q_s8(even, odd), vzip2q_s8(even, odd)]
                        }
                    }
                }
            });
            arrange(&quants, panel);
            let gather = |all: &[u16], at: usize| {
                let bits: [u16; LANES] = std::array::from_fn(|i| all[rows[at + i] + g]);
                // SAFETY: a vector's elements.
                unsafe { load_f16(bits.as_ptr()) }
            };
            let (to_scales, to_offsets) = scales.split_at_mut(NR);
            for at in (0..NR).step_by(LANES) {
                let scale = gather(w.scales, at);
                let offset = w.offsets.map_or(zero(), |offsets| times(scale, gather(offsets, at)));
                // SAFETY: a vector's elements each.
                unsafe {
                    store(to_scales[at..][..LANES].as_mut_ptr(), scale);
                    store(to_offsets[at..][..LANES].as_mut_ptr(), offset);
                }
            }
        }
    }

    /// Lane `j` of row `i` becomes lane `i` of row `j`.
    fn transpose8(r: [int16x8_t; 8]) -> [int16x8_t; 8] {
        let pair = |a, b| (vreinterpretq_s32_s16(vtrn1q_s16(a, b)), vreinterpretq_s32_s16(vtrn2q_s16(a, b)));
        let ((a0, a1), (a2, a3)) = (pair(r[0], r[1]), pair(r[2], r[3]));
        let ((a4, a5), (a6, a7)) = (pair(r[4], r[5]), pair(r[6], r[7]));
        let quad = |a, b| (vreinterpretq_s64_s32(vtrn1q_s32(a, b)), vreinterpretq_s64_s32(vtrn2q_s32(a, b)));
        let ((b0, b2), (b1, b3)) = (quad(a0, a2), quad(a1, a3));
        let ((b4, b6), (b5, b7)) = (quad(a4, a6), quad(a5, a7));
        let low = |a, b| vreinterpretq_s16_s64(vtrn1q_s64(a, b));
        let high = |a, b| vreinterpretq_s16_s64(vtrn2q_s64(a, b));
        [low(b0, b4), low(b1, b5), low(b2, b6), low(b3, b7), high(b0, b4), high(b1, b5), high(b2, b6), high(b3, b7)]
    }

    /// # Safety
    /// As [`super::MatmulFns`] says of lengths.
    pub unsafe fn tile_quant(x: &[i16], x_scales: &[f32], w: &[i16], w_scales: &[f32], offsets: bool, tile: &mut Tile) {
        tile_of(x, x_scales, w, w_scales, offsets, tile, |x, w| {
            let mut sum: Sums = [[vdupq_n_s32(0); COLS]; MR];
            for (k, w) in w.as_chunks::<NR>().0.iter().enumerate() {
                // SAFETY: sixteen elements.
                let (w0, w1) = unsafe { (vld1q_s16(w.as_ptr()), vld1q_s16(w.as_ptr().add(8))) };
                let x = &x[k / 2 * 2 * MR..][..2 * MR];
                for (r, sum) in sum.iter_mut().enumerate() {
                    let x = vdupq_n_s16(x[2 * r + k % 2]);
                    sum[0] = vmlal_s16(sum[0], vget_low_s16(w0), vget_low_s16(x));
                    sum[1] = vmlal_high_s16(sum[1], w0, x);
                    sum[2] = vmlal_s16(sum[2], vget_low_s16(w1), vget_low_s16(x));
                    sum[3] = vmlal_high_s16(sum[3], w1, x);
                }
            }
            sum
        });
    }

    /// # Safety
    /// As [`super::MatmulFns`] says of lengths; the processor has `dotprod`.
    pub unsafe fn tile_bytes(x: &[i16], x_scales: &[f32], w: &[i16], w_scales: &[f32], offsets: bool, tile: &mut Tile) {
        tile_of(x, x_scales, w, w_scales, offsets, tile, |x, w| {
            // The bytes of each row, in fours along k; the last two of eight rows do not exist.
            let (mut high, mut low) = ([[0i32; 8]; FOURS], [[0i32; 8]; FOURS]);
            for (four, x) in x.as_chunks::<{ 4 * MR }>().0.iter().enumerate() {
                // SAFETY: two pairs of each of six rows: 12 elements, and 12 more; eight rows are two vectors.
                unsafe {
                    let (p, h, l) = (x.as_ptr(), high[four].as_mut_ptr(), low[four].as_mut_ptr());
                    let first = |p: *const i16| vreinterpretq_s32_s16(vld1q_s16(p));
                    let last = |p: *const i16| vcombine_s32(vreinterpret_s32_s16(vld1_s16(p)), vdup_n_s32(0));
                    let part = |at: usize, a: int32x4_t, b: int32x4_t| {
                        let (a, b) = (vreinterpretq_s8_s32(vzip1q_s32(a, b)), vreinterpretq_s8_s32(vzip2q_s32(a, b)));
                        vst1q_s32(h.add(at), vreinterpretq_s32_s8(vuzp2q_s8(a, b)));
                        let low = veorq_s8(vuzp1q_s8(a, b), vdupq_n_s8(-128));
                        vst1q_s32(l.add(at), vreinterpretq_s32_s8(low));
                    };
                    part(0, first(p), first(p.add(2 * MR)));
                    part(4, last(p.add(8)), last(p.add(2 * MR + 8)));
                }
            }
            let pass = |sum: &mut Sums, x: &[[i32; 8]; FOURS]| {
                for (x, w) in x.iter().zip(w.as_chunks::<{ 2 * NR }>().0) {
                    // SAFETY: four bytes of sixteen columns are four vectors.
                    let w: [int8x16_t; COLS] =
                        std::array::from_fn(|v| unsafe { vld1q_s8(w.as_ptr().add(8 * v).cast()) });
                    for (sum, x) in sum.iter_mut().zip(x) {
                        let x = vreinterpretq_s8_s32(vdupq_n_s32(*x));
                        for (sum, w) in sum.iter_mut().zip(w) {
                            // SAFETY: the caller's duty.
                            *sum = unsafe { sdot(*sum, w, x) };
                        }
                    }
                }
            };
            let mut sum: Sums = [[vdupq_n_s32(0); COLS]; MR];
            pass(&mut sum, &high);
            for (v, biases) in w[FOURS * NR * 2..].as_chunks::<8>().0.iter().take(COLS).enumerate() {
                // SAFETY: four columns' sums of four bytes.
                let bias = vreinterpretq_s32_s16(unsafe { vld1q_s16(biases.as_ptr()) });
                for sum in &mut sum {
                    sum[v] = vaddq_s32(vshlq_n_s32::<8>(sum[v]), bias);
                }
            }
            pass(&mut sum, &low);
            sum
        });
    }

    /// Adds up a tile whose groups' integer sums are what `products` says.
    fn tile_of(
        x: &[i16],
        x_scales: &[f32],
        w: &[i16],
        w_scales: &[f32],
        offsets: bool,
        tile: &mut Tile,
        products: impl Fn(&[i16; GROUP * MR], &[i16; GROUP * NR]) -> Sums,
    ) {
        *tile = [0.0; MR * NR];
        let (x, _) = x.as_chunks::<{ GROUP * MR }>();
        let (w, _) = w.as_chunks::<{ GROUP * NR }>();
        let (x_scales, _) = x_scales.as_chunks::<{ 2 * MR }>();
        let (w_scales, _) = w_scales.as_chunks::<{ 2 * NR }>();
        for (((x, w), xs), ws) in x.iter().zip(w).zip(x_scales).zip(w_scales) {
            let sums = products(x, w);
            // SAFETY: rows of `w_scales` are eight vectors.
            let ws: [F32s; 2 * COLS] = std::array::from_fn(|v| unsafe { load(ws.as_ptr().add(LANES * v)) });
            for (r, to) in tile.as_chunks_mut::<NR>().0.iter_mut().enumerate() {
                for (v, to) in to.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                    // SAFETY: a vector's elements.
                    unsafe {
                        let mut sum = fma(from_ints(sums[r][v]), times(ws[v], splat(xs[r])), load(to.as_ptr()));
                        if offsets {
                            sum = fma(ws[COLS + v], splat(xs[MR + r]), sum);
                        }
                        store(to.as_mut_ptr(), sum);
                    }
                }
            }
        }
    }
}
