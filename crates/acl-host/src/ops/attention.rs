//! Fused attention: `softmax(scale * Q K^T + pseShift, masked) V` for each head.
//!
//! A task is a block of query rows that see the same keys: the rows of one head, or, for a single query, all heads of a
//! group, so that keys and values are read once for them. Keys and values may be strided views of a cache. Beyond the
//! documented operator this device takes F32 and mixed float types. Absent: quantised and paged keys, shared prefixes, left
//! padding.

use std::ops::Range;

use super::check::{broadcast, ensure, is_flt, rank_is, shape_is};
use super::matmul::{Bytes, Dense, is_chip, not_on_inference_cards, threads};
use super::norm::{lend, scratch_rows};
use crate::executor::{Checked, Op, Refusal, bytes_of};
use crate::ffi::meta::TensorList;
use crate::kernels::attention::{self, Attention, MAX_QUERIES};
use crate::kernels::matmul::{self as kernel, DenseView, OutView, Problem, Weights};
use crate::kernels::rows::{self, MaskRow};
use crate::tensor::{DType, Tensor, View};

/// Most query heads that share a key head.
const MAX_GROUP: usize = 64;
/// Scores a task holds at a time where it keeps all of them, unless one row has more.
const TASK_SCORES: usize = 64 << 10;

/// Where batch, sequence, heads and their elements are.
#[derive(Clone, Copy, PartialEq)]
enum Layout {
    Bsh,
    Bsnd,
    Bnsd,
}

impl Layout {
    /// Layouts of the inputs and of the output.
    fn parse(name: &str) -> Option<(Layout, Layout)> {
        Some(match name {
            "BSH" => (Layout::Bsh, Layout::Bsh),
            "BSND" => (Layout::Bsnd, Layout::Bsnd),
            "BNSD" => (Layout::Bnsd, Layout::Bnsd),
            "BNSD_BSND" => (Layout::Bnsd, Layout::Bsnd),
            _ => return None,
        })
    }

    /// Batch, sequence and head size of a tensor of `heads` heads.
    fn extents(self, name: &str, view: &View, heads: usize) -> Result<[usize; 3], Refusal> {
        rank_is(name, view, if self == Layout::Bsh { 3 } else { 4 })?;
        let wrong = || Refusal::invalid(format!("{name} of shape {:?} does not have {heads} heads", view.dims()));
        let (s, n, d) = match (self, view.dims()) {
            (Layout::Bsh, &[_, s, h]) if h.is_multiple_of(heads) => (s, heads, h / heads),
            (Layout::Bsnd, &[_, s, n, d]) | (Layout::Bnsd, &[_, n, s, d]) => (s, n, d),
            _ => return Err(wrong()),
        };
        if n == heads { Ok([view.dim(0), s, d]) } else { Err(wrong()) }
    }

    fn shape(self, [b, s, n, d]: [usize; 4]) -> Vec<usize> {
        match self {
            Layout::Bsh => vec![b, s, n * d],
            Layout::Bsnd => vec![b, s, n, d],
            Layout::Bnsd => vec![b, n, s, d],
        }
    }

    /// One head of one batch: `(sequence, d)`.
    fn head(self, view: &View, batch: usize, head: usize, d: usize) -> View {
        let view = view.selected(0, batch);
        match self {
            Layout::Bsh => view.narrowed(1, head * d, d, 1),
            Layout::Bsnd => view.selected(1, head),
            Layout::Bnsd => view.selected(0, head),
        }
    }

    /// Some heads of the first place of one batch: `(heads, d)`; `None` where heads are not rows of one matrix.
    fn heads(self, view: &View, batch: usize, heads: Range<usize>, d: usize) -> Option<View> {
        let view = view.selected(0, batch);
        Some(match self {
            Layout::Bsh => {
                view.selected(0, 0).narrowed(0, heads.start * d, heads.len() * d, 1).reshaped(&[heads.len(), d])?
            }
            Layout::Bsnd => view.selected(0, 0).narrowed(0, heads.start, heads.len(), 1),
            Layout::Bnsd => view.selected(1, 0).narrowed(0, heads.start, heads.len(), 1),
        })
    }
}

