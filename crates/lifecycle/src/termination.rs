//! How a pod leaves: the request and its budget, and the phase in which its containers are stopped.
//!
//! Containers are told apart only by the order of their stop signals: mains, running init containers and ephemeral
//! ones at once; a sidecar after all mains and init containers, and after every later sidecar. At the deadline the
//! order ends and everyone is signalled (node-termination 5.3). Hooks are not ordered: all start at once.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use crate::barrier::{Barrier, BarrierContext};
use crate::budget::LEAST_GRACE;
use crate::container::{Container, Run};
use crate::phase::{Phase, Sandbox};
use crate::reboot::Shift;
use crate::restart::RetriedRequest;
use crate::stop::{Gate, LEAST_NOTICE, Pace};
use crate::wake::Soonest;
use crate::{
    DeleteSighting, DrainSpec, Effect, Event, GraceBudget, Input, KillCause, Moment, PodPhase, PodWorker, Role, Routes,
    RuntimeReport, TrafficNews, WakeReason,
};

/// What is said of a pod that made room for a critical one.
pub(crate) const PREEMPTED: &str = "Preempted in order to admit critical pod";

/// How a pod came to leave, and by when it must be gone.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Termination {
    pub(crate) budget: GraceBudget,
    /// The first cause; later ones may only shorten the budget.
    pub(crate) cause: Cause,
    pub(crate) object: Object,
    /// The terminal phase that somebody else wrote, if somebody did before we could.
    pub(crate) declared: Option<PodPhase>,
    /// What its traffic still keeps from happening.
    pub(crate) barrier: Barrier,
    /// The worst that had to be done so far.
    pub(crate) pace: Pace,
    /// Its object was deleted by force while it may still have run.
    pub(crate) forced: bool,
    /// When the machine was booted under it, if it was: nobody can be late while it is off.
    booted_at: Option<Moment>,
    told_overdue: bool,
    /// Something kept it from being gone although it should have been.
    blocked: bool,
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
    /// It was active for longer than it may be.
    DeadlineExceeded,
    /// Somebody else wrote that it is over.
    Declared,
    /// The node would not have it.
    Rejected { reason: String, message: String },
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
        let deleted = Self::new(delete_budget(now, grace, sighting), Cause::Deleted, Object::Leaving);
        Self { forced: grace.is_zero(), ..deleted }
    }

    pub(crate) fn forced(now: Moment) -> Self {
        let forced = Self::new(GraceBudget::starting(now, Duration::ZERO), Cause::Deleted, Object::Gone);
        Self { forced: true, ..forced }
    }

    /// Killed by the node, with a grace of its own or its pod's. A pod that nobody claims has the least there is.
    pub(crate) fn killed(now: Moment, cause: KillCause, grace: Option<Duration>, pods: Duration) -> Self {
        let (fallback, object) = match cause {
            KillCause::Orphaned => (LEAST_GRACE, Object::Gone),
            KillCause::ConfigRemoved => (pods, Object::Gone),
            KillCause::Evicted { .. }
            | KillCause::OverLimit { .. }
            | KillCause::Preempted
            | KillCause::NodeShutdown => (pods, Object::Stays),
        };
        Self::new(GraceBudget::starting(now, grace.unwrap_or(fallback)), Cause::Killed(cause), object)
    }

    pub(crate) fn overdue(now: Moment, grace: Duration) -> Self {
        Self::new(GraceBudget::starting(now, grace), Cause::DeadlineExceeded, Object::Stays)
    }

    pub(crate) fn declared(now: Moment, grace: Duration, phase: PodPhase) -> Self {
        let declared = Self::new(GraceBudget::starting(now, grace), Cause::Declared, Object::Stays);
        Self { declared: Some(phase), ..declared }
    }

    pub(crate) fn rejected(now: Moment, grace: Duration, reason: String, message: String) -> Self {
        Self::new(GraceBudget::starting(now, grace), Cause::Rejected { reason, message }, Object::Stays)
    }

    fn new(budget: GraceBudget, cause: Cause, object: Object) -> Self {
        let (declared, barrier) = (None, Barrier::none());
        Self {
            budget,
            cause,
            object,
            declared,
            barrier,
            pace: Pace::OnTime,
            forced: false,
            booted_at: None,
            told_overdue: false,
            blocked: false,
        }
    }

    /// It had to be treated like this, or worse.
    pub(crate) fn at_least(&mut self, pace: Pace) {
        self.pace = self.pace.max(pace);
    }

    /// A pod that is leaving is deleted, perhaps again.
    pub(crate) fn also_deleted(&mut self, now: Moment, grace: Duration, sighting: DeleteSighting) {
        self.budget = match self.object {
            Object::Stays => self.shortened(self.budget.joined_by(delete_budget(now, grace, sighting))),
            // With the grace we know of, this leaves the deadline where it is, however the deletion was seen.
            Object::Leaving => self.shortened(self.budget.shortened_to(now, grace)),
            Object::Gone => return,
        };
        self.object = Object::Leaving;
    }

    /// The object of a pod that is leaving vanished: a force delete.
    pub(crate) fn also_forced(&mut self, now: Moment) {
        self.budget = self.budget.shortened_to(now, Duration::ZERO);
        self.object = Object::Gone;
    }

    /// The node wants a pod that is leaving to end. Without a grace of its own it has nothing to add; but a pod that
    /// no manifest asks for any more has no object to stay behind for.
    pub(crate) fn also_killed(&mut self, now: Moment, cause: &KillCause, grace: Option<Duration>) {
        if let Some(grace) = grace {
            self.budget = self.shortened(self.budget.overridden(now, grace));
        }
        if matches!(cause, KillCause::ConfigRemoved | KillCause::Orphaned) && self.object == Object::Stays {
            self.object = Object::Gone;
        }
    }

    /// A grace that shrinks under a pod that is already leaving hurries it.
    fn shortened(&mut self, budget: GraceBudget) -> GraceBudget {
        if budget.deadline() < self.budget.deadline() {
            self.at_least(Pace::Hurried);
        }
        budget
    }

    /// A step of the way out failed: it is tried again, and people can see what is waited for.
    pub(crate) fn is_blocked(&mut self) {
        self.blocked = true;
    }

    pub(crate) fn was_blocked(&self) -> bool {
        self.blocked
    }

    pub(crate) fn overdue_at(&self) -> Option<Moment> {
        let due = self.booted_at.map_or(self.budget.deadline(), |booted| booted.max(self.budget.deadline()));
        (!self.told_overdue).then_some(due + Self::OVERDUE_AFTER)
    }

    pub(crate) fn rebase(&mut self, shift: Shift) {
        self.booted_at = Some(shift.is);
        self.budget.rebase(shift);
        self.barrier.rebase(shift);
    }

    /// Says once that the pod should have been gone by now, and what it waits for.
    pub(crate) fn tell_overdue(&mut self, now: Moment, step: &str, out: &mut Vec<Effect>) {
        if self.overdue_at().is_some_and(|at| now >= at) {
            (self.told_overdue, self.blocked) = (true, true);
            let late = now - self.budget.deadline();
            let message = format!("Pod should have been gone {late:?} ago, but {step}");
            out.push(Effect::Emit(Event::pod_warning("TerminationOverdue", message)));
        }
    }
}

