//! Files made to hurt: one per check of the reader, each refused with the variant that says why. Names of the tests say
//! what is attacked; comments name public advisories of other readers where a file of that kind broke one.

use std::io;
use std::time::{Duration, Instant};

use gguf::{Array, GgmlType, Gguf, GgufError, ReadAt, Strings, Value, Writer, split_paths};

/// A file written field by field, so that any field can lie.
#[derive(Clone, Default)]
struct Raw(Vec<u8>);

impl Raw {
    fn new(n_tensors: u64, n_kv: u64) -> Raw {
        Raw(b"GGUF".to_vec()).u32(3).u64(n_tensors).u64(n_kv)
    }

    fn bytes(mut self, bytes: impl AsRef<[u8]>) -> Raw {
        self.0.extend_from_slice(bytes.as_ref());
        self
    }

    fn u32(self, v: u32) -> Raw {
        self.bytes(v.to_le_bytes())
    }

    fn u64(self, v: u64) -> Raw {
        self.bytes(v.to_le_bytes())
    }

    fn string(self, s: impl AsRef<[u8]>) -> Raw {
        let s = s.as_ref();
        self.u64(s.len() as u64).bytes(s)
    }

    /// Name, dimensions, type and offset.
    fn tensor(self, name: impl AsRef<[u8]>, ne: &[u64], ty: u32, offset: u64) -> Raw {
        let raw = self.string(name).u32(ne.len() as u32);
        ne.iter().fold(raw, |raw, &extent| raw.u64(extent)).u32(ty).u64(offset)
    }

    /// Padding to 32 and `n` bytes of tensor data.
    fn data(mut self, n: usize) -> Raw {
        let start = self.0.len().next_multiple_of(32);
        self.0.resize(start + n, 0);
        self
    }

    fn error(&self) -> GgufError {
        Gguf::parse(&self.0).expect_err("the file must be refused")
    }
}

/// `head`, then zeros up to a length that nobody could store.
struct Sparse {
    head: Vec<u8>,
    len: u64,
}

impl ReadAt for Sparse {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        for (i, byte) in buf.iter_mut().enumerate() {
            *byte = self.head.get(offset as usize + i).copied().unwrap_or(0);
        }
        Ok(())
    }
}

macro_rules! assert_error {
    ($error:expr, $pattern:pat $(if $guard:expr)?) => {{
        let error = $error;
        assert!(matches!(&error, $pattern $(if $guard)?), "got {error:?}");
        error
    }};
}

const F32: u32 = 0;
const Q4_0: u32 = 2;
const U32: u32 = 4;
const BOOL: u32 = 7;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

// 1. Magic and version.

#[test]
fn another_format_is_refused() {
    assert_error!(Raw(b"GGMF\x03\0\0\0".to_vec()).error(), GgufError::BadMagic { found } if found == b"GGMF");
}

#[test]
fn four_bytes_are_truncated() {
    // CVE-2024-39720
    let error = Raw(b"GGUF".to_vec()).error();
    let error = assert_error!(error, GgufError::Truncated { offset: 4, need_bytes: 4, file_bytes: 4 });
    assert_eq!(error.offset(), Some(4));
    assert_error!(Raw::default().error(), GgufError::Truncated { offset: 0, .. });
}

#[test]
fn old_and_future_versions_are_refused() {
    for version in [0, 1, 4, 0x0102_0304] {
        let error = Raw(b"GGUF".to_vec()).u32(version).u64(0).u64(0).error();
        assert_error!(error, GgufError::UnsupportedVersion { version: found } if *found == version);
    }
    assert_eq!(Gguf::parse(&Raw(b"GGUF".to_vec()).u32(2).u64(0).u64(0).0).unwrap().version, 2);
}

#[test]
fn big_endian_is_named() {
    let error = Raw(b"GGUF".to_vec()).bytes(3u32.to_be_bytes()).u64(0).u64(0).error();
    assert_error!(error, GgufError::BigEndian { version: 3 });
}

// 2. Counts before allocation.

