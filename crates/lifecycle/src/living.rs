//! A pod that comes up and serves: images, sandbox, init containers in order, then mains; restarts by policy.
//!
//! The first images are pulled while the sandbox is made, each other one when it is its container's turn; a container starts when it
//! has both. Mains start together, except that one with a postStart hook holds back those after it until the hook is through.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use crate::budget::LEAST_GRACE;
use crate::container::{Asked, Container, EndedRun, Run};
use crate::image::{Image, WantedImage};
use crate::phase::{Phase, Sandbox};
use crate::reboot::Shift;
use crate::restart::{ERROR_SHOWN, RetriedRequest};
use crate::restart_rules::Verdict;
use crate::stop::Gate;
use crate::termination::{Termination, terminal_phase};
use crate::wake::Soonest;
use crate::{
    ContainerName, Effect, Event, HookKind, HookOutcome, Input, Instance, Moment, PodIdentity, PodWorker, Probe,
    RestartPolicy, Role, SpecChange, Waiting, WakeReason, Wall,
};

impl PodWorker {
    /// The pod is to be run: everything that does not depend on anything else is asked for at once.
    pub(crate) fn begin_living(&mut self, now: Moment, out: &mut Vec<Effect>) {
        self.began_at = Some(now);
        // What was found to have run to its end is not begun again.
        if self.is_complete() {
            self.begin_ending(now, Termination::completed(now, self.grace), out);
            return;
        }
        out.push(Effect::CreateSandbox);
        self.phase = Phase::Living { sandbox: Sandbox::Asked(RetriedRequest::asked(now)) };
    }

    /// A living pod is told something.
    pub(crate) fn handle_living(&mut self, now: Moment, input: Input, out: &mut Vec<Effect>) {
        // Nothing is begun for a pod whose time is over; but an exit that made it complete goes first.
        // On the clock of another boot nothing can be compared yet.
        if !matches!(input, Input::Exited { .. } | Input::AgentRestarted { .. } | Input::Rebooted { .. })
            && self.end_if_active_too_long(now, out)
        {
            return self.handle_ending(now, input, out);
        }
        match input {
            Input::ImageReady { container, edition, stop_signal } => {
                if let Some(container) = self.wanting(&container, edition) {
                    container.image_ready(stop_signal);
                }
            }
            Input::ImageFailed { container, edition, reason, message } => {
                if let Some(container) = self.wanting(&container, edition) {
                    container.image.failed(&container.spec.name, now, reason, message, out);
                }
            }
            Input::SandboxReady => self.sandbox_ready(),
            Input::SandboxFailed { message } => {
                self.sandbox_failed(
                    now,
                    "FailedCreatePodSandBox",
                    format!("Failed to create pod sandbox: {message}"),
                    out,
                );
            }
            Input::VolumeFailed { message } => self.sandbox_failed(now, "FailedMount", message, out),
            Input::SandboxRemoved => self.sandbox_replaced(now, out),
            Input::SandboxRemovalFailed { message: _ } => {
                if let Phase::Living { sandbox: Sandbox::Replacing(errand) } = &mut self.phase {
                    errand.failed(now);
                }
            }
            Input::Started { instance, wall } => self.started(now, &instance, wall, out),
            Input::StartFailed { instance, reason, message } => {
                self.start_failed(now, &instance, reason, message, out);
            }
            Input::SandboxLost { instance } => {
                if self.awaiting_start(&instance).is_some() {
                    self.sandbox_lost(now, out);
                }
            }
            Input::Exited { instance, exit } => {
                let policy = self.restart;
                if let Some(container) = self.containers.iter_mut().find(|container| container.is(&instance))
                    && let Some(ended) = container.exited(now, exit, out)
                {
                    let verdict = container.restart_if_due(now, policy, ended, &self.identity, out);
                    self.restarting_all |= verdict == Verdict::AllRunAgain;
                    // Whoever should have seen the end is gone, and the sandbox with it: nothing can start there.
                    if !exit.seen && !matches!(container.run, Run::Ended) {
                        self.sandbox_lost(now, out);
                    }
                }
            }
            Input::HookFinished { instance, kind, outcome } => self.hook_finished(now, &instance, kind, outcome, out),
            Input::SignalAnswered { instance, signal, delivery } => {
                self.signal_answered(now, &instance, (signal, delivery), out);
            }
            Input::KillFailed { instance, message } => self.kill_failed(now, &instance, &message, out),
            Input::ProbeChanged { instance, probe, passing } => self.probe_changed(now, &instance, probe, passing, out),
            Input::DeleteRequested { grace, sighting } => {
                self.begin_ending(now, Termination::deleted(now, grace, sighting), out);
            }
            Input::ObjectGone => self.begin_ending(now, Termination::forced(now), out),
            Input::KillRequested { cause, grace } => {
                self.begin_ending(now, Termination::killed(now, cause, grace, self.grace), out);
            }
            Input::TerminalPhaseSeen { succeeded } => {
                let phase = terminal_phase(succeeded);
                self.begin_ending(now, Termination::declared(now, self.grace, phase), out);
            }
            Input::Rejected { reason, message } => self.rejected(now, reason, message, out),
            Input::SpecChanged { change } => self.spec_changed(now, change, out),
            Input::GenerationSeen { generation } => self.generation = Some(generation),
            Input::KillAwaited { ticket } => self.kill_awaited(now, ticket, out),
            Input::Traffic(news) => self.living_traffic(news),
            Input::Rebooted { was } => self.rebase(Shift { was, is: now }),
            Input::AgentRestarted { report } => self.reattach_living(now, &report, out),
            // Told twice; answers to a DELETE that was never asked; wakes (`advance_living` looks).
            Input::Begin | Input::ObjectDeleted | Input::ObjectDeleteFailed { .. } | Input::TimePassed => {}
        }
    }

