//! The history of a workload's template, kept in ControllerRevisions: which revision is asked for, which are in use, and which are too
//! many.
//!
//! Templates are compared by what they mean, with defaults filled in, never by bytes alone: another way to write the same template
//! restarts nothing. A template that was there before is the same revision with a new number, not a new object.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::controller_ref::{Candidate, Claim, Owner, adopt, claim, controller_of, is_current};
use crate::feed::revision;
use crate::objects::{Objects, owner_word};
use crate::pod_control::{PodError, is_namespace_ending};
use crate::pod_deletion::unless_gone;
use crate::replicas::set::resource;
use crate::workload_metadata::workload_metadata;

/// What sources of revisions are called.
pub(crate) const REVISIONS: &str = "controllerrevisions";
/// The label of pods that says which revision they were made of.
pub(crate) const REVISION_LABEL: &str = "controller-revision-hash";

/// How long the part of a revision's name may be that is its owner's.
const OWNER_NAME_MAX: usize = 223;

/// A ControllerRevision, read and never written back.
#[derive(Deserialize, Clone, Debug, Default)]
pub(crate) struct RevisionView {
    #[serde(deserialize_with = "workload_metadata")]
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) revision: i64,
    #[serde(default)]
    pub(crate) data: Value,
}

resource!(RevisionView, "apps/v1", "apps", "ControllerRevision", "controllerrevisions", it => &it.metadata, &mut it.metadata);

/// A revision, as far as it matters.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct RevisionFacts {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) controller: Option<Arc<str>>,
    labels: Box<[(Box<str>, Box<str>)]>,
    leaves: bool,
    number: i64,
    created: Option<Timestamp>,
    /// As [`template_text`] has it.
    pub(crate) template: Arc<str>,
}

impl RevisionFacts {
    pub(crate) fn of(view: &RevisionView) -> Self {
        let metadata = &view.metadata;
        Self {
            namespace: metadata.namespace.as_deref().unwrap_or_default().into(),
            name: metadata.name.as_deref().unwrap_or_default().into(),
            controller: controller_of(metadata).map(|owner| owner.uid.as_str().into()),
            labels: view.labels().iter().map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect(),
            leaves: metadata.deletion_timestamp.is_some(),
            number: view.revision,
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
            template: template_text(&view.data["spec"]["template"]),
        }
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(name, _)| **name == *key).map(|(_, value)| &**value)
    }
}

/// Every revision that is known. Found by their controller, and by their namespace.
pub(crate) type Revisions = Objects<RevisionFacts, 2>;
const BY_CONTROLLER: usize = 0;
const BY_NAMESPACE: usize = 1;

/// No revision is known yet.
pub(crate) fn no_revisions() -> Revisions {
    Objects::new([
        |it: &RevisionFacts| it.controller.as_ref().map(|uid| owner_word(&it.namespace, uid)),
        |it: &RevisionFacts| Some(Arc::clone(&it.namespace)),
    ])
}

/// A template as text that can be compared: defaults filled in, keys in order, without what is nothing.
pub(crate) fn template_text(template: &Value) -> Arc<str> {
    let mut template = template.clone();
    if let Some(map) = template.as_object_mut() {
        map.remove("$patch");
    }
    api::rules::default_pod_template(&mut template);
    in_order(template).to_string().into()
}

fn in_order(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut fields: Vec<(String, Value)> = map.into_iter().filter(|(_, value)| !value.is_null()).collect();
            fields.sort_by(|(left, _), (right, _)| left.cmp(right));
            Value::Object(fields.into_iter().map(|(key, value)| (key, in_order(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(in_order).collect()),
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => plain,
    }
}

/// The hash of a template: FNV-1 with 32 bits, in letters that make no words.
pub(crate) fn hash(template: &str, collision_count: i32) -> String {
    let text = if collision_count == 0 { String::new() } else { collision_count.to_string() };
    let bytes = template.bytes().chain(text.bytes());
    let sum = bytes.fold(0x811c_9dc5_u32, |hash, byte| hash.wrapping_mul(0x0100_0193) ^ u32::from(byte));
    let letters = b"bcdfghjklmnpqrstvwxz2456789";
    sum.to_string().bytes().map(|digit| char::from(letters[usize::from(digit) % letters.len()])).collect()
}

/// One revision that is meant, and no other under its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RevisionRef {
    name: String,
    uid: String,
}

/// What is to be done about the history of one workload.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum HistoryAction {
    /// Take in revisions that nobody has.
    Adopt(Vec<RevisionRef>),
    /// Keep a new template.
    Create { name: String, hash: String, number: i64, template: Arc<str> },
    /// A former template is asked for again.
    Renumber { revision: RevisionRef, number: i64 },
    /// Forget what nobody uses.
    Delete(Vec<RevisionRef>),
}

