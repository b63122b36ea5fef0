//! The way out of one running container: hook, turn, stop signal, KILL.
//!
//! ```text
//!  Held ──its traffic is gone, or deadline──▶ Hook
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
use crate::reboot::Shift;
use crate::restart::RetriedRequest;
use crate::wake::Soonest;
use crate::{
    ContainerName, Delivery, Effect, Event, Hook, HookKind, HookOutcome, HookReport, Instance, Moment, Signal,
    WakeReason,
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

/// Whether a container that is to be stopped may be disturbed yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gate {
    /// Its traffic has not gone yet.
    Shut,
    /// Hooks and signals may go out; a sleep that would only wait for what has already happened is left out.
    Open { without_sleep: bool },
}

/// What had to be done to take a stop further.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Pace {
    /// Nothing that was not asked for.
    OnTime,
    /// Something was cut short: its traffic, its hook, or its turn.
    Hurried,
    /// It had to be killed.
    Killed,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Step {
    /// Its pod's traffic has to go first. Left when it has, or at the deadline.
    Held,
    /// Its preStop hook runs. Left when the hook ends, or at the deadline.
    Hook(HookRun),
    /// It may be signalled. Left when its turn comes, or at the deadline.
    Turn,
    /// The stop signal was asked for, or delivered, `at` that moment, and `before` by an agent that is gone. Left at the
    /// deadline, two seconds after `at` at the earliest.
    Signalled { signal: Signal, at: Moment, before: Option<Moment>, answered: bool },
    /// KILL was asked for. Left only by the exit.
    Killed { again_at: Moment, failures: u32 },
}

/// What became of a signal to whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered<'a> {
    pub(crate) name: &'a ContainerName,
    pub(crate) signal: Signal,
    pub(crate) delivery: Delivery,
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
            HookOutcome::Failed { message, output: _ } => {
                out.push(Effect::Emit(Event::hook_failed(name, HookKind::PreStop, &message)));
            }
        }
        self.step = Step::Turn;
    }

    /// Whoever could not be reached at first has its notice from the moment it was, and whoever was reached by an agent that
    /// is gone from that moment: a restart is no reason for more. Told to people only then: of a signal that nobody was left
    /// to take, there is nothing to tell.
    pub(crate) fn signal_answered(
        &mut self,
        now: Moment,
        told: &Answered<'_>,
        pod_deadline: Option<Moment>,
        out: &mut Vec<Effect>,
    ) {
        let deadline = self.deadline(pod_deadline);
        if let Step::Signalled { signal, answered: answered @ false, at, before } = &mut self.step
            && *signal == told.signal
        {
            *answered = true;
            let before = before.take();
            let (asked, delivered) = match told.delivery {
                Delivery::Delivered => (*at, now),
                Delivery::DeliveredBefore { at: then } => (before.unwrap_or(then).min(then), then.min(now)),
                Delivery::AlreadyGone => return,
            };
            let (name, left) = (told.name, deadline.since(asked).max(LEAST_NOTICE));
            let message = format!("Sent {signal} to container {name}, {left:?} before SIGKILL");
            out.push(Effect::Emit(Event::normal(name, "StopSignalSent", message)));
            *at = delivered;
        }
    }

    /// A KILL could not be sent: another follows soon, then less and less soon.
    pub(crate) fn kill_failed(&mut self, now: Moment) -> bool {
        let Step::Killed { again_at, failures } = &mut self.step else { return false };
        *again_at = now + RetriedRequest::delay_after(*failures);
        *failures = failures.saturating_add(1);
        true
    }

    /// There is no more time for it.
    pub(crate) fn hurry(&mut self, now: Moment) {
        self.deadline = self.deadline.min(now);
    }

    /// When there is something to do about it.
    pub(crate) fn wakes(&self, name: &ContainerName, pod_deadline: Option<Moment>, wakes: &mut Soonest) {
        let deadline = self.deadline(pod_deadline);
        let spent = || match pod_deadline {
            Some(pod) if pod == deadline => WakeReason::GraceSpent,
            Some(_) | None => WakeReason::ContainerGraceSpent(name.clone()),
        };
        match &self.step {
            Step::Hook(hook) => {
                if let Some(at) = hook.sleeps_until() {
                    wakes.consider(at, || WakeReason::SleepEnds(name.clone()));
                }
                wakes.consider(deadline, spent);
            }
            Step::Held | Step::Turn => wakes.consider(deadline, spent),
            Step::Signalled { at, .. } => {
                let floor = *at + LEAST_NOTICE;
                let reason = || if floor > deadline { WakeReason::FloorSpent(name.clone()) } else { spent() };
                wakes.consider(deadline.max(floor), reason);
            }
            Step::Killed { again_at, failures: _ } => {
                wakes.consider(*again_at, || WakeReason::KillUnanswered(name.clone()));
            }
        }
    }

    /// What it waits for, in words.
    pub(crate) fn waits_for(&self) -> &'static str {
        match self.step {
            Step::Held => "held until its traffic is gone",
            Step::Hook(_) => "in its preStop hook",
            Step::Turn => "waiting for its turn",
            Step::Signalled { .. } => "asked to exit",
            Step::Killed { .. } => "killed, exit not seen",
        }
    }

    pub(crate) fn rebase(&mut self, shift: Shift) {
        shift.apply(&mut self.deadline);
        match &mut self.step {
            Step::Held | Step::Turn => {}
            Step::Hook(hook) => hook.rebase(shift),
            Step::Signalled { at, before, .. } => {
                shift.apply(at);
                before.iter_mut().for_each(|before| shift.apply(before));
            }
            Step::Killed { again_at, failures: _ } => shift.apply(again_at),
        }
    }
}

