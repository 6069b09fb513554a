//! Files behind [`gguf::ReadAt`], by positional reads.
//!
//! No memory map: a file that shrinks while it is read has to be an error, not a signal. Absent: any idea of what is in it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use gguf::{Gguf, GgufError, ReadAt};

use crate::error::{Error, Result};

/// A regular file whose length was taken when it was opened.
#[derive(Debug)]
pub struct Source {
    file: File,
    path: PathBuf,
    len: u64,
}

impl Source {
    pub fn open(path: &Path) -> Result<Source> {
        let error = |e: io::Error| Error::io(path, &e);
        // Asked before opening: opening a pipe would wait for its other end.
        let metadata = std::fs::metadata(path).map_err(error)?;
        if metadata.is_dir() {
            return Err(error(io::Error::from(io::ErrorKind::IsADirectory)));
        }
        if !metadata.is_file() {
            return Err(error(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")));
        }
        let file = File::open(path).map_err(error)?;
        let len = file.metadata().map_err(error)?.len();
        Ok(Source { file, path: path.to_owned(), len })
    }

    /// Reads tensor data. A file that has become shorter is [`GgufError::Truncated`].
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read_exact_at(offset, buf).map_err(|source| {
            self.error(match source.kind() {
                io::ErrorKind::UnexpectedEof => GgufError::Truncated {
                    offset,
                    need_bytes: buf.len() as u64,
                    file_bytes: self.file.metadata().map_or(self.len, |m| m.len()),
                },
                _ => GgufError::Io { offset, source },
            })
        })
    }

    /// What the system says goes to [`Error::Io`] with its code, what the format says to [`Error::Gguf`].
    fn error(&self, error: GgufError) -> Error {
        match error {
            GgufError::Io { offset, source } => Error::Io {
                path: self.path.display().to_string(),
                message: format!("{source} at offset {offset}"),
                kind: source.kind(),
                os_code: source.raw_os_error(),
            },
            error => Error::gguf(&self.path, error),
        }
    }
}

impl ReadAt for Source {
    fn len(&self) -> u64 {
        self.len
    }

    #[cfg(unix)]
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.file, buf, offset)
    }

    #[cfg(windows)]
    fn read_exact_at(&self, mut offset: u64, mut buf: &mut [u8]) -> io::Result<()> {
        while !buf.is_empty() {
            match std::os::windows::fs::FileExt::seek_read(&self.file, buf, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    buf = &mut buf[n..];
                    offset += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// The table of contents of a model and its files: `TensorInfo::shard` says which of them holds a tensor.
pub fn open_model(path: &Path) -> Result<(Gguf, Vec<Source>)> {
    let source = Source::open(path)?;
    let first = Gguf::parse(&source).map_err(|e| source.error(e))?;
    let paths = gguf::split_paths(path, &first.metadata).map_err(|e| source.error(e))?;
    let (mut parts, mut sources) = (vec![first], vec![source]);
    for path in &paths[1..] {
        let source = Source::open(path)?;
        parts.push(Gguf::parse(&source).map_err(|e| source.error(e))?);
        sources.push(source);
    }
    let whole = Gguf::merge(parts).map_err(|e| Error::gguf(path, e))?;
    Ok((whole, sources))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_files_and_folders_keep_the_system_s_code() {
        let folder = std::env::temp_dir();
        let missing = Source::open(&folder.join("cann-node-there-is-no-such-file.gguf")).unwrap_err();
        assert!(matches!(missing, Error::Io { kind: io::ErrorKind::NotFound, os_code: Some(_), .. }), "{missing}");
        let error = Source::open(&folder).unwrap_err();
        assert!(matches!(error, Error::Io { kind: io::ErrorKind::IsADirectory, .. }), "{error}");
    }

    #[test]
    fn a_file_that_shrank_is_truncated() {
        let path = std::env::temp_dir().join(format!("cann-node-shrinks-{}.bin", std::process::id()));
        std::fs::write(&path, [7; 100]).unwrap();
        let source = Source::open(&path).unwrap();
        let mut buf = [0; 40];
        source.read(60, &mut buf).unwrap();
        assert_eq!((buf, source.len()), ([7; 40], 100));
        File::options().write(true).open(&path).unwrap().set_len(70).unwrap();
        let error = source.read(60, &mut buf).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        let Error::Gguf { error, .. } = error else { panic!("{error}") };
        assert!(matches!(*error, GgufError::Truncated { offset: 60, need_bytes: 40, file_bytes: 70 }), "{error}");
    }
}
