//! Repeating, joining, padding and rolling: REPEAT CONCAT PAD PAD_REFLECT_1D ROLL.

use super::*;

pub(super) static OPS: &[OpDef] = &[];
