//! What the type of a weight in a file becomes on the device, and the conversion on the way.
//!
//! | in the file | on the device | off by at most |
//! |---|---|---|
//! | f32 f16 bf16 f64 i8 i16 i32 i64, q4_0, q8_0 | the same | 0 |
//! | q4_1 | int4 with offset | \|8 d + m\| / 1600 + 2^-24 |
//! | q4_K | int4 with offset | d / 250 + \|8 d + m\| / 1600 + 2^-21 |
//! | q4_0, q5_0, iq4_nl, tq1_0, tq2_0 | q8_0 | 0 |
//! | mxfp4 | q8_0 | 0 where the block's scale is an f16, else as the next row |
//! | any other block type | q8_0 | a / 253 + 2^-24 |
//! | bf16, any block type | f16 | \|x\| / 2048 + 2^-25; beyond ±65504 the nearest f16 |
//!
//! That is what operators compute with. Reading int4 with offset gives q4_1 blocks, whose minimum is rounded once more:
//! \|m\| / 2048 on top.
//!
//! Here d and m are the scale and minimum of a group of 32 (in q4_K: their products with the six-bit factors, m negative), a
//! is the largest magnitude in a group of 32, x the value itself. The reference is [`gguf::dequantize`].
//!
//! A group with a scale or value that is infinite, NaN or too large has no int4 or q8_0 form: [`Conversion::run`] says so
//! ([`NotFinite`]) and the tensor is loaded as f16 instead, which keeps infinities and NaN.
//!
//! A conversion works on any whole number of [`Conversion::unit`]s, so pieces can be done one after another in little memory,
//! or side by side on several threads. Absent: reading, device memory.

use gguf::GgmlType;
use gguf::blocks::{BlockQ4K, f16_field, k4_scale_min};
use half::f16;
use half::slice::HalfFloatSliceExt;

use super::blocks::{affine, pack_row, saturated};
use super::{GROUP, Layout, NotFinite, to_device};

/// What to do with types the device has no layout for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Convert {
    /// The nearest form in speed and size.
    #[default]
    Auto,
    F16,
    Q8_0,
    /// Such a tensor is an error.
    Never,
}

/// What matters here of a device: which types its products take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    pub bf16: bool,
    pub int4: bool,
    /// Products with quantised weights and one scale per group of 32.
    pub group_quant: bool,
}

impl From<&crate::caps::DeviceCaps> for Abilities {
    fn from(caps: &crate::caps::DeviceCaps) -> Abilities {
        Abilities { bf16: caps.bf16, int4: caps.int4, group_quant: caps.group_quant }
    }
}

/// From a file's type to what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conversion {
    pub from: GgmlType,
    /// The type that a tensor says it has: its ggml bytes are read and written as blocks of this.
    pub to: GgmlType,
    pub layout: Layout,
}

impl Conversion {
    /// What becomes of `from`; the reason if it can't be loaded.
    pub fn choose(from: GgmlType, convert: Convert, device: Abilities) -> Result<Conversion, &'static str> {
        use GgmlType as T;
        let int4 = device.int4 && device.group_quant;
        let q8 = device.group_quant;
        let wide = if q8 { T::Q8_0 } else { T::F16 };
        let native = match from {
            T::Q4_0 => int4,
            T::Q8_0 => q8,
            T::Bf16 => device.bf16,
            _ => !from.is_quantized(),
        };
        let to = match (from, convert) {
            _ if native => from,
            (_, Convert::Never) => return Err("the device has no layout for the type and conversion is off"),
            (T::Bf16, _) | (_, Convert::F16) => T::F16,
            (_, Convert::Q8_0) if !q8 => return Err("the device has no products with q8_0 weights"),
            (T::Q4_1 | T::Q4K, Convert::Auto) if int4 => T::Q4_1,
            _ => wide,
        };
        Ok(Conversion::to(from, to))
    }

    /// The conversion to a type that every block type can become: `from` itself, q8_0, f16, and q4_1 from q4_1 and q4_K.
    fn to(from: GgmlType, to: GgmlType) -> Conversion {
        Conversion { from, to, layout: Layout::native(to) }
    }

    /// The form for a tensor that [`Conversion::run`] refused.
    pub fn as_f16(self) -> Conversion {
        Conversion::to(self.from, GgmlType::F16)
    }

    /// Whether values change, as opposed to where they lie.
    pub fn converts(self) -> bool {
        self.from != self.to
    }

    /// Elements that are converted together: pieces are multiples of it.
    pub fn unit(self) -> u64 {
        (self.from.block_len() as u64).max(self.to.block_len() as u64)
    }

    /// Bytes in the file of `elements` elements, a multiple of the unit.
    pub fn source_bytes(self, elements: u64) -> u64 {
        elements / self.from.block_len() as u64 * self.from.block_bytes() as u64
    }

    /// Bytes of quants (or data), scales and offsets of `elements` elements on the device.
    pub fn part_bytes(self, elements: u64) -> [u64; 3] {
        match self.layout.parts() {
            Some(sizes) => sizes.map(|size| elements / GROUP * size),
            None => [elements / self.to.block_len() as u64 * self.to.block_bytes() as u64, 0, 0],
        }
    }

    /// Converts the units in `src` to the parts, which have exactly their sizes. Returns how many finite values were too large
    /// for the f16 they became.
    pub fn run(self, src: &[u8], parts: [&mut [u8]; 3]) -> Result<u64, NotFinite> {
        let [quants, scales, offsets] = parts;
        match (self.from, self.to) {
            (from, to) if from == to => to_device(self.layout, src, quants, scales, offsets).map(|()| 0),
            (GgmlType::Q4K, GgmlType::Q4_1) => q4k_to_affine(src, quants, scales, offsets).map(|()| 0),
            (from, GgmlType::Q8_0) => to_q8_0(from, src, quants, scales).map(|()| 0),
            (from, _) => Ok(to_f16(from, src, quants)),
        }
    }
}