/// Which keys a query may see besides the mask, by their places.
#[derive(Clone, Copy)]
struct Band {
    /// Query `i` stands at key `i + shift`.
    shift: i64,
    before: i64,
    after: i64,
}

impl Band {
    const ALL: Band = Band { shift: 0, before: i64::MAX, after: i64::MAX };

    fn of(&self, query: usize, keys: usize) -> Range<usize> {
        let at = query as i64 + self.shift;
        let clip = |place: i64| place.clamp(0, keys as i64) as usize;
        let (low, high) = (clip(at.saturating_sub(self.before)), clip(at.saturating_add(self.after).saturating_add(1)));
        low..high.max(low)
    }
}

/// Query rows that one thread computes.
struct Task {
    q: Dense,
    k: Dense,
    v: Dense,
    out: View,
    /// Rows of `pseShift`, where the blocks of keys take them as they lie.
    added: Option<Dense>,
    batch: usize,
    /// The first row's head and query; further rows are further heads or further queries.
    head: usize,
    query: usize,
    rows: usize,
    across_heads: bool,
    keys: Range<usize>,
}

impl Task {
    /// The number of row `r` among all `(batch, head, query)`.
    fn index(&self, r: usize, heads: usize, queries: usize) -> usize {
        let (head, query) = if self.across_heads { (self.head + r, self.query) } else { (self.head, self.query + r) };
        (self.batch * heads + head) * queries + query
    }
}

