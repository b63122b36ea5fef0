//! The worker: told facts and the time, answers with effects.
//!
//! Every input goes the same way: the phase takes in the fact (`handle_…`), then whatever time and the facts have
//! made possible is done (`advance_…`), and if the picture others see has changed they are shown the new one. How a
//! pod lives is in `living`, how it leaves in `termination` and `stop`, how it is cleared away in `departure`, and
//! how all of that survives the death of the agent in `reattach`. `phase` draws the whole.

use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

use crate::container::{Container, Run};
use crate::detour::Detour;
use crate::fingerprint::Fingerprint;
use crate::image::ANY_EDITION;
use crate::phase::Phase;
use crate::stop::Answered;
use crate::termination::{Cause, Object, Termination, terminal_phase};
use crate::waiter::Waiter;
use crate::wake::Soonest;
use crate::{
    ContainerName, Delivery, DrainSpec, Effect, Event, Input, Instance, KillCause, Moment, PodIdentity, PodSpec,
    PodStatus, RestartPolicy, Routes, Signal, TrafficNews, Wake, WakeReason,
};

/// Decides how one pod lives and leaves. Holds no handle to anything outside itself.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PodWorker {
    pub(crate) identity: PodIdentity,
    pub(crate) restart: RestartPolicy,
    pub(crate) grace: Duration,
    pub(crate) containers: Vec<Container>,
    /// Every init container has done its part since the sandbox was made.
    pub(crate) initialized: bool,
    /// One of its containers ended in a way that asks for all of them to be run again: they are stopped first.
    pub(crate) restarting_all: bool,
    pub(crate) active_deadline: Option<Duration>,
    /// When it was begun, if it was.
    pub(crate) began_at: Option<Moment>,
    /// How long it was active before this boot.
    pub(crate) active_before: Duration,
    pub(crate) drain: DrainSpec,
    pub(crate) routes: Routes,
    pub(crate) detour: Detour,
    pub(crate) generation: Option<i64>,
    pub(crate) waiters: Vec<Waiter>,
    pub(crate) phase: Phase,
    /// The machine was booted anew and nobody said yet what came through it: nothing is done before somebody does.
    blind: bool,
    /// The fingerprint of all the above as it was after the latest input.
    known: Fingerprint,
    /// And that of the status.
    shown: Fingerprint,
}

impl PodWorker {
    /// A worker for a pod that nothing has happened to yet.
    pub fn new(spec: PodSpec) -> Self {
        let mut worker = Self {
            identity: spec.identity,
            restart: spec.restart,
            grace: spec.grace,
            containers: spec.containers.into_iter().map(Container::new).collect(),
            initialized: false,
            restarting_all: false,
            active_deadline: spec.active_deadline,
            began_at: None,
            active_before: Duration::ZERO,
            drain: spec.drain,
            routes: Routes::default(),
            detour: Detour::None,
            generation: None,
            waiters: Vec::new(),
            phase: Phase::New,
            blind: false,
            known: Fingerprint::default(),
            shown: Fingerprint::default(),
        };
        worker.take_fingerprints();
        worker
    }

    /// Takes what it is now for known, and shown.
    pub(crate) fn take_fingerprints(&mut self) {
        self.known = Fingerprint::of(self);
        self.shown = Fingerprint::of(&self.view());
    }

    /// Nobody said yet what came through a boot of the machine.
    pub(crate) fn is_blind(&self) -> bool {
        self.blind
    }

    /// Tells the worker one thing that happened; returns what to do about it.
    pub fn handle(&mut self, now: Moment, input: Input) -> Vec<Effect> {
        // Most inputs change nothing, and then nothing is made: no status, no copy.
        let worth_showing = is_worth_showing(&input);
        self.blind = self.is_blind_after(&input);
        let mut effects = Vec::new();
        let out = &mut effects;
        match &self.phase {
            Phase::New => self.handle_new(now, input, out),
            Phase::Living { .. } => self.handle_living(now, input, out),
            Phase::Ending { .. } => self.handle_ending(now, input, out),
            Phase::Clearing { .. } => self.handle_clearing(now, input, out),
            Phase::Resting { .. } => self.handle_resting(now, input, out),
            Phase::Deleting { .. } => self.handle_deleting(now, input, out),
            Phase::Gone { .. } => self.handle_gone(now, &input, out),
        }
        if !self.blind {
            self.advance(now, out);
        }
        let known = Fingerprint::of(self);
        if worth_showing || known != self.known {
            let shown = Fingerprint::of(&self.view());
            if (worth_showing || shown != self.shown) && self.has_an_audience() {
                effects.push(Effect::PublishStatus);
            }
            (self.known, self.shown) = (known, shown);
        }
        effects
    }

    /// When to come back if nothing else happens, and why.
    pub fn next_wake(&self) -> Option<Wake> {
        if self.blind {
            return None;
        }
        let mut wakes = Soonest::default();
        self.living_wakes(&mut wakes);
        self.ending_wakes(&mut wakes);
        self.departure_wakes(&mut wakes);
        self.waiter_wakes(&mut wakes);
        if let Some(at) = self.phase.overdue_at() {
            wakes.consider(at, || WakeReason::Overdue);
        }
        wakes.into_wake()
    }

