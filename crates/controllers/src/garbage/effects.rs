//! What the collector asks the server, and what it does there. Everything is checked live before it is done.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use frame::{Applied, Effects};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;
use kube::api::{
    DeleteParams, DynamicObject, ListParams, PartialObjectMeta, Patch, PatchParams, Preconditions, PropagationPolicy,
};
use serde_json::json;
use tracing::{debug, info};

use super::graph::{Collection, Graph, Leaving, Need, Owner, Standing, Thing, Uid};
use super::plan::{GarbageDecision, Plan, plan};
use super::resources::ResourceId;
use crate::events::EventRecorder;

/// How often another writer of an object may get in between.
const TRIES: usize = 5;
/// How many owners found missing are remembered, so that a thousand dependents do not ask a thousand times.
const ABSENT_MAX: usize = 512;
/// How many invalid references are remembered as told.
const TOLD_MAX: usize = 4096;

pub(super) const FOREGROUND: &str = "foregroundDeletion";
pub(super) const ORPHAN: &str = "orphan";

/// Everything a reference says: group, kind, namespace, name, UID. One with a typing error says nothing about others.
type ObjectKey = (String, String, Arc<str>, String, Uid);
type Meta = PartialObjectMeta<DynamicObject>;

/// Why something could not be done now; it is tried again later.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("the server refused")]
    Server(#[from] kube::Error),
    #[error("others keep changing the object")]
    Contended,
    #[error("{0} dependents are still to be heard of")]
    Behind(usize),
}

/// What the collector can do. Shared by everything that is under way.
pub(super) struct GarbageEffects {
    client: kube::Client,
    resources: Vec<ResourceId>,
    recorder: EventRecorder,
    absent: Mutex<BTreeSet<ObjectKey>>,
    told: Mutex<BTreeSet<(Uid, Uid)>>,
}

impl Effects<Graph> for GarbageEffects {
    type Error = Failure;

    async fn apply(&self, _: &Uid, Collection { thing, need }: &Collection) -> Result<Applied<()>, Failure> {
        match need {
            Need::Nothing => {}
            Need::Orphaning => self.orphan(thing).await?,
            Need::LettingGo { circle } => self.let_go(thing, circle).await?,
            Need::Judging { owners, has_dependents } => self.judge(thing, owners, *has_dependents).await?,
        }
        Ok(Applied::new(()))
    }
}

impl GarbageEffects {
    pub(super) fn new(client: kube::Client, resources: Vec<ResourceId>, recorder: EventRecorder) -> Self {
        Self { client, resources, recorder, absent: Mutex::default(), told: Mutex::default() }
    }

    /// Looks at the owners of `thing`, live where the graph does not know, and does what follows.
    async fn judge(&self, thing: &Thing, known: &[(Owner, Standing)], has_dependents: bool) -> Result<(), Failure> {
        let Some(live) = self.look(thing).await? else { return Ok(()) };
        if live.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let mut verdicts = Vec::new();
        for owner in owners(&live) {
            let seen = known.iter().find(|(named, _)| *named == owner).map(|(_, standing)| *standing);
            let verdict = match seen.unwrap_or(Standing::Unknown) {
                Standing::Solid => GarbageDecision::Solid,
                Standing::Waiting => GarbageDecision::Waiting,
                Standing::Unknown => self.verdict(thing, &owner).await?,
                Standing::Elsewhere => {
                    self.tell_invalid(thing, &owner);
                    self.verdict(thing, &owner).await?
                }
            };
            verdicts.push((owner.uid, verdict));
        }
        match plan(&verdicts, has_dependents) {
            Plan::Keep => Ok(()),
            Plan::Forget(uids) => self.forget(thing, &uids).await,
            Plan::DeleteAfterDependents => self.delete(thing, &live, PropagationPolicy::Foreground).await,
            Plan::Delete => {
                let has = |finalizer: &str| live.finalizers().iter().any(|own| own == finalizer);
                let policy = match (has(ORPHAN), has(FOREGROUND)) {
                    (true, _) => PropagationPolicy::Orphan,
                    (false, true) => PropagationPolicy::Foreground,
                    (false, false) => PropagationPolicy::Background,
                };
                self.delete(thing, &live, policy).await
            }
        }
    }

    /// Makes every dependent forget `thing`, then lets it go. They are listed live: one that was missed would be
    /// collected with its owner, and that is what orphaning promises not to do.
    async fn orphan(&self, thing: &Thing) -> Result<(), Failure> {
        for (resource, dependent) in self.dependents(thing).await? {
            let Some(dependent) = to_thing(&resource, &dependent) else { continue };
            self.forget(&dependent, std::slice::from_ref(&thing.uid)).await?;
        }
        self.take_off(thing, ORPHAN).await
    }

