//! One container of a pod: what was asked of it, and what was seen of it.
//!
//! ```text
//!              ask                Started              Exited
//!  Unstarted ───────▶ Asked ──────────────▶ Running ───────────▶ Ended
//!      ▲                │ StartFailed          │ (stop.rs)         │ if it may run again
//!      └── agent lost ──┴──────────────▶ Waiting ◀─────────────────┘
//!                           ask ◀───────── back-off over
//! ```
//!
//! Whether an ended container runs again is not decided here but by its pod (`living`), and how a running one is
//! brought to its end is told in `stop`.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use crate::image::{Image, WantedImage};
use crate::reboot::Shift;
use crate::restart::BackOff;
use crate::stop::Stop;
use crate::wake::Soonest;
use crate::{
    ContainerSpec, Effect, Event, Exit, Hook, HookKind, HookOutcome, Instance, Moment, Probe, Readiness, Signal,
    Terminated, Waiting, WakeReason, Wall,
};

/// What is said of a container that nobody can find.
pub(crate) const LOST: &str = "ContainerStatusUnknown";
/// Its exit code: as if it had been killed.
pub(crate) const LOST_CODE: i32 = 137;
const LOST_LIVING: &str =
    "The container could not be located when the pod was deleted.  The container used to be Running";
pub(crate) const LOST_STARTING: &str = "The sandbox was lost while the container was being started";
pub(crate) const LOST_TERMINATED: &str = "The container could not be located when the pod was terminated";

/// A container and all that happened to it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Container {
    pub(crate) spec: ContainerSpec,
    pub(crate) image: Image,
    /// Which image that is: how many others were asked for before it.
    pub(crate) edition: u32,
    /// What the latest run was made from; `None` for a run that was taken over before its image was known.
    pub(crate) made_from: Option<MadeFrom>,
    /// The run that `run` speaks of, if it speaks of one.
    pub(crate) attempt: u32,
    pub(crate) run: Run,
    pub(crate) back_off: BackOff,
    /// How its newest ended run ended.
    pub(crate) newest: Option<Terminated>,
    /// And the one before that.
    pub(crate) before: Option<Terminated>,
}

/// Where the current run of a container stands.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Run {
    /// Not asked for yet.
    Unstarted,
    /// `StartContainer` was asked; that is all we know.
    Asked(Asked),
    /// It will be asked for again after a while. What went wrong is shown as itself at first, and `then` as a back-off.
    Waiting { until: Moment, shown: Waiting, then: Option<(Moment, Waiting)> },
    /// It was seen to run, and not to end.
    Running(Running),
    /// It ended and will not run again. `newest` tells how.
    Ended,
}

/// An image as a run saw it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct MadeFrom {
    pub(crate) stop_signal: Option<Signal>,
}

/// A start that was asked for and not answered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Asked {
    /// Asked for again if nobody answered by then. A start may have to pull its image again, which takes its time.
    until: Moment,
    /// Another image is wanted since: it is replaced as soon as it is seen to run.
    pub(crate) outdated: bool,
}

impl Asked {
    pub(crate) fn at(now: Moment) -> Self {
        Self { until: now + Image::PATIENCE, outdated: false }
    }

    pub(crate) fn rebase(&mut self, shift: Shift) {
        shift.apply(&mut self.until);
    }
}

/// A container that was seen to run.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Running {
    pub(crate) since: Wall,
    /// When we learned of it; what its back-off is measured by.
    pub(crate) seen_at: Moment,
    /// Its postStart hook, while that runs.
    pub(crate) post_start: Option<HookRun>,
    /// That hook failed or was cut short: it never comes up.
    pub(crate) fell_short: bool,
    pub(crate) probed_ready: bool,
    /// Its startup probe has passed.
    pub(crate) came_up: bool,
    /// It is stopped to make room for another image, and runs again whatever its pod's policy.
    pub(crate) replaced: bool,
    /// What to show after it ends, if it ends for a reason of its own.
    pub(crate) blame: Option<Waiting>,
    /// Its way out, once it is on it.
    pub(crate) stop: Option<Stop>,
}