/// Values that are dequantised at a time: they stay in the first-level cache.
const PIECE: usize = 2048;

/// Calls `each` with the values of pieces of `src` and the position of each piece's first element.
fn pieces<E>(from: GgmlType, src: &[u8], mut each: impl FnMut(usize, &[f32]) -> Result<(), E>) -> Result<(), E> {
    let mut values = [0.0; PIECE];
    let bytes = PIECE / from.block_len() * from.block_bytes();
    for (i, src) in src.chunks(bytes).enumerate() {
        let values = &mut values[..src.len() / from.block_bytes() * from.block_len()];
        gguf::dequantize(from, src, values).expect("a piece is whole blocks");
        each(i * PIECE, values)?;
    }
    Ok(())
}

fn to_f16(from: GgmlType, src: &[u8], out: &mut [u8]) -> u64 {
    let mut count = 0;
    let (mut near, mut halves) = ([0.0; PIECE], [f16::ZERO; PIECE]);
    let done: Result<(), std::convert::Infallible> = pieces(from, src, |at, values| {
        let halves = &mut halves[..values.len()];
        if largest(values) <= f16::MAX.to_f32() {
            halves.convert_from_f32_slice(values);
        } else {
            for (near, x) in near.iter_mut().zip(values) {
                // Infinities stay what they are.
                *near = if x.is_finite() { saturated(*x) } else { *x };
                count += u64::from(near.to_bits() != x.to_bits());
            }
            halves.convert_from_f32_slice(&near[..values.len()]);
        }
        for (out, half) in out[at * 2..].as_chunks_mut().0.iter_mut().zip(halves) {
            *out = half.to_le_bytes();
        }
        Ok(())
    });
    let Ok(()) = done;
    count
}

/// The largest magnitude; infinite or NaN if any value is. Magnitudes compare as their bits do.
#[inline(always)]
fn largest(values: &[f32]) -> f32 {
    f32::from_bits(values.iter().fold(0, |max, x| max.max(x.to_bits() & 0x7fff_ffff)))
}

fn to_q8_0(from: GgmlType, src: &[u8], quants: &mut [u8], scales: &mut [u8]) -> Result<(), NotFinite> {
    let block_len = from.block_len();
    pieces(from, src, |at, values| {
        let groups = quants[at..].as_chunks_mut::<32>().0.iter_mut().zip(scales[at / 16..].as_chunks_mut::<2>().0);
        for (k, (values, (q, scale))) in values.as_chunks::<32>().0.iter().zip(groups).enumerate() {
            let block = (at + k * 32) / block_len * from.block_bytes();
            let known = exact_scale(from, &src[block..][..from.block_bytes()]);
            *scale = q8_group(values, known, q).ok_or(NotFinite { block: at / 32 + k })?.to_le_bytes();
        }
        Ok(())
    })
}

/// The f16 of which every value of the block is a multiple by an int8, for types made like that.
#[inline(always)]
fn exact_scale(from: GgmlType, block: &[u8]) -> Option<f16> {
    let field = |at: usize| Some(f16::from_le_bytes([block[at], block[at + 1]]));
    match from {
        GgmlType::Q4_0 | GgmlType::Q5_0 | GgmlType::Iq4Nl => field(0),
        GgmlType::Tq1_0 => field(52),
        GgmlType::Tq2_0 => field(64),
        // Values are integers of at most 12 times 2^(e - 128); the powers that are normal f16 are exact.
        GgmlType::Mxfp4 => matches!(block[0], 114..=143).then(|| f16::from_bits((u16::from(block[0]) - 113) << 10)),
        _ => None,
    }
}