/// The phase that somebody else wrote.
pub(crate) fn terminal_phase(succeeded: bool) -> PodPhase {
    if succeeded { PodPhase::Succeeded } else { PodPhase::Failed }
}

/// People are told which pod was chosen to make room, and why.
fn tell_chosen(cause: &KillCause, out: &mut Vec<Effect>) {
    let (reason, message) = match cause {
        KillCause::Evicted { message } | KillCause::OverLimit { message } => ("Evicted", message.as_str()),
        KillCause::Preempted => ("Preempting", PREEMPTED),
        KillCause::NodeShutdown | KillCause::ConfigRemoved | KillCause::Orphaned => return,
    };
    out.push(Effect::Emit(Event::pod_warning(reason, message.into())));
}

fn delete_budget(now: Moment, grace: Duration, sighting: DeleteSighting) -> GraceBudget {
    match sighting {
        DeleteSighting::Live => GraceBudget::starting(now, grace),
        DeleteSighting::Found { left } => GraceBudget::found(now, left, grace),
    }
}

/// What a leaving pod's barrier needs to know of it.
fn around<'a>(
    now: Moment,
    termination: &Termination,
    drain: &'a DrainSpec,
    routes: Routes,
    containers: &'a [Container],
) -> BarrierContext<'a> {
    BarrierContext { now, budget: termination.budget, drain, routes, containers, forced: termination.forced }
}

