//! Layouts and conversions over random blocks: exact where they promise it, within the stated bounds where they do not, and
//! the same however a tensor is cut.

mod samples;

use cann_backend::repack::convert::{Abilities, Conversion, Convert};
use cann_backend::repack::{Layout, NotFinite, Regions, from_device, to_device, touched};
use gguf::GgmlType;
use half::f16;
use samples::{Random, blocks, bounds, values};

const ABLE: Abilities = Abilities { bf16: true, int4: true, group_quant: true };
const WEAK: Abilities = Abilities { bf16: false, int4: false, group_quant: false };

/// A tensor in device memory, written and read as `Tensor` does it.
struct Stored {
    layout: Layout,
    ty: GgmlType,
    elements: u64,
    memory: Vec<u8>,
}

impl Stored {
    fn new(ty: GgmlType, elements: u64) -> Stored {
        let layout = Layout::native(ty);
        let bytes = layout.device_bytes(ty, elements).unwrap();
        Stored { layout, ty, elements, memory: vec![0; bytes as usize] }
    }

    fn part(&self, range: &Option<std::ops::Range<u64>>) -> Vec<u8> {
        range.as_ref().map_or(vec![], |r| self.memory[r.start as usize..r.end as usize].to_vec())
    }

    fn read(&self, offset: u64, size: u64) -> Vec<u8> {
        let t = touched(self.layout, self.ty, self.elements, offset..offset + size).unwrap();
        let mut bytes = vec![0; t.ggml_bytes(self.layout, self.ty) as usize];
        let [q, s, o] = [0, 1, 2].map(|k| self.part(&t.parts[k]));
        from_device(self.layout, &q, &s, &o, &mut bytes);
        bytes[t.within.start as usize..t.within.end as usize].to_vec()
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        let t = touched(self.layout, self.ty, self.elements, offset..offset + data.len() as u64).unwrap();
        let mut bytes = vec![0; t.ggml_bytes(self.layout, self.ty) as usize];
        let mut parts = [0, 1, 2].map(|k| self.part(&t.parts[k]));
        if !t.whole {
            from_device(self.layout, &parts[0], &parts[1], &parts[2], &mut bytes);
        }
        bytes[t.within.start as usize..t.within.end as usize].copy_from_slice(data);
        let [q, s, o] = &mut parts;
        to_device(self.layout, &bytes, q, s, o).unwrap();
        for (part, range) in parts.iter().zip(&t.parts) {
            if let Some(r) = range {
                self.memory[r.start as usize..r.end as usize].copy_from_slice(part);
            }
        }
    }
}

/// M52, M53, M55: element by element, against the definition of the layout.
#[test]
fn quants_are_in_element_order_and_scales_follow() {
    let random = &mut Random(1);
    for ty in [GgmlType::Q8_0, GgmlType::Q4_0, GgmlType::Q4_1] {
        let (elements, half) = (32 * 131, ty != GgmlType::Q8_0);
        let data = blocks(ty, elements, random);
        let mut stored = Stored::new(ty, elements as u64);
        stored.write(0, &data);
        let regions = Regions::new(stored.layout, ty, elements as u64).unwrap();
        let number = |start: u64, i: usize| {
            let at = start as usize + 2 * i;
            f16::from_le_bytes([stored.memory[at], stored.memory[at + 1]]).to_f32()
        };
        let limits = bounds(ty, ty, &data);
        for (e, (x, limit)) in values(ty, &data).into_iter().zip(limits).enumerate() {
            let q = match half {
                true => (stored.memory[e / 2] >> (e % 2 * 4) << 4) as i8 >> 4,
                false => stored.memory[e] as i8,
            };
            let offset = if ty == GgmlType::Q4_1 { number(regions.offsets.start, e / 32) } else { 0.0 };
            let found = (f32::from(q) + offset) * number(regions.scales.start, e / 32);
            assert!((x - found).abs() <= limit, "{ty} element {e}: {x} became {found}");
        }
    }
}

/// M56, M62: any bits at all, NaN scales included.
#[test]
fn exact_layouts_give_back_every_byte() {
    let random = &mut Random(2);
    for ty in [GgmlType::Q8_0, GgmlType::Q4_0, GgmlType::F32, GgmlType::Q6K] {
        for count in [1, 2, 63, 64, 65, 200] {
            let data = random.bytes(count * ty.block_bytes());
            let mut stored = Stored::new(ty, (count * ty.block_len()) as u64);
            stored.write(0, &data);
            assert_eq!(stored.read(0, data.len() as u64), data, "{ty}");
            for _ in 0..20 {
                let start = random.below(data.len() as u64);
                let size = random.below(data.len() as u64 - start + 1);
                assert_eq!(stored.read(start, size), data[start as usize..][..size as usize], "{ty} {start} {size}");
            }
        }
    }
}

