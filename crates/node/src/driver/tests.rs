//! A driver that breaks begins again from what the journal knows, and its pod lives and leaves as if nothing had happened.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use futures::future::pending;
use k8s_openapi::api::core::v1::Pod;
use lifecycle::{
    BestEvidence, ContainerName, DeleteSighting, Exit, HookKind, HookOutcome, Instance, KillCause, Routes,
};
use runtime_api::image::{Keyring, Origin, Prune, Pulled, Removed};
use runtime_api::{
    ContainerId, ContainerReport, ContainerSpec, ContainerStats, ContainerStored, ContainerUsage, Containers, Delivery,
    ExecSession, ExecSpec, Image, Images, PodReport, PodUid, Resources, RuntimeError, RuntimeEvent, Sandbox,
    SandboxSpec, Sandboxes, Started, Statistics, Streams, Unsupported,
};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::{Notify, watch};

use super::*;
use crate::effects::{Tools, lock};
use crate::events::Recorder;
use crate::files::Files;
use crate::heartbeat::{HealthBoard, ReportedFacts};
use crate::machine::Machine;
use crate::manifest::Manifests;
use crate::node::NodeConfig;
use crate::pressure::{EvictionConfig, ImageCollection};
use crate::record::{PodRecord, RecordReader};
use crate::services::Services;
use crate::sysctls::AllowedSysctls;
use crate::traffic::{TrafficReporter, TrafficRequest};
use crate::volumes::Watches;
use reading::pod_spec;

/// Where a driver may be made to break.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Point {
    /// Before the worker is told.
    Told,
    /// When the step is in the journal, and nothing is done about it yet.
    Remembered,
}

/// Which facts are meant.
type Which = fn(&Input) -> bool;

struct Mine {
    uid: String,
    at: Point,
    on: Which,
    times: usize,
}

static MINES: Mutex<Vec<Mine>> = Mutex::new(Vec::new());

/// Breaks the driver of a pod at `at`, so many times, on facts like these.
fn mine(uid: &str, at: Point, times: usize, on: Which) {
    lock(&MINES).push(Mine { uid: uid.to_owned(), at, on, times });
}

/// Steps on a mine, if there is one.
pub(super) fn pass(at: Point, uid: &str, input: &Input) {
    let mut mines = lock(&MINES);
    let met = mines.iter_mut().find(|mine| mine.uid == uid && mine.at == at && mine.times > 0 && (mine.on)(input));
    if let Some(mine) = met {
        mine.times -= 1;
        drop(mines);
        panic!("a mine: {input:?}");
    }
}

/// A runtime that keeps what it was asked for, and breaks once where it is told to.
#[derive(Default)]
struct Scripted {
    asked: Mutex<Vec<String>>,
    news: Notify,
    breaks_on: Mutex<BTreeSet<&'static str>>,
    sandbox: Mutex<Option<SandboxSpec>>,
    running: Mutex<Vec<ContainerReport>>,
}

type Answer<T> = Result<T, RuntimeError>;

fn none<T>() -> Answer<T> {
    Err(RuntimeError::NoSandbox { pod: "scripted".to_owned() })
}

impl Scripted {
    fn note(&self, what: &'static str, detail: &str) {
        lock(&self.asked).push(format!("{what} {detail}").trim_end().to_owned());
        self.news.notify_waiters();
        let breaks = lock(&self.breaks_on).remove(what);
        assert!(!breaks, "the runtime breaks on {what}");
    }

    /// Waits until it was asked for `what` so many times.
    async fn was_asked(&self, what: &str, times: usize) {
        let waiting = tokio::time::timeout(PATIENCE, self.asking(what, times));
        waiting.await.unwrap_or_else(|_| panic!("{what} was not asked for: {:?}", lock(&self.asked)));
    }

    async fn asking(&self, what: &str, times: usize) {
        loop {
            let news = self.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            if lock(&self.asked).iter().filter(|asked| *asked == what).count() >= times {
                return;
            }
            news.await;
        }
    }

    fn image() -> Image {
        Image { id: "sha256:1".to_owned(), names: vec![], size_bytes: 1, stop_signal: None, user: None, env: [].into() }
    }
}

