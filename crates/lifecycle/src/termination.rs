//! How a pod leaves: the request and its budget, and the phase in which its containers are stopped.
//!
//! Containers are told apart only by the order of their stop signals: mains, running init containers and ephemeral
//! ones at once; a sidecar after all mains and init containers, and after every later sidecar. At the deadline the
//! order ends and everyone is signalled (node-termination 5.3). Hooks are not ordered: all start at once.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use crate::container::Run;
use crate::phase::{Phase, Sandbox};
use crate::restart::Errand;
use crate::stop::LEAST_NOTICE;
use crate::{DeleteSighting, Effect, Event, GraceBudget, Input, KillCause, Moment, PodWorker, Role, Wake, WakeReason};

/// How a pod came to leave, and by when it must be gone.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Termination {
    pub(crate) budget: GraceBudget,
    /// The first cause; later ones may only shorten the budget.
    pub(crate) cause: Cause,
    pub(crate) object: Object,
    told_overdue: bool,
}

/// Why a pod leaves.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Cause {
    /// Its main containers are done, or an init container failed for good.
    Completed,
    /// Somebody deleted it.
    Deleted,
    /// The node wanted it to end.
    Killed(KillCause),
}

/// What becomes of the API object when the node's work is done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Object {
    /// Nobody deleted it: it stays.
    Stays,
    /// It carries a deletion timestamp: ours is the final DELETE.
    Leaving,
    /// It is gone already: nobody is left to tell.
    Gone,
}

impl Termination {
    /// One second past the last moment at which a KILL can be due: then something is stuck.
    const OVERDUE_AFTER: Duration = LEAST_NOTICE.saturating_add(Duration::from_secs(1));

    pub(crate) fn completed(now: Moment, grace: Duration) -> Self {
        Self::new(GraceBudget::starting(now, grace), Cause::Completed, Object::Stays)
    }

    pub(crate) fn deleted(now: Moment, grace: Duration, sighting: DeleteSighting) -> Self {
        Self::new(delete_budget(now, grace, sighting), Cause::Deleted, Object::Leaving)
    }

    pub(crate) fn forced(now: Moment) -> Self {
        Self::new(GraceBudget::starting(now, Duration::ZERO), Cause::Deleted, Object::Gone)
    }

    pub(crate) fn killed(now: Moment, cause: KillCause, grace: Duration) -> Self {
        Self::new(GraceBudget::starting(now, grace), Cause::Killed(cause), Object::Stays)
    }

    fn new(budget: GraceBudget, cause: Cause, object: Object) -> Self {
        Self { budget, cause, object, told_overdue: false }
    }

    /// A pod that is leaving is deleted, perhaps again.
    pub(crate) fn also_deleted(&mut self, now: Moment, grace: Duration, sighting: DeleteSighting) {
        self.budget = match self.object {
            Object::Stays => self.budget.joined_by(delete_budget(now, grace, sighting)),
            // With the grace we know of, this leaves the deadline where it is, however the deletion was seen.
            Object::Leaving => self.budget.shortened_to(now, grace),
            Object::Gone => return,
        };
        self.object = Object::Leaving;
    }

    /// The object of a pod that is leaving vanished: a force delete.
    pub(crate) fn also_forced(&mut self, now: Moment) {
        self.budget = self.budget.shortened_to(now, Duration::ZERO);
        self.object = Object::Gone;
    }

    /// The node wants a pod that is leaving to end. Without a grace of its own it has nothing to add.
    pub(crate) fn also_killed(&mut self, now: Moment, grace: Option<Duration>) {
        if let Some(grace) = grace {
            self.budget = self.budget.overridden(now, grace);
        }
    }

    pub(crate) fn overdue_at(&self) -> Option<Moment> {
        (!self.told_overdue).then(|| self.budget.deadline() + Self::OVERDUE_AFTER)
    }

    /// Says once that the pod should have been gone by now, and what it waits for.
    pub(crate) fn tell_overdue(&mut self, now: Moment, step: &str, out: &mut Vec<Effect>) {
        if self.overdue_at().is_some_and(|at| now >= at) {
            self.told_overdue = true;
            let late = now - self.budget.deadline();
            let message = format!("Pod should have been gone {late:?} ago, but {step}");
            out.push(Effect::Emit(Event::pod_warning("TerminationOverdue", message)));
        }
    }
}

fn delete_budget(now: Moment, grace: Duration, sighting: DeleteSighting) -> GraceBudget {
    match sighting {
        DeleteSighting::Live => GraceBudget::starting(now, grace),
        DeleteSighting::Found { left } => GraceBudget::found(now, left, grace),
    }
}

impl PodWorker {
    /// Nothing starts from here on.
    pub(crate) fn begin_ending(&mut self, termination: Termination, out: &mut Vec<Effect>) {
        let sandbox = match &self.phase {
            Phase::Living { sandbox } => sandbox.clone(),
            Phase::New
            | Phase::Ending { .. }
            | Phase::Clearing { .. }
            | Phase::Resting { .. }
            | Phase::Deleting { .. }
            | Phase::Gone { .. } => Sandbox::Unasked,
        };
        for container in &mut self.containers {
            container.give_up_starting(out);
        }
        self.phase = Phase::Ending { termination, sandbox };
    }

