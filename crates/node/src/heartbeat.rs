//! The node's own object: what it is, what it has, how it fares, and that it is alive.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use api::volume::VOLUMES_DIRECTORY;
use client::WatchUpdate;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{
    ContainerImage, DaemonEndpoint, Node as ApiNode, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeSpec,
    NodeStatus, NodeSystemInfo,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference, Time};
use kube::api::{Api, Patch, PatchParams, PostParams};
use lifecycle::EventKind;
use runtime_api::{Image, Runtime};
use serde_json::json;
use supervision::{BackoffPolicy, error_chain};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tracing::warn;

use crate::events::Recorder;
use crate::node::NodeConfig;
use crate::pressure::threshold::Signal;

/// Leases are renewed this often, and good for four times as long.
const RENEW: Duration = Duration::from_secs(10);
const LEASE_SECONDS: i32 = 40;
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// The status is written this often even if nothing has changed.
const REPORT: Duration = Duration::from_secs(300);
/// How long to wait before a status that could not be stored is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(500);

/// How long a node that was not let in waits before it asks again.
const JOIN_AGAIN: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(200), Duration::from_secs(2));

/// How the node fares: what its conditions say, and the taints that follow them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Health {
    /// It is going down.
    pub shutting_down: bool,
    /// It is short of memory.
    pub memory_pressure: bool,
    /// It is short of disk space or of inodes.
    pub disk_pressure: bool,
    /// It is short of process ids.
    pub pid_pressure: bool,
}

/// The most images that a node tells of.
const IMAGES_MAX: usize = 50;

/// What the node's object says besides its health.
#[derive(Clone)]
pub struct ReportedFacts {
    /// Where directories of persistent volumes are made, if they can be.
    pub volumes: Option<PathBuf>,
    /// The images that it has.
    pub images: Arc<dyn Fn() -> BoxFuture<'static, Vec<ContainerImage>> + Send + Sync>,
}

impl ReportedFacts {
    /// What a node with this runtime says.
    pub fn new<R: Runtime>(runtime: Arc<R>, volumes: Option<PathBuf>) -> Self {
        let images = move || {
            let runtime = Arc::clone(&runtime);
            async move { largest(runtime.images().await.unwrap_or_default()) }.boxed()
        };
        Self { volumes, images: Arc::new(images) }
    }
}

/// The largest images first, and not more than a few.
fn largest(mut images: Vec<Image>) -> Vec<ContainerImage> {
    images.sort_by(|one, other| other.size_bytes.cmp(&one.size_bytes).then_with(|| one.names.cmp(&other.names)));
    let told = |image: Image| ContainerImage {
        names: Some(image.names),
        size_bytes: Some(i64::try_from(image.size_bytes).unwrap_or(i64::MAX)),
    };
    images.into_iter().filter(|image| !image.names.is_empty()).take(IMAGES_MAX).map(told).collect()
}

/// Makes the Node object, or brings an old one up to date, and says that it is Ready.
pub async fn register(
    client: &kube::Client,
    config: &NodeConfig,
    facts: &ReportedFacts,
    recorder: &Recorder,
) -> kube::Result<ApiNode> {
    let api: Api<ApiNode> = Api::all(client.clone());
    let labels = BTreeMap::from([
        ("kubernetes.io/hostname".to_owned(), config.name.clone()),
        ("kubernetes.io/os".to_owned(), "linux".to_owned()),
        ("kubernetes.io/arch".to_owned(), config.machine.architecture.clone()),
    ]);
    if api.get_opt(&config.name).await?.is_none() {
        let node = ApiNode {
            metadata: ObjectMeta { name: Some(config.name.clone()), labels: Some(labels), ..ObjectMeta::default() },
            spec: Some(NodeSpec::default()),
            status: None,
        };
        api.create(&PostParams::default(), &node).await?;
    }
    publish(client, config, facts, recorder, Health::default()).await
}

/// Registers as soon as the API server lets it.
pub async fn join(client: kube::Client, config: NodeConfig, facts: ReportedFacts, recorder: Recorder) -> ApiNode {
    let mut retries = JOIN_AGAIN.start();
    loop {
        match register(&client, &config, &facts, &recorder).await {
            Ok(node) => return node,
            Err(error) => warn!(error = error_chain(&error), "the API server does not let the node join; trying again"),
        }
        tokio::time::sleep(retries.after_failure()).await;
    }
}