pub(crate) fn aclnnFusedInferAttentionScoreV2(
    query: &Tensor,
    key: &TensorList,
    value: &TensorList,
    pse_shift_optional: Option<&Tensor>,
    atten_mask_optional: Option<&Tensor>,
    actual_seq_lengths_optional: Option<&[i64]>,
    actual_seq_lengths_kv_optional: Option<&[i64]>,
    deq_scale1_optional: Option<&Tensor>,
    quant_scale1_optional: Option<&Tensor>,
    deq_scale2_optional: Option<&Tensor>,
    quant_scale2_optional: Option<&Tensor>,
    quant_offset2_optional: Option<&Tensor>,
    antiquant_scale_optional: Option<&Tensor>,
    antiquant_offset_optional: Option<&Tensor>,
    block_table_optional: Option<&Tensor>,
    query_padding_size_optional: Option<&Tensor>,
    kv_padding_size_optional: Option<&Tensor>,
    key_antiquant_scale_optional: Option<&Tensor>,
    key_antiquant_offset_optional: Option<&Tensor>,
    value_antiquant_scale_optional: Option<&Tensor>,
    value_antiquant_offset_optional: Option<&Tensor>,
    key_shared_prefix_optional: Option<&Tensor>,
    value_shared_prefix_optional: Option<&Tensor>,
    actual_shared_prefix_len_optional: Option<&[i64]>,
    num_heads: i64,
    scale_value: f64,
    pre_tokens: i64,
    next_tokens: i64,
    input_layout: &str,
    num_key_value_heads: i64,
    sparse_mode: i64,
    inner_precise: i64,
    block_size: i64,
    antiquant_mode: i64,
    softmax_lse_flag: bool,
    key_antiquant_mode: i64,
    value_antiquant_mode: i64,
    attention_out: &Tensor,
    softmax_lse: Option<&Tensor>,
) -> Checked {
    not_on_inference_cards()?;
    // How much precision to give up, and how quantised keys would be read: nothing here depends on them.
    let _ = (inner_precise, block_size, antiquant_mode, key_antiquant_mode, value_antiquant_mode);
    let absent = [
        deq_scale1_optional,
        quant_scale1_optional,
        deq_scale2_optional,
        quant_scale2_optional,
        quant_offset2_optional,
        antiquant_scale_optional,
        antiquant_offset_optional,
        block_table_optional,
        query_padding_size_optional,
        kv_padding_size_optional,
        key_antiquant_scale_optional,
        key_antiquant_offset_optional,
        value_antiquant_scale_optional,
        value_antiquant_offset_optional,
        key_shared_prefix_optional,
        value_shared_prefix_optional,
    ];
    ensure(absent.iter().all(Option::is_none) && actual_shared_prefix_len_optional.is_none(), || {
        "quantised or paged keys, padding sizes and shared prefixes are not here".into()
    })?;
    let (keys, values) = (key.tensors("key")?, value.tensors("value")?);
    let ([key], [value]) = (&keys[..], &values[..]) else {
        return Err(Refusal::invalid(format!(
            "key has {} tensors and value {}, needed is 1",
            keys.len(),
            values.len()
        )));
    };
    let (q, k, v, out) = (query.view(), key.view(), value.view(), attention_out.view());
    for (name, view) in [("query", &q), ("key", &k), ("value", &v), ("attentionOut", &out)] {
        is_flt(name, view)?;
    }
    if is_chip() {
        let types = [q.dtype(), k.dtype(), v.dtype(), out.dtype()];
        ensure(types.iter().all(|t| *t == q.dtype() && *t != DType::F32), || {
            format!("query, key, value and attentionOut are {types:?}, needed are all F16 or all BF16")
        })?;
    }
    let (layout, out_layout) =
        Layout::parse(input_layout).ok_or_else(|| Refusal::invalid(format!("inputLayout is {input_layout:?}")))?;
    let heads = usize::try_from(num_heads).ok().filter(|n| *n > 0);
    let heads = heads.ok_or_else(|| Refusal::invalid(format!("numHeads is {num_heads}")))?;
    let kv_heads = if num_key_value_heads == 0 { Some(heads) } else { usize::try_from(num_key_value_heads).ok() };
    let kv_heads = kv_heads.filter(|&n| heads.is_multiple_of(n) && heads / n.max(1) <= MAX_GROUP);
    let kv_heads = kv_heads.ok_or_else(|| {
        Refusal::invalid(format!("{num_heads} heads over {num_key_value_heads} key heads, at most {MAX_GROUP} each"))
    })?;
    let [batch, queries, d] = layout.extents("query", &q, heads)?;
    let [k_batch, keys, k_d] = layout.extents("key", &k, kv_heads)?;
    let [v_batch, v_keys, v_d] = layout.extents("value", &v, kv_heads)?;
    ensure((k_batch, k_d) == (batch, d) && (v_batch, v_keys) == (batch, keys), || {
        format!("query {:?}, key {:?} and value {:?} do not fit", q.dims(), k.dims(), v.dims())
    })?;
    shape_is("attentionOut", &out, &out_layout.shape([batch, queries, heads, v_d]))?;

    let scores = [batch, heads, queries, keys];
    let pse = match pse_shift_optional {
        None => None,
        Some(pse) => {
            is_flt("pseShift", pse)?;
            rank_is("pseShift", pse, 4)?;
            Some(broadcast("pseShift", pse, &scores)?)
        }
    };
    let band_is_given = matches!(sparse_mode, 2..=4);
    let mask = match atten_mask_optional {
        // Its triangle stands for the whole: the band says the same.
        Some(_) | None if band_is_given => None,
        None => None,
        Some(mask) => {
            ensure(matches!(mask.dtype(), DType::Bool | DType::I8 | DType::U8), || {
                format!("attenMask is {:?}, needed is BOOL, I8 or U8", mask.dtype())
            })?;
            let view = mask.view();
            let view = if view.rank() == 3 { view.with_unit_dim(1) } else { view };
            Some(broadcast("attenMask", &view, &scores)?)
        }
    };
    let (queries_, keys_) = (queries as i64, keys as i64);
    let band = match sparse_mode {
        // A single query takes no part in bands.
        0 if mask.is_none() || queries == 1 => Band::ALL,
        0 => Band { shift: 0, before: pre_tokens, after: next_tokens },
        1 => Band::ALL,
        2 => Band { shift: 0, before: i64::MAX, after: 0 },
        3 => Band { shift: keys_ - queries_, before: i64::MAX, after: 0 },
        4 => Band { shift: keys_ - queries_, before: pre_tokens, after: next_tokens },
        _ => return Err(Refusal::invalid(format!("sparseMode is {sparse_mode}, known are 0 to 4"))),
    };
    let query_lens = lengths("actualSeqLengths", actual_seq_lengths_optional, batch, queries)?;
    let key_lens = lengths("actualSeqLengthsKv", actual_seq_lengths_kv_optional, batch, keys)?;
    let lse = if softmax_lse_flag { softmax_lse.map(Tensor::view) } else { None };
    if let Some(lse) = &lse {
        ensure(lse.dtype() == DType::F32, || format!("softmaxLse is {:?}, needed is F32", lse.dtype()))?;
        shape_is("softmaxLse", lse, &[batch, heads, queries, 1])?;
    }
    if out.is_empty() {
        return Ok(Op::nothing());
    }

    let group = heads / kv_heads;
    // Without hidden keys and without statistics a task goes through its keys block by block and keeps no scores.
    let blockwise = mask.is_none() && lse.is_none() && matches!(sparse_mode, 0 | 1);
    let mut tasks = Vec::new();
    for b in 0..batch {
        for kv_head in 0..kv_heads {
            let (k, v) = (layout.head(&k, b, kv_head, d), layout.head(&v, b, kv_head, v_d));
            let mut push = |q: View, out: View, head: usize, query: usize, across_heads: bool| {
                let rows = q.dim(0);
                let last = if across_heads { query } else { query + rows - 1 };
                // Lengths end what rows see; a query behind its length sees nothing.
                let known = if query < query_lens[b] { key_lens[b] } else { 0 };
                let seen = band.of(query, known).start..band.of(last, known).end;
                let seen = seen.start.min(seen.end)..seen.end;
                let added = match &pse {
                    Some(pse) if blockwise => {
                        let of_batch = pse.selected(0, b);
                        let rows_of = if across_heads {
                            of_batch.narrowed(0, head, rows, 1).selected(1, query)
                        } else {
                            of_batch.selected(0, head).narrowed(0, query, rows, 1)
                        };
                        Some(Dense::new("pseShift", &rows_of.narrowed(1, seen.start, seen.len(), 1))?)
                    }
                    _ => None,
                };
                let (k, v) = (k.narrowed(0, seen.start, seen.len(), 1), v.narrowed(0, seen.start, seen.len(), 1));
                tasks.push(Task {
                    q: Dense::new("query", &q)?,
                    k: Dense::new("key", &k)?,
                    v: Dense::new("value", &v)?,
                    out,
                    added,
                    batch: b,
                    head,
                    query,
                    rows,
                    across_heads,
                    keys: seen,
                });
                Ok::<(), Refusal>(())
            };
            let first = kv_head * group;
            if queries == 1 && group <= MAX_QUERIES {
                let range = first..first + group;
                let together = layout.heads(&q, b, range.clone(), d).zip(out_layout.heads(&out, b, range, v_d));
                if let Some((q, out)) = together {
                    push(q, out, first, 0, true)?;
                    continue;
                }
            }
            let most = if blockwise { MAX_QUERIES } else { (TASK_SCORES / keys.max(1)).clamp(8, MAX_QUERIES) };
            let block = most.min(queries);
            for head in first..first + group {
                let (q, out) = (layout.head(&q, b, head, d), out_layout.head(&out, b, head, v_d));
                let mut query = 0;
                while query < queries {
                    // Blocks end where the length does.
                    let bound = if query < query_lens[b] { query_lens[b] } else { queries };
                    let rows = block.min(bound - query);
                    push(q.narrowed(0, query, rows, 1), out.narrowed(0, query, rows, 1), head, query, false)?;
                    query += rows;
                }
            }
        }
    }

    let scale = scale_value as f32;
    if blockwise {
        return Ok(in_blocks(tasks, d, v_d, scale));
    }
    let pse_bits = pse.filter(|pse| pse.dtype() == DType::F16).map(|pse| pse.with_dtype(DType::U16));
    Ok(in_rows(tasks, Scores { extents: scores, sizes: (d, v_d), scale, pse, pse_bits, mask, band, lse }))
}

