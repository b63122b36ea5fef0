//! The whole platform, from a scenario to its trace: one thread, one life of the agent after the other.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use node::pressure::{EvictionConfig, ImageCollection};
use node::{Files, MemoryVolumes, Node, NodeConfig, ShutdownGrace};
use serde_json::{Value, json};
use server::Identity;
use tokio::sync::{mpsc, oneshot};

use crate::faults::Fault;
use crate::flaws::{self, Planted, WorldFlaw};
use crate::laws::{self, Broken};
use crate::machine::{Life, Machine};
use crate::plane::{self, PlaneHandle};
use crate::runtime::FakeRuntime;
use crate::scenario::{ContainerPlan, HookPlan, PodPlan, Restart, Role, Scenario};
use crate::trace::{TraceEvent, TraceLine};
use crate::wire::{Caller, Wire};
use crate::{clock, disk, stand_in, users};

/// How often it is looked whether the story is over.
pub(crate) const LOOK: Duration = Duration::from_millis(250);
/// How long nothing may be left to happen before it is.
const QUIET_MS: u64 = 2_000;
/// No story has more lives.
const LIVES_MAX: u64 = 40;

/// How a story went.
pub struct Outcome {
    /// The story.
    pub scenario: Scenario,
    /// What happened.
    pub trace: Vec<TraceLine>,
    /// Every seam that was passed.
    pub seams: Vec<String>,
    /// The laws that were broken.
    pub broken: Vec<Broken>,
    /// How long it lasted, in its own milliseconds.
    pub lasted_ms: u64,
}

/// How a life ended.
enum End {
    /// The story is over.
    Over,
    /// The agent died.
    Crashed,
    /// It gave up, as it must when it cannot write what it does. Whoever keeps it starts it again.
    GaveUp(String),
}

/// How long it takes until an agent that gave up is started again.
pub(crate) const RESTART_MS: u64 = 500;

/// Plays a story, with this bug in it, on a thread of its own, as hash maps, random numbers and clocks want it. It is the same
/// every time in a process that has played no other: see [`crate::player`].
pub fn play(scenario: &Scenario, flaw: Option<Planted>) -> Outcome {
    let scenario = scenario.clone();
    let thread = std::thread::Builder::new().stack_size(8 << 20).spawn(move || {
        plant(flaw, scenario.stumble);
        play_here(scenario, flaw.and_then(Planted::in_world))
    });
    thread.expect("a thread can be started").join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(feature = "flaws")]
fn plant(flaw: Option<Planted>, stumble: Option<u64>) {
    node::flaws::stumble_at(stumble.unwrap_or(0));
    node::flaws::plant(flaw.and_then(Planted::in_agent));
    controllers::flaws::plant(flaw.and_then(Planted::in_controllers));
}

#[cfg(not(feature = "flaws"))]
fn plant(flaw: Option<Planted>, stumble: Option<u64>) {
    let is_inside = flaw.is_some_and(|flaw| flaw.in_world().is_none());
    assert!(!is_inside && stumble.is_none(), "bugs can be planted with the feature `flaws` only");
}

fn play_here(scenario: Scenario, flaw: Option<WorldFlaw>) -> Outcome {
    let parent = if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" };
    let folder = tempfile::Builder::new().prefix("adieu-simulation-").tempdir_in(parent).expect("a folder in memory");
    // Before anything is random.
    let machine = Machine::new(scenario.clone(), folder.path().to_owned());
    let limit_ms = laws::limit_ms(&scenario);
    flaws::plant(flaw);
    disk::enter(folder.path(), &scenario);
    stand_in::enter(scenario.seed);
    clock::boot(Duration::ZERO);
    let (mut at, mut boots) = (Duration::ZERO, 0);
    for _ in 1..=LIVES_MAX {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .event_interval(1)
            .build()
            .expect("a runtime");
        let end = runtime.block_on(async {
            stand_in::begin_life(at);
            let life = machine.begin_life();
            let living = live(life.clone(), limit_ms, boots);
            tokio::select! {
                biased;
                () = life.crashed() => End::Crashed,
                end = living => end,
            }
        });
        {
            let _inside = runtime.enter();
            stand_in::end_life();
        }
        let seam = machine.end_life();
        // A crash: no task hears of it, and nothing is written any more.
        drop(runtime);
        at = stand_in::elapsed();
        match end {
            End::Over => break,
            End::GaveUp(why) => {
                machine.note("-", TraceEvent::Crash(why));
                at += Duration::from_millis(RESTART_MS);
            }
            End::Crashed => {
                let crash = scenario.crashes.iter().find(|crash| Some(&crash.seam) == seam.as_ref());
                at += Duration::from_millis(crash.map_or(0, |crash| crash.down_ms));
                if crash.is_some_and(|crash| crash.power) {
                    machine.lose_power();
                    disk::lose_power();
                    boots += 1;
                    clock::boot(at);
                }
            }
        }
    }
    stand_in::leave();
    disk::leave();
    let trace = machine.trace();
    let broken = laws::check(&scenario, &trace);
    Outcome {
        scenario,
        seams: machine.seams(),
        broken,
        lasted_ms: u64::try_from(at.as_millis()).unwrap_or(u64::MAX),
        trace,
    }
}

