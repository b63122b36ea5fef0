//! Disruption budgets, counted: how many pods of each may be evicted right now.
//!
//! The eviction itself is the server's; it takes from `disruptionsAllowed` what this controller puts there. A count is
//! written with the version it was made from, so an eviction that gets in between is never overwritten.

mod known;
mod plan;
mod scale;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use client::{Sight, follow};
use futures::StreamExt as _;
use futures::stream::{self, SelectAll};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::{debug, warn};

use crate::events::Teller;
use crate::feed::Feed;
use crate::pod::PodView;
use known::{Known, Uid, Workload};
use plan::{Expected, Selected, Verdict, plan};

const NAME: &str = "controllermanager";
const PODS: &str = "Pod";
const QUEUE: usize = 64;
/// The pause after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// Counts until its feeds end.
pub(crate) async fn run(client: kube::Client, mut pods: Feed<PodView>) {
    let mut tasks = JoinSet::new();
    let teller = Teller::start(client.clone(), NAME, &mut tasks);
    let (out, mut budgets) = mpsc::channel(QUEUE);
    tasks.spawn(follow(Api::<PodDisruptionBudget>::all(client.clone()), None, out));
    let mut workloads: SelectAll<_> = SelectAll::new();
    for resource in scale::followed() {
        let (out, told) = mpsc::channel(QUEUE);
        tasks.spawn(follow(Api::<DynamicObject>::all_with(client.clone(), &resource), None, out));
        let kind = resource.kind.clone();
        workloads.push(Box::pin(stream::unfold((told, kind), |(mut told, kind)| async move {
            let sight = told.recv().await?;
            Some(((kind.clone(), sight), (told, kind)))
        })));
    }
    let mut controller = Controller {
        client,
        teller,
        known: Known::default(),
        again_at: BTreeMap::new(),
        told: BTreeMap::new(),
        by_kind: BTreeMap::new(),
        unlisted: scale::followed().into_iter().map(|resource| resource.kind).chain([PODS.to_owned()]).collect(),
    };
    loop {
        let wake = controller.next_wake();
        let pause = wake
            .map_or(Duration::MAX, |at| Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default());
        tokio::select! {
            // News first: a count is worth little while more is known than it was made from.
            biased;
            sight = budgets.recv() => match sight {
                None => return,
                Some(sight) => controller.budgets(sight),
            },
            sight = pods.recv() => match sight {
                None => return,
                Some(Sight::Listed(all)) => {
                    controller.unlisted.remove(PODS);
                    controller.known.all_pods(&all);
                }
                Some(Sight::Changed(pod)) => controller.known.pod_seen(&pod),
                Some(Sight::Removed(pod)) => controller.known.pod_gone(&pod.uid().unwrap_or_default()),
            },
            Some((kind, sight)) = workloads.next() => controller.workloads(&kind, sight),
            () = std::future::ready(()), if controller.can_count() => controller.count_one().await,
            () = tokio::time::sleep(pause), if wake.is_some() => controller.time_passed().await,
        }
    }
}

struct Controller {
    client: kube::Client,
    teller: Teller,
    known: Known,
    /// Budgets that are to be counted again although nothing changes.
    again_at: BTreeMap<Uid, Timestamp>,
    /// What was last told about each budget.
    told: BTreeMap<Uid, String>,
    /// Which workloads of each kind are known, so that a list can take away the others.
    by_kind: BTreeMap<String, BTreeMap<Uid, String>>,
    /// What has not been listed yet. A count before that would be wrong for a moment, and evictions believe it.
    unlisted: BTreeSet<String>,
}

impl Controller {
    fn budgets(&mut self, sight: Sight<PodDisruptionBudget>) {
        match sight {
            Sight::Listed(all) => {
                let old: Vec<Uid> = self.known.budgets.keys().cloned().collect();
                old.iter().for_each(|uid| self.known.budget_gone(uid));
                all.into_iter().for_each(|budget| self.known.budget_seen(budget.into()));
            }
            Sight::Changed(budget) => self.known.budget_seen(budget.into()),
            Sight::Removed(budget) => {
                let uid = budget.uid().unwrap_or_default();
                self.known.budget_gone(&uid);
                self.again_at.remove(&*uid);
                self.told.remove(&*uid);
            }
        }
    }

    fn workloads(&mut self, kind: &str, sight: Sight<DynamicObject>) {
        let here = self.by_kind.entry(kind.to_owned()).or_default();
        let mut seen = |known: &mut Known, object: &DynamicObject| {
            let (uid, namespace) = (object.uid().unwrap_or_default(), object.namespace().unwrap_or_default());
            known.workload(&uid, &namespace, Some(Workload::of(object)));
            here.insert(uid.into(), namespace);
        };
        match sight {
            Sight::Changed(object) => seen(&mut self.known, &object),
            Sight::Listed(all) => {
                self.unlisted.remove(kind);
                all.iter().for_each(|object| seen(&mut self.known, object));
                let listed: Vec<String> = all.iter().filter_map(|object| object.uid()).collect();
                here.retain(|uid, namespace| {
                    let stays = listed.iter().any(|one| **one == **uid);
                    if !stays {
                        self.known.workload(uid, namespace, None);
                    }
                    stays
                });
            }
            Sight::Removed(object) => {
                let (uid, namespace) = (object.uid().unwrap_or_default(), object.namespace().unwrap_or_default());
                here.remove(&*uid);
                self.known.workload(&uid, &namespace, None);
            }
        }
    }

