//! Faults as text, for programs that are told by an environment variable: `name=aclrtMalloc,nth=3,code=207001,mode=once`, or
//! several of them with `;` between.

use acl_sys::AclFn;

use crate::state::{Fault, Mode};

/// What is wrong with a text that should be a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError(String);

impl std::fmt::Display for SpecError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for SpecError {}

impl Fault {
    /// The faults between `;`, each as [`Fault::parse`] reads it, without those that are never.
    pub fn parse_all(text: &str) -> Result<Vec<Fault>, SpecError> {
        text.split(';').filter_map(|one| Fault::parse(one).transpose()).collect()
    }

    /// Parts in any order, all optional: `name` (any function), `nth` (1), `code` (107000), `mode` (`once`, `from`, `every` or
    /// `never`) and `release` (`inner` or `skip`). `Ok(None)` is `mode=never`: calls are counted only.
    pub fn parse(text: &str) -> Result<Option<Fault>, SpecError> {
        let mut fault = Fault::nth(1);
        let mut never = false;
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let wrong = |expected: &str| SpecError(format!("'{part}': expected {expected}"));
            let (key, value) = part.split_once('=').ok_or_else(|| wrong("key=value"))?;
            match (key, value) {
                ("name", "*") => fault.function = None,
                ("name", name) => {
                    let found = AclFn::ALL.iter().copied().find(|f| f.name() == name);
                    fault.function = Some(found.ok_or_else(|| wrong("a function of the list"))?);
                }
                ("nth", n) => fault.nth = n.parse().ok().filter(|n| *n > 0).ok_or_else(|| wrong("a number from 1"))?,
                ("code", n) => fault.code = n.parse().ok().filter(|n| *n != 0).ok_or_else(|| wrong("an error code"))?,
                ("mode", "once") => fault.mode = Mode::Once,
                ("mode", "from") => fault.mode = Mode::From,
                ("mode", "every") => fault.mode = Mode::Every,
                ("mode", "never") => never = true,
                ("mode", _) => return Err(wrong("once, from, every or never")),
                ("release", "inner") => fault.release_inner = true,
                ("release", "skip") => fault.release_inner = false,
                ("release", _) => return Err(wrong("inner or skip")),
                _ => return Err(wrong("name, nth, code, mode or release")),
            }
        }
        Ok((!never).then_some(fault))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_faults() {
        let fault = Fault::parse("name=aclrtMalloc, nth=3,code=207001,mode=from").unwrap().unwrap();
        assert_eq!(fault.function, Some(AclFn::aclrtMalloc));
        assert_eq!((fault.nth, fault.code, fault.mode, fault.release_inner), (3, 207001, Mode::From, true));
        assert_eq!(Fault::parse("").unwrap(), Some(Fault::nth(1)));
        assert_eq!(Fault::parse("name=*,mode=never").unwrap(), None);
        assert!(!Fault::parse("release=skip").unwrap().unwrap().release_inner);
        let several = Fault::parse_all("nth=7,mode=every;mode=never;code=207001").unwrap();
        assert_eq!(several, [Fault { mode: Mode::Every, ..Fault::nth(7) }, Fault { code: 207001, ..Fault::nth(1) }]);
        assert_eq!(Fault::parse_all("mode=never").unwrap(), []);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for text in ["name=aclrtMaloc", "nth=0", "nth=x", "code=0", "mode=twice", "release=maybe", "nth", "every=2"] {
            let error = Fault::parse(text).unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
            assert_eq!(Fault::parse_all(&format!("nth=2;{text}")), Err(error));
        }
    }
}