impl PodWorker {
    /// Nothing starts from here on.
    pub(crate) fn begin_ending(&mut self, now: Moment, mut termination: Termination, out: &mut Vec<Effect>) {
        let sandbox = match &self.phase {
            Phase::Living { sandbox } => sandbox.clone(),
            Phase::New
            | Phase::Ending { .. }
            | Phase::Clearing { .. }
            | Phase::Resting { .. }
            | Phase::Deleting { .. }
            | Phase::Gone { .. } => Sandbox::Unasked,
        };
        if let Cause::Killed(cause) = &termination.cause {
            tell_chosen(cause, out);
        }
        for container in &mut self.containers {
            container.give_up_starting(out);
        }
        self.restarting_all = false;
        termination.barrier = match termination.cause {
            // Its mains are done: nobody can connect to it any more.
            Cause::Completed => Barrier::none(),
            Cause::Deleted | Cause::Killed(_) | Cause::DeadlineExceeded | Cause::Declared | Cause::Rejected { .. } => {
                let around = around(now, &termination, &self.drain, self.routes, &self.containers);
                Barrier::begin(&around, out)
            }
        };
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
            Input::SandboxLost { instance } => {
                if self.awaiting_start(&instance).is_some() {
                    let (gone, deadline) = (RuntimeReport::default(), self.deadline());
                    for container in &mut self.containers {
                        container.reattach(now, &gone, deadline, out);
                    }
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
            Input::SignalAnswered { instance, signal, delivery } => {
                self.signal_answered(now, &instance, (signal, delivery), out);
            }
            Input::KillFailed { instance, message } => self.kill_failed(now, &instance, &message, out),
            Input::ProbeChanged { instance, probe, passing } => {
                if let Some(container) = self.current(&instance) {
                    // Only readiness still counts: nobody is restarted on the way out.
                    container.probe_changed(probe, passing);
                }
            }
            Input::SandboxReady => self.set_ending_sandbox(Sandbox::Ready),
            Input::SandboxFailed { message: _ } | Input::VolumeFailed { message: _ } => {
                self.set_ending_sandbox(Sandbox::Unasked)
            }
            Input::DeleteRequested { grace, sighting } => self.also(|leaving| {
                leaving.also_deleted(now, grace, sighting);
                // Without any grace it is a force delete, whose object follows.
                leaving.forced |= grace.is_zero();
            }),
            Input::ObjectGone => self.also(|leaving| {
                leaving.also_forced(now);
                leaving.forced = true;
            }),
            Input::KillRequested { cause, grace } => self.also(|leaving| {
                let before = leaving.budget.deadline();
                leaving.also_killed(now, &cause, grace);
                if leaving.budget.deadline() < before {
                    tell_chosen(&cause, out);
                }
            }),
            Input::TerminalPhaseSeen { succeeded } => {
                self.also(|leaving| leaving.declared = leaving.declared.or(Some(terminal_phase(succeeded))));
            }
            Input::Traffic(TrafficNews::Routed(routes)) => self.routes = routes,
            Input::Traffic(news) => {
                let enough = self.drain.enough;
                self.also(|leaving| leaving.barrier.told(now, enough, news, out));
            }
            Input::AgentRestarted { report } => self.reattach_ending(now, &report, out),
            Input::GenerationSeen { generation } => self.generation = Some(generation),
            Input::KillAwaited { ticket } => self.kill_awaited(now, ticket, out),
            Input::Rebooted { was } => self.rebase(Shift { was, is: now }),
            // Nothing is run that was not run before, whatever the spec says now, and nothing is refused any more;
            // told twice; pulls that were given up; the removal of a sandbox that was being replaced (it is
            // removed again); answers to a DELETE that was not asked yet; wakes (`advance_ending` looks).
            Input::SpecChanged { .. }
            | Input::Rejected { .. }
            | Input::Begin
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
        let Phase::Ending { termination, sandbox } = &mut self.phase else { return };
        let (deadline, being_made) = (termination.budget.deadline(), sandbox.is_being_made());
        let around = around(now, termination, &self.drain, self.routes, &self.containers);
        let mut pace = Pace::OnTime;
        termination.barrier.advance(&around, out);
        if termination.barrier.was_cut_short() {
            pace = Pace::Hurried;
        }
        let gate = match termination.barrier.is_open() {
            false => Gate::Shut,
            true => Gate::Open { without_sleep: self.drain.elide_sleep && termination.barrier.makes_sleep_pointless() },
        };
        for container in &mut self.containers {
            container.begin_stop(deadline, |name| format!("Stopping container {name}"), out);
            pace = pace.max(container.leave_gate(now, Some(deadline), gate, out));
        }
        for index in 0..self.containers.len() {
            let its_turn = self.is_its_turn(index);
            pace = pace.max(self.containers[index].advance_stop(now, Some(deadline), its_turn, out));
        }
        self.also(|leaving| leaving.at_least(pace));
        // A sandbox in the making is waited for, so that making and removing it do not race; but not for ever. Nor is
        // a start that nobody answers: whatever it made goes with the sandbox.
        let unanswered_until = deadline + LEAST_NOTICE;
        let holds = |container: &Container| match container.run {
            Run::Asked(_) => now < unanswered_until,
            Run::Running(_) => true,
            Run::Unstarted | Run::Waiting { .. } | Run::Ended => false,
        };
        if (!being_made || now >= deadline) && !self.containers.iter().any(holds) {
            let Phase::Ending { termination, .. } = core::mem::replace(&mut self.phase, Phase::New) else { return };
            out.push(Effect::RemoveSandbox);
            self.phase = Phase::Clearing { termination, removal: RetriedRequest::asked(now) };
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
    pub(crate) fn ending_wakes(&self, wakes: &mut Soonest) {
        let Phase::Ending { termination, sandbox } = &self.phase else { return };
        let deadline = termination.budget.deadline();
        // The moment is not asked for: a wake does not depend on when it is looked at.
        let around = around(Moment::default(), termination, &self.drain, self.routes, &self.containers);
        termination.barrier.wakes(&around, wakes);
        let anyone_runs = self.containers.iter().any(|container| matches!(container.run, Run::Running(_)));
        for container in &self.containers {
            let name = &container.spec.name;
            match &container.run {
                Run::Running(running) => {
                    if let Some(stop) = &running.stop {
                        stop.wakes(name, Some(deadline), wakes);
                    }
                }
                // While somebody runs it changes nothing whether somebody else might.
                Run::Asked(_) if anyone_runs => {}
                Run::Asked(_) => {
                    wakes.consider(deadline + LEAST_NOTICE, || WakeReason::StartUnanswered(name.clone()));
                }
                Run::Unstarted | Run::Waiting { .. } | Run::Ended => {}
            }
        }
        // Past the deadline a sandbox in the making keeps nobody; only a start that was not answered still does.
        if sandbox.is_being_made() && !self.containers.iter().any(|container| container.may_be_alive()) {
            wakes.consider(deadline, || WakeReason::GraceSpent);
        }
    }

    /// Which step keeps a pod from being gone, in words.
    pub(crate) fn blocking_step(&self) -> String {
        let waiting = self.containers.iter().find_map(|container| match &container.run {
            Run::Running(running) => {
                let step = running.stop.as_ref().map_or("running", |stop| stop.waits_for());
                Some(format!("container {} is {step}", container.spec.name))
            }
            Run::Asked(_) => Some(format!("the start of container {} was not answered", container.spec.name)),
            Run::Unstarted | Run::Waiting { .. } | Run::Ended => None,
        });
        match &self.phase {
            Phase::Clearing { removal, .. } if removal.has_failed() => "its sandbox could not be removed".into(),
            Phase::Clearing { .. } => "its sandbox is still being removed".into(),
            Phase::Deleting { delete, .. } if delete.has_failed() => "its object could not be deleted".into(),
            Phase::Deleting { .. } => "its object is still being deleted".into(),
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
