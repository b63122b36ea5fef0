//! Ends told in simulated time, and the records that come of them.
#![allow(clippy::unwrap_used, reason = "tests")]

use lifecycle::{ContainerName, ContainerSpec, Exit, Hook, PodSpec, Role, Signal};
use serde_json::json;

use super::*;

/// One pod with its worker, and the steps that its journal would have.
struct Told {
    worker: PodWorker,
    story: Option<TerminationStory>,
    steps: Vec<(Moment, Wall, Input, Vec<Effect>)>,
    spec: PodSpec,
}

const EPOCH: i64 = 1_767_225_600_000;

impl Told {
    /// A pod that runs since the first second after the boot.
    fn running(pre_stop: Option<Hook>) -> Self {
        let spec = PodSpec::new(vec![ContainerSpec { pre_stop, ..ContainerSpec::new("app", Role::Main) }]);
        let mut told = Self { worker: PodWorker::new(spec.clone()), story: None, steps: Vec::new(), spec };
        told.hear(1_000, Input::Begin);
        told.hear(1_000, Input::ImageReady { container: ContainerName("app".into()), edition: 0, stop_signal: None });
        told.hear(1_000, Input::SandboxReady);
        told.hear(1_000, Input::Started { instance: app(), wall: Wall(EPOCH + 1_000) });
        assert!(told.story.is_none(), "nobody asked it to leave");
        told
    }

    fn hear(&mut self, at: u64, input: Input) {
        let (moment, wall) = (Moment::from_millis(at), Wall(EPOCH + i64::try_from(at).unwrap()));
        let effects = self.worker.handle(moment, input.clone());
        TerminationStory::observe(&mut self.story, (moment, wall), &input, &effects, &self.worker);
        self.steps.push((moment, wall, input, effects));
    }

    fn deleted(&mut self, at: u64, seconds: u64) {
        self.hear(at, Input::DeleteRequested { grace: Duration::from_secs(seconds), sighting: DeleteSighting::Live });
    }

    /// The container ends, and everything after it.
    fn over(&mut self, at: u64, code: u8, signal: Option<Signal>) {
        let exit = Exit { code, signal, oom: false, wall: Wall(EPOCH + i64::try_from(at).unwrap()), seen: true };
        self.hear(at, Input::Exited { instance: app(), exit });
        self.hear(at + 5, Input::SandboxRemoved);
        self.hear(at + 8, Input::ObjectDeleted);
        assert!(self.worker.is_finished());
    }

    fn record(&self, requests: &serde_json::Value) -> TerminationRecord {
        let note = json!({ termination::DELETION_REQUESTS: requests.to_string() });
        let pod = json!({ "metadata": { "name": "web-0", "namespace": "shop", "uid": "5d8e90e1-7a37", "annotations": note,
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "s", "controller": true }] } });
        self.story.as_ref().unwrap().record(&serde_json::from_value(pod).unwrap(), "n1")
    }

    /// The same, told again from the journal.
    fn again(&self) -> Option<TerminationStory> {
        let life = Life {
            uid: "u".into(),
            namespace: "shop".into(),
            name: "web-0".into(),
            spec: self.spec.clone(),
            adopted_at: Moment::default(),
            boot_id: "boot".into(),
            fold: None,
            steps: self.steps.clone(),
        };
        TerminationStory::of_life(&life).1
    }
}

fn app() -> Instance {
    Instance { name: ContainerName("app".into()), attempt: 0 }
}

fn kinds(record: &TerminationRecord) -> Vec<&str> {
    record.steps.iter().map(|step| step.type_.as_str()).collect()
}

