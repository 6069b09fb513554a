//! Placeholder.

use super::*;

pub(super) static OPS: &[OpDef] = &[];
