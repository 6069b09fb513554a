//! The priority pool: idle buffers in order of size, so that the smallest that fits is found without looking at the others.

use std::collections::BTreeMap;

use super::shelf::{Idle, SLACK_BYTES, Shelf};

#[derive(Default)]
pub(super) struct BySize {
    /// By size, then address, which makes the key unique.
    idle: BTreeMap<(u64, u64), Idle>,
}

impl Shelf for BySize {
    const KIND: &'static str = "priority";

    fn put(&mut self, idle: Idle) {
        self.idle.insert((idle.mem.bytes(), idle.mem.address()), idle);
    }

    fn pick(&mut self, bytes: u64) -> Option<Idle> {
        let (&key, _) = self.idle.range((bytes, 0)..=(bytes.saturating_add(SLACK_BYTES), u64::MAX)).next()?;
        self.idle.remove(&key)
    }

    fn remove(&mut self, condemned: &mut dyn FnMut(&Idle) -> bool) -> Vec<Idle> {
        let keys: Vec<_> = self.idle.iter().filter(|(_, idle)| condemned(idle)).map(|(key, _)| *key).collect();
        keys.iter().filter_map(|key| self.idle.remove(key)).collect()
    }
}