/// Whether something may fail now because the story wants it so.
pub(crate) fn is_excused(machine: &Machine) -> bool {
    let now = clock::now_ms();
    machine.scenario.faults.iter().any(|fault| match fault {
        // What failed last may be told a little later.
        Fault::Full(_, span) => now >= span.at && now <= span.end() + 5_000,
        Fault::Lost(_) | Fault::Refused(_) | Fault::Late(..) | Fault::Away(_) => false,
    })
}

/// What cannot go on says so: the story's fault, or the platform's.
fn give_up(machine: &Machine, why: String) -> End {
    // Where it is in memory is another place every time.
    let why = why.replace(&*machine.disk.to_string_lossy(), "");
    if is_excused(machine) {
        return End::GaveUp(why);
    }
    machine.note("-", TraceEvent::NodeFailed(why));
    End::Over
}

/// One life: everything starts, users go on with what they were about, until the story is over.
async fn live(life: Life, limit_ms: u64, boots: u64) -> End {
    let machine = Arc::clone(&life.machine);
    tokio::spawn(life.clone().keep_agenda());
    let plane = PlaneHandle::unserved();
    // Alone it is one process with its agent, and dies with it.
    let parts = if machine.scenario.nodes.is_empty() { Some(plane::start(&life, &plane).await) } else { None };
    let _parts = match parts {
        Some(Err(why)) => return give_up(&machine, why),
        Some(Ok(tasks)) => Some(tasks),
        None => {
            let (started, has_started) = oneshot::channel();
            tokio::spawn(plane::keep(life.clone(), plane.clone(), started));
            let _ = has_started.await;
            None
        }
    };
    let user = Wire { plane: plane.clone(), identity: Identity::admin(), life: life.clone(), caller: Caller::User };
    let admin = kube::Client::new(user, "default");
    let (failed, mut failures) = mpsc::channel(1);
    let mut agents = Vec::new();
    for host in 0..machine.scenario.nodes.len().max(1) {
        let (orders, taken) = mpsc::channel(1);
        let agent = Agent { platform: life.clone(), host, plane: plane.clone(), boots, failed: failed.clone() };
        let (started, has_started) = oneshot::channel();
        tokio::spawn(agent.run(taken, started));
        // One that cannot start says so to somebody else.
        let _ = has_started.await;
        agents.push(orders);
    }
    let story = async {
        users::act(&life, &admin, &agents).await;
        rest(&machine, limit_ms).await;
    };
    tokio::select! {
        biased;
        Some(why) = failures.recv() => give_up(&machine, why),
        () = story => End::Over,
    }
}

/// A seam of this life for whoever waits for the disk.
pub(crate) fn pause_of(life: &Life) -> store::Pause {
    let life = life.clone();
    Arc::new(move |place| {
        let life = life.clone();
        Box::pin(async move { drop(life.seam(place, life.nobody()).await) })
    })
}

/// What an agent is told: to let every pod leave, and who wants to know when they have.
pub type Order = oneshot::Sender<()>;

/// The agent of one host, one life after the other.
struct Agent {
    platform: Life,
    host: usize,
    plane: PlaneHandle,
    boots: u64,
    /// Told why it gave up, where that is the end of the whole platform.
    failed: mpsc::Sender<String>,
}

