//! Conversions against an independent implementation, bit for bit. `data/make_quant_fixture.py` made the fixture and
//! describes it; the pseudo-random blocks visit every entry of every code-book.

use gguf::GgmlType;

const HASHED_BLOCKS: usize = 512;

struct Fixture<'a>(&'a [u8]);

impl<'a> Fixture<'a> {
    fn bytes(&mut self, n: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(n);
        self.0 = rest;
        bytes
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes(4).try_into().unwrap())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes(8).try_into().unwrap())
    }

    fn ty(&mut self) -> GgmlType {
        GgmlType::from_u32(self.u32()).unwrap()
    }
}

fn random_words(seed: u32, n: usize) -> impl Iterator<Item = u64> {
    let start = u64::from(seed).wrapping_mul(0xd134_2543_de82_ef95);
    (1..=n as u64).map(move |i| {
        let z = start.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    })
}

fn random_bytes(seed: u32, n: usize) -> Vec<u8> {
    random_words(seed, n.div_ceil(8)).flat_map(u64::to_le_bytes).take(n).collect()
}

fn random_values(seed: u32, n: usize) -> Vec<f32> {
    let value = |(i, word): (usize, u64)| {
        let block = i / 32;
        let scale = if block % 17 == 16 { 0.0 } else { 2f64.powi((block % 23) as i32 - 31) };
        (((word >> 40) as i64 - (1 << 23)) as f64 * scale + 0.0) as f32
    };
    random_words(seed, n).enumerate().map(value).collect()
}

fn fnv(items: impl IntoIterator<Item = u64>) -> u64 {
    items.into_iter().fold(0xcbf2_9ce4_8422_2325, |h, item| (h ^ item).wrapping_mul(0x0100_0000_01b3))
}

fn bits(value: f32) -> u32 {
    if value.is_nan() { 0x7fc0_0000 } else { value.to_bits() }
}

fn dequantized(ty: GgmlType, bytes: &[u8]) -> Vec<u32> {
    let mut values = vec![0.0; bytes.len() / ty.block_bytes() * ty.block_len()];
    gguf::dequantize(ty, bytes, &mut values).unwrap();
    values.into_iter().map(bits).collect()
}

#[test]
fn conversions_match_to_the_bit() {
    let mut fixture = Fixture(include_bytes!("data/quant.bin"));
    let n_dequant = fixture.u32();
    assert_eq!(n_dequant, 24);
    for _ in 0..n_dequant {
        let ty = fixture.ty();
        let n = fixture.u32() as usize;
        let blocks = fixture.bytes(n * ty.block_bytes());
        let expected: Vec<u32> = (0..n * ty.block_len()).map(|_| fixture.u32()).collect();
        assert_eq!(dequantized(ty, blocks), expected, "{ty}");
        let all = dequantized(ty, &random_bytes(ty.as_u32(), HASHED_BLOCKS * ty.block_bytes()));
        assert_eq!(fnv(all.into_iter().map(u64::from)), fixture.u64(), "{ty}: one of {HASHED_BLOCKS} blocks differs");
    }
    let n_quant = fixture.u32();
    assert_eq!(n_quant, 7);
    for _ in 0..n_quant {
        let ty = fixture.ty();
        let values = random_values(ty.as_u32(), HASHED_BLOCKS * 32);
        let mut blocks = vec![0; ty.row_bytes(values.len() as u64).unwrap() as usize];
        gguf::quantize(ty, &values, &mut blocks).unwrap();
        assert_eq!(fnv(blocks.into_iter().map(u64::from)), fixture.u64(), "quantising to {ty}");
    }
    assert!(fixture.0.is_empty());
}