impl Container {
    /// Sets a running container on its way out; `killing` is what people are told.
    pub(crate) fn begin_stop(
        &mut self,
        deadline: Moment,
        killing: impl FnOnce(&ContainerName) -> String,
        out: &mut Vec<Effect>,
    ) {
        let Run::Running(running) = &mut self.run else { return };
        if running.stop.is_some() {
            return;
        }
        let name = &self.spec.name;
        out.push(Effect::Emit(Event::normal(name, "Killing", killing(name))));
        if running.post_start.take().is_some() {
            running.fell_short = true;
            let instance = Instance { name: name.clone(), attempt: self.attempt };
            out.push(Effect::CancelHook { instance, kind: HookKind::PostStart });
        }
        running.stop = Some(Stop { deadline, step: Step::Held });
    }

    /// Begins the hook of a container that is held no longer.
    pub(crate) fn leave_gate(
        &mut self,
        now: Moment,
        pod_deadline: Option<Moment>,
        gate: Gate,
        out: &mut Vec<Effect>,
    ) -> Pace {
        let Run::Running(running) = &mut self.run else { return Pace::OnTime };
        let Some(stop) = &mut running.stop else { return Pace::OnTime };
        let spent = now >= stop.deadline(pod_deadline);
        if !matches!(stop.step, Step::Held) || (gate == Gate::Shut && !spent) {
            return Pace::OnTime;
        }
        let pointless = gate == Gate::Open { without_sleep: true };
        stop.step = Step::Turn;
        match self.spec.pre_stop {
            // A container that came up after the deadline has no time left for a hook.
            Some(_) if spent => return Pace::Hurried,
            Some(Hook::Sleep(_) | Hook::ExecSleep(_)) if pointless => {}
            Some(Hook::Exec | Hook::ExecSleep(_) | Hook::HttpGet | Hook::Sleep(_)) => {
                let instance = Instance { name: self.spec.name.clone(), attempt: self.attempt };
                out.push(Effect::RunHook { instance, kind: HookKind::PreStop });
                stop.step = Step::Hook(HookRun::asked(now));
            }
            None => {}
        }
        Pace::OnTime
    }

