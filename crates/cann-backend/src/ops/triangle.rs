//! Triangular matrices: TRI DIAG SOLVE_TRI.

use super::*;

pub(super) static OPS: &[OpDef] = &[];
