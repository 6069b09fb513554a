//! The cases of `defects.rs` by the rules of a 910B.

mod defect_cases;

use defect_cases::*;

#[test]
fn products_with_a_large_vocabulary() {
    large_vocabulary(&open(Some("Ascend910B3")), 1e-5);
}

#[test]
fn f32_products_stay_f32() {
    f32_product(&open(Some("Ascend910B3")));
}

#[test]
fn graphs_can_run_again_and_leave_their_inputs() {
    squares_and_counts(&open(Some("Ascend910B3")));
}

#[test]
fn quick_gelu_is_x_times_a_sigmoid() {
    quick_gelu(&open(Some("Ascend910B3")));
}

#[test]
fn empty_tensors_and_batches() {
    empties(&open(Some("Ascend910B3")));
}

#[test]
fn a_wrong_index_is_an_error_and_costs_nothing() {
    wrong_index(&open(Some("Ascend910B3")));
}

#[test]
fn a_refused_node_is_named() {
    refusal(&open(Some("Ascend910B3")));
}
