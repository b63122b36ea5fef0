//! Workers broken on purpose: each brings back a bug that others have had, and each must be caught.

use lifecycle::{
    BarrierMode, DeleteSighting, Delivery, Effect, HookKind, Input, Instance, KillCause, Moment, PodSpec, PodWorker,
    RestartAction, Routes, RuntimeReport, Signal, TrafficNews,
};

use crate::laws::Law;
use crate::worker::{Make, Worker};

/// A bug.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Flaw {
    /// The KILL follows the stop signal at once.
    KillsAtOnce,
    /// At a spent deadline, KILL comes together with the stop signal.
    GivesNoNotice,
    /// After a restart of the agent the grace begins anew.
    GraceBeginsAnew,
    /// A second, shorter deletion is ignored while the first one is being carried out.
    IgnoresShrink,
    /// A kill by the node is forgotten when the agent restarts.
    ForgetsKill,
    /// A later, ordinary request takes the place of a kill that was not yet carried out.
    OverwritesKill,
    /// A pull that was under way is waited for, and the container started.
    StartsAnyway,
    /// The object is deleted as soon as somebody asks for it.
    DeletesEarly,
    /// A hook that finished is run again after a restart of the agent.
    RunsHookAgain,
    /// The stop signal does not wait for the hook.
    IgnoresHook,
    /// A hook that overran is left running.
    LeaksHook,
    /// The stop signal is sent again after a restart of the agent.
    SignalsAgain,
    /// Sidecars are signalled together with everybody else.
    IgnoresOrder,
    /// Nobody is killed.
    SparesEverybody,
    /// An exit is shown only when something else happens.
    FreezesStatus,
    /// An exit during the hook is not noticed.
    SwallowsExit,
    /// A finished worker goes on publishing.
    TalksOn,
    /// Hooks and signals go out while connections still come.
    IgnoresBarrier,
    /// The end of a hook is not noticed, and the whole grace waited for.
    WaitsForNothing,
    /// Hooks and signals go out while connections are open.
    IgnoresConnections,
    /// One proxy's word is taken for that of all.
    TakesOneForAll,
    /// Whoever was to take the connections is gone, and they are kept away nevertheless.
    TakesFromTheLast,
    /// A replacement that was called off is waited for.
    WaitsForNobody,
    /// What nobody answered is not asked for again.
    AsksOnce,
    /// A pod whose agent died before it forgot it is never forgotten.
    IsNeverForgotten,
    /// A new agent starts a container that runs already.
    StartsTwice,
    /// Nobody is shown the status.
    ShowsNothing,
    /// The notice of a stop signal that was delivered late counts from the ask.
    CountsFromTheAsk,
    /// A restart of the agent grants another notice to whoever had its stop signal before it.
    GrantsNoticeAgain,
    /// A pod that was taken off the lists is called diverted.
    CallsItDiverted,
    /// Whoever lost its siblings after it was released does not get its connections back.
    KeepsFromTheLast,
    /// After a boot a main is started before its init containers.
    StartsMainFirst,
    /// The active deadline is forgotten.
    ForgetsActiveDeadline,
    /// A sleep is begun anew by every agent.
    SleepsAgain,
    /// A pod that nobody claims has all the time it likes.
    HumoursOrphans,
    /// A sandbox is removed over a start that is under way.
    RemovesTooSoon,
    /// Connections that were to be given back when the agent died are not.
    RestoresOnce,
    /// A pod that nobody routes to any more waits for evidence about its traffic.
    WaitsUnrouted,
    /// Of containers that are to be run again together, only the one that asked for it is.
    RestartsOneAlone,
}

