//! The claims of `ephemeral` volumes: made for the pod that has them, owned by it, and gone with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::pod;
use api::volume::ephemeral_claim;
use client::{WatchUpdate, about_pod};
use frame::{Applied, Controller, Effects, Limits, Now, Outcome, Plan};
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use kube::api::{Api, PostParams};
use tokio::task::JoinSet;
use tracing::info;

use crate::clients::Clients;
use crate::controller_ref::Owner;
use crate::events::EventRecorder;
use crate::feed::{Feed, revision};
use crate::pod::PodView;
use crate::pod_deletion::unless_gone;
use crate::settings::Settings;
use crate::volume_objects::{CLAIMS, Name, claim_key};

const ACCOUNT: &str = "ephemeral-volume-controller";
/// As whom it speaks in events.
const NAME: &str = "ephemeral_volume";

/// Makes claims until its feeds end. What it tells is one of `tasks`.
pub(crate) fn run(
    clients: &Clients,
    settings: Settings,
    pods: &mut Feed<PodView>,
    claims: &mut Feed<PersistentVolumeClaim>,
    tasks: &mut JoinSet<()>,
) -> impl Future<Output = ()> + Send + use<> {
    let client = clients.act(ACCOUNT);
    let recorder = EventRecorder::start(client.clone(), NAME, settings.clock, tasks);
    let sources = vec![pods.source(Input::Pods), claims.source(Input::Claims)];
    let effects = EphemeralEffects { client, recorder };
    frame::run(ACCOUNT, EphemeralVolumes::default(), effects, sources, Limits::default(), settings.clock)
}

#[derive(Debug)]
enum Input {
    Pods(WatchUpdate<Arc<PodView>>),
    Claims(WatchUpdate<Arc<PersistentVolumeClaim>>),
}

/// A pod's UID.
type Uid = Arc<str>;

#[derive(Clone, PartialEq, Debug)]
enum Action {
    Create(Box<PersistentVolumeClaim>),
    /// Somebody else has a claim of that name.
    Tell {
        about: Box<ObjectReference>,
        message: String,
    },
}

/// The pods that have such volumes, and whose each claim is.
#[derive(Default)]
struct EphemeralVolumes {
    pods: BTreeMap<Uid, Arc<PodView>>,
    /// By the name of the claim, the pods that want it.
    wanted: BTreeMap<Name, Uid>,
    /// By the name of the claim, the UID of the pod that controls it.
    claims: BTreeMap<Name, Option<String>>,
    told: BTreeMap<Uid, String>,
}

/// The volumes of a pod that are made for it, and the keys of their claims.
fn own_claims(pod: &PodView) -> impl Iterator<Item = (Name, &crate::pod::ClaimVolumeView)> {
    let (namespace, name) = (pod.metadata.namespace.as_deref().unwrap_or_default(), pod.name_any());
    let own = pod.spec.volumes.iter().filter(|volume| volume.ephemeral.is_some());
    own.map(move |volume| (claim_key(namespace, &ephemeral_claim(&name, &volume.name)), volume))
}

impl EphemeralVolumes {
    fn forget(&mut self, uid: &str) {
        if let Some(pod) = self.pods.remove(uid) {
            for (key, _) in own_claims(&pod) {
                if self.wanted.get(&key).is_some_and(|own| **own == *uid) {
                    self.wanted.remove(&key);
                }
            }
        }
        self.told.remove(uid);
    }

    fn seen(&mut self, pod: Arc<PodView>) -> Option<Uid> {
        let uid: Uid = pod.metadata.uid.as_deref()?.into();
        // One that leaves needs no more than it has.
        if pod::is_terminating(&*pod) || pod::is_terminal(&*pod) || own_claims(&pod).next().is_none() {
            self.forget(&uid);
            return None;
        }
        own_claims(&pod).for_each(|(key, _)| drop(self.wanted.insert(key, Arc::clone(&uid))));
        self.pods.insert(Arc::clone(&uid), pod);
        Some(uid)
    }

    fn claim_seen(&mut self, claim: &PersistentVolumeClaim, is_gone: bool) -> Option<Uid> {
        let key = claim_key(claim.metadata.namespace.as_deref().unwrap_or_default(), &claim.name_any());
        let mut owners = claim.metadata.owner_references.iter().flatten();
        let owner = owners.find(|owner| owner.controller == Some(true) && owner.kind == "Pod");
        match is_gone {
            true => drop(self.claims.remove(&key)),
            false => drop(self.claims.insert(Arc::clone(&key), owner.map(|owner| owner.uid.clone()))),
        }
        self.wanted.get(&key).cloned()
    }
}

