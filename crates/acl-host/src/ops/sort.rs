//! Order: sorting, the largest few, the largest one.
//!
//! Equal elements keep their order, NaN counts as larger than every number. An element and its index are one integer whose
//! order is the wanted one, so a row is sorted without comparing through an index.

use std::ops::Range;

use super::check::*;
use crate::executor::{Checked, Op, Run, bytes_of, team};
use crate::tensor::{DType, Domain, Lane, Tensor, View};

/// How many elements are read at a time.
const BLOCK: usize = 512;

pub(crate) fn aclnnArgsort(self_: &Tensor, dim: i64, descending: bool, out: &Tensor) -> Checked {
    not_packed("self", self_)?;
    shape_is("out", out, self_.dims())?;
    is_index("out", out)?;
    let axis = axis(dim, self_)?;
    if out.is_empty() {
        return Ok(Op::nothing());
    }
    let k = if self_.rank() == 0 { 1 } else { self_.dim(axis) };
    ranked(self_, axis, k, descending, None, out)
}

pub(crate) fn aclnnTopk(
    self_: &Tensor,
    k: i64,
    dim: i64,
    largest: bool,
    sorted: bool,
    values_out: &Tensor,
    indices_out: &Tensor,
) -> Checked {
    // Sorted results are an answer to callers who do not ask for them, too.
    let _ = sorted;
    not_packed("self", self_)?;
    let axis = axis(dim, self_)?;
    let mut shape = self_.dims().to_vec();
    let size = shape.get(axis).copied().unwrap_or(1);
    let Some(k) = usize::try_from(k).ok().filter(|k| *k <= size) else {
        return Err(crate::executor::Refusal::invalid(format!("k is {k} of {size} elements")));
    };
    if let Some(dim) = shape.get_mut(axis) {
        *dim = k;
    }
    shape_is("valuesOut", values_out, &shape)?;
    shape_is("indicesOut", indices_out, &shape)?;
    dtype_is("valuesOut", values_out, self_.dtype())?;
    is_index("indicesOut", indices_out)?;
    if values_out.is_empty() {
        return Ok(Op::nothing());
    }
    ranked(self_, axis, k, largest, Some(values_out), indices_out)
}

/// The first `k` indices of each row along `axis` in order, and their values.
fn ranked(x: &Tensor, axis: usize, k: usize, descending: bool, values: Option<&Tensor>, indices: &Tensor) -> Checked {
    let along = |t: &Tensor| if t.rank() == 0 { t.with_unit_dim(0) } else { t.axis_last(axis) };
    let job = Ranked { x: along(x), values: values.map(along), indices: along(indices), k, descending };
    let size = job.x.row_len();
    ensure(u32::try_from(size).is_ok(), || format!("a row of {size} elements"))?;
    let slots = team().threads();
    Ok(if x.dtype().bits() <= 32 {
        // 32 bits of order before 32 bits of index.
        Op::new(slots * bytes_of::<u64>(size), move |run| job.run(run, slots))
    } else {
        // The keys take all 64 bits, the indices come behind.
        Op::new(2 * slots * bytes_of::<u64>(size), move |run| job.run_wide(run, slots))
    })
}

struct Ranked {
    x: View,
    values: Option<View>,
    indices: View,
    k: usize,
    descending: bool,
}

impl Ranked {
    fn run(&self, run: &Run, slots: usize) {
        let size = self.x.row_len();
        // With few wanted of many, what is worse than the worst kept so far is passed over.
        let room = size.min((self.k * 4).max(1024));
        self.parts(run, slots, |rows| {
            let keys = run.take::<u64>(size);
            for row in rows {
                let (mut count, mut limit) = (0, u64::MAX);
                self.keys(row, |i, key| {
                    let key = (key >> 32 << 32) | i as u64;
                    if key <= limit {
                        keys[count] = key;
                        count += 1;
                        if count == room && count < size {
                            keys[..count].select_nth_unstable(self.k);
                            limit = keys[self.k];
                            count = self.k;
                        }
                    }
                });
                let keys = &mut keys[..count];
                if self.k < keys.len() {
                    keys.select_nth_unstable(self.k);
                }
                keys[..self.k].sort_unstable();
                self.write(row, keys[..self.k].iter().map(|key| (key & u64::from(u32::MAX)) as usize));
            }
        });
    }

    fn run_wide(&self, run: &Run, slots: usize) {
        self.parts(run, slots, |rows| {
            let keys = run.take::<u64>(self.x.row_len());
            let order = run.take::<u64>(self.x.row_len());
            for row in rows {
                self.keys(row, |i, key| keys[i] = key);
                order.iter_mut().enumerate().for_each(|(i, o)| *o = i as u64);
                order.sort_unstable_by_key(|&i| (keys[i as usize], i));
                self.write(row, order[..self.k].iter().map(|i| *i as usize));
            }
        });
    }

