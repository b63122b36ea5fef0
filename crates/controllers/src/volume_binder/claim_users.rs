//! Which pods have volumes of which claims: why a claim waits, and where a pod is that nobody scheduled.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::pod;
use client::WatchUpdate;
use kube::ResourceExt as _;

use crate::pod::PodView;
use crate::volume_objects::{Name, claim_key};

/// A pod that uses claims.
#[derive(Clone, PartialEq, Eq, Debug)]
struct User {
    name: String,
    node: Option<String>,
    claims: BTreeSet<Name>,
}

impl User {
    /// What a pod uses, unless it uses nothing, or nothing any more.
    fn of(pod: &PodView) -> Option<Self> {
        if pod.spec.volumes.is_empty() || pod::is_terminal(pod) || pod::is_terminating(pod) {
            return None;
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let claims = pod.claims().map(|(name, _)| claim_key(namespace, &name)).collect();
        Some(Self { name: pod.name_any(), node: pod.node().map(str::to_owned), claims })
    }
}

/// The pods that use claims, by UID, and the other way round.
#[derive(Clone, Debug, Default)]
pub(super) struct ClaimUsers {
    pods: BTreeMap<Arc<str>, User>,
    claims: BTreeMap<Name, BTreeSet<Arc<str>>>,
}

impl ClaimUsers {
    /// Takes in what is so. Answers whose users changed.
    pub(super) fn observe(&mut self, update: WatchUpdate<Arc<PodView>>) -> BTreeSet<Name> {
        let uid = |pod: &PodView| Arc::<str>::from(pod.metadata.uid.as_deref().unwrap_or_default());
        let mut touched = BTreeSet::new();
        match update {
            WatchUpdate::Changed(pod) => self.put(uid(&pod), User::of(&pod), &mut touched),
            WatchUpdate::Removed(pod) => self.put(uid(&pod), None, &mut touched),
            WatchUpdate::Listed(pods) => {
                let listed: BTreeMap<_, _> = pods.iter().map(|pod| (uid(pod), User::of(pod))).collect();
                let gone: Vec<_> = self.pods.keys().filter(|uid| !listed.contains_key(*uid)).cloned().collect();
                gone.into_iter().for_each(|uid| self.put(uid, None, &mut touched));
                listed.into_iter().for_each(|(uid, user)| self.put(uid, user, &mut touched));
            }
        }
        touched
    }

    fn put(&mut self, uid: Arc<str>, user: Option<User>, touched: &mut BTreeSet<Name>) {
        if self.pods.get(&uid) == user.as_ref() {
            return;
        }
        for claim in self.pods.remove(&uid).into_iter().flat_map(|before| before.claims) {
            if let Some(uids) = self.claims.get_mut(&claim) {
                uids.remove(&uid);
                if uids.is_empty() {
                    self.claims.remove(&claim);
                }
            }
            touched.insert(claim);
        }
        let Some(user) = user else { return };
        for claim in &user.claims {
            self.claims.entry(Arc::clone(claim)).or_default().insert(Arc::clone(&uid));
            touched.insert(Arc::clone(claim));
        }
        self.pods.insert(uid, user);
    }

    fn of(&self, claim: &str) -> impl Iterator<Item = &User> {
        self.claims.get(claim).into_iter().flatten().filter_map(|uid| self.pods.get(uid))
    }

    /// The node of a pod that uses the claim, if one has a node.
    pub(super) fn node_of(&self, claim: &str) -> Option<&str> {
        self.of(claim).find_map(|user| user.node.as_deref())
    }

    /// The name of a pod that uses the claim and has no node.
    pub(super) fn waiting(&self, claim: &str) -> Option<&str> {
        self.of(claim).filter(|user| user.node.is_none()).map(|user| user.name.as_str()).min()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    fn pod(uid: &str, claim: &str, node: Option<&str>, phase: &str) -> Arc<PodView> {
        let volume = json!({ "name": "v", "persistentVolumeClaim": { "claimName": claim } });
        Arc::new(
            serde_json::from_value(json!({ "metadata": { "name": uid, "namespace": "ns", "uid": uid },
                "spec": { "nodeName": node, "volumes": [volume, { "name": "e", "emptyDir": {} }] },
                "status": { "phase": phase } }))
            .unwrap(),
        )
    }

    #[test]
    fn claim_users_follow_pods_that_come_end_and_go() {
        let mut users = ClaimUsers::default();
        let touched = users.observe(WatchUpdate::Listed(vec![pod("a", "c", None, "Pending")]));
        assert_eq!(touched, BTreeSet::from(["ns/c".into()]));
        assert_eq!((users.waiting("ns/c"), users.node_of("ns/c")), (Some("a"), None));
        assert!(users.observe(WatchUpdate::Changed(pod("a", "c", None, "Pending"))).is_empty(), "nothing is new");
        users.observe(WatchUpdate::Changed(pod("a", "c", Some("n1"), "Running")));
        assert_eq!((users.waiting("ns/c"), users.node_of("ns/c")), (None, Some("n1")));
        users.observe(WatchUpdate::Changed(pod("a", "c", Some("n1"), "Succeeded")));
        assert_eq!(users.node_of("ns/c"), None);
        users.observe(WatchUpdate::Changed(pod("b", "c", None, "Pending")));
        assert_eq!(users.observe(WatchUpdate::Listed(Vec::new())), BTreeSet::from(["ns/c".into()]));
        assert!(users.pods.is_empty() && users.claims.is_empty());
    }
}
