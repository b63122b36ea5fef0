//! Pods that store more than they said they would: `sizeLimit` of an emptyDir on disk, and limits of `ephemeral-storage`.
//!
//! No file system tells of this by itself, so it is looked at in intervals, and only for pods that gave a limit. What is
//! written between two looks is written.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::pod::{self, ResourceOptions};
use api::quantity::Quantity;
use file_tree::disk_usage;
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::{Pod, Volume};
use lifecycle::Pressure;
use runtime_api::{ContainerStored, Runtime};
use supervision::error_chain;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tracing::{info, warn};

use super::monitor::Eviction;
use crate::effects::Tools;
use crate::pods::{Directory, PodReader};

const EPHEMERAL: &str = "ephemeral-storage";

/// How often pods are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Where looking takes long, as with millions of files, the pause after it is so many times as long, up to this
/// or to as long as the look itself.
const REST: u32 = 10;
const REST_MAX: Duration = Duration::from_secs(60);

/// The part of the node that does this.
pub struct StorageLimits<R: Runtime> {
    tools: Arc<Tools<R>>,
    directory: Directory,
    evictions: mpsc::Sender<Eviction>,
    /// Those who were asked to go, until they are forgotten.
    evicted: BTreeSet<String>,
}

impl<R: Runtime> StorageLimits<R> {
    /// Looks at the pods of `directory` and has those evicted that store too much.
    pub fn new(tools: Arc<Tools<R>>, directory: Directory, evictions: mpsc::Sender<Eviction>) -> Self {
        Self { tools, directory, evictions, evicted: BTreeSet::new() }
    }

    /// Looks until the node stops.
    pub async fn run(self) {
        supervision::keep_on("storage-limits", self, |limits| limits.watch().boxed()).await;
    }

    async fn watch(&mut self) {
        let mut wait = LOOK_EVERY;
        loop {
            tokio::time::sleep(wait).await;
            let begun = Instant::now();
            self.look().await;
            let took = begun.elapsed();
            wait = (took * REST).clamp(LOOK_EVERY, REST_MAX.max(took));
        }
    }

    async fn look(&mut self) {
        let entries = self.directory.all();
        self.evicted.retain(|uid| entries.iter().any(|entry| &entry.uid.0 == uid));
        for entry in entries {
            if entry.record.get().at_rest || self.evicted.contains(&entry.uid.0) {
                continue;
            }
            let (limits, may_go) = {
                let pod = &entry.record.pod();
                let priority = api::pod::priority(&**pod);
                (Limits::of(pod), Pressure::may_evict(api::pod::is_static(&**pod), priority))
            };
            if !may_go || limits.is_empty() {
                continue;
            }
            let stored = self.stored(&entry, &limits).await;
            let Some(what) = limits.exceeded(&stored) else { continue };
            info!(uid = entry.uid.0, what, "a pod stores more than it may");
            // Nobody waits for its end here: whoever takes long must not keep others from being looked at.
            let eviction =
                Eviction { uid: entry.uid.0.clone(), pressure: Pressure::Limit { what }, done: oneshot::channel().0 };
            if self.evictions.send(eviction).await.is_ok() {
                self.evicted.insert(entry.uid.0);
            }
        }
    }

    async fn stored(&self, entry: &PodReader, limits: &Limits) -> Stored {
        let volumes: BTreeMap<String, PathBuf> = {
            let disk = self.tools.manifests.volumes(&entry.uid.0).disk;
            let wanted =
                limits.on_disk.iter().filter(|name| limits.total.is_some() || limits.volumes.contains_key(*name));
            wanted.map(|name| (name.clone(), disk.join(name))).collect()
        };
        let walk = move || Ok(volumes.into_iter().map(|(name, path)| (name, disk_usage(&path).bytes)).collect());
        let walked = self.tools.files.run("files.measure", walk);
        let containers = match limits.total {
            Some(_) => self.tools.runtime.stored(&entry.uid).await.unwrap_or_else(|error| {
                warn!(uid = entry.uid.0, error = error_chain(&error), "cannot read the storage use of a pod");
                Vec::new()
            }),
            None => Vec::new(),
        };
        // A walk that was not made, as the node is stopping, has found nothing.
        Stored { volumes: walked.await.unwrap_or_default(), containers: latest(&containers) }
    }
}

/// What the last run of each container has: that of former ones is the node's, which keeps them for their logs.
fn latest(stored: &[ContainerStored]) -> BTreeMap<String, u64> {
    let mut runs: Vec<_> = stored.iter().collect();
    runs.sort_by_key(|run| run.id.attempt);
    runs.into_iter().map(|run| (run.id.name.clone(), run.bytes)).collect()
}

/// What a pod has on disk, in bytes.
#[derive(Default, Debug)]
struct Stored {
    volumes: BTreeMap<String, u64>,
    containers: BTreeMap<String, u64>,
}

/// What a pod may have on disk.
#[derive(Default, Debug)]
struct Limits {
    /// Its emptyDirs that are on disk.
    on_disk: BTreeSet<String>,
    /// Of those, the ones with a limit of their own.
    volumes: BTreeMap<String, Quantity>,
    containers: BTreeMap<String, Quantity>,
    /// Of all together: the sum of what its containers may have.
    total: Option<Quantity>,
}

