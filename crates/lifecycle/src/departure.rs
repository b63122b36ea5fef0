//! The quiet end: no process remains; the sandbox goes, then the object, then the worker.

use alloc::format;
use alloc::vec::Vec;

use crate::PodPhase::{Failed, Succeeded};
use crate::phase::Phase;
use crate::reboot::Shift;
use crate::restart::RetriedRequest;
use crate::termination::{Object, Termination, terminal_phase};
use crate::wake::Soonest;
use crate::{Effect, Event, Input, KillCause, Moment, PodWorker, SeenContainer, TrafficNews, WakeReason};

impl PodWorker {
    /// A pod without processes is told something while its sandbox is being removed.
    pub(crate) fn handle_clearing(&mut self, now: Moment, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::SandboxRemoved => self.depart(now, out),
            Input::SandboxRemovalFailed { message } => {
                let Phase::Clearing { removal, termination } = &mut self.phase else { return };
                removal.failed(now);
                termination.is_blocked();
                let uid = &self.identity.uid;
                let failed = format!("failed to \"KillPodSandbox\" for {uid:?} with KillPodSandboxError: {message:?}");
                let message = format!("error killing pod: {failed}");
                out.push(Effect::Emit(Event::pod_warning("FailedKillPod", message)));
            }
            Input::DeleteRequested { grace, sighting } => {
                self.also(|leaving| leaving.also_deleted(now, grace, sighting))
            }
            Input::ObjectGone => self.also(|leaving| leaving.also_forced(now)),
            Input::KillRequested { cause, grace } => self.also(|leaving| leaving.also_killed(now, &cause, grace)),
            // Unless ours is told already, whoever tells one first is right.
            Input::TerminalPhaseSeen { succeeded } if !matches!(self.view().phase, Succeeded | Failed) => {
                self.also(|leaving| leaving.declared = leaving.declared.or(Some(terminal_phase(succeeded))));
            }
            Input::GenerationSeen { generation } => self.generation = Some(generation),
            Input::KillAwaited { ticket } => self.kill_awaited(now, ticket, out),
            Input::Rebooted { was } => self.rebase(Shift { was, is: now }),
            Input::Traffic(news) => self.late_traffic(now, news, out),
            // The record of an exit may turn up for a container that was taken for lost.
            Input::Exited { instance, exit } => {
                if let Some(container) = self.current(&instance) {
                    container.exited(now, exit, out);
                }
            }
            Input::AgentRestarted { report } => {
                for seen in &report.containers {
                    if let SeenContainer::Exited { exit } = seen.seen
                        && let Some(container) = self.current(&seen.instance)
                    {
                        container.exited(now, exit, out);
                    }
                }
                let Phase::Clearing { removal, .. } = &mut self.phase else { return };
                removal.asked_anew(now);
                out.push(Effect::RemoveSandbox);
            }
            // Ours stays; the spec is nobody's concern; told twice; pulls, sandboxes and starts
            // that were given up: the removal takes whatever they made;
            // hooks, signals and probes of containers that are dead; a DELETE that was not asked yet; wakes.
            Input::SpecChanged { .. }
            | Input::TerminalPhaseSeen { .. }
            | Input::Rejected { .. }
            | Input::Begin
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
            | Input::SandboxLost { .. }
            | Input::ProbeChanged { .. }
            | Input::ObjectDeleted
            | Input::ObjectDeleteFailed { .. }
            | Input::TimePassed => {}
        }
    }

    /// A pod that is done and stays in the API is told something.
    pub(crate) fn handle_resting(&mut self, now: Moment, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::DeleteRequested { grace, sighting } => {
                self.also(|leaving| leaving.also_deleted(now, grace, sighting));
                self.depart(now, out);
            }
            Input::ObjectGone => {
                self.also(|leaving| leaving.also_forced(now));
                self.depart(now, out);
            }
            // Whoever found nobody to claim it looked before it was over.
            Input::KillRequested { cause: KillCause::Orphaned, .. } => {}
            // There is nobody left to kill, but perhaps nobody to stay for either.
            Input::KillRequested { cause, grace } => {
                self.also(|leaving| leaving.also_killed(now, &cause, grace));
                if self.phase.termination().is_some_and(|leaving| leaving.object == Object::Gone) {
                    self.depart(now, out);
                }
            }
            Input::GenerationSeen { generation } => self.generation = Some(generation),
            Input::KillAwaited { ticket } => self.kill_awaited(now, ticket, out),
            Input::Rebooted { was } => self.rebase(Shift { was, is: now }),
            Input::Traffic(news) => self.late_traffic(now, news, out),
            // All that the node had to do was seen to be done; whatever comes is late.
            Input::SpecChanged { .. }
            | Input::TerminalPhaseSeen { .. }
            | Input::Rejected { .. }
            | Input::Begin
            | Input::ImageReady { .. }
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
            | Input::SandboxRemoved
            | Input::SandboxRemovalFailed { .. }
            | Input::ObjectDeleted
            | Input::ObjectDeleteFailed { .. }
            | Input::AgentRestarted { .. }
            | Input::TimePassed => {}
        }
    }

    /// A pod whose final DELETE was asked is told something.
    pub(crate) fn handle_deleting(&mut self, now: Moment, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::ObjectDeleted | Input::ObjectGone => {
                self.also(|leaving| leaving.object = Object::Gone);
                self.depart(now, out);
            }
            Input::ObjectDeleteFailed { message: _ } => {
                let Phase::Deleting { delete, .. } = &mut self.phase else { return };
                delete.failed(now);
            }
            Input::AgentRestarted { report: _ } => {
                let Phase::Deleting { delete, .. } = &mut self.phase else { return };
                delete.asked_anew(now);
                out.push(Effect::DeleteObject);
            }
            Input::KillAwaited { ticket } => self.kill_awaited(now, ticket, out),
            Input::Rebooted { was } => self.rebase(Shift { was, is: now }),
            // A shorter grace changes nothing for a pod without processes; the rest is late.
            Input::DeleteRequested { .. }
            | Input::KillRequested { .. }
            | Input::SpecChanged { .. }
            | Input::GenerationSeen { .. }
            | Input::TerminalPhaseSeen { .. }
            | Input::Rejected { .. }
            | Input::Traffic(_)
            | Input::Begin
            | Input::ImageReady { .. }
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
            | Input::SandboxRemoved
            | Input::SandboxRemovalFailed { .. }
            | Input::TimePassed => {}
        }
    }

    /// A worker whose life is over is told something.
    pub(crate) fn handle_gone(&mut self, now: Moment, input: &Input, out: &mut Vec<Effect>) {
        match input {
            Input::KillAwaited { ticket } => self.kill_awaited(now, *ticket, out),
            // It was asked to finish, and died before it was forgotten.
            Input::AgentRestarted { report: _ } => out.push(Effect::Finish),
            // All late: `Finish` was asked.
            Input::SpecChanged { .. }
            | Input::GenerationSeen { .. }
            | Input::TerminalPhaseSeen { .. }
            | Input::Rejected { .. }
            | Input::Traffic(_)
            | Input::Rebooted { .. }
            | Input::Begin
            | Input::ImageReady { .. }
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
            | Input::DeleteRequested { .. }
            | Input::ObjectGone
            | Input::KillRequested { .. }
            | Input::SandboxRemoved
            | Input::SandboxRemovalFailed { .. }
            | Input::ObjectDeleted
            | Input::ObjectDeleteFailed { .. }
            | Input::TimePassed => {}
        }
    }

    /// Asks again for what failed, once it is due.
    pub(crate) fn advance_departure(&mut self, now: Moment, out: &mut Vec<Effect>) {
        match &mut self.phase {
            Phase::Clearing { removal, .. } => {
                if removal.take_due(now) {
                    out.push(Effect::RemoveSandbox);
                }
            }
            Phase::Deleting { delete, .. } => {
                if delete.take_due(now) {
                    out.push(Effect::DeleteObject);
                }
            }
            Phase::New | Phase::Living { .. } | Phase::Ending { .. } | Phase::Resting { .. } | Phase::Gone { .. } => {}
        }
    }

    /// When there is something to do about a pod without processes.
    pub(crate) fn departure_wakes(&self, wakes: &mut Soonest) {
        match &self.phase {
            Phase::Clearing { removal, .. } => {
                removal.wakes(wakes, WakeReason::RemovalRetry, WakeReason::RemovalUnanswered);
            }
            Phase::Deleting { delete, .. } => {
                delete.wakes(wakes, WakeReason::DeleteRetry, WakeReason::DeleteUnanswered);
            }
            Phase::New | Phase::Living { .. } | Phase::Ending { .. } | Phase::Resting { .. } | Phase::Gone { .. } => {}
        }
    }

    /// A pod without processes has no traffic, but may have been released too early: that is worth telling.
    fn late_traffic(&mut self, now: Moment, news: TrafficNews, out: &mut Vec<Effect>) {
        let enough = self.drain.enough;
        self.also(|leaving| leaving.barrier.told(now, enough, news, out));
    }

    /// The node's work is done: what remains depends on the object alone.
    fn depart(&mut self, now: Moment, out: &mut Vec<Effect>) {
        let Some(termination) = self.phase.termination().cloned() else { return };
        self.phase = departed(now, termination, out);
    }
}

fn departed(now: Moment, termination: Termination, out: &mut Vec<Effect>) -> Phase {
    match termination.object {
        Object::Stays => Phase::Resting { termination },
        Object::Leaving => {
            out.push(Effect::DeleteObject);
            Phase::Deleting { termination, delete: RetriedRequest::asked(now) }
        }
        Object::Gone => {
            out.push(Effect::Finish);
            Phase::Gone { termination }
        }
    }
}
