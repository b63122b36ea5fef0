//! What becomes of a container that has ended: its own rules first, then its own policy, then its pod's.
//!
//! A rule answers to exit codes. It may ask for every container of the pod to be run again, which is done in `restart_all`.

use alloc::vec::Vec;

use crate::container::{Container, LOST};
use crate::{RestartPolicy, Role, Terminated};

/// How a container is restarted, if it says so itself.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ContainerRestart {
    /// What becomes of it if no rule speaks of its end.
    pub policy: RestartPolicy,
    /// The first one that speaks of its exit code decides.
    pub rules: Vec<RestartRule>,
}

/// What is to be done after some exit codes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RestartRule {
    /// After which.
    pub codes: ExitCodes,
    /// What.
    pub action: RestartAction,
}

/// Some exit codes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ExitCodes {
    /// These.
    In(Vec<i32>),
    /// All but these.
    NotIn(Vec<i32>),
}

/// What a rule asks for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RestartAction {
    /// Run this container again.
    Restart,
    /// Run all of the pod's containers again, from its first init container on.
    RestartAllContainers,
}

/// What is to become of a container that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// It has done its part, or failed for good.
    Stays,
    /// It is run again.
    RunsAgain,
    /// So is every other container of its pod.
    AllRunAgain,
}

impl ExitCodes {
    fn hold(&self, code: i32) -> bool {
        match self {
            Self::In(codes) => codes.contains(&code),
            Self::NotIn(codes) => !codes.contains(&code),
        }
    }
}

impl ContainerRestart {
    /// What the first rule asks for that speaks of this end. Nothing is known of a run that nobody could find.
    fn action(&self, ended: &Terminated) -> Option<RestartAction> {
        let known = ended.reason != LOST;
        self.rules.iter().find(|rule| known && rule.codes.hold(ended.exit_code)).map(|rule| rule.action)
    }

    /// Whether some rule asks for all containers to be run again.
    pub(crate) fn may_restart_all(&self) -> bool {
        self.rules.iter().any(|rule| rule.action == RestartAction::RestartAllContainers)
    }
}

impl Container {
    /// The policy in force, its pod's being `pods`.
    pub(crate) fn policy(&self, pods: RestartPolicy) -> RestartPolicy {
        self.spec.restart.as_ref().map_or(pods, |own| own.policy)
    }

    /// What is to become of it now that it has ended.
    pub(crate) fn verdict(&self, pods: RestartPolicy) -> Verdict {
        let action = self.spec.restart.as_ref().zip(self.newest.as_ref()).and_then(|(own, ended)| own.action(ended));
        if action == Some(RestartAction::RestartAllContainers) {
            return Verdict::AllRunAgain;
        }
        let again = match (self.spec.role, action, self.policy(pods)) {
            (Role::Sidecar, ..) => true,
            (Role::Ephemeral, ..) => false,
            // It has done its part, whatever its rules say.
            (Role::Init, ..) if self.ended_well() => false,
            (Role::Init | Role::Main, Some(_), _) => true,
            (Role::Init | Role::Main, None, RestartPolicy::Never) => false,
            (Role::Init | Role::Main, None, RestartPolicy::OnFailure) => !self.ended_well(),
            (Role::Init | Role::Main, None, RestartPolicy::Always) => true,
        };
        if again { Verdict::RunsAgain } else { Verdict::Stays }
    }
}