    /// Does what is due and what has become possible; moves on when the pod is done.
    pub(crate) fn advance_living(&mut self, now: Moment, out: &mut Vec<Effect>) {
        if self.is_complete() {
            self.begin_ending(now, Termination::completed(now, self.grace), out);
            return;
        }
        if self.end_if_active_too_long(now, out) {
            return;
        }
        self.give_up_detour_of_the_last(out);
        let restarts_all = self.advance_restart_of_all(now, out);
        self.pull_what_comes_next(now, out);
        let gate = if self.detour.holds(now) { Gate::Shut } else { Gate::Open { without_sleep: false } };
        for container in &mut self.containers {
            container.image.advance(
                WantedImage { container: &container.spec.name, edition: container.edition },
                now,
                out,
            );
            container.advance_post_start(now);
            container.leave_gate(now, None, gate, out);
            container.advance_stop(now, None, true, out);
            container.end_back_off(now);
            container.ask_again_if_unanswered(now, out);
        }
        self.advance_detour(now, out);
        let Phase::Living { sandbox } = &mut self.phase else { return };
        match sandbox {
            Sandbox::Asked(errand) => {
                if errand.take_due(now) {
                    out.push(Effect::CreateSandbox);
                }
            }
            Sandbox::Replacing(errand) => {
                if errand.take_due(now) {
                    out.push(Effect::RemoveSandbox);
                }
            }
            Sandbox::Ready if !restarts_all => self.start_what_may_start(now, out),
            Sandbox::Ready => {}
            Sandbox::Unasked => {}
        }
    }

    /// When there is something to do about a living pod.
    pub(crate) fn living_wakes(&self, wakes: &mut Soonest) {
        let Phase::Living { sandbox } = &self.phase else { return };
        sandbox.wakes(wakes);
        self.detour.wakes(wakes);
        if let Some(until) = self.active_until() {
            wakes.consider(until, || WakeReason::ActiveDeadline);
        }
        for container in &self.containers {
            container.image.wakes(&container.spec.name, wakes);
            container.living_wakes(wakes);
        }
    }

    /// Until when it may be active.
    fn active_until(&self) -> Option<Moment> {
        self.began_at
            .zip(self.active_deadline)
            .map(|(began, deadline)| began + deadline.saturating_sub(self.active_before))
    }

    /// Ends a pod that was active for longer than it may be; true if it was.
    pub(crate) fn end_if_active_too_long(&mut self, now: Moment, out: &mut Vec<Effect>) -> bool {
        if self.active_until().is_none_or(|until| now < until) {
            return false;
        }
        let message = "Pod was active on the node longer than the specified deadline";
        out.push(Effect::Emit(Event::pod_normal("DeadlineExceeded", message.into())));
        self.begin_ending(now, Termination::overdue(now, self.grace), out);
        true
    }

    /// The node will not have this pod: what runs of it leaves with its full grace.
    pub(crate) fn rejected(&mut self, now: Moment, reason: String, message: String, out: &mut Vec<Effect>) {
        out.push(Effect::Emit(Event::pod_warning(&reason, message.clone())));
        self.begin_ending(now, Termination::rejected(now, self.grace, reason, message), out);
    }

