//! A life with one of everything in it.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::path::PathBuf;
use std::time::Duration;

use lifecycle::{
    BarrierMode, BestEvidence, ContainerName, ContainerReport, ContainerRestart, ContainerSpec, Cut, DeleteSighting,
    Delivery, DrainSpec, Effect, Event, EventKind, Exit, ExitCodes, Hook, HookKind, HookOutcome, HookReport, Input,
    Instance, KillCause, KillOutcome, LastEndpoint, Moment, PodIdentity, PodSpec, Probe, ProbeSpec, Readiness,
    RestartAction, RestartPolicy, RestartRule, Role, Routes, RuntimeReport, SeenContainer, Signal, SpecChange,
    TrafficNews, Wall,
};
use timeline::{Journal, Life, Record};

pub(crate) const BOOT: &str = "6f1c1f7e-0000-4000-8000-000000000001";

pub(crate) fn name() -> ContainerName {
    ContainerName("app".to_owned())
}

pub(crate) fn instance(attempt: u32) -> Instance {
    Instance { name: name(), attempt }
}

pub(crate) fn exit() -> Exit {
    Exit { code: 143, signal: Some(Signal::TERM), oom: false, wall: Wall(1_700_000_000_123), seen: true }
}

pub(crate) fn spec() -> PodSpec {
    let container = |role, hook, stop_signal, readiness| ContainerSpec {
        name: name(),
        role,
        pre_stop: hook,
        post_start: hook,
        stop_signal,
        readiness,
        probes: ProbeSpec {
            startup: stop_signal.is_some(),
            startup_grace: stop_signal.map(|_| Duration::from_secs(60)),
            liveness_grace: None,
        },
        restart: (role == Role::Sidecar).then(|| ContainerRestart {
            policy: RestartPolicy::Never,
            rules: vec![
                RestartRule { codes: ExitCodes::In(vec![42, 0]), action: RestartAction::RestartAllContainers },
                RestartRule { codes: ExitCodes::NotIn(vec![]), action: RestartAction::Restart },
            ],
        }),
    };
    PodSpec {
        identity: PodIdentity { namespace: "default".to_owned(), name: "web".to_owned(), uid: "u".to_owned() },
        containers: vec![
            container(Role::Init, None, None, Readiness::WhileRunning),
            container(Role::Sidecar, Some(Hook::Exec), Some(Signal(34)), Readiness::WhenProbed),
            container(Role::Main, Some(Hook::HttpGet), None, Readiness::WhenProbed),
            container(Role::Ephemeral, Some(Hook::Sleep(Duration::from_millis(1500))), None, Readiness::WhileRunning),
        ],
        restart: RestartPolicy::OnFailure,
        grace: Duration::from_secs(30),
        active_deadline: Some(Duration::from_secs(600)),
        drain: DrainSpec {
            barrier: BarrierMode::Acks,
            budget: Some(Duration::from_secs(1800)),
            signal: Some(Signal(10)),
            signal_to: Some(name()),
            last_endpoint: LastEndpoint::Hold,
            ..DrainSpec::default()
        },
    }
}

/// Every input, and every variant of what inputs hold.
pub(crate) fn inputs() -> Vec<Input> {
    let message = || "because ü".to_owned();
    let (container, first, again) = (name(), instance(0), instance(1));
    let mut inputs = vec![
        Input::Begin,
        Input::ImageReady { container: container.clone(), edition: 0, stop_signal: None },
        Input::ImageReady { container: container.clone(), edition: 0, stop_signal: Some(Signal(3)) },
        Input::ImageFailed { container, edition: 0, reason: "ErrImagePull".to_owned(), message: message() },
        Input::SandboxReady,
        Input::SandboxFailed { message: message() },
        Input::VolumeFailed { message: message() },
        Input::Started { instance: first.clone(), wall: Wall(-5) },
        Input::StartFailed { instance: again.clone(), reason: "StartError".to_owned(), message: message() },
        Input::Exited { instance: first.clone(), exit: exit() },
        Input::Exited { instance: again, exit: Exit { code: 0, signal: None, oom: true, wall: Wall(0), seen: false } },
        Input::DeleteRequested { grace: Duration::from_secs(30), sighting: DeleteSighting::Live },
        Input::DeleteRequested {
            grace: Duration::from_millis(1500),
            sighting: DeleteSighting::Found { left: Duration::new(u64::MAX, 999_999_999) },
        },
        Input::ObjectGone,
        Input::KillFailed { instance: first.clone(), message: message() },
        Input::SandboxLost { instance: first.clone() },
        Input::SandboxRemoved,
        Input::SandboxRemovalFailed { message: message() },
        Input::ObjectDeleted,
        Input::ObjectDeleteFailed { message: message() },
        Input::AgentRestarted { report: RuntimeReport::default() },
        Input::AgentRestarted { report: report() },
        Input::TimePassed,
    ];
    for kind in [HookKind::PreStop, HookKind::PostStart] {
        let failed = HookOutcome::Failed { message: message(), output: Some(message()) };
        for outcome in [HookOutcome::Succeeded, HookOutcome::failed(message()), failed, HookOutcome::Cancelled] {
            inputs.push(Input::HookFinished { instance: first.clone(), kind, outcome });
        }
    }
    let before = Delivery::DeliveredBefore { at: Moment::from_millis(7) };
    for delivery in [Delivery::Delivered, Delivery::AlreadyGone, before] {
        inputs.push(Input::SignalAnswered { instance: first.clone(), signal: Signal::TERM, delivery });
    }
    for (probe, passing) in [(Probe::Readiness, true), (Probe::Liveness, false), (Probe::Startup, true)] {
        inputs.push(Input::ProbeChanged { instance: first.clone(), probe, passing });
    }
    for (cause, grace) in [
        (KillCause::Evicted { message: message() }, None),
        (KillCause::Preempted, Some(Duration::ZERO)),
        (KillCause::NodeShutdown, Some(Duration::from_secs(10))),
        (KillCause::ConfigRemoved, None),
        (KillCause::Orphaned, Some(Duration::from_secs(1))),
        (KillCause::OverLimit { message: message() }, None),
    ] {
        inputs.push(Input::KillRequested { cause, grace });
    }
    for change in [
        SpecChange::Image { container: name() },
        SpecChange::Resources { container: name() },
        SpecChange::Ephemeral { spec: ContainerSpec::new("debug", Role::Ephemeral) },
        SpecChange::ActiveDeadline { deadline: Some(Duration::from_secs(5)) },
        SpecChange::ActiveDeadline { deadline: None },
    ] {
        inputs.push(Input::SpecChanged { change });
    }
    for (best, last) in [
        (BestEvidence::Unrouted, false),
        (BestEvidence::Settled, false),
        (BestEvidence::Acks, false),
        (BestEvidence::Divert, false),
        (BestEvidence::Divert, true),
    ] {
        let routes = Routes { best, last, replaced: false, busy: true };
        inputs.push(Input::Traffic(TrafficNews::Routed(routes)));
    }
    for news in [
        TrafficNews::CutDone { how: Cut::Divert, revision: 77 },
        TrafficNews::Acked { acked: 3, required: 4 },
        TrafficNews::Quiet,
        TrafficNews::Settled,
        TrafficNews::Connections { open: 12 },
        TrafficNews::AppDone,
        TrafficNews::Late { count: 1 },
        TrafficNews::Failed { message: message() },
    ] {
        inputs.push(Input::Traffic(news));
    }
    inputs.extend([
        Input::GenerationSeen { generation: 4 },
        Input::TerminalPhaseSeen { succeeded: true },
        Input::Rejected { reason: "NodeShutdown".to_owned(), message: message() },
        Input::KillAwaited { ticket: 9 },
        Input::Rebooted { was: Moment::from_millis(5_000_000) },
    ]);
    inputs
}

