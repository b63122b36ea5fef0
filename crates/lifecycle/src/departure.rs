//! The quiet end: no process remains; the sandbox goes, then the object, then the worker.

use alloc::format;
use alloc::vec::Vec;

use crate::phase::Phase;
use crate::restart::Errand;
use crate::termination::{Object, Termination};
use crate::{Effect, Event, Input, Moment, PodWorker, SeenContainer, Wake, WakeReason};

impl PodWorker {
    /// A pod without processes is told something while its sandbox is being removed.
    pub(crate) fn handle_clearing(&mut self, now: Moment, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::SandboxRemoved => self.depart(out),
            Input::SandboxRemovalFailed { message } => {
                let Phase::Clearing { removal, .. } = &mut self.phase else { return };
                removal.failed(now);
                let message = format!("error killing pod: {message}");
                out.push(Effect::Emit(Event::pod_warning("FailedKillPod", message)));
            }
            Input::DeleteRequested { grace, sighting } => {
                self.also(|leaving| leaving.also_deleted(now, grace, sighting))
            }
            Input::ObjectGone => self.also(|leaving| leaving.also_forced(now)),
            Input::KillRequested { cause: _, grace } => self.also(|leaving| leaving.also_killed(now, grace)),
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
                removal.asked_anew();
                out.push(Effect::RemoveSandbox);
            }
            // Told twice; pulls, sandboxes and starts that were given up: the removal takes whatever they made;
            // hooks, signals and probes of containers that are dead; a DELETE that was not asked yet; wakes.
            Input::Begin
            | Input::ImageReady { .. }
            | Input::ImageFailed { .. }
            | Input::SandboxReady
            | Input::SandboxFailed { .. }
            | Input::Started { .. }
            | Input::StartFailed { .. }
            | Input::HookFinished { .. }
            | Input::SignalAnswered { .. }
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
                self.depart(out);
            }
            Input::ObjectGone => {
                self.also(|leaving| leaving.also_forced(now));
                self.depart(out);
            }
            // There is nobody left to kill.
            Input::KillRequested { .. } => {}
            // All that the node had to do was seen to be done; whatever comes is late.
            Input::Begin
            | Input::ImageReady { .. }
            | Input::ImageFailed { .. }
            | Input::SandboxReady
            | Input::SandboxFailed { .. }
            | Input::Started { .. }
            | Input::StartFailed { .. }
            | Input::Exited { .. }
            | Input::HookFinished { .. }
            | Input::SignalAnswered { .. }
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
                self.depart(out);
            }
            Input::ObjectDeleteFailed { message: _ } => {
                let Phase::Deleting { delete, .. } = &mut self.phase else { return };
                delete.failed(now);
            }
            Input::AgentRestarted { report: _ } => {
                let Phase::Deleting { delete, .. } = &mut self.phase else { return };
                delete.asked_anew();
                out.push(Effect::DeleteObject);
            }
            // A shorter grace changes nothing for a pod without processes; the rest is late.
            Input::DeleteRequested { .. }
            | Input::KillRequested { .. }
            | Input::Begin
            | Input::ImageReady { .. }
            | Input::ImageFailed { .. }
            | Input::SandboxReady
            | Input::SandboxFailed { .. }
            | Input::Started { .. }
            | Input::StartFailed { .. }
            | Input::Exited { .. }
            | Input::HookFinished { .. }
            | Input::SignalAnswered { .. }
            | Input::ProbeChanged { .. }
            | Input::SandboxRemoved
            | Input::SandboxRemovalFailed { .. }
            | Input::TimePassed => {}
        }
    }

    /// A worker whose life is over is told something.
    pub(crate) fn handle_gone(input: &Input) {
        match input {
            // All late: `Finish` was asked, and is asked only once.
            Input::Begin
            | Input::ImageReady { .. }
            | Input::ImageFailed { .. }
            | Input::SandboxReady
            | Input::SandboxFailed { .. }
            | Input::Started { .. }
            | Input::StartFailed { .. }
            | Input::Exited { .. }
            | Input::HookFinished { .. }
            | Input::SignalAnswered { .. }
            | Input::ProbeChanged { .. }
            | Input::DeleteRequested { .. }
            | Input::ObjectGone
            | Input::KillRequested { .. }
            | Input::SandboxRemoved
            | Input::SandboxRemovalFailed { .. }
            | Input::ObjectDeleted
            | Input::ObjectDeleteFailed { .. }
            | Input::AgentRestarted { .. }
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
    pub(crate) fn departure_wakes(&self, wakes: &mut Vec<Wake>) {
        let (errand, reason) = match &self.phase {
            Phase::Clearing { removal, .. } => (removal, WakeReason::RemovalRetry),
            Phase::Deleting { delete, .. } => (delete, WakeReason::DeleteRetry),
            Phase::New | Phase::Living { .. } | Phase::Ending { .. } | Phase::Resting { .. } | Phase::Gone { .. } => {
                return;
            }
        };
        wakes.extend(errand.again_at().map(|at| Wake { at, reason }));
    }

    /// The node's work is done: what remains depends on the object alone.
    fn depart(&mut self, out: &mut Vec<Effect>) {
        let Some(termination) = self.phase.termination().cloned() else { return };
        self.phase = departed(termination, out);
    }
}

fn departed(termination: Termination, out: &mut Vec<Effect>) -> Phase {
    match termination.object {
        Object::Stays => Phase::Resting { termination },
        Object::Leaving => {
            out.push(Effect::DeleteObject);
            Phase::Deleting { termination, delete: Errand::default() }
        }
        Object::Gone => {
            out.push(Effect::Finish);
            Phase::Gone { termination }
        }
    }
}
