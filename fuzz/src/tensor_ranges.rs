//! A tensor between guard bytes, written and read in any pieces, beside a `Vec` that knows what it should hold.
//!
//! Two promises: what is read is what was written, and the device's bytes are those of one whole write, whatever the pieces
//! were. Both tensors and the guards lie in one buffer that an i8 tensor shows raw.

use cann_backend::{Backend, Error, Result, Tensor, TensorSpec};
use gguf::GgmlType;

use crate::Outcome;
use crate::bytes::{Bytes, Random, Trail};
use crate::device::{Answer, assert_nothing_found, backend, later, wait};

const TYPES: [GgmlType; 8] = [
    GgmlType::Q4_0,
    GgmlType::Q8_0,
    GgmlType::F16,
    GgmlType::Q4_1,
    GgmlType::Q5_0,
    GgmlType::F32,
    GgmlType::Q6K,
    GgmlType::I8,
];
const GUARD: u8 = 0xa5;
const ALIGNMENT: u64 = 64;
const MOST_ACTIONS: usize = 32;

enum Action {
    Write { offset: u64, data: Vec<u8>, answer: Answer<()> },
    Read { offset: u64, size: u64, answer: Answer<Vec<u8>> },
    Fill { byte: u8, answer: Answer<()> },
}

pub fn tensor_ranges(data: &[u8]) -> Outcome {
    let mut bytes = Bytes::new(data);
    let mut trail = Trail::new();
    let ty = bytes.pick(&TYPES);
    let blocks_per_row = bytes.below(if ty == GgmlType::Q6K { 4 } else { 40 });
    let ne = [(blocks_per_row * ty.block_len()) as i64, bytes.below(5) as i64 + 1, bytes.below(3) as i64 + 1];
    let (backend, alloc) = (backend(), Backend::alloc_size(ty, &ne).expect("a size"));
    let stride = alloc.next_multiple_of(ALIGNMENT) + ALIGNMENT;
    let buffer = wait(|done| backend.alloc_buffer(ALIGNMENT + 2 * stride, done)).expect("a buffer");
    wait(|done| buffer.clear(GUARD, done)).expect("cleared");
    let place = |ty, ne: &[i64], offset| {
        let spec = TensorSpec::new(ty, ne).placed(&buffer, offset);
        wait(|done| backend.create_tensor(spec, done)).expect("a tensor")
    };
    let (tensor, twin) = (place(ty, &ne, ALIGNMENT), place(ty, &ne, ALIGNMENT + stride));
    let raw = place(GgmlType::I8, &[(ALIGNMENT + 2 * stride) as i64], 0);

    let mut model = sound_blocks(ty, tensor.nbytes() as usize, &mut Random::new(bytes.u64()));
    wait(|done| tensor.write(model.clone(), 0, done)).expect("written");
    let mut actions = Vec::new();
    while !bytes.is_empty() && actions.len() < MOST_ACTIONS {
        actions.push(ask(&tensor, &mut bytes));
    }
    for action in actions {
        match action {
            Action::Write { offset, data, answer } => {
                let written = settle(answer.get(), &mut trail);
                let inside = inside(offset, data.len() as u64, tensor.nbytes());
                assert!(written || !inside || ty == GgmlType::Q4_1, "a write of {} bytes at {offset}", data.len());
                assert!(inside || !written, "a write outside, of {} bytes at {offset}", data.len());
                if written {
                    model[offset as usize..][..data.len()].copy_from_slice(&data);
                }
            }
            Action::Read { offset, size, answer } => {
                let read = answer.get();
                let inside = inside(offset, size, tensor.nbytes());
                assert_eq!(read.is_ok(), inside, "a read of {size} bytes at {offset}");
                trail.add(&[2, inside.into()]);
                match read {
                    Ok(read) if ty != GgmlType::Q4_1 => {
                        assert!(read == model[offset as usize..][..size as usize], "{ty}: {size} bytes at {offset}");
                    }
                    Ok(read) => assert_eq!(read.len() as u64, size),
                    Err(error) => assert!(matches!(error, Error::InvalidArg { .. }), "{error}"),
                }
            }
            Action::Fill { byte, answer } => {
                if settle(answer.get(), &mut trail) {
                    model.fill(byte);
                }
            }
        }
    }

    wait(|done| twin.write(model.clone(), 0, done)).expect("what was written in pieces can be written whole");
    let all = |t: &Tensor| wait(|done| t.read(0, t.nbytes(), done)).expect("read");
    let (read, device) = (all(&tensor), all(&raw));
    assert!(read == all(&twin), "{ty}: reads differ from those of a whole write");
    if ty == GgmlType::Q4_1 {
        check_q4_1(&read, &model);
    } else {
        assert!(read == model, "{ty}: not what was written");
    }
    let (alloc, stride, guard) = (alloc as usize, stride as usize, ALIGNMENT as usize);
    let (first, second) = (&device[guard..][..stride], &device[guard + stride..]);
    assert!(first[..alloc] == second[..alloc], "{ty}: device bytes differ from those of a whole write");
    assert!(first[model.len()..alloc].iter().all(|b| *b == 0), "{ty}: the padding was written");
    let guards = device[..guard].iter().chain(&first[alloc..]).chain(&second[alloc..]);
    assert!(guards.into_iter().all(|b| *b == GUARD), "{ty}: guard bytes were written");
    buffer.dispose();
    assert_nothing_found();
    trail.add(ty.name().as_bytes());
    Outcome { accepted: true, signature: trail.value() }
}

