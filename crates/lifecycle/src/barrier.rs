//! What stands between a pod that was asked to leave and its first hook or stop signal: its traffic.
//!
//! ```text
//!  Holding ──a stand-in is ready──▶ Cutting ──evidence, or cap──▶ Draining ──nobody connected, or budget──▶ Open
//!     └────── no stand-in in time, or none is coming ─────────────▶ ┘ (only with a drain budget)
//! ```
//!
//! All of it happens inside the pod's grace: a reserve for hooks and the stop signal is kept back, every wait has a
//! cap, and whatever goes wrong opens the barrier at that cap. A pod that nobody routes to passes without a wait.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use crate::container::{Container, Run};
use crate::reboot::Shift;
use crate::wake::Soonest;
use crate::{
    BarrierMode, BestEvidence, Condition, Cut, DrainSpec, Effect, Event, GraceBudget, Hook, LastEndpoint, Moment,
    Release, Role, Routes, TrafficNews, WakeReason,
};

/// How long evidence is waited for if nobody said.
const CAP: Duration = Duration::from_secs(5);
/// How long connections that nobody accepted yet are waited for.
const SETTLE_CAP: Duration = Duration::from_secs(1);
/// For how long nobody must be connected before that is believed.
const FEW_FOR: Duration = Duration::from_millis(500);

/// How far the traffic of a leaving pod has gone.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Barrier {
    step: Step,
    released: Option<Released>,
    /// What was last asked for about new connections. Giving them back is never answered, so a new agent asks again.
    away: Away,
    /// A wait ended because its time was over.
    cut_short: bool,
}

/// Where new connections to the pod go.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Away {
    /// To the pod, as before: nothing was ever taken from it.
    Never,
    /// Elsewhere, in that way; `done` once that was told.
    Kept { how: Cut, done: bool },
    /// To the pod again, because nobody else can take them. Left when somebody can.
    GivenBack,
}

/// How the wait for evidence ended.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Released {
    reason: Release,
    after: Duration,
    acked: Option<(u32, u32)>,
    late: u32,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Step {
    /// Hooks and signals may go out.
    Open,
    /// Nobody else can take the traffic. Left when somebody can, or when there is no more time to wait.
    Holding,
    /// New connections are being kept away. Left with evidence, or at the cap.
    Cutting(Cutting),
    /// Open connections are waited for. Left when few enough remain, or at the end of the budget.
    Draining(Draining),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Cutting {
    /// When it began, if that was not with the request itself.
    since: Option<Moment>,
    how: Cut,
    cut: bool,
    acked: Option<(u32, u32)>,
    quiet: bool,
    settle: Settle,
    failure: Option<String>,
}

/// Connections that were made before the cut and not accepted yet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Settle {
    Unasked,
    Asked { since: Moment },
    Done,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Draining {
    since: Moment,
    open: Option<u32>,
    few_since: Option<Moment>,
    /// The application said so, or nobody can count.
    done: bool,
}

/// What a barrier needs to know of the pod it stands before.
pub(crate) struct BarrierContext<'a> {
    pub(crate) now: Moment,
    pub(crate) budget: GraceBudget,
    pub(crate) drain: &'a DrainSpec,
    pub(crate) routes: Routes,
    pub(crate) containers: &'a [Container],
    /// The object was deleted by force.
    pub(crate) forced: bool,
}

