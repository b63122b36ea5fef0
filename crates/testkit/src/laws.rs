//! What holds after every single input, whatever the story.

use lifecycle::{ContainerState, Effect, Input, KillCause, Moment, PodPhase, PodWorker};

/// Watches a worker from its first input on, and panics when it breaks a law.
#[derive(Clone, Debug, Default)]
pub struct Laws {
    terminating: bool,
    deadline: Option<Moment>,
    last_phase: Option<PodPhase>,
    finished: bool,
    /// Somebody else wrote a terminal phase, whatever still runs.
    declared: bool,
    /// No manifest or nobody at all asks for it any more: it has no object to tell the truth with.
    unclaimed: bool,
}

impl Laws {
    /// The worker was told `input` at `now`, answered with `effects` and stands where it stands.
    #[track_caller]
    pub fn observe(&mut self, now: Moment, input: &Input, effects: &[Effect], worker: &PodWorker) {
        let asks = |wanted: fn(&Effect) -> bool| effects.iter().filter(|effect| wanted(effect)).count();
        // An agent that came back may have died before it could forget the pod.
        let again = matches!(input, Input::AgentRestarted { .. });
        let only_answers = effects
            .iter()
            .all(|effect| matches!(effect, Effect::KillAnswered { .. }) || (again && matches!(effect, Effect::Finish)));
        assert!(!self.finished || only_answers, "{effects:?} asked for after the end");
        self.declared |= matches!(input, Input::TerminalPhaseSeen { .. });
        self.unclaimed |=
            matches!(input, Input::KillRequested { cause: KillCause::ConfigRemoved | KillCause::Orphaned, .. });
        // On another clock nothing can be compared.
        self.deadline.take_if(|_| matches!(input, Input::Rebooted { .. }));
        assert!(!self.terminating || worker.is_terminating(), "no way back from {input:?}");
        if self.terminating || worker.is_terminating() {
            assert_eq!(asks(|effect| matches!(effect, Effect::StartContainer { .. })), 0, "a start while leaving");
            assert_eq!(asks(|effect| matches!(effect, Effect::PullImage { .. })), 0, "a pull while leaving");
            assert_eq!(asks(|effect| matches!(effect, Effect::CreateSandbox)), 0, "a sandbox while leaving");
        }
        if let (Some(before), Some(after)) = (self.deadline, worker.deadline()) {
            assert!(after <= before, "the deadline grew from {before} to {after} at {now} on {input:?}");
        }
        let status = worker.status();
        let running = status.containers.iter().filter(|it| matches!(it.state, ContainerState::Running { .. })).count();
        let terminal = matches!(status.phase, PodPhase::Succeeded | PodPhase::Failed);
        if asks(|effect| matches!(effect, Effect::DeleteObject | Effect::Finish)) > 0 {
            assert_eq!(running, 0, "an object deleted over running containers");
            assert!(terminal || self.unclaimed, "an object deleted in phase {:?}", status.phase);
        }
        assert!(!terminal || running == 0 || self.declared, "a terminal phase over running containers");
        assert!(status.disruption.is_none() || terminal, "a disruption told before the end");
        assert!(status.verdict.is_none() || running == 0, "a verdict over running containers");
        assert!(!terminal || !status.ready.holds, "ready in a terminal phase");
        if let Some(last @ (PodPhase::Succeeded | PodPhase::Failed)) = self.last_phase {
            assert_eq!(status.phase, last, "a terminal phase changed");
        }
        if let Some(wake) = worker.next_wake() {
            assert!(wake.at > now, "woken at once for ever: {} at {now}", wake.reason);
        }
        let finishes = asks(|effect| matches!(effect, Effect::Finish));
        let ends = worker.is_finished() && (again || !self.finished);
        assert!(finishes <= 1 && (finishes == 1) == ends, "finish is asked once");
        self.terminating = worker.is_terminating();
        self.deadline = worker.deadline();
        self.last_phase = Some(status.phase);
        self.finished = worker.is_finished();
    }
}
