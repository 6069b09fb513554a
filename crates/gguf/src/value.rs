//! Metadata values and the table that holds them.
//!
//! Vocabularies have 10^5 strings and more, so an array of strings is one run of bytes and one end per string. Strings
//! stay bytes, because byte-level vocabularies hold pieces that are no UTF-8 on their own. Absent: arrays of arrays,
//! which the format allows, no known model uses, and which invite unbounded recursion.

use crate::error::GgufError;

/// A metadata value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    /// As stored; [`Value::as_str`] is the checked view.
    String(Vec<u8>),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// An array of values of one type.
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    Strings(Strings),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

/// Many strings in one allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strings {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

/// A file's keys and values in file order, found by key in logarithmic time.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    entries: Vec<(String, Value)>,
    /// Positions in `entries`, sorted by key: a quarter of the size of a hash map, and immune to chosen collisions.
    by_key: Vec<u32>,
}

impl Value {
    /// The type's name in messages.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::U8(_) => "u8",
            Value::I8(_) => "i8",
            Value::U16(_) => "u16",
            Value::I16(_) => "i16",
            Value::U32(_) => "u32",
            Value::I32(_) => "i32",
            Value::F32(_) => "f32",
            Value::Bool(_) => "bool",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::U64(_) => "u64",
            Value::I64(_) => "i64",
            Value::F64(_) => "f64",
        }
    }

    /// Any integer that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Value::U8(v) => Some(v.into()),
            Value::U16(v) => Some(v.into()),
            Value::U32(v) => Some(v.into()),
            Value::U64(v) => Some(v),
            Value::I8(v) => v.try_into().ok(),
            Value::I16(v) => v.try_into().ok(),
            Value::I32(v) => v.try_into().ok(),
            Value::I64(v) => v.try_into().ok(),
            _ => None,
        }
    }

    /// Any integer that fits.
    pub fn as_u32(&self) -> Option<u32> {
        self.as_u64()?.try_into().ok()
    }

    /// Any integer that fits.
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            Value::I8(v) => Some(v.into()),
            Value::I16(v) => Some(v.into()),
            Value::I32(v) => Some(v.into()),
            Value::I64(v) => Some(v),
            _ => self.as_u64()?.try_into().ok(),
        }
    }

    /// A floating-point number; an f64 is rounded.
    pub fn as_f32(&self) -> Option<f32> {
        match *self {
            Value::F32(v) => Some(v),
            Value::F64(v) => Some(v as f32),
            _ => None,
        }
    }

    /// A floating-point number.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Value::F32(v) => Some(v.into()),
            Value::F64(v) => Some(v),
            _ => None,
        }
    }

    /// A boolean; numbers are none.
    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            Value::Bool(v) => Some(v),
            _ => None,
        }
    }

    /// A string that is UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(self.as_bytes()?).ok()
    }

    /// A string as stored.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Value::String(v) => Some(v),
            _ => None,
        }
    }

    /// An array of any type.
    pub fn as_array(&self) -> Option<&Array> {
        match self {
            Value::Array(v) => Some(v),
            _ => None,
        }
    }

    /// An array of strings; iterate over it by reference.
    pub fn as_strings(&self) -> Option<&Strings> {
        match self {
            Value::Array(Array::Strings(v)) => Some(v),
            _ => None,
        }
    }

    /// An array of f32.
    pub fn as_f32s(&self) -> Option<&[f32]> {
        match self {
            Value::Array(Array::F32(v)) => Some(v),
            _ => None,
        }
    }

    /// An array of i32.
    pub fn as_i32s(&self) -> Option<&[i32]> {
        match self {
            Value::Array(Array::I32(v)) => Some(v),
            _ => None,
        }
    }
}

macro_rules! value_from {
    ($($from:ty => $variant:ident),*) => {$(
        impl From<$from> for Value {
            fn from(v: $from) -> Value {
                Value::$variant(v)
            }
        }
    )*};
}

value_from!(u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, f32 => F32, bool => Bool,
    u64 => U64, i64 => I64, f64 => F64, Array => Array);

impl From<&str> for Value {
    fn from(v: &str) -> Value {
        Value::String(v.into())
    }
}

impl From<String> for Value {
    fn from(v: String) -> Value {
        Value::String(v.into())
    }
}

impl From<Strings> for Value {
    fn from(v: Strings) -> Value {
        Value::Array(Array::Strings(v))
    }
}

impl Array {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Array::U8(v) => v.len(),
            Array::I8(v) => v.len(),
            Array::U16(v) => v.len(),
            Array::I16(v) => v.len(),
            Array::U32(v) => v.len(),
            Array::I32(v) => v.len(),
            Array::F32(v) => v.len(),
            Array::Bool(v) => v.len(),
            Array::Strings(v) => v.len(),
            Array::U64(v) => v.len(),
            Array::I64(v) => v.len(),
            Array::F64(v) => v.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Element `i` as a value of its own.
    pub fn value(&self, i: usize) -> Option<Value> {
        Some(match self {
            Array::U8(v) => Value::U8(*v.get(i)?),
            Array::I8(v) => Value::I8(*v.get(i)?),
            Array::U16(v) => Value::U16(*v.get(i)?),
            Array::I16(v) => Value::I16(*v.get(i)?),
            Array::U32(v) => Value::U32(*v.get(i)?),
            Array::I32(v) => Value::I32(*v.get(i)?),
            Array::F32(v) => Value::F32(*v.get(i)?),
            Array::Bool(v) => Value::Bool(*v.get(i)?),
            Array::Strings(v) => Value::String(v.get(i)?.to_vec()),
            Array::U64(v) => Value::U64(*v.get(i)?),
            Array::I64(v) => Value::I64(*v.get(i)?),
            Array::F64(v) => Value::F64(*v.get(i)?),
        })
    }
}

