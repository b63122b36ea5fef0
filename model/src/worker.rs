//! What the model drives: the shipped worker, or one that was broken on purpose.

use std::fmt::Debug;
use std::hash::Hash;

use lifecycle::{Effect, Input, Moment, PodSpec, PodWorker};

/// A pod worker, as far as the model is concerned.
pub trait Worker: Clone + Eq + Hash + Debug + Send + Sync + 'static {
    /// Tells the worker one thing that happened; returns what to do about it.
    fn handle(&mut self, now: Moment, input: Input) -> Vec<Effect>;

    /// The shipped worker inside.
    fn inner(&self) -> &PodWorker;

    /// What a new agent makes of the journal. The journal holds every input in its order and a worker is a function
    /// of those, so the worker as it stands is what replaying them would give; `tests/walks.rs` shows it.
    #[must_use]
    fn rebuilt(self) -> Self {
        self
    }
}

impl Worker for PodWorker {
    fn handle(&mut self, now: Moment, input: Input) -> Vec<Effect> {
        Self::handle(self, now, input)
    }

    fn inner(&self) -> &PodWorker {
        self
    }
}

/// How a worker is made.
pub type Make<W> = fn(PodSpec) -> W;