impl Agent {
    async fn run(self, mut orders: mpsc::Receiver<Order>, started: oneshot::Sender<()>) {
        let machine = Arc::clone(&self.platform.machine);
        let mut started = Some(started);
        loop {
            let (life, events) = self.platform.of_host(self.host);
            let living = async {
                match self.start(&life, events).await {
                    Err(why) => why,
                    Ok(mut node) => {
                        if let Some(started) = started.take() {
                            let _ = started.send(());
                        }
                        work(&mut node, &mut orders).await
                    }
                }
            };
            let (why, crashed) = tokio::select! {
                biased;
                () = life.host_crashed() => ("it dies".to_owned(), true),
                why = living => (why, false),
            };
            if machine.scenario.nodes.is_empty() && !crashed {
                // One process: all of it ends.
                let _ = self.failed.send(why).await;
                return;
            }
            if !crashed && !is_excused(&machine) {
                machine.note("-", TraceEvent::NodeFailed(why.clone()));
            }
            life.end_host(&why);
            let down = machine.scenario.crashes.iter().filter(|crash| crash.node).map(|crash| crash.down_ms).max();
            let down = down.filter(|_| crashed).unwrap_or(RESTART_MS);
            tokio::time::sleep(Duration::from_millis(down)).await;
        }
    }

    async fn start(
        &self,
        life: &Life,
        events: mpsc::UnboundedReceiver<runtime_api::RuntimeEvent>,
    ) -> Result<Node<FakeRuntime>, String> {
        let name = life.host_name();
        let everybody = flaws::has(WorldFlaw::HearsEverybody);
        let identity = if everybody { Identity::admin() } else { Identity::node(name) };
        let wire = Wire { plane: self.plane.clone(), identity, life: life.clone(), caller: Caller::Agent };
        let client = kube::Client::new(wire, "default");
        let runtime = Arc::new(FakeRuntime::new(life.clone(), events));
        let config = config(life, self.host, self.boots);
        Node::start(config, runtime, client).await.map_err(|error| words_of(&error))
    }
}

/// Lets an agent work until it gives up; answers why.
async fn work(node: &mut Node<FakeRuntime>, orders: &mut mpsc::Receiver<Order>) -> String {
    loop {
        let order = tokio::select! {
            biased;
            error = node.failed() => return words_of(&*error),
            order = orders.recv() => order,
        };
        // Without users nobody gives orders any more.
        let Some(done) = order else { return words_of(&*node.failed().await) };
        if node.shut_down_pods(ShutdownGrace::FullGrace, |_| {}).await.is_ok() {
            let _ = done.send(());
        }
    }
}

pub(crate) fn words_of(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

fn config(life: &Life, host: usize, boots: u64) -> NodeConfig {
    let machine = &life.machine;
    let statics = host == 0 && machine.scenario.pods.iter().any(|pod| pod.is_static);
    let name = life.host_name().to_owned();
    let of_host =
        |folder: &str| machine.disk.join(if host == 0 { folder.to_owned() } else { format!("{folder}-{name}") });
    let data_dir = of_host("node");
    NodeConfig {
        address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, u8::try_from(host + 1).unwrap_or(u8::MAX))),
        memory: MemoryVolumes::of_dir(&of_host("memory")).expect("a folder in memory"),
        name,
        images: data_dir.clone(),
        volumes: data_dir.join("volumes"),
        data_dir,
        eviction: EvictionConfig { thresholds: Vec::new(), most_grace: None, linger: Duration::ZERO },
        images_kept: ImageCollection { high_percent: 100, ..ImageCollection::default() },
        pods_max: 110,
        pod_pids_max: None,
        allowed_sysctls: node::sysctls::AllowedSysctls::default(),
        cluster_dns: vec![[10, 87, 0, 10].into()],
        static_pods: statics.then(|| machine.disk.join("manifests")),
        version: "v1.36.4+simulation".to_owned(),
        api_port: None,
        joins_later: true,
        clock: clock::of_world(),
        machine: node::Machine {
            boot_id: format!("00000000-0000-0000-{boots:04}-00000000b007"),
            machine_id: format!("simulation-{host}"),
            system_uuid: format!("simulation-{host}"),
            kernel_version: "6.0.0".to_owned(),
            os_image: "simulation".to_owned(),
            architecture: "amd64".to_owned(),
            cpus: 8,
            memory_kib: 16 << 20,
            disk_kib: Some(100 << 20),
            resolv_conf: "/dev/null".into(),
        },
        files: Files::InLine(pause_of(life)),
        traffic: std::sync::Arc::new(node::NoTraffic),
        takes_on_pods: true,
    }
}

