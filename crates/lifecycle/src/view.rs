//! What others may see, computed from where a worker stands and never stored.
//!
//! Rules of node-termination 6: a terminal phase only when no process can remain; an exit is shown when it is seen;
//! being asked to leave changes no readiness; what was never seen to run is never said to have succeeded.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::container::{Container, LOST, LOST_CODE, LOST_TERMINATED, Run};
use crate::phase::{Phase, Sandbox};
use crate::stop::Pace;
use crate::termination::{Cause, PREEMPTED, Termination};
use crate::{
    Condition, ContainerState, ContainerStatus, KillCause, PodPhase, PodStatus, PodWorker, RestartPolicy, Role,
    Terminated, TerminationVerdict, Waiting,
};

const SHUTDOWN: &str = "Pod was terminated in response to imminent node shutdown.";

/// How final the picture is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Processes run or may run.
    Open,
    /// No process remains, and none will come.
    Over,
}

impl PodWorker {
    pub(crate) fn view(&self) -> PodStatus {
        let stage = self.stage();
        let (phase, reason, message) = self.pod_phase(stage);
        // Of a pod that was turned away before anything of it ran, there is nothing to say but why.
        let turned_away =
            self.phase.termination().is_some_and(|leaving| matches!(leaving.cause, Cause::Rejected { .. }));
        let says_nothing =
            turned_away && !self.containers.iter().any(|container| container.ever_ran() || container.may_be_alive());
        let shown = self.containers.iter().filter(|_| !says_nothing);
        let containers: Vec<ContainerStatus> = shown.map(|container| self.container_status(container, stage)).collect();
        let containers_ready = containers_ready(phase, &containers);
        PodStatus {
            phase,
            reason,
            message,
            ready_to_start_containers: plain(self.has_sandbox()),
            initialized: self.initialized_condition(phase),
            ready: self.ready_condition(&containers_ready),
            containers_ready,
            disruption: self.phase.termination().filter(|_| stage == Stage::Over).and_then(disruption),
            traffic_drained: self.phase.termination().and_then(|leaving| leaving.barrier.condition()),
            blocked: self.phase.termination().filter(|leaving| leaving.was_blocked()).map(|_| self.blocked_condition()),
            containers,
            observed_generation: self.generation,
            all_restarting: self.all_restarting_condition(phase),
            verdict: self.phase.termination().filter(|_| stage == Stage::Over).map(|leaving| self.verdict(leaving)),
        }
    }

    /// True once no process of the pod can be alive.
    pub(crate) fn no_process_remains(&self) -> bool {
        self.stage() == Stage::Over
    }

    fn verdict(&self, leaving: &Termination) -> TerminationVerdict {
        let lost = |container: &Container| container.is_lost() || container.may_be_alive();
        if self.containers.iter().any(lost) {
            TerminationVerdict::Lost
        } else if leaving.forced {
            TerminationVerdict::Forced
        } else {
            match leaving.pace {
                Pace::OnTime => TerminationVerdict::Clean,
                Pace::Hurried => TerminationVerdict::Hurried,
                Pace::Killed => TerminationVerdict::Forced,
            }
        }
    }

    fn stage(&self) -> Stage {
        match &self.phase {
            Phase::New | Phase::Living { .. } | Phase::Ending { .. } => Stage::Open,
            // A container that could not be found, or whose start was never answered, may yet run, until its sandbox
            // is seen to be gone.
            Phase::Clearing { .. } if self.containers.iter().any(|it| it.is_lost() || it.may_be_alive()) => Stage::Open,
            Phase::Clearing { .. } | Phase::Resting { .. } | Phase::Deleting { .. } | Phase::Gone { .. } => Stage::Over,
        }
    }

    fn has_sandbox(&self) -> bool {
        match &self.phase {
            Phase::Living { sandbox } | Phase::Ending { sandbox, .. } => matches!(sandbox, Sandbox::Ready),
            Phase::New
            | Phase::Clearing { .. }
            | Phase::Resting { .. }
            | Phase::Deleting { .. }
            | Phase::Gone { .. } => false,
        }
    }