/// R1, R2: pieces of any size, in any order, some of them twice.
#[test]
fn chunks_in_any_order_store_the_same_bytes() {
    let random = &mut Random(3);
    for ty in [GgmlType::Q8_0, GgmlType::Q4_0, GgmlType::Q4_1, GgmlType::F16] {
        for round in 0..30 {
            let elements = ty.block_len() as u64 * (1 + random.below(150));
            let data = blocks(ty, elements as usize, random);
            let mut whole = Stored::new(ty, elements);
            whole.write(0, &data);
            let grain = if whole.layout.writes_whole_blocks() { ty.block_bytes() as u64 } else { 1 };
            let mut cuts = vec![0, data.len() as u64 / grain];
            cuts.extend((0..random.below(12)).map(|_| random.below(data.len() as u64 / grain)));
            cuts.sort_unstable();
            let mut pieces: Vec<_> = cuts.windows(2).map(|w| (w[0] * grain, w[1] * grain)).collect();
            pieces.push(pieces[0]);
            for i in (1..pieces.len()).rev() {
                pieces.swap(i, random.below(i as u64 + 1) as usize);
            }
            let mut cut = Stored::new(ty, elements);
            // What was there before must not shine through.
            cut.write(0, &blocks(ty, elements as usize, random));
            for (start, end) in pieces {
                cut.write(start, &data[start as usize..end as usize]);
            }
            assert!(cut.memory == whole.memory, "{ty} round {round}");
        }
    }
}

fn run(conversion: Conversion, data: &[u8], elements: u64) -> Result<([Vec<u8>; 3], u64), NotFinite> {
    let mut parts = conversion.part_bytes(elements).map(|n| vec![0xaa; n as usize]);
    let [q, s, o] = &mut parts;
    let saturated = conversion.run(data, [q, s, o])?;
    Ok((parts, saturated))
}

fn read_back(conversion: Conversion, parts: &[Vec<u8>; 3]) -> Vec<f32> {
    let mut bytes = vec![0; parts.iter().map(Vec::len).sum()];
    from_device(conversion.layout, &parts[0], &parts[1], &parts[2], &mut bytes);
    values(conversion.to, &bytes)
}

/// Values as an operator sees them.
fn device_values(conversion: Conversion, parts: &[Vec<u8>; 3]) -> Vec<f32> {
    if conversion.layout != Layout::Int4Affine {
        return read_back(conversion, parts);
    }
    let number = |part: &[u8], i: usize| f16::from_le_bytes([part[2 * i], part[2 * i + 1]]).to_f32();
    (0..parts[0].len() * 2)
        .map(|e| {
            let q = (parts[0][e / 2] >> (e % 2 * 4) << 4) as i8 >> 4;
            (f32::from(q) + number(&parts[2], e / 32)) * number(&parts[1], e / 32)
        })
        .collect()
}

#[test]
fn conversions_keep_their_bounds() {
    let random = &mut Random(4);
    for &ty in GgmlType::ALL {
        for (convert, device) in
            [(Convert::Auto, ABLE), (Convert::F16, ABLE), (Convert::Q8_0, ABLE), (Convert::Auto, WEAK)]
        {
            let conversion = Conversion::choose(ty, convert, device).unwrap();
            let elements = conversion.unit() * if conversion.unit() == 1 { 5000 } else { 77 };
            let data = blocks(ty, elements as usize, random);
            let (parts, saturated) = run(conversion, &data, elements).unwrap();
            assert_eq!(saturated, 0);
            let source = values(ty, &data);
            let stored = device_values(conversion, &parts);
            for (e, limit) in bounds(ty, conversion.to, &data).into_iter().enumerate() {
                let error = (source[e] - stored[e]).abs();
                assert!(
                    error <= limit,
                    "{ty} as {}, element {e}: {} became {}, off by {error}, not {limit}",
                    conversion.to,
                    source[e],
                    stored[e]
                );
            }
            // What `read` gives differs from it by the rounding of m once more.
            for (x, y) in stored.iter().zip(read_back(conversion, &parts)) {
                assert!((x - y).abs() <= 2f32.powi(-11) * 40.0, "{ty} as {}: {x} reads as {y}", conversion.to);
            }
        }
    }
}

