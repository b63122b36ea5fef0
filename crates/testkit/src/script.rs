//! How the parts of a simulated pod behave.

use std::time::Duration;

use lifecycle::Routes;

/// How a container's process behaves. Every run of a container behaves alike.
#[allow(missing_docs, reason = "a variant's sentence names its fields")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Script {
    /// Runs until it is killed.
    IgnoresTerm,
    /// Runs until its stop signal, and exits so long after it with that code.
    ExitsOnTerm { after: Duration, code: u8 },
    /// Exits by itself so long after its start with that code; ignores its stop signal until then.
    ExitsByItself { after: Duration, code: u8 },
    /// Exits by itself so long after its start, or at once when it gets its stop signal, with these codes.
    ExitsAnyway { after: Duration, code: u8, on_term: u8 },
    /// Cannot be started, for that reason.
    CannotStart { reason: &'static str },
    /// Nobody ever answers whether it was started.
    StartUnanswered,
}

/// A well-behaved server: needs that long to drain after its stop signal, then exits with 0.
pub const fn exits_on_term(after: Duration) -> Script {
    Script::ExitsOnTerm { after, code: 0 }
}

/// Exits with that code so long after its stop signal.
pub const fn fails_on_term(after: Duration, code: u8) -> Script {
    Script::ExitsOnTerm { after, code }
}

/// How a hook behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HookScript {
    /// Succeeds after that long.
    Takes(Duration),
    /// Fails after that long.
    FailsAfter(Duration),
    /// Runs until it is cancelled.
    NeverEnds,
    /// Ends its own container (with exit code 0) after that long, and dies with it.
    EndsItsContainer(Duration),
}

/// How getting an image goes.
#[allow(missing_docs, reason = "a variant's sentence names its fields")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImageScript {
    /// It is there already.
    Present,
    /// It takes that long to pull.
    Takes(Duration),
    /// It cannot be had, for that reason.
    Fails { reason: &'static str },
}

/// How whoever routes traffic behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrafficScript {
    /// How the pod is reached, once it is up.
    pub routes: Option<Routes>,
    /// How long a cut takes; `None` if it fails.
    pub cut_takes: Option<Duration>,
    /// How long it takes until no connection waits to be accepted.
    pub settle_takes: Duration,
    /// How many connections are open when they are first counted; `None` if they cannot be counted.
    pub open: Option<u32>,
}

impl Default for TrafficScript {
    fn default() -> Self {
        let (cut_takes, settle_takes) = (Some(Duration::from_millis(2)), Duration::from_millis(5));
        Self { routes: None, cut_takes, settle_takes, open: Some(0) }
    }
}