    /// Lets `thing` go if, live, nothing outside `circle` holds it.
    async fn let_go(&self, thing: &Thing, circle: &BTreeSet<Uid>) -> Result<(), Failure> {
        let holds = |dependent: &Meta| {
            let blocks = owners(dependent).iter().any(|owner| owner.uid == thing.uid && owner.blocks);
            blocks && dependent.uid().is_none_or(|uid| !circle.contains(uid.as_str()))
        };
        let unheard = self.dependents(thing).await?.iter().filter(|(_, dependent)| holds(dependent)).count();
        if unheard > 0 {
            return Err(Failure::Behind(unheard));
        }
        self.take_off(thing, FOREGROUND).await
    }

    /// The thing as it is, unless it is gone or another has its name.
    async fn look(&self, thing: &Thing) -> kube::Result<Option<Meta>> {
        let objects = thing.resource.objects(&self.client, &thing.namespace);
        let found = objects.get_metadata_opt(&thing.name).await?;
        Ok(found.filter(|found| found.uid().as_deref() == Some(&*thing.uid)))
    }

    /// How an owner really stands.
    async fn verdict(&self, thing: &Thing, owner: &Owner) -> kube::Result<GarbageDecision> {
        let Some(resource) = self.resources.iter().find(|resource| resource.is(&owner.group, &owner.kind)) else {
            debug!(kind = owner.kind, group = owner.group, "an owner of a kind that is not served");
            return Ok(GarbageDecision::Unknowable);
        };
        let namespaced = resource.0.namespaced;
        if namespaced && thing.namespace.is_empty() {
            self.tell_invalid(thing, owner);
            return Ok(GarbageDecision::Unknowable);
        }
        let namespace = if namespaced { Arc::clone(&thing.namespace) } else { "".into() };
        let (group, kind) = (owner.group.clone(), owner.kind.clone());
        let place = (group, kind, Arc::clone(&namespace), owner.name.clone(), owner.uid.clone());
        if self.absent.lock().unwrap_or_else(PoisonError::into_inner).contains(&place) {
            return Ok(GarbageDecision::Absent);
        }
        let found = resource.objects(&self.client, &namespace).get_metadata_opt(&owner.name).await?;
        match found.filter(|found| found.uid().as_deref() == Some(&*owner.uid)) {
            Some(found) if leaving(&found) == Leaving::AfterDependents => Ok(GarbageDecision::Waiting),
            Some(_) => Ok(GarbageDecision::Solid),
            None => {
                self.remember_absent(place);
                Ok(GarbageDecision::Absent)
            }
        }
    }

    /// A UID never comes back, so what is gone stays gone.
    fn remember_absent(&self, place: ObjectKey) {
        let mut absent = self.absent.lock().unwrap_or_else(PoisonError::into_inner);
        if absent.len() >= ABSENT_MAX {
            absent.clear();
        }
        absent.insert(place);
    }

