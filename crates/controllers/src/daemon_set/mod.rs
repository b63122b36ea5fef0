//! DaemonSets: one pod for every node that should have one, put there by the scheduler through the node's name.

mod controller;
mod nodes;
mod plan;
mod set;

use frame::{Applied, Effects, Limits};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::task::JoinSet;

use crate::PODS;
use crate::clients::Clients;
use crate::controller_history::{self, REVISION_LABEL, REVISIONS, RevisionOwner, RevisionView};
use crate::controller_ref::Owner;
use crate::events::EventRecorder;
use crate::feed::{Feed, revision};
use crate::pod::PodView;
use crate::pod_control::{Batch, PodControl, PodError};
use crate::pod_deletion::unless_gone;
use crate::settings::Settings;
use controller::{Action, DaemonSets, Input, Key, NewPod, Work};
use nodes::End;
use plan::Ended;
use set::{DaemonSetView, new_pod};

const ACCOUNT: &str = "daemon-set-controller";
/// As whom it speaks in events.
const NAME: &str = "daemonset-controller";
const SETS: &str = "daemonsets";

/// Sees to DaemonSets until its feeds end.
pub(crate) fn run(
    clients: &Clients,
    settings: Settings,
    pods: &mut Feed<PodView>,
    nodes: &mut Feed<Node>,
    revisions: &mut Feed<RevisionView>,
    tasks: &mut JoinSet<()>,
) -> impl Future<Output = ()> + Send + use<> {
    let mut sets = Feed::new(SETS, Api::<DaemonSetView>::all(clients.read()));
    let sources = vec![
        pods.source(Input::Pods),
        sets.source(Input::Sets),
        revisions.source(Input::Revisions),
        nodes.source(Input::Nodes),
    ];
    sets.start(tasks);
    let client = clients.act(ACCOUNT);
    let recorder = EventRecorder::start(client.clone(), NAME, settings.clock, tasks);
    let effects = DaemonSetEffects { pods: PodControl::new(client.clone(), recorder.clone()), client, recorder };
    frame::run(ACCOUNT, DaemonSets::new(), effects, sources, Limits::default(), settings.clock)
}

struct DaemonSetEffects {
    client: kube::Client,
    pods: PodControl,
    recorder: EventRecorder,
}

impl Effects<DaemonSets> for DaemonSetEffects {
    type Error = PodError;

    async fn apply(&self, _: &Key, action: &Action) -> Result<Applied<Vec<String>>, PodError> {
        let Action { owner, set, work } = action;
        let none = Vec::new();
        match work {
            Work::Claim { adopt, release } => {
                Ok(Applied::wrote(none, PODS, self.pods.claim(owner, adopt, release).await?))
            }
            Work::History(action) => {
                let of = RevisionOwner { owner, metadata: &set.metadata, hash_label: REVISION_LABEL };
                Ok(Applied::wrote(none, REVISIONS, controller_history::apply(&self.client, of, action).await?))
            }
            Work::Delete { pods, ended } => {
                ended.iter().for_each(|it| self.tell(owner, it));
                done(self.pods.delete_all(owner, pods).await)
            }
            Work::Create { pods, hash, template } => {
                let text = |pod: &NewPod| {
                    let made = new_pod(owner, &pod.name, &pod.node, hash, template);
                    (pod.name.clone(), made.to_string().into_bytes())
                };
                done(self.pods.create_all(owner, pods.iter().map(text).collect()).await)
            }
            Work::Report(status) => {
                let api: Api<DaemonSetView> = Api::namespaced(self.client.clone(), &owner.namespace);
                let version = set.metadata.resource_version.as_deref().unwrap_or_default();
                let patch = json!({ "metadata": { "uid": &*owner.uid, "resourceVersion": version }, "status": status });
                let written = api.patch_status(&owner.name, &PatchParams::default(), &Patch::Merge(patch)).await;
                let written = unless_gone(written)?.and_then(|set| revision(set.resource_version()));
                Ok(Applied::wrote(none, SETS, written))
            }
        }
    }
}

impl DaemonSetEffects {
    fn tell(&self, owner: &Owner, Ended { pod, node, end }: &Ended) {
        let about = owner.object_reference();
        let place = format!("daemon pod {}/{pod} on node {node}", owner.namespace);
        match end {
            End::Failed => {
                self.recorder.warn(about, "FailedDaemonPod", &format!("Found failed {place}, will try to kill it"));
            }
            End::Succeeded => {
                self.recorder.tell(
                    about,
                    "SucceededDaemonPod",
                    &format!("Found succeeded {place}, will try to delete it"),
                );
            }
        }
    }
}

fn done(batch: Batch) -> Result<Applied<Vec<String>>, PodError> {
    match batch {
        Batch { error: Some(error), .. } => Err(error),
        Batch { revision, taken, error: None, .. } => Ok(Applied::wrote(taken, PODS, revision)),
    }
}
