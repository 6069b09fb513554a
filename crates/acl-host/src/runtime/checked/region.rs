//! Byte ranges that calls touch, rows with gaps between them included.

/// Bytes from `start` to `end`. With a pitch, of every `pitch` bytes the first `row` alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) start: usize,
    pub(crate) end: usize,
    row: usize,
    /// 0: without gaps.
    pitch: usize,
}

impl Region {
    pub(crate) fn solid(start: usize, bytes: usize) -> Region {
        Region { start, end: start.saturating_add(bytes), row: 0, pitch: 0 }
    }

    /// The bytes of elements of `size` bytes at strides counted in elements, `start` and `end` being the lowest and the
    /// highest of them. Where the gaps are irregular they count as touched.
    pub(crate) fn strided(start: usize, end: usize, size: usize, dims: &[usize], strides: &[isize]) -> Region {
        let solid = Region { start, end, row: 0, pitch: 0 };
        let mut steps: Vec<(usize, usize)> = dims
            .iter()
            .zip(strides)
            .filter(|(dim, stride)| **dim > 1 && **stride != 0)
            .map(|(dim, stride)| (stride.unsigned_abs() * size, *dim))
            .collect();
        steps.sort_unstable();
        let mut row = size;
        let mut rest = steps.as_slice();
        // Dims that continue the row lengthen it.
        while let [(step, dim), outer @ ..] = rest
            && *step <= row
        {
            row += step * (dim - 1);
            rest = outer;
        }
        match rest {
            [(pitch, _), outer @ ..] if outer.iter().all(|(step, _)| step % pitch == 0) => {
                Region { row, pitch: *pitch, ..solid }
            }
            _ => solid,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.end - self.start
    }

    /// Whether a byte may belong to both.
    pub(crate) fn meets(&self, other: &Region) -> bool {
        let (low, high) = (self.start.max(other.start), self.end.min(other.end));
        if low >= high {
            return false;
        }
        match (self.pitch, other.pitch) {
            (0, 0) => true,
            (_, 0) => self.row_meets(low, high - low),
            (0, _) => other.row_meets(low, high - low),
            (a, b) if a == b => {
                let (first, second) = if self.start <= other.start { (self, other) } else { (other, self) };
                let shift = (second.start - first.start) % a;
                shift < first.row || shift + second.row > a
            }
            _ => true,
        }
    }

    /// Whether a byte of a row lies in the `bytes` bytes from `low`, which is not before the region.
    fn row_meets(&self, low: usize, bytes: usize) -> bool {
        let shift = (low - self.start) % self.pitch;
        shift < self.row || shift + bytes > self.pitch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte, one by one.
    fn bytes_of(start: usize, size: usize, dims: &[usize], strides: &[isize]) -> Vec<usize> {
        let mut places = vec![start as isize];
        for (dim, stride) in dims.iter().zip(strides) {
            let steps = 0..*dim as isize;
            places = places.iter().flat_map(|at| steps.clone().map(move |i| at + i * stride * size as isize)).collect();
        }
        places.iter().flat_map(|at| (0..size).map(move |i| *at as usize + i)).collect()
    }

    fn region(start: usize, size: usize, dims: &[usize], strides: &[isize]) -> Region {
        let bytes = bytes_of(start, size, dims, strides);
        let (low, high) = (bytes.iter().min().unwrap(), bytes.iter().max().unwrap());
        Region::strided(*low, high + 1, size, dims, strides)
    }

    #[test]
    fn columns_side_by_side_do_not_meet() {
        let left = region(1000, 4, &[8, 3], &[10, 1]);
        let right = region(1012, 4, &[8, 7], &[10, 1]);
        assert!(!left.meets(&right) && !right.meets(&left));
        assert!(left.meets(&left));
        assert!(left.meets(&region(1008, 4, &[8, 2], &[10, 1])));
        // A gap holds what fits into it.
        assert!(!left.meets(&Region::solid(1012, 28)));
        assert!(left.meets(&Region::solid(1012, 29)));
        assert!(!left.meets(&Region::solid(5000, 8)));
    }

    #[test]
    fn a_meeting_is_never_missed() {
        let shapes: [(&[usize], &[isize]); 7] = [
            (&[5], &[1]),
            (&[5], &[3]),
            (&[3, 4], &[8, 1]),
            (&[3, 4], &[8, 2]),
            (&[4, 3], &[1, 8]),
            (&[2, 3, 2], &[16, 4, 1]),
            (&[3, 2, 1], &[5, 0, 7]),
        ];
        for (a_dims, a_strides) in shapes {
            for (b_dims, b_strides) in shapes {
                for shift in 0..40 {
                    let a = bytes_of(100, 2, a_dims, a_strides);
                    let b = bytes_of(80 + shift, 2, b_dims, b_strides);
                    if a.iter().any(|byte| b.contains(byte)) {
                        let (a, b) = (region(100, 2, a_dims, a_strides), region(80 + shift, 2, b_dims, b_strides));
                        assert!(a.meets(&b) && b.meets(&a), "{a:?} {b:?}");
                    }
                }
            }
        }
    }
}