impl Sandboxes for Scripted {
    fn events(&self) -> Option<mpsc::UnboundedReceiver<RuntimeEvent>> {
        None
    }
    async fn inventory(&self) -> Answer<Vec<PodReport>> {
        self.note("inventory", "");
        let containers = lock(&self.running).clone();
        let of = |spec| PodReport { spec, alive: true, sandbox: Sandbox { ips: vec![] }, containers, hooks: vec![] };
        Ok(lock(&self.sandbox).clone().map(of).into_iter().collect())
    }
    async fn create_sandbox(&self, spec: &SandboxSpec) -> Answer<Sandbox> {
        self.note("sandbox", "");
        *lock(&self.sandbox) = Some(spec.clone());
        Ok(Sandbox { ips: vec![] })
    }
    async fn set_pod_resources(&self, _: &PodUid, _: &Resources) -> Answer<()> {
        Ok(())
    }
    async fn remove_sandbox(&self, _: &PodUid) -> Answer<()> {
        self.note("remove", "");
        *lock(&self.sandbox) = None;
        Ok(())
    }
    async fn forget_logs(&self, _: &PodUid) -> Answer<()> {
        Ok(())
    }
    async fn tidied(&self) {}
    async fn tear_down(&self) -> Answer<()> {
        Ok(())
    }
}

impl Containers for Scripted {
    async fn start_container(&self, _: &PodUid, spec: &ContainerSpec) -> Answer<Started> {
        let ContainerId { name, attempt } = &spec.id;
        self.note("start", &format!("{name}.{attempt}"));
        let run = ContainerReport {
            id: spec.id.clone(),
            image_id: "sha256:1".to_owned(),
            resources: Resources::default(),
            started_wall_ms: 1,
            exit: None,
        };
        lock(&self.running).push(run);
        Ok(Started { wall_ms: 1, warnings: vec![] })
    }
    async fn set_resources(&self, _: &PodUid, _: &ContainerId, _: &Resources) -> Answer<Vec<String>> {
        Ok(vec![])
    }
    async fn stop(&self, _: &PodUid, _: &ContainerId, signal: u8) -> Answer<Delivery> {
        self.note("signal", &signal.to_string());
        Ok(Delivery::Delivered)
    }
    async fn kill(&self, _: &PodUid, _: &ContainerId) -> Answer<()> {
        self.note("kill", "");
        Ok(())
    }
    fn log_path(&self, _: &PodUid, _: &ContainerId) -> PathBuf {
        PathBuf::new()
    }
    async fn termination_message(&self, _: &PodUid, _: &ContainerId) -> Option<String> {
        None
    }
}

impl Images for Scripted {
    async fn ensure_image(&self, _: &str) -> Answer<Image> {
        Ok(Self::image())
    }
    async fn find_image(&self, _: &str) -> Answer<(Image, Origin)> {
        self.note("image", "");
        Ok((Self::image(), Origin::Archive))
    }
    async fn pull_image(&self, _: &str, _: &Keyring) -> Answer<Pulled> {
        none()
    }
    async fn prune_images(&self, _: Prune) -> Answer<Removed> {
        none()
    }
    async fn images(&self) -> Answer<Vec<Image>> {
        none()
    }
}

impl Streams for Scripted {
    async fn exec(&self, _: &PodUid, _: &ContainerId, _: &ExecSpec) -> Answer<ExecSession> {
        none()
    }
    async fn attach(&self, _: &PodUid, _: &ContainerId, _: &ExecSpec) -> Answer<ExecSession> {
        none()
    }
    async fn connect(&self, _: &PodUid, _: u16) -> Answer<OwnedFd> {
        none()
    }
    fn resize(&self, _: &ExecSession, _: u16, _: u16) -> Answer<()> {
        none()
    }
}

impl Statistics for Scripted {
    async fn stats(&self, _: &PodUid) -> Answer<Vec<ContainerStats>> {
        none()
    }
    async fn usage(&self, _: &PodUid) -> Answer<Vec<ContainerUsage>> {
        none()
    }
    async fn stored(&self, _: &PodUid) -> Answer<Vec<ContainerStored>> {
        none()
    }
}

impl Runtime for Scripted {
    type Signals = Unsupported;
    type DurableHooks = Unsupported;
    type ConnectionCounts = Unsupported;

    fn signals(&self) -> Option<&Unsupported> {
        None
    }
    fn durable_hooks(&self) -> Option<&Unsupported> {
        None
    }
    fn connection_counts(&self) -> Option<&Unsupported> {
        None
    }
}