#[test]
fn kv_count_must_fit_the_file() {
    // CVE-2024-23605, CVE-2024-25664
    for count in [1, 1 << 40, u64::MAX, u64::MAX / 48 + 1] {
        let error = Raw::new(0, count).error();
        assert_error!(error, GgufError::KvCount { offset: 16, count: found, max: 0 } if *found == count);
    }
    let many = Sparse { head: Raw::new(0, gguf::MAX_KV + 1).0, len: 1 << 50 };
    assert_error!(Gguf::parse(&many).unwrap_err(), GgufError::KvCount { max: gguf::MAX_KV, .. });
}

#[test]
fn tensor_count_must_fit_the_file() {
    // CVE-2024-21836, CVE-2024-25667
    for count in [1, 1 << 40, u64::MAX, u64::MAX / 64 + 1] {
        let error = Raw::new(count, 0).error();
        assert_error!(error, GgufError::TensorCount { offset: 8, count: found, max: 0 } if *found == count);
    }
    let many = Sparse { head: Raw::new(gguf::MAX_TENSORS + 1, 0).0, len: 1 << 50 };
    assert_error!(Gguf::parse(&many).unwrap_err(), GgufError::TensorCount { max: gguf::MAX_TENSORS, .. });
}

// 3. Strings.

#[test]
fn key_length_past_the_end() {
    // CVE-2024-23496: length + 1 wraps
    for length in [u64::MAX, u64::MAX - 7, 1 << 63, 100] {
        let error = Raw::new(0, 1).u64(length).bytes([b'k'; 50]).error();
        assert_error!(error, GgufError::Truncated { offset: 32, need_bytes, .. } if *need_bytes == length);
    }
}

#[test]
fn string_value_length_past_the_end() {
    let error = Raw::new(0, 1).string("k").u32(STRING).u64(u64::MAX).error();
    assert_error!(error, GgufError::Truncated { need_bytes: u64::MAX, .. });
}

#[test]
fn strings_have_caps() {
    let key = Sparse { head: Raw::new(0, 1).u64(65_536).0, len: 1 << 50 };
    assert_error!(Gguf::parse(&key).unwrap_err(), GgufError::StringTooLong { offset: 24, length: 65_536, .. });
    let value = Raw::new(0, 1).string("k").u32(STRING).u64(gguf::MAX_STRING_BYTES + 1).0;
    let value = Sparse { head: value, len: 1 << 50 };
    assert_error!(Gguf::parse(&value).unwrap_err(), GgufError::StringTooLong { max_bytes: gguf::MAX_STRING_BYTES, .. });
}

#[test]
fn empty_key() {
    assert_error!(Raw::new(0, 1).string("").u32(U32).u32(0).bytes([0; 8]).error(), GgufError::EmptyKey { offset: 24 });
}

#[test]
fn key_that_is_no_utf8() {
    let error = Raw::new(0, 1).string(b"\xff\xfe").u32(U32).u32(0).error();
    assert_error!(error, GgufError::KeyNotUtf8 { offset: 24 });
}

#[test]
fn string_values_stay_bytes() {
    let file = Writer::new().kv("k", Value::String(b"\xff\0x".to_vec())).finish();
    let gguf = Gguf::parse(&file).unwrap();
    assert_eq!(gguf.metadata.get("k").unwrap().as_bytes(), Some(&b"\xff\0x"[..]));
    assert_error!(gguf.metadata.str("k").unwrap_err(), GgufError::WrongValueType { found: "string", .. });
}

// 4. Arrays.

#[test]
fn array_count_times_size_past_the_end() {
    // CVE-2024-21825, CVE-2024-12055
    for (ty, count) in [(U32, u64::MAX), (U32, 1 << 62), (10, (1 << 61) + 1), (STRING, 1 << 61), (0, 1 << 40)] {
        let error = Raw::new(0, 1).string("key").u32(ARRAY).u32(ty).u64(count).bytes([0; 64]).error();
        let error = assert_error!(error, GgufError::ArrayTooLong { key, count: c, .. } if key == "key" && *c == count);
        assert_eq!(error.offset(), Some(24 + 11 + 8));
    }
}

