//! The way out of one running container: hook, turn, stop signal, KILL.
//!
//! ```text
//!  Hook ──done, failed, or deadline──▶ Turn ──its turn, or deadline──▶ Signalled ──deadline, and 2 s──▶ Killed
//!    └───────────────────────────────────┴──────────── Exited ────────────┴───────────────────────────────┘
//! ```
//!
//! The same way is walked when a whole pod leaves (the deadline is the pod's) and when a container alone is stopped
//! because a probe or its postStart hook failed (the deadline is its own, or the pod's if that comes first).

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use crate::container::{Container, HookRun, Run};
use crate::{
    ContainerName, Effect, Event, HookKind, HookOutcome, HookReport, Instance, Moment, Signal, Wake, WakeReason,
};

/// No container is killed sooner than this after its stop signal.
pub const LEAST_NOTICE: Duration = Duration::from_secs(2);
/// How long a KILL may go without a seen exit before it is asked for again.
const KILL_PATIENCE: Duration = Duration::from_secs(5);

/// How far the stop of a running container has come.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Stop {
    /// The deadline it began with. The pod's may come to lie before it, never after it.
    deadline: Moment,
    step: Step,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Step {
    /// Its preStop hook runs. Left when the hook ends, or at the deadline.
    Hook(HookRun),
    /// It may be signalled. Left when its turn comes, or at the deadline.
    Turn,
    /// The stop signal was asked for. Left at the deadline, two seconds from the signal at the earliest.
    Signalled { signal: Signal, at: Moment, answered: bool },
    /// KILL was asked for. Left only by the exit.
    Killed { again_at: Moment },
}

impl Stop {
    pub(crate) fn is_in_hook(&self) -> bool {
        matches!(self.step, Step::Hook(_))
    }

    fn deadline(&self, pod_deadline: Option<Moment>) -> Moment {
        pod_deadline.map_or(self.deadline, |pod| self.deadline.min(pod))
    }

    pub(crate) fn hook_finished(&mut self, name: &ContainerName, outcome: HookOutcome, out: &mut Vec<Effect>) {
        // A hook that ends after it was given up on has had its say.
        let Step::Hook(_) = self.step else { return };
        match outcome {
            HookOutcome::Succeeded | HookOutcome::Cancelled => {}
            // The message may hold output of user code and stays out of events.
            HookOutcome::Failed { message: _ } => {
                out.push(Effect::Emit(Event::warning(name, "FailedPreStopHook", "PreStopHook failed".into())));
            }
        }
        self.step = Step::Turn;
    }

    pub(crate) fn signal_answered(&mut self, told: Signal) {
        if let Step::Signalled { signal, answered, .. } = &mut self.step
            && *signal == told
        {
            *answered = true;
        }
    }

    /// When there is something to do about it.
    pub(crate) fn wakes(&self, name: &ContainerName, pod_deadline: Option<Moment>, wakes: &mut Vec<Wake>) {
        let deadline = self.deadline(pod_deadline);
        let spent = match pod_deadline {
            Some(pod) if pod == deadline => WakeReason::GraceSpent,
            Some(_) | None => WakeReason::ContainerGraceSpent(name.clone()),
        };
        match &self.step {
            Step::Hook(hook) => {
                if let Some(at) = hook.sleeps_until() {
                    wakes.push(Wake { at, reason: WakeReason::SleepEnds(name.clone()) });
                }
                wakes.push(Wake { at: deadline, reason: spent });
            }
            Step::Turn => wakes.push(Wake { at: deadline, reason: spent }),
            Step::Signalled { at, .. } => {
                let floor = *at + LEAST_NOTICE;
                let reason = if floor > deadline { WakeReason::FloorSpent(name.clone()) } else { spent };
                wakes.push(Wake { at: deadline.max(floor), reason });
            }
            Step::Killed { again_at } => {
                wakes.push(Wake { at: *again_at, reason: WakeReason::KillUnanswered(name.clone()) });
            }
        }
    }

    /// What it waits for, in words.
    pub(crate) fn waits_for(&self) -> &'static str {
        match self.step {
            Step::Hook(_) => "in its preStop hook",
            Step::Turn => "waiting for its turn",
            Step::Signalled { .. } => "asked to exit",
            Step::Killed { .. } => "killed, exit not seen",
        }
    }
}

