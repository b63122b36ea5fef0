//! The frame of every controller: told what changed, it plans (pure), then applies.
//!
//! ```text
//!  sources ─▶ observe ─▶ keys ─▶ queue ─▶ plan(key, now) ─┬─ actions ─▶ apply ─▶ ended ─┬─ done: wait for the next wake
//!  (list + watch)        once each, one pass per key      └─ next wake                  └─ failed: again after a back-off
//! ```
//!
//! A [`Controller`] is what is known and what follows from it, and touches nothing outside itself. Its [`Effects`] do what was
//! decided and decide nothing. [`run`] is the one loop that joins them: a key is planned once however often it was woken, never
//! beside itself, and with everything that has been heard by then. A pass that fails or panics is tried again later; the others
//! go on. A key that has written is planned again when its sources show what it wrote, so nothing has to be expected or remembered.
//!
//! Time is an argument ([`Now`]); waiting is tokio's, so a simulation runs every controller in paused time.

mod clock;
mod queue;
mod runner;
mod source;
#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::time::Duration;

use supervision::BackoffPolicy;
use tokio::time::Instant;

pub use clock::{Clock, Now};
pub use queue::Rank;
pub use runner::run;
pub use source::{Source, SourceUpdate};

/// What one controller knows, and what follows from it.
pub trait Controller: Send + 'static {
    /// One fact from a source.
    type Input: Send + 'static;
    /// What is planned for, one at a time: an object, mostly.
    type Key: Clone + Ord + Debug + Send + Sync + 'static;
    /// Something to be done.
    type Action: Send + Sync + 'static;
    /// What can come of it.
    type Answer: Send + 'static;

    /// Takes in a fact. Answers for whom it may matter.
    fn observe(&mut self, now: Now, input: Self::Input) -> Vec<Self::Key>;

    /// What is to be done about `key` by now, and when time itself makes more necessary. From present knowledge alone, never
    /// from what woke it: the answer is the same until something is observed.
    fn plan(&self, key: &Self::Key, now: Now) -> Plan<Self::Action>;

    /// Who comes first when several wait: the lowest, then who has waited longest.
    fn rank(&self, _key: &Self::Key) -> Rank {
        Rank::default()
    }

    /// What was planned is going to be done. The place to keep a pace, or to count on what is under way.
    fn begun(&mut self, _now: Now, _key: &Self::Key, _actions: &[Self::Action]) {}

    /// What came of one action. Answers for whom that may matter.
    fn ended(
        &mut self,
        _now: Now,
        _key: &Self::Key,
        _action: Self::Action,
        _outcome: Outcome<Self::Answer>,
    ) -> Vec<Self::Key> {
        Vec::new()
    }
}

/// What does the actions of a controller.
pub trait Effects<C: Controller>: Send + Sync + 'static {
    /// Why something could not be done now; it is planned again later.
    type Error: std::error::Error + Send + 'static;

    /// Does one action. May be ended or repeated at any point.
    fn apply(
        &self,
        key: &C::Key,
        action: &C::Action,
    ) -> impl Future<Output = Result<Applied<C::Answer>, Self::Error>> + Send;
}

/// What a plan came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan<A> {
    /// To be done, in this order. The first one that fails ends the pass.
    pub actions: Vec<A>,
    /// When to plan again although nothing happens.
    pub wake: Option<Wake>,
}

impl<A> Default for Plan<A> {
    fn default() -> Self {
        Self { actions: Vec::new(), wake: None }
    }
}

impl<A> Plan<A> {
    /// Only this.
    pub fn act(action: A) -> Self {
        Self { actions: vec![action], wake: None }
    }

    /// Nothing yet.
    pub fn wait(at: Instant, why: &'static str) -> Self {
        Self { actions: Vec::new(), wake: Some(Wake { at, why }) }
    }
}

/// A deadline with a reason.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Wake {
    /// When.
    pub at: Instant,
    /// What will be so then.
    pub why: &'static str,
}

/// An action that was done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Applied<T> {
    /// What came of it.
    pub answer: T,
    /// The source that will show what was written, and the revision of the write.
    pub wrote: Option<(&'static str, u64)>,
}

impl<T> Applied<T> {
    /// Done, and nothing was written that a source shows.
    pub fn new(answer: T) -> Self {
        Self { answer, wrote: None }
    }

    /// Done by a write of this revision, which `source` will show.
    pub fn wrote(answer: T, source: &'static str, revision: Option<u64>) -> Self {
        Self { answer, wrote: revision.map(|revision| (source, revision)) }
    }
}

/// How an action ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome<T> {
    /// It was done.
    Done(T),
    /// It could not be done, or nobody knows whether it was, for this reason. The key is planned again after a while.
    Failed(String),
    /// One before it failed.
    NotTried,
}

/// How much a controller may do, and how patient it is.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many keys are seen to at once.
    pub at_once: usize,
    /// How long a key waits that could not be seen to.
    pub backoff: BackoffPolicy,
    /// Plans wait until every source has said what there is, but no longer than this for one that cannot; for ever if `None`.
    pub first_lists: Option<Duration>,
    /// One action may take this long.
    pub action_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let backoff = BackoffPolicy::new(Duration::from_millis(100), Duration::from_secs(60));
        Self { at_once: 5, backoff, first_lists: None, action_max: Duration::from_secs(300) }
    }
}
