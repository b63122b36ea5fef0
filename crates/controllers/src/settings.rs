//! How patient the controllers are.

use std::time::Duration;

use frame::Clock;

/// How long things may be odd before they are acted on.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long a node's object must have been missing before its pods are given up. One that is made anew meanwhile,
    /// by its agent or by a person, must not cost its pods.
    pub quarantine: Duration,
    /// How many ended pods are kept.
    pub ended_max: usize,
    /// How long a node may say nothing before it counts as unreachable.
    pub node_grace: Duration,
    /// Whether the controllers run that make pods of workloads; without them somebody else does, or a test.
    pub workloads: bool,
    /// What time it is.
    pub clock: Clock,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            quarantine: Duration::from_secs(40),
            ended_max: 12_500,
            node_grace: Duration::from_secs(50),
            workloads: true,
            clock: Clock::system(),
        }
    }
}
