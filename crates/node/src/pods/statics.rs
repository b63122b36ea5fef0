//! Pods that come from files: those of one name follow each other, and each has a mirror in the API.
//!
//! Who may begin is [`Succession`]'s to say. One that waits has no driver and no record: after a restart its file asks
//! for it again.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use lifecycle::{Admission, Input, KillCause, Source};
use runtime_api::Runtime;
use timeline::Life;
use tracing::{debug, info};

use super::{Handle, LeaveReason, Mode, Pods, Stage};
use crate::driver::Told;
use crate::flaws::{self, Flaw};
use crate::node_resources::NodeResources;
use crate::statics::{ManifestPods, full_name, mirror};

impl<R: Runtime> Pods<R> {
    /// The static pods that have drivers, as they were last kept.
    pub fn known_statics(&self) -> Vec<Pod> {
        let statics = self.drivers.values().filter(|handle| handle.full_name().is_some() && handle.is_wanted());
        statics.map(|handle| Pod::clone(&handle.pod())).collect()
    }

    /// These are the pods that the files ask for, and no others.
    pub async fn want(&mut self, ManifestPods(pods): ManifestPods) {
        let uid = |pod: &Arc<Pod>| pod.metadata.uid.clone().unwrap_or_default();
        let pods: Vec<Arc<Pod>> = pods.into_iter().map(Arc::new).collect();
        let wanted: BTreeSet<String> = pods.iter().map(uid).collect();
        let running = self.drivers.iter().filter(|(_, h)| h.is_wanted());
        let running = running.filter_map(|(uid, h)| Some((uid.clone(), h.full_name()?.to_owned())));
        let others = self.desired.iter().map(|(uid, pod)| (uid.clone(), full_name(pod)));
        let gone: BTreeSet<(String, String)> = running.chain(others).filter(|(uid, _)| !wanted.contains(uid)).collect();
        self.desired = pods.iter().map(|pod| (uid(pod), pod.clone())).collect();
        for (uid, name) in gone {
            self.unwant(&uid, &name).await;
        }
        for pod in pods {
            self.arrive(pod).await;
        }
    }

    /// A file no longer asks for this pod.
    async fn unwant(&mut self, uid: &str, name: &str) {
        let was_waiting = self.succession.leaves(name, uid);
        self.arrivals.give_up(uid);
        if let Some(handle) = self.drivers.get_mut(uid)
            && handle.is_wanted()
        {
            info!(uid, name, "static pod manifest removed; ending the pod");
            handle.leave(LeaveReason::Unwanted);
            let cause = KillCause::ConfigRemoved;
            handle.tell(Input::KillRequested { cause, grace: None }).await;
        } else if !was_waiting && !self.drivers.contains_key(uid) {
            // It had its turn and could not be taken on yet.
            self.succeed(name, uid);
        }
    }

