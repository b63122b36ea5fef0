//! The binary encoding of inputs, effects and specs. A tag is never reused for another variant.

use lifecycle::{
    ANY_EDITION, BarrierMode, BestEvidence, ContainerName, ContainerReport, ContainerRestart, ContainerSnapshot,
    ContainerSpec, Cut, DeleteSighting, Delivery, DrainSpec, Effect, Event, EventKind, Exit, ExitCodes, Hook, HookKind,
    HookOutcome, HookReport, ImageSnapshot, Input, Instance, KillCause, KillOutcome, LastEndpoint, Moment, PodIdentity,
    PodSnapshot, PodSpec, Probe, ProbeSpec, Readiness, RestartAction, RestartPolicy, RestartRule, Role, Routes,
    RunSnapshot, RuntimeReport, SeenContainer, Signal, SpecChange, Terminated, TrafficNews, Waiting, Wall,
};

use crate::wire::{Wire, WireError, wire_enum, wire_struct};

impl Wire for Moment {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_millis().put(out);
    }
    fn take(input: &mut &[u8]) -> Result<Self, WireError> {
        u64::take(input).map(Self::from_millis)
    }
}

wire_struct!(Wall(millis));
wire_struct!(ContainerName(name));
wire_struct!(Signal(number));
wire_struct!(Instance { name, attempt });

/// Whose spec it is, is said by the record that holds it.
impl Wire for PodSpec {
    fn put(&self, out: &mut Vec<u8>) {
        let Self { identity: _, containers, restart, grace, active_deadline, drain } = self;
        containers.put(out);
        restart.put(out);
        grace.put(out);
        active_deadline.put(out);
        drain.put(out);
    }
    fn take(input: &mut &[u8]) -> Result<Self, WireError> {
        Ok(Self {
            identity: PodIdentity::default(),
            containers: Wire::take(input)?,
            restart: Wire::take(input)?,
            grace: Wire::take(input)?,
            active_deadline: Wire::take(input)?,
            drain: Wire::take(input)?,
        })
    }
}
/// Added to the tag of the role of a container that is restarted by rules of its own, which follow behind everything else.
const WITH_RESTART: u8 = 0x10;

impl Wire for ContainerSpec {
    fn put(&self, out: &mut Vec<u8>) {
        let Self { name, role, pre_stop, post_start, stop_signal, readiness, probes, restart } = self;
        name.put(out);
        let tag = out.len();
        role.put(out);
        pre_stop.put(out);
        post_start.put(out);
        stop_signal.put(out);
        readiness.put(out);
        probes.put(out);
        if let Some(restart) = restart {
            out[tag] |= WITH_RESTART;
            restart.put(out);
        }
    }
    fn take(input: &mut &[u8]) -> Result<Self, WireError> {
        let name = Wire::take(input)?;
        let tag = u8::take(input)?;
        let mut spec = Self {
            name,
            role: Role::take(&mut [tag & !WITH_RESTART].as_slice())?,
            pre_stop: Wire::take(input)?,
            post_start: Wire::take(input)?,
            stop_signal: Wire::take(input)?,
            readiness: Wire::take(input)?,
            probes: Wire::take(input)?,
            restart: None,
        };
        if tag & WITH_RESTART != 0 {
            spec.restart = Some(Wire::take(input)?);
        }
        Ok(spec)
    }
}
wire_struct!(ContainerRestart { policy, rules });
wire_struct!(RestartRule { codes, action });
wire_enum!(ExitCodes { 1 In(codes); 2 NotIn(codes); });
wire_enum!(RestartAction { 1 Restart; 2 RestartAllContainers; });
wire_struct!(ProbeSpec { startup, startup_grace, liveness_grace });
wire_struct!(DrainSpec {
    barrier,
    barrier_cap,
    reserve,
    budget,
    enough,
    signal,
    signal_to,
    elide_sleep,
    last_endpoint,
    replacement_wait,
    restart_barrier
});
wire_enum!(BarrierMode { 1 Auto; 2 Local; 3 Acks; 4 Quiet; 5 Off; });
wire_enum!(LastEndpoint { 1 Serve; 2 Hold; 3 Reject; });
wire_enum!(Role { 1 Init; 2 Sidecar; 3 Main; 4 Ephemeral; });
wire_enum!(RestartPolicy { 1 Always; 2 OnFailure; 3 Never; });
wire_enum!(Hook { 1 Exec; 2 HttpGet; 3 Sleep(span); 4 ExecSleep(span); });
wire_enum!(Readiness { 1 WhileRunning; 2 WhenProbed; });

wire_enum!(Input {
    1 Begin;
    4 SandboxReady;
    5 SandboxFailed { message };
    6 Started { instance, wall };
    7 StartFailed { instance, reason, message };
    8 Exited { instance, exit };
    9 HookFinished { instance, kind, outcome };
    10 SignalAnswered { instance, signal, delivery };
    11 ProbeChanged { instance, probe, passing };
    12 DeleteRequested { grace, sighting };
    13 ObjectGone;
    14 KillRequested { cause, grace };
    15 SandboxRemoved;
    16 SandboxRemovalFailed { message };
    17 ObjectDeleted;
    18 ObjectDeleteFailed { message };
    19 AgentRestarted { report };
    20 TimePassed;
    21 SpecChanged { change };
    22 GenerationSeen { generation };
    23 TerminalPhaseSeen { succeeded };
    24 Rejected { reason, message };
    25 KillAwaited { ticket };
    26 Traffic(news);
    27 Rebooted { was };
    28 KillFailed { instance, message };
    29 SandboxLost { instance };
    30 ImageReady { container, edition, stop_signal };
    31 ImageFailed { container, edition, reason, message };
    32 VolumeFailed { message };
} before input_before);

