//! What is peculiar to AVX2 in quantised products: they run on `vpmaddwd`, 16-bit pairs multiplied and added to 32 bits,
//! exactly, twice the rate of `f32`.

use super::super::lanes::*;
use super::operand::{GROUP, GroupedWeights, QuantBits};
use super::vector::GroupProducts;
use super::{MR, NR, Tile};
use std::arch::x86_64::*;

/// Pairs of a group.
const PAIRS: usize = GROUP / 2;

/// Groups as two vectors of 16-bit numbers.
pub struct Pairs;

impl GroupProducts for Pairs {
    type X = [__m256i; 2];
    type W = [__m256i; 2];

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn x(x: *const i16) -> Self::X {
        // SAFETY: a group is two vectors of 16.
        unsafe { [_mm256_loadu_si256(x.cast()), _mm256_loadu_si256(x.add(16).cast())] }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn w<const I4: bool>(w: *const u8) -> Self::W {
        // SAFETY: a group is 16 bytes of two, or 32.
        unsafe {
            let low = _mm_loadu_si128(w.cast());
            if I4 {
                // Even elements are the low halves of bytes, odd ones the high halves.
                let wide = _mm256_cvtepi8_epi16(low);
                [_mm256_srai_epi16::<12>(_mm256_slli_epi16::<12>(wide)), _mm256_srai_epi16::<4>(wide)]
            } else {
                [_mm256_cvtepi8_epi16(low), _mm256_cvtepi8_epi16(_mm_loadu_si128(w.add(16).cast()))]
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn products(w: Self::W, x: Self::X) -> I32s {
        _mm256_add_epi32(_mm256_madd_epi16(w[0], x[0]), _mm256_madd_epi16(w[1], x[1]))
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
pub fn quantise(x: &[f32], q: &mut [i16], scales: &mut [f32], sums: &mut [f32], split: bool) {
    assert!(q.len() == x.len() && scales.len() == x.len() / GROUP && sums.len() == scales.len());
    let (groups, _) = x.as_chunks::<GROUP>();
    let (q, _) = q.as_chunks_mut::<GROUP>();
    for (g, (x, q)) in groups.iter().zip(q).enumerate() {
        // SAFETY: a group is four vectors.
        let v: [__m256; 4] = std::array::from_fn(|i| unsafe { _mm256_loadu_ps(x.as_ptr().add(8 * i)) });
        // Without their signs, floats are ordered like the integers they are made of, NaN last.
        let magnitude = _mm256_set1_epi32(0x7fff_ffff);
        let m = v.map(|v| _mm256_and_si256(_mm256_castps_si256(v), magnitude));
        let m = _mm256_max_epu32(_mm256_max_epu32(m[0], m[1]), _mm256_max_epu32(m[2], m[3]));
        let m = _mm_max_epu32(_mm256_castsi256_si128(m), _mm256_extracti128_si256::<1>(m));
        let m = _mm_max_epu32(m, _mm_shuffle_epi32::<0b01_00_11_10>(m));
        let m = _mm_max_epu32(m, _mm_shuffle_epi32::<0b00_00_00_01>(m));
        let max = f32::from_bits(_mm_cvtsi128_si32(m) as u32);
        let usable = max.is_finite() && max >= 1e-30;
        let factor = _mm256_set1_ps(if usable { 32767.0 / max } else { 0.0 });
        // NaN times nothing is NaN, which converts to the least integer: such groups are zeroed by the mask.
        let keep = _mm256_set1_epi32(-i32::from(usable));
        let i = v.map(|v| _mm256_and_si256(_mm256_cvtps_epi32(_mm256_mul_ps(v, factor)), keep));
        let sum = _mm256_add_epi32(_mm256_add_epi32(i[0], i[1]), _mm256_add_epi32(i[2], i[3]));
        let sum = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256::<1>(sum));
        let sum = _mm_add_epi32(sum, _mm_shuffle_epi32::<0b01_00_11_10>(sum));
        let sum = _mm_add_epi32(sum, _mm_shuffle_epi32::<0b00_00_00_01>(sum));
        scales[g] = if max.is_finite() { max * (1.0 / 32767.0) } else { f32::NAN };
        sums[g] = _mm_cvtsi128_si32(sum) as f32 * scales[g];
        let pack = |a, b| _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(a, b));
        let (low, high) = if split {
            // Even dwords of two vectors, then odd ones; the halves' order is mended like that of `pack`.
            let even = |a, b| {
                let s = _mm256_shuffle_ps::<0b10_00_10_00>(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b));
                _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_castps_si256(s))
            };
            let odd = |a, b| {
                let s = _mm256_shuffle_ps::<0b11_01_11_01>(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b));
                _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_castps_si256(s))
            };
            (pack(even(i[0], i[1]), even(i[2], i[3])), pack(odd(i[0], i[1]), odd(i[2], i[3])))
        } else {
            (pack(i[0], i[1]), pack(i[2], i[3]))
        };
        // SAFETY: a group is two vectors of 16.
        unsafe {
            _mm256_storeu_si256(q.as_mut_ptr().cast(), low);
            _mm256_storeu_si256(q.as_mut_ptr().add(16).cast(), high);
        }
    }
}

