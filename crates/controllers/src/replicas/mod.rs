//! ReplicaSets and ReplicationControllers: as many pods as were asked for. A pod that is leaving no longer counts, and its successor
//! comes at once.

pub(crate) mod brakes;
pub(crate) mod controller;
pub(crate) mod set;
mod victims;

use std::sync::Arc;

use client::WatchUpdate;
use frame::{Applied, Effects, Limits};
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::task::JoinSet;

use crate::PODS;
use crate::clients::Clients;
use crate::controller_ref::Owner;
use crate::events::EventRecorder;
use crate::feed::{Feed, revision};
use crate::flaws::{self, Flaw};
use crate::pod::PodView;
use crate::pod_control::{Batch, PodControl, PodError};
use crate::pod_deletion::unless_gone;
use crate::settings::Settings;
use controller::{Action, Answer, Input, Key, Replicas};
use set::{ReplicaSetView, ReplicationControllerView, SetKind};

/// What sources of sets are called.
pub(crate) const REPLICA_SETS: &str = "replicasets";
const CONTROLLERS: &str = "replicationcontrollers";
/// How many sets are seen to at once.
const AT_ONCE: usize = 16;

/// Sees to ReplicaSets until its feeds end.
pub(crate) fn run_replica_sets(
    clients: &Clients,
    settings: Settings,
    pods: &mut Feed<PodView>,
    sets: &mut Feed<ReplicaSetView>,
    tasks: &mut JoinSet<()>,
) -> impl Future<Output = ()> + Send + use<> {
    let sources = vec![pods.source(Input::Pods), sets.source(Input::Sets)];
    let effects =
        ReplicasEffects::<ReplicaSetView>::new(clients, settings, "replicaset-controller", REPLICA_SETS, tasks);
    let limits = Limits { at_once: AT_ONCE, ..Limits::default() };
    frame::run("replicaset-controller", Replicas::new(SetKind::ReplicaSet), effects, sources, limits, settings.clock)
}

/// Sees to ReplicationControllers until its feeds end.
pub(crate) fn run_replication_controllers(
    clients: &Clients,
    settings: Settings,
    pods: &mut Feed<PodView>,
    tasks: &mut JoinSet<()>,
) -> impl Future<Output = ()> + Send + use<> {
    let mut sets = Feed::new(CONTROLLERS, Api::<ReplicationControllerView>::all(clients.read()));
    let sources = vec![pods.source(Input::Pods), sets.source(|update| Input::Sets(as_sets(update)))];
    sets.start(tasks);
    let effects = ReplicasEffects::<ReplicationControllerView>::new(
        clients,
        settings,
        "replication-controller",
        CONTROLLERS,
        tasks,
    );
    let controller = Replicas::new(SetKind::ReplicationController);
    frame::run("replication-controller", controller, effects, sources, Limits::default(), settings.clock)
}

fn as_sets(update: WatchUpdate<Arc<ReplicationControllerView>>) -> WatchUpdate<Arc<ReplicaSetView>> {
    let set = |it: Arc<ReplicationControllerView>| Arc::new(Arc::unwrap_or_clone(it).0);
    match update {
        WatchUpdate::Listed(all) => WatchUpdate::Listed(all.into_iter().map(set).collect()),
        WatchUpdate::Changed(one) => WatchUpdate::Changed(set(one)),
        WatchUpdate::Removed(one) => WatchUpdate::Removed(set(one)),
    }
}

struct ReplicasEffects<K> {
    client: kube::Client,
    pods: PodControl,
    /// The source of sets.
    source: &'static str,
    of: std::marker::PhantomData<fn() -> K>,
}

impl<K> ReplicasEffects<K> {
    fn new(
        clients: &Clients,
        settings: Settings,
        account: &'static str,
        source: &'static str,
        tasks: &mut JoinSet<()>,
    ) -> Self {
        let client = clients.act(account);
        let recorder = EventRecorder::start(client.clone(), account, settings.clock, tasks);
        Self { pods: PodControl::new(client.clone(), recorder), client, source, of: std::marker::PhantomData }
    }
}

impl<K> Effects<Replicas> for ReplicasEffects<K>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    type Error = PodError;

    async fn apply(&self, _: &Key, action: &Action) -> Result<Applied<Answer>, PodError> {
        match action {
            Action::Claim { owner, adopt: adopted, release: released } => {
                let newest = self.pods.claim(owner, adopted, released).await?;
                Ok(Applied::wrote(Answer::Done, PODS, newest))
            }
            Action::Create { owner, set, names } => {
                let text = |name: &String| (name.clone(), set.spec.template.pod_text(owner, name));
                done(self.pods.create_all(owner, names.iter().map(text).collect()).await)
            }
            Action::Delete { owner, pods } => done(self.pods.delete_all(owner, pods).await),
            Action::Report { owner, resource_version, status } => {
                let written = self.report(owner, resource_version.as_deref(), status).await?;
                Ok(Applied::wrote(Answer::Done, self.source, written))
            }
        }
    }
}

impl<K> ReplicasEffects<K>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    /// Writes the status. What others write too goes to the version it was made from; a newer one is told, and counted again.
    async fn report(
        &self,
        owner: &Owner,
        version: Option<&str>,
        status: &serde_json::Value,
    ) -> kube::Result<Option<u64>> {
        let api: Api<K> = Api::namespaced(self.client.clone(), &owner.namespace);
        let mut patch = json!({ "metadata": { "uid": &*owner.uid }, "status": status });
        if let Some(version) = version {
            patch["metadata"]["resourceVersion"] = json!(version);
        }
        let written = api.patch_status(&owner.name, &PatchParams::default(), &Patch::Merge(patch)).await;
        Ok(unless_gone(written)?.and_then(|set| revision(set.resource_version())))
    }
}

fn done(batch: Batch) -> Result<Applied<Answer>, PodError> {
    match batch {
        Batch { error: Some(error), .. } => Err(error),
        Batch { revision, created, taken, error: None, .. } => {
            let revision = revision.filter(|_| !flaws::has(Flaw::ForgetsCreated));
            Ok(Applied::wrote(Answer::Created(created, taken), PODS, revision))
        }
    }
}
