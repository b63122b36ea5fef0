//! Where a worker stands. Each phase owns exactly the facts that exist during it.
//!
//! ```text
//!  New ──Begin──▶ Living ──asked to leave, or done──▶ Ending ──nobody alive──▶ Clearing ──sandbox removed──┐
//!   └──────────────── asked to leave before Begin ──────▲                                                  │
//!                                                                                                          │
//!      Gone ◀──ObjectDeleted── Deleting ◀──delete asked for── Resting ◀──object stays in the API───────────┤
//!       ▲                         ▲                                                                        │
//!       │                         └───────────────────────────────── delete asked for ─────────────────────┤
//!       └──────────────────────────────────────────────────────────── object gone already ─────────────────┘
//! ```
//!
//! There is no way back: a pod that was asked to leave never lives again.

use crate::restart::RetriedRequest;
use crate::termination::Termination;
use crate::wake::Soonest;
use crate::{Moment, WakeReason};

/// Where a worker stands.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Phase {
    /// Nothing happened yet. Left by `Begin`, or by being asked to leave at once.
    New,
    /// Coming up or serving. Left when asked to leave, or when every main container is done.
    Living { sandbox: Sandbox },
    /// Nothing starts any more and everything running is on its way out. Left when nothing can be alive.
    Ending { termination: Termination, sandbox: Sandbox },
    /// No process remains; the sandbox is being removed. Left when it is gone.
    Clearing { termination: Termination, removal: RetriedRequest },
    /// The node's work is done and the API object stays. Left when somebody deletes the object.
    Resting { termination: Termination },
    /// The final DELETE was asked. Left when the object is gone.
    Deleting { termination: Termination, delete: RetriedRequest },
    /// The life is over. Never left.
    Gone { termination: Termination },
}

/// The pod's namespaces, network and cgroup, as far as we know.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Sandbox {
    /// Nobody asked for it.
    Unasked,
    /// `CreateSandbox` was asked, or will be once the errand is due.
    Asked(RetriedRequest),
    /// It was seen to exist.
    Ready,
    /// It was lost under a living pod; what remains of it is being removed, so that a new one can be made.
    Replacing(RetriedRequest),
}

impl Sandbox {
    /// `CreateSandbox` is on its way to being answered.
    pub(crate) fn is_being_made(&self) -> bool {
        matches!(self, Self::Asked(errand) if errand.is_under_way())
    }

    /// When there is something to do about it.
    pub(crate) fn wakes(&self, wakes: &mut Soonest) {
        match self {
            Self::Asked(errand) => errand.wakes(wakes, WakeReason::SandboxRetry, WakeReason::SandboxUnanswered),
            Self::Replacing(errand) => errand.wakes(wakes, WakeReason::RemovalRetry, WakeReason::RemovalUnanswered),
            Self::Unasked | Self::Ready => {}
        }
    }
}

impl Phase {
    /// How the pod came to leave, once it is leaving.
    pub(crate) fn termination(&self) -> Option<&Termination> {
        match self {
            Self::New | Self::Living { .. } => None,
            Self::Ending { termination, .. }
            | Self::Clearing { termination, .. }
            | Self::Resting { termination }
            | Self::Deleting { termination, .. }
            | Self::Gone { termination } => Some(termination),
        }
    }

    /// The same, to be changed.
    pub(crate) fn termination_mut(&mut self) -> Option<&mut Termination> {
        match self {
            Self::New | Self::Living { .. } => None,
            Self::Ending { termination, .. }
            | Self::Clearing { termination, .. }
            | Self::Resting { termination }
            | Self::Deleting { termination, .. }
            | Self::Gone { termination } => Some(termination),
        }
    }

    /// Whether people should be told that the pod is still here, and since when.
    pub(crate) fn overdue_at(&self) -> Option<Moment> {
        match self {
            Self::New | Self::Living { .. } | Self::Resting { .. } | Self::Gone { .. } => None,
            Self::Ending { termination, .. }
            | Self::Clearing { termination, .. }
            | Self::Deleting { termination, .. } => termination.overdue_at(),
        }
    }
}