    fn spec_changed(&mut self, now: Moment, change: SpecChange, out: &mut Vec<Effect>) {
        match change {
            SpecChange::ActiveDeadline { deadline } => self.active_deadline = deadline,
            SpecChange::Ephemeral { spec } => {
                if self.named(&spec.name).is_none() {
                    let mut container = Container::new(spec);
                    container.image.pull(
                        WantedImage { container: &container.spec.name, edition: container.edition },
                        now,
                        out,
                    );
                    self.containers.push(container);
                }
            }
            SpecChange::Image { container } => self.image_changed(now, &container, out),
            SpecChange::Resources { container } => self.resources_changed(now, &container, out),
        }
    }

    /// One that does not run is given what it is to have by its start.
    fn resources_changed(&mut self, now: Moment, name: &ContainerName, out: &mut Vec<Effect>) {
        let grace = self.grace.max(LEAST_GRACE);
        let Some(container) = self.named(name) else { return };
        let Run::Running(running) = &mut container.run else { return };
        if matches!(container.spec.role, Role::Init | Role::Ephemeral) {
            return;
        }
        // Also if it is ending for another reason: what it was to be given it gets by another run.
        running.replaced = true;
        if running.stop.is_some() {
            return;
        }
        container.begin_stop(now + grace, |name| format!("Container {name} resize requires restart"), out);
        self.ask_for_detour(now, grace, out);
    }

    fn image_changed(&mut self, now: Moment, name: &ContainerName, out: &mut Vec<Effect>) {
        let grace = self.grace.max(LEAST_GRACE);
        let Some(container) = self.named(name).filter(|container| !matches!(container.run, Run::Ended)) else { return };
        container.pull_another_image(now, out);
        match (container.spec.role, &mut container.run) {
            // A run to completion is not begun anew for another image.
            (Role::Init | Role::Ephemeral, _) => {}
            (Role::Main | Role::Sidecar, Run::Running(_)) => {
                container.replace(now + grace, out);
                self.ask_for_detour(now, grace, out);
            }
            (Role::Main | Role::Sidecar, Run::Asked(asked)) => asked.outdated = true,
            (Role::Main | Role::Sidecar, Run::Unstarted | Run::Waiting { .. } | Run::Ended) => {}
        }
    }

    fn started(&mut self, now: Moment, instance: &Instance, wall: Wall, out: &mut Vec<Effect>) {
        let grace = self.grace.max(LEAST_GRACE);
        let Some(container) = self.awaiting_start(instance) else { return };
        container.started(now, wall, true, out);
        container.stop_if_outdated(now + grace, out);
    }

    /// Nothing remains to be run: all mains ended for good, or an init container did and not well.
    pub(crate) fn is_complete(&self) -> bool {
        let ended = |container: &Container| matches!(container.run, Run::Ended);
        let mut mains = self.containers.iter().filter(|container| container.spec.role == Role::Main).peekable();
        let mains_done = mains.peek().is_some() && mains.all(ended);
        let init_failed = self
            .containers
            .iter()
            .any(|container| container.spec.role == Role::Init && ended(container) && !container.ended_well());
        mains_done || init_failed
    }

    /// Asks for the image of each container whose time has come: that of a main container may depend on what its pod's init
    /// containers do, and is not needed if they fail.
    fn pull_what_comes_next(&mut self, now: Moment, out: &mut Vec<Effect>) {
        // Whoever looks into a pod that does not come up cannot wait until it has.
        for container in self.containers.iter_mut().filter(|container| container.spec.role == Role::Ephemeral) {
            container.pull_if_unwanted(now, out);
        }
        for container in &mut self.containers {
            container.pull_if_unwanted(now, out);
            let holds_back = match container.spec.role {
                Role::Init => !matches!(container.run, Run::Ended),
                Role::Sidecar => !self.initialized && !container.is_started(),
                Role::Main | Role::Ephemeral => false,
            };
            if holds_back {
                return;
            }
        }
    }

    /// Walks the containers in their order and asks for each one whose time has come.
    fn start_what_may_start(&mut self, now: Moment, out: &mut Vec<Effect>) {
        // Whoever looks into a pod that does not come up cannot wait until it has.
        for container in self.containers.iter_mut().filter(|container| container.spec.role == Role::Ephemeral) {
            container.start_if_waiting(now, out);
        }
        for container in &mut self.containers {
            match container.spec.role {
                Role::Init => {
                    container.start_if_waiting(now, out);
                    if !matches!(container.run, Run::Ended) {
                        return;
                    }
                }
                Role::Sidecar => {
                    container.start_if_waiting(now, out);
                    if !self.initialized && !container.is_started() {
                        return;
                    }
                }
                Role::Ephemeral => {}
                Role::Main => {
                    self.initialized = true;
                    container.start_if_waiting(now, out);
                    if container.holds_back_others() {
                        return;
                    }
                }
            }
        }
    }