/// The revisions of one workload, the oldest first.
pub(crate) struct History<'a> {
    own: Vec<(&'a Arc<str>, &'a RevisionFacts)>,
    adopt: Vec<RevisionRef>,
    /// Every name that is taken in the namespace.
    revisions: &'a Revisions,
    namespace: &'a str,
}

/// Which revision is asked for.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Asked<'a> {
    /// It is there, and the newest.
    Is(&'a RevisionFacts),
    /// First this.
    Needs(HistoryAction),
}

fn reference((uid, revision): (&Arc<str>, &RevisionFacts)) -> RevisionRef {
    RevisionRef { name: revision.name.to_string(), uid: uid.to_string() }
}

impl<'a> History<'a> {
    /// What is known of the history of `owner`, which `leaves` or not and whose selector `selects` labels.
    pub(crate) fn of(
        revisions: &'a Revisions,
        owner: &'a str,
        namespace: &'a str,
        leaves: bool,
        selects: impl Fn(&RevisionFacts) -> bool,
    ) -> Self {
        let own = revisions.owned(BY_CONTROLLER, namespace, owner).filter(|(_, it)| !it.leaves);
        let mut own: Vec<_> = own.collect();
        own.sort_by_key(|(uid, it)| (it.number, it.created, Arc::clone(uid)));
        let orphans = revisions.under(BY_NAMESPACE, namespace).filter(|(_, it)| it.controller.is_none());
        let wanted = orphans.filter(|(_, it)| {
            let candidate = Candidate { controller: None, leaves: it.leaves, matches: selects(it) };
            claim(owner, leaves, candidate) == Claim::Adopt
        });
        Self { own, adopt: wanted.map(reference).collect(), revisions, namespace }
    }

    /// The revision of this name, if it is one of the owner's.
    pub(crate) fn get(&self, name: &str) -> Option<&'a RevisionFacts> {
        self.own.iter().map(|(_, it)| *it).find(|it| *it.name == *name)
    }

    /// Those that have this template: one, unless somebody made more.
    pub(crate) fn of_template(&self, template: &str) -> impl Iterator<Item = &'a RevisionFacts> {
        self.own.iter().map(|(_, it)| *it).filter(move |it| *it.template == *template)
    }

    /// Which revision the template is; with it, how many names collided so far.
    pub(crate) fn asked(&self, owner: &str, template: &Arc<str>, collision_count: i32) -> (Asked<'a>, i32) {
        if !self.adopt.is_empty() {
            return (Asked::Needs(HistoryAction::Adopt(self.adopt.clone())), collision_count);
        }
        let newest = self.own.last();
        let number = newest.map_or(0, |(_, it)| it.number).saturating_add(1);
        match self.own.iter().rfind(|(_, it)| it.template == *template) {
            // Alone with its number, too: who looks at the history has to see one that is the newest.
            Some((_, same)) if newest.is_some_and(|(_, it)| it.name == same.name) && !self.is_tied() => {
                (Asked::Is(same), collision_count)
            }
            Some((uid, same)) => {
                let revision = reference((uid, same));
                (Asked::Needs(HistoryAction::Renumber { revision, number }), collision_count)
            }
            None => {
                let (name, hash, collision_count) = self.free_name(owner, template, collision_count);
                let create = HistoryAction::Create { name, hash, number, template: Arc::clone(template) };
                (Asked::Needs(create), collision_count)
            }
        }
    }

    /// Two have the highest number.
    fn is_tied(&self) -> bool {
        matches!(self.own.as_slice(), [.., (_, before), (_, newest)] if before.number == newest.number)
    }

    /// The first name for the template that no other has.
    fn free_name(&self, owner: &str, template: &str, from: i32) -> (String, String, i32) {
        let prefix: String = owner.chars().take(OWNER_NAME_MAX).collect();
        let mut count = from;
        loop {
            let hash = hash(template, count);
            let name = format!("{prefix}-{hash}");
            let taken = self.revisions.under(BY_NAMESPACE, self.namespace).any(|(_, it)| *it.name == *name);
            if !taken || count == i32::MAX {
                return (name, hash, count);
            }
            count += 1;
        }
    }

    /// Forgets the oldest of those that are not `live`, until `limit` of them are left.
    pub(crate) fn truncate(&self, limit: i32, live: impl Fn(&RevisionFacts) -> bool) -> Option<HistoryAction> {
        let idle: Vec<_> = self.own.iter().filter(|(_, it)| !live(it)).collect();
        let excess = idle.len().checked_sub(usize::try_from(limit).unwrap_or(0)).filter(|excess| *excess > 0)?;
        Some(HistoryAction::Delete(idle.into_iter().take(excess).map(|(uid, it)| reference((uid, it))).collect()))
    }
}

