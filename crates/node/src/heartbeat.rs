//! The node's own object: what it is, what it has, and that it is alive.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{Node as ApiNode, NodeAddress, NodeCondition, NodeSpec, NodeStatus, NodeSystemInfo};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference, Time};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tracing::warn;

use crate::node::NodeConfig;

/// Leases are renewed this often, and good for four times as long.
const RENEW: Duration = Duration::from_secs(10);
const LEASE_SECONDS: i32 = 40;
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// Makes the Node object, or brings an old one up to date, and says that it is Ready.
pub async fn register(client: &kube::Client, config: &NodeConfig) -> kube::Result<ApiNode> {
    let api: Api<ApiNode> = Api::all(client.clone());
    let labels = BTreeMap::from([
        ("kubernetes.io/hostname".to_owned(), config.name.clone()),
        ("kubernetes.io/os".to_owned(), "linux".to_owned()),
        ("kubernetes.io/arch".to_owned(), architecture().to_owned()),
    ]);
    if api.get_opt(&config.name).await?.is_none() {
        let node = ApiNode {
            metadata: ObjectMeta { name: Some(config.name.clone()), labels: Some(labels), ..ObjectMeta::default() },
            spec: Some(NodeSpec::default()),
            status: None,
        };
        api.create(&PostParams::default(), &node).await?;
    }
    publish(client, config, true).await
}

/// Says whether the node is Ready, and why not.
pub async fn publish(client: &kube::Client, config: &NodeConfig, ready: bool) -> kube::Result<ApiNode> {
    let api: Api<ApiNode> = Api::all(client.clone());
    let stored = api.get(&config.name).await?;
    let status = status(config, ready, stored.status.as_ref(), Timestamp::now());
    api.patch_status(&config.name, &PatchParams::default(), &Patch::Strategic(json!({ "status": status }))).await
}

/// Renews the node's lease for as long as the node lives.
pub async fn keep_alive(client: kube::Client, config: NodeConfig, node: ApiNode) {
    let api: Api<Lease> = Api::namespaced(client, LEASE_NAMESPACE);
    loop {
        if let Err(error) = renew(&api, &config, &node).await {
            warn!(%error, "the node's lease could not be renewed");
        }
        tokio::time::sleep(RENEW).await;
    }
}

async fn renew(api: &Api<Lease>, config: &NodeConfig, node: &ApiNode) -> kube::Result<()> {
    let now = MicroTime(Timestamp::now());
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

fn status(config: &NodeConfig, ready: bool, before: Option<&NodeStatus>, now: Timestamp) -> NodeStatus {
    let capacity = BTreeMap::from([
        ("cpu".to_owned(), Quantity(std::thread::available_parallelism().map_or(1, usize::from).to_string())),
        ("memory".to_owned(), Quantity(format!("{}Ki", memory_kib()))),
        ("pods".to_owned(), Quantity("110".to_owned())),
        ("ephemeral-storage".to_owned(), Quantity(format!("{}Ki", disk_kib(&config.data_dir)))),
    ]);
    let healthy = [
        ("MemoryPressure", "KubeletHasSufficientMemory", "adieu has sufficient memory available"),
        ("DiskPressure", "KubeletHasNoDiskPressure", "adieu has no disk pressure"),
        ("PIDPressure", "KubeletHasSufficientPID", "adieu has sufficient PID available"),
    ];
    let mut conditions: Vec<NodeCondition> = healthy
        .into_iter()
        .map(|(kind, reason, message)| condition(before, kind, false, reason, message, now))
        .collect();
    conditions.push(if ready {
        condition(before, "Ready", true, "KubeletReady", "adieu is posting ready status", now)
    } else {
        condition(before, "Ready", false, "KubeletNotReady", "node is shutting down", now)
    });
    NodeStatus {
        addresses: Some(vec![
            NodeAddress { type_: "InternalIP".to_owned(), address: config.address.to_string() },
            NodeAddress { type_: "Hostname".to_owned(), address: config.name.clone() },
        ]),
        allocatable: Some(capacity.clone()),
        capacity: Some(capacity),
        conditions: Some(conditions),
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
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let release = read("/etc/os-release");
    let pretty = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    NodeSystemInfo {
        architecture: architecture().to_owned(),
        boot_id: read("/proc/sys/kernel/random/boot_id"),
        machine_id: read("/etc/machine-id"),
        kernel_version: read("/proc/sys/kernel/osrelease"),
        os_image: pretty.unwrap_or("Linux").trim_matches('"').to_owned(),
        operating_system: "linux".to_owned(),
        container_runtime_version: format!("adieu://{}", env!("CARGO_PKG_VERSION")),
        kubelet_version: config.version.clone(),
        kube_proxy_version: config.version.clone(),
        ..NodeSystemInfo::default()
    }
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn memory_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn disk_kib(path: &std::path::Path) -> u64 {
    rustix::fs::statvfs(path).map_or(0, |s| s.f_blocks * s.f_frsize / 1024)
}