#[test]
fn clean_end_is_recorded_with_who_asked_and_every_step() {
    let mut told = Told::running(None);
    told.deleted(2_000, 30);
    told.hear(2_001, Input::SignalAnswered { instance: app(), signal: Signal::TERM, delivery: Delivery::Delivered });
    told.over(2_500, 0, None);
    let record = told.record(&json!([{ "by": "alice", "via": "Delete", "gracePeriodSeconds": 30 }]));
    assert_eq!((&*record.verdict, &*record.cause, &*record.asked_by), ("clean", "Deleted", "alice"));
    assert_eq!(record.metadata.name.as_deref(), Some("web-0-5d8e90e1"));
    assert_eq!((&*record.pod.owner, &*record.node_name), ("StatefulSet/web", "n1"));
    assert_eq!((record.grace_period_seconds, record.took_milliseconds), (Some(30), Some(508)));
    let expected = [
        step::REQUESTED,
        step::DRAINED,
        step::SIGNAL_ASKED,
        step::SIGNAL_DELIVERED,
        step::EXITED,
        step::SANDBOX_REMOVAL_ASKED,
        step::SANDBOX_REMOVED,
        step::DELETE_ASKED,
        step::DELETED,
    ];
    let without_traffic: Vec<&str> = kinds(&record).into_iter().filter(|kind| *kind != step::CUT_ASKED).collect();
    assert_eq!(without_traffic, expected);
    let phases = record.phases.clone().unwrap();
    assert_eq!((phases.to_signal_milliseconds, phases.exit_milliseconds), (Some(0), Some(500)));
    assert_eq!((phases.cleanup_milliseconds, phases.hooks_milliseconds), (Some(8), None));
    assert_eq!(record.summary, "Deleted by alice with 30 s; every container left by itself; over after 0.508 s");
    assert_eq!(record.start_time.unwrap().0.as_millisecond(), EPOCH + 2_000);
    assert_eq!(record.deadline.unwrap().0.as_millisecond(), EPOCH + 32_000);
}

#[test]
fn shortened_grace_and_kill_are_recorded_with_both_requests() {
    let mut told = Told::running(None);
    told.deleted(2_000, 30);
    told.hear(2_001, Input::SignalAnswered { instance: app(), signal: Signal::TERM, delivery: Delivery::Delivered });
    told.deleted(4_000, 30);
    told.deleted(5_000, 5);
    told.hear(7_000, Input::TimePassed);
    told.over(7_004, 137, Some(Signal::KILL));
    let record = told.record(&json!([
        { "by": "alice", "via": "Delete", "gracePeriodSeconds": 30 },
        { "by": "bob", "via": "Eviction", "gracePeriodSeconds": 5 },
    ]));
    assert_eq!(record.verdict, "forced");
    let requests: Vec<_> = record
        .requests
        .iter()
        .map(|request| (&*request.by, &*request.via, request.after_milliseconds, request.deadline_milliseconds))
        .collect();
    assert_eq!(requests, [("alice", "Delete", 0, Some(30_000)), ("bob", "Eviction", 3_000, Some(5_000))]);
    assert!(kinds(&record).contains(&step::KILL_ASKED));
    assert_eq!(record.containers[0].signal, "SIGKILL");
    assert!(record.summary.contains("app had to be killed"), "{}", record.summary);
}

#[test]
fn failed_hook_is_recorded_with_its_output() {
    let mut told = Told::running(Some(Hook::Exec));
    told.deleted(2_000, 30);
    let (message, output) = ("it ended with exit code 3".to_owned(), Some("no route: to host".to_owned()));
    let outcome = HookOutcome::Failed { message, output };
    told.hear(2_700, Input::HookFinished { instance: app(), kind: HookKind::PreStop, outcome });
    told.over(3_000, 0, None);
    let record = told.record(&json!([]));
    let ended = record.steps.iter().find(|own| own.type_ == step::HOOK_ENDED).unwrap();
    assert_eq!(
        (&*ended.result, &*ended.message, &*ended.output),
        ("Failed", "it ended with exit code 3", "no route: to host")
    );
    assert_eq!(record.phases.unwrap().hooks_milliseconds, Some(700));
    assert_eq!(record.asked_by, "", "nobody noted who asked");
}

/// A crash may come after any step: the story told from the journal is the one that was told live.
#[test]
fn story_told_from_the_journal_is_the_same() {
    let mut told = Told::running(Some(Hook::Exec));
    told.deleted(2_000, 30);
    assert_eq!(told.again(), told.story);
    told.hear(2_700, Input::HookFinished { instance: app(), kind: HookKind::PreStop, outcome: HookOutcome::Succeeded });
    assert_eq!(told.again(), told.story);
    told.over(3_000, 0, None);
    assert_eq!(told.again(), told.story);
    assert!(told.story.is_some());
}

#[test]
fn deletion_that_was_found_counts_from_its_request() {
    let mut told = Told::running(None);
    let sighting = DeleteSighting::Found { left: Duration::from_secs(20) };
    told.hear(50_000, Input::DeleteRequested { grace: Duration::from_secs(30), sighting });
    told.over(51_000, 0, None);
    let record = told.record(&json!([]));
    assert_eq!(record.start_time.unwrap().0.as_millisecond(), EPOCH + 40_000);
    assert_eq!(record.took_milliseconds, Some(11_008));
    assert_eq!(record.requests[0].deadline_milliseconds, Some(30_000));
}