    /// Rows in as many parts as there is scratch for.
    fn parts(&self, run: &Run, slots: usize, f: impl Fn(Range<usize>) + Sync) {
        let (rows, size) = (self.x.rows(), self.x.row_len());
        let parts = if rows * size < 8 << 10 { 1 } else { slots.min(rows) };
        run.team.run(parts, &|part| f(rows * part / parts..rows * (part + 1) / parts));
    }

    /// Calls `f` with each element's key of a row; smaller keys come first.
    fn keys(&self, row: usize, f: impl FnMut(usize, u64)) {
        match self.x.dtype().domain() {
            Domain::F32 => self.keys_of::<f32>(row, f, |x| {
                let bits = if x.is_nan() { f32::NAN.to_bits() } else { (x + 0.0).to_bits() };
                u64::from(if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }) << 32
            }),
            Domain::F64 => self.keys_of::<f64>(row, f, |x| {
                let bits = if x.is_nan() { f64::NAN.to_bits() } else { (x + 0.0).to_bits() };
                if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
            }),
            Domain::I64 => {
                let shift = if self.x.dtype().bits() <= 32 { 32 } else { 0 };
                // Signed and unsigned 32-bit values both fit between the marks; 64-bit unsigned ones are in order as they are.
                let flip = if self.x.dtype() == DType::U64 || shift == 32 { 0 } else { 1 << 63 };
                let base = if matches!(self.x.dtype(), DType::U32) || shift == 0 { 0 } else { 1i64 << 31 };
                self.keys_of::<i64>(row, f, |x| (((x + base) as u64) << shift) ^ flip);
            }
        }
    }

    fn keys_of<N: Lane>(&self, row: usize, mut f: impl FnMut(usize, u64), key: impl Fn(N) -> u64) {
        let size = self.x.row_len();
        let mut block = [N::default(); BLOCK];
        for start in (0..size).step_by(BLOCK) {
            let len = BLOCK.min(size - start);
            for (i, x) in self.x.read(row * size + start, &mut block[..len]).iter().enumerate() {
                let key = key(*x);
                f(start + i, if self.descending { !key } else { key });
            }
        }
    }

    fn write(&self, row: usize, order: impl Iterator<Item = usize>) {
        let size = self.x.row_len();
        for (i, index) in order.enumerate() {
            self.indices.set(row * self.k + i, index as i64);
            let Some(values) = &self.values else { continue };
            match self.x.dtype().domain() {
                Domain::F32 => values.set(row * self.k + i, self.x.get::<f32>(row * size + index)),
                Domain::F64 => values.set(row * self.k + i, self.x.get::<f64>(row * size + index)),
                Domain::I64 => values.set(row * self.k + i, self.x.get::<i64>(row * size + index)),
            }
        }
    }
}

/// The first of equal largest elements; a NaN counts as the largest.
pub(crate) fn aclnnArgMax(self_: &Tensor, dim: i64, keepdim: bool, out: &Tensor) -> Checked {
    not_packed("self", self_)?;
    is_index("out", out)?;
    let axis = axis(dim, self_)?;
    let mut shape = self_.dims().to_vec();
    if axis < shape.len() {
        if keepdim {
            shape[axis] = 1;
        } else {
            shape.remove(axis);
        }
    }
    shape_is("out", out, &shape)?;
    if out.is_empty() {
        return Ok(Op::nothing());
    }
    ensure(!self_.is_empty(), || "the largest of no elements".into())?;
    let x = if self_.rank() == 0 { self_.with_unit_dim(0) } else { self_.axis_last(axis) };
    let out = out.view();
    Ok(match x.dtype().domain() {
        Domain::F32 => Op::new(0, move |run| largest::<f32>(run, &x, &out)),
        Domain::F64 => Op::new(0, move |run| largest::<f64>(run, &x, &out)),
        Domain::I64 => Op::new(0, move |run| largest::<i64>(run, &x, &out)),
    })
}

fn largest<N: Lane>(run: &Run, x: &View, out: &View) {
    let (rows, size) = (x.rows(), x.row_len());
    let x = x.collapsed();
    run.split_rows(rows, size, |range| {
        let mut scratch = [N::default(); BLOCK];
        for row in range {
            let mut best = x.get::<N>(row * size);
            let mut at = 0;
            for start in (0..size).step_by(BLOCK) {
                let len = BLOCK.min(size - start);
                let block = x.read(row * size + start, &mut scratch[..len]);
                // First whether anything in the block is better, which vector code answers; rarely, where.
                let better = |x: &N| u32::from(*x > best) | u32::from(x.is_nan());
                if best.is_nan() || block.iter().fold(0, |any, x| any | better(x)) == 0 {
                    continue;
                }
                for (i, x) in block.iter().enumerate() {
                    if !best.is_nan() && (*x > best || x.is_nan()) {
                        (best, at) = (*x, start + i);
                    }
                }
            }
            out.set(row, at as i64);
        }
    });
}