/// An API where nothing is, which takes every write, and tells what events it was given.
fn api(events: mpsc::UnboundedSender<String>) -> kube::Client {
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let events = events.clone();
        async move {
            if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
                pending::<()>().await;
            }
            let path = request.uri().path().to_owned();
            let method = request.method().clone();
            let sent = request.into_body().collect_bytes().await.unwrap();
            let sent: serde_json::Value = serde_json::from_slice(&sent).unwrap_or_default();
            let (code, answer) = match (method.as_str(), path.ends_with("/events")) {
                ("POST", true) => {
                    let _ = events.send(sent["reason"].as_str().unwrap_or_default().to_owned());
                    (201, sent)
                }
                ("GET", _) => (200, json!({ "metadata": { "resourceVersion": "1" }, "items": [] })),
                _ => (
                    404,
                    json!({ "kind": "Status", "status": "Failure", "code": 404, "message": "none", "reason": "NotFound" }),
                ),
            };
            let answer = http::Response::builder().status(code).body(axum::body::Body::from(answer.to_string()));
            Ok::<_, std::io::Error>(answer.unwrap())
        }
    });
    kube::Client::new(service, "default")
}

/// One pod with its driver.
struct Stage {
    runtime: Arc<Scripted>,
    inbox: mpsc::Sender<Told>,
    record: RecordReader,
    events: mpsc::UnboundedReceiver<String>,
    driver: tokio::task::JoinHandle<Result<(), Arc<JournalError>>>,
    _helpers: tokio::task::JoinSet<()>,
    _dir: TempDir,
}

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_secs(60);

impl Stage {
    async fn set(uid: &str, runtime: Scripted) -> Self {
        Self::set_with(uid, runtime, json!({})).await
    }

    /// With these lifecycle hooks.
    async fn set_with(uid: &str, runtime: Scripted, hooks: serde_json::Value) -> Self {
        Self::set_behind(uid, runtime, hooks, Arc::new(crate::NoTraffic)).await
    }

    /// With somebody who steers its traffic.
    async fn set_behind(
        uid: &str,
        runtime: Scripted,
        hooks: serde_json::Value,
        traffic: Arc<dyn crate::Traffic>,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (events_told, events) = mpsc::unbounded_channel();
        let (runtime, client) = (Arc::new(runtime), api(events_told));
        let mut helpers = tokio::task::JoinSet::new();
        let (recorder, recording) = Recorder::start(client.clone(), "n1".to_owned(), Clock::of_machine());
        helpers.spawn(recording);
        let facts = ReportedFacts::new(runtime.clone(), None);
        let (health, _) = HealthBoard::start(client.clone(), config(dir.path()), facts, recorder.clone());
        let file = dir.path().join("services.json");
        let (services, following) = Services::start(client.clone(), file, Files::Threads).await;
        helpers.spawn(following);
        let tools = Arc::new(Tools {
            runtime: runtime.clone(),
            client: client.clone(),
            recorder,
            health,
            services,
            images_given: Notify::new(),
            waiters: Mutex::default(),
            watches: Watches::new(client),
            manifests: Manifests::open(dir.path(), in_memory(dir.path()), Files::Threads).await.unwrap(),
            clock: Clock::of_machine(),
            machine: Machine::read().unwrap(),
            files: Files::Threads,
            node_name: "n1".to_owned(),
            host_ip: "192.0.2.1".to_owned(),
            pod_pids_max: None,
            allowed_sysctls: AllowedSysctls::default(),
            cluster_dns: vec![[10, 87, 0, 10].into()],
            terminations: crate::terminations::Terminations::nowhere(),
            traffic,
            local: None,
        });
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "p", "namespace": "default", "uid": uid },
            "spec": { "terminationGracePeriodSeconds": GRACE.as_secs(),
                "containers": [{ "name": "app", "image": "busybox", "imagePullPolicy": "IfNotPresent",
                    "lifecycle": hooks }] },
        }))
        .unwrap();
        let (journal, _) = Journal::open(&dir.path().join("journal"), "boot").await.unwrap();
        let worker = PodWorker::new(pod_spec(&pod).unwrap());
        let (keeper, record) = RecordKeeper::new(PodRecord::new(Arc::new(pod), &worker, String::new(), None));
        let (inbox, told) = mpsc::channel(16);
        let executor = EffectExecutor::new(tools, record.clone(), inbox.clone());
        let journal = (journal, PodJournal::default());
        let driver = tokio::spawn(Driver::new(uid.to_owned(), worker, told, journal, keeper, executor).run());
        Self { runtime, inbox, record, events, driver, _helpers: helpers, _dir: dir }
    }

    async fn tell(&self, input: Input) {
        self.inbox.send(Told::Input(input)).await.unwrap();
    }

    /// The pod is asked to leave, and its container hears it.
    async fn leaves(mut self) {
        self.tell(Input::DeleteRequested { grace: GRACE, sighting: DeleteSighting::Live }).await;
        self.runtime.was_asked("signal 15", 1).await;
        let deadline = self.record.get().deadline.unwrap();
        assert!(deadline.since(Clock::of_machine().now()) <= GRACE);
        self.runtime.running.lock().unwrap().clear();
        let exit = Exit { code: 0, signal: None, oom: false, wall: Wall(2), seen: true };
        self.tell(Input::Exited { instance: app(), exit }).await;
        self.runtime.was_asked("remove", 1).await;
        self.record.wait_until(|record| record.at_rest).await;
        assert!(self.record.get().at_rest);
        self.driver.abort();
    }

    /// People were told that the node broke.
    async fn people_know(&mut self) {
        let told = async { while self.events.recv().await.unwrap() != "FailedSync" {} };
        tokio::time::timeout(PATIENCE, told).await.expect("people are told");
    }
}