fn most(tasks: &[Task], f: impl Fn(&Task) -> usize) -> usize {
    tasks.iter().map(f).max().unwrap_or(0)
}

fn in_blocks(tasks: Vec<Task>, d: usize, v_d: usize, scale: f32) -> Op {
    let rows = most(&tasks, |t| t.rows);
    let kernel_bytes = bytes_of::<u8>(most(&tasks, |t| attention::scratch_bytes(t.rows, d, v_d)));
    let threads = threads();
    let bytes = bytes_of::<f32>(threads * rows * v_d) + bytes_of::<u8>(threads * kernel_bytes);
    Op::new(bytes, move |run| {
        let results = scratch_rows::<f32>(run, threads, rows * v_d);
        let scratch = Bytes::of(run.take::<u8>(threads * kernel_bytes));
        run.team.run_slots(tasks.len(), &|at, slot| {
            let task = &tasks[at];
            let results = &mut lend::<f32>(&results, slot)[..task.rows * v_d];
            if let Some(out) = OutView::from_f32(results, task.rows, v_d) {
                let (q, k, v) = (task.q.view(), task.k.view(), task.v.view());
                let mask = task.added.as_ref().map(Dense::view);
                let scratch = scratch.write(slot * kernel_bytes..(slot + 1) * kernel_bytes);
                attention::attend(
                    Attention { q, k, v, mask, scale, slope: 1.0, soft_cap: None, sink: None, out },
                    scratch,
                );
            }
            for (r, result) in results.chunks_exact(v_d).enumerate() {
                task.out.write(r * v_d, result);
            }
        });
    })
}