impl Controller for EphemeralVolumes {
    type Input = Input;
    type Key = Uid;
    type Action = Action;
    type Answer = ();

    fn observe(&mut self, _: Now, input: Input) -> Vec<Uid> {
        match input {
            Input::Pods(WatchUpdate::Listed(pods)) => {
                let before: Vec<Uid> = self.pods.keys().cloned().collect();
                before.iter().for_each(|uid| self.forget(uid));
                pods.into_iter().filter_map(|pod| self.seen(pod)).collect()
            }
            Input::Pods(WatchUpdate::Changed(pod)) => self.seen(pod).into_iter().collect(),
            Input::Pods(WatchUpdate::Removed(pod)) => {
                self.forget(pod.metadata.uid.as_deref().unwrap_or_default());
                Vec::new()
            }
            Input::Claims(WatchUpdate::Listed(claims)) => {
                self.claims.clear();
                claims.iter().for_each(|claim| drop(self.claim_seen(claim, false)));
                self.pods.keys().cloned().collect()
            }
            Input::Claims(WatchUpdate::Changed(claim)) => self.claim_seen(&claim, false).into_iter().collect(),
            Input::Claims(WatchUpdate::Removed(claim)) => self.claim_seen(&claim, true).into_iter().collect(),
        }
    }

    fn plan(&self, uid: &Uid, _: Now) -> Plan<Action> {
        let Some(pod) = self.pods.get(uid) else { return Plan::default() };
        let mut actions = Vec::new();
        for (key, volume) in own_claims(pod) {
            match self.claims.get(&key) {
                Some(Some(owner)) if **owner == **uid => {}
                Some(_) => {
                    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
                    let message = format!(
                        "ephemeral volume {}: PVC {key} was not created for pod {namespace}/{} (pod is not owner)",
                        volume.name,
                        pod.name_any()
                    );
                    if self.told.get(uid) != Some(&message) {
                        actions.push(Action::Tell { about: Box::new(about_pod(&**pod, None)), message });
                    }
                }
                None => actions.extend(claim_of(pod, volume).map(|claim| Action::Create(Box::new(claim)))),
            }
        }
        Plan { actions, wake: None }
    }

    fn ended(&mut self, _: Now, uid: &Uid, action: Action, outcome: Outcome<()>) -> Vec<Uid> {
        if let (Action::Tell { message, .. }, Outcome::Done(())) = (action, outcome) {
            self.told.insert(Arc::clone(uid), message);
        }
        Vec::new()
    }
}

/// The claim of a volume that is made for a pod.
fn claim_of(pod: &PodView, volume: &crate::pod::ClaimVolumeView) -> Option<PersistentVolumeClaim> {
    let template = volume.ephemeral.as_ref()?.volume_claim_template.as_ref()?;
    let given = template.metadata.clone().unwrap_or_default();
    Some(PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(ephemeral_claim(&pod.name_any(), &volume.name)),
            namespace: pod.metadata.namespace.clone(),
            labels: given.labels,
            annotations: given.annotations,
            owner_references: Some(vec![Owner::new("v1", "Pod", &pod.metadata).reference()]),
            ..ObjectMeta::default()
        },
        spec: Some(template.spec.clone()),
        status: None,
    })
}

struct EphemeralEffects {
    client: kube::Client,
    recorder: EventRecorder,
}

impl Effects<EphemeralVolumes> for EphemeralEffects {
    type Error = kube::Error;

    async fn apply(&self, uid: &Uid, action: &Action) -> kube::Result<Applied<()>> {
        match action {
            Action::Create(claim) => {
                let namespace = claim.namespace().unwrap_or_default();
                let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &namespace);
                // One that is there already is told by the watch, and so is a pod or a namespace that is gone.
                let made = unless_gone(claims.create(&PostParams::default(), claim).await)?;
                if let Some(made) = &made {
                    info!(claim = made.name_any(), namespace, pod = %uid, "made");
                }
                Ok(Applied::wrote((), CLAIMS, revision(made.and_then(|claim| claim.resource_version()))))
            }
            Action::Tell { about, message } => {
                self.recorder.warn(ObjectReference::clone(about), "FailedBinding", message);
                Ok(Applied::new(()))
            }
        }
    }
}
