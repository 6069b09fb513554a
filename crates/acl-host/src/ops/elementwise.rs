//! The loop under every operator that computes an element from the elements in the same place.

use std::ops::Range;

use crate::executor::Run;
use crate::tensor::{Lane, View};

/// Elements handled at once: small enough for scratch on the stack and in the first-level cache.
pub(crate) const BLOCK: usize = 1024;

/// `out[i] = f(x[i])`, block by block; `x` has `out`'s shape and may be the same memory.
pub(crate) fn map<N: Lane>(run: &Run, x: View, out: View, f: impl Fn(&[N], &mut [N]) + Sync) {
    let (x, out) = (x.collapsed(), out.collapsed());
    let alias = x.overlaps(&out);
    run.split_elements(out.numel(), |range| {
        if !alias && let (Some(x), Some(out)) = (whole(&x, &range), whole_mut(&out, &range)) {
            return f(x, out);
        }
        let (mut xs, mut os) = ([N::default(); BLOCK], [N::default(); BLOCK]);
        for (start, len) in blocks(range, &[&x, &out]) {
            let xs = load(&x, alias, start, &mut xs[..len]);
            store(&out, start, &mut os[..len], |os| f(xs, os));
        }
    });
}

/// `out[i] = f(a[i], b[i])`; both inputs have `out`'s shape and may be the same memory.
pub(crate) fn zip<N: Lane>(run: &Run, a: View, b: View, out: View, f: impl Fn(&[N], &[N], &mut [N]) + Sync) {
    let (a, b, out) = (a.collapsed(), b.collapsed(), out.collapsed());
    let alias = [a.overlaps(&out), b.overlaps(&out)];
    run.split_elements(out.numel(), |range| {
        if alias == [false; 2]
            && let (Some(a), Some(b), Some(out)) = (whole(&a, &range), whole(&b, &range), whole_mut(&out, &range))
        {
            return f(a, b, out);
        }
        let (mut as_, mut bs, mut os) = ([N::default(); BLOCK], [N::default(); BLOCK], [N::default(); BLOCK]);
        for (start, len) in blocks(range, &[&a, &b, &out]) {
            let a = load(&a, alias[0], start, &mut as_[..len]);
            let b = load(&b, alias[1], start, &mut bs[..len]);
            store(&out, start, &mut os[..len], |os| f(a, b, os));
        }
    });
}

fn whole<'a, N: Lane>(view: &'a View, range: &Range<usize>) -> Option<&'a [N]> {
    view.slice(range.start, range.len())
}

fn whole_mut<'a, N: Lane>(view: &'a View, range: &Range<usize>) -> Option<&'a mut [N]> {
    view.slice_mut(range.start, range.len())
}

/// Starts and lengths of the blocks of a range. Where the views have long rows, no block crosses the end of one: rows can be
/// lent, pieces of two cannot.
pub(crate) fn blocks(range: Range<usize>, views: &[&View]) -> impl Iterator<Item = (usize, usize)> {
    const LONG: usize = 64;
    let row = views.iter().filter(|v| v.rank() > 1).map(|v| v.row_len()).min().filter(|row| *row >= LONG);
    let row = row.unwrap_or(usize::MAX);
    let mut start = range.start;
    std::iter::from_fn(move || {
        let len = BLOCK.min(range.end - start).min(row - start % row);
        let block = (start, len);
        start += len;
        (len > 0).then_some(block)
    })
}

/// The elements from `start` on; a copy where the output may overwrite them while they are in use.
pub(crate) fn load<'a, N: Lane>(view: &'a View, copy: bool, start: usize, scratch: &'a mut [N]) -> &'a [N] {
    if copy {
        view.read_copy(start, scratch);
        scratch
    } else {
        view.read(start, scratch)
    }
}

/// Lets `fill` write the output's memory, or scratch that is then converted into it.
pub(crate) fn store<N: Lane>(out: &View, start: usize, scratch: &mut [N], fill: impl FnOnce(&mut [N])) {
    match out.slice_mut::<N>(start, scratch.len()) {
        Some(memory) => fill(memory),
        None => {
            fill(scratch);
            out.write(start, scratch);
        }
    }
}