    /// A pod whose containers are on their way out is told something.
    pub(crate) fn handle_ending(&mut self, now: Moment, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::Started { instance, wall } => {
                // A start that was under way when the pod was asked to leave: `advance_ending` stops it.
                if let Some(container) = self.awaiting_start(&instance) {
                    container.started(now, wall, false, out);
                }
            }
            Input::StartFailed { instance, reason, message } => {
                if let Some(container) = self.awaiting_start(&instance) {
                    container.start_failed(&reason, &message, out);
                }
            }
            Input::Exited { instance, exit } => {
                if let Some(container) = self.current(&instance) {
                    container.exited(now, exit, out);
                }
            }
            Input::HookFinished { instance, kind, outcome } => {
                if let Some(container) = self.current(&instance) {
                    // No postStart hook survives the begin of an end, so none can fail here.
                    container.hook_finished(kind, outcome, out);
                }
            }
            Input::SignalAnswered { instance, signal, delivery: _ } => self.signal_answered(&instance, signal),
            Input::ProbeChanged { instance, probe, passing } => {
                if let Some(container) = self.current(&instance) {
                    // Only readiness still counts: nobody is restarted on the way out.
                    container.probe_changed(probe, passing);
                }
            }
            Input::SandboxReady => self.set_ending_sandbox(Sandbox::Ready),
            Input::SandboxFailed { message: _ } => self.set_ending_sandbox(Sandbox::Unasked),
            Input::DeleteRequested { grace, sighting } => {
                self.also(|leaving| leaving.also_deleted(now, grace, sighting))
            }
            Input::ObjectGone => self.also(|leaving| leaving.also_forced(now)),
            Input::KillRequested { cause: _, grace } => self.also(|leaving| leaving.also_killed(now, grace)),
            Input::AgentRestarted { report } => self.reattach_ending(now, &report, out),
            // Told twice; pulls that were given up; the removal of a sandbox that was being replaced (it is
            // removed again); answers to a DELETE that was not asked yet; wakes (`advance_ending` looks).
            Input::Begin
            | Input::ImageReady { .. }
            | Input::ImageFailed { .. }
            | Input::SandboxRemoved
            | Input::SandboxRemovalFailed { .. }
            | Input::ObjectDeleted
            | Input::ObjectDeleteFailed { .. }
            | Input::TimePassed => {}
        }
    }

    /// Takes every container as far on its way out as time and order allow; moves on when nothing can be alive.
    pub(crate) fn advance_ending(&mut self, now: Moment, out: &mut Vec<Effect>) {
        let Phase::Ending { termination, sandbox } = &self.phase else { return };
        let (deadline, being_made) = (termination.budget.deadline(), sandbox.is_being_made());
        for container in &mut self.containers {
            let killing = format!("Stopping container {}", container.spec.name);
            container.begin_stop(now, deadline, killing, out);
        }
        let turns: Vec<bool> = (0..self.containers.len()).map(|index| self.is_its_turn(index)).collect();
        for (container, its_turn) in self.containers.iter_mut().zip(turns) {
            container.advance_stop(now, Some(deadline), its_turn, out);
        }
        // A sandbox in the making is waited for, so that making and removing it do not race; but not for ever.
        let may_clear = !being_made || now >= deadline;
        if may_clear && !self.containers.iter().any(|container| container.may_be_alive()) {
            let Phase::Ending { termination, .. } = core::mem::replace(&mut self.phase, Phase::New) else { return };
            out.push(Effect::RemoveSandbox);
            self.phase = Phase::Clearing { termination, removal: Errand::default() };
        }
    }

    /// Whether the order allows this container its stop signal.
    fn is_its_turn(&self, index: usize) -> bool {
        match self.containers[index].spec.role {
            Role::Init | Role::Main | Role::Ephemeral => true,
            Role::Sidecar => !self.containers.iter().enumerate().any(|(other, container)| {
                container.may_be_alive()
                    && match container.spec.role {
                        Role::Init | Role::Main => true,
                        Role::Sidecar => other > index,
                        Role::Ephemeral => false,
                    }
            }),
        }
    }

    /// A pod that is leaving is asked to leave.
    pub(crate) fn also(&mut self, hear: impl FnOnce(&mut Termination)) {
        if let Some(termination) = self.phase.termination_mut() {
            hear(termination);
        }
    }

    /// When there is something to do about a pod whose containers are on their way out.
    pub(crate) fn ending_wakes(&self, wakes: &mut Vec<Wake>) {
        let Phase::Ending { termination, sandbox } = &self.phase else { return };
        let deadline = termination.budget.deadline();
        for container in &self.containers {
            if let Run::Running(running) = &container.run
                && let Some(stop) = &running.stop
            {
                stop.wakes(&container.spec.name, Some(deadline), wakes);
            }
        }
        // Past the deadline a sandbox in the making keeps nobody; only a start that was not answered still does.
        if sandbox.is_being_made() && !self.containers.iter().any(|container| container.may_be_alive()) {
            wakes.push(Wake { at: deadline, reason: WakeReason::GraceSpent });
        }
    }

    /// Which step keeps a pod from being gone, in words.
    pub(crate) fn blocking_step(&self) -> String {
        let waiting = self.containers.iter().find_map(|container| match &container.run {
            Run::Running(running) => {
                let step = running.stop.as_ref().map_or("running", |stop| stop.waits_for());
                Some(format!("container {} is {step}", container.spec.name))
            }
            Run::Asked => Some(format!("the start of container {} was not answered", container.spec.name)),
            Run::Unstarted | Run::Waiting { .. } | Run::Ended => None,
        });
        match &self.phase {
            Phase::Clearing { .. } => "its sandbox could not be removed".into(),
            Phase::Deleting { .. } => "its object could not be deleted".into(),
            Phase::New | Phase::Living { .. } | Phase::Ending { .. } | Phase::Resting { .. } | Phase::Gone { .. } => {
                waiting.unwrap_or_else(|| "its sandbox is still being made".into())
            }
        }
    }

    fn set_ending_sandbox(&mut self, seen: Sandbox) {
        if let Phase::Ending { sandbox: sandbox @ Sandbox::Asked(_), .. } = &mut self.phase {
            *sandbox = seen;
        }
    }
}