/// Waits until nothing is left to happen, or too much time is.
async fn rest(machine: &Machine, limit_ms: u64) {
    let mut quiet_since = None;
    loop {
        let busy = machine.scenario.pods.iter().any(|plan| match laws::fate(&machine.scenario, &plan.name) {
            laws::Fate::Leaves => machine.has_sandbox(&plan.name) || machine.has_object(&plan.name),
            laws::Fate::Stays => machine.is_leaving(&plan.name),
        });
        let busy = busy || machine.lacks_records() || !machine.workloads_are_settled();
        let now = clock::now_ms();
        let since = *quiet_since.get_or_insert(now);
        if busy {
            quiet_since = None;
        } else if now - since >= QUIET_MS && now >= laws::settled_ms(&machine.scenario) {
            return;
        }
        if now >= limit_ms {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The pod of a plan, as a user writes it.
pub fn manifest(scenario: &Scenario, plan: &PodPlan, edited: bool) -> Value {
    let (mut mains, mut inits) = (Vec::new(), Vec::new());
    for container in &plan.containers {
        match container.role {
            Role::Main => mains.push(container_json(plan, container, edited)),
            Role::Init | Role::Sidecar => inits.push(container_json(plan, container, edited)),
        }
    }
    let restart = match plan.restart {
        Restart::Always => "Always",
        Restart::OnFailure => "OnFailure",
        Restart::Never => "Never",
    };
    let mut spec = json!({
        "terminationGracePeriodSeconds": plan.grace,
        "restartPolicy": restart,
        "automountServiceAccountToken": false,
        "containers": mains,
        "initContainers": inits,
    });
    // With one node there is nobody to choose it.
    if plan.on.is_some() || scenario.nodes.is_empty() {
        spec["nodeName"] = json!(plan.on.as_deref().unwrap_or(scenario.host(0)));
    }
    if let Some(seconds) = plan.tolerates {
        let bears = |taint: &str| {
            let key = format!("node.kubernetes.io/{taint}");
            json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds })
        };
        spec["tolerations"] = json!([bears("not-ready"), bears("unreachable")]);
    }
    if plan.critical {
        spec["priorityClassName"] = json!("system-node-critical");
    }
    if plan.map && !plan.is_static {
        spec["volumes"] = json!([{ "name": "map", "configMap": { "name": "map" } }]);
    }
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": plan.name, "namespace": "default" }, "spec": spec })
}

fn container_json(pod: &PodPlan, plan: &ContainerPlan, edited: bool) -> Value {
    let mut image = if plan.quit { "quit".to_owned() } else { "plain".to_owned() };
    if let Some(ms) = plan.pull_ms {
        image = format!("{image}-pull-{ms}-{}", pod.name);
    }
    let hook = |hook: HookPlan| match hook {
        HookPlan::Takes(_) | HookPlan::Fails(_) | HookPlan::Never => json!({ "exec": { "command": ["hook"] } }),
        HookPlan::Sleeps(seconds) => json!({ "sleep": { "seconds": seconds } }),
    };
    let mut container = json!({ "name": plan.name, "image": image, "imagePullPolicy": "IfNotPresent" });
    if edited {
        container["env"] = json!([{ "name": "EDITED", "value": "1" }]);
    }
    if plan.role == Role::Sidecar {
        container["restartPolicy"] = json!("Always");
    }
    if let Some(pre) = plan.pre_stop {
        container["lifecycle"]["preStop"] = hook(pre);
    }
    if let Some(post) = plan.post_start {
        container["lifecycle"]["postStart"] = hook(post);
    }
    let probe = |word: &str| json!({ "exec": { "command": [word] }, "periodSeconds": 1, "failureThreshold": 1 });
    if plan.ready_ms.is_some() {
        container["readinessProbe"] = probe("ready");
    }
    if plan.live_ms.is_some() {
        container["livenessProbe"] = probe("live");
    }
    if pod.map && !pod.is_static && plan.role == Role::Main {
        container["volumeMounts"] = json!([{ "name": "map", "mountPath": "/map" }]);
    }
    container
}
