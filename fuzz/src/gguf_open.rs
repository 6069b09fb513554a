//! Any bytes as a GGUF file: parsed, its ranges compared with the file, some tensors dequantised.

use std::io;

use gguf::{GgmlType, Gguf, GgufError, ReadAt, Strings, Value, Writer, dequantize, split_paths};

use crate::Outcome;
use crate::bytes::{Random, Trail};

/// Tensors up to this size are dequantised, and no more than `DEQUANTISED` of them.
const LARGEST_ELEMENTS: u64 = 1 << 16;
const DEQUANTISED: usize = 4;

pub fn gguf_open(data: &[u8]) -> Outcome {
    let mut trail = Trail::new();
    // The same bytes in a file that says it is longer than what can be read from it.
    for claimed in [data.len() as u64 + 1, 1 << 40, u64::MAX] {
        match Gguf::parse(&Shrunk { data, claimed }) {
            Ok(file) => check_metadata(&file, &mut trail),
            Err(error) => check_error(&error),
        }
    }
    let file = match Gguf::parse(data) {
        Ok(file) => file,
        Err(error) => {
            check_error(&error);
            trail.add_rule(&error);
            return Outcome { accepted: false, signature: trail.value() };
        }
    };
    trail.add(&[1, file.tensors.len().min(9) as u8, file.metadata.len().min(9) as u8]);
    assert_eq!(file.require_known().is_ok(), file.unknown.is_empty());
    check_metadata(&file, &mut trail);
    check_ranges(&file, data);
    let merged = Gguf::merge(vec![file.clone(), file.clone()]);
    trail.add(&[merged.is_ok().into()]);
    if let Err(error) = &merged {
        check_error(error);
    }
    Outcome { accepted: true, signature: trail.value() }
}

/// A good file of each sort: every type, every kind of value, alignments, a part of a split model; and a bad one or two.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut random = Random::new(1);
    let mut files: Vec<Vec<u8>> = GgmlType::ALL
        .iter()
        .map(|&ty| {
            let data = random.bytes(ty.block_bytes() * 2);
            let ne = [ty.block_len() as u64, 2];
            Writer::new().kv("general.architecture", "seed").tensor("w", ty, ne, data).finish()
        })
        .collect();
    let strings: Strings = {
        let mut strings = Strings::default();
        ["a", "", "\u{e9}", "longer than the others"].iter().for_each(|s| assert!(strings.push(s.as_bytes())));
        strings
    };
    let kinds = Writer::new()
        .kv("u8", Value::U8(1))
        .kv("i8", Value::I8(-1))
        .kv("u16", Value::U16(2))
        .kv("i16", Value::I16(-2))
        .kv("u32", Value::U32(3))
        .kv("i32", Value::I32(-3))
        .kv("u64", Value::U64(u64::MAX))
        .kv("i64", Value::I64(i64::MIN))
        .kv("f32", Value::F32(f32::NAN))
        .kv("f64", Value::F64(0.5))
        .kv("bool", Value::Bool(true))
        .kv("string", "text")
        .kv("strings", strings);
    files.push(kinds.finish());
    for alignment in [8, 64, 4096] {
        let file = Writer::new().kv("general.alignment", Value::U32(alignment));
        let file = file.tensor("a", GgmlType::I8, [3], vec![1, 2, 3]).tensor("b", GgmlType::I8, [1, 1, 1, 1], vec![9]);
        files.push(file.finish());
    }
    let split = Writer::new()
        .kv("split.no", Value::U16(0))
        .kv("split.count", Value::U16(2))
        .kv("split.tensors.count", Value::I32(2))
        .tensor("a", GgmlType::F32, [1], vec![0; 4]);
    files.push(split.finish());
    let mut version_2 = files[0].clone();
    version_2[4] = 2;
    files.push(version_2);
    files.push(Vec::new());
    files
}

/// An error's accessors and text hold whatever the file held.
fn check_error(error: &GgufError) {
    let text = error.to_string();
    assert!(!text.is_empty() && text.len() < 1 << 20, "an error of {} bytes", text.len());
    let _ = (error.offset(), error.tensor());
}

fn check_metadata(file: &Gguf, trail: &mut Trail) {
    for (key, value) in file.metadata.iter() {
        assert_eq!(file.metadata.get(key).map(Value::type_name), Some(value.type_name()));
        trail.add(value.type_name().as_bytes());
        let _ = (value.as_u64(), value.as_u32(), value.as_i64(), value.as_f32(), value.as_f64(), value.as_bool());
        let _ =
            (value.as_str(), value.as_bytes(), value.as_strings().map(|s| s.iter().map(<[u8]>::len).sum::<usize>()));
        if let Some(array) = value.as_array() {
            let n = array.len();
            assert!(array.value(n).is_none() && array.value(usize::MAX).is_none());
            assert!(n == 0 || array.value(n - 1).is_some());
        }
    }
    match split_paths("model-00001-of-00002.gguf", &file.metadata) {
        Ok(paths) => trail.add(&[paths.len().min(9) as u8]),
        Err(error) => check_error(&error),
    }
}

fn check_ranges(file: &Gguf, data: &[u8]) {
    let mut ranges = Vec::new();
    for (i, tensor) in file.tensors.iter().enumerate() {
        let end = tensor.offset.checked_add(tensor.nbytes).expect("an end that fits");
        assert!(tensor.offset >= file.data_start && end <= data.len() as u64, "{tensor:?} in {} bytes", data.len());
        assert!((tensor.offset - file.data_start).is_multiple_of(u64::from(file.alignment)));
        let elements = tensor.n_elements();
        assert_eq!(tensor.ty.row_bytes(elements), Some(tensor.nbytes));
        assert_eq!(file.tensor(&tensor.name).expect("a tensor by its name"), tensor);
        if tensor.nbytes > 0 {
            ranges.push(tensor.offset..end);
        }
        if i < DEQUANTISED && elements <= LARGEST_ELEMENTS {
            let blocks = &data[tensor.offset as usize..end as usize];
            let mut values = vec![0f32; elements as usize];
            // Types of whole numbers are refused or converted; both are answers.
            let answer = dequantize(tensor.ty, blocks, &mut values);
            let mut wrong = vec![0f32; elements as usize + 1];
            assert!(dequantize(tensor.ty, blocks, &mut wrong).is_err(), "{}: a length that does not fit", tensor.ty);
            if let Err(error) = answer {
                check_error(&error);
            }
        }
    }
    ranges.sort_by_key(|range| range.start);
    assert!(ranges.is_sorted_by(|a, b| a.end <= b.start), "tensors overlap: {ranges:?}");
    for tensor in &file.unknown {
        assert!(file.tensor(&tensor.name).is_err());
    }
}

struct Shrunk<'a> {
    data: &'a [u8],
    claimed: u64,
}

impl ReadAt for Shrunk<'_> {
    fn len(&self) -> u64 {
        self.claimed
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.data.read_exact_at(offset, buf)
    }
}