impl Strings {
    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// String `i`.
    pub fn get(&self, i: usize) -> Option<&[u8]> {
        let end = *self.ends.get(i)? as usize;
        let start = if i == 0 { 0 } else { self.ends[i - 1] as usize };
        self.bytes.get(start..end)
    }

    /// All strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|i| self.get(i).unwrap_or_default())
    }

    /// Appends a string. False, and nothing appended, if all of them together would exceed 4 GiB.
    pub fn push(&mut self, string: &[u8]) -> bool {
        let Some(end) = self.bytes.len().checked_add(string.len()).and_then(|end| u32::try_from(end).ok()) else {
            return false;
        };
        self.bytes.extend_from_slice(string);
        self.ends.push(end);
        true
    }

    pub(crate) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.ends.shrink_to_fit();
    }
}

impl<S: AsRef<[u8]>> FromIterator<S> for Strings {
    /// Strings beyond 4 GiB in all are left out.
    fn from_iter<I: IntoIterator<Item = S>>(strings: I) -> Strings {
        let mut out = Strings::default();
        for string in strings {
            if !out.push(string.as_ref()) {
                break;
            }
        }
        out
    }
}

impl Metadata {
    pub(crate) fn new(entries: Vec<(String, Value)>) -> Result<Metadata, GgufError> {
        let by_key = sorted_unique(entries.len(), |i| &entries[i].0)
            .map_err(|i| GgufError::DuplicateKey { key: entries[i].0.clone() })?;
        Ok(Metadata { entries, by_key })
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        let found = self.by_key.binary_search_by(|&i| self.entries[i as usize].0.as_str().cmp(key)).ok()?;
        Some(&self.entries[self.by_key[found] as usize].1)
    }

    /// The value of `key`, or an error that names it.
    pub fn require(&self, key: &str) -> Result<&Value, GgufError> {
        self.get(key).ok_or_else(|| GgufError::MissingKey { key: key.into() })
    }

    /// The integer, not negative, that `key` must hold.
    pub fn u64(&self, key: &str) -> Result<u64, GgufError> {
        self.typed(key, "an unsigned integer", Value::as_u64)
    }

    /// The floating-point number that `key` must hold.
    pub fn f32(&self, key: &str) -> Result<f32, GgufError> {
        self.typed(key, "a floating-point number", Value::as_f32)
    }

    /// The UTF-8 string that `key` must hold.
    pub fn str(&self, key: &str) -> Result<&str, GgufError> {
        self.typed(key, "a utf-8 string", Value::as_str)
    }

    /// The array of strings that `key` must hold.
    pub fn strings(&self, key: &str) -> Result<&Strings, GgufError> {
        self.typed(key, "an array of strings", Value::as_strings)
    }

    /// Keys and values in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        view: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<T, GgufError> {
        let value = self.require(key)?;
        view(value).ok_or_else(|| GgufError::WrongValueType { key: key.into(), expected, found: value.type_name() })
    }
}

/// Positions `0..n` sorted by name, or `Err` with the position of a name that occurs twice.
pub(crate) fn sorted_unique<'a>(n: usize, name: impl Fn(usize) -> &'a str) -> Result<Vec<u32>, usize> {
    // The reader caps counts far below 2^32.
    let mut order: Vec<u32> = (0..n as u32).collect();
    order.sort_unstable_by(|&a, &b| name(a as usize).cmp(name(b as usize)));
    match order.windows(2).find(|pair| name(pair[0] as usize) == name(pair[1] as usize)) {
        Some(pair) => Err(pair[0].max(pair[1]) as usize),
        None => Ok(order),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_convert_only_when_they_fit() {
        assert_eq!(Value::I32(-1).as_u64(), None);
        assert_eq!(Value::I32(7).as_u64(), Some(7));
        assert_eq!(Value::U64(u64::MAX).as_i64(), None);
        assert_eq!(Value::U64(1 << 40).as_u32(), None);
        assert_eq!(Value::F32(1.0).as_u64(), None);
        assert_eq!(Value::Bool(true).as_u64(), None);
    }

    #[test]
    fn strings_keep_bytes_and_empty_pieces() {
        let strings: Strings = [&b"ab"[..], b"", b"\xff", b"c"].into_iter().collect();
        assert_eq!(strings.iter().collect::<Vec<_>>(), [&b"ab"[..], b"", b"\xff", b"c"]);
        assert_eq!(strings.get(4), None);
        assert_eq!(Value::from("x").as_str(), Some("x"));
        assert_eq!(Value::String(vec![0xff]).as_str(), None);
    }

    #[test]
    fn metadata_finds_keys_and_names_what_is_wrong() {
        let entries = vec![("b".into(), Value::U32(2)), ("__proto__".into(), "x".into()), ("a".into(), 1.5f32.into())];
        let metadata = Metadata::new(entries).unwrap();
        assert_eq!(metadata.u64("b").unwrap(), 2);
        assert_eq!(metadata.str("__proto__").unwrap(), "x");
        assert_eq!(metadata.f32("a").unwrap(), 1.5);
        assert_eq!(metadata.iter().map(|(key, _)| key).collect::<Vec<_>>(), ["b", "__proto__", "a"]);
        assert!(matches!(metadata.u64("c"), Err(GgufError::MissingKey { key }) if key == "c"));
        assert!(matches!(metadata.u64("a"), Err(GgufError::WrongValueType { found: "f32", .. })));
    }
}