#[test]
fn string_array_count_is_bounded_by_lengths() {
    let error = Raw::new(0, 1).string("k").u32(ARRAY).u32(STRING).u64(9).bytes([0; 71]).error();
    assert_error!(error, GgufError::ArrayTooLong { count: 9, .. });
    let ok = Raw::new(0, 1).string("k").u32(ARRAY).u32(STRING).u64(9).bytes([0; 72]);
    assert_eq!(Gguf::parse(&ok.0).unwrap().metadata.strings("k").unwrap().len(), 9);
}

#[test]
fn string_in_an_array_past_the_end() {
    let error = Raw::new(0, 1).string("k").u32(ARRAY).u32(STRING).u64(2).string("a").u64(1 << 40).error();
    assert_error!(error, GgufError::Truncated { need_bytes, .. } if *need_bytes == 1 << 40);
}

#[test]
fn arrays_of_arrays_are_refused_without_recursion() {
    let deep = (0..100_000).fold(Raw::new(0, 1).string("k").u32(ARRAY), |raw, _| raw.u32(ARRAY).u64(1));
    assert_error!(deep.error(), GgufError::NestedArray { key, .. } if key == "k");
}

#[test]
fn array_element_type_out_of_range() {
    let error = Raw::new(0, 1).string("k").u32(ARRAY).u32(13).u64(0).error();
    assert_error!(error, GgufError::UnknownValueType { type_number: 13, .. });
}

// 5. Booleans and type numbers.

#[test]
fn booleans_are_zero_or_one() {
    let error = Raw::new(0, 1).string("k").u32(BOOL).bytes([2]).error();
    assert_error!(error, GgufError::InvalidBool { value: 2, .. });
    let error = Raw::new(0, 1).string("k").u32(ARRAY).u32(BOOL).u64(3).bytes([0, 1, 255]).error();
    assert_error!(error, GgufError::InvalidBool { value: 255, .. });
}

#[test]
fn value_type_out_of_range() {
    for ty in [13, 255, u32::MAX] {
        let error = Raw::new(0, 1).string("k").u32(ty).u64(0).error();
        assert_error!(error, GgufError::UnknownValueType { offset: 33, type_number, .. } if *type_number == ty);
    }
}

#[test]
fn unknown_tensor_type_is_an_error_at_use() {
    for ty in [4, 31, 40, u32::MAX] {
        let raw = Raw::new(2, 0).tensor("new", &[7], ty, 0).tensor("old", &[8], F32, 32).data(64);
        let gguf = Gguf::parse(&raw.0).unwrap();
        assert_eq!(gguf.tensor("old").unwrap().nbytes, 32);
        let error = gguf.tensor("new").unwrap_err();
        let error = assert_error!(error, GgufError::UnknownType { type_number, .. } if *type_number == ty);
        assert_eq!(error.tensor(), Some("new"));
        assert_error!(gguf.require_known().unwrap_err(), GgufError::UnknownType { .. });
    }
}

#[test]
fn unknown_tensor_type_is_still_placed() {
    let error = Raw::new(1, 0).tensor("t", &[1], 99, 32).data(32).error();
    assert_error!(error, GgufError::TensorPastEnd { .. });
    let error = Raw::new(1, 0).tensor("t", &[1], 99, 8).data(32).error();
    assert_error!(error, GgufError::MisalignedTensor { .. });
    let error = Raw::new(2, 0).tensor("a", &[16], F32, 0).tensor("t", &[1], 99, 32).data(64).error();
    assert_error!(error, GgufError::OverlappingTensors { .. });
}

// 6. Duplicates.

#[test]
fn duplicate_key() {
    let error = Raw::new(0, 2).string("k").u32(U32).u32(1).string("k").u32(U32).u32(2).error();
    assert_error!(error, GgufError::DuplicateKey { key } if key == "k");
}

#[test]
fn duplicate_tensor() {
    let error = Raw::new(2, 0).tensor("t", &[1], F32, 0).tensor("t", &[1], F32, 32).data(64).error();
    assert_error!(error, GgufError::DuplicateTensor { tensor } if tensor == "t");
    let error = Raw::new(2, 0).tensor("t", &[1], F32, 0).tensor("t", &[1], 99, 32).data(64).error();
    assert_error!(error, GgufError::DuplicateTensor { .. });
    let error = Raw::new(2, 0).tensor("t", &[1], 98, 0).tensor("t", &[1], 99, 32).data(64).error();
    assert_error!(error, GgufError::DuplicateTensor { .. });
}