    fn mains(&self) -> impl Iterator<Item = &Container> {
        self.containers.iter().filter(|container| container.spec.role == Role::Main)
    }

    fn inits(&self) -> impl Iterator<Item = &Container> {
        self.containers.iter().filter(|container| matches!(container.spec.role, Role::Init | Role::Sidecar))
    }

    /// All init containers did their part, or a main container, or the last of them, is proof that they did.
    fn has_initialized(&self) -> bool {
        let is_through =
            |init: &Container| init.spec.role == Role::Init && matches!(init.run, Run::Ended) && init.ended_well();
        self.initialized || self.inits().last().is_none_or(is_through) || self.mains().any(Container::ever_ran)
    }

    fn pod_phase(&self, stage: Stage) -> (PodPhase, Option<String>, Option<String>) {
        match (stage, self.phase.termination()) {
            // What somebody else wrote is never written over.
            (_, Some(Termination { declared: Some(phase), .. })) => (*phase, None, None),
            // A static pod is not said to be over: it leaves with its manifest, and its mirror says nothing of it.
            (_, Some(Termination { cause: Cause::Killed(KillCause::ConfigRemoved), .. }))
                if !self.mains().all(|main| matches!(main.run, Run::Ended))
                    || self.restart == RestartPolicy::Always =>
            {
                (self.open_phase(), None, None)
            }
            (Stage::Over, Some(termination)) => match words(&termination.cause) {
                Some((reason, message)) => (PodPhase::Failed, Some(reason.into()), Some(message)),
                None if self.has_initialized() && self.mains().all(Container::is_known_to_have_ended_well) => {
                    (PodPhase::Succeeded, None, None)
                }
                None => (PodPhase::Failed, None, None),
            },
            (Stage::Open | Stage::Over, _) => (self.open_phase(), None, None),
        }
    }

    /// The phase of a pod that is not over.
    fn open_phase(&self) -> PodPhase {
        let up = self.has_initialized() && self.mains().all(Container::ever_ran);
        if up { PodPhase::Running } else { PodPhase::Pending }
    }

    fn initialized_condition(&self, phase: PodPhase) -> Condition {
        let waiting_for: Vec<&str> = self
            .inits()
            .filter(|container| match container.spec.role {
                Role::Sidecar => !container.is_started(),
                Role::Init | Role::Main | Role::Ephemeral => !container.ended_well(),
            })
            .map(|container| container.spec.name.0.as_str())
            .collect();
        match phase {
            PodPhase::Succeeded => condition(true, "PodCompleted", None),
            PodPhase::Pending | PodPhase::Running | PodPhase::Failed => {
                if self.has_initialized() || waiting_for.is_empty() {
                    plain(true)
                } else {
                    let message = format!("containers with incomplete status: [{}]", waiting_for.join(" "));
                    condition(false, "ContainersNotInitialized", Some(message))
                }
            }
        }
    }

    /// Ready follows the containers; only a node that ends a pod of its own accord takes it away at once, since no
    /// deletion timestamp tells others to look elsewhere. A deletion that comes later does not give it back.
    fn ready_condition(&self, containers_ready: &Condition) -> Condition {
        let taken_away = match self.phase.termination().map(|leaving| &leaving.cause) {
            Some(Cause::Killed(cause)) => match cause {
                KillCause::Evicted { .. }
                | KillCause::OverLimit { .. }
                | KillCause::Preempted
                | KillCause::NodeShutdown => true,
                // Nobody is told of these: a mirror stays as it is.
                KillCause::ConfigRemoved | KillCause::Orphaned => false,
            },
            Some(Cause::DeadlineExceeded | Cause::Rejected { .. }) => true,
            Some(Cause::Completed | Cause::Deleted | Cause::Declared) | None => false,
        };
        if taken_away && containers_ready.holds {
            condition(false, "PodFailed", None)
        } else {
            containers_ready.clone()
        }
    }