/// Subnormal, tiny and huge scales: within the bound, or refused because something does not fit an f16.
#[test]
fn extreme_scales_keep_their_bounds_or_are_refused() {
    let random = &mut Random(7);
    let types: [(GgmlType, &[usize]); 6] = [
        (GgmlType::Q4_1, &[0, 2]),
        (GgmlType::Q4K, &[0, 2]),
        (GgmlType::Q5_0, &[0]),
        (GgmlType::Q5_1, &[0, 2]),
        (GgmlType::Q6K, &[208]),
        (GgmlType::Mxfp4, &[]),
    ];
    for (ty, fields) in types {
        let conversion = Conversion::choose(ty, Convert::Auto, ABLE).unwrap();
        let (mut kept, mut refused) = (0, 0);
        for _ in 0..4000 {
            let mut data = random.bytes(ty.block_bytes() * (256 / ty.block_len()));
            for block in data.chunks_mut(ty.block_bytes()) {
                for &at in fields {
                    // Any finite f16 of either sign.
                    let bits = (random.below(0x7c00) | random.below(2) << 15) as u16;
                    block[at..at + 2].copy_from_slice(&bits.to_le_bytes());
                }
            }
            let Ok((parts, _)) = run(conversion, &data, 256) else {
                refused += 1;
                continue;
            };
            kept += 1;
            let stored = device_values(conversion, &parts);
            for ((x, y), limit) in values(ty, &data).iter().zip(&stored).zip(bounds(ty, conversion.to, &data)) {
                assert!((x - y).abs() <= limit, "{ty}: {x} became {y}, not within {limit}");
            }
        }
        println!("{ty}: {kept} kept, {refused} refused");
        assert!(kept > 0);
    }
}

#[test]
fn pieces_change_nothing() {
    let random = &mut Random(5);
    for ty in [GgmlType::Q4_1, GgmlType::Q4K, GgmlType::Q6K, GgmlType::Q5_0, GgmlType::Bf16] {
        for convert in [Convert::Auto, Convert::F16, Convert::Q8_0] {
            let conversion = Conversion::choose(ty, convert, Abilities { bf16: false, ..ABLE }).unwrap();
            let unit = conversion.unit();
            for units in [0, 1, 2, 3, 40, 111] {
                let data = blocks(ty, (units * unit) as usize, random);
                let whole = run(conversion, &data, units * unit).unwrap();
                let mut joined: [Vec<u8>; 3] = Default::default();
                let bytes = conversion.source_bytes(unit) as usize;
                for piece in data.chunks(bytes * 7) {
                    let elements = (piece.len() / bytes) as u64 * unit;
                    for (joined, part) in joined.iter_mut().zip(run(conversion, piece, elements).unwrap().0) {
                        joined.extend(part);
                    }
                }
                assert!(joined == whole.0, "{ty} to {} in pieces", conversion.to);
            }
        }
    }
}

#[test]
fn what_is_not_finite_becomes_f16() {
    let random = &mut Random(6);
    let infinite = f16::INFINITY.to_le_bytes();
    for (ty, at) in [(GgmlType::Q4_1, 0), (GgmlType::Q4K, 2), (GgmlType::Q6K, 208), (GgmlType::Q5_0, 0)] {
        let conversion = Conversion::choose(ty, Convert::Auto, ABLE).unwrap();
        let mut data = blocks(ty, 9 * 256, random);
        let block = 256 / ty.block_len() * 7 * ty.block_bytes();
        data[block + at..][..2].copy_from_slice(&infinite);
        let error = run(conversion, &data, 9 * 256).unwrap_err();
        assert!((56..64).contains(&error.block), "{ty}: {error}");
        let half = conversion.as_f16();
        assert_eq!((half.to, half.layout), (GgmlType::F16, Layout::Plain));
        let (parts, _) = run(half, &data, 9 * 256).unwrap();
        for (x, y) in values(ty, &data).into_iter().zip(values(GgmlType::F16, &parts[0])) {
            assert_eq!((x.is_nan(), x.is_infinite()), (y.is_nan(), y.is_infinite()));
        }
    }
}

#[test]
fn f16_saturates_and_counts() {
    let source = [1e30f32, -1e6, 65504.0, f32::INFINITY, f32::NEG_INFINITY, 3.0];
    let data: Vec<u8> = source.iter().flat_map(|x| half::bf16::from_f32(*x).to_le_bytes()).collect();
    let conversion = Conversion::choose(GgmlType::Bf16, Convert::Auto, WEAK).unwrap();
    let (parts, saturated) = run(conversion, &data, 6).unwrap();
    // 65504 is no bf16: it became 65536.
    assert_eq!(saturated, 3);
    let stored = values(GgmlType::F16, &parts[0]);
    assert_eq!(stored, [65504.0, -65504.0, 65504.0, f32::INFINITY, f32::NEG_INFINITY, 3.0]);
}