/// The node's health, told to the API whenever it changes.
#[derive(Clone, Debug)]
pub struct HealthBoard {
    health: watch::Sender<Health>,
    shown: watch::Receiver<Health>,
}

impl HealthBoard {
    /// A board and the work of showing what stands on it, which ends with the last board.
    pub fn start(
        client: kube::Client,
        config: NodeConfig,
        facts: ReportedFacts,
        recorder: Recorder,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (health, changes) = watch::channel(Health::default());
        let (shown_told, shown) = watch::channel(Health::default());
        let state = (client, config, facts, recorder, changes, shown_told);
        let showing =
            supervision::keep_on("node-status", state, |(client, config, facts, recorder, changes, shown)| {
                show((client, config, facts), recorder, changes, shown).boxed()
            });
        (Self { health, shown }, showing)
    }

    /// How the node fares.
    pub fn get(&self) -> Health {
        *self.health.borrow()
    }

    /// Changes what is true of the node. True if that is news.
    pub fn set(&self, change: impl FnOnce(&mut Health)) -> bool {
        self.health.send_if_modified(|health| {
            let before = *health;
            change(health);
            *health != before
        })
    }

    /// Resolves when everyone can see what stands here, or it has taken too long.
    pub async fn seen(&self, patience: Duration) {
        let health = *self.health.borrow();
        let mut shown = self.shown.clone();
        if tokio::time::timeout(patience, shown.wait_for(|shown| *shown == health)).await.is_err() {
            warn!("the node's conditions could not be stored in time");
        }
    }
}

async fn show(
    (client, config, facts): (&kube::Client, &NodeConfig, &ReportedFacts),
    recorder: &Recorder,
    changes: &mut watch::Receiver<Health>,
    shown: &watch::Sender<Health>,
) {
    // Somebody who has not heard of us for a while says so; they hear of us as soon as we hear of that.
    let (told, mut updates) = mpsc::channel(4);
    let own = format!("metadata.name={}", config.name);
    let mut following = pin!(client::follow(Api::<ApiNode>::all(client.clone()), Some(own), told));
    let mut report_at = Instant::now() + REPORT;
    let mut cordoned = false;
    loop {
        tokio::select! {
            () = &mut following => return,
            changed = changes.changed() => if changed.is_err() { return },
            update = updates.recv() => {
                let nodes = match update {
                    Some(WatchUpdate::Listed(nodes)) => nodes,
                    Some(WatchUpdate::Changed(node)) => vec![node],
                    Some(WatchUpdate::Removed(_)) => Vec::new(),
                    None => return,
                };
                for reason in nodes.iter().filter_map(|node| cordon_news(&mut cordoned, node)) {
                    let message = format!("Node {} status is now: {reason}", config.name);
                    recorder.record_own(EventKind::Normal, reason, message);
                }
                if !nodes.iter().any(is_unknown) {
                    continue;
                }
            }
            () = tokio::time::sleep_until(report_at) => {}
        }
        report_at = Instant::now() + REPORT;
        loop {
            let health = *changes.borrow_and_update();
            match publish(client, config, facts, recorder, health).await {
                Ok(_) => {
                    shown.send_replace(health);
                    break;
                }
                Err(error) => warn!(%error, "the node's status could not be stored; trying again"),
            }
            tokio::time::sleep(TRY_AGAIN).await;
        }
    }
}

/// Stores the node's conditions, and tells people of those that have changed. What keeps new pods away follows them in the same
/// write: the server sees to that.
async fn publish(
    client: &kube::Client,
    config: &NodeConfig,
    facts: &ReportedFacts,
    recorder: &Recorder,
    health: Health,
) -> kube::Result<ApiNode> {
    let api: Api<ApiNode> = Api::all(client.clone());
    let before = api.get(&config.name).await?.status;
    let mut status = status(config, health, before.as_ref(), crate::timestamp(&config.clock));
    status.images = Some((facts.images)().await);
    let annotations = json!({ VOLUMES_DIRECTORY: facts.volumes });
    let patch = Patch::Strategic(json!({ "metadata": { "annotations": annotations }, "status": status }));
    let stored = api.patch_status(&config.name, &PatchParams::default(), &patch).await?;
    for reason in news(before.as_ref(), &status) {
        recorder.record_own(EventKind::Normal, reason, format!("Node {} status is now: {reason}", config.name));
    }
    Ok(stored)
}

