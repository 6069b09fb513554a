//! Models cut into several files: their names, and one table of contents for all of them.
//!
//! The parts of a model are named `<prefix>-00001-of-00003.gguf` and lie in one folder; the first one says in its
//! metadata how many there are. Names are computed, never taken from a file's content, so a file can't point elsewhere.
//! Absent: looking at the file system.

use std::path::{Path, PathBuf};

use crate::error::GgufError;
use crate::reader::{Gguf, MAX_TENSORS};
use crate::value::Metadata;

const INDEX_KEY: &str = "split.no";
const COUNT_KEY: &str = "split.count";
const TENSORS_KEY: &str = "split.tensors.count";

/// The files of a model whose first file is `first`, in order; just `first` if the model is not split.
pub fn split_paths(first: impl AsRef<Path>, metadata: &Metadata) -> Result<Vec<PathBuf>, GgufError> {
    let first = first.as_ref();
    let Some(count) = split_count(metadata)? else {
        return Ok(vec![first.into()]);
    };
    let found = metadata.u64(INDEX_KEY)?;
    if found != 0 {
        return Err(GgufError::SplitIndex { expected: 0, found });
    }
    let name = first.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let prefix = name.strip_suffix(&suffix(1, count)).filter(|prefix| !prefix.is_empty());
    let Some(prefix) = prefix else {
        return Err(GgufError::SplitName { name: name.into(), part: 1, count });
    };
    Ok((1..=count).map(|part| first.with_file_name(format!("{prefix}{}", suffix(part, count)))).collect())
}

impl Gguf {
    /// One table of contents for the parts of a split model, given in order; metadata is that of the first.
    /// `TensorInfo::shard` says which part holds a tensor. A single file that is not split comes back as it is.
    pub fn merge(parts: Vec<Gguf>) -> Result<Gguf, GgufError> {
        let found_parts = parts.len() as u64;
        let mut parts = parts.into_iter();
        let Some(mut whole) = parts.next() else {
            return Err(GgufError::SplitCount { expected: 1, found: 0 });
        };
        let Some(expected_parts) = split_count(&whole.metadata)? else {
            return match found_parts {
                1 => Ok(whole),
                found => Err(GgufError::SplitCount { expected: 1, found }),
            };
        };
        if expected_parts != found_parts {
            return Err(GgufError::SplitCount { expected: expected_parts, found: found_parts });
        }
        let expected_tensors = whole.metadata.u64(TENSORS_KEY)?;
        check_index(&whole.metadata, 0)?;
        whole.tensors.iter_mut().for_each(|tensor| tensor.shard = 0);

        for (shard, part) in (1..).zip(parts) {
            let found = split_count(&part.metadata)?.unwrap_or(1);
            if found != expected_parts {
                return Err(GgufError::SplitCount { expected: expected_parts, found });
            }
            check_index(&part.metadata, shard as u64)?;
            whole.tensors.extend(part.tensors.into_iter().map(|mut tensor| {
                tensor.shard = shard;
                tensor
            }));
            whole.unknown.extend(part.unknown);
            let found = (whole.tensors.len() + whole.unknown.len()) as u64;
            if found > MAX_TENSORS {
                return Err(GgufError::SplitTensors { expected: expected_tensors.min(MAX_TENSORS), found });
            }
        }
        let found = (whole.tensors.len() + whole.unknown.len()) as u64;
        if found != expected_tensors {
            return Err(GgufError::SplitTensors { expected: expected_tensors, found });
        }
        whole.indexed()
    }
}

/// How many parts the model has, `None` if it is one file.
fn split_count(metadata: &Metadata) -> Result<Option<u64>, GgufError> {
    if metadata.get(COUNT_KEY).is_none() {
        return Ok(None);
    }
    match metadata.u64(COUNT_KEY)? {
        0 | 1 => Ok(None),
        // ggml stores the count in 16 bits.
        count if count > u16::MAX.into() => Err(GgufError::SplitCount { expected: u16::MAX.into(), found: count }),
        count => Ok(Some(count)),
    }
}