/// Images were told without saying which, and taken for the one that was wanted.
fn input_before(tag: u8, input: &mut &[u8]) -> Option<Result<Input, WireError>> {
    let ready = |input: &mut &[u8]| {
        Ok(Input::ImageReady { container: Wire::take(input)?, edition: ANY_EDITION, stop_signal: Wire::take(input)? })
    };
    let failed = |input: &mut &[u8]| {
        let (container, edition) = (Wire::take(input)?, ANY_EDITION);
        Ok(Input::ImageFailed { container, edition, reason: Wire::take(input)?, message: Wire::take(input)? })
    };
    match tag {
        2 => Some(ready(input)),
        3 => Some(failed(input)),
        _ => None,
    }
}

wire_struct!(PodSnapshot { began_at, active_before, active_deadline, initialized, routes, generation, containers });
wire_struct!(ContainerSnapshot { spec, edition, image, made_from, attempt, run, back_off, newest, before });

/// Written as an optional signal was before there were images that nobody had asked for.
impl Wire for ImageSnapshot {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Ready { stop_signal } => stop_signal.put(out),
            Self::Unwanted => out.push(2),
        }
    }
    fn take(input: &mut &[u8]) -> Result<Self, WireError> {
        if input.first() == Some(&2) {
            *input = &input[1..];
            return Ok(Self::Unwanted);
        }
        Ok(Self::Ready { stop_signal: Wire::take(input)? })
    }
}
wire_enum!(RunSnapshot {
    1 Unstarted;
    2 Waiting { until, shown };
    3 Running { since, seen_at, probed_ready, came_up };
    4 Ended;
});
wire_struct!(Waiting { reason, message });
wire_struct!(Terminated { attempt, reason, message, exit_code, started, exit });
wire_enum!(SpecChange { 1 Image { container }; 2 Ephemeral { spec }; 3 ActiveDeadline { deadline }; 4 Resources { container }; });
wire_enum!(TrafficNews {
    1 Routed(routes);
    3 Acked { acked, required };
    4 Quiet;
    5 Settled;
    6 Connections { open };
    7 AppDone;
    8 Late { count };
    9 Failed { message };
    10 CutDone { how, revision };
});
wire_struct!(Routes { best, last, replaced, busy });
wire_enum!(BestEvidence { 1 Unrouted; 2 Settled; 3 Acks; 4 Divert; });
wire_struct!(Exit { code, signal, oom, wall, seen });
wire_enum!(HookKind { 1 PreStop; 2 PostStart; });
wire_enum!(HookOutcome { 1 Succeeded; 3 Cancelled; 4 Failed { message, output }; } before outcome_before);

/// What a hook wrote was part of why it failed.
fn outcome_before(tag: u8, input: &mut &[u8]) -> Option<Result<HookOutcome, WireError>> {
    (tag == 2).then(|| Ok(HookOutcome::Failed { message: Wire::take(input)?, output: None }))
}

wire_enum!(Delivery { 1 Delivered; 2 AlreadyGone; 3 DeliveredBefore { at }; });
wire_enum!(Probe { 1 Readiness; 2 Liveness; 3 Startup; });
wire_enum!(DeleteSighting { 1 Live; 2 Found { left }; });
wire_enum!(KillCause {
    1 Evicted { message };
    2 Preempted;
    3 NodeShutdown;
    4 ConfigRemoved;
    5 Orphaned;
    6 OverLimit { message };
});
wire_struct!(RuntimeReport { sandbox, containers, hooks });
wire_struct!(ContainerReport { instance, seen });
wire_enum!(SeenContainer { 1 Running { wall }; 2 Exited { exit }; });
wire_struct!(HookReport { instance, kind, outcome });

wire_enum!(Effect {
    2 CancelPull { container };
    3 CreateSandbox;
    4 StartContainer { instance };
    5 RunHook { instance, kind };
    6 CancelHook { instance, kind };
    7 SendSignal { instance, signal };
    8 KillContainer { instance };
    9 RemoveSandbox;
    10 PublishStatus;
    11 Emit(event);
    12 DeleteObject;
    13 Finish;
    14 CutTraffic { how };
    15 AwaitSettled;
    16 NotifyDrain { until };
    17 WatchConnections;
    18 RestoreTraffic;
    19 KillAnswered { ticket, outcome };
    20 PullImage { container, edition };
} before effect_before);

/// A pull was asked for without saying of which image.
fn effect_before(tag: u8, input: &mut &[u8]) -> Option<Result<Effect, WireError>> {
    (tag == 1).then(|| Ok(Effect::PullImage { container: Wire::take(input)?, edition: ANY_EDITION }))
}

wire_enum!(Cut { 1 Divert; 2 Withdraw; 3 Refuse; });
wire_enum!(KillOutcome { 1 Stopped; 2 Overran; 3 NotAsked; });
wire_struct!(Event { container, kind, reason, message });
wire_enum!(EventKind { 1 Normal; 2 Warning; });