/// A hook that was asked for and not seen to end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct HookRun {
    asked_at: Moment,
    /// Set after a restart of the agent for a sleep: nobody else times it any more, so the worker does.
    sleeps_until: Option<Moment>,
}

impl HookRun {
    pub(crate) fn asked(now: Moment) -> Self {
        Self { asked_at: now, sleeps_until: None }
    }

    /// Whether this is a sleep that we time ourselves and that is over.
    pub(crate) fn slept(&self, now: Moment) -> bool {
        self.sleeps_until.is_some_and(|until| now >= until)
    }

    pub(crate) fn rebase(&mut self, shift: Shift) {
        shift.apply(&mut self.asked_at);
        self.sleeps_until.iter_mut().for_each(|until| shift.apply(until));
    }

    pub(crate) fn sleeps_until(&self) -> Option<Moment> {
        self.sleeps_until
    }

    /// The runtime does not know this hook. A sleep goes on from its recorded start, timed by the worker from here
    /// on; anything else was never started, or (a request) cannot be asked about: true says to ask for it again.
    pub(crate) fn resume(&mut self, hook: Hook) -> bool {
        match hook {
            Hook::Sleep(length) => {
                self.sleeps_until = Some(self.asked_at + length);
                false
            }
            Hook::Exec | Hook::ExecSleep(_) | Hook::HttpGet => true,
        }
    }
}

/// What a run left behind, for whoever decides about the next one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct EndedRun {
    pub(crate) ran_for: Duration,
    pub(crate) blame: Option<Waiting>,
    /// It was stopped to run another image.
    pub(crate) replaced: bool,
}

impl EndedRun {
    /// A run that was never seen to run.
    pub(crate) fn unseen(blame: Option<Waiting>, replaced: bool) -> Self {
        Self { ran_for: Duration::ZERO, blame, replaced }
    }
}

impl Running {
    /// What it leaves behind when it ends now.
    fn ends(self, now: Moment) -> EndedRun {
        EndedRun { ran_for: now - self.seen_at, blame: self.blame, replaced: self.replaced }
    }

    pub(crate) fn rebase(&mut self, shift: Shift) {
        shift.apply(&mut self.seen_at);
        self.post_start.iter_mut().for_each(|hook| hook.rebase(shift));
        self.stop.iter_mut().for_each(|stop| stop.rebase(shift));
    }
}

impl Container {
    pub(crate) fn new(spec: ContainerSpec) -> Self {
        Self {
            spec,
            image: Image::Unwanted,
            edition: 0,
            made_from: None,
            attempt: 0,
            run: Run::Unstarted,
            back_off: BackOff::default(),
            newest: None,
            before: None,
        }
    }

    pub(crate) fn instance(&self) -> Instance {
        Instance { name: self.spec.name.clone(), attempt: self.attempt }
    }

    /// Whether `instance` is the run that was asked for last.
    pub(crate) fn is(&self, instance: &Instance) -> bool {
        instance.name == self.spec.name && instance.attempt == self.attempt
    }

    /// The number of the run that would be asked for next.
    pub(crate) fn next_attempt(&self) -> u32 {
        self.newest.as_ref().map_or(0, |ended| ended.attempt.saturating_add(1))
    }

    /// A process of it may exist: it was seen to run, or was asked for and not refused.
    pub(crate) fn may_be_alive(&self) -> bool {
        matches!(self.run, Run::Asked(_) | Run::Running(_))
    }

    /// It ran at least once, or runs.
    pub(crate) fn ever_ran(&self) -> bool {
        self.newest.is_some() || matches!(self.run, Run::Running(_))
    }

    /// Running, and its postStart hook and startup probe are through.
    pub(crate) fn is_started(&self) -> bool {
        matches!(&self.run, Run::Running(running)
            if running.post_start.is_none()
                && !running.fell_short
                && (running.came_up || !self.spec.probes.startup))
    }

