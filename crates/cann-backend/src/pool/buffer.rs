//! The buffer pool: any number of buffers, best fit, at most 4 MiB to spare.

use super::shelf::{Idle, SLACK_BYTES, Shelf, best_fit, remove_from};

#[derive(Default)]
pub(super) struct BestFit(Vec<Idle>);

impl Shelf for BestFit {
    const KIND: &'static str = "buffer";

    fn put(&mut self, idle: Idle) {
        self.0.push(idle);
    }

    fn pick(&mut self, bytes: u64) -> Option<Idle> {
        best_fit(&self.0, bytes, SLACK_BYTES).map(|i| self.0.swap_remove(i))
    }

    fn remove(&mut self, condemned: &mut dyn FnMut(&Idle) -> bool) -> Vec<Idle> {
        remove_from(&mut self.0, condemned)
    }
}