    /// Takes a stop that has begun as far as time and order allow.
    pub(crate) fn advance_stop(
        &mut self,
        now: Moment,
        pod_deadline: Option<Moment>,
        its_turn: bool,
        out: &mut Vec<Effect>,
    ) -> Pace {
        let signal = self.stop_signal();
        let Run::Running(running) = &mut self.run else { return Pace::OnTime };
        let Some(stop) = &mut running.stop else { return Pace::OnTime };
        // Made only when something is asked for: most of the time there is nothing to do.
        let (name, attempt) = (&self.spec.name, self.attempt);
        let instance = || Instance { name: name.clone(), attempt };
        let deadline = stop.deadline(pod_deadline);
        let spent = now >= deadline;
        let mut pace = Pace::OnTime;
        if let Step::Hook(hook) = &stop.step {
            if hook.slept(now) {
                stop.step = Step::Turn;
            } else if spent {
                out.push(Effect::CancelHook { instance: instance(), kind: HookKind::PreStop });
                let message = "PreStopHook timed out: it was still running when the grace period ended";
                out.push(Effect::Emit(Event::warning(name, "FailedPreStopHook", message.into())));
                pace = Pace::Hurried;
                stop.step = Step::Turn;
            }
        }
        if let Step::Turn = stop.step
            && (its_turn || spent)
        {
            out.push(Effect::SendSignal { instance: instance(), signal });
            if !its_turn {
                pace = Pace::Hurried;
            }
            stop.step = Step::Signalled { signal, at: now, before: None, answered: false };
        }
        match stop.step {
            Step::Signalled { at, .. } if now >= deadline.max(at + LEAST_NOTICE) => {
                let message = format!("Sent SIGKILL to container {name}: it did not exit in time");
                out.push(Effect::KillContainer { instance: instance() });
                out.push(Effect::Emit(Event::warning(name, "KillSent", message)));
                stop.step = Step::Killed { again_at: now + KILL_PATIENCE, failures: 0 };
                pace = Pace::Killed;
            }
            Step::Killed { again_at, failures } => {
                if now >= again_at {
                    out.push(Effect::KillContainer { instance: instance() });
                    stop.step = Step::Killed { again_at: now + KILL_PATIENCE, failures };
                }
                pace = Pace::Killed;
            }
            Step::Held | Step::Hook(_) | Step::Turn | Step::Signalled { .. } => {}
        }
        pace
    }

    /// The agent came back and the container still runs: asks again for whatever may not have been done.
    /// `hook` is what the runtime knows of the preStop hook; how it ended, if it did, is told separately.
    pub(crate) fn reattach_stop(
        &mut self,
        now: Moment,
        hook: Option<&HookReport>,
        pod_deadline: Option<Moment>,
        out: &mut Vec<Effect>,
    ) {
        let instance = self.instance();
        let Run::Running(running) = &mut self.run else { return };
        let Some(stop) = &mut running.stop else { return };
        let spent = now >= stop.deadline(pod_deadline);
        match (&mut stop.step, hook) {
            (Step::Hook(_), Some(_)) => {}
            (Step::Hook(run), None) => {
                // Nobody begins what has no time left: `advance_stop` gives such a hook up.
                if self.spec.pre_stop.is_some_and(|hook| run.resume(hook)) && !spent {
                    out.push(Effect::RunHook { instance, kind: HookKind::PreStop });
                }
            }
            (step @ (Step::Held | Step::Turn | Step::Signalled { .. } | Step::Killed { .. }), hook) => {
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
    /// Asks again for a signal that was not answered. Its two seconds count anew, as it may never have been sent; if it was,
    /// the answer says when.
    fn repeat(&mut self, now: Moment, instance: Instance, out: &mut Vec<Effect>) {
        match self {
            Self::Signalled { signal, at, before, answered: false } => {
                out.push(Effect::SendSignal { instance, signal: *signal });
                *before = Some(core::mem::replace(at, now));
            }
            Self::Killed { again_at, failures: _ } => {
                out.push(Effect::KillContainer { instance });
                *again_at = now + KILL_PATIENCE;
            }
            Self::Signalled { answered: true, .. } | Self::Held | Self::Hook(_) | Self::Turn => {}
        }
    }
}
