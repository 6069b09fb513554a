//! One match from the backend's error to what JavaScript sees: a stable code, a message, fields, and a hint where one helps.

use acl_sys::status_name;
use cann_backend::error::Error;
use napi::bindgen_prelude::{FnArgs, Unknown};
use napi::{Env, JsValue, Status};
use napi_derive::napi;

use crate::state::State;

/// What an error carries besides code and message; the public names are those of `CannError`.
#[napi(object, object_from_js = false)]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ErrorFields {
    pub acl_code: Option<i32>,
    pub acl_name: Option<String>,
    pub call: Option<String>,
    pub device: Option<String>,
    pub op: Option<String>,
    pub tensor: Option<String>,
    pub reason: Option<String>,
    pub requested_bytes: Option<f64>,
    pub free_bytes: Option<f64>,
    pub offset: Option<f64>,
    pub hint: Option<String>,
    /// Of a file error; the facade makes Node's error from these and puts it into `cause`.
    pub path: Option<String>,
    pub os_code: Option<i32>,
}

/// Codes of `CannErrorCode`, in the contract's order.
pub(crate) const CODES: &[&str] = &[
    "ERR_ACL",
    "ERR_OUT_OF_MEMORY",
    "ERR_DEVICE_LOST",
    "ERR_UNSUPPORTED_OP",
    "ERR_UNSUPPORTED",
    "ERR_SHAPE_MISMATCH",
    "ERR_INVALID_ARG",
    "ERR_GGUF",
    "ERR_IO",
    "ERR_NOT_FOUND",
    "ERR_DISPOSED",
    "ERR_LOAD",
    "ERR_INTERNAL",
];

/// Never seen outside: the facade rejects with the signal's reason instead.
const CANCELLED: &str = "ERR_CANCELLED";

/// The codes that native calls may give, for the test that compares them with the type declarations.
#[napi(catch_unwind)]
pub fn error_codes() -> Vec<&'static str> {
    CODES.to_vec()
}

/// The error object of an error, wrapped so that throwing or rejecting with it gives that very object. On the JavaScript thread.
pub(crate) fn to_js(env: &Env, error: &Error) -> napi::Error {
    let (code, fields) = describe(error);
    let made: napi::Result<Unknown> = (|| {
        let state = State::of(env).ok_or_else(|| napi::Error::from_reason("the addon was not initialised"))?;
        let factory = state.error_factory.borrow_back(env)?;
        factory.call(FnArgs::from((code.to_owned(), error.to_string(), fields)))
    })();
    match made {
        Ok(object) => napi::Error::from(object),
        Err(_) => match env.create_error(napi::Error::new(Status::GenericFailure, error.to_string())) {
            Ok(object) => napi::Error::from(object.to_unknown()),
            Err(error) => error,
        },
    }
}

/// Code and fields of an error.
pub(crate) fn describe(error: &Error) -> (&'static str, ErrorFields) {
    let none = ErrorFields::default;
    match error {
        Error::Acl { call, code, detail, op } => (
            "ERR_ACL",
            ErrorFields {
                acl_code: Some(*code),
                acl_name: status_name(*code).map(str::to_owned),
                call: Some((*call).to_owned()),
                op: op.clone(),
                reason: Some(detail.clone()).filter(|d| !d.is_empty()),
                hint: acl_hint(*code).map(str::to_owned),
                ..none()
            },
        ),
        Error::OutOfMemory { device, requested_bytes, free_bytes, tensor } => (
            "ERR_OUT_OF_MEMORY",
            ErrorFields {
                device: Some(device.clone()),
                requested_bytes: Some(*requested_bytes as f64),
                free_bytes: free_bytes.map(|b| b as f64),
                tensor: tensor.clone(),
                hint: Some(
                    "dispose tensors, plans or weights that are no longer used, or take a smaller model or batch"
                        .into(),
                ),
                ..none()
            },
        ),
        Error::DeviceLost { device, cause } => (
            "ERR_DEVICE_LOST",
            ErrorFields {
                device: Some(device.clone()),
                reason: Some(cause.clone()),
                hint: Some("close the backend and open it again; what was on the device is gone".into()),
                ..none()
            },
        ),
        Error::UnsupportedOp { op, device, reason } => (
            "ERR_UNSUPPORTED_OP",
            ErrorFields {
                op: Some(op.clone()),
                device: Some(device.clone()),
                reason: Some(reason.clone()),
                hint: Some("backend.explainOp(node) gives the reason before prepare(); docs/ops.md lists what each chip refuses".into()),
                ..none()
            },
        ),
        Error::Unsupported { reason, .. } => {
            ("ERR_UNSUPPORTED", ErrorFields { reason: Some(reason.clone()), ..none() })
        }
        Error::Shape { op, reason } => {
            ("ERR_SHAPE_MISMATCH", ErrorFields { op: Some(op.clone()), reason: Some(reason.clone()), ..none() })
        }
        Error::InvalidArg { .. } => ("ERR_INVALID_ARG", none()),
        Error::Gguf { error: inner, .. } => {
            let code = if matches!(**inner, gguf::GgufError::Io { .. }) { "ERR_IO" } else { "ERR_GGUF" };
            let os_code = match &**inner {
                gguf::GgufError::Io { source, .. } => source.raw_os_error(),
                _ => None,
            };
            (
                code,
                ErrorFields {
                    offset: inner.offset().map(|o| o as f64),
                    tensor: inner.tensor().map(str::to_owned),
                    os_code,
                    ..none()
                },
            )
        }
        Error::Io { path, os_code, .. } => {
            ("ERR_IO", ErrorFields { path: Some(path.clone()), os_code: *os_code, ..none() })
        }
        Error::NotFound { .. } => ("ERR_NOT_FOUND", none()),
        Error::Disposed { .. } => ("ERR_DISPOSED", none()),
        Error::Cancelled => (CANCELLED, none()),
        Error::Load(_) => ("ERR_LOAD", none()),
        Error::Internal(_) => (
            "ERR_INTERNAL",
            ErrorFields { hint: Some("this is a bug in cann-node; please report it".into()), ..none() },
        ),
        // The enum may grow; a variant without a row here is a bug that the code says.
        _ => ("ERR_INTERNAL", none()),
    }
}

