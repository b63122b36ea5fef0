//! What is left of pods that nobody knows: each only has to go. A pod of the same UID that the API asks for comes after it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

/// The orphans that are still there, by UID, each with the newest sight of who comes after it.
#[derive(Default)]
pub(super) struct Orphans(BTreeMap<String, Option<Arc<Pod>>>);

impl Orphans {
    /// There is one.
    pub(super) fn found(&mut self, uid: &str) {
        self.0.insert(uid.to_owned(), None);
    }

    /// The pod itself, if it need not wait until what is left of its UID is gone.
    pub(super) fn unless_waiting(&mut self, uid: &str, pod: Arc<Pod>) -> Option<Arc<Pod>> {
        match self.0.get_mut(uid) {
            Some(successor) => {
                *successor = Some(pod);
                None
            }
            None => Some(pod),
        }
    }

    /// The API has no object of that UID any more.
    pub(super) fn object_gone(&mut self, uid: &str) {
        if let Some(successor) = self.0.get_mut(uid) {
            *successor = None;
        }
    }

    /// The API has these objects, and no others.
    pub(super) fn objects(&mut self, listed: &BTreeSet<String>) {
        for (_, successor) in self.0.iter_mut().filter(|(uid, _)| !listed.contains(*uid)) {
            *successor = None;
        }
    }

    /// Nothing is left of it. If it was one, tells who comes after it, if anybody does.
    pub(super) fn gone(&mut self, uid: &str) -> Option<Option<Arc<Pod>>> {
        self.0.remove(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str) -> Arc<Pod> {
        let mut pod = Pod::default();
        pod.metadata.name = Some(name.to_owned());
        Arc::new(pod)
    }

    #[test]
    fn pod_seen_last_follows_its_orphan() {
        let mut orphans = Orphans::default();
        assert_eq!(orphans.unless_waiting("u", pod("known")), Some(pod("known")), "nobody has to go first");
        orphans.found("u");
        assert_eq!(orphans.unless_waiting("u", pod("seen")), None);
        assert_eq!(orphans.unless_waiting("u", pod("changed")), None);
        orphans.objects(&BTreeSet::from(["u".to_owned()]));
        assert_eq!(orphans.gone("u"), Some(Some(pod("changed"))));
        assert_eq!(orphans.gone("u"), None, "it was one of those no more");
        assert_eq!(orphans.unless_waiting("u", pod("changed")), Some(pod("changed")), "and its turn has come");
    }

    /// Whether that was seen, or found in a list after the watch had a gap.
    #[test]
    fn orphan_without_an_api_object_has_no_successor() {
        let mut orphans = Orphans::default();
        for uid in ["seen", "found", "other"] {
            orphans.found(uid);
            assert_eq!(orphans.unless_waiting(uid, pod(uid)), None);
        }
        orphans.object_gone("seen");
        orphans.objects(&BTreeSet::from(["other".to_owned()]));
        assert_eq!(orphans.gone("seen"), Some(None));
        assert_eq!(orphans.gone("found"), Some(None));
        assert_eq!(orphans.gone("other"), Some(Some(pod("other"))));
    }
}
