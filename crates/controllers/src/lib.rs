//! Loops that make the cluster as it was asked to be: each one plans (pure), then applies.
//!
//! [`scheduler`] gives pods their nodes. The others run together ([`run`]): [`garbage`] takes away what has lost its
//! owners, `pod_gc` what nobody is left to finish, `disruption` counts how many pods may be evicted.

mod disruption;
mod events;
mod feed;
pub mod garbage;
mod pod;
mod pod_gc;
pub mod scheduler;

use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use tokio::task::JoinSet;

use pod::PodView;

pub use pod_gc::Settings;

/// Runs every controller but the scheduler until it is dropped.
pub async fn run(client: kube::Client, settings: Settings) {
    let mut tasks = JoinSet::new();
    let mut pods = feed::share(Api::<PodView>::all(client.clone()), 2, &mut tasks).into_iter();
    let mut nodes = feed::share(Api::<Node>::all(client.clone()), 1, &mut tasks).into_iter();
    if let (Some(for_gc), Some(for_budgets), Some(nodes)) = (pods.next(), pods.next(), nodes.next()) {
        tasks.spawn(pod_gc::run(client.clone(), settings, for_gc, nodes));
        tasks.spawn(disruption::run(client.clone(), for_budgets));
    }
    tasks.spawn(garbage::run(client));
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended {
            tracing::error!(%error, "a controller ended");
        }
    }
}
