//! Sums, means and comparisons along rows: SUM SUM_ROWS MEAN ARGMAX COUNT_EQUAL CUMSUM CROSS_ENTROPY_LOSS.

use super::*;

pub(super) static OPS: &[OpDef] = &[];
