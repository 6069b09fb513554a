//! Scans over tokens: SSM_CONV GATED_LINEAR_ATTN.

use super::*;

pub(super) static OPS: &[OpDef] = &[];
