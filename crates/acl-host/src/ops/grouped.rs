//! Many products in one call, all in one region of the team.
//!
//! Only the form with separate tensors is here (`groupType` -1): `x[i] * weight[i]` into `y[i]`. Absent: splitting one
//! tensor by a group list, and quantised weights. That all weights lie the same way round is a chip's rule, kept only where
//! the device goes by a chip's name.

use super::check::{ensure, rank_is, shape_is};
use super::matmul::{Item, is_chip, products};
use crate::executor::{Checked, Refusal};
use crate::ffi::meta::TensorList;
use crate::tensor::{Tensor, View};

/// The most products of one call.
const MAX_PRODUCTS: usize = 128;

pub(crate) fn aclnnGroupedMatmulV2(
    x: &TensorList,
    weight: &TensorList,
    bias: Option<&TensorList>,
    scale: Option<&TensorList>,
    offset: Option<&TensorList>,
    antiquant_scale: Option<&TensorList>,
    antiquant_offset: Option<&TensorList>,
    group_list: Option<&[i64]>,
    split_item: i64,
    group_type: i64,
    y: &TensorList,
) -> Checked {
    let optional = [bias, scale, offset, antiquant_scale, antiquant_offset];
    grouped(x, weight, optional, group_list.is_some(), split_item, group_type, y)
}

pub(crate) fn aclnnGroupedMatmulV3(
    x: &TensorList,
    weight: &TensorList,
    bias: Option<&TensorList>,
    scale: Option<&TensorList>,
    offset: Option<&TensorList>,
    antiquant_scale: Option<&TensorList>,
    antiquant_offset: Option<&TensorList>,
    group_list: Option<&Tensor>,
    split_item: i64,
    group_type: i64,
    y: &TensorList,
) -> Checked {
    let optional = [bias, scale, offset, antiquant_scale, antiquant_offset];
    grouped(x, weight, optional, group_list.is_some(), split_item, group_type, y)
}

fn grouped(
    x: &TensorList,
    weight: &TensorList,
    optional: [Option<&TensorList>; 5],
    has_groups: bool,
    split_item: i64,
    group_type: i64,
    y: &TensorList,
) -> Checked {
    ensure(group_type == -1, || format!("groupType is {group_type}, here is -1 only"))?;
    ensure(matches!(split_item, 0 | 1), || format!("splitItem is {split_item}, needed is 0 or 1 with groupType -1"))?;
    ensure(!has_groups, || "groupList is given with groupType -1".into())?;
    ensure(optional.iter().all(|list| list.is_none_or(|l| l.len() == 0)), || {
        "bias and quantisation are not here: their lists must be null".into()
    })?;
    let lists = [x.tensors("x")?, weight.tensors("weight")?, y.tensors("y")?];
    let count = lists[0].len();
    ensure((1..=MAX_PRODUCTS).contains(&count) && lists.iter().all(|l| l.len() == count), || {
        let lens = lists.each_ref().map(Vec::len);
        format!("x, weight and y have {lens:?} tensors, needed are 1 to {MAX_PRODUCTS}, all alike")
    })?;
    let dtype = lists[0][0].dtype();
    ensure(dtype.is_flt() && lists.iter().flatten().all(|t| t.dtype() == dtype), || {
        "x, weight and y are not all F32, all F16 or all BF16".into()
    })?;
    let [x, weight, y] = &lists;
    let turned = looks_transposed(&weight[0]);
    let mut items = Vec::with_capacity(count);
    for ((x, weight), y) in x.iter().zip(weight).zip(y) {
        ensure((2..=6).contains(&x.rank()), || format!("an x has {} dims, needed are 2 to 6", x.rank()))?;
        rank_is("a weight", weight, 2)?;
        if is_chip() {
            ensure(x.row_len() <= 1 || !looks_transposed(x), || "an x is transposed".into())?;
            ensure(looks_transposed(weight) == turned, || "some weights are transposed and some are not".into())?;
        }
        let (k, n) = (x.row_len(), weight.dim(1));
        ensure(weight.dim(0) == k, || format!("inner dims {k} and {} differ", weight.dim(0)))?;
        shape_is("a y", y, &[&x.dims()[..x.rank() - 1], &[n]].concat())?;
        if y.is_empty() {
            continue;
        }
        items.push(Item::new(flat("an x", x)?, weight.view(), flat("a y", y)?)?);
    }
    Ok(products(items))
}

/// As the checker of the chips sees it: the last two dims lie the other way round. A matrix of one element always does.
fn looks_transposed(view: &View) -> bool {
    let (rank, dims, strides) = (view.rank(), view.dims(), view.strides());
    if dims[rank - 2..] == [1, 1] {
        return true;
    }
    strides[rank - 2] == 1 && strides[rank - 1] == dims[rank - 2] as isize && dims[rank - 2] > 1
}

/// All leading dims as rows.
fn flat(name: &str, view: &View) -> Result<View, Refusal> {
    let mut order: Vec<usize> = (0..view.rank()).collect();
    order.rotate_right(1);
    let merged = view.permuted(&order).merged_from(1).map(|v| v.transposed());
    merged.ok_or_else(|| Refusal::invalid(format!("{name} has leading dims that are not rows of one matrix")))
}