    /// What keeps a leaving pod from being gone; or that nothing does any more.
    fn blocked_condition(&self) -> Condition {
        let reason = match &self.phase {
            Phase::New | Phase::Living { .. } | Phase::Ending { .. } => "ContainersNotGone",
            Phase::Clearing { .. } => "SandboxNotRemoved",
            Phase::Deleting { delete, .. } if delete.has_failed() => "ObjectNotDeleted",
            // Who holds the object from now on, by a finalizer, is its own word for that.
            Phase::Deleting { .. } | Phase::Resting { .. } | Phase::Gone { .. } => {
                return condition(false, "Gone", None);
            }
        };
        condition(true, reason, Some(self.blocking_step()))
    }

    fn container_status(&self, container: &Container, stage: Stage) -> ContainerStatus {
        let newest = container.newest.as_ref();
        let ended = |last: Option<&Terminated>| last.map(|ended| ContainerState::Terminated(ended.clone()));
        let waiting = || {
            ContainerState::Waiting(
                container
                    .image
                    .waiting()
                    .unwrap_or_else(|| Waiting { reason: self.waiting_reason(container).into(), message: None }),
            )
        };
        let restarting = self.waits_for_restart_of_all(container);
        let (state, last) = match &container.run {
            Run::Unstarted | Run::Waiting { .. } | Run::Ended if let Some(waiting) = restarting => {
                (ContainerState::Waiting(waiting), newest)
            }
            Run::Running(running) => (ContainerState::Running { since: running.since }, newest),
            Run::Waiting { shown, .. } => (ContainerState::Waiting(shown.clone()), newest),
            // Until the next run is seen, the previous one is the newest thing there is to tell.
            Run::Asked(_) | Run::Ended => (ended(newest).unwrap_or_else(waiting), container.before.as_ref()),
            Run::Unstarted => match newest {
                Some(_) if self.phase.termination().is_some() => {
                    (ended(newest).unwrap_or_else(waiting), container.before.as_ref())
                }
                Some(_) | None => (waiting(), newest),
            },
        };
        let state = match state {
            ContainerState::Waiting(_) if stage == Stage::Over && self.must_have_ended(container) => {
                ContainerState::Terminated(never_located(container))
            }
            ContainerState::Waiting(_) | ContainerState::Running { .. } | ContainerState::Terminated(_) => state,
        };
        let ready = match container.spec.role {
            // It is there to succeed, and ready once it has.
            Role::Init => matches!(&state, ContainerState::Terminated(ended) if ended.exit_code == 0),
            // Nobody waits for one.
            Role::Ephemeral => false,
            Role::Sidecar | Role::Main => container.is_ready(),
        };
        ContainerStatus {
            name: container.spec.name.clone(),
            role: container.spec.role,
            attempt: match (&container.run, newest) {
                (Run::Running(_), _) => container.attempt,
                (Run::Unstarted | Run::Asked(_) | Run::Waiting { .. } | Run::Ended, newest) => {
                    newest.map_or(0, |newest| newest.attempt)
                }
            },
            state,
            last: last.cloned(),
            ready,
            started: container.is_started(),
            stop_signal: container.knows_stop_signal().then(|| container.stop_signal()),
        }
    }

    fn waiting_reason(&self, container: &Container) -> &'static str {
        match container.spec.role {
            Role::Main | Role::Ephemeral if self.has_initialized() => "ContainerCreating",
            Role::Main | Role::Ephemeral | Role::Init | Role::Sidecar => "PodInitializing",
        }
    }

    /// Whether a pod that is over owes this container an end although none was seen: all mains of a pod that was
    /// initialized; otherwise the init containers up to the last one that ever ran, and the first in any case.
    fn must_have_ended(&self, container: &Container) -> bool {
        match container.spec.role {
            Role::Main => self.has_initialized(),
            Role::Ephemeral => false,
            Role::Init | Role::Sidecar => {
                let position = self.inits().position(|init| init.spec.name == container.spec.name);
                let last_ran = self.inits().collect::<Vec<_>>().iter().rposition(|init| init.ever_ran()).unwrap_or(0);
                !self.has_initialized() && position.is_some_and(|position| position <= last_ran)
            }
        }
    }
}