/// What has become of the conditions that are not as they were, in the words of `kubectl describe node`.
fn news(before: Option<&NodeStatus>, after: &NodeStatus) -> Vec<&'static str> {
    let of = |status: Option<&NodeStatus>, kind: &str| {
        let conditions = status?.conditions.as_ref()?;
        conditions.iter().find(|condition| condition.type_ == kind).map(|condition| condition.status.clone())
    };
    let kinds = [
        ("MemoryPressure", "NodeHasInsufficientMemory", "NodeHasSufficientMemory"),
        ("DiskPressure", "NodeHasDiskPressure", "NodeHasNoDiskPressure"),
        ("PIDPressure", "NodeHasInsufficientPID", "NodeHasSufficientPID"),
        ("Ready", "NodeReady", "NodeNotReady"),
    ];
    let changed = kinds.into_iter().filter(|(kind, ..)| of(before, kind) != of(Some(after), kind));
    changed.map(|(kind, yes, no)| if of(Some(after), kind).as_deref() == Some("True") { yes } else { no }).collect()
}

/// What is new about whether pods may come; `cordoned` is what was known.
fn cordon_news(cordoned: &mut bool, node: &ApiNode) -> Option<&'static str> {
    let is_cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    let was_cordoned = std::mem::replace(cordoned, is_cordoned);
    match (was_cordoned, is_cordoned) {
        (false, true) => Some("NodeNotSchedulable"),
        (true, false) => Some("NodeSchedulable"),
        (false, false) | (true, true) => None,
    }
}

/// Whether the API says that nobody knows how we are.
fn is_unknown(node: &ApiNode) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "Unknown")
}

/// Renews the node's lease for as long as the node lives.
pub async fn keep_alive(client: kube::Client, config: NodeConfig, node: ApiNode) {
    let api: Api<Lease> = Api::namespaced(client, LEASE_NAMESPACE);
    loop {
        match supervision::catch("heartbeat", renew(&api, &config, &node)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(%error, "the node's lease could not be renewed"),
            Err(panic) => warn!(%panic, "the renewal of the node's lease broke"),
        }
        tokio::time::sleep(RENEW).await;
    }
}

async fn renew(api: &Api<Lease>, config: &NodeConfig, node: &ApiNode) -> kube::Result<()> {
    let now = MicroTime(crate::timestamp(&config.clock));
    if api.get_opt(&config.name).await?.is_some() {
        let patch = json!({ "spec": { "renewTime": now, "holderIdentity": config.name } });
        return api.patch(&config.name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop);
    }
    let lease = Lease {
        metadata: ObjectMeta {
            name: Some(config.name.clone()),
            namespace: Some(LEASE_NAMESPACE.to_owned()),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name: config.name.clone(),
                uid: node.metadata.uid.clone().unwrap_or_default(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(config.name.clone()),
            lease_duration_seconds: Some(LEASE_SECONDS),
            renew_time: Some(now),
            ..LeaseSpec::default()
        }),
    };
    api.create(&PostParams::default(), &lease).await.map(drop)
}

/// What pods are given of the machine: all but what has to be left of it lest somebody is evicted.
pub fn allocatable(config: &NodeConfig) -> BTreeMap<String, Quantity> {
    amounts(config, |signal, kib| {
        let mut hard = config.eviction.thresholds.iter().filter(|it| it.signal == signal && it.patience.is_none());
        kib.saturating_sub(hard.next().map_or(0, |threshold| threshold.least_of(kib * 1024).div_ceil(1024)))
    })
}