fn check_index(metadata: &Metadata, expected: u64) -> Result<(), GgufError> {
    let found = metadata.u64(INDEX_KEY)?;
    if found == expected { Ok(()) } else { Err(GgufError::SplitIndex { expected, found }) }
}

fn suffix(part: u64, count: u64) -> String {
    format!("-{part:05}-of-{count:05}.gguf")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::GgmlType;
    use crate::writer::Writer;

    fn part(no: u16, count: u16, tensors: i32, names: &[&str]) -> Gguf {
        let writer = Writer::new().kv(INDEX_KEY, no).kv(COUNT_KEY, count).kv(TENSORS_KEY, tensors);
        let writer = names.iter().fold(writer, |w, name| w.tensor(*name, GgmlType::F32, [1], vec![0; 4]));
        Gguf::parse(&writer.finish()).unwrap()
    }

    #[test]
    fn names_stay_in_the_folder_of_the_first() {
        let metadata = part(0, 3, 0, &[]).metadata;
        let paths = split_paths("models/m-00001-of-00003.gguf", &metadata).unwrap();
        let expected = ["models/m-00001-of-00003.gguf", "models/m-00002-of-00003.gguf", "models/m-00003-of-00003.gguf"];
        assert_eq!(paths, expected.map(PathBuf::from));
        assert_eq!(split_paths("x.gguf", &Metadata::default()).unwrap(), [PathBuf::from("x.gguf")]);
    }

    #[test]
    fn names_and_metadata_must_agree() {
        let metadata = part(0, 3, 0, &[]).metadata;
        for name in ["m.gguf", "m-00001-of-00002.gguf", "m-00002-of-00003.gguf", "-00001-of-00003.gguf", "a/..", ""] {
            assert!(matches!(split_paths(name, &metadata), Err(GgufError::SplitName { part: 1, count: 3, .. })));
        }
        let second = part(1, 3, 0, &[]).metadata;
        let error = split_paths("m-00001-of-00003.gguf", &second);
        assert!(matches!(error, Err(GgufError::SplitIndex { expected: 0, found: 1 })));
        let many = Gguf::parse(&Writer::new().kv(COUNT_KEY, 1u64 << 60).finish()).unwrap().metadata;
        assert!(matches!(split_paths("m.gguf", &many), Err(GgufError::SplitCount { .. })));
    }

    #[test]
    fn merge_keeps_the_shard() {
        let whole = Gguf::merge(vec![part(0, 2, 3, &["a"]), part(1, 2, 3, &["b", "c"])]).unwrap();
        let shards: Vec<_> = whole.tensors.iter().map(|t| (t.name.as_str(), t.shard)).collect();
        assert_eq!(shards, [("a", 0), ("b", 1), ("c", 1)]);
        assert_eq!(whole.tensor("c").unwrap().shard, 1);
        let single = Gguf::parse(&Writer::new().finish()).unwrap();
        assert!(Gguf::merge(vec![single]).is_ok());
    }

    #[test]
    fn merge_refuses_what_does_not_belong_together() {
        let merge = |parts| Gguf::merge(parts).unwrap_err();
        assert!(matches!(merge(vec![]), GgufError::SplitCount { expected: 1, found: 0 }));
        assert!(matches!(merge(vec![part(0, 2, 1, &["a"])]), GgufError::SplitCount { expected: 2, found: 1 }));
        assert!(matches!(
            merge(vec![part(0, 2, 2, &["a"]), part(1, 3, 2, &["b"])]),
            GgufError::SplitCount { expected: 2, found: 3 }
        ));
        assert!(matches!(
            merge(vec![part(1, 2, 2, &["a"]), part(0, 2, 2, &["b"])]),
            GgufError::SplitIndex { expected: 0, found: 1 }
        ));
        assert!(matches!(
            merge(vec![part(0, 2, 5, &["a"]), part(1, 2, 5, &["b"])]),
            GgufError::SplitTensors { expected: 5, found: 2 }
        ));
        assert!(matches!(
            merge(vec![part(0, 2, 2, &["a"]), part(1, 2, 2, &["a"])]),
            GgufError::DuplicateTensor { tensor } if tensor == "a"
        ));
    }
}