    pub(crate) fn is_ready(&self) -> bool {
        let probed = match (&self.run, self.spec.readiness) {
            (Run::Running(running), Readiness::WhenProbed) => running.probed_ready,
            (_, Readiness::WhileRunning | Readiness::WhenProbed) => true,
        };
        probed && self.is_started()
    }

    /// The stop signal in force: the pod's word, that of the image the run was made from, or TERM. Another image that
    /// came since has no say about a run of the old one.
    pub(crate) fn stop_signal(&self) -> Signal {
        let named = match self.run {
            Run::Asked(_) | Run::Running(_) | Run::Ended => self.made_from.and_then(|image| image.stop_signal),
            Run::Unstarted | Run::Waiting { .. } => self.image.stop_signal(),
        };
        self.spec.stop_signal.or(named).unwrap_or(Signal::TERM)
    }

    /// Whether that is known: there is a run, or an image to make one from.
    pub(crate) fn knows_stop_signal(&self) -> bool {
        self.image.is_ready() || matches!(self.run, Run::Running(_))
    }

    /// Its image is there.
    pub(crate) fn image_ready(&mut self, stop_signal: Option<Signal>) {
        self.image.ready(stop_signal);
        if let Run::Running(running) = &self.run
            && !running.replaced
        {
            self.made_from = self.made_from.or(Some(MadeFrom { stop_signal }));
        }
    }

    /// Another image is wanted.
    pub(crate) fn pull_another_image(&mut self, now: Moment, out: &mut Vec<Effect>) {
        let is_wanted = self.image != Image::Unwanted;
        self.image.give_up(&self.spec.name, out);
        self.edition = self.edition.saturating_add(1);
        if !is_wanted {
            // Its turn has yet to come.
            return;
        }
        self.image.pull(WantedImage { container: &self.spec.name, edition: self.edition }, now, out);
    }

    /// Asks for the next run.
    pub(crate) fn ask_to_start(&mut self, now: Moment, out: &mut Vec<Effect>) {
        self.attempt = self.next_attempt();
        self.made_from = Some(MadeFrom { stop_signal: self.image.stop_signal() });
        self.run = Run::Asked(Asked::at(now));
        out.push(Effect::StartContainer { instance: self.instance() });
    }

    /// Asks again for a run that nobody answered for.
    pub(crate) fn ask_again_if_unanswered(&mut self, now: Moment, out: &mut Vec<Effect>) {
        let Run::Asked(Asked { until, outdated }) = self.run else { return };
        if now >= until {
            self.run = Run::Asked(Asked { outdated, ..Asked::at(now) });
            let message = "Error: nobody answered whether the container was started; asking again";
            out.push(Effect::Emit(Event::warning(&self.spec.name, "Failed", message.into())));
            out.push(Effect::StartContainer { instance: self.instance() });
        }
    }

    /// A run that the journal does not know is taken over.
    pub(crate) fn take_over(&mut self, attempt: u32) {
        self.attempt = attempt;
        self.made_from = self.image.is_ready().then(|| MadeFrom { stop_signal: self.image.stop_signal() });
    }

    /// Seen to run. `post_start` says whether its hook may still be begun.
    pub(crate) fn started(&mut self, now: Moment, wall: Wall, post_start: bool, out: &mut Vec<Effect>) {
        self.tell_started(out);
        let replaced = matches!(self.run, Run::Asked(Asked { outdated: true, .. }));
        let hook = self.spec.post_start.filter(|_| post_start && !replaced).map(|_| HookRun::asked(now));
        if hook.is_some() {
            out.push(Effect::RunHook { instance: self.instance(), kind: HookKind::PostStart });
        }
        self.run = Run::Running(Running {
            since: wall,
            seen_at: now,
            post_start: hook,
            fell_short: false,
            probed_ready: false,
            came_up: false,
            replaced,
            blame: None,
            stop: None,
        });
    }