/// What the machine has; `given` says how much of something counts, in KiB.
fn amounts(config: &NodeConfig, given: impl Fn(Signal, u64) -> u64) -> BTreeMap<String, Quantity> {
    let kib = |signal, kib| Quantity(format!("{}Ki", given(signal, kib)));
    BTreeMap::from([
        ("cpu".to_owned(), Quantity(config.machine.cpus.to_string())),
        ("memory".to_owned(), kib(Signal::MemoryAvailable, config.machine.memory_kib)),
        ("pods".to_owned(), Quantity(config.pods_max.to_string())),
        ("ephemeral-storage".to_owned(), kib(Signal::NodefsAvailable, config.machine.disk_kib(&config.data_dir))),
    ])
}

fn status(config: &NodeConfig, health: Health, before: Option<&NodeStatus>, now: Timestamp) -> NodeStatus {
    let words = |holds: bool, yes: (&'static str, &'static str), no: (&'static str, &'static str)| {
        if holds { yes } else { no }
    };
    let memory = words(
        health.memory_pressure,
        ("KubeletHasInsufficientMemory", "adieu has insufficient memory available"),
        ("KubeletHasSufficientMemory", "adieu has sufficient memory available"),
    );
    let disk = words(
        health.disk_pressure,
        ("KubeletHasDiskPressure", "adieu has disk pressure"),
        ("KubeletHasNoDiskPressure", "adieu has no disk pressure"),
    );
    let pids = words(
        health.pid_pressure,
        ("KubeletHasInsufficientPID", "adieu has insufficient PID available"),
        ("KubeletHasSufficientPID", "adieu has sufficient PID available"),
    );
    let ready = words(
        health.shutting_down,
        ("KubeletNotReady", "node is shutting down"),
        ("KubeletReady", "adieu is posting ready status"),
    );
    let conditions = [
        ("MemoryPressure", health.memory_pressure, memory),
        ("DiskPressure", health.disk_pressure, disk),
        ("PIDPressure", health.pid_pressure, pids),
        ("Ready", !health.shutting_down, ready),
    ];
    let conditions: Vec<NodeCondition> = conditions
        .into_iter()
        .map(|(kind, holds, (reason, message))| condition(before, kind, holds, reason, message, now))
        .collect();
    NodeStatus {
        addresses: Some(vec![
            NodeAddress { type_: "InternalIP".to_owned(), address: config.address.to_string() },
            NodeAddress { type_: "Hostname".to_owned(), address: config.name.clone() },
        ]),
        allocatable: Some(allocatable(config)),
        capacity: Some(amounts(config, |_, all| all)),
        conditions: Some(conditions),
        // Port 0: the server needs no network to reach it.
        daemon_endpoints: Some(NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint { port: i32::from(config.api_port.unwrap_or_default()) }),
        }),
        node_info: Some(system_info(config)),
        ..NodeStatus::default()
    }
}

fn condition(
    before: Option<&NodeStatus>,
    kind: &str,
    holds: bool,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> NodeCondition {
    let word = if holds { "True" } else { "False" };
    let old = before.and_then(|s| s.conditions.as_ref()?.iter().find(|c| c.type_ == kind && c.status == word));
    NodeCondition {
        type_: kind.to_owned(),
        status: word.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: old.and_then(|c| c.last_transition_time.clone()).or(Some(Time(now))),
    }
}

fn system_info(config: &NodeConfig) -> NodeSystemInfo {
    let machine = config.machine.clone();
    NodeSystemInfo {
        architecture: machine.architecture,
        boot_id: machine.boot_id,
        machine_id: machine.machine_id,
        system_uuid: machine.system_uuid,
        kernel_version: machine.kernel_version,
        os_image: machine.os_image,
        operating_system: "linux".to_owned(),
        container_runtime_version: format!("adieu://{}", env!("CARGO_PKG_VERSION")),
        kubelet_version: config.version.clone(),
        kube_proxy_version: config.version.clone(),
        ..NodeSystemInfo::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_tells_when_it_is_cordoned_and_uncordoned_and_not_again() {
        let node = |unschedulable: Option<bool>| ApiNode {
            spec: Some(NodeSpec { unschedulable, ..NodeSpec::default() }),
            ..ApiNode::default()
        };
        let mut cordoned = false;
        let told = [None, Some(true), Some(true), Some(false), None].map(|it| cordon_news(&mut cordoned, &node(it)));
        assert_eq!(told, [None, Some("NodeNotSchedulable"), None, Some("NodeSchedulable"), None]);
    }
}
