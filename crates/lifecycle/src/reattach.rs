//! The agent came back: what the worker remembers meets what the runtime knows.
//!
//! The worker was rebuilt from its journal, so it knows everything that was asked, but not whether the last asks
//! were carried out. What the runtime knows counts as seen. What it does not know was never done and is asked again,
//! or, if it ran before, is lost. Deadlines are not touched, hooks that ended or still run are not run again, and
//! signals that were answered are not repeated. Being told twice does no harm.

use alloc::vec::Vec;

use crate::budget::LEAST_GRACE;
use crate::container::{Asked, Container, EndedRun, LOST_STARTING, Run};
use crate::image::WantedImage;
use crate::phase::{Phase, Sandbox};
use crate::restart::RetriedRequest;
use crate::restart_rules::Verdict;
use crate::termination::Termination;
use crate::{
    Effect, Event, EventKind, HookKind, HookReport, Instance, Moment, PodWorker, Role, RuntimeReport, SeenContainer,
    Waiting,
};

impl PodWorker {
    /// A living pod meets the runtime again.
    pub(crate) fn reattach_living(&mut self, now: Moment, report: &RuntimeReport, out: &mut Vec<Effect>) {
        let (policy, deadline) = (self.restart, now + self.grace.max(LEAST_GRACE));
        for container in &mut self.containers {
            if let Some(ended) = container.reattach(now, report, None, out) {
                let verdict = container.restart_if_due(now, policy, ended, &self.identity, out);
                self.restarting_all |= verdict == Verdict::AllRunAgain;
            }
            container.stop_if_outdated(deadline, out);
        }
        for HookReport { instance, kind, outcome } in &report.hooks {
            if let Some(outcome) = outcome {
                self.hook_finished(now, instance, *kind, outcome.clone(), out);
            }
        }
        if self.is_complete() {
            self.begin_ending(now, Termination::completed(now, self.grace), out);
            self.reattach_ending_sandbox(report);
            return;
        }
        if self.end_if_active_too_long(now, out) {
            self.reattach_ending_sandbox(report);
            return;
        }
        for container in &mut self.containers {
            container.image.reattach(WantedImage { container: &container.spec.name, edition: container.edition }, out);
        }
        self.reattach_detour(out);
        let Phase::Living { sandbox } = &mut self.phase else { return };
        match (&mut *sandbox, report.sandbox) {
            // It may be there, and something else that it needs may not: that is for whoever makes it to say.
            (Sandbox::Asked(errand), _) => {
                errand.asked_anew(now);
                out.push(Effect::CreateSandbox);
            }
            (Sandbox::Ready, false) => {
                *sandbox = Sandbox::Replacing(RetriedRequest::asked(now));
                self.start_over(out);
            }
            (Sandbox::Replacing(errand), _) => {
                errand.asked_anew(now);
                out.push(Effect::RemoveSandbox);
            }
            (Sandbox::Ready, true) | (Sandbox::Unasked, _) => {}
        }
    }

    /// A pod on its way out meets the runtime again.
    pub(crate) fn reattach_ending(&mut self, now: Moment, report: &RuntimeReport, out: &mut Vec<Effect>) {
        let deadline = self.deadline();
        for container in &mut self.containers {
            container.reattach(now, report, deadline, out);
        }
        for HookReport { instance, kind, outcome } in &report.hooks {
            if let (Some(outcome), Some(container)) = (outcome, self.current(instance)) {
                container.hook_finished(*kind, outcome.clone(), out);
            }
        }
        self.reattach_ending_sandbox(report);
        if let Some(termination) = self.phase.termination() {
            termination.barrier.reattach(out);
        }
    }

    /// Whoever was making a sandbox is gone; what it left is removed with the rest.
    fn reattach_ending_sandbox(&mut self, report: &RuntimeReport) {
        if let Phase::Ending { sandbox, .. } = &mut self.phase {
            *sandbox = if report.sandbox { Sandbox::Ready } else { Sandbox::Unasked };
        }
    }

    /// The sandbox died under a living pod, whose agent did not. It may have died of a start, so whoever was being
    /// started waits as after a start that failed.
    pub(crate) fn sandbox_lost(&mut self, now: Moment, out: &mut Vec<Effect>) {
        let Phase::Living { sandbox: sandbox @ Sandbox::Ready } = &mut self.phase else { return };
        *sandbox = Sandbox::Replacing(RetriedRequest::asked(now));
        let (policy, gone) = (self.restart, RuntimeReport::default());
        for container in &mut self.containers {
            let was_asked = matches!(container.run, Run::Asked(_));
            if let Some(ended) = container.reattach(now, &gone, None, out) {
                let verdict = container.restart_if_due(now, policy, ended, &self.identity, out);
                self.restarting_all |= verdict == Verdict::AllRunAgain;
            }
            if was_asked {
                container.wait_after_failed_start(
                    now,
                    Waiting { reason: "CreateContainerError".into(), message: Some(LOST_STARTING.into()) },
                );
            }
        }
        self.start_over(out);
    }

