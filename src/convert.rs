//! Names and numbers between JavaScript and the backend.

use cann_backend::error::{Error, Result};
use gguf::GgmlType;
use napi_derive::napi;

/// 2^53: the numbers below it are exact in JavaScript.
const SAFE: f64 = 9_007_199_254_740_992.0;

/// A dtype by its GGUF spelling.
pub(crate) fn dtype(name: &str, argument: &str) -> Result<GgmlType> {
    GgmlType::from_name(name).ok_or_else(|| {
        let known: Vec<&str> = GgmlType::ALL.iter().map(|t| t.name()).collect();
        Error::invalid(argument, format!("one of {} (but received '{name}')", known.join(", ")))
    })
}

/// A byte count or offset.
pub(crate) fn bytes(value: f64, argument: &str) -> Result<u64> {
    if (0.0..SAFE).contains(&value) && value.fract() == 0.0 {
        Ok(value as u64)
    } else {
        Err(Error::invalid(argument, format!("a whole number of bytes from 0 to 2^53-1 (but received {value})")))
    }
}

/// Extents or other whole numbers.
pub(crate) fn whole(values: &[f64], argument: &str) -> Result<Vec<i64>> {
    values
        .iter()
        .map(|v| {
            if v.fract() == 0.0 && v.abs() < SAFE {
                Ok(*v as i64)
            } else {
                Err(Error::invalid(argument, format!("whole numbers (but received {v})")))
            }
        })
        .collect()
}

pub(crate) fn numbers(values: &[i64]) -> Vec<f64> {
    values.iter().map(|v| *v as f64).collect()
}

pub(crate) fn unsigned_numbers(values: &[u64]) -> Vec<f64> {
    values.iter().map(|v| *v as f64).collect()
}

/// Copies what begins at byte `offset` of `from` into all of `to`; false when there is not as much.
pub(crate) fn copy_part(from: &[u8], offset: f64, to: &mut [u8]) -> bool {
    let part = bytes(offset, "offset").ok().and_then(|start| {
        let start = usize::try_from(start).ok()?;
        from.get(start..start.checked_add(to.len())?)
    });
    part.map(|part| to.copy_from_slice(part)).is_some()
}

/// Block length and bytes of a dtype, for the facade's typed arrays.
#[napi(object, object_from_js = false)]
pub struct DTypeInfo {
    pub name: &'static str,
    pub block_len: u32,
    pub block_bytes: u32,
}

/// Every dtype.
#[napi(catch_unwind)]
pub fn dtypes() -> Vec<DTypeInfo> {
    let row = |t: &GgmlType| DTypeInfo {
        name: t.name(),
        block_len: t.block_len() as u32,
        block_bytes: t.block_bytes() as u32,
    };
    GgmlType::ALL.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_whole_and_safe() {
        assert_eq!(bytes(4096.0, "size").unwrap(), 4096);
        for wrong in [-1.0, 0.5, f64::NAN, f64::INFINITY, SAFE] {
            assert!(bytes(wrong, "size").is_err(), "{wrong}");
        }
        assert_eq!(whole(&[1.0, -2.0], "ne").unwrap(), [1, -2]);
        assert!(whole(&[1.5], "ne").is_err() && whole(&[f64::NAN], "ne").is_err());
    }

    #[test]
    fn parts_are_inside() {
        let mut to = [0; 2];
        assert!(copy_part(&[1, 2, 3], 1.0, &mut to));
        assert_eq!(to, [2, 3]);
        for outside in [2.0, -1.0, f64::NAN, SAFE - 1.0] {
            assert!(!copy_part(&[1, 2, 3], outside, &mut to), "{outside}");
        }
    }

    #[test]
    fn dtypes_by_gguf_name() {
        assert_eq!(dtype("q4_K", "type").unwrap(), GgmlType::Q4K);
        assert!(dtype("Q4_K", "type").unwrap_err().to_string().contains("'Q4_K'"));
    }
}
