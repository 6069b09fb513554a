//! The legacy pool: best fit whatever is to spare, and new buffers 5 % larger than asked, rounded to 256 bytes.

use super::shelf::{Idle, Shelf, best_fit, remove_from};

#[derive(Default)]
pub(super) struct Roomy(Vec<Idle>);

impl Shelf for Roomy {
    const KIND: &'static str = "legacy";

    fn put(&mut self, idle: Idle) {
        self.0.push(idle);
    }

    fn pick(&mut self, bytes: u64) -> Option<Idle> {
        best_fit(&self.0, bytes, u64::MAX).map(|i| self.0.swap_remove(i))
    }

    fn remove(&mut self, condemned: &mut dyn FnMut(&Idle) -> bool) -> Vec<Idle> {
        remove_from(&mut self.0, condemned)
    }

    fn size_to_allocate(&self, bytes: u64) -> Option<u64> {
        bytes.checked_add(bytes / 20)?.checked_next_multiple_of(256)
    }
}