    /// The sandbox is lost: what remains is removed, and the pod starts over from its first init container.
    fn start_over(&mut self, out: &mut Vec<Effect>) {
        out.push(Effect::RemoveSandbox);
        out.push(Effect::Emit(Event {
            container: None,
            kind: EventKind::Normal,
            reason: "SandboxChanged".into(),
            message: "Pod sandbox changed, it will be killed and re-created.".into(),
        }));
        self.initialized = false;
        for container in &mut self.containers {
            if container.spec.role == Role::Init && matches!(container.run, Run::Ended) && container.ended_well() {
                container.run = Run::Unstarted;
            }
        }
    }
}

impl Container {
    /// Takes over what the runtime knows; `deadline` is that of a pod that is leaving. Returns what the run left behind
    /// if it turns out to be over.
    pub(crate) fn reattach(
        &mut self,
        now: Moment,
        report: &RuntimeReport,
        deadline: Option<Moment>,
        out: &mut Vec<Effect>,
    ) -> Option<EndedRun> {
        let terminating = deadline.is_some();
        let seen = self.seen_in(report);
        match (&self.run, seen) {
            // The journal does not know this run at all: it is taken over as it is.
            (Run::Unstarted | Run::Waiting { .. }, Some((attempt, SeenContainer::Running { wall }))) => {
                self.take_over(attempt);
                self.started(now, *wall, false, out);
                None
            }
            (Run::Unstarted | Run::Waiting { .. }, Some((attempt, SeenContainer::Exited { exit }))) => {
                self.take_over(attempt);
                self.run = Run::Asked(Asked::at(now));
                self.exited(now, *exit, out)
            }
            (Run::Unstarted | Run::Waiting { .. } | Run::Ended, None)
            | (Run::Ended, Some((_, SeenContainer::Running { .. }))) => None,
            (Run::Asked(_), Some((_, SeenContainer::Running { wall }))) => {
                self.started(now, *wall, !terminating, out);
                None
            }
            // It was never started; a living pod asks again.
            (Run::Asked(_), None) if report.sandbox => {
                self.run = if terminating && self.newest.is_some() { Run::Ended } else { Run::Unstarted };
                None
            }
            // Nobody can say whether it was. As long as nothing is known to have run the restart policy has no say: a
            // living pod asks again, for a run of another number, which no late word of this one is taken for.
            (Run::Asked(_), None) => {
                self.lost(now, terminating, out);
                self.run = if terminating { Run::Ended } else { Run::Unstarted };
                None
            }
            (Run::Asked(_) | Run::Running(_) | Run::Ended, Some((_, SeenContainer::Exited { exit }))) => {
                self.exited(now, *exit, out)
            }
            (Run::Running(_), Some((_, SeenContainer::Running { .. }))) => {
                self.reattach_hooks(now, report, deadline, out);
                None
            }
            (Run::Running(_), None) => Some(self.lost(now, terminating, out)),
        }
    }

    /// What the report says of the run in question: the current one, or a newer one if none is current.
    fn seen_in<'a>(&self, report: &'a RuntimeReport) -> Option<(u32, &'a SeenContainer)> {
        let wanted = |instance: &Instance| match self.run {
            Run::Asked(_) | Run::Running(_) | Run::Ended => self.is(instance),
            Run::Unstarted | Run::Waiting { .. } => {
                instance.name == self.spec.name && instance.attempt >= self.next_attempt()
            }
        };
        report
            .containers
            .iter()
            .filter(|container| wanted(&container.instance))
            // Without a sandbox nobody can speak to a process: it is as good as lost.
            .filter(|container| report.sandbox || matches!(container.seen, SeenContainer::Exited { .. }))
            .max_by_key(|container| container.instance.attempt)
            .map(|container| (container.instance.attempt, &container.seen))
    }

    fn reattach_hooks(&mut self, now: Moment, report: &RuntimeReport, deadline: Option<Moment>, out: &mut Vec<Effect>) {
        let instance = self.instance();
        let known = |kind: HookKind| report.hooks.iter().find(|hook| hook.instance == instance && hook.kind == kind);
        if let Run::Running(running) = &mut self.run
            && let (Some(run), Some(hook), None) =
                (&mut running.post_start, self.spec.post_start, known(HookKind::PostStart))
            && run.resume(hook)
        {
            out.push(Effect::RunHook { instance: instance.clone(), kind: HookKind::PostStart });
        }
        self.reattach_stop(now, known(HookKind::PreStop), deadline, out);
    }
}
