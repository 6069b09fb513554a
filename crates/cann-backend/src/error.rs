//! The one error of the backend. Data, not prose: the addon maps variants to stable codes.

use acl_sys::{AclFn, aclError, status_name};

#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("{call} failed with {code}{}: {detail}", status_name(*code).map(|n| format!(" ({n})")).unwrap_or_default())]
    Acl { call: &'static str, code: aclError, detail: String, op: Option<String> },
    #[error("{device}: out of memory: {requested_bytes} bytes asked{}", free_bytes.map(|f| format!(", {f} free")).unwrap_or_default())]
    OutOfMemory { device: String, requested_bytes: u64, free_bytes: Option<u64>, tensor: Option<String> },
    #[error("{device} is lost: {cause}")]
    DeviceLost { device: String, cause: String },
    #[error("{op} is not supported on {device}: {reason}")]
    UnsupportedOp { op: String, device: String, reason: String },
    #[error("{what} is not supported: {reason}")]
    Unsupported { what: String, reason: String },
    #[error("{op}: {reason}")]
    Shape { op: String, reason: String },
    #[error("expected {expected} for {name}")]
    InvalidArg { name: String, expected: String },
    #[error("{}{error}", file.as_ref().map(|f| format!("{f}: ")).unwrap_or_default())]
    Gguf { file: Option<String>, error: std::sync::Arc<gguf::GgufError> },
    #[error("{path}: {message}")]
    Io { path: String, message: String, kind: std::io::ErrorKind, os_code: Option<i32> },
    #[error("no {what} named '{name}'{}", there_are(known))]
    NotFound {
        what: &'static str,
        name: String,
        /// The names there are, where that helps.
        known: Vec<String>,
    },
    #[error("{what} was disposed")]
    Disposed { what: &'static str },
    /// The caller's cancellation token fired; the addon rejects with the signal's reason.
    #[error("cancelled")]
    Cancelled,
    #[error("no driver could be loaded: {0}")]
    Load(String),
    #[error("internal error: {0}")]
    Internal(String),
}

fn there_are(known: &[String]) -> String {
    if known.is_empty() { String::new() } else { format!(" (there is {})", known.join(", ")) }
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl From<gguf::GgufError> for Error {
    fn from(error: gguf::GgufError) -> Error {
        Error::Gguf { file: None, error: std::sync::Arc::new(error) }
    }
}

impl Error {
    /// What a file's content is wrong in.
    pub fn gguf(path: &std::path::Path, error: gguf::GgufError) -> Error {
        Error::Gguf { file: Some(path.display().to_string()), error: std::sync::Arc::new(error) }
    }

    pub fn invalid(name: impl Into<String>, expected: impl Into<String>) -> Error {
        Error::InvalidArg { name: name.into(), expected: expected.into() }
    }

    pub(crate) fn acl(call: AclFn, code: aclError, detail: String) -> Error {
        Error::Acl { call: call.name(), code, detail, op: None }
    }

    /// Says which tensor an allocation was for.
    pub(crate) fn for_tensor(mut self, name: &str) -> Error {
        if let Error::OutOfMemory { tensor, .. } = &mut self {
            *tensor = (!name.is_empty()).then(|| name.to_owned());
        }
        self
    }

    pub fn io(path: &std::path::Path, error: &std::io::Error) -> Error {
        Error::Io {
            path: path.display().to_string(),
            message: error.to_string(),
            kind: error.kind(),
            os_code: error.raw_os_error(),
        }
    }

    /// A fault after which the device answers nothing until it is reset.
    pub fn is_sticky(&self) -> bool {
        matches!(self, Error::DeviceLost { .. }) || matches!(self, Error::Acl { code, .. } if sticky(*code))
    }
}

/// Codes that mean the device is unusable until a reset: kernel faults, lost heartbeat, memory errors.
pub(crate) fn sticky(code: aclError) -> bool {
    matches!(code, 507000..=507018 | 507034 | 507035 | 507052..=507054 | 507899)
        && !matches!(code, 507002 | 507004 | 507006 | 507007 | 507008)
}