    fn can_count(&self) -> bool {
        self.unlisted.is_empty() && !self.known.dirty.is_empty()
    }

    fn next_wake(&self) -> Option<Timestamp> {
        let spared = self.known.next_spared().map(|(at, ..)| at);
        self.again_at.values().min().copied().into_iter().chain(spared).min()
    }

    async fn time_passed(&mut self) {
        let now = Timestamp::now();
        let due: Vec<Uid> = self.again_at.iter().filter(|(_, at)| **at <= now).map(|(uid, _)| uid.clone()).collect();
        for uid in due {
            self.again_at.remove(&uid);
            if self.known.budgets.contains_key(&uid) {
                self.known.dirty.insert(uid);
            }
        }
        if let Some((at, uid, _)) = self.known.next_spared()
            && at <= now
        {
            let uid = uid.clone();
            self.spare(&uid, now).await;
        }
    }

    /// Counts one budget and writes what came of it, if that is new.
    async fn count_one(&mut self) {
        let Some(uid) = self.known.dirty.pop_first() else { return };
        let Some(budget) = self.known.budgets.get(&uid).cloned() else { return };
        let pods = self.known.selected(&budget);
        let expected = if plan::needs_scale(&budget.object) {
            match scale::expected(&self.client, &self.known, &pods).await {
                Ok(expected) => expected,
                Err(error) => {
                    warn!(%error, budget = budget.object.name_any(), "cannot ask how many pods there should be");
                    self.again_at.insert(uid, later());
                    return;
                }
            }
        } else {
            Expected::Pods(0)
        };
        let selected: Vec<Selected<'_>> = pods.iter().map(|pod| pod.as_selected()).collect();
        let verdict = plan(&budget.object, &selected, &expected, Timestamp::now());
        self.tell(&uid, &budget.object, &expected, &verdict);
        match verdict.again_at {
            Some(at) => drop(self.again_at.insert(uid.clone(), at)),
            None => drop(self.again_at.remove(&uid)),
        }
        if budget.object.status.as_ref() == Some(&verdict.status) {
            return;
        }
        let mut next = (*budget.object).clone();
        next.status = Some(verdict.status);
        let namespace = next.namespace().unwrap_or_default();
        let api: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), &namespace);
        match api.replace_status(&next.name_any(), &PostParams::default(), &next).await {
            Ok(_) => {}
            // Changed or gone meanwhile: the watch tells, and it is counted again.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
                debug!(budget = next.name_any(), "the budget changed while it was counted");
            }
            Err(error) => {
                warn!(%error, budget = next.name_any(), "cannot write what a budget allows; trying again");
                self.again_at.insert(uid, later());
            }
        }
    }

    /// Says once what a person should know about a budget.
    fn tell(&mut self, uid: &Uid, budget: &PodDisruptionBudget, expected: &Expected, verdict: &Verdict) {
        let about = ObjectReference {
            api_version: Some("policy/v1".to_owned()),
            kind: Some("PodDisruptionBudget".to_owned()),
            name: budget.metadata.name.clone(),
            namespace: budget.metadata.namespace.clone(),
            uid: budget.metadata.uid.clone(),
            ..ObjectReference::default()
        };
        for pod in &verdict.not_deleted {
            let message = format!("Pod {pod} was expected by the budget to be deleted but it wasn't");
            self.teller.warn(about.clone(), "NotDeleted", &message);
        }
        match expected {
            Expected::Pods(_) => drop(self.told.remove(uid)),
            Expected::Unknown(why) => {
                if self.told.insert(uid.clone(), why.clone()).as_ref() != Some(why) {
                    let message = format!("Failed to calculate the number of expected pods: {why}");
                    self.teller.warn(about, "CalculateExpectedPodCountFailed", &message);
                }
            }
        }
    }

    /// A pod that was to be disrupted two minutes ago and is still there is not being disrupted: it must not look so.
    async fn spare(&mut self, uid: &Uid, now: Timestamp) {
        let Some((_, _, pod)) = self.known.next_spared() else { return };
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        let since = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let condition = json!({ "type": "DisruptionTarget", "status": "False", "reason": null, "message": null,
            "lastTransitionTime": since });
        let patch = json!({ "metadata": { "uid": &**uid }, "status": { "conditions": [condition] } });
        let name = pod.name.clone();
        if let Err(error) = api.patch_status(&name, &PatchParams::default(), &Patch::Strategic(patch)).await {
            debug!(%error, pod = name, "the pod still looks as if it were to be disrupted");
        }
        // Whatever came of it: the watch tells, and until then it is not tried again at once.
        self.known.look_later(uid, now);
    }
}

fn later() -> Timestamp {
    Timestamp::now().saturating_add(RETRY).unwrap_or(Timestamp::MAX)
}
