//! Windows over planes and lines: UPSCALE POOL_2D IM2COL CONV_TRANSPOSE_1D.

use super::*;

pub(super) static OPS: &[OpDef] = &[];