    fn tell_started(&self, out: &mut Vec<Effect>) {
        out.push(Effect::Emit(Event::normal(&self.spec.name, "Created", "Container created".into())));
        out.push(Effect::Emit(Event::normal(&self.spec.name, "Started", "Container started".into())));
    }

    /// The start was refused. A process that could not be run counts as a run that ended (128), anything earlier
    /// as nothing at all.
    pub(crate) fn start_failed(&mut self, reason: &str, message: &str, out: &mut Vec<Effect>) {
        out.push(Effect::Emit(Event::warning(&self.spec.name, "Failed", format!("Error: {message}"))));
        if matches!(reason, "StartError" | "RunContainerError") {
            self.record(Terminated {
                attempt: self.attempt,
                reason: "StartError".into(),
                message: Some(message.into()),
                exit_code: 128,
                started: None,
                exit: None,
            });
        }
        self.run = if self.newest.is_some() { Run::Ended } else { Run::Unstarted };
    }

    /// Seen to end. `None` if there is nothing left to decide, because its end was known before.
    pub(crate) fn exited(&mut self, now: Moment, exit: Exit, out: &mut Vec<Effect>) -> Option<EndedRun> {
        match core::mem::replace(&mut self.run, Run::Ended) {
            Run::Running(running) => {
                self.end_hooks(&running, out);
                self.record(Terminated::seen(self.attempt, Some(running.since), exit));
                Some(running.ends(now))
            }
            // The end overtook the news of the start, and is proof of it.
            Run::Asked(Asked { outdated, .. }) => {
                if exit.seen {
                    self.tell_started(out);
                }
                self.record(Terminated::seen(self.attempt, None, exit));
                Some(EndedRun::unseen(None, outdated))
            }
            other @ (Run::Unstarted | Run::Waiting { .. } | Run::Ended) => {
                self.run = other;
                self.correct(exit);
                None
            }
        }
    }

    /// Nobody can find it any more.
    pub(crate) fn lost(&mut self, now: Moment, terminating: bool, out: &mut Vec<Effect>) -> EndedRun {
        let (started, ended, message) = match core::mem::replace(&mut self.run, Run::Ended) {
            Run::Running(running) => {
                self.end_hooks(&running, out);
                (Some(running.since), running.ends(now), if terminating { LOST_TERMINATED } else { LOST_LIVING })
            }
            Run::Asked(_) | Run::Unstarted | Run::Waiting { .. } | Run::Ended => {
                (None, EndedRun::unseen(None, false), LOST_STARTING)
            }
        };
        self.record(Terminated {
            attempt: self.attempt,
            reason: LOST.into(),
            message: Some(message.into()),
            exit_code: LOST_CODE,
            started,
            exit: None,
        });
        ended
    }

    /// No container of this pod may start any more.
    pub(crate) fn give_up_starting(&mut self, out: &mut Vec<Effect>) {
        self.image.give_up(&self.spec.name, out);
        if let Run::Waiting { .. } = self.run {
            self.run = if self.newest.is_some() { Run::Ended } else { Run::Unstarted };
        }
    }

    /// The hook ended. Tells the message of a postStart hook that failed.
    pub(crate) fn hook_finished(
        &mut self,
        kind: HookKind,
        outcome: HookOutcome,
        out: &mut Vec<Effect>,
    ) -> Option<String> {
        let Run::Running(running) = &mut self.run else { return None };
        match kind {
            HookKind::PreStop => {
                if let Some(stop) = &mut running.stop {
                    stop.hook_finished(&self.spec.name, outcome, out);
                }
                None
            }
            HookKind::PostStart => match (running.post_start.take(), outcome) {
                (Some(_), HookOutcome::Failed { message, output }) => {
                    running.fell_short = true;
                    out.push(Effect::Emit(Event::hook_failed(&self.spec.name, kind, &message)));
                    Some(output.map_or(message.clone(), |output| format!("{message}: {output}")))
                }
                (Some(_), HookOutcome::Succeeded | HookOutcome::Cancelled) | (None, _) => None,
            },
        }
    }