fn app() -> Instance {
    Instance { name: ContainerName("app".to_owned()), attempt: 0 }
}

/// What is meant to be in memory is on disk here: nothing is mounted.
fn in_memory(dir: &Path) -> crate::memory_volumes::MemoryVolumes {
    crate::memory_volumes::MemoryVolumes::of_dir(&dir.join("memory")).unwrap()
}

fn config(dir: &Path) -> NodeConfig {
    NodeConfig {
        name: "n1".to_owned(),
        address: [192, 0, 2, 1].into(),
        data_dir: dir.to_owned(),
        images: dir.to_owned(),
        volumes: dir.join("volumes"),
        eviction: EvictionConfig::default(),
        images_kept: ImageCollection::default(),
        pods_max: 110,
        pod_pids_max: None,
        allowed_sysctls: AllowedSysctls::default(),
        cluster_dns: vec![[10, 87, 0, 10].into()],
        static_pods: None,
        version: "v1".to_owned(),
        api_port: None,
        joins_later: false,
        clock: Clock::of_machine(),
        machine: Machine::read().unwrap(),
        memory: in_memory(dir),
        files: Files::Threads,
        traffic: std::sync::Arc::new(crate::NoTraffic),
        takes_on_pods: true,
    }
}

/// Services lead to the pod, and nobody has told its worker yet.
#[derive(Debug)]
struct LateTraffic(watch::Sender<Option<TrafficRequest>>);

impl crate::Traffic for LateTraffic {
    fn perform(&self, _: Pod, request: TrafficRequest, _: TrafficReporter) -> BoxFuture<'static, ()> {
        self.0.send_replace(Some(request));
        futures::future::ready(()).boxed()
    }

    fn follow(&self, _: watch::Receiver<Arc<Pod>>, _: TrafficReporter) -> BoxFuture<'static, ()> {
        futures::future::pending().boxed()
    }

    fn leaves(&self, _: &Pod) -> Option<Routes> {
        Some(Routes { best: BestEvidence::Divert, ..Routes::default() })
    }

    fn released(&self, _: &str) {}

    fn departed(&self, _: &Pod) {}
}

/// What it was told of its traffic may be older than what leads to it: with that the pod would be told to stop at once.
#[tokio::test]
async fn pod_that_is_asked_to_leave_is_cut_although_nobody_told_it_yet_how_it_is_reached() {
    for (uid, ask) in [
        ("deleted", Input::DeleteRequested { grace: GRACE, sighting: DeleteSighting::Live }),
        ("killed", Input::KillRequested { cause: KillCause::Preempted, grace: None }),
    ] {
        let (asked, mut traffic) = watch::channel(None);
        let mut stage = Stage::set_behind(uid, Scripted::default(), json!({}), Arc::new(LateTraffic(asked))).await;
        stage.tell(Input::Begin).await;
        stage.runtime.was_asked("start app.0", 1).await;
        stage.record.wait_until(|record| !record.starting.contains(&app())).await;
        stage.tell(ask).await;
        let cut = traffic.wait_for(|asked| *asked == Some(TrafficRequest::Cut(lifecycle::Cut::Divert)));
        tokio::time::timeout(PATIENCE, cut).await.expect("it is cut").unwrap();
        stage.driver.abort();
    }
}