impl Limits {
    fn of(pod: &Pod) -> Self {
        let Some(spec) = &pod.spec else { return Self::default() };
        let mut limits = Self::default();
        let in_memory =
            |volume: &Volume| volume.empty_dir.as_ref().is_some_and(|it| it.medium.as_deref() == Some("Memory"));
        for volume in spec.volumes.iter().flatten().filter(|volume| !in_memory(volume)) {
            let Some(empty) = &volume.empty_dir else { continue };
            limits.on_disk.insert(volume.name.clone());
            let limit = empty.size_limit.as_ref().and_then(|limit| limit.0.parse::<Quantity>().ok());
            if let Some(limit) = limit.filter(|limit| !limit.is_zero()) {
                limits.volumes.insert(volume.name.clone(), limit);
            }
        }
        for container in &spec.containers {
            let of_container = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
            if let Some(limit) = of_container.and_then(|limits| limits.get(EPHEMERAL)?.0.parse().ok()) {
                limits.containers.insert(container.name.clone(), limit);
            }
        }
        limits.total = pod::limits(pod, ResourceOptions::SPEC).get(EPHEMERAL);
        limits
    }

    fn is_empty(&self) -> bool {
        self.volumes.is_empty() && self.total.is_none()
    }

    /// Which of them is passed, in the words of the API.
    fn exceeded(&self, stored: &Stored) -> Option<String> {
        let over = |used: u64, limit: Quantity| Quantity::pieces(used) > limit;
        for (name, limit) in &self.volumes {
            if over(stored.volumes.get(name).copied().unwrap_or(0), *limit) {
                return Some(format!("Usage of EmptyDir volume {name:?} exceeds the limit \"{limit}\"."));
            }
        }
        let used: u64 = stored.volumes.values().chain(stored.containers.values()).sum();
        if let Some(total) = self.total.filter(|total| over(used, *total)) {
            return Some(format!("Pod ephemeral local storage usage exceeds the total limit of containers {total}."));
        }
        let (name, limit) = self
            .containers
            .iter()
            .find(|(name, limit)| over(stored.containers.get(*name).copied().unwrap_or(0), **limit))?;
        Some(format!("Container {name} exceeded its local ephemeral storage limit \"{limit}\"."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn limits(spec: Value) -> Limits {
        Limits::of(&serde_json::from_value(json!({ "spec": spec })).expect("a pod"))
    }

    fn container(name: &str, limit: Option<&str>) -> Value {
        let resources = limit.map(|limit| json!({ "limits": { EPHEMERAL: limit } }));
        json!({ "name": name, "resources": resources })
    }

    fn stored(volumes: &[(&str, u64)], containers: &[(&str, u64)]) -> Stored {
        let map = |list: &[(&str, u64)]| list.iter().map(|(name, mib)| ((*name).to_owned(), mib << 20)).collect();
        Stored { volumes: map(volumes), containers: map(containers) }
    }

    #[test]
    fn storage_limit_that_is_exceeded_is_named() {
        let of = limits(json!({
            "volumes": [
                { "name": "a", "emptyDir": { "sizeLimit": "2Mi" } },
                { "name": "b", "emptyDir": {} },
                { "name": "c", "emptyDir": { "medium": "Memory", "sizeLimit": "1Mi" } },
            ],
            "containers": [container("app", Some("4Mi")), container("log", Some("2048Ki"))],
        }));
        assert!(!of.is_empty() && of.on_disk.len() == 2);
        let said = |volumes: &[(&str, u64)], containers: &[(&str, u64)]| of.exceeded(&stored(volumes, containers));
        assert_eq!(said(&[("a", 2), ("b", 1)], &[("app", 1), ("log", 2)]), None, "all of it is not more than it");
        let volume = "Usage of EmptyDir volume \"a\" exceeds the limit \"2Mi\".";
        assert_eq!(said(&[("a", 3)], &[("app", 9)]).as_deref(), Some(volume));
        let total = "Pod ephemeral local storage usage exceeds the total limit of containers 6Mi.";
        assert_eq!(said(&[("a", 2), ("b", 1)], &[("app", 4)]).as_deref(), Some(total));
        let own = "Container log exceeded its local ephemeral storage limit \"2Mi\".";
        assert_eq!(said(&[], &[("app", 1), ("log", 3)]).as_deref(), Some(own));
    }

    #[test]
    fn pod_without_storage_limits_is_not_measured() {
        let volumes = json!([
            { "name": "a", "emptyDir": {} },
            { "name": "b", "emptyDir": { "sizeLimit": "0" } },
            { "name": "c", "emptyDir": { "medium": "Memory", "sizeLimit": "1Mi" } },
        ]);
        assert!(limits(json!({ "volumes": volumes, "containers": [container("app", None)] })).is_empty());
        let sidecar = json!([container("side", Some("1Mi"))]);
        assert!(!limits(json!({ "containers": [container("app", None)], "initContainers": sidecar })).is_empty());
    }

    #[test]
    fn storage_of_a_container_counts_its_last_run() {
        let run = |attempt, bytes| {
            let id = runtime_api::ContainerId { name: "app".to_owned(), attempt };
            ContainerStored { id, bytes, inodes: 1 }
        };
        assert_eq!(latest(&[run(10, 1), run(9, 5)]), BTreeMap::from([("app".to_owned(), 1)]));
    }
}
