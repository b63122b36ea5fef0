//! Bugs that can be planted in the agent's wiring, so that the simulation can show that its laws are able to fail.
//!
//! Without the feature `flaws`, which nothing but `simulation` ever asks for, every question here is answered with a constant.

/// A bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// A driver acts before its record is durable.
    ActsBeforeRecord,
    /// A new agent does not ask what runs.
    AsksNobody,
    /// An object is deleted without its last status.
    DeletesWithoutStatus,
    /// An exit that overtakes the news of its start is forgotten.
    DropsHeldExit,
    /// A second, shorter deletion is not passed on.
    HearsOneDeletion,
    /// Exits of pods that are leaving are not passed on.
    DropsExitOfLeaving,
    /// In a shutdown everybody counts the same.
    IgnoresPriority,
    /// A static pod does not wait for the one before it.
    StaticsAtOnce,
    /// A deletion that was found, not seen, has no time left.
    FoundIsOver,
    /// A status that cannot be stored is given up.
    GivesUpOnStatus,
    /// A deletion that failed is not told to the rules.
    DropsDeleteFailure,
    /// The manifest of a pod is not kept.
    KeepsNoManifest,
    /// What a list says of pods that are known is not looked at.
    SkipsListed,
    /// The signal that an image asks for is not heard.
    ForgetsImageSignal,
    /// A hook that is to end is left alone.
    LeavesHookRunning,
    /// A KILL that could not be sent is not told to the rules.
    DropsKillFailure,
    /// The record of a pod's end is given up when the pod is forgotten.
    ForgetsRecord,
    /// A start or a hook whose answer is lost counts as one that was refused.
    TakesSilenceForNo,
    /// A hook that could not be cut off is left alone.
    CancelsHookOnce,
}

#[cfg(feature = "flaws")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Flaw>> = const { std::cell::Cell::new(None) };
}

/// Plants a bug in every agent of this thread, or takes it away.
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

#[cfg(feature = "flaws")]
thread_local! {
    /// How many steps drivers have taken, and at which one of them breaks.
    static STUMBLE: std::cell::Cell<(u64, u64)> = const { std::cell::Cell::new((0, 0)) };
}

/// Lets the driver break that takes this step of all that drivers of this thread take from now on; none for 0.
#[cfg(feature = "flaws")]
pub fn stumble_at(step: u64) {
    STUMBLE.set((0, step));
}

/// A driver takes a step, and breaks if it was planted so.
#[cfg(feature = "flaws")]
pub(crate) fn stumble() {
    let (steps, at) = STUMBLE.get();
    STUMBLE.set((steps + 1, at));
    assert!(steps + 1 != at, "a driver breaks, as it was planted");
}

/// A driver takes a step.
#[cfg(not(feature = "flaws"))]
pub(crate) const fn stumble() {}
