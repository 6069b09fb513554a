//! What ggml's CANN backend gets wrong, and the right value (numbers R… are the project's list of defects, docs/mission.md).
//!
//! On the embedded device's own rules, and in `defects_910b.rs` on a chip's: there large products are split and rounded to f16.

mod defect_cases;

use defect_cases::*;

#[test]
fn products_with_a_large_vocabulary() {
    large_vocabulary(&open(None), 1e-6);
}

#[test]
fn f32_products_stay_f32() {
    f32_product(&open(None));
}

#[test]
fn graphs_can_run_again_and_leave_their_inputs() {
    squares_and_counts(&open(None));
}

#[test]
fn quick_gelu_is_x_times_a_sigmoid() {
    quick_gelu(&open(None));
}

#[test]
fn empty_tensors_and_batches() {
    empties(&open(None));
}

#[test]
fn a_wrong_index_is_an_error_and_costs_nothing() {
    wrong_index(&open(None));
}

#[test]
fn a_refused_node_is_named() {
    refusal(&open(None));
}
