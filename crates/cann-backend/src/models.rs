//! The captured models of one backend: a few, because each takes a stream's worth of a chip's resources.
//!
//! A prepared plan is a key by itself: its operators, parameters, shapes and addresses never change, and the tensors of a run are
//! copied in front of its model and behind it. So whatever a plan is given it replays, and only plans compete for a place. A new
//! plan takes the place of the model that was replayed longest ago. One that lost its place launches its calls one by one, with
//! the same result, until some model has been idle for long: one plan too many in turn costs one plan its model, not all of them.

/// Models that are kept when `GGML_CANN_GRAPH_CACHE_CAPACITY` says nothing.
const CAPACITY: usize = 12;
/// A model counts as idle after this many launches of others for each place there is.
const IDLE: u64 = 4;

/// Models by plan. `M` is [`crate::acl::capture::Model`].
#[derive(Debug)]
pub(crate) struct Models<M> {
    capacity: usize,
    entries: Vec<Entry<M>>,
    evicted: Vec<M>,
    /// Launches that asked for a model so far.
    now: u64,
}

#[derive(Debug)]
struct Entry<M> {
    plan: u64,
    model: M,
    used: u64,
}

impl<M> Models<M> {
    pub fn new(capacity: usize) -> Models<M> {
        Models { capacity, entries: Vec::new(), evicted: Vec::new(), now: 0 }
    }

    /// As many as `GGML_CANN_GRAPH_CACHE_CAPACITY` says.
    pub fn from_env() -> Models<M> {
        Models::new(capacity(std::env::var("GGML_CANN_GRAPH_CACHE_CAPACITY").ok().as_deref()))
    }

    /// The model of a plan that is about to be launched.
    pub fn replay(&mut self, plan: u64) -> Option<&M> {
        self.now += 1;
        let now = self.now;
        let entry = self.entries.iter_mut().find(|e| e.plan == plan)?;
        entry.used = now;
        Some(&entry.model)
    }

    pub fn has(&self, plan: u64) -> bool {
        self.entries.iter().any(|e| e.plan == plan)
    }

    /// Whether a plan that was just prepared may be captured.
    pub fn takes_new(&self) -> bool {
        self.capacity > 0
    }

    /// Whether a plan that has no model may be captured now.
    pub fn has_room(&self) -> bool {
        let idle = |e: &Entry<M>| self.now - e.used > IDLE * self.capacity as u64;
        self.entries.len() < self.capacity || self.entries.iter().any(idle)
    }

    /// Keeps a model. The one that gives way is in [`Models::take_evicted`].
    pub fn insert(&mut self, plan: u64, model: M) {
        if self.entries.len() >= self.capacity.max(1)
            && let Some(oldest) = (0..self.entries.len()).min_by_key(|i| self.entries[*i].used)
        {
            self.evicted.push(self.entries.swap_remove(oldest).model);
        }
        self.entries.push(Entry { plan, model, used: self.now });
    }

    /// Models to be dropped once the stream is past what is enqueued now.
    pub fn take_evicted(&mut self) -> Vec<M> {
        std::mem::take(&mut self.evicted)
    }

    /// The model of a plan that goes away, or changed. It too waits for the stream.
    pub fn remove(&mut self, plan: u64) -> Option<M> {
        let at = self.entries.iter().position(|e| e.plan == plan)?;
        Some(self.entries.swap_remove(at).model)
    }

    pub fn clear(&mut self) {
        self.entries.clear();
        self.evicted.clear();
    }
}

/// The number a variable says, 0 being none at all.
fn capacity(value: Option<&str>) -> usize {
    value.map_or(CAPACITY, |text| {
        text.trim().parse().unwrap_or_else(|_| {
            tracing::warn!("GGML_CANN_GRAPH_CACHE_CAPACITY={text} is ignored: expected a number");
            CAPACITY
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_are_parsed() {
        for (text, number) in [(None, 12), (Some("0"), 0), (Some(" 3 "), 3), (Some("x"), 12), (Some("-1"), 12)] {
            assert_eq!(capacity(text), number, "{text:?}");
        }
    }

    /// Launches a plan as `plan/run.rs` does; whether it was replayed.
    fn launch(models: &mut Models<u64>, plan: u64) -> bool {
        let had = models.has(plan);
        if !had && models.has_room() {
            models.insert(plan, plan);
        }
        models.replay(plan).is_some() && had
    }

    fn with(capacity: usize, plans: std::ops::Range<u64>) -> Models<u64> {
        let mut models = Models::new(capacity);
        plans.filter(|_| models.takes_new()).collect::<Vec<_>>().into_iter().for_each(|p| models.insert(p, p));
        models
    }

    #[test]
    fn the_oldest_gives_way_to_a_new_plan() {
        let mut models = with(3, 0..3);
        assert!(launch(&mut models, 0) && launch(&mut models, 2));
        models.insert(3, 3);
        assert_eq!(models.take_evicted(), [1]);
        assert!(models.take_evicted().is_empty());
        assert_eq!((models.remove(1), models.remove(2)), (None, Some(2)));
    }

    #[test]
    fn one_plan_too_many_costs_one_model() {
        let mut models = with(12, 0..13);
        let mut replayed = [0; 13];
        for _ in 0..20 {
            (0..13).for_each(|plan| replayed[plan as usize] += u32::from(launch(&mut models, plan)));
        }
        assert_eq!(replayed, [0, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20]);
        assert_eq!(models.take_evicted(), [0]);
    }

    #[test]
    fn other_plans_get_the_places_of_idle_ones() {
        let mut models = with(4, 0..4);
        (0..200).for_each(|i| _ = launch(&mut models, 10 + i % 3));
        assert!((10..13).all(|plan| launch(&mut models, plan)));
        assert_eq!(models.take_evicted().len(), 3);
    }

    #[test]
    fn no_place_is_no_model() {
        let mut models = with(0, 0..3);
        assert!(!models.takes_new());
        for _ in 0..10 {
            assert!(!models.has_room() && models.replay(0).is_none());
        }
        models.clear();
    }
}
