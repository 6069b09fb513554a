//! Sorting: ARGSORT TOP_K.

use super::*;

pub(super) static OPS: &[OpDef] = &[];
