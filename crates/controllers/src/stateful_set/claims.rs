//! The claims of a StatefulSet: made before their pods, and owned by whoever is to take them along.

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::set::StatefulSetView;
use crate::controller_ref::Owner;
use crate::replicas::set::resource;

/// A claim, read and never written back.
#[derive(Deserialize, Clone, Debug, Default)]
pub(crate) struct ClaimView {
    #[serde(deserialize_with = "client::trimmed_metadata")]
    pub(crate) metadata: ObjectMeta,
}

resource!(ClaimView, "v1", "", "PersistentVolumeClaim", "persistentvolumeclaims", it => &it.metadata, &mut it.metadata);

/// A claim, as far as sets care.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ClaimFacts {
    pub(super) uid: String,
    pub(super) leaves: bool,
    pub(super) owners: Vec<OwnerReference>,
}

impl ClaimFacts {
    pub(super) fn of(claim: &ClaimView) -> Self {
        Self {
            uid: claim.metadata.uid.clone().unwrap_or_default(),
            leaves: claim.metadata.deletion_timestamp.is_some(),
            owners: claim.metadata.owner_references.clone().unwrap_or_default(),
        }
    }

    /// It still goes with a pod of this name that is another one than `uid`: it is about to be removed.
    pub(super) fn is_of_former_pod(&self, pod: &str, uid: Option<&str>) -> bool {
        self.owners.iter().any(|it| it.kind == "Pod" && it.name == pod && Some(it.uid.as_str()) != uid)
    }
}

/// A pod whose claims are looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClaimingPod<'a> {
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
    /// Its ordinal is no longer asked for.
    pub(super) is_condemned: bool,
}

/// What the owners of a claim have to become.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Owners {
    /// They are right.
    Right,
    /// These.
    Become(Vec<OwnerReference>),
    /// Somebody else controls it: it is left alone.
    Conflict,
}

/// Who has to own the claim of a pod: the set, if claims go with it; the pod, if it is not asked for any more and claims go then.
pub(super) fn owners(set: &StatefulSetView, pod: ClaimingPod<'_>, claim: &ClaimFacts) -> Owners {
    let is = |word: &Option<String>| word.as_deref() == Some("Delete");
    let (when_deleted, when_scaled) = (is(&set.spec.retention.when_deleted), is(&set.spec.retention.when_scaled));
    let by_pod = when_scaled && pod.is_condemned;
    let by_set = when_deleted && !by_pod;
    let owner = set.owner();
    let ours = |it: &OwnerReference| it.uid == *owner.uid || it.uid == pod.uid;
    if (by_pod || by_set) && claim.owners.iter().any(|it| it.controller == Some(true) && !ours(it)) {
        return Owners::Conflict;
    }
    let mut wanted: Vec<OwnerReference> = claim.owners.iter().filter(|it| !ours(it)).cloned().collect();
    if by_set {
        wanted.push(owner.reference());
    }
    if by_pod {
        wanted.push(OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            name: pod.name.to_owned(),
            uid: pod.uid.to_owned(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        });
    }
    // An owner of ours that is not the controller is put right, too.
    let controls = |all: &[OwnerReference], uid: &str| {
        all.iter().find(|it| it.uid == uid).map(|it| it.controller.unwrap_or_default())
    };
    match [&*owner.uid, pod.uid].iter().all(|uid| controls(&wanted, uid) == controls(&claim.owners, uid)) {
        true => Owners::Right,
        false => Owners::Become(wanted),
    }
}