    /// What others may see.
    pub fn status(&self) -> PodStatus {
        self.view()
    }

    /// True of a container that has ended and is not run again.
    pub fn has_ended(&self, name: &ContainerName) -> bool {
        self.containers.iter().any(|container| container.spec.name == *name && matches!(container.run, Run::Ended))
    }

    /// True once it was told to begin, or to leave. Before, it may learn of this and that, and does nothing.
    pub fn has_begun(&self) -> bool {
        !matches!(self.phase, Phase::New)
    }

    /// True once termination was requested, by whomever, or the pod is done.
    pub fn is_terminating(&self) -> bool {
        self.phase.termination().is_some()
    }

    /// When the pod must be gone, once it is terminating.
    pub fn deadline(&self) -> Option<Moment> {
        self.phase.termination().map(|termination| termination.budget.deadline())
    }

    /// True once no process of the pod remains and its sandbox was seen to be gone.
    pub fn is_at_rest(&self) -> bool {
        match &self.phase {
            Phase::New | Phase::Living { .. } | Phase::Ending { .. } | Phase::Clearing { .. } => false,
            Phase::Resting { .. } | Phase::Deleting { .. } | Phase::Gone { .. } => true,
        }
    }

    /// False for a pod that was over before the node first saw it: what the API shows of it is better than what we
    /// could say.
    pub fn has_a_story(&self) -> bool {
        self.began_at.is_some() || self.phase.termination().is_none_or(|leaving| leaving.cause != Cause::Declared)
    }