impl Container {
    /// Its newest run did, and no later one was asked for of which nobody knows anything.
    fn is_known_to_have_ended_well(&self) -> bool {
        self.ended_well() && !self.may_be_alive()
    }

    fn is_lost(&self) -> bool {
        self.newest.as_ref().is_some_and(|newest| newest.reason == LOST && newest.attempt == self.attempt)
    }
}

/// What a node-originated kill says of the pod, whatever its exit codes (node-termination 6.7).
fn words(cause: &Cause) -> Option<(&str, String)> {
    match cause {
        Cause::Killed(KillCause::Evicted { message } | KillCause::OverLimit { message }) => {
            Some(("Evicted", message.clone()))
        }
        Cause::Killed(KillCause::Preempted) => Some(("Preempting", PREEMPTED.to_owned())),
        Cause::Killed(KillCause::NodeShutdown) => Some(("Terminated", SHUTDOWN.to_owned())),
        Cause::DeadlineExceeded => {
            let message = "Pod was active on the node longer than the specified deadline";
            Some(("DeadlineExceeded", message.to_owned()))
        }
        Cause::Rejected { reason, message } => Some((reason, format!("Pod was rejected: {message}"))),
        Cause::Killed(KillCause::ConfigRemoved | KillCause::Orphaned)
        | Cause::Deleted
        | Cause::Completed
        | Cause::Declared => None,
    }
}

/// What the node did to a pod for reasons that are not the pod's (node-termination 6.6).
fn disruption(leaving: &Termination) -> Option<Condition> {
    let message = match &leaving.cause {
        Cause::Killed(KillCause::Evicted { message }) => message.clone(),
        Cause::Killed(KillCause::Preempted) => "Pod was preempted by Kubelet to accommodate a critical pod.".to_owned(),
        Cause::Killed(KillCause::NodeShutdown) => SHUTDOWN.to_owned(),
        Cause::Killed(KillCause::OverLimit { .. } | KillCause::ConfigRemoved | KillCause::Orphaned)
        | Cause::DeadlineExceeded
        | Cause::Rejected { .. }
        | Cause::Deleted
        | Cause::Completed
        | Cause::Declared => return None,
    };
    Some(condition(true, "TerminationByKubelet", Some(message)))
}

fn containers_ready(phase: PodPhase, containers: &[ContainerStatus]) -> Condition {
    let unready: Vec<&str> = containers
        .iter()
        .filter(|container| matches!(container.role, Role::Main | Role::Sidecar) && !container.ready)
        .map(|container| container.name.0.as_str())
        .collect();
    match phase {
        PodPhase::Succeeded => condition(false, "PodCompleted", None),
        PodPhase::Failed => condition(false, "PodFailed", None),
        PodPhase::Pending | PodPhase::Running if unready.is_empty() => plain(true),
        PodPhase::Pending | PodPhase::Running => {
            let message = format!("containers with unready status: [{}]", unready.join(" "));
            condition(false, "ContainersNotReady", Some(message))
        }
    }
}

fn never_located(container: &Container) -> Terminated {
    Terminated {
        attempt: container.next_attempt(),
        reason: LOST.into(),
        message: Some(LOST_TERMINATED.into()),
        exit_code: LOST_CODE,
        started: None,
        exit: None,
    }
}

fn plain(holds: bool) -> Condition {
    Condition { holds, reason: None, message: None }
}

fn condition(holds: bool, reason: &str, message: Option<String>) -> Condition {
    Condition { holds, reason: Some(reason.into()), message }
}