/// What to do about statuses that people meet, in words.
fn acl_hint(code: i32) -> Option<&'static str> {
    Some(match code {
        100000 => "an argument the library refused: report it with the message above",
        107002 => "the device was reset by other code in this process",
        107003..=107005 => "a stream, event or context was destroyed by other code in this process",
        207001 | 200000 => "the device is out of memory",
        207000 | 500000 | 161001..=161002 => "this CANN version lacks a function: update the toolkit",
        507033 => "driver and toolkit do not match: compare `npu-smi info` with the toolkit's version",
        507000..=507018 | 507034..=507035 | 507052..=507054 | 507899 => {
            "the device needs a reset: open the backend again"
        }
        _ => return None,
    })
}

/// Runs a closure that may fail with the backend's error.
pub(crate) trait OrJs<T> {
    fn or_js(self, env: &Env) -> napi::Result<T>;
}

impl<T> OrJs<T> for std::result::Result<T, Error> {
    fn or_js(self, env: &Env) -> napi::Result<T> {
        self.map_err(|error| to_js(env, &error))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn every_error_has_a_code_of_the_list() {
        let text = || "x".to_owned();
        let errors = [
            Error::Acl { call: "aclrtMalloc", code: 207001, detail: text(), op: None },
            Error::OutOfMemory { device: text(), requested_bytes: 1, free_bytes: Some(0), tensor: None },
            Error::DeviceLost { device: text(), cause: text() },
            Error::UnsupportedOp { op: text(), device: text(), reason: text() },
            Error::Unsupported { what: text(), reason: text() },
            Error::Shape { op: text(), reason: text() },
            Error::InvalidArg { name: text(), expected: text() },
            Error::gguf("m.gguf".as_ref(), gguf::GgufError::BadMagic { found: *b"GGML" }),
            Error::Io { path: text(), message: text(), kind: std::io::ErrorKind::NotFound, os_code: Some(2) },
            Error::NotFound { what: "device", name: text(), known: vec![text()] },
            Error::Disposed { what: "the tensor" },
            Error::Load(text()),
            Error::Internal(text()),
        ];
        let codes: Vec<&str> = errors.iter().map(|error| describe(error).0).collect();
        assert_eq!(codes, CODES);
    }

    #[test]
    fn fields_say_which_and_how() {
        let error = Error::Acl { call: "aclrtMalloc", code: 207001, detail: String::new(), op: Some("ADD".into()) };
        let (_, fields) = describe(&error);
        assert_eq!((fields.acl_code, fields.op.as_deref()), (Some(207001), Some("ADD")));
        assert_eq!(fields.acl_name.as_deref(), Some("ACL_ERROR_RT_MEMORY_ALLOCATION"));
        assert_eq!((fields.reason, fields.call.as_deref()), (None, Some("aclrtMalloc")));
        let (code, fields) = describe(&Error::gguf("m.gguf".as_ref(), gguf::GgufError::BadMagic { found: *b"GGML" }));
        assert_eq!((code, fields.offset), ("ERR_GGUF", Some(0.0)));
    }
}