/// Whom a revision belongs to, as it is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RevisionOwner<'a> {
    pub(crate) owner: &'a Owner,
    /// The annotations of the owner, which a revision has as well.
    pub(crate) metadata: &'a ObjectMeta,
    /// The label of revisions that has their hash.
    pub(crate) hash_label: &'static str,
}

/// Does it. Answers the newest revision that was written.
pub(crate) async fn apply(
    client: &kube::Client,
    of: RevisionOwner<'_>,
    action: &HistoryAction,
) -> Result<Option<u64>, PodError> {
    let owner = of.owner;
    let api: Api<ControllerRevision> = Api::namespaced(client.clone(), &owner.namespace);
    match action {
        HistoryAction::Adopt(revisions) => {
            if !is_current(client, owner).await? {
                return Err(PodError(format!("{} is not the one that is there any more", owner.name)));
            }
            let mut newest = None;
            for it in revisions {
                newest = newest.max(adopt(&api, (&it.name, &it.uid), owner, None).await?);
            }
            Ok(newest)
        }
        HistoryAction::Create { name, hash, number, template } => create(&api, of, name, hash, *number, template).await,
        HistoryAction::Renumber { revision: it, number } => {
            let patch = json!({ "metadata": { "uid": it.uid }, "revision": number });
            let written = api.patch(&it.name, &PatchParams::default(), &Patch::Merge(patch)).await;
            Ok(unless_gone(written)?.and_then(|written| revision(written.resource_version())))
        }
        HistoryAction::Delete(revisions) => {
            for it in revisions {
                let preconditions = Some(Preconditions { uid: Some(it.uid.clone()), resource_version: None });
                let params = DeleteParams { preconditions, ..DeleteParams::default() };
                unless_gone(api.delete(&it.name, &params).await)?;
            }
            Ok(None)
        }
    }
}

async fn create(
    api: &Api<ControllerRevision>,
    of: RevisionOwner<'_>,
    name: &str,
    hash: &str,
    number: i64,
    template: &Arc<str>,
) -> Result<Option<u64>, PodError> {
    let mut kept: Value = serde_json::from_str(template).unwrap_or_else(|_| json!({}));
    let mut labels = kept["metadata"]["labels"].as_object().cloned().unwrap_or_else(Map::new);
    labels.insert(of.hash_label.to_owned(), hash.into());
    kept["$patch"] = json!("replace");
    let body = json!({
        "metadata": { "name": name, "labels": labels, "annotations": of.metadata.annotations,
            "ownerReferences": [of.owner.reference()] },
        "revision": number,
        "data": { "spec": { "template": kept } },
    });
    let body: ControllerRevision = serde_json::from_value(body).map_err(|error| PodError(error.to_string()))?;
    match api.create(&PostParams::default(), &body).await {
        Ok(made) => Ok(revision(made.resource_version())),
        Err(error) if is_namespace_ending(&error) => Ok(None),
        Err(kube::Error::Api(status)) if status.code == 409 && status.reason == "AlreadyExists" => {
            // The one that was meant, by a request whose answer was lost; or another, which the next plan knows of.
            let there = api.get_opt(name).await?;
            let ours = there.filter(|it| controller_of(&it.metadata).is_some_and(|it| it.uid == *of.owner.uid));
            match ours.filter(|it| it.data.as_ref().is_some_and(|data| is_template(&data.0, template))) {
                Some(it) => Ok(revision(it.resource_version())),
                None => Err(PodError(format!("another ControllerRevision is called {name:?}"))),
            }
        }
        Err(error) => Err(error.into()),
    }
}