/// A claim as it is made.
pub(super) fn new_claim(set: &StatefulSetView, owner: &Owner, template: &Value, name: &str) -> Value {
    let mut labels: Map<String, Value> = template["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    for (key, value) in set.spec.selector.match_labels.iter().flatten() {
        labels.insert(key.clone(), json!(value));
    }
    let mut metadata = json!({ "name": name, "namespace": set.namespace(), "labels": labels });
    if template["metadata"]["annotations"].is_object() {
        metadata["annotations"] = template["metadata"]["annotations"].clone();
    }
    if set.spec.retention.when_deleted.as_deref() == Some("Delete") {
        metadata["ownerReferences"] = json!([owner.reference()]);
    }
    json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": template["spec"] })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn set(when_deleted: &str, when_scaled: &str) -> StatefulSetView {
        let retention = json!({ "whenDeleted": when_deleted, "whenScaled": when_scaled });
        let set = json!({ "metadata": { "name": "web", "namespace": "ns", "uid": "set" },
            "spec": { "persistentVolumeClaimRetentionPolicy": retention, "selector": { "matchLabels": { "app": "web" } } } });
        serde_json::from_value(set).unwrap()
    }

    fn claim(owners: &[(&str, &str)]) -> ClaimFacts {
        let owner = |(kind, uid): &(&str, &str)| OwnerReference {
            kind: (*kind).to_owned(),
            uid: (*uid).to_owned(),
            name: "web-2".to_owned(),
            controller: Some(true),
            ..OwnerReference::default()
        };
        ClaimFacts { uid: "c".into(), leaves: false, owners: owners.iter().map(owner).collect() }
    }

    fn owned(set: &StatefulSetView, is_condemned: bool, from: &[(&str, &str)]) -> Vec<String> {
        let claim = claim(from);
        let uids = |all: &[OwnerReference]| all.iter().map(|it| it.uid.clone()).collect();
        match owners(set, ClaimingPod { name: "web-2", uid: "pod", is_condemned }, &claim) {
            Owners::Right => uids(&claim.owners),
            Owners::Become(new) => uids(&new),
            Owners::Conflict => vec!["conflict".to_owned()],
        }
    }

    /// [WL-73] [WL-76] [WL-77] The whole table, from every state in which a claim may be found.
    #[test]
    fn claim_is_owned_by_set_or_condemned_pod_as_the_retention_policy_says() {
        for from in [&[][..], &[("StatefulSet", "set")], &[("Pod", "pod")], &[("StatefulSet", "set"), ("Pod", "pod")]] {
            let both = |deleted, scaled| [false, true].map(|condemned| owned(&set(deleted, scaled), condemned, from));
            assert_eq!(both("Retain", "Retain"), [vec![], vec![] as Vec<String>]);
            assert_eq!(both("Delete", "Retain"), [["set"], ["set"]]);
            assert_eq!(both("Retain", "Delete"), [vec![], vec!["pod"]]);
            assert_eq!(both("Delete", "Delete"), [["set"], ["pod"]]);
        }
        assert_eq!(owned(&set("Delete", "Retain"), false, &[("Other", "x")]), ["conflict"]);
        assert_eq!(owned(&set("Retain", "Retain"), false, &[("Other", "x")]), ["x"], "left alone");
    }

    #[test]
    fn claim_whose_set_is_no_longer_its_controller_is_put_right() {
        let mut claim = claim(&[("StatefulSet", "set")]);
        let pod = ClaimingPod { name: "web-2", uid: "pod", is_condemned: false };
        assert_eq!(owners(&set("Delete", "Retain"), pod, &claim), Owners::Right);
        claim.owners[0].controller = Some(false);
        let Owners::Become(new) = owners(&set("Delete", "Retain"), pod, &claim) else { panic!("it is put right") };
        assert_eq!(new.iter().map(|it| (&*it.uid, it.controller)).collect::<Vec<_>>(), [("set", Some(true))]);
        assert_eq!(owners(&set("Retain", "Retain"), pod, &claim), Owners::Become(vec![]));
    }

    /// [WL-74]
    #[test]
    fn claim_of_a_former_pod_is_told_apart() {
        assert!(claim(&[("Pod", "old")]).is_of_former_pod("web-2", None));
        assert!(claim(&[("Pod", "old")]).is_of_former_pod("web-2", Some("new")));
        assert!(!claim(&[("Pod", "new")]).is_of_former_pod("web-2", Some("new")));
        assert!(!claim(&[("StatefulSet", "set")]).is_of_former_pod("web-2", None));
    }

    #[test]
    fn claim_of_a_template_has_the_labels_of_both_and_an_owner_if_it_goes_with_the_set() {
        let template = json!({ "metadata": { "name": "data", "labels": { "tier": "db" } }, "spec": { "accessModes": ["ReadWriteOnce"] } });
        let set = set("Delete", "Retain");
        let made = new_claim(&set, &set.owner(), &template, "data-web-0");
        assert_eq!(made["metadata"]["labels"], json!({ "app": "web", "tier": "db" }));
        assert_eq!(
            (&made["metadata"]["name"], &made["spec"]["accessModes"][0]),
            (&json!("data-web-0"), &json!("ReadWriteOnce"))
        );
        assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "set");
    }
}