#[tokio::test]
async fn a_driver_that_breaks_at_any_step_brings_its_pod_up_and_lets_it_leave() {
    // What a calm life is told, in its order; the driver breaks at each step, before it is decided and after it is remembered.
    let facts: [(&str, Which); 6] = [
        ("begin", |input| matches!(input, Input::Begin)),
        ("image", |input| matches!(input, Input::ImageReady { .. })),
        ("sandbox", |input| matches!(input, Input::SandboxReady)),
        ("started", |input| matches!(input, Input::Started { .. })),
        ("delete", |input| matches!(input, Input::DeleteRequested { .. })),
        ("exit", |input| matches!(input, Input::Exited { .. })),
    ];
    for (name, on) in facts {
        for at in [Point::Told, Point::Remembered] {
            let uid = format!("{name}-{at:?}");
            mine(&uid, at, 1, on);
            let stage = Stage::set(&uid, Scripted::default()).await;
            stage.tell(Input::Begin).await;
            stage.runtime.was_asked("start app.0", 1).await;
            stage.leaves().await;
            assert!(lock(&MINES).iter().all(|mine| mine.uid != uid || mine.times == 0), "{uid} broke");
        }
    }
}

#[tokio::test]
async fn a_fact_that_breaks_the_driver_twice_is_left_out_and_people_are_told() {
    let uid = "poisoned";
    mine(uid, Point::Told, 2, |input| matches!(input, Input::GenerationSeen { .. }));
    let mut stage = Stage::set(uid, Scripted::default()).await;
    stage.tell(Input::Begin).await;
    stage.tell(Input::GenerationSeen { generation: 7 }).await;
    stage.people_know().await;
    stage.runtime.was_asked("inventory", 2).await;
    stage.runtime.was_asked("start app.0", 1).await;
    stage.leaves().await;
}

#[tokio::test]
async fn a_request_to_leave_that_breaks_the_driver_again_and_again_is_never_left_out() {
    let uid = "owed";
    mine(uid, Point::Told, 4, |input| matches!(input, Input::DeleteRequested { .. }));
    let stage = Stage::set(uid, Scripted::default()).await;
    stage.tell(Input::Begin).await;
    stage.runtime.was_asked("start app.0", 1).await;
    stage.leaves().await;
    assert!(lock(&MINES).iter().all(|mine| mine.uid != uid || mine.times == 0), "it broke four times");
}

#[tokio::test]
async fn a_request_to_leave_cuts_the_rest_of_a_driver_short() {
    let uid = "hurried";
    mine(uid, Point::Told, 8, |input| matches!(input, Input::AgentRestarted { .. } | Input::GenerationSeen { .. }));
    let stage = Stage::set(uid, Scripted::default()).await;
    stage.tell(Input::Begin).await;
    stage.runtime.was_asked("start app.0", 1).await;
    stage.tell(Input::GenerationSeen { generation: 7 }).await;
    let (begun, mut backoff) = (tokio::time::Instant::now().into_std(), Backoff::default());
    let rests: Duration = (0..8).map(|_| backoff.after_panic(begun)).sum();
    for asked in 1..=8 {
        stage.runtime.was_asked("inventory", asked).await;
        stage.tell(Input::KillRequested { cause: KillCause::Preempted, grace: None }).await;
    }
    stage.leaves().await;
    assert!(begun.elapsed() < rests, "it did not rest for {rests:?}");
}

#[tokio::test]
async fn an_effect_that_breaks_is_a_failure_that_the_rules_try_again() {
    let breaks_on = Mutex::new(BTreeSet::from(["sandbox", "signal", "remove"]));
    let stage = Stage::set("effects", Scripted { breaks_on, ..Scripted::default() }).await;
    stage.tell(Input::Begin).await;
    stage.runtime.was_asked("sandbox", 2).await;
    stage.runtime.was_asked("start app.0", 1).await;
    let runtime = stage.runtime.clone();
    stage.leaves().await;
    runtime.was_asked("remove", 2).await;
}

#[tokio::test]
async fn an_image_or_a_start_that_breaks_is_told_as_the_containers_trouble() {
    for (breaks, reason) in [("image", "ErrImagePull"), ("start", "CreateContainerError")] {
        let breaks_on = Mutex::new(BTreeSet::from([breaks]));
        let mut stage = Stage::set(breaks, Scripted { breaks_on, ..Scripted::default() }).await;
        stage.tell(Input::Begin).await;
        let is_told = |record: &PodRecord| format!("{:?}", record.status).contains(reason);
        tokio::time::timeout(PATIENCE, stage.record.wait_until(is_told)).await.expect("it is told");
        assert!(is_told(&stage.record.get()));
        stage.driver.abort();
    }
}

