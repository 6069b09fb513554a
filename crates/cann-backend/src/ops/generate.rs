//! Tensors out of parameters: ARANGE FILL TIMESTEP_EMBEDDING.

use super::*;

pub(super) static OPS: &[OpDef] = &[];