impl Container {
    /// Sets a running container on its way out; `killing` is what people are told.
    pub(crate) fn begin_stop(&mut self, now: Moment, deadline: Moment, killing: String, out: &mut Vec<Effect>) {
        let instance = self.instance();
        let Run::Running(running) = &mut self.run else { return };
        if running.stop.is_some() {
            return;
        }
        out.push(Effect::Emit(Event::normal(&instance.name, "Killing", killing)));
        if running.post_start.take().is_some() {
            out.push(Effect::CancelHook { instance: instance.clone(), kind: HookKind::PostStart });
        }
        // A container that came up after the deadline has no time left for a hook.
        let step = if self.spec.pre_stop.is_some() && now < deadline {
            out.push(Effect::RunHook { instance, kind: HookKind::PreStop });
            Step::Hook(HookRun::asked(now))
        } else {
            Step::Turn
        };
        running.stop = Some(Stop { deadline, step });
    }

    /// Takes a stop that has begun as far as time and order allow.
    pub(crate) fn advance_stop(
        &mut self,
        now: Moment,
        pod_deadline: Option<Moment>,
        its_turn: bool,
        out: &mut Vec<Effect>,
    ) {
        let (instance, signal) = (self.instance(), self.stop_signal());
        let Run::Running(running) = &mut self.run else { return };
        let Some(stop) = &mut running.stop else { return };
        let deadline = stop.deadline(pod_deadline);
        if let Step::Hook(hook) = &stop.step {
            if hook.slept(now) {
                stop.step = Step::Turn;
            } else if now >= deadline {
                out.push(Effect::CancelHook { instance: instance.clone(), kind: HookKind::PreStop });
                let message = "PreStopHook timed out: it was still running when the grace period ended";
                out.push(Effect::Emit(Event::warning(&instance.name, "FailedPreStopHook", message.into())));
                stop.step = Step::Turn;
            }
        }
        if let Step::Turn = stop.step
            && (its_turn || now >= deadline)
        {
            let left = deadline.since(now).max(LEAST_NOTICE);
            let message = format!("Sent {signal} to container {}, {left:?} before SIGKILL", instance.name);
            out.push(Effect::SendSignal { instance: instance.clone(), signal });
            out.push(Effect::Emit(Event::normal(&instance.name, "StopSignalSent", message)));
            stop.step = Step::Signalled { signal, at: now, answered: false };
        }
        match stop.step {
            Step::Signalled { at, .. } if now >= deadline.max(at + LEAST_NOTICE) => {
                let message = format!("Sent SIGKILL to container {}: it did not exit in time", instance.name);
                out.push(Effect::KillContainer { instance: instance.clone() });
                out.push(Effect::Emit(Event::warning(&instance.name, "KillSent", message)));
                stop.step = Step::Killed { again_at: now + KILL_PATIENCE };
            }
            Step::Killed { again_at } if now >= again_at => {
                out.push(Effect::KillContainer { instance });
                stop.step = Step::Killed { again_at: now + KILL_PATIENCE };
            }
            Step::Hook(_) | Step::Turn | Step::Signalled { .. } | Step::Killed { .. } => {}
        }
    }

    /// The agent came back and the container still runs: asks again for whatever may not have been done.
    /// `hook` is what the runtime knows of the preStop hook; how it ended, if it did, is told separately.
    pub(crate) fn reattach_stop(&mut self, now: Moment, hook: Option<&HookReport>, out: &mut Vec<Effect>) {
        let instance = self.instance();
        let Run::Running(running) = &mut self.run else { return };
        let Some(stop) = &mut running.stop else { return };
        match (&mut stop.step, hook) {
            (Step::Hook(_), Some(_)) => {}
            (Step::Hook(run), None) => {
                if self.spec.pre_stop.is_some_and(|hook| run.resume(hook)) {
                    out.push(Effect::RunHook { instance, kind: HookKind::PreStop });
                }
            }
            (step @ (Step::Turn | Step::Signalled { .. } | Step::Killed { .. }), hook) => {
                // A hook that was given up on should not be running.
                if hook.is_some_and(|hook| hook.outcome.is_none()) {
                    out.push(Effect::CancelHook { instance: instance.clone(), kind: HookKind::PreStop });
                }
                step.repeat(now, instance, out);
            }
        }
    }
}

impl Step {
    /// Asks again for a signal that was not answered. Its two seconds count anew: it may never have been sent.
    fn repeat(&mut self, now: Moment, instance: Instance, out: &mut Vec<Effect>) {
        match self {
            Self::Signalled { signal, at, answered: false } => {
                out.push(Effect::SendSignal { instance, signal: *signal });
                *at = now;
            }
            Self::Killed { again_at } => {
                out.push(Effect::KillContainer { instance });
                *again_at = now + KILL_PATIENCE;
            }
            Self::Signalled { answered: true, .. } | Self::Hook(_) | Self::Turn => {}
        }
    }
}