impl BarrierContext<'_> {
    /// What is kept back for hooks and the stop signal (traffic-and-rollouts 3.3).
    fn reserve(&self) -> Duration {
        let grace = self.budget.grace();
        let sleeps = self.containers.iter().filter_map(|container| match container.spec.pre_stop {
            Some(Hook::Sleep(length)) => Some(length),
            Some(Hook::Exec | Hook::ExecSleep(_) | Hook::HttpGet) | None => None,
        });
        let third = Duration::from_secs(grace.as_millis().div_ceil(3000).try_into().unwrap_or(u64::MAX));
        let least = Duration::from_secs(2);
        let reckoned = least
            .max(third.min(Duration::from_secs(10)))
            .max(sleeps.max().map_or(Duration::ZERO, |sleep| sleep + least));
        self.drain.reserve.unwrap_or(reckoned).min(grace)
    }

    /// When hooks must have begun at the latest.
    fn latest(&self) -> Moment {
        self.budget.deadline().before(self.reserve())
    }

    fn cap(&self, since: Option<Moment>) -> Moment {
        let room = self.budget.grace().saturating_sub(self.reserve());
        let cap = self.drain.barrier_cap.unwrap_or(CAP).min(room);
        since.map_or_else(|| self.budget.after(cap), |since| since + cap).min(self.latest())
    }

    fn hold_until(&self) -> Moment {
        let wanted = self.drain.replacement_wait.map(|wait| self.budget.after(wait));
        wanted.map_or(self.latest(), |wanted| wanted.min(self.latest()))
    }

    fn drain_until(&self, since: Moment) -> Moment {
        (since + self.drain.budget.unwrap_or(Duration::ZERO)).min(self.latest())
    }

    /// A main container was seen to run and not to end.
    fn serves(&self) -> bool {
        self.containers.iter().any(|it| it.spec.role == Role::Main && matches!(it.run, Run::Running(_)))
    }

    /// What the pod's traffic calls for (traffic-and-rollouts 3.4, 3.5).
    fn decision(&self) -> Decision {
        let Self { drain, routes, .. } = self;
        if drain.barrier == BarrierMode::Off {
            return Decision::Release(Release::Off);
        }
        if routes.best == BestEvidence::Unrouted && drain.barrier != BarrierMode::Quiet {
            return Decision::Release(Release::NotSelected);
        }
        if !routes.last {
            return Decision::Cut(self.how_to_cut());
        }
        match drain.last_endpoint {
            LastEndpoint::Reject => Decision::Cut(Cut::Refuse),
            LastEndpoint::Serve | LastEndpoint::Hold if !routes.busy => Decision::Release(Release::LastEndpoint),
            LastEndpoint::Serve if !routes.replaced => Decision::Release(Release::LastEndpoint),
            LastEndpoint::Serve | LastEndpoint::Hold => Decision::Hold,
        }
    }

    /// Nobody else can take its connections, and it does not want them to be refused.
    fn is_the_last(&self) -> bool {
        self.routes.last && self.drain.last_endpoint != LastEndpoint::Reject
    }

    fn how_to_cut(&self) -> Cut {
        match (self.drain.barrier, self.routes.best) {
            (BarrierMode::Local, _) | (BarrierMode::Auto, BestEvidence::Divert) => Cut::Divert,
            (BarrierMode::Auto | BarrierMode::Acks | BarrierMode::Quiet | BarrierMode::Off, _) => Cut::Withdraw,
        }
    }
}

/// What the traffic of a leaving pod calls for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Decision {
    /// Nothing to wait for.
    Release(Release),
    /// New connections are to be kept away.
    Cut(Cut),
    /// It goes on serving until somebody can take its place.
    Hold,
}

impl Barrier {
    /// For a pod whose traffic is nobody's concern: it has none, or is done.
    pub(crate) fn none() -> Self {
        Self { step: Step::Open, released: None, away: Away::Never, cut_short: false }
    }