#[test]
fn many_tiny_keys_take_no_quadratic_time() {
    const N: u64 = 200_000;
    let mut raw = Raw::new(0, N);
    for i in 0..N {
        // Against the sorting order.
        raw = raw.string(format!("{:06x}", N - i)).u32(0).bytes([0]);
    }
    let start = Instant::now();
    let gguf = Gguf::parse(&raw.0).unwrap();
    assert!(start.elapsed() < Duration::from_secs(5), "took {:?}", start.elapsed());
    assert_eq!(gguf.metadata.len() as u64, N);
    assert!(gguf.metadata.get("000001").is_some());
}

#[test]
fn many_tiny_tensors_take_no_quadratic_time() {
    const N: u64 = 100_000;
    let raw = (0..N).fold(Raw::new(N, 0), |raw, i| raw.tensor(format!("{i}"), &[1], F32, (N - 1 - i) * 32));
    let raw = raw.data(N as usize * 32);
    let start = Instant::now();
    let gguf = Gguf::parse(&raw.0).unwrap();
    assert!(start.elapsed() < Duration::from_secs(5), "took {:?}", start.elapsed());
    assert!(gguf.tensor("99999").is_ok());
}

// 7. Dimensions.

#[test]
fn number_of_dimensions() {
    // CVE-2024-21802
    for n_dims in [0, 5, u32::MAX] {
        let error = Raw::new(1, 0).string("t").u32(n_dims).bytes([1; 64]).error();
        assert_error!(error, GgufError::TensorDims { offset: 33, n_dims: found, .. } if *found == n_dims);
    }
}

#[test]
fn extents_of_zero_and_beyond_63_bits() {
    // GHSA-3p75-pq92-q28f, CVE-2025-0312
    for (dim, ne) in [(0, [0, 1]), (1, [1, 0]), (0, [1 << 63, 1]), (1, [1, u64::MAX])] {
        let error = Raw::new(1, 0).tensor("t", &ne, F32, 0).data(32).error();
        assert_error!(error, GgufError::TensorExtent { dim: found, extent, .. } if *found == dim && *extent == ne[dim]);
    }
}

#[test]
fn product_of_extents() {
    // ggml issue 27203: the product goes negative; CVE-2026-33298: bytes wrap
    for ne in [&[1 << 32, 1 << 32][..], &[1 << 31, 1 << 32], &[i64::MAX as u64, 2], &[1 << 21, 1 << 21, 1 << 21, 2]] {
        let error = Raw::new(1, 0).tensor("t", ne, F32, 0).data(32).error();
        assert_error!(error, GgufError::TensorTooLarge { .. });
    }
}

// 8. Blocks and byte sizes.

#[test]
fn rows_of_whole_blocks() {
    let error = Raw::new(1, 0).tensor("t", &[33, 32], Q4_0, 0).data(1024).error();
    assert_error!(error, GgufError::RowNotWholeBlocks { ty: GgmlType::Q4_0, ne0: 33, .. });
    let k = GgmlType::Q4K.as_u32();
    let error = Raw::new(1, 0).tensor("t", &[128, 2], k, 0).data(1024).error();
    assert_error!(error, GgufError::RowNotWholeBlocks { ty: GgmlType::Q4K, ne0: 128, .. });
}

#[test]
fn byte_size_beyond_63_bits() {
    let f64 = GgmlType::F64.as_u32();
    for (ne, ty) in [(&[1 << 62][..], F32), (&[1 << 60], f64), (&[1 << 30, 1 << 31], f64)] {
        let error = Raw::new(1, 0).tensor("t", ne, ty, 0).data(32).error();
        assert_error!(error, GgufError::TensorTooLarge { .. });
    }
}