/// For each type: every byte alone, in order and backwards; halves; and noise.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut random = Random::new(2);
    let mut seeds = Vec::new();
    for ty in 0..TYPES.len() as u8 {
        let head = [ty, 2, 0, 1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        let piece = |offset: u8, len: u8| [0, 0, offset, 0, len, 0, offset];
        let mut forwards = head.to_vec();
        (0..32).for_each(|i| forwards.extend(piece(i, 1)));
        let mut backwards = head.to_vec();
        (0..32).rev().for_each(|i| backwards.extend(piece(i, 1)));
        let mut halves = head.to_vec();
        [(0, 9), (9, 9), (9, 20), (0, 36), (1, 17)].iter().for_each(|(at, n)| halves.extend(piece(*at, *n)));
        seeds.extend([forwards, backwards, halves]);
        seeds.push([&[ty][..], &random.bytes(200)].concat());
    }
    seeds
}

fn ask(tensor: &Tensor, bytes: &mut Bytes) -> Action {
    let (kind, n) = (bytes.u8() % 8, tensor.nbytes());
    let (offset, size) = match bytes.u8() % 16 {
        // Anything, most of it outside.
        15 => (bytes.u64(), bytes.u64()),
        14 => (n.saturating_sub(u64::from(bytes.u8() % 3)), u64::from(bytes.u8() % 4)),
        // Whole blocks, which is what q4_1 takes.
        how @ (1 | 2 | 3 | 5) => {
            let block = tensor.ty().block_bytes() as u64;
            let first = bytes.below((n / block) as usize + 1) as u64;
            let blocks = if how == 5 { 1 } else { bytes.below((n / block - first) as usize + 1) as u64 };
            (first * block, blocks * block)
        }
        _ => {
            let offset = bytes.below(n as usize + 1) as u64;
            (offset, bytes.below((n - offset) as usize + 1) as u64)
        }
    };
    match kind {
        0..=4 => {
            // Data for a write that lies outside is short: it is the range that is tried.
            let size = size.min(n + 1) as usize;
            let mut random = Random::new(u64::from(bytes.u8()) + 1000);
            let ty = tensor.ty();
            let whole = size.is_multiple_of(ty.block_bytes()) && offset.is_multiple_of(ty.block_bytes() as u64);
            let data = if whole && kind != 4 { sound_blocks(ty, size, &mut random) } else { random.bytes(size) };
            Action::Write { offset, answer: later(|done| tensor.write(data.clone(), offset, done)), data }
        }
        5 | 6 => Action::Read { offset, size, answer: later(|done| tensor.read(offset, size, done)) },
        _ => {
            let byte = bytes.u8();
            Action::Fill { byte, answer: later(|done| tensor.fill(byte, done)) }
        }
    }
}

/// Whether it went well; a refusal must be the argument's.
fn settle(answer: Result<()>, trail: &mut Trail) -> bool {
    match answer {
        Ok(()) => {
            trail.add(&[1]);
            true
        }
        Err(error) => {
            assert!(matches!(error, Error::InvalidArg { .. }), "{error}");
            trail.add_rule(&error);
            false
        }
    }
}

fn inside(offset: u64, size: u64, of: u64) -> bool {
    offset.checked_add(size).is_some_and(|end| end <= of)
}

/// Random bytes; q4_1 blocks get a scale and a minimum that the device's layout can hold.
fn sound_blocks(ty: GgmlType, bytes: usize, random: &mut Random) -> Vec<u8> {
    let mut data = random.bytes(bytes);
    if ty == GgmlType::Q4_1 {
        for block in data.chunks_exact_mut(20) {
            // Exponents from 2^-7 to 1: finite, and no quotient of two of them is out of range.
            (block[1], block[3]) = (block[1] & 0x83 | 0x20 | block[1] & 0x1c, block[3] & 0x83 | 0x20 | block[3] & 0x1c);
        }
    }
    data
}

/// q4_1 keeps codes and scale; its minimum is rounded. Where the minimum is more than an f16 away in steps of the scale, the
/// block becomes one value.
fn check_q4_1(read: &[u8], model: &[u8]) {
    let half = |bytes: &[u8]| half::f16::from_le_bytes([bytes[0], bytes[1]]).to_f32();
    for (read, written) in read.chunks_exact(20).zip(model.chunks_exact(20)) {
        let (scale, minimum) = (half(written), half(&written[2..]));
        if scale == 0.0 || (8.0 + minimum / scale).abs() >= 65_504.0 {
            let middle = half::f16::from_f32(8.0 * scale + minimum).to_f32();
            assert_eq!((half(read), half(&read[2..]), &read[4..]), (0.0, middle, &[0; 16][..]), "{written:?}");
        } else {
            assert_eq!((&read[..2], &read[4..]), (&written[..2], &written[4..]), "{written:?}");
        }
    }
}