    /// The pod was asked to leave.
    pub(crate) fn begin(around: &BarrierContext<'_>, out: &mut Vec<Effect>) -> Self {
        let mut barrier = Self::none();
        if around.serves() {
            barrier.enter(around, None, out);
            barrier.advance(around, out);
        }
        barrier
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.step, Step::Open)
    }

    /// A sleep before the stop signal has no purpose: what it would wait for is known to have happened.
    pub(crate) fn makes_sleep_pointless(&self) -> bool {
        self.released.as_ref().is_some_and(|released| released.reason.is_evidence())
    }

    pub(crate) fn was_cut_short(&self) -> bool {
        self.cut_short
    }

    /// Begins with what the pod's traffic calls for; `since` is when, if not with the request.
    fn enter(&mut self, around: &BarrierContext<'_>, since: Option<Moment>, out: &mut Vec<Effect>) {
        match around.decision() {
            Decision::Release(reason) => self.release(around, reason, out),
            Decision::Cut(how) => self.cut(how, since, out),
            Decision::Hold => {
                let message = "Nobody else can take its connections yet: it goes on serving";
                out.push(Effect::Emit(Event::pod_normal("DrainStarted", message.into())));
                self.step = Step::Holding;
            }
        }
    }

    fn cut(&mut self, how: Cut, since: Option<Moment>, out: &mut Vec<Effect>) {
        let message = "New connections are being kept away";
        out.push(Effect::CutTraffic { how });
        out.push(Effect::Emit(Event::pod_normal("DrainStarted", message.into())));
        self.away = Away::Kept { how, done: false };
        self.step = Step::Cutting(Cutting {
            since,
            how,
            cut: false,
            acked: None,
            quiet: false,
            settle: Settle::Unasked,
            failure: None,
        });
    }

    /// Told by whoever routes. How the pod is reached is the pod's to remember.
    pub(crate) fn told(&mut self, now: Moment, enough: u32, news: TrafficNews, out: &mut Vec<Effect>) {
        if let (Away::Kept { how: asked, done }, TrafficNews::CutDone { how, .. }) = (&mut self.away, &news) {
            *done |= asked == how;
        }
        match (&mut self.step, news) {
            // The answer to an earlier, other cut says nothing of this one.
            (Step::Cutting(cutting), TrafficNews::CutDone { how, revision: _ }) => cutting.cut |= how == cutting.how,
            (Step::Cutting(cutting), TrafficNews::Acked { acked, required }) => cutting.acked = Some((acked, required)),
            (Step::Cutting(cutting), TrafficNews::Quiet) => cutting.quiet = true,
            (Step::Cutting(cutting), TrafficNews::Settled) => {
                if let Settle::Asked { .. } = cutting.settle {
                    cutting.settle = Settle::Done;
                }
            }
            (Step::Cutting(cutting), TrafficNews::Failed { message }) => cutting.failure = Some(message),
            (Step::Draining(draining), TrafficNews::Connections { open }) => {
                draining.open = Some(open);
                draining.few_since = (open <= enough).then(|| draining.few_since.unwrap_or(now));
            }
            (Step::Draining(draining), TrafficNews::AppDone) => draining.done = true,
            (Step::Draining(draining), TrafficNews::Failed { message }) => {
                // Nobody was ever seen to be connected, so there is nobody to wait for.
                if draining.open.is_none() {
                    draining.done = true;
                }
                let message = format!("Open connections cannot be counted: {message}");
                out.push(Effect::Emit(Event::pod_warning("DrainFailed", message)));
            }
            (_, TrafficNews::Late { count }) => {
                if let Some(released) = &mut self.released {
                    released.late = count;
                    let message = format!("{count} connections came after the barrier was released");
                    out.push(Effect::Emit(Event::pod_warning("LateConnections", message)));
                }
            }
            // Evidence for something else than what is waited for, or too late.
            (
                Step::Open | Step::Holding | Step::Cutting(_) | Step::Draining(_),
                TrafficNews::Routed(_)
                | TrafficNews::CutDone { .. }
                | TrafficNews::Acked { .. }
                | TrafficNews::Quiet
                | TrafficNews::Settled
                | TrafficNews::Connections { .. }
                | TrafficNews::AppDone
                | TrafficNews::Failed { .. },
            ) => {}
        }
    }

    /// Goes as far as time and evidence allow.
    pub(crate) fn advance(&mut self, around: &BarrierContext<'_>, out: &mut Vec<Effect>) {
        if around.forced && !self.is_open() {
            if self.released.is_none() {
                self.release(around, Release::Forced, out);
            }
            self.step = Step::Open;
        }
        if let (Step::Holding | Step::Cutting(_), false) = (&self.step, around.serves()) {
            self.release(around, Release::NotServing, out);
        }
        if let Step::Holding = self.step {
            if around.now >= around.hold_until() {
                self.cut_short = true;
                self.release(around, Release::Deadline, out);
            } else if around.decision() != Decision::Hold {
                self.enter(around, Some(around.now), out);
            }
        }
        if let (Step::Cutting(_), Decision::Release(reason @ Release::NotSelected)) = (&self.step, around.decision()) {
            // Nobody sends connections to it any more, so there is nothing to be shown.
            self.release(around, reason, out);
        }
        if let Step::Cutting(cutting) = &mut self.step {
            if cutting.follow(around, out) {
                self.away = Away::Kept { how: cutting.how, done: false };
            }
            if around.is_the_last() {
                // Whoever was to take the traffic is gone: nothing may be taken from the last one.
                out.push(Effect::RestoreTraffic);
                self.away = Away::GivenBack;
                self.enter(around, Some(around.now), out);
            } else if let Some(reason) = cutting.advance(around, out) {
                self.cut_short |= reason == Release::Deadline;
                self.release(around, reason, out);
            }
        }
        if let Step::Draining(draining) = &self.step {
            let spent = around.now >= around.drain_until(draining.since);
            let few = draining.few_since.is_some_and(|since| around.now >= since + FEW_FOR);
            if few || draining.done || spent || !around.serves() {
                self.cut_short |= spent && !few;
                self.step = Step::Open;
            }
        }
        self.mind_the_last(around, out);
    }

    /// A pod that was released and still serves gets its connections back when nobody else can take them any more, and
    /// loses them again when somebody can.
    fn mind_the_last(&mut self, around: &BarrierContext<'_>, out: &mut Vec<Effect>) {
        if self.released.is_none() || !around.serves() {
            return;
        }
        if matches!(self.away, Away::Kept { .. }) && around.is_the_last() {
            out.push(Effect::RestoreTraffic);
            self.away = Away::GivenBack;
        } else if self.away == Away::GivenBack && !around.routes.last {
            let how = around.how_to_cut();
            out.push(Effect::CutTraffic { how });
            self.away = Away::Kept { how, done: false };
        }
    }

    fn release(&mut self, around: &BarrierContext<'_>, reason: Release, out: &mut Vec<Effect>) {
        let after = around.budget.age(around.now);
        let (acked, failure) = match &self.step {
            Step::Cutting(cutting) => (cutting.acked, cutting.failure.as_deref()),
            Step::Open | Step::Holding | Step::Draining(_) => (None, None),
        };
        match reason {
            Release::NotSelected | Release::NotServing | Release::Off | Release::Forced => {}
            Release::Deadline => {
                let why = failure.map(|failure| format!(": {failure}")).unwrap_or_default();
                let message = format!("No evidence after {after:?} that new connections go elsewhere{why}");
                out.push(Effect::Emit(Event::pod_warning("DrainDeadline", message)));
            }
            Release::LocalCut
            | Release::AllAcked
            | Release::Quiet
            | Release::Settled
            | Release::LastEndpoint
            | Release::ShortGrace => {
                let message = format!("Released after {after:?}: {reason}");
                out.push(Effect::Emit(Event::pod_normal("DrainReleased", message)));
            }
        }
        self.released = Some(Released { reason, after, acked, late: 0 });
        self.step = Step::Open;
        if !around.forced && around.serves() {
            self.wait_for_connections(around, out);
        }
    }

    /// Waits for those who are connected, if the pod has a budget for that.
    fn wait_for_connections(&mut self, around: &BarrierContext<'_>, out: &mut Vec<Effect>) {
        let until = around.drain_until(around.now);
        if until <= around.now {
            return;
        }
        out.push(Effect::NotifyDrain { until });
        let told = around.containers.iter().find(|container| match &around.drain.signal_to {
            Some(name) => container.spec.name == *name,
            None => container.spec.role == Role::Main,
        });
        if let (Some(signal), Some(container)) = (around.drain.signal, told)
            && let Run::Running(_) = container.run
        {
            out.push(Effect::SendSignal { instance: container.instance(), signal });
        }
        out.push(Effect::WatchConnections);
        self.step = Step::Draining(Draining { since: around.now, open: None, few_since: None, done: false });
    }

    /// The agent came back: what was not answered is asked again, what was told once is not told twice. Who keeps connections
    /// away came back with it, and does not know for whom, so that is asked for whether it was answered or not.
    pub(crate) fn reattach(&self, out: &mut Vec<Effect>) {
        match self.away {
            Away::Kept { how, .. } => out.push(Effect::CutTraffic { how }),
            Away::GivenBack => out.push(Effect::RestoreTraffic),
            Away::Never => {}
        }
        match &self.step {
            Step::Open | Step::Holding => {}
            Step::Cutting(cutting) => {
                if let Settle::Asked { .. } = cutting.settle {
                    out.push(Effect::AwaitSettled);
                }
            }
            Step::Draining(_) => out.push(Effect::WatchConnections),
        }
    }

    /// When there is something to do about it.
    pub(crate) fn wakes(&self, around: &BarrierContext<'_>, wakes: &mut Soonest) {
        match &self.step {
            Step::Open => {}
            Step::Holding => wakes.consider(around.hold_until(), || WakeReason::ReplacementWait),
            Step::Cutting(cutting) => {
                if let Settle::Asked { since } = cutting.settle {
                    wakes.consider(since + SETTLE_CAP, || WakeReason::SettleCap);
                }
                wakes.consider(around.cap(cutting.since), || WakeReason::BarrierCap);
            }
            Step::Draining(draining) => {
                if let Some(since) = draining.few_since {
                    wakes.consider(since + FEW_FOR, || WakeReason::ConnectionsGone);
                }
                wakes.consider(around.drain_until(draining.since), || WakeReason::DrainBudgetSpent);
            }
        }
    }

    /// What others see of it.
    pub(crate) fn condition(&self) -> Option<Condition> {
        let Some(Released { reason, after, acked, late }) = &self.released else {
            let reason = match self.step {
                Step::Open => return None,
                Step::Holding => "WaitingForReplacement",
                Step::Cutting(_) | Step::Draining(_) => "WaitingForEvidence",
            };
            return Some(Condition { holds: false, reason: Some(reason.into()), message: None });
        };
        let mut message = if after.is_zero() { "at once".into() } else { format!("after {after:?}") };
        if let Some((acked, required)) = acked {
            message.push_str(&format!(", {acked} of {required} proxies let go"));
        }
        if let Step::Draining(Draining { open: Some(open), .. }) = self.step {
            message.push_str(&format!(", {open} connections open"));
        }
        if *late > 0 {
            message.push_str(&format!(", {late} connections came late"));
        }
        Some(Condition { holds: true, reason: Some(format!("{reason}")), message: Some(message) })
    }

    pub(crate) fn rebase(&mut self, shift: Shift) {
        match &mut self.step {
            Step::Open | Step::Holding => {}
            Step::Cutting(cutting) => {
                cutting.since.iter_mut().for_each(|since| shift.apply(since));
                if let Settle::Asked { since } = &mut cutting.settle {
                    shift.apply(since);
                }
            }
            Step::Draining(draining) => {
                shift.apply(&mut draining.since);
                draining.few_since.iter_mut().for_each(|since| shift.apply(since));
            }
        }
    }
}

