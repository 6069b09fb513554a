//! Bytes as decisions, random numbers, and a hash that is the same in every run.

use std::collections::BTreeSet;

/// Hands out an input's bytes; 0 for ever once they are used up.
pub struct Bytes<'a> {
    rest: &'a [u8],
}

impl<'a> Bytes<'a> {
    pub fn new(data: &'a [u8]) -> Bytes<'a> {
        Bytes { rest: data }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn u8(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        *first
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.u8(), self.u8()])
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.u8()))
    }

    pub fn below(&mut self, n: usize) -> usize {
        usize::from(self.u16()) % n
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::from(self.u8()) % from.len()]
    }

    /// True for one byte value in `n`; never at the end of the input.
    pub fn one_in(&mut self, n: u8) -> bool {
        self.u8() % n == n - 1
    }
}

/// A small generator: the same numbers for the same seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.number() % n as u64) as usize
    }

    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.number() as u8).collect()
    }
}

/// The different things that a target met on its way, in no order: an input that does the same once more is not new.
pub struct Trail(BTreeSet<u64>);

impl Trail {
    pub fn new() -> Trail {
        Trail(BTreeSet::new())
    }

    pub fn add(&mut self, what: &[u8]) {
        self.0.insert(hash(what.iter().copied()));
    }

    /// Adds an error's text up to its first digit or quote: the rule, not the numbers.
    pub fn add_rule(&mut self, error: &impl std::fmt::Display) {
        let text = error.to_string();
        let end = text.find(|c: char| c.is_ascii_digit() || c == '\'' || c == '"' || c == '[').unwrap_or(text.len());
        self.add(&text.as_bytes()[..end]);
    }

    pub fn value(&self) -> u64 {
        hash(self.0.iter().flat_map(|what| what.to_le_bytes()))
    }
}

/// FNV-1a.
fn hash(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |h, byte| (h ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}
