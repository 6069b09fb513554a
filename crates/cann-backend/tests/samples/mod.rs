//! Random bytes and blocks for tests that need data of every type.

// Each test binary uses some of it.
#![allow(dead_code)]

use gguf::GgmlType;
use half::f16;

/// A small generator with a fixed seed: the same data in every run.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }

    /// From -1 to 1.
    pub fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

/// Random blocks of a type whose scales are what real weights have: finite, positive and below 1.
pub fn blocks(ty: GgmlType, elements: usize, random: &mut Random) -> Vec<u8> {
    use GgmlType as T;
    let bytes = elements / ty.block_len() * ty.block_bytes();
    match ty {
        T::F32 => return (0..elements).flat_map(|_| random.unit().to_le_bytes()).collect(),
        T::F64 => return (0..elements).flat_map(|_| f64::from(random.unit()).to_le_bytes()).collect(),
        T::F16 => return (0..elements).flat_map(|_| f16::from_f32(random.unit()).to_le_bytes()).collect(),
        T::Bf16 => return (0..elements).flat_map(|_| half::bf16::from_f32(random.unit()).to_le_bytes()).collect(),
        _ => {}
    }
    let mut data = random.bytes(bytes);
    // Where a block's f16 fields are.
    let fields: &[usize] = match ty {
        T::Q4_1 | T::Q5_1 | T::Q8_1 | T::Q4K | T::Q5K => &[0, 2],
        T::Q2K => &[80, 82],
        T::Q3K => &[108],
        T::Q6K => &[208],
        T::Tq1_0 => &[52],
        T::Tq2_0 => &[64],
        T::Iq1M | T::Q8K | T::Mxfp4 => &[],
        _ if ty.is_quantized() => &[0],
        _ => &[],
    };
    for block in data.chunks_mut(ty.block_bytes()) {
        for &at in fields {
            let value = f16::from_f32(random.unit().abs() * 0.1 + 1e-3);
            block[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        match ty {
            T::Q4_1 | T::Q5_1 => {
                let m = f16::from_f32(random.unit());
                block[2..4].copy_from_slice(&m.to_le_bytes());
            }
            T::Q8K => block[..4].copy_from_slice(&(random.unit().abs() * 0.1).to_le_bytes()),
            // The scale's f16 is spread over the top nibbles of the last eight bytes: exponent and sign are in the last.
            T::Iq1M => block[55] = block[55] & 0x0f | 0x20,
            T::Mxfp4 => block[0] = 115 + (block[0] & 15),
            _ => {}
        }
    }
    data
}

/// What a tensor's bytes stand for.
pub fn values(ty: GgmlType, data: &[u8]) -> Vec<f32> {
    let mut values = vec![0.0; data.len() / ty.block_bytes() * ty.block_len()];
    gguf::dequantize(ty, data, &mut values).unwrap();
    values
}

/// The largest error that the table in `repack::convert` allows each value of a tensor converted from `from` to `to`.
pub fn bounds(from: GgmlType, to: GgmlType, data: &[u8]) -> Vec<f32> {
    use GgmlType as T;
    let values = values(from, data);
    let exact = matches!(from, T::Q4_0 | T::Q5_0 | T::Iq4Nl | T::Tq1_0 | T::Tq2_0)
        || from == T::Mxfp4 && data.chunks(17).all(|block| (114..=143).contains(&block[0]));
    match to {
        _ if from == to && to != T::Q4_1 => vec![0.0; values.len()],
        T::F16 => values.iter().map(|x| x.abs() / 2048.0 + 2f32.powi(-25)).collect(),
        T::Q8_0 if exact => vec![0.0; values.len()],
        T::Q8_0 => values
            .chunks(32)
            .flat_map(|group| {
                let largest = group.iter().fold(0f32, |max, x| max.max(x.abs()));
                [largest / 253.0 + 2f32.powi(-24); 32]
            })
            .collect(),
        T::Q4_1 => groups(from, data)
            .flat_map(|(d, m)| {
                let offset = (8.0 * d + m).abs() / 1600.0;
                [if from == T::Q4K { d.abs() / 250.0 + offset + 2f32.powi(-21) } else { offset + 2f32.powi(-24) }; 32]
            })
            .collect(),
        _ => panic!("no conversion to {to}"),
    }
}

/// Scale and minimum of each group of 32.
fn groups(ty: GgmlType, data: &[u8]) -> Box<dyn Iterator<Item = (f32, f32)> + '_> {
    let half = |b: &[u8]| f16::from_le_bytes([b[0], b[1]]).to_f32();
    match ty {
        GgmlType::Q4_1 => Box::new(data.chunks(20).map(move |b| (half(b), half(&b[2..])))),
        GgmlType::Q4K => Box::new(data.chunks(144).flat_map(move |b| {
            let (d, dmin) = (half(b), half(&b[2..]));
            (0..8).map(move |g| {
                let (sc, mn) = gguf::blocks::k4_scale_min(b[4..16].try_into().unwrap(), g);
                (d * f32::from(sc), -dmin * f32::from(mn))
            })
        })),
        _ => panic!("{ty} has no minimum"),
    }
}
