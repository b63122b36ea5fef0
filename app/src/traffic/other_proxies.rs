//! How many other nodes route Services: each may send connections here until it has heard that a pod leaves.

use std::collections::BTreeMap;

use client::Change;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt as _};
use tokio::sync::{mpsc, watch};

/// Follows nodes, and tells how many besides this one are there, until nobody wants to know. One that is not ready for good is not
/// waited for.
pub(crate) async fn follow(client: kube::Client, own: String, told: watch::Sender<Option<u32>>) {
    let (changes, mut changed) = mpsc::channel::<Change<Node>>(64);
    let telling = async {
        let mut others = BTreeMap::new();
        while let Some(change) = changed.recv().await {
            match change {
                Change::Listed(nodes, _) => others = nodes.iter().map(|node| (node.name_any(), routes(node))).collect(),
                Change::Changed(node) => drop(others.insert(node.name_any(), routes(&node))),
                Change::Removed(node) => drop(others.remove(&node.name_any())),
                Change::Reached(_) => continue,
            }
            let count = others.iter().filter(|(name, routes)| **routes && **name != own).count();
            let count = u32::try_from(count).ok();
            told.send_if_modified(|known| std::mem::replace(known, count) != count);
        }
    };
    tokio::select! {
        () = client::follow_changes(Api::<Node>::all(client), changes) => {}
        () = telling => {}
        () = told.closed() => {}
    }
}

/// Whether the node may be routing: unless nobody has heard of it for long.
fn routes(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    !conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "Unknown")
}