impl Flaw {
    /// All of them, each with the law that it breaks.
    pub const ALL: [(Self, Law); 39] = [
        (Self::KillsAtOnce, Law::NoEarlyKill),
        (Self::GivesNoNotice, Law::Notice),
        (Self::GraceBeginsAnew, Law::DeadlineFalls),
        (Self::IgnoresShrink, Law::DeadlineKept),
        (Self::ForgetsKill, Law::KillRemembered),
        (Self::OverwritesKill, Law::DeadlineKept),
        (Self::StartsAnyway, Law::NoStart),
        (Self::DeletesEarly, Law::RemovalLast),
        (Self::RunsHookAgain, Law::HookOnce),
        (Self::IgnoresHook, Law::HookFirst),
        (Self::LeaksHook, Law::HookEnds),
        (Self::SignalsAgain, Law::SignalOnce),
        (Self::IgnoresOrder, Law::SidecarsLast),
        (Self::SparesEverybody, Law::KillInTime),
        (Self::FreezesStatus, Law::TrueStatus),
        (Self::SwallowsExit, Law::TrueStatus),
        (Self::TalksOn, Law::QuietEnd),
        (Self::IgnoresBarrier, Law::BarrierFirst),
        (Self::WaitsForNothing, Law::NoIdleWait),
        (Self::IgnoresConnections, Law::DrainFirst),
        (Self::TakesOneForAll, Law::BarrierFirst),
        (Self::TakesFromTheLast, Law::LastServes),
        (Self::WaitsForNobody, Law::NoIdleWait),
        (Self::AsksOnce, Law::NoDeadEnd),
        (Self::IsNeverForgotten, Law::NoDeadEnd),
        (Self::StartsTwice, Law::NoStart),
        (Self::ShowsNothing, Law::TrueStatus),
        (Self::CountsFromTheAsk, Law::Notice),
        (Self::GrantsNoticeAgain, Law::KillInTime),
        (Self::CallsItDiverted, Law::BarrierFirst),
        (Self::KeepsFromTheLast, Law::LastServes),
        (Self::StartsMainFirst, Law::InitFirst),
        (Self::ForgetsActiveDeadline, Law::ActiveInTime),
        (Self::SleepsAgain, Law::HookOnce),
        (Self::HumoursOrphans, Law::DeadlineKept),
        (Self::RemovesTooSoon, Law::NoStart),
        (Self::RestoresOnce, Law::LastServes),
        (Self::WaitsUnrouted, Law::NoIdleWait),
        (Self::RestartsOneAlone, Law::KillInTime),
    ];

    /// Makes workers that have it.
    pub fn make(self) -> Make<Flawed> {
        macro_rules! makers {
            ($($flaw:ident),*) => {
                match self { $(Self::$flaw => |spec| Flawed::new(Self::$flaw, spec)),* }
            };
        }
        makers!(
            KillsAtOnce,
            GivesNoNotice,
            GraceBeginsAnew,
            IgnoresShrink,
            ForgetsKill,
            OverwritesKill,
            StartsAnyway,
            DeletesEarly,
            RunsHookAgain,
            IgnoresHook,
            LeaksHook,
            SignalsAgain,
            IgnoresOrder,
            SparesEverybody,
            FreezesStatus,
            SwallowsExit,
            TalksOn,
            IgnoresBarrier,
            WaitsForNothing,
            IgnoresConnections,
            TakesOneForAll,
            TakesFromTheLast,
            WaitsForNobody,
            AsksOnce,
            IsNeverForgotten,
            StartsTwice,
            ShowsNothing,
            CountsFromTheAsk,
            GrantsNoticeAgain,
            CallsItDiverted,
            KeepsFromTheLast,
            StartsMainFirst,
            ForgetsActiveDeadline,
            SleepsAgain,
            HumoursOrphans,
            RemovesTooSoon,
            RestoresOnce,
            WaitsUnrouted,
            RestartsOneAlone
        )
    }
}

/// A worker with a bug.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Flawed {
    worker: PodWorker,
    flaw: Flaw,
    spec: PodSpec,
    /// What the worker was before something it will not remember.
    before: Option<Box<PodWorker>>,
    held_back: Option<Input>,
    signalled: Option<Instance>,
}

impl Flawed {
    fn new(flaw: Flaw, spec: PodSpec) -> Self {
        let mut asked = spec.clone();
        if flaw == Flaw::IgnoresBarrier {
            asked.drain.barrier = BarrierMode::Off;
        }
        if flaw == Flaw::IgnoresConnections {
            asked.drain.budget = None;
        }
        if flaw == Flaw::ForgetsActiveDeadline {
            asked.active_deadline = None;
        }
        if flaw == Flaw::RestartsOneAlone {
            let rules = asked.containers.iter_mut().filter_map(|it| it.restart.as_mut()).flat_map(|own| &mut own.rules);
            rules.for_each(|rule| rule.action = RestartAction::Restart);
        }
        let worker = PodWorker::new(asked);
        Self { worker, flaw, spec, before: None, held_back: None, signalled: None }
    }

    fn first_runs(&self) -> impl Iterator<Item = Instance> {
        self.spec.containers.iter().map(|container| Instance { name: container.name.clone(), attempt: 0 })
    }