/// What happens to scores between the two products.
struct Scores {
    /// Batches, heads, queries, keys.
    extents: [usize; 4],
    /// Of heads and of values.
    sizes: (usize, usize),
    scale: f32,
    pse: Option<View>,
    /// The same as bits where it is F16.
    pse_bits: Option<View>,
    mask: Option<View>,
    band: Band,
    lse: Option<View>,
}

impl Scores {
    /// Turns row `r` of a task's scores into weights; answers with the reciprocal of their sum. `row` and `added` are
    /// scratch of the same length.
    fn weigh(&self, task: &Task, r: usize, scores: &mut [f32], row: &mut [f32], added: &mut [f32]) -> f32 {
        let f = rows::current();
        let [_, heads, queries, keys] = self.extents;
        let index = task.index(r, heads, queries);
        let (start, len) = (index * keys + task.keys.start, scores.len());
        row.copy_from_slice(scores);
        let bits = self.pse_bits.as_ref().and_then(|bits| bits.slice::<u16>(start, len));
        let pse = match (bits, &self.pse) {
            (Some(bits), _) => Some(MaskRow::F16(bits)),
            (None, Some(pse)) => Some(MaskRow::F32(pse.read(start, &mut *added))),
            (None, None) => None,
        };
        f.scores(row, self.scale, pse, 1.0, scores);
        let query = if task.across_heads { task.query } else { task.query + r };
        let visible = self.band.of(query, task.keys.end);
        let high = visible.end.max(task.keys.start) - task.keys.start;
        let low = (visible.start.max(task.keys.start) - task.keys.start).min(high);
        scores[..low].fill(f32::NEG_INFINITY);
        scores[high..].fill(f32::NEG_INFINITY);
        if let Some(mask) = &self.mask {
            mask.read_copy(start, added);
            for (score, _) in scores.iter_mut().zip(&*added).filter(|(_, hidden)| **hidden != 0.0) {
                *score = f32::NEG_INFINITY;
            }
        }
        let max = f.max(scores);
        // A row that sees nothing is all zeros.
        let sum = if max == f32::NEG_INFINITY { 0.0 } else { f.exp_sum(scores, max) };
        if sum == 0.0 {
            scores.fill(0.0);
        }
        if let Some(lse) = &self.lse {
            lse.set(index, if sum == 0.0 { f32::INFINITY } else { max + sum.ln() });
        }
        if sum == 0.0 { 0.0 } else { 1.0 / sum }
    }
}