impl Cutting {
    /// What releases the pod, if anything does yet.
    fn advance(&mut self, around: &BarrierContext<'_>, out: &mut Vec<Effect>) -> Option<Release> {
        let evidence = self.evidence(around);
        if evidence.is_some() && self.settle == Settle::Unasked {
            out.push(Effect::AwaitSettled);
            self.settle = Settle::Asked { since: around.now };
        }
        let settled = match self.settle {
            Settle::Unasked => false,
            Settle::Asked { since } => around.now >= since + SETTLE_CAP,
            Settle::Done => true,
        };
        let spent = around.now >= around.cap(self.since);
        match evidence {
            Some(reason) if settled || spent => Some(reason),
            Some(_) | None if self.quiet && self.counts_quiet(around) => Some(Release::Quiet),
            None if spent && around.budget.grace() <= around.reserve() => Some(Release::ShortGrace),
            None if spent => Some(Release::Deadline),
            Some(_) | None => None,
        }
    }

    /// How the pod is reached has changed: new connections are kept away in the way that fits by now. What was known of
    /// the other way is no evidence for this one. True if it was.
    fn follow(&mut self, around: &BarrierContext<'_>, out: &mut Vec<Effect>) -> bool {
        let how = match around.routes.last {
            true => Cut::Refuse,
            false => around.how_to_cut(),
        };
        let differs = how != self.how && !around.is_the_last();
        if differs {
            out.push(Effect::CutTraffic { how });
            (self.how, self.cut, self.settle) = (how, false, Settle::Unasked);
        }
        differs
    }