    fn in_hook(&self) -> bool {
        self.signalled.is_none() && self.worker.is_terminating()
    }
}

impl Worker for Flawed {
    fn inner(&self) -> &PodWorker {
        &self.worker
    }

    fn rebuilt(mut self) -> Self {
        if matches!(self.flaw, Flaw::ForgetsKill | Flaw::RunsHookAgain)
            && let Some(before) = self.before.take()
        {
            self.worker = *before;
        }
        self
    }

    fn handle(&mut self, now: Moment, mut input: Input) -> Vec<Effect> {
        let told = input.clone();
        let was_terminating = self.worker.is_terminating();
        let mut effects = Vec::new();
        match (self.flaw, &mut input) {
            (Flaw::IgnoresShrink, Input::DeleteRequested { .. }) if was_terminating => return effects,
            (Flaw::OverwritesKill, Input::KillRequested { .. }) if !was_terminating => {
                self.before = Some(Box::new(self.worker.clone()));
            }
            (Flaw::OverwritesKill, Input::DeleteRequested { .. }) => {
                if let Some(before) = self.before.take() {
                    self.worker = *before;
                }
            }
            (Flaw::ForgetsKill, Input::KillRequested { .. }) if !was_terminating => {
                self.before = Some(Box::new(self.worker.clone()));
            }
            (Flaw::GraceBeginsAnew, Input::DeleteRequested { .. }) if !was_terminating => {
                self.before = Some(Box::new(self.worker.clone()));
            }
            (Flaw::GraceBeginsAnew, Input::AgentRestarted { .. }) => {
                if let Some(before) = &self.before {
                    self.worker = (**before).clone();
                    let grace = crate::world::DELETE_GRACE;
                    let again = Input::DeleteRequested { grace, sighting: DeleteSighting::Live };
                    effects.extend(self.worker.handle(now, again));
                }
            }
            (Flaw::RunsHookAgain, Input::HookFinished { .. }) => self.before = Some(Box::new(self.worker.clone())),
            (Flaw::RunsHookAgain, Input::AgentRestarted { report: RuntimeReport { hooks, .. } }) => hooks.clear(),
            (Flaw::WaitsForNothing, Input::HookFinished { .. }) => return effects,
            (Flaw::TakesOneForAll, Input::Traffic(TrafficNews::Acked { acked, required })) => *required = *acked,
            (Flaw::TakesFromTheLast, Input::Traffic(TrafficNews::Routed(Routes { last: true, .. }))) => return effects,
            (Flaw::WaitsForNobody, Input::Traffic(TrafficNews::Routed(routes))) => routes.replaced = true,
            (
                Flaw::WaitsUnrouted,
                Input::Traffic(TrafficNews::Routed(Routes { best: lifecycle::BestEvidence::Unrouted, .. })),
            ) => return effects,
            (Flaw::CountsFromTheAsk, Input::SignalAnswered { .. }) => return effects,
            (Flaw::GrantsNoticeAgain, Input::SignalAnswered { delivery, .. }) => {
                if let Delivery::DeliveredBefore { .. } = delivery {
                    *delivery = Delivery::Delivered;
                }
            }
            (Flaw::CallsItDiverted, Input::Traffic(TrafficNews::CutDone { how, .. })) => *how = lifecycle::Cut::Divert,
            (Flaw::CallsItDiverted, Input::Traffic(TrafficNews::Routed(routes))) => {
                routes.best = lifecycle::BestEvidence::Divert;
            }
            (Flaw::HumoursOrphans, Input::KillRequested { cause: KillCause::Orphaned, grace }) => {
                *grace = Some(self.spec.grace);
            }
            (Flaw::AsksOnce, Input::TimePassed) if self.worker.is_terminating() && now.as_millis() > 60_000 => {
                return effects;
            }
            (Flaw::IsNeverForgotten, Input::AgentRestarted { .. }) if self.worker.is_finished() => return effects,
            (Flaw::SwallowsExit, Input::Exited { .. }) if self.in_hook() => return effects,
            (Flaw::FreezesStatus, Input::Exited { .. }) if self.held_back.is_none() => {
                self.held_back = Some(told);
                return effects;
            }
            (Flaw::FreezesStatus, _) => {
                if let Some(held_back) = self.held_back.take() {
                    effects.extend(self.worker.handle(now, held_back));
                }
            }
            _ => {}
        }
        effects.extend(self.worker.handle(now, input));
        self.spoil(now, &told, was_terminating, &mut effects);
        effects
    }
}