/// # Safety
/// As [`super::MatmulFns`] says of lengths.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn pack_quant(w: &GroupedWeights<'_>, n0: usize, g0: usize, panel: &mut [i16], scales: &mut [f32]) {
    let groups = scales.len() / (2 * NR);
    assert!(n0 < w.n && g0 + groups <= w.groups && panel.len() == groups * GROUP * NR);
    for half in [0, 8] {
        let rows: [usize; 8] = std::array::from_fn(|i| ((n0 + half + i).min(w.n - 1)) * w.groups + g0);
        for g in 0..groups {
            let panel = &mut panel[g * GROUP * NR..][..GROUP * NR];
            for pair0 in [0, 8] {
                let lines = rows.map(|row| {
                    let group = w.quants[(row + g) * w.group_bytes()..].as_ptr();
                    // SAFETY: eight pairs from `pair0` on are inside the group of 16.
                    unsafe {
                        match w.bits {
                            QuantBits::I8 => _mm256_cvtepi8_epi16(_mm_loadu_si128(group.add(2 * pair0).cast())),
                            QuantBits::I4 => {
                                let bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(group.add(pair0).cast()));
                                let even = _mm256_srai_epi32::<28>(_mm256_slli_epi32::<28>(bytes));
                                let odd = _mm256_srai_epi32::<12>(_mm256_slli_epi32::<24>(bytes));
                                _mm256_blend_epi16::<0b1010_1010>(even, odd)
                            }
                        }
                    }
                });
                for (i, line) in transpose_ints(lines).into_iter().enumerate() {
                    let to = &mut panel[(pair0 + i) * 2 * NR + 2 * half..][..16];
                    // SAFETY: sixteen elements of two bytes.
                    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), line) }
                }
            }
            let gather = |all: &[u16]| {
                let bits = rows.map(|row| all[row + g]);
                // SAFETY: eight elements.
                unsafe { load_f16(bits.as_ptr()) }
            };
            let scale = gather(w.scales);
            let offset = w.offsets.map_or(_mm256_setzero_ps(), |o| _mm256_mul_ps(scale, gather(o)));
            let to = &mut scales[g * 2 * NR + half..][..NR + 8];
            // SAFETY: eight elements here and sixteen further on.
            unsafe {
                _mm256_storeu_ps(to.as_mut_ptr(), scale);
                _mm256_storeu_ps(to.as_mut_ptr().add(NR), offset);
            }
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
pub fn tile_quant(x: &[i16], x_scales: &[f32], w: &[i16], w_scales: &[f32], offsets: bool, tile: &mut Tile) {
    if offsets {
        tile_quant_of::<true>(x, x_scales, w, w_scales, tile);
    } else {
        tile_quant_of::<false>(x, x_scales, w, w_scales, tile);
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn tile_quant_of<const OFFSETS: bool>(x: &[i16], x_scales: &[f32], w: &[i16], w_scales: &[f32], tile: &mut Tile) {
    *tile = [0.0; MR * NR];
    let (x, _) = x.as_chunks::<{ GROUP * MR }>();
    let (w, _) = w.as_chunks::<{ GROUP * NR }>();
    let (x_scales, _) = x_scales.as_chunks::<{ 2 * MR }>();
    let (w_scales, _) = w_scales.as_chunks::<{ 2 * NR }>();
    for (((x, w), xs), ws) in x.iter().zip(w).zip(x_scales).zip(w_scales) {
        let mut sum = [[_mm256_setzero_si256(); 2]; MR];
        let (mut px, mut pw) = (x.as_ptr().cast::<i32>(), w.as_ptr().cast::<__m256i>());
        for _ in 0..PAIRS {
            // SAFETY: a group is 16 pairs: of 6 dwords of `x`, and of two vectors of `w`.
            unsafe {
                let (w0, w1) = (_mm256_loadu_si256(pw), _mm256_loadu_si256(pw.add(1)));
                for (r, sum) in sum.iter_mut().enumerate() {
                    let x = _mm256_set1_epi32(px.add(r).read_unaligned());
                    sum[0] = _mm256_add_epi32(sum[0], _mm256_madd_epi16(x, w0));
                    sum[1] = _mm256_add_epi32(sum[1], _mm256_madd_epi16(x, w1));
                }
                px = px.add(MR);
                pw = pw.add(2);
            }
        }
        // SAFETY: rows of `w_scales` hold 32 elements, of the tile 16.
        unsafe {
            let ws: [__m256; 4] = std::array::from_fn(|i| _mm256_loadu_ps(ws.as_ptr().add(8 * i)));
            for r in 0..MR {
                let to = tile.as_mut_ptr().add(r * NR);
                for half in 0..2 {
                    let to = to.add(8 * half);
                    let factor = _mm256_mul_ps(ws[half], _mm256_set1_ps(xs[r]));
                    let mut v = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r][half]), factor, _mm256_loadu_ps(to));
                    if OFFSETS {
                        v = _mm256_fmadd_ps(ws[2 + half], _mm256_set1_ps(xs[MR + r]), v);
                    }
                    _mm256_storeu_ps(to, v);
                }
            }
        }
    }
}