    /// The best there is of what counts for this pod. Only a cut that sends or turns new connections away on the node
    /// itself tells where they go; one that merely takes the pod off the lists does not.
    fn evidence(&self, around: &BarrierContext<'_>) -> Option<Release> {
        let local = || matches!(self.how, Cut::Divert | Cut::Refuse).then_some(Release::LocalCut);
        let (cut, acks) = match (around.drain.barrier, around.routes.best) {
            _ if self.how == Cut::Refuse => (local(), true),
            (BarrierMode::Auto, BestEvidence::Settled) => (Some(Release::Settled), false),
            (BarrierMode::Auto, BestEvidence::Divert | BestEvidence::Acks | BestEvidence::Unrouted) => (local(), true),
            (BarrierMode::Acks, _) => (None, true),
            (BarrierMode::Local, _) => (local(), false),
            (BarrierMode::Quiet | BarrierMode::Off, _) => (None, false),
        };
        let all_acked = self.acked.is_some_and(|(acked, required)| acked >= required);
        cut.filter(|_| self.cut).or((acks && all_acked).then_some(Release::AllAcked))
    }

    /// Whether silence counts: it needs no empty queues, for who waits in one is not silent.
    fn counts_quiet(&self, around: &BarrierContext<'_>) -> bool {
        match around.drain.barrier {
            BarrierMode::Auto | BarrierMode::Quiet | BarrierMode::Off => true,
            BarrierMode::Local | BarrierMode::Acks => self.how == Cut::Refuse,
        }
    }
}