fn in_rows(tasks: Vec<Task>, all: Scores) -> Op {
    let (d, v_d) = all.sizes;
    let (rows, seen) = (most(&tasks, |t| t.rows), most(&tasks, |t| t.keys.len()));
    let kernel_bytes = bytes_of::<u8>(most(&tasks, |t| {
        let scores = kernel::scratch_bytes(1, t.rows, t.keys.len(), d);
        scores.max(kernel::scratch_bytes(1, t.rows, v_d, t.keys.len()))
    }));
    let threads = threads();
    let floats = rows * seen + 2 * seen + rows * v_d;
    let bytes = bytes_of::<f32>(threads * floats) + bytes_of::<u8>(threads * kernel_bytes);
    Op::new(bytes, move |run| {
        let floats = scratch_rows::<f32>(run, threads, floats);
        let scratch = Bytes::of(run.take::<u8>(threads * kernel_bytes));
        run.team.run_slots(tasks.len(), &|at, slot| {
            let task = &tasks[at];
            let (rows, len) = (task.rows, task.keys.len());
            let (scores, rest) = lend::<f32>(&floats, slot).split_at_mut(rows * len);
            let (row, rest) = rest.split_at_mut(len);
            let (added, rest) = rest.split_at_mut(len);
            let results = &mut rest[..rows * v_d];
            let scratch = scratch.write(slot * kernel_bytes..(slot + 1) * kernel_bytes);
            if let Some(out) = OutView::from_f32(scores, rows, len) {
                kernel::matmul_alone(Problem { x: task.q.view(), w: Weights::Dense(task.k.view()), out }, scratch);
            }
            let mut factors = [0.0; MAX_QUERIES];
            for (r, factor) in factors[..rows].iter_mut().enumerate() {
                *factor = all.weigh(task, r, &mut scores[r * len..][..len], row, added);
            }
            if let Some((x, out)) = DenseView::from_f32(scores, rows, len).zip(OutView::from_f32(results, rows, v_d)) {
                kernel::matmul_alone(Problem { x, w: Weights::Dense(task.v.view().transposed()), out }, scratch);
            }
            for (r, result) in results.chunks_exact_mut(v_d).enumerate() {
                result.iter_mut().for_each(|v| *v *= factors[r]);
                task.out.write(r * v_d, result);
            }
        });
    })
}

/// One length per batch, or one for all; none means all of it.
fn lengths(name: &str, given: Option<&[i64]>, batch: usize, most: usize) -> Result<Vec<usize>, Refusal> {
    let given = given.unwrap_or_default();
    let all: Option<Vec<usize>> = given.iter().map(|&l| usize::try_from(l).ok().filter(|l| *l <= most)).collect();
    match all {
        Some(all) if all.is_empty() => Ok(vec![most; batch]),
        Some(all) if all.len() == 1 => Ok(vec![all[0]; batch]),
        Some(all) if all.len() == batch => Ok(all),
        _ => Err(Refusal::invalid(format!("{name} is {given:?} for {batch} batches of at most {most}"))),
    }
}
