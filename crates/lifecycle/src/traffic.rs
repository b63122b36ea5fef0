//! Words about traffic: what a pod asks for, how connections reach it, and the evidence that new ones no longer do.
//!
//! The node does not know traffic itself: whoever routes it tells how the pod is reached ([`Routes`]) whenever that
//! changes, and answers to what the worker asks of it ([`TrafficNews`]). A pod nobody was told about is not routed to,
//! and waits for nobody. What becomes of all this is decided in `barrier`.

use alloc::string::String;
use core::fmt;
use core::time::Duration;

use crate::{ContainerName, Signal};

/// What a pod asks for about traffic at its end.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DrainSpec {
    /// Which evidence is waited for before a hook or a stop signal.
    pub barrier: BarrierMode,
    /// For how long at most; 5 s if not said.
    pub barrier_cap: Option<Duration>,
    /// What is kept of the grace for hooks and the stop signal; reckoned from the grace if not said.
    pub reserve: Option<Duration>,
    /// How long open connections are waited for. Not at all if not said.
    pub budget: Option<Duration>,
    /// As many open connections as this hold nobody.
    pub enough: u32,
    /// A signal that tells the application that its connections are waited for.
    pub signal: Option<Signal>,
    /// Who gets that signal; the first main container if not said.
    pub signal_to: Option<ContainerName>,
    /// A sleep before the stop signal is left out when there is evidence that it has no purpose.
    pub elide_sleep: bool,
    /// What to do when nobody else can take the traffic.
    pub last_endpoint: LastEndpoint,
    /// How long a replacement is waited for at most; as long as the grace allows if not said.
    pub replacement_wait: Option<Duration>,
    /// New connections go elsewhere while a single container is restarted.
    pub restart_barrier: bool,
}

impl Default for DrainSpec {
    fn default() -> Self {
        Self {
            barrier: BarrierMode::Auto,
            barrier_cap: None,
            reserve: None,
            budget: None,
            enough: 0,
            signal: None,
            signal_to: None,
            elide_sleep: false,
            last_endpoint: LastEndpoint::Serve,
            replacement_wait: None,
            restart_barrier: true,
        }
    }
}

/// Which evidence a pod wants.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BarrierMode {
    /// The best there is for its kind of pod.
    Auto,
    /// Only its own node's word that new connections are sent elsewhere.
    Local,
    /// Only the word of every proxy.
    Acks,
    /// Only silence: no new connection for a while.
    Quiet,
    /// None; nothing is cut, nothing is waited for.
    Off,
}

/// What to do with the traffic of a pod that nobody can stand in for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LastEndpoint {
    /// Go on serving; wait for a replacement if one is expected and somebody would miss the pod.
    Serve,
    /// Wait for a stand-in even if none is expected.
    Hold,
    /// Refuse new connections at once.
    Reject,
}

/// How connections reach the pod, as far as we were told.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Routes {
    /// The best evidence that its kind of pod and its Services allow.
    pub best: BestEvidence,
    /// No other endpoint can take its traffic.
    pub last: bool,
    /// Its owner makes a replacement while it is leaving.
    pub replaced: bool,
    /// It got a new connection within the last minute.
    pub busy: bool,
}

/// The best evidence there can be that new connections go elsewhere (traffic-and-rollouts 3.4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum BestEvidence {
    /// Nobody routes to it.
    #[default]
    Unrouted,
    /// Its listeners can be watched, and that is all.
    Settled,
    /// Every proxy can say that it let go.
    Acks,
    /// Its node can send new connections to a sibling.
    Divert,
}

/// How new connections are kept from a pod.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cut {
    /// Whoever still comes is sent to a sibling.
    Divert,
    /// It leaves every list; whoever still comes is served.
    Withdraw,
    /// Whoever still comes is refused.
    Refuse,
}

/// What whoever routes traffic has to tell.
#[allow(missing_docs, reason = "a variant's sentence names its fields")]
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum TrafficNews {
    /// How the pod is reached has changed.
    Routed(Routes),
    /// The cut that was asked for like this is in force, with that revision of the rules.
    CutDone { how: Cut, revision: u64 },
    /// So many of those that must let go have done so.
    Acked { acked: u32, required: u32 },
    /// No new connection came for a while.
    Quiet,
    /// No connection waits to be accepted.
    Settled,
    /// That many connections are open.
    Connections { open: u32 },
    /// The application says that it has nothing left to wait for.
    AppDone,
    /// So many connections came after the barrier was released.
    Late { count: u32 },
    /// What was asked last cannot be done.
    Failed { message: String },
}

/// What released a pod's barrier.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Release {
    /// Its node sends new connections elsewhere.
    LocalCut,
    /// Every proxy let go.
    AllAcked,
    /// Nobody came any more.
    Quiet,
    /// Nobody waits to be accepted, which is all that can be known of its kind of pod.
    Settled,
    /// Nobody else could have taken the traffic, and nobody will.
    LastEndpoint,
    /// Nobody routes to it.
    NotSelected,
    /// Its main containers ended: there is nobody left to connect to.
    NotServing,
    /// The time for it was over.
    Deadline,
    /// The pod did not want one.
    Off,
    /// The grace has no room for one.
    ShortGrace,
    /// The pod was deleted by force.
    Forced,
}

impl Release {
    /// Whether new connections are known to go elsewhere.
    pub(crate) fn is_evidence(self) -> bool {
        match self {
            Self::LocalCut | Self::AllAcked => true,
            Self::Quiet
            | Self::Settled
            | Self::LastEndpoint
            | Self::NotSelected
            | Self::NotServing
            | Self::Deadline
            | Self::Off
            | Self::ShortGrace
            | Self::Forced => false,
        }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LocalCut => "LocalCut",
            Self::AllAcked => "AllAcked",
            Self::Quiet => "Quiet",
            Self::Settled => "Settled",
            Self::LastEndpoint => "LastEndpoint",
            Self::NotSelected => "NotSelected",
            Self::NotServing => "NotServing",
            Self::Deadline => "Deadline",
            Self::Off => "Off",
            Self::ShortGrace => "ShortGrace",
            Self::Forced => "Forced",
        })
    }
}
