//! Where each intermediate lies: offsets in one arena such that things alive at the same time do not overlap.

/// Every offset is a multiple of this: what operators' memory is aligned to.
pub(super) const ALIGNMENT: u64 = 512;

/// Something that needs memory from one position of the plan to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub bytes: u64,
    pub first: usize,
    pub last: usize,
}

/// An offset for each item, and the bytes of the arena. Larger items are placed first, each in the lowest gap that is free for
/// its whole life; `None` when sizes overflow.
pub(super) fn place(items: &[Item]) -> Option<(Vec<u64>, u64)> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|i| (std::cmp::Reverse(items[*i].bytes), items[*i].first, *i));
    let mut offsets = vec![0; items.len()];
    // Placed items in order of offset, so that gaps are found in one pass.
    let mut placed: Vec<usize> = Vec::with_capacity(items.len());
    let mut total = 0;
    for i in order {
        let item = items[i];
        let bytes = item.bytes.max(1).checked_next_multiple_of(ALIGNMENT)?;
        let mut at = 0u64;
        for other in placed.iter().map(|p| (&items[*p], offsets[*p])) {
            let (o, offset) = other;
            if o.first > item.last || o.last < item.first {
                continue;
            }
            if offset >= at.checked_add(bytes)? {
                break;
            }
            at = at.max(offset + o.bytes.max(1).next_multiple_of(ALIGNMENT));
        }
        offsets[i] = at;
        total = total.max(at.checked_add(bytes)?);
        let slot = placed.partition_point(|p| offsets[*p] <= at);
        placed.insert(slot, i);
    }
    Some((offsets, total))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlaps(items: &[Item], offsets: &[u64]) -> bool {
        (0..items.len()).any(|a| {
            (0..a).any(|b| {
                let (x, y) = (&items[a], &items[b]);
                let in_time = x.first <= y.last && y.first <= x.last;
                let in_space = offsets[a] < offsets[b] + y.bytes && offsets[b] < offsets[a] + x.bytes;
                in_time && in_space
            })
        })
    }

    #[test]
    fn a_chain_needs_two_buffers() {
        let items: Vec<Item> = (0..10).map(|i| Item { bytes: 1024, first: i, last: i + 1 }).collect();
        let (offsets, total) = place(&items).unwrap();
        assert!(!overlaps(&items, &offsets));
        assert_eq!(total, 2048);
    }

    #[test]
    fn random_lifetimes_never_overlap() {
        let mut seed = 7u64;
        let mut random = |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        for _ in 0..200 {
            let items: Vec<Item> = (0..60)
                .map(|_| {
                    let first = random(40) as usize;
                    Item { bytes: random(5000), first, last: first + random(8) as usize }
                })
                .collect();
            let (offsets, total) = place(&items).unwrap();
            assert!(!overlaps(&items, &offsets));
            assert!(offsets.iter().all(|o| o % ALIGNMENT == 0));
            let sum: u64 = items.iter().map(|i| i.bytes.max(1).next_multiple_of(ALIGNMENT)).sum();
            assert!(total <= sum);
        }
    }

    #[test]
    fn absurd_sizes_are_no_panic() {
        assert_eq!(place(&[Item { bytes: u64::MAX, first: 0, last: 0 }]), None);
        let half = Item { bytes: u64::MAX / 2 + 1, first: 0, last: 0 };
        assert_eq!(place(&[half, half]), None);
    }
}