    /// True once `Finish` was asked: the worker may be forgotten.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Gone { .. })
    }

    /// A pod that was never begun is told something.
    fn handle_new(&mut self, now: Moment, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::Begin => self.begin_living(now, out),
            Input::DeleteRequested { grace, sighting } => {
                self.begin_ending(now, Termination::deleted(now, grace, sighting), out);
            }
            Input::ObjectGone => self.begin_ending(now, Termination::forced(now), out),
            // A static pod that had to wait for its predecessor and is not wanted any more never was.
            Input::KillRequested { cause: cause @ KillCause::ConfigRemoved, grace } => {
                out.push(Effect::Finish);
                self.phase = Phase::Gone { termination: Termination::killed(now, cause, grace, self.grace) };
            }
            Input::KillRequested { cause, grace } => {
                self.begin_ending(now, Termination::killed(now, cause, grace, self.grace), out);
            }
            // It was over before we saw it: only what it may have left behind is cleared away.
            Input::TerminalPhaseSeen { succeeded } => {
                let phase = terminal_phase(succeeded);
                self.begin_ending(now, Termination::declared(now, self.grace, phase), out);
            }
            Input::Rejected { reason, message } => self.rejected(now, reason, message, out),
            Input::GenerationSeen { generation } => self.generation = Some(generation),
            Input::Traffic(TrafficNews::Routed(routes)) => self.routes = routes,
            Input::KillAwaited { ticket } => self.kill_awaited(now, ticket, out),
            // What runs of a pod that nobody ever asked us to run is known before somebody says what becomes of it.
            Input::AgentRestarted { report } => {
                for container in &mut self.containers {
                    container.reattach(now, &report, None, out);
                }
            }
            Input::Exited { instance, exit } => {
                if let Some(container) = self.current(&instance) {
                    container.exited(now, exit, out);
                }
            }
            // Nothing was asked yet, so nothing can be answered; nothing is remembered of time; the spec is read anew.
            Input::SpecChanged { .. }
            | Input::Traffic(_)
            | Input::Rebooted { .. }
            | Input::ImageReady { .. }
            | Input::ImageFailed { .. }
            | Input::SandboxReady
            | Input::SandboxFailed { .. }
            | Input::VolumeFailed { .. }
            | Input::Started { .. }
            | Input::StartFailed { .. }
            | Input::HookFinished { .. }
            | Input::SignalAnswered { .. }
            | Input::KillFailed { .. }
            | Input::ProbeChanged { .. }
            | Input::SandboxRemoved
            | Input::SandboxRemovalFailed { .. }
            | Input::ObjectDeleted
            | Input::ObjectDeleteFailed { .. }
            | Input::SandboxLost { .. }
            | Input::TimePassed => {}
        }
    }

    /// Does what time and facts have made possible. A phase that is done is followed by the next one at once.
    fn advance(&mut self, now: Moment, out: &mut Vec<Effect>) {
        if let Phase::Living { .. } = self.phase {
            self.advance_living(now, out);
        }
        if let Phase::Ending { .. } = self.phase {
            self.advance_ending(now, out);
        }
        self.advance_departure(now, out);
        self.advance_waiters(now, out);
        if self.phase.overdue_at().is_some_and(|at| now >= at) {
            let step = self.blocking_step();
            self.also(|leaving| leaving.tell_overdue(now, &step, out));
        }
    }

    /// Whether nobody said yet what of a pod with processes came through a boot of the machine. What the runtime still
    /// knows is told right after the boot itself.
    fn is_blind_after(&self, input: &Input) -> bool {
        let boots = matches!(input, Input::Rebooted { .. });
        let reports = matches!(input, Input::AgentRestarted { .. });
        let had_processes = matches!(self.phase, Phase::Living { .. } | Phase::Ending { .. });
        (self.blind && !reports) || (boots && had_processes)
    }

    /// Somebody may still look at the object: it exists, and the final DELETE (which stores the final status
    /// itself) was not asked.
    fn has_an_audience(&self) -> bool {
        match &self.phase {
            // Nobody said yet that it is ours to speak of.
            Phase::New => false,
            Phase::Living { .. } => true,
            Phase::Ending { termination, .. }
            | Phase::Clearing { termination, .. }
            | Phase::Resting { termination } => termination.object != Object::Gone && self.has_a_story(),
            Phase::Deleting { .. } | Phase::Gone { .. } => false,
        }
    }

    /// The container of that name.
    pub(crate) fn named(&mut self, name: &ContainerName) -> Option<&mut Container> {
        self.containers.iter_mut().find(|container| container.spec.name == *name)
    }

    /// The container of that name, if that is the image it is to run.
    pub(crate) fn wanting(&mut self, name: &ContainerName, edition: u32) -> Option<&mut Container> {
        self.named(name).filter(|container| edition == ANY_EDITION || container.edition == edition)
    }

    /// The container whose latest run is `instance`; news of older runs comes too late to matter.
    pub(crate) fn current(&mut self, instance: &Instance) -> Option<&mut Container> {
        self.containers.iter_mut().find(|container| container.is(instance))
    }

    /// The container whose start as `instance` was asked for and not answered.
    pub(crate) fn awaiting_start(&mut self, instance: &Instance) -> Option<&mut Container> {
        self.current(instance).filter(|container| matches!(container.run, Run::Asked(_)))
    }

    pub(crate) fn signal_answered(
        &mut self,
        now: Moment,
        instance: &Instance,
        (signal, delivery): (Signal, Delivery),
        out: &mut Vec<Effect>,
    ) {
        let pod_deadline = self.deadline();
        if let Some(container) = self.current(instance)
            && let Run::Running(running) = &mut container.run
            && let Some(stop) = &mut running.stop
        {
            stop.signal_answered(now, &Answered { name: &instance.name, signal, delivery }, pod_deadline, out);
        }
    }

    /// Whether this run is on its way out, alone or with its pod.
    pub fn is_stopping(&self, instance: &Instance) -> bool {
        let stops = |container: &Container| matches!(&container.run, Run::Running(running) if running.stop.is_some());
        self.containers.iter().any(|container| container.is(instance) && stops(container))
    }

    /// A KILL could not be sent: it is tried again, and people can see what is waited for.
    pub(crate) fn kill_failed(&mut self, now: Moment, instance: &Instance, message: &str, out: &mut Vec<Effect>) {
        let Some(container) = self.current(instance) else { return };
        let Run::Running(running) = &mut container.run else { return };
        if running.stop.as_mut().is_some_and(|stop| stop.kill_failed(now)) {
            let name = &instance.name.0;
            let failed = format!("failed to \"KillContainer\" for {name:?} with KillContainerError: {message:?}");
            out.push(Effect::Emit(Event::pod_warning("FailedKillPod", format!("error killing pod: {failed}"))));
            self.also(Termination::is_blocked);
        }
    }
}

/// Inputs after which the status is shown even if it reads the same: the API learns that they were seen.
fn is_worth_showing(input: &Input) -> bool {
    match input {
        Input::Begin | Input::DeleteRequested { .. } | Input::AgentRestarted { .. } => true,
        Input::ImageReady { .. }
        | Input::ImageFailed { .. }
        | Input::SandboxReady
        | Input::SandboxFailed { .. }
        | Input::VolumeFailed { .. }
        | Input::Started { .. }
        | Input::StartFailed { .. }
        | Input::Exited { .. }
        | Input::HookFinished { .. }
        | Input::SignalAnswered { .. }
        | Input::KillFailed { .. }
        | Input::SandboxLost { .. }
        | Input::ProbeChanged { .. }
        | Input::ObjectGone
        | Input::KillRequested { .. }
        | Input::SandboxRemoved
        | Input::SandboxRemovalFailed { .. }
        | Input::ObjectDeleted
        | Input::ObjectDeleteFailed { .. }
        | Input::SpecChanged { .. }
        | Input::GenerationSeen { .. }
        | Input::TerminalPhaseSeen { .. }
        | Input::Rejected { .. }
        | Input::KillAwaited { .. }
        | Input::Traffic(_)
        | Input::Rebooted { .. }
        | Input::TimePassed => false,
    }
}
