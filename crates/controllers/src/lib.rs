//! Controllers make the cluster as it was asked to be: each one plans (pure), then applies, in the one [`frame`].
//!
//! [`scheduler`] gives pods their nodes. The others run together ([`run`]): `garbage` takes away what has lost its
//! owners, `pod_gc` what nobody is left to finish, `disruption` counts how many pods may be evicted, `nodes` notices nodes
//! that say nothing any more, `endpoint_slice` lists the pods behind each service, `load_balancer` gives Services of that type the
//! addresses of nodes, `replicas`, `deployment`, `stateful_set`, `daemon_set`, `job` and `cron_job` make pods of workloads,
//! `taint_eviction` ends pods on nodes that they do not tolerate. Pods and nodes are read once and shared;
//! each controller acts as a service account of its own.

mod autoscaler;
mod availability;
mod clients;
mod controller_history;
mod controller_ref;
mod cron_job;
mod daemon_set;
mod deployment;
mod disruption;
mod endpoint_slice;
mod ephemeral_volume;
mod events;
mod feed;
pub mod flaws;
mod garbage;
mod job;
mod load_balancer;
mod nodes;
mod objects;
mod pod;
#[allow(dead_code, reason = "StatefulSets and Jobs change pods before they are created")]
mod pod_control;
mod pod_deletion;
mod pod_gc;
mod pod_names;
mod replicas;
mod scaled_value;
pub mod scheduler;
mod selector;
mod settings;
mod stateful_set;
mod taint_eviction;
mod volume_binder;
mod volume_objects;
#[cfg(test)]
mod woken;
mod workload_metadata;

use std::sync::Arc;
use std::time::Duration;

use api::Registry;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim};
use kube::api::Api;
use supervision::within;
use tokio::sync::watch;
use tokio::task::JoinSet;

use controller_history::{REVISIONS, RevisionView};
use feed::Feed;
use job::view::JobView;
use pod::PodView;
use replicas::set::ReplicaSetView;

pub use clients::Clients;
pub use settings::Settings;

/// What sources of pods and of nodes are called.
const PODS: &str = "pods";
const NODES: &str = "nodes";

/// The kinds that are served, and what they become.
pub type Kinds = watch::Receiver<Arc<Registry>>;

/// The pause before everything begins anew.
const RESTART: Duration = Duration::from_secs(1);

/// Runs every controller but the scheduler until it is dropped, on the `kinds` that there are. Panics if one of them does: they share what they hear, and whoever
/// runs this starts them again together. Nothing is remembered but pace, so that costs a list.
pub async fn run(clients: Clients, kinds: Kinds, settings: Settings) {
    loop {
        run_once(clients.clone(), kinds.clone(), settings).await;
        tracing::error!("a controller ended; all of them begin anew");
        tokio::time::sleep(RESTART).await;
    }
}

/// Runs them until one ends, which none does by itself.
async fn run_once(clients: Clients, kinds: Kinds, settings: Settings) {
    let mut tasks = JoinSet::new();
    let mut pods = Feed::new(PODS, Api::<PodView>::all(clients.read()));
    let mut nodes = Feed::new(NODES, Api::<Node>::all(clients.read()));
    // Told first of all: what it writes takes traffic from pods that leave.
    let listing = endpoint_slice::run(&clients, settings, &mut pods, &mut nodes, &mut tasks);
    tasks.spawn(within("endpoint-slice", listing));
    tasks.spawn(within("pod-gc", pod_gc::run(&clients, settings, &mut pods, &mut nodes)));
    let evicting = taint_eviction::run(&clients, settings, &mut pods, &mut nodes, &mut tasks);
    tasks.spawn(within("taint-eviction", evicting));
    let counting = disruption::run(&clients, settings, &mut pods, &mut tasks);
    tasks.spawn(within("disruption", counting));
    let mut claims = Feed::new(volume_objects::CLAIMS, Api::<PersistentVolumeClaim>::all(clients.read()));
    let binding = volume_binder::run(&clients, settings, (&mut nodes, &mut pods), &mut claims, &mut tasks);
    tasks.spawn(within("volume-binder", binding));
    let balancing = load_balancer::run(&clients, settings, &mut nodes, &mut tasks);
    tasks.spawn(within("load-balancer", balancing));
    let making = ephemeral_volume::run(&clients, settings, &mut pods, &mut claims, &mut tasks);
    tasks.spawn(within("ephemeral-volume", making));
    let watching = nodes::run(&clients, settings, &mut nodes, &mut tasks);
    tasks.spawn(within("nodes", watching));
    if settings.workloads {
        run_workloads(&clients, settings, &mut pods, &mut nodes, &mut tasks);
    }
    tasks.spawn(supervision::keep("garbage", move || garbage::run(clients.clone(), kinds.clone(), settings)));
    pods.start(&mut tasks);
    nodes.start(&mut tasks);
    claims.start(&mut tasks);
    until_one_ends(tasks).await;
}

/// The controllers that make pods.
fn run_workloads(
    clients: &Clients,
    settings: Settings,
    pods: &mut Feed<PodView>,
    nodes: &mut Feed<Node>,
    tasks: &mut JoinSet<()>,
) {
    let mut sets = Feed::new(replicas::REPLICA_SETS, Api::<ReplicaSetView>::all(clients.read()));
    let replicating = replicas::run_replica_sets(clients, settings, pods, &mut sets, tasks);
    tasks.spawn(within("replicasets", replicating));
    let replicating = replicas::run_replication_controllers(clients, settings, pods, tasks);
    tasks.spawn(within("replicationcontrollers", replicating));
    let deploying = deployment::run(clients, settings, pods, &mut sets, tasks);
    tasks.spawn(within("deployments", deploying));
    sets.start(tasks);
    let mut jobs = Feed::new(job::JOBS, Api::<JobView>::all(clients.read()));
    let running = job::run(clients, settings, pods, &mut jobs, tasks);
    tasks.spawn(within("jobs", running));
    tasks.spawn(within("ttl-after-finished", job::ttl::run(clients, settings, &mut jobs)));
    let autoscaling = autoscaler::run(clients, settings, tasks);
    tasks.spawn(within("autoscalers", autoscaling));
    let scheduling = cron_job::run(clients, settings, &mut jobs, tasks);
    tasks.spawn(within("cronjobs", scheduling));
    jobs.start(tasks);
    let mut revisions = Feed::new(REVISIONS, Api::<RevisionView>::all(clients.read()));
    let ordering = stateful_set::run(clients, settings, pods, &mut revisions, tasks);
    tasks.spawn(within("statefulsets", ordering));
    let spreading = daemon_set::run(clients, settings, pods, nodes, &mut revisions, tasks);
    tasks.spawn(within("daemonsets", spreading));
    revisions.start(tasks);
}

/// Waits for the first of some parts that begin anew together; its panic is ours.
async fn until_one_ends(mut tasks: JoinSet<()>) {
    let ended = tasks.join_next().await;
    if let Some(payload) = ended.and_then(|ended| ended.err()?.try_into_panic().ok()) {
        std::panic::resume_unwind(payload);
    }
}