#[test]
fn padded_size_beyond_63_bits() {
    // CVE-2025-53630, ggml PR 24759
    let i8 = GgmlType::I8.as_u32();
    let error = Raw::new(1, 0).tensor("t", &[i64::MAX as u64], i8, 0).data(32).error();
    assert_error!(error, GgufError::TensorTooLarge { .. });
}

// 9. Alignment.

#[test]
fn alignment_is_a_power_of_two_in_range() {
    // CVE-2025-0317 and others: alignment 0
    for alignment in [0, 1, 4, 24, 33, 1 << 21, u32::MAX] {
        let error = Raw::new(0, 1).string("general.alignment").u32(U32).u32(alignment).error();
        assert_error!(error, GgufError::InvalidAlignment { alignment: found } if *found == alignment);
    }
    for alignment in [8u32, 32, 1 << 20] {
        let file = Writer::new().kv("general.alignment", alignment).finish();
        assert_eq!(Gguf::parse(&file).unwrap().alignment, alignment);
    }
}

#[test]
fn alignment_of_another_type() {
    // ggml PR 26318, issue 15711
    for value in [Value::U64(32), Value::I32(32), Value::from("32"), Value::Array(Array::U32(vec![32]))] {
        let file = Writer::new().kv("general.alignment", value).finish();
        assert_error!(Gguf::parse(&file).unwrap_err(), GgufError::WrongValueType { expected: "u32", .. });
    }
}

// 10. Tensor ranges.

#[test]
fn data_starts_past_the_end() {
    let error = Raw::new(1, 0).tensor("t", &[1], F32, 0).error();
    assert_error!(error, GgufError::DataStartPastEnd { offset: 64, file_bytes: 57 });
}

#[test]
fn metadata_alone_needs_no_padding() {
    assert_eq!(Gguf::parse(&Raw::new(0, 1).string("k").u32(0).bytes([1]).0).unwrap().metadata.len(), 1);
}

#[test]
fn misaligned_offset() {
    let error = Raw::new(1, 0).tensor("t", &[1], F32, 4).data(64).error();
    assert_error!(error, GgufError::MisalignedTensor { offset: 4, alignment: 32, .. });
}

#[test]
fn tensor_past_the_end() {
    // CVE-2026-7482, CVE-2026-27940
    for offset in [32, 1 << 40, u64::MAX - 31, (1 << 63) - 32] {
        let error = Raw::new(1, 0).tensor("t", &[8], F32, offset).data(32).error();
        assert_error!(error, GgufError::TensorPastEnd { nbytes: 32, .. });
    }
    let error = Raw::new(1, 0).tensor("t", &[8], F32, 0).data(31).error();
    assert_error!(error, GgufError::TensorPastEnd { offset: 64, nbytes: 32, file_bytes: 95, .. });
}

#[test]
fn overlapping_tensors() {
    let error = Raw::new(2, 0).tensor("a", &[9], F32, 0).tensor("b", &[1], F32, 32).data(64).error();
    assert_error!(error, GgufError::OverlappingTensors { tensor, other, .. } if tensor == "b" && other == "a");
    let error = Raw::new(2, 0).tensor("a", &[1], F32, 0).tensor("b", &[1], F32, 0).data(64).error();
    assert_error!(error, GgufError::OverlappingTensors { .. });
    // A gap, and data in another order than the table, hurt nobody.
    let raw = Raw::new(2, 0).tensor("a", &[1], F32, 64).tensor("b", &[1], F32, 0).data(96);
    assert!(Gguf::parse(&raw.0).is_ok());
}

// 11. Budget.

#[test]
fn metadata_has_a_budget() {
    let too_much = gguf::MAX_METADATA_BYTES;
    let array = Raw::new(0, 1).string("k").u32(ARRAY).u32(U32).u64(too_much / 4).0;
    let error = Gguf::parse(&Sparse { head: array, len: 1 << 50 }).unwrap_err();
    assert_error!(error, GgufError::MetadataTooLarge { max_bytes, .. } if *max_bytes == too_much);
    let strings = Raw::new(0, 1).string("k").u32(ARRAY).u32(STRING).u64(1 << 40).0;
    let error = Gguf::parse(&Sparse { head: strings, len: 1 << 50 }).unwrap_err();
    assert_error!(error, GgufError::MetadataTooLarge { .. });
}