/// Takes connections and answers none of them; counts them.
async fn deaf_server() -> (u16, watch::Receiver<usize>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (count, counted) = watch::channel(0);
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            held.push(connection);
            count.send_modify(|count| *count += 1);
        }
    });
    (port, counted)
}

/// The answer of a hook waits in the inbox when the driver breaks, or is what it breaks on: the hook has run, and is not run again.
#[tokio::test]
async fn answer_queued_when_a_driver_breaks_is_told_before_the_runtimes_report() {
    let finished = || Input::HookFinished { instance: app(), kind: HookKind::PreStop, outcome: HookOutcome::Succeeded };
    let cases: [(&str, Point, Which); 3] = [
        ("hook-queued", Point::Told, |input| matches!(input, Input::GenerationSeen { .. })),
        ("hook-in-hand", Point::Told, |input| matches!(input, Input::HookFinished { .. })),
        ("hook-remembered", Point::Remembered, |input| matches!(input, Input::HookFinished { .. })),
    ];
    for (uid, at, on) in cases {
        mine(uid, at, 1, on);
        let (port, mut requests) = deaf_server().await;
        let hooks = json!({ "preStop": { "httpGet": { "host": "127.0.0.1", "port": port, "path": "/" } } });
        let stage = Stage::set_with(uid, Scripted::default(), hooks).await;
        stage.tell(Input::Begin).await;
        stage.runtime.was_asked("start app.0", 1).await;
        stage.tell(Input::DeleteRequested { grace: GRACE, sighting: DeleteSighting::Live }).await;
        let asked = tokio::time::timeout(PATIENCE, requests.wait_for(|count| *count == 1));
        asked.await.expect("the hook is sent").unwrap();
        // Both are there before the driver looks at either: it runs in this thread.
        stage.inbox.try_send(Told::Input(Input::GenerationSeen { generation: 7 })).unwrap();
        stage.inbox.try_send(Told::Answer { life: 0, fact: None, input: finished() }).unwrap();
        stage.runtime.was_asked("inventory", 1).await;
        stage.runtime.was_asked("signal 15", 1).await;
        assert_eq!(*requests.borrow(), 1, "{uid}: the hook ran once");
        stage.driver.abort();
    }
}

/// What somebody answered whom a driver asked before it broke does not hide what it asked for since.
#[tokio::test]
async fn answer_to_a_former_life_of_a_driver_is_dropped_after_the_report() {
    let uid = "late";
    mine(uid, Point::Told, 1, |input| matches!(input, Input::GenerationSeen { .. }));
    let mut stage = Stage::set(uid, Scripted::default()).await;
    stage.tell(Input::Begin).await;
    stage.runtime.was_asked("start app.0", 1).await;
    let runs = |record: &PodRecord| {
        let is_first = |app: &lifecycle::ContainerStatus| app.attempt == 0 && app.last.is_none();
        let is_running =
            |app: &lifecycle::ContainerStatus| matches!(app.state, lifecycle::ContainerState::Running { .. });
        record.container("app").is_some_and(|app| is_first(app) && is_running(app))
    };
    stage.record.wait_until(runs).await;
    stage.tell(Input::GenerationSeen { generation: 7 }).await;
    stage.runtime.was_asked("inventory", 1).await;
    stage.record.wait_until(|record| record.status.observed_generation == Some(7)).await;
    let exit = Exit { code: 1, signal: None, oom: false, wall: Wall(2), seen: true };
    let late = Told::Answer { life: 0, fact: None, input: Input::Exited { instance: app(), exit } };
    stage.inbox.send(late).await.unwrap();
    // The next message was looked at, so that one was.
    stage.tell(Input::GenerationSeen { generation: 8 }).await;
    stage.record.wait_until(|record| record.status.observed_generation == Some(8)).await;
    assert!(runs(&stage.record.get()), "it runs: {:?}", stage.record.get().status);
    stage.leaves().await;
}

#[test]
fn a_driver_never_rests_beyond_a_deadline_that_is_still_to_come() {
    let seconds = Duration::from_secs;
    assert_eq!(restart::rest(seconds(30), None), seconds(30));
    assert_eq!(restart::rest(seconds(30), Some(seconds(3))), seconds(3));
    assert_eq!(restart::rest(seconds(2), Some(seconds(3))), seconds(2));
    assert_eq!(
        restart::rest(seconds(30), Some(Duration::ZERO)),
        seconds(30),
        "it is over: there is nothing to hurry for"
    );
}