    /// A probe changed its mind. Tells which probe asks for the container's end.
    pub(crate) fn probe_changed(&mut self, probe: Probe, passing: bool) -> Option<Probe> {
        let Run::Running(running) = &mut self.run else { return None };
        match (probe, passing) {
            (Probe::Readiness, passing) => {
                running.probed_ready = passing;
                None
            }
            (Probe::Startup, true) => {
                running.came_up = true;
                None
            }
            // Nobody is asked whether it lives before it came up.
            (Probe::Liveness, false) if self.spec.probes.startup && !running.came_up => None,
            // Nor whether it came up after it did: a new agent may ask once more.
            (Probe::Startup, false) if running.came_up => None,
            (Probe::Liveness | Probe::Startup, false) => running.stop.is_none().then_some(probe),
            (Probe::Liveness, true) => None,
        }
    }

    /// A postStart sleep that we time ourselves may be over.
    pub(crate) fn advance_post_start(&mut self, now: Moment) {
        if let Run::Running(running) = &mut self.run {
            running.post_start = running.post_start.filter(|hook| !hook.slept(now));
        }
    }

    /// When there is something to do about it while its pod lives.
    pub(crate) fn living_wakes(&self, wakes: &mut Soonest) {
        let name = &self.spec.name;
        match &self.run {
            Run::Waiting { until, then, .. } => {
                if let Some((at, _)) = then {
                    wakes.consider(*at, || WakeReason::BackOffShown(name.clone()));
                }
                wakes.consider(*until, || WakeReason::BackOffEnds(name.clone()));
            }
            Run::Running(running) => {
                if let Some(at) = running.post_start.and_then(|hook| hook.sleeps_until()) {
                    wakes.consider(at, || WakeReason::SleepEnds(name.clone()));
                }
                if let Some(stop) = &running.stop {
                    stop.wakes(name, None, wakes);
                }
            }
            Run::Asked(asked) => wakes.consider(asked.until, || WakeReason::StartUnanswered(name.clone())),
            Run::Unstarted | Run::Ended => {}
        }
    }

    /// What a container leaves behind when it ends: no hook of it has anything left to do.
    fn end_hooks(&self, running: &Running, out: &mut Vec<Effect>) {
        if running.post_start.is_some() {
            out.push(Effect::CancelHook { instance: self.instance(), kind: HookKind::PostStart });
        }
        if running.stop.as_ref().is_some_and(Stop::is_in_hook) {
            out.push(Effect::CancelHook { instance: self.instance(), kind: HookKind::PreStop });
        }
    }

    fn record(&mut self, ended: Terminated) {
        self.before = self.newest.replace(ended);
    }

    /// The truth about a run that was taken for lost: better late than never.
    fn correct(&mut self, exit: Exit) {
        if let Some(newest) = &mut self.newest
            && newest.attempt == self.attempt
            && newest.reason == LOST
            // What nobody saw tells at least when it was.
            && (exit.seen || newest.exit.is_none())
        {
            *newest = Terminated::seen(newest.attempt, newest.started, exit);
        }
    }
}

impl Terminated {
    /// What an exit means to others.
    fn seen(attempt: u32, started: Option<Wall>, exit: Exit) -> Self {
        let (reason, exit_code, message) = match exit {
            Exit { seen: false, .. } => (LOST, LOST_CODE, Some(LOST_TERMINATED.into())),
            Exit { oom: true, code, .. } => ("OOMKilled", i32::from(code), None),
            Exit { code: 0, .. } => ("Completed", 0, None),
            Exit { code, .. } => ("Error", i32::from(code), None),
        };
        Self { attempt, reason: reason.into(), message, exit_code, started, exit: Some(exit) }
    }
}