/// Scale and quants of 32 values, each within half a scale; `None` if a value is not finite or too large.
#[inline(always)]
fn q8_group(values: &[f32; 32], known: Option<f16>, q: &mut [u8; 32]) -> Option<f16> {
    let largest = largest(values);
    if !largest.is_finite() {
        return None;
    }
    let scale = known.unwrap_or_else(|| {
        let nearest = f16::from_f32(largest / 127.0);
        // Small scales are coarse: one that was rounded down may leave the largest value out of reach.
        if nearest.to_f32() * 127.5 < largest { f16::from_bits(nearest.to_bits() + 1) } else { nearest }
    });
    if !scale.is_finite() {
        return None;
    }
    let scale_f32 = scale.to_f32();
    let inverse = if scale_f32 == 0.0 { 0.0 } else { 1.0 / scale_f32 };
    for (q, x) in q.iter_mut().zip(values) {
        // Adding 1.5 * 2^23 leaves the nearest integer, ties to even, in the low bits.
        let rounded = (x * inverse).clamp(-127.0, 127.0) + 12_582_912.0;
        *q = rounded.to_bits() as u8;
    }
    Some(scale)
}

fn q4k_to_affine(src: &[u8], quants: &mut [u8], scales: &mut [u8], offsets: &mut [u8]) -> Result<(), NotFinite> {
    const SUPER: usize = 8;
    let blocks = src.as_chunks::<144>().0.chunks(SUPER);
    let parts = quants.chunks_mut(SUPER * 128).zip(scales.chunks_mut(SUPER * 16)).zip(offsets.chunks_mut(SUPER * 16));
    for (i, (blocks, ((quants, scales), offsets))) in blocks.zip(parts).enumerate() {
        let (mut d, mut m) = ([0.0; SUPER * 8], [0.0; SUPER * 8]);
        let groups = d.as_chunks_mut::<8>().0.iter_mut().zip(m.as_chunks_mut::<8>().0);
        for ((block, quants), (d, m)) in blocks.iter().zip(quants.as_chunks_mut::<128>().0).zip(groups) {
            let block = BlockQ4K::new(block);
            let (scale, min) = (f16_field(block.d), f16_field(block.dmin));
            for g in 0..8 {
                let (sc, mn) = k4_scale_min(block.scales, g);
                d[g] = scale * f32::from(sc);
                m[g] = -min * f32::from(mn);
            }
            for (qs, quants) in block.qs.as_chunks::<32>().0.iter().zip(quants.as_chunks_mut::<32>().0) {
                *quants = pack_row(qs);
            }
        }
        let n = blocks.len() * 8;
        affine(&d[..n], &m[..n], quants, scales, offsets).map_err(|e| NotFinite { block: i * SUPER * 8 + e.block })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Abilities = Abilities { bf16: true, int4: true, group_quant: true };

    #[test]
    fn types_that_stay_and_types_that_change() {
        use GgmlType as T;
        for &ty in GgmlType::ALL {
            let auto = Conversion::choose(ty, Convert::Auto, ALL).unwrap();
            let expected = match ty {
                T::Q4_1 | T::Q4K => T::Q4_1,
                T::Q4_0 | T::Q8_0 => ty,
                _ if ty.is_quantized() => T::Q8_0,
                _ => ty,
            };
            assert_eq!((auto.to, auto.layout), (expected, Layout::native(expected)), "{ty}");
            let stays = matches!(ty, T::Q4_0 | T::Q8_0) || !ty.is_quantized();
            assert_eq!(Conversion::choose(ty, Convert::Never, ALL).is_ok(), stays, "{ty}");
            for (convert, other) in [(Convert::F16, T::F16), (Convert::Q8_0, T::Q8_0)] {
                assert_eq!(Conversion::choose(ty, convert, ALL).unwrap().to, if stays { ty } else { other }, "{ty}");
            }
        }
    }

    #[test]
    fn weaker_devices_get_wider_types() {
        use GgmlType as T;
        let no_int4 = Abilities { int4: false, ..ALL };
        let none = Abilities { bf16: false, int4: false, group_quant: false };
        let to = |ty, device| Conversion::choose(ty, Convert::Auto, device).unwrap().to;
        assert_eq!([T::Q4_0, T::Q4_1, T::Q4K, T::Q8_0, T::Q6K].map(|ty| to(ty, no_int4)), [T::Q8_0; 5]);
        assert_eq!([T::Q4_0, T::Q4K, T::Q8_0, T::Q6K, T::Bf16, T::F16].map(|ty| to(ty, none)), [T::F16; 6]);
        assert!(Conversion::choose(T::Q6K, Convert::Q8_0, none).is_err());
        assert!(Conversion::choose(T::Bf16, Convert::Never, none).is_err());
        assert_eq!(to(T::F32, none), T::F32);
    }

    #[test]
    fn q8_group_reaches_its_largest_value() {
        for exponent in -40..40 {
            for mantissa in [1.0f32, 1.3, 1.7, 1.999] {
                let largest = mantissa * 2f32.powi(exponent);
                let mut values = [0.0; 32];
                values[3] = -largest;
                values[5] = largest * 0.37;
                let mut q = [0; 32];
                let Some(scale) = q8_group(&values, None, &mut q) else {
                    assert!(largest / 127.0 >= 65520.0);
                    continue;
                };
                for (x, q) in values.iter().zip(q) {
                    let error = (x - scale.to_f32() * f32::from(q as i8)).abs();
                    assert!(error <= largest / 253.0 + 2f32.powi(-24), "{largest}: {x} off by {error}");
                }
            }
        }
    }
}