/// A machine that was off does not lose its place in the story.
#[test]
fn reboot_goes_on_where_the_old_clock_ended() {
    let mut told = Told::running(None);
    told.deleted(60_000, 30);
    told.hear(500, Input::Rebooted { was: Moment::from_millis(65_000) });
    told.hear(600, Input::AgentRestarted { report: lifecycle::RuntimeReport::default() });
    let record = told.record(&json!([]));
    let after = |kind: &str| record.steps.iter().find(|own| own.type_ == kind).map(|own| own.after_milliseconds);
    assert_eq!((after(step::REBOOTED), after(step::AGENT_RESTARTED)), (Some(5_000), Some(5_100)));
}

/// A container that ended while the agent was away ended then, not when the agent came back; one that had ended before is no part of it.
#[test]
fn exit_while_the_agent_was_away_is_recorded_at_its_own_time() {
    let mut told = Told::running(None);
    told.deleted(2_000, 30);
    told.hear(2_001, Input::SignalAnswered { instance: app(), signal: Signal::TERM, delivery: Delivery::Delivered });
    let exited = |name: &str, at: i64| {
        let exit = Exit { code: 0, signal: None, oom: false, wall: Wall(EPOCH + at), seen: true };
        let instance = Instance { name: ContainerName(name.into()), attempt: 0 };
        lifecycle::ContainerReport { instance, seen: lifecycle::SeenContainer::Exited { exit } }
    };
    let containers = vec![exited("init", 900), exited("app", 3_000)];
    told.hear(5_000, Input::AgentRestarted { report: RuntimeReport { sandbox: true, containers, hooks: Vec::new() } });
    told.hear(5_005, Input::SandboxRemoved);
    told.hear(5_008, Input::ObjectDeleted);
    let record = told.record(&json!([]));
    let exits: Vec<_> = record.steps.iter().filter(|own| own.type_ == step::EXITED).collect();
    assert_eq!(exits.len(), 1, "{:#?}", record.steps);
    assert_eq!((&*exits[0].container, exits[0].after_milliseconds, exits[0].exit_code), ("app", 1_000, Some(0)));
    assert_eq!(record.phases.clone().unwrap().exit_milliseconds, Some(1_000));
    assert_eq!(told.again(), told.story);
}

/// A pod that ends by itself is told of when it is over; what becomes of its object later is no part of that.
#[test]
fn pod_that_ended_by_itself_has_its_record_before_it_is_deleted() {
    let spec = PodSpec {
        restart: lifecycle::RestartPolicy::Never,
        ..PodSpec::new(vec![ContainerSpec::new("app", Role::Main)])
    };
    let mut told = Told { worker: PodWorker::new(spec.clone()), story: None, steps: Vec::new(), spec };
    told.hear(0, Input::Begin);
    told.hear(0, Input::ImageReady { container: ContainerName("app".into()), edition: 0, stop_signal: None });
    told.hear(0, Input::SandboxReady);
    told.hear(0, Input::Started { instance: app(), wall: Wall(EPOCH) });
    let exit = Exit { code: 0, signal: None, oom: false, wall: Wall(EPOCH + 900), seen: true };
    told.hear(900, Input::Exited { instance: app(), exit });
    told.hear(905, Input::SandboxRemoved);
    assert!(told.worker.is_resting());
    let before = told.record(&json!([]));
    assert_eq!((&*before.cause, &*before.verdict, before.took_milliseconds), ("Completed", "clean", Some(5)));
    told.deleted(90_000, 0);
    told.hear(90_010, Input::ObjectDeleted);
    assert!(told.worker.is_finished());
    assert_eq!(told.record(&json!([])), before);
}

/// Neighbours and programs may do what they like: a record stays small.
#[test]
fn record_is_bounded_however_much_happens() {
    let mut told = Told::running(None);
    told.deleted(2_000, 3_600);
    for number in 0..5_000_u64 {
        let news = TrafficNews::Failed { message: "x".repeat(10_000) };
        told.hear(2_001 + number, Input::Traffic(news));
        let open = u32::try_from(number).unwrap();
        told.hear(2_001 + number, Input::Traffic(TrafficNews::Connections { open }));
    }
    let record = told.record(&json!([]));
    assert_eq!(record.steps.len(), STEPS_MAX);
    assert!(record.omitted_steps > 4_000);
    assert!(serde_json::to_string(&record).unwrap().len() < 256 * 1024);
}