#[test]
fn vocabulary_of_many_strings() {
    let tokens: Strings = (0..150_000).map(|i| format!("token {i}")).collect();
    let file = Writer::new().kv("tokenizer.ggml.tokens", tokens.clone()).finish();
    let gguf = Gguf::parse(&file).unwrap();
    assert_eq!(gguf.metadata.strings("tokenizer.ggml.tokens").unwrap(), &tokens);
}

// 12. Names.

#[test]
fn tensor_names() {
    let long = [b'n'; 64];
    let error = Raw::new(1, 0).tensor(long, &[1], F32, 0).data(32).error();
    assert_error!(error, GgufError::TensorNameTooLong { offset: 24, length: 64, max_bytes: 63 });
    assert!(Gguf::parse(&Raw::new(1, 0).tensor(&long[1..], &[1], F32, 0).data(32).0).is_ok());
    for name in [&b""[..], b"a\0b", b"\xff"] {
        let error = Raw::new(1, 0).tensor(name, &[1], F32, 0).data(32).error();
        assert_error!(error, GgufError::InvalidTensorName { offset: 24 });
    }
}

// 13. Files that change.

/// Says it is longer than it is: what a positional reader sees of a file cut short after it was opened.
struct Shrunk(Vec<u8>, u64);

impl ReadAt for Shrunk {
    fn len(&self) -> u64 {
        self.1
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(offset, buf)
    }
}

#[test]
fn a_file_that_shrinks() {
    let file = Writer::new().kv("k", "v").finish();
    let len = file.len() as u64 + 1;
    assert_error!(Gguf::parse(&Shrunk(file, len)).unwrap_err(), GgufError::Truncated { offset: 0, .. });
}

struct Broken;

impl ReadAt for Broken {
    fn len(&self) -> u64 {
        1 << 20
    }

