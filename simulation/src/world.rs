//! The whole platform but its controllers, from a scenario to its trace: one thread, one life of the agent after the other.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, DeleteParams, PostParams};
use node::pressure::{EvictionConfig, ImageCollection};
use node::{Files, MemoryVolumes, Node, NodeConfig, ShutdownGrace};
use serde_json::{Value, json};
use server::{Identity, NoNodes, Server, ServerConfig, TokenKey};
use store::{Store, Window};

use crate::flaws::Flaw;
use crate::laws::{self, Broken};
use crate::machine::{Life, Machine};
use crate::runtime::FakeRuntime;
use crate::scenario::{Act, ContainerPlan, Deed, HookPlan, PodPlan, Restart, Role, Scenario};
use crate::trace::{TraceEvent, TraceLine};
use crate::wire::Wire;
use crate::{clock, stand_in, witness};

const NODE: &str = "n1";
/// How often it is looked whether the story is over.
const LOOK: Duration = Duration::from_millis(250);
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
}

/// Plays a story, with this bug in the agent, on a thread of its own, as hash maps, random numbers and clocks want it. It is the
/// same every time in a process that has played no other: see [`crate::player`].
pub fn play(scenario: &Scenario, flaw: Option<Flaw>) -> Outcome {
    let scenario = scenario.clone();
    let thread = std::thread::Builder::new().stack_size(8 << 20).spawn(move || {
        plant(flaw, scenario.stumble);
        play_here(scenario)
    });
    thread.expect("a thread can be started").join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(feature = "flaws")]
fn plant(flaw: Option<Flaw>, stumble: Option<u64>) {
    node::flaws::stumble_at(stumble.unwrap_or(0));
    node::flaws::plant(flaw);
}

#[cfg(not(feature = "flaws"))]
fn plant(flaw: Option<Flaw>, stumble: Option<u64>) {
    assert!(flaw.is_none() && stumble.is_none(), "bugs can be planted with the feature `flaws` only");
}