    /// A file asks for this pod.
    async fn arrive(&mut self, pod: Arc<Pod>) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        if self.drivers.get(&uid).is_some_and(Handle::is_wanted) {
            return self.update_static(&uid, pod).await;
        }
        if self.mode != Mode::Open {
            debug!(uid, "a static pod has to wait: the node is going down");
            return;
        }
        if self.arrivals.newest(&uid).is_some() {
            self.arrivals.seen(&uid, &pod, false);
            return;
        }
        match self.succession.arrives(&full_name(&pod), &uid, Source::Static) {
            Admission::Begin => self.begin_static(pod),
            Admission::Wait if flaws::has(Flaw::StaticsAtOnce) => self.begin_static(pod),
            Admission::Wait => debug!(uid, "a static pod waits until its predecessor is gone"),
            // It had its turn, and was not taken on when the node was about to go down.
            Admission::Never => self.begin_static(pod),
        }
    }

    /// Takes on a static pod whose turn it is; not while the node goes down, which would leave it behind.
    pub(super) fn begin_static(&mut self, pod: Arc<Pod>) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        if self.wants_static(&uid) {
            self.take_on(&uid, pod, false);
        }
    }

    /// The node does not go down after all: what files asked for meanwhile begins.
    pub(super) async fn begin_waiting_static_pods(&mut self) {
        let waiting: Vec<Arc<Pod>> = self.desired.values().cloned().collect();
        for pod in waiting {
            self.arrive(pod).await;
        }
    }

    /// A manifest with a UID of its own was edited, or is seen for the first time after a restart.
    pub(super) async fn update_static(&mut self, uid: &str, pod: Arc<Pod>) {
        if self.drivers.get(uid).is_some_and(|handle| matches!(handle.stage, Stage::Waiting { .. })) {
            self.readmit(uid).await;
        }
        let Some(handle) = self.drivers.get_mut(uid) else { return };
        handle.newest = Arc::clone(&pod);
        let had = std::mem::replace(&mut handle.claim.asks, NodeResources::of_pod(&pod));
        let gives_back = !had.is_within(handle.claim.asks);
        handle.send(Told::Seen { pod, is_live: false }).await;
        if gives_back {
            self.retry_waiting_pods().await;
        }
    }

    /// Nothing is left of a static pod: the next of its name begins, or its mirror goes.
    pub(super) fn succeed(&mut self, name: &str, uid: &str) {
        let mut next = self.succession.finished(name, uid);
        while let Some(uid) = next {
            if let Some(pod) = self.desired.get(&uid).filter(|_| self.mode == Mode::Open).cloned() {
                return self.begin_static(pod);
            }
            next = self.succession.finished(name, &uid);
        }
        if let Some(mirror) = self.mirrors.get(name).cloned() {
            self.chores.spawn(mirror::remove(self.tools.client.clone(), mirror));
        }
    }

    /// A static pod of an earlier start goes on as it was, unless the node itself ended it: then it runs anew.
    pub(super) async fn resume_static(&mut self, life: &Life) {
        let Some(handle) = self.drivers.get_mut(&life.uid) else { return };
        let Some(name) = handle.full_name().map(str::to_owned) else { return };
        self.succession.arrives(&name, &life.uid, Source::Static);
        let told = |wanted: fn(&Input) -> bool| life.steps.iter().any(|(_, _, input, _)| wanted(input));
        let removed = told(|input| matches!(input, Input::KillRequested { cause: KillCause::ConfigRemoved, .. }));
        let ended = told(|input| matches!(input, Input::KillRequested { .. } | Input::Rejected { .. }));
        if removed {
            handle.leave(LeaveReason::Unwanted);
            self.succession.leaves(&name, &life.uid);
        } else if ended && self.mode == Mode::Open {
            self.begin_anew(&life.uid).await;
        }
    }

    /// A static pod that the node itself ended makes room for its successor, which the same file asks for.
    pub(super) async fn begin_anew(&mut self, uid: &str) {
        let Some(handle) = self.drivers.get_mut(uid).filter(|handle| handle.is_wanted()) else { return };
        let Some(name) = handle.full_name() else { return };
        self.succession.leaves(name, uid);
        handle.leave(LeaveReason::Unwanted);
        let cause = KillCause::ConfigRemoved;
        handle.tell(Input::KillRequested { cause, grace: None }).await;
    }

    /// The API has these mirrors, found by listing.
    pub(super) fn mirrors_listed(&mut self, mirrors: Vec<Pod>) {
        self.mirrors = mirrors.iter().map(|mirror| (full_name(mirror), mirror.clone())).collect();
        for mirror in mirrors {
            self.mirror_changed(mirror);
        }
        for handle in self.drivers.values().filter(|handle| handle.is_wanted()) {
            if handle.full_name().is_some_and(|name| !self.mirrors.contains_key(name)) {
                handle.reader.flush.refresh();
            }
        }
    }

    /// The API has this mirror.
    pub(super) fn mirror_changed(&mut self, mirror: Pod) {
        let name = full_name(&mirror);
        self.mirrors.insert(name.clone(), mirror.clone());
        match self.static_called(&name) {
            // Its own publisher makes it anew; while the pod leaves, its mirror stays as it is.
            Some(handle) => {
                let shows = mirror::shows(&mirror, &handle.pod());
                if !shows && handle.is_wanted() {
                    handle.reader.flush.refresh();
                } else if handle.is_wanted() {
                    handle.reader.flush.seen(&mirror);
                }
            }
            None if self.mode == Mode::Open && !self.desired.values().any(|pod| full_name(pod) == name) => {
                self.chores.spawn(mirror::remove(self.tools.client.clone(), mirror));
            }
            None => {}
        }
    }

    /// An object of this name left the API. If a static pod has the name, its mirror may be made now.
    pub(super) fn name_freed(&mut self, pod: &Pod) {
        let name = full_name(pod);
        self.mirrors.remove(&name);
        if let Some(handle) = self.static_called(&name)
            && handle.is_wanted()
        {
            handle.reader.flush.refresh();
        }
    }

    fn static_called(&self, name: &str) -> Option<&Handle> {
        self.drivers.values().find(|handle| handle.full_name() == Some(name))
    }
}