impl Flawed {
    /// What the bug makes of what the worker asks for.
    fn spoil(&mut self, now: Moment, told: &Input, was_terminating: bool, effects: &mut Vec<Effect>) {
        let signal = Signal::TERM;
        let signalled = effects.iter().find_map(|effect| {
            if let Effect::SendSignal { instance, .. } = effect { Some(instance.clone()) } else { None }
        });
        match (self.flaw, told) {
            (Flaw::KillsAtOnce, Input::SignalAnswered { instance, .. }) => {
                effects.push(Effect::KillContainer { instance: instance.clone() });
            }
            (Flaw::GivesNoNotice, _) if self.worker.deadline().is_some_and(|deadline| now >= deadline) => {
                effects.extend(signalled.clone().map(|instance| Effect::KillContainer { instance }));
            }
            (Flaw::StartsAnyway, Input::ImageReady { .. }) if was_terminating => {
                effects.extend(self.first_runs().map(|instance| Effect::StartContainer { instance }));
            }
            (Flaw::StartsAnyway, _) => effects.retain(|effect| !matches!(effect, Effect::CancelPull { .. })),
            (Flaw::DeletesEarly, Input::DeleteRequested { .. }) if !was_terminating => {
                effects.push(Effect::DeleteObject);
            }
            (Flaw::IgnoresHook, _) => {
                let hooks: Vec<Instance> = effects
                    .iter()
                    .filter_map(|effect| {
                        if let Effect::RunHook { instance, kind: HookKind::PreStop } = effect {
                            Some(instance.clone())
                        } else {
                            None
                        }
                    })
                    .collect();
                effects.extend(hooks.into_iter().map(|instance| Effect::SendSignal { instance, signal }));
            }
            (Flaw::LeaksHook, _) => effects.retain(|effect| !matches!(effect, Effect::CancelHook { .. })),
            (Flaw::SignalsAgain, Input::AgentRestarted { .. }) if signalled.is_none() => {
                effects.extend(self.signalled.clone().map(|instance| Effect::SendSignal { instance, signal }));
            }
            (Flaw::IgnoresOrder, _) if !was_terminating && self.worker.is_terminating() => {
                effects.extend(self.first_runs().map(|instance| Effect::SendSignal { instance, signal }));
            }
            (Flaw::SparesEverybody, _) => effects.retain(|effect| !matches!(effect, Effect::KillContainer { .. })),
            (Flaw::StartsTwice, Input::AgentRestarted { .. }) if !self.worker.is_terminating() => {
                let next = |run: Instance| Instance { attempt: run.attempt + 1, ..run };
                effects.extend(self.first_runs().map(|run| Effect::StartContainer { instance: next(run) }));
            }
            (Flaw::CallsItDiverted, _) => {
                for effect in effects.iter_mut() {
                    if let Effect::CutTraffic { how } = effect {
                        *how = lifecycle::Cut::Withdraw;
                    }
                }
            }
            (Flaw::KeepsFromTheLast, _) if signalled.is_some() || self.signalled.is_some() => {
                effects.retain(|effect| !matches!(effect, Effect::RestoreTraffic));
            }
            (Flaw::StartsMainFirst, Input::Rebooted { .. }) if !self.worker.is_terminating() => {
                let next = |run: Instance| Instance { attempt: run.attempt + 1, ..run };
                effects.extend(self.first_runs().last().map(|run| Effect::StartContainer { instance: next(run) }));
            }
            (Flaw::SleepsAgain, Input::AgentRestarted { .. }) if self.worker.is_terminating() => {
                let kind = HookKind::PreStop;
                effects.extend(self.first_runs().map(|instance| Effect::RunHook { instance, kind }));
            }
            (Flaw::RemovesTooSoon, Input::DeleteRequested { .. }) if !was_terminating => {
                effects.push(Effect::RemoveSandbox);
            }
            (Flaw::RestoresOnce, Input::AgentRestarted { .. }) => {
                effects.retain(|effect| !matches!(effect, Effect::RestoreTraffic));
            }
            (Flaw::ShowsNothing, _) => effects.retain(|effect| !matches!(effect, Effect::PublishStatus)),
            (Flaw::TalksOn, _) if self.worker.is_finished() => effects.push(Effect::PublishStatus),
            _ => {}
        }
        self.signalled = signalled.or(self.signalled.take());
    }
}
