//! What holds after every single input, whatever the story.

use lifecycle::{ContainerState, Effect, Input, Moment, PodPhase, PodWorker};

/// Watches a worker from its first input on, and panics when it breaks a law.
#[derive(Clone, Debug, Default)]
pub struct Laws {
    terminating: bool,
    deadline: Option<Moment>,
    last_phase: Option<PodPhase>,
    finished: bool,
}

impl Laws {
    /// The worker was told `input` at `now`, answered with `effects` and stands where it stands.
    #[track_caller]
    pub fn observe(&mut self, now: Moment, input: &Input, effects: &[Effect], worker: &PodWorker) {
        let asks = |wanted: fn(&Effect) -> bool| effects.iter().filter(|effect| wanted(effect)).count();
        assert!(!self.finished || effects.is_empty(), "{effects:?} asked for after the end");
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
            assert!(terminal, "an object deleted in phase {:?}", status.phase);
        }
        assert!(!terminal || running == 0, "a terminal phase over running containers");
        assert!(!terminal || !status.ready.holds, "ready in a terminal phase");
        if let Some(last @ (PodPhase::Succeeded | PodPhase::Failed)) = self.last_phase {
            assert_eq!(status.phase, last, "a terminal phase changed");
        }
        if let Some(wake) = worker.next_wake() {
            assert!(wake.at > now, "woken at once for ever: {} at {now}", wake.reason);
        }
        let finishes = asks(|effect| matches!(effect, Effect::Finish));
        assert!(finishes <= 1 && (finishes == 1) == (worker.is_finished() && !self.finished), "finish is asked once");
        self.terminating = worker.is_terminating();
        self.deadline = worker.deadline();
        self.last_phase = Some(status.phase);
        self.finished = worker.is_finished();
    }
}