    fn start_failed(
        &mut self,
        now: Moment,
        instance: &Instance,
        reason: String,
        message: String,
        out: &mut Vec<Effect>,
    ) {
        let policy = self.restart;
        let waits = |container: &&mut Container| container.is(instance) && matches!(container.run, Run::Asked(_));
        let Some(container) = self.containers.iter_mut().find(waits) else { return };
        let (attempt, outdated) = (container.attempt, container.is_outdated());
        container.start_failed(&reason, &message, out);
        // Its end is a `StartError`; what it waits for has another name.
        let reason = if reason == "StartError" { "RunContainerError".into() } else { reason };
        let shown = Waiting { reason, message: Some(message) };
        if container.newest.as_ref().is_some_and(|newest| newest.attempt == attempt) {
            let ended = EndedRun::unseen(Some(shown), outdated);
            let verdict = container.restart_if_due(now, policy, ended, &self.identity, out);
            self.restarting_all |= verdict == Verdict::AllRunAgain;
        } else {
            // Nothing ran, so the restart policy has no say: it is tried again until it works.
            container.wait_after_failed_start(now, shown);
        }
    }

    pub(crate) fn hook_finished(
        &mut self,
        now: Moment,
        instance: &Instance,
        kind: HookKind,
        outcome: HookOutcome,
        out: &mut Vec<Effect>,
    ) {
        let grace = self.grace.max(LEAST_GRACE);
        let Some(container) = self.current(instance) else { return };
        if let Some(message) = container.hook_finished(kind, outcome, out) {
            if let Run::Running(running) = &mut container.run {
                running.blame = Some(Waiting { reason: "PostStartHookError".into(), message: Some(message) });
            }
            container.begin_stop(now + grace, |_| "FailedPostStartHook".into(), out);
        }
    }

    fn probe_changed(&mut self, now: Moment, instance: &Instance, probe: Probe, passing: bool, out: &mut Vec<Effect>) {
        let (grace, policy) = (self.grace, self.restart);
        let Some(container) = self.current(instance) else { return };
        let Some(failed) = container.probe_changed(probe, passing) else { return };
        let (word, own_grace) = match failed {
            Probe::Liveness => ("liveness", container.spec.probes.liveness_grace),
            Probe::Startup => ("startup", container.spec.probes.startup_grace),
            Probe::Readiness => ("readiness", None),
        };
        let grace = own_grace.unwrap_or(grace).max(LEAST_GRACE);
        let (role, restarts) = (container.spec.role, container.policy(policy) != RestartPolicy::Never);
        let killing = |name: &ContainerName| match (role, restarts) {
            (Role::Init | Role::Sidecar, _) => format!("Init container {name} failed {word} probe"),
            (Role::Main | Role::Ephemeral, false) => format!("Container {name} failed {word} probe"),
            (Role::Main | Role::Ephemeral, true) => format!("Container {name} failed {word} probe, will be restarted"),
        };
        container.begin_stop(now + grace, killing, out);
        self.ask_for_detour(now, grace, out);
    }

    fn sandbox_ready(&mut self) {
        if let Phase::Living { sandbox: sandbox @ Sandbox::Asked(_) } = &mut self.phase {
            *sandbox = Sandbox::Ready;
        }
    }

    fn sandbox_failed(&mut self, now: Moment, reason: &str, message: String, out: &mut Vec<Effect>) {
        if let Phase::Living { sandbox: Sandbox::Asked(errand) } = &mut self.phase {
            errand.failed(now);
            out.push(Effect::Emit(Event::pod_warning(reason, message)));
        }
    }

    /// What remained of a lost sandbox is gone: a new one may be made.
    fn sandbox_replaced(&mut self, now: Moment, out: &mut Vec<Effect>) {
        if let Phase::Living { sandbox: sandbox @ Sandbox::Replacing(_) } = &mut self.phase {
            *sandbox = Sandbox::Asked(RetriedRequest::asked(now));
            out.push(Effect::CreateSandbox);
        }
    }
}