fn report() -> RuntimeReport {
    RuntimeReport {
        sandbox: true,
        containers: vec![
            ContainerReport { instance: instance(0), seen: SeenContainer::Exited { exit: exit() } },
            ContainerReport { instance: instance(1), seen: SeenContainer::Running { wall: Wall(7) } },
        ],
        hooks: vec![
            HookReport { instance: instance(1), kind: HookKind::PostStart, outcome: Some(HookOutcome::Succeeded) },
            HookReport { instance: instance(1), kind: HookKind::PreStop, outcome: None },
        ],
    }
}

/// Every effect.
pub(crate) fn effects() -> Vec<Effect> {
    let instance = instance(0);
    let kind = HookKind::PreStop;
    let event = |container, kind| Event {
        container,
        kind,
        reason: "Killing".to_owned(),
        message: "Stopping container app".to_owned(),
    };
    vec![
        Effect::PullImage { container: name(), edition: 0 },
        Effect::CancelPull { container: name() },
        Effect::CreateSandbox,
        Effect::StartContainer { instance: instance.clone() },
        Effect::RunHook { instance: instance.clone(), kind },
        Effect::CancelHook { instance: instance.clone(), kind },
        Effect::SendSignal { instance: instance.clone(), signal: Signal::TERM },
        Effect::KillContainer { instance },
        Effect::RemoveSandbox,
        Effect::PublishStatus,
        Effect::Emit(event(Some(name()), EventKind::Normal)),
        Effect::Emit(event(None, EventKind::Warning)),
        Effect::DeleteObject,
        Effect::Finish,
        Effect::CutTraffic { how: Cut::Divert },
        Effect::CutTraffic { how: Cut::Withdraw },
        Effect::CutTraffic { how: Cut::Refuse },
        Effect::AwaitSettled,
        Effect::NotifyDrain { until: Moment::from_millis(60_000) },
        Effect::WatchConnections,
        Effect::RestoreTraffic,
        Effect::KillAnswered { ticket: 1, outcome: KillOutcome::Stopped },
        Effect::KillAnswered { ticket: 2, outcome: KillOutcome::Overran },
        Effect::KillAnswered { ticket: 3, outcome: KillOutcome::NotAsked },
    ]
}

pub(crate) fn adopted(uid: &str) -> Record {
    Record::Adopted {
        uid: uid.to_owned(),
        namespace: "default".to_owned(),
        name: "web".to_owned(),
        spec: spec(),
        at: Moment::from_millis(1000),
    }
}

pub(crate) fn step(uid: &str, millis: u64, input: Input, effects: Vec<Effect>) -> Record {
    Record::Step { uid: uid.to_owned(), at: Moment::from_millis(millis), wall: Wall(1), input, effects }
}

pub(crate) fn forgotten(uid: &str) -> Record {
    Record::Forgotten { uid: uid.to_owned() }
}

/// A place for one journal.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().join("journal")
    }
    pub(crate) async fn open(&self) -> (Journal, Vec<Life>) {
        Journal::open(&self.path(), BOOT).await.unwrap()
    }
    pub(crate) async fn lives(&self) -> Vec<Life> {
        self.open().await.1
    }
    pub(crate) fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.path()).unwrap()
    }
}
