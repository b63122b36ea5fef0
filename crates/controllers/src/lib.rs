//! Loops that make the cluster as it was asked to be: each one plans (pure), then applies.
//!
//! [`scheduler`] gives pods their nodes. The others run together ([`run`]): [`garbage`] takes away what has lost its
//! owners, `pod_gc` what nobody is left to finish, `disruption` counts how many pods may be evicted, `nodes` notices nodes
//! that say nothing any more, `taint_eviction` ends pods on nodes that they do not tolerate.

mod caught;
mod disruption;
mod ending;
mod events;
mod feed;
pub mod garbage;
mod nodes;
mod pod;
mod pod_gc;
pub mod scheduler;
mod settings;
mod taint_eviction;
mod tolerations;

use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use supervision::within;
use tokio::task::JoinSet;

use pod::PodView;

pub use settings::Settings;

/// Runs every controller but the scheduler until it is dropped. Panics if one of them does: whoever runs this starts it again.
pub async fn run(client: kube::Client, settings: Settings) {
    let mut tasks = JoinSet::new();
    let mut pods = feed::share(Api::<PodView>::all(client.clone()), 3, &mut tasks).into_iter();
    let mut nodes = feed::share(Api::<Node>::all(client.clone()), 3, &mut tasks).into_iter();
    if let (Some(pods), Some(nodes)) = (pods.next(), nodes.next()) {
        tasks.spawn(within("pod-gc", pod_gc::run(client.clone(), settings, pods, nodes)));
    }
    if let (Some(pods), Some(nodes)) = (pods.next(), nodes.next()) {
        let evicting = taint_eviction::run(client.clone(), pods, nodes, &mut tasks);
        tasks.spawn(within("taint-eviction", evicting));
    }
    if let Some(pods) = pods.next() {
        tasks.spawn(within("disruption", disruption::run(client.clone(), pods)));
    }
    if let Some(nodes) = nodes.next() {
        let watching = nodes::run(client.clone(), settings.node_grace, nodes, &mut tasks);
        tasks.spawn(within("nodes", watching));
    }
    tasks.spawn(supervision::keep("garbage", move || garbage::run(client.clone())));
    while let Some(ended) = tasks.join_next().await {
        // They share what they hear, so they begin anew together.
        if let Some(payload) = ended.err().and_then(|error| error.try_into_panic().ok()) {
            std::panic::resume_unwind(payload);
        }
    }
}