impl Container {
    /// Another image was asked for while it was being started.
    fn is_outdated(&self) -> bool {
        matches!(self.run, Run::Asked(Asked { outdated: true, .. }))
    }

    /// Another image was asked for while it was being started, and it runs by now.
    pub(crate) fn stop_if_outdated(&mut self, deadline: Moment, out: &mut Vec<Effect>) {
        if matches!(&self.run, Run::Running(running) if running.replaced) {
            self.replace(deadline, out);
        }
    }

    /// Stops it, so that it runs again from another image.
    fn replace(&mut self, deadline: Moment, out: &mut Vec<Effect>) {
        if let Run::Running(running) = &mut self.run {
            running.replaced = true;
        }
        let is_main = self.spec.role == Role::Main;
        let killing = |name: &ContainerName| {
            if is_main {
                format!("Container {name} definition changed, will be restarted")
            } else {
                format!("Init container {name} definition changed")
            }
        };
        self.begin_stop(deadline, killing, out);
    }

    /// Its newest run ended with exit code 0.
    pub(crate) fn ended_well(&self) -> bool {
        self.newest.as_ref().is_some_and(|newest| newest.exit_code == 0)
    }

    /// Asks for its image if nobody did.
    fn pull_if_unwanted(&mut self, now: Moment, out: &mut Vec<Effect>) {
        let wanted = WantedImage { container: &self.spec.name, edition: self.edition };
        if self.image == Image::Unwanted && !matches!(self.run, Run::Ended) {
            self.image.pull(wanted, now, out);
        }
    }

    /// Sends a container that ended back to the start if its rules or its pod's policy want that.
    pub(crate) fn restart_if_due(
        &mut self,
        now: Moment,
        policy: RestartPolicy,
        ended: EndedRun,
        pod: &PodIdentity,
        out: &mut Vec<Effect>,
    ) -> Verdict {
        if ended.replaced {
            // Asked for, not crashed: no back-off, and no question of policy.
            self.run = Run::Unstarted;
            return Verdict::RunsAgain;
        }
        let verdict = self.verdict(policy);
        if verdict == Verdict::Stays {
            return verdict;
        }
        let (delay, name) = (self.back_off.after_run(ended.ran_for), &self.spec.name);
        if !delay.is_zero() {
            let message = format!("Back-off restarting failed container {name} in pod {pod}");
            out.push(Effect::Emit(Event::warning(name, "BackOff", message)));
        }
        let message = format!("back-off {} restarting failed container={name} pod={pod}", length(delay));
        let backs_off = |message| Waiting { reason: "CrashLoopBackOff".into(), message: Some(message) };
        let (shown, then) = match ended.blame {
            Some(blame) => {
                let why = blame.message.as_deref().unwrap_or_default();
                let message = format!("{message}: {}: {why}", blame.reason);
                (blame, Some((now + ERROR_SHOWN, backs_off(message))))
            }
            None => (backs_off(message), None),
        };
        self.run = Run::Waiting { until: now + delay, shown, then };
        verdict
    }

    /// Puts off the next start after one that did not succeed.
    pub(crate) fn wait_after_failed_start(&mut self, now: Moment, shown: Waiting) {
        self.run = Run::Waiting { until: now + self.back_off.after_failed_start(), shown, then: None };
    }

    /// A back-off that is over holds nobody, whatever else the container may still wait for.
    fn end_back_off(&mut self, now: Moment) {
        let Run::Waiting { until, shown, then } = &mut self.run else { return };
        if let Some((_, backs_off)) = then.take_if(|(at, _)| now >= *at) {
            *shown = backs_off;
        }
        if now >= *until {
            self.run = Run::Unstarted;
        }
    }

    fn start_if_waiting(&mut self, now: Moment, out: &mut Vec<Effect>) {
        if matches!(self.run, Run::Unstarted) && self.image.is_ready() {
            self.ask_to_start(now, out);
        }
    }

    /// With a postStart hook, those declared later wait until it is through (or the container is in trouble).
    fn holds_back_others(&self) -> bool {
        self.spec.post_start.is_some()
            && match &self.run {
                Run::Unstarted => self.image.is_coming(),
                Run::Asked(_) => true,
                Run::Running(running) => running.post_start.is_some(),
                Run::Waiting { .. } | Run::Ended => false,
            }
    }
}

/// A length of time as people know it from Kubernetes: `40s`, `2m40s`, `5m0s`.
fn length(duration: Duration) -> String {
    match (duration.as_secs() / 60, duration.as_secs() % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}