fn is_template(data: &Value, template: &Arc<str>) -> bool {
    template_text(&data["spec"]["template"]) == *template
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn kept(name: &str, number: i64, owner: Option<&str>, image: &str) -> RevisionFacts {
        let owners = owner.map(
            |uid| json!([{ "apiVersion": "apps/v1", "kind": "K", "name": "web", "uid": uid, "controller": true }]),
        );
        let view = json!({ "metadata": { "name": name, "namespace": "ns", "labels": { "app": "web" }, "ownerReferences": owners },
            "revision": number, "data": { "spec": { "template": template(image) } } });
        RevisionFacts::of(&serde_json::from_value(view).unwrap())
    }

    fn template(image: &str) -> Value {
        json!({ "$patch": "replace", "metadata": { "labels": { "app": "web" }, "creationTimestamp": null },
            "spec": { "containers": [{ "name": "c", "image": image }] } })
    }

    fn known(all: &[RevisionFacts]) -> Revisions {
        let mut revisions = no_revisions();
        for (at, one) in all.iter().enumerate() {
            revisions.put(format!("uid-{at}").into(), one.clone());
        }
        revisions
    }

    fn history(revisions: &Revisions) -> History<'_> {
        History::of(revisions, "set", "ns", false, |it| it.label("app") == Some("web"))
    }

    /// [WL-66] [WL-99] Order of keys, nothing in place of absent, defaults written out or not: all the same template.
    #[test]
    fn revision_of_a_template_that_is_written_differently_is_the_same() {
        let spelled = json!({ "spec": { "restartPolicy": "Always", "containers": [{ "image": "i:1", "name": "c",
            "terminationMessagePath": "/dev/termination-log", "env": null }] }, "metadata": { "labels": { "app": "web" } } });
        assert_eq!(template_text(&spelled), template_text(&template("i:1")));
        assert_ne!(template_text(&spelled), template_text(&template("i:2")));
        let revisions = known(&[kept("web-a", 1, Some("set"), "i:1")]);
        let (asked, _) = history(&revisions).asked("web", &template_text(&spelled), 0);
        assert!(matches!(asked, Asked::Is(it) if &*it.name == "web-a"), "{asked:?}");
    }

    /// [WL-65]
    #[test]
    fn revision_of_a_former_template_is_the_same_object_with_the_next_number() {
        let revisions = known(&[kept("web-a", 1, Some("set"), "i:1"), kept("web-b", 2, Some("set"), "i:2")]);
        let (asked, _) = history(&revisions).asked("web", &template_text(&template("i:1")), 0);
        let Asked::Needs(HistoryAction::Renumber { revision, number: 3 }) = asked else { panic!("{asked:?}") };
        assert_eq!(revision, RevisionRef { name: "web-a".into(), uid: "uid-0".into() });

        let tied = known(&[kept("web-a", 2, Some("set"), "i:1"), kept("web-b", 2, Some("set"), "i:2")]);
        for image in ["i:1", "i:2"] {
            let (asked, _) = history(&tied).asked("web", &template_text(&template(image)), 0);
            assert!(matches!(asked, Asked::Needs(HistoryAction::Renumber { number: 3, .. })), "{asked:?}");
        }
    }

    /// [WL-67]
    #[test]
    fn revision_whose_name_is_taken_gets_another_and_the_collision_is_counted() {
        let text = template_text(&template("i:1"));
        let name = |count| format!("web-{}", hash(&text, count));
        let revisions = known(&[kept(&name(0), 4, Some("other"), "i:9"), kept(&name(1), 4, Some("other"), "i:9")]);
        let (asked, count) = history(&revisions).asked("web", &text, 0);
        let Asked::Needs(HistoryAction::Create { name: chosen, number: 1, .. }) = asked else { panic!("{asked:?}") };
        assert_eq!((chosen, count), (name(2), 2));
        assert_ne!(hash(&text, 0), hash(&text, 1));
    }

    /// [WL-80]
    #[test]
    fn revision_that_nobody_has_is_adopted_before_any_is_made() {
        let revisions = known(&[kept("web-a", 1, None, "i:1"), kept("else", 1, Some("other"), "i:1")]);
        let (asked, _) = history(&revisions).asked("web", &template_text(&template("i:1")), 0);
        let Asked::Needs(HistoryAction::Adopt(adopted)) = asked else { panic!("{asked:?}") };
        assert_eq!(adopted, [RevisionRef { name: "web-a".into(), uid: "uid-0".into() }]);
    }

    #[test]
    fn revisions_beyond_the_limit_are_forgotten_oldest_first_unless_they_are_live() {
        let all: Vec<_> = (1..=5).map(|n| kept(&format!("web-{n}"), n, Some("set"), &format!("i:{n}"))).collect();
        let revisions = known(&all);
        let left_out = history(&revisions).truncate(2, |it| ["web-1", "web-5"].contains(&&*it.name));
        let Some(HistoryAction::Delete(gone)) = left_out else { panic!("{left_out:?}") };
        assert_eq!(gone, [RevisionRef { name: "web-2".into(), uid: "uid-1".into() }]);
        assert_eq!(history(&revisions).truncate(5, |_| false), None);
        assert_eq!(history(&revisions).truncate(0, |_| true), None);
    }
}