fn play_here(scenario: Scenario) -> Outcome {
    let parent = if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" };
    let disk = tempfile::Builder::new().prefix("adieu-simulation-").tempdir_in(parent).expect("a folder in memory");
    // Before anything is random.
    let machine = Machine::new(scenario.clone(), disk.path().to_owned());
    let limit_ms = laws::limit_ms(&scenario);
    stand_in::enter(scenario.seed);
    let mut at = Duration::ZERO;
    for number in 1..=LIVES_MAX {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .event_interval(1)
            .build()
            .expect("a runtime");
        let end = runtime.block_on(async {
            stand_in::begin_life(at);
            let (life, events) = machine.begin_life();
            let living = live(life.clone(), events, limit_ms);
            tokio::select! {
                biased;
                () = life.crashed() => End::Crashed,
                () = living => End::Over,
            }
        });
        {
            let _inside = runtime.enter();
            stand_in::end_life();
        }
        machine.end_life();
        // A crash: no task hears of it, and nothing is written any more.
        drop(runtime);
        at = stand_in::elapsed();
        match end {
            End::Over => break,
            End::Crashed => {
                let down =
                    scenario.crashes.iter().map(|crash| crash.down_ms).nth(usize::try_from(number - 1).unwrap_or(0));
                at += Duration::from_millis(down.unwrap_or(0));
            }
        }
    }
    stand_in::leave();
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

/// One life: everything starts, users go on with what they were about, until the story is over.
async fn live(life: Life, events: tokio::sync::mpsc::UnboundedReceiver<runtime_api::RuntimeEvent>, limit_ms: u64) {
    let machine = Arc::clone(&life.machine);
    tokio::spawn(life.clone().keep_agenda());
    let pausing = life.clone();
    let pause: store::Pause = Arc::new(move |place| {
        let life = pausing.clone();
        Box::pin(async move { life.seam(place, "-").await })
    });
    let window = Window::default();
    let opened = Store::open_in_line(&machine.disk.join("store"), window, Arc::clone(&pause));
    let (store, serving) = match opened {
        Ok(opened) => opened,
        Err(error) => return machine.note("-", TraceEvent::NodeFailed(format!("store: {error}"))),
    };
    tokio::spawn(serving);
    tokio::spawn(witness::watch(life.clone(), store.clone()));
    let server = Server::new(ServerConfig {
        store,
        advertise: SocketAddr::from((Ipv4Addr::LOCALHOST, 6443)),
        version: "v1.36.4+simulation".to_owned(),
        nodes: Arc::new(NoNodes),
        service_range: server::ServiceRange::default(),
        token_key: token_key(),
    })
    .await;
    let server = match server {
        Ok(server) => server,
        Err(error) => return machine.note("-", TraceEvent::NodeFailed(format!("server: {error}"))),
    };
    let wire = Wire { api: server.service_as(Identity::node(NODE)), life: life.clone() };
    let client = kube::Client::new(wire, "default");
    let admin = kube::Client::new(server.service_as(Identity::admin()), "default");
    let runtime = Arc::new(FakeRuntime::new(life.clone(), events));
    let mut node = match Node::start(config(&machine, pause), runtime, client).await {
        Ok(node) => node,
        Err(error) => return machine.note("-", TraceEvent::NodeFailed(node_words(&error))),
    };
    let users = act(&life, &admin, &node);
    let story = async {
        users.await;
        rest(&machine, limit_ms).await;
    };
    let over = {
        let story = std::pin::pin!(story);
        story.await;
        true
    };
    if over {
        // Nothing of the node may have ended by itself.
        let failed = tokio::time::timeout(Duration::from_millis(1), node.failed()).await;
        if let Ok(error) = failed {
            machine.note("-", TraceEvent::NodeFailed(error.to_string()));
        }
    }
}

fn node_words(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// One for all: what it signs is in no trace.
fn token_key() -> TokenKey {
    static KEY: OnceLock<TokenKey> = OnceLock::new();
    KEY.get_or_init(TokenKey::fresh).clone()
}

fn config(machine: &Machine, pause: timeline::Pause) -> NodeConfig {
    let statics = machine.scenario.pods.iter().any(|pod| pod.is_static);
    let data_dir = machine.disk.join("node");
    NodeConfig {
        name: NODE.to_owned(),
        address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
        memory: MemoryVolumes::of_dir(&machine.disk.join("memory")).expect("a folder in memory"),
        images: data_dir.clone(),
        data_dir,
        eviction: EvictionConfig { thresholds: Vec::new(), most_grace: None, linger: Duration::ZERO },
        images_kept: ImageCollection { high_percent: 100, ..ImageCollection::default() },
        pods_max: 110,
        pod_pids_max: None,
        allowed_sysctls: node::sysctls::AllowedSysctls::default(),
        static_pods: statics.then(|| machine.disk.join("manifests")),
        version: "v1.36.4+simulation".to_owned(),
        api_port: None,
        joins_later: true,
        clock: clock::of_world(),
        machine: node::Machine {
            boot_id: "00000000-0000-0000-0000-00000000b007".to_owned(),
            machine_id: "simulation".to_owned(),
            kernel_version: "6.0.0".to_owned(),
            os_image: "simulation".to_owned(),
            architecture: "amd64".to_owned(),
            cpus: 8,
            memory_kib: 16 << 20,
            disk_kib: Some(100 << 20),
            resolv_conf: "/dev/null".into(),
        },
        files: Files::InLine(pause),
        traffic: std::sync::Arc::new(node::NoTraffic),
        takes_on_pods: true,
    }
}

/// Users go on where they were when the agent died.
async fn act(life: &Life, admin: &kube::Client, node: &Node<FakeRuntime>) {
    let machine = &life.machine;
    for act in machine.scenario.acts.iter().skip(machine.acts_done()) {
        let wait = act.at.saturating_sub(clock::now_ms());
        tokio::time::sleep(Duration::from_millis(wait)).await;
        perform(machine, admin, node, act).await;
        machine.act_done();
    }
}

async fn perform(machine: &Machine, admin: &kube::Client, node: &Node<FakeRuntime>, act: &Act) {
    let pods: Api<Pod> = Api::namespaced(admin.clone(), "default");
    let who = match &act.deed {
        Deed::Create(pod) | Deed::Delete(pod, _) | Deed::Edit(pod) | Deed::Remove(pod) => pod.as_str(),
        Deed::ShutDown => "-",
    };
    machine.note(who, TraceEvent::User(act.to_string()));
    let plan = machine.scenario.plan(who);
    let file = machine.disk.join("manifests").join(format!("{who}.json"));
    match (&act.deed, plan) {
        (Deed::Create(_), Some(plan)) if plan.is_static => write_manifest(&file, plan, false),
        (Deed::Create(_), Some(plan)) => {
            if plan.map {
                let map: ConfigMap =
                    serde_json::from_value(json!({ "metadata": { "name": "map" }, "data": { "k": "v" } }))
                        .expect("a map");
                let _ =
                    Api::<ConfigMap>::namespaced(admin.clone(), "default").create(&PostParams::default(), &map).await;
            }
            let pod: Pod = serde_json::from_value(manifest(plan, false)).expect("a pod");
            // After a crash it may be there already.
            match pods.create(&PostParams::default(), &pod).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => machine.note(who, TraceEvent::NodeFailed(format!("create: {error}"))),
            }
        }
        (Deed::Delete(name, grace), _) => {
            let grace_period_seconds = grace.and_then(|grace| u32::try_from(grace).ok());
            let params = DeleteParams { grace_period_seconds, ..DeleteParams::default() };
            match pods.delete(name, &params).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => machine.note(who, TraceEvent::NodeFailed(format!("delete: {error}"))),
            }
        }
        (Deed::Edit(_), Some(plan)) => write_manifest(&file, plan, true),
        (Deed::Remove(_), _) => drop(std::fs::remove_file(&file)),
        (Deed::ShutDown, _) => {
            if node.shut_down_pods(ShutdownGrace::FullGrace, |_| {}).await.is_ok() {
                machine.note("-", TraceEvent::ShutDown);
            }
        }
        (Deed::Create(_) | Deed::Edit(_), None) => {}
    }
}

fn write_manifest(file: &Path, plan: &PodPlan, edited: bool) {
    let text = manifest(plan, edited).to_string();
    let draft = file.with_file_name(format!(".{}", plan.name));
    // The node has made the folder.
    if std::fs::write(&draft, text).is_ok() {
        let _ = std::fs::rename(draft, file);
    }
}

/// Waits until nothing is left to happen, or too much time is.
async fn rest(machine: &Machine, limit_ms: u64) {
    let mut quiet_since = None;
    loop {
        let busy = machine.scenario.pods.iter().any(|plan| match laws::fate(&machine.scenario, &plan.name) {
            laws::Fate::Leaves => machine.has_sandbox(&plan.name) || machine.has_object(&plan.name),
            laws::Fate::Stays => false,
        });
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
pub fn manifest(plan: &PodPlan, edited: bool) -> Value {
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
        "nodeName": NODE,
        "terminationGracePeriodSeconds": plan.grace,
        "restartPolicy": restart,
        "automountServiceAccountToken": false,
        "containers": mains,
        "initContainers": inits,
    });
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