    /// Takes the references to `uids` away from `thing`.
    async fn forget(&self, thing: &Thing, uids: &[Uid]) -> Result<(), Failure> {
        let gone: Vec<_> = uids.iter().map(|uid| json!({ "$patch": "delete", "uid": &**uid })).collect();
        let patch = json!({ "metadata": { "uid": &*thing.uid, "ownerReferences": gone } });
        let objects = thing.resource.objects(&self.client, &thing.namespace);
        match objects.patch_metadata(&thing.name, &PatchParams::default(), &Patch::Strategic(patch)).await {
            Ok(_) => {
                debug!(kind = thing.resource.0.api.kind, namespace = %thing.namespace, name = %thing.name,
                    "owner references taken away");
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            // The UID in the patch is a guard: under this name may live another object by now.
            Err(error @ kube::Error::Api(_)) => match self.look(thing).await? {
                None => Ok(()),
                Some(_) => Err(error.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Asks `thing` to leave, as it was judged: if its owners changed since, it is judged again.
    async fn delete(&self, thing: &Thing, live: &Meta, policy: PropagationPolicy) -> Result<(), Failure> {
        let objects = thing.resource.objects(&self.client, &thing.namespace);
        let mut version = live.resource_version();
        for _ in 0..TRIES {
            let preconditions = Preconditions { uid: Some(thing.uid.to_string()), resource_version: version.take() };
            let params = DeleteParams {
                propagation_policy: Some(policy.clone()),
                preconditions: Some(preconditions),
                ..DeleteParams::default()
            };
            match objects.delete(&thing.name, &params).await {
                Ok(_) => {
                    info!(kind = thing.resource.0.api.kind, namespace = %thing.namespace, name = %thing.name, ?policy,
                        "collected: no owner is left");
                    return Ok(());
                }
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    let Some(now) = self.look(thing).await? else { return Ok(()) };
                    if now.metadata.owner_references != live.metadata.owner_references {
                        return Err(Failure::Contended);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(Failure::Contended)
    }

    /// Takes one finalizer off.
    async fn take_off(&self, thing: &Thing, finalizer: &str) -> Result<(), Failure> {
        let objects = thing.resource.objects(&self.client, &thing.namespace);
        for _ in 0..TRIES {
            let Some(live) = self.look(thing).await? else { return Ok(()) };
            if !live.finalizers().iter().any(|own| own == finalizer) {
                return Ok(());
            }
            let left: Vec<&String> = live.finalizers().iter().filter(|own| *own != finalizer).collect();
            let patch = json!({ "metadata": { "resourceVersion": live.resource_version(), "finalizers": left } });
            match objects.patch_metadata(&thing.name, &PatchParams::default(), &Patch::Merge(patch)).await {
                Ok(_) => {
                    info!(kind = thing.resource.0.api.kind, namespace = %thing.namespace, name = %thing.name, finalizer,
                        "let go");
                    return Ok(());
                }
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Failure::Contended)
    }

    /// Everything that names `thing` as an owner and can: listed live, wherever that may be.
    async fn dependents(&self, thing: &Thing) -> kube::Result<Vec<(ResourceId, Meta)>> {
        let mut found = Vec::new();
        let owner_is_namespaced = !thing.namespace.is_empty();
        for resource in self.resources.iter().filter(|resource| resource.0.namespaced || !owner_is_namespaced) {
            let objects = resource.objects(&self.client, &thing.namespace);
            let all = match objects.list_metadata(&ListParams::default()).await {
                Ok(all) => all,
                // No longer served: nothing of it can depend on anything.
                Err(kube::Error::Api(status)) if status.code == 404 => continue,
                Err(error) => return Err(error),
            };
            let named = |one: &Meta| owners(one).iter().any(|owner| owner.uid == thing.uid);
            found.extend(all.items.into_iter().filter(named).map(|one| (resource.clone(), one)));
        }
        Ok(found)
    }

    /// Says, once, that a reference cannot be meant.
    fn tell_invalid(&self, thing: &Thing, owner: &Owner) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= TOLD_MAX {
            told.clear();
        }
        if !told.insert((thing.uid.clone(), owner.uid.clone())) {
            return;
        }
        let version =
            if owner.group.is_empty() { owner.version.clone() } else { format!("{}/{}", owner.group, owner.version) };
        let message = format!(
            "ownerRef [{version}/{}, namespace: {}, name: {}, uid: {}] does not exist in namespace {:?}",
            owner.kind, thing.namespace, owner.name, owner.uid, &*thing.namespace
        );
        self.recorder.warn(thing.reference(), "OwnerRefInvalidNamespace", &message);
    }
}

/// The references of an object to its owners.
pub(super) fn owners(object: &Meta) -> Vec<Owner> {
    object.owner_references().iter().map(to_owner).collect()
}

fn to_owner(reference: &OwnerReference) -> Owner {
    let (group, version) = reference.api_version.rsplit_once('/').unwrap_or(("", &reference.api_version));
    Owner {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: reference.kind.clone(),
        name: reference.name.clone(),
        uid: Arc::from(reference.uid.as_str()),
        blocks: reference.block_owner_deletion == Some(true),
    }
}

fn leaving(object: &Meta) -> Leaving {
    let has = |finalizer: &str| object.finalizers().iter().any(|own| own == finalizer);
    match object.metadata.deletion_timestamp {
        None => Leaving::No,
        Some(_) if has(ORPHAN) => Leaving::AfterOrphaning,
        Some(_) if has(FOREGROUND) => Leaving::AfterDependents,
        Some(_) => Leaving::ByItself,
    }
}

/// An object as the graph sees it; `None` for one without a name or UID, which no server sends.
pub(super) fn to_thing(resource: &ResourceId, object: &Meta) -> Option<Thing> {
    Some(Thing {
        resource: resource.clone(),
        namespace: object.metadata.namespace.as_deref().unwrap_or_default().into(),
        name: object.metadata.name.as_deref()?.into(),
        uid: object.metadata.uid.as_deref()?.into(),
        owners: owners(object),
        leaving: leaving(object),
    })
}