    fn read_exact_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

#[test]
fn a_read_that_fails_keeps_its_cause() {
    let error = Gguf::parse(&Broken).unwrap_err();
    let kind = io::ErrorKind::PermissionDenied;
    assert_error!(error, GgufError::Io { offset: 0, source } if source.kind() == kind);
}

// 15. Templates.

#[test]
fn a_template_is_text() {
    // CVE-2024-34359
    let template = "{{ ().__class__.__mro__[1].__subclasses__() }}";
    let file = Writer::new().kv("tokenizer.chat_template", template).finish();
    assert_eq!(Gguf::parse(&file).unwrap().metadata.str("tokenizer.chat_template").unwrap(), template);
}

#[test]
fn a_missing_key_is_named() {
    // CVE-2024-41130
    let gguf = Gguf::parse(&Raw::new(0, 0).0).unwrap();
    assert_error!(gguf.metadata.u64("x.block_count").unwrap_err(), GgufError::MissingKey { key } if key == "x.block_count");
    assert_error!(gguf.tensor("w").unwrap_err(), GgufError::TensorNotFound { tensor } if tensor == "w");
}

// 16. Split files; more beside the code.

#[test]
fn split_metadata_of_the_wrong_type() {
    let file = Writer::new().kv("split.count", "../../etc/passwd").finish();
    let metadata = Gguf::parse(&file).unwrap().metadata;
    assert_error!(split_paths("m-00001-of-00002.gguf", &metadata).unwrap_err(), GgufError::WrongValueType { .. });
    let file = Writer::new().kv("split.count", 2u16).finish();
    let metadata = Gguf::parse(&file).unwrap().metadata;
    assert_error!(split_paths("m-00001-of-00002.gguf", &metadata).unwrap_err(), GgufError::MissingKey { .. });
    let file = Writer::new().kv("split.count", 2u16).kv("split.no", -1i32).finish();
    let metadata = Gguf::parse(&file).unwrap().metadata;
    assert_error!(split_paths("m-00001-of-00002.gguf", &metadata).unwrap_err(), GgufError::WrongValueType { .. });
}

// 17. Never a panic.

fn small_file() -> Vec<u8> {
    let tokens: Strings = ["a", "bc", ""].into_iter().collect();
    Writer::new()
        .kv("general.architecture", "tiny")
        .kv("n", 7u32)
        .kv("f", 0.5f64)
        .kv("b", true)
        .kv("tokens", tokens)
        .kv("scores", Array::F32(vec![1.0, 2.0]))
        .tensor("w", GgmlType::Q4_0, [64, 2], vec![3; 72])
        .tensor("b", GgmlType::F32, [8], vec![4; 32])
        .finish()
}

#[test]
fn every_truncation_is_an_error() {
    let file = small_file();
    assert!(Gguf::parse(&file).is_ok());
    for len in 0..file.len() {
        let error = Gguf::parse(&file[..len]).unwrap_err();
        let pattern = |error: &GgufError| {
            use GgufError as E;
            let in_data = matches!(error, E::DataStartPastEnd { .. } | E::TensorPastEnd { .. });
            let in_table = matches!(error, E::Truncated { .. } | E::KvCount { .. } | E::TensorCount { .. });
            in_data || in_table || matches!(error, E::ArrayTooLong { .. })
        };
        assert!(pattern(&error), "cut to {len}: {error:?}");
    }
}

#[test]
fn any_byte_may_be_anything() {
    let file = small_file();
    for i in 0..file.len() {
        for byte in [0x00, 0x01, 0x7f, 0x80, 0xff, file[i] ^ 1, file[i].wrapping_add(1)] {
            let mut file = file.clone();
            file[i] = byte;
            check_consistent(&file);
        }
    }
}

/// What parsed must be usable: ranges in the file, names found, indices whole.
fn check_consistent(file: &[u8]) {
    let Ok(gguf) = Gguf::parse(file) else { return };
    for tensor in &gguf.tensors {
        let bytes = &file[tensor.offset as usize..][..tensor.nbytes as usize];
        assert_eq!(gguf.tensor(&tensor.name).unwrap(), tensor);
        let mut values = vec![0.0; tensor.n_elements() as usize];
        gguf::dequantize(tensor.ty, bytes, &mut values).unwrap();
    }
    for (key, value) in gguf.metadata.iter() {
        assert_eq!(gguf.metadata.get(key).unwrap().type_name(), value.type_name());
    }
    let _ = split_paths("m-00001-of-00002.gguf", &gguf.metadata);
    let _ = Gguf::merge(vec![gguf]);
}

proptest::proptest! {
    #[test]
    fn random_bytes_never_panic(body in proptest::collection::vec(proptest::num::u8::ANY, 0..512)) {
        check_consistent(&body);
        check_consistent(&[b"GGUF\x03\0\0\0", body.as_slice()].concat());
        // Past the counts, where most random files would end.
        let start = Raw::new(2, 2).string("k").u32(ARRAY);
        check_consistent(&start.bytes(&body).0);
        let start = Raw::new(1, 0).string("t");
        check_consistent(&start.bytes(&body).data(64).0);
    }

    #[test]
    fn mutations_never_panic(changes in proptest::collection::vec((0usize..4096, proptest::num::u8::ANY), 1..8), cut in 0usize..4096) {
        let mut file = small_file();
        for (at, byte) in changes {
            let at = at % file.len();
            file[at] = byte;
        }
        check_consistent(&file);
        file.truncate(cut % file.len());
        check_consistent(&file);
    }

    #[test]
    fn any_words_in_a_row_never_panic(at in 0usize..4096, word in proptest::num::u64::ANY, small in 0u64..40) {
        // Whole fields, where bytes alone rarely meet.
        for word in [word, small, small.wrapping_neg(), 1 << small, u64::MAX >> small] {
            let mut file = small_file();
            let at = at % (file.len() - 8);
            file[at..at + 8].copy_from_slice(&word.to_le_bytes());
            check_consistent(&file);
        }
    }

    #[test]
    fn random_blocks_never_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 512)) {
        for &ty in GgmlType::ALL {
            let mut values = vec![0.0; ty.block_len()];
            gguf::dequantize(ty, &bytes[..ty.block_bytes()], &mut values).unwrap();
        }
    }
}
