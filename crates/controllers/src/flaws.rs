//! Bugs that can be planted in the controllers, so that the simulation can show that its laws are able to fail.
//!
//! Without the feature `flaws`, which nothing but `simulation` ever asks for, every question here is answered with a constant.

/// A bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// A ReplicaSet counts pods that leave.
    CountsLeaving,
    /// A ReplicaSet does not wait until it sees what it created.
    ForgetsCreated,
    /// A rollout counts what sets were told, not what they still have.
    CountsWishes,
    /// A rollout takes pods for available.
    TakesPodsForAvailable,
    /// A StatefulSet removes the object of a pod that does not leave.
    ForcesLeaving,
    /// A StatefulSet does not wait for those before.
    SkipsReadiness,
    /// A Job begins an index again that was completed.
    ForgetsIndexes,
    /// A Job counts a pod when it has ended, and again when it is seen without its finalizer.
    CountsTwice,
    /// What has lost its owner stays.
    KeepsGarbage,
}

#[cfg(feature = "flaws")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Flaw>> = const { std::cell::Cell::new(None) };
}

/// Plants a bug in every controller of this thread, or takes it away.
#[cfg(feature = "flaws")]
pub fn plant(flaw: Option<Flaw>) {
    PLANTED.set(flaw);
}

/// Whether this bug was planted.
#[cfg(feature = "flaws")]
pub(crate) fn has(flaw: Flaw) -> bool {
    PLANTED.get() == Some(flaw)
}

/// Whether this bug was planted: never.
#[cfg(not(feature = "flaws"))]
pub(crate) const fn has(_: Flaw) -> bool {
    false
}
