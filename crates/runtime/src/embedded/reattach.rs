//! Finding everything again: after a restart of the agent, and after the death of a shim.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use supervision::BackoffPolicy;

use super::link::Link;
use super::pod::{Pod, system};
use super::{CGROUP_PATIENCE, Inner, PODS, Result};
use crate::contract::PodUid;
use crate::shim::records::{self, PodDir, SandboxRecord, wall_ms};

/// Directories of pods that are on their way out begin with this, so that their UID is free again.
pub(super) const LEAVING: &str = ".leaving-";

/// How soon a full disk is tried again, and how long at most between two attempts.
const BURY_AGAIN: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(50), Duration::from_secs(2));

impl Inner {
    /// Joins every pod found on disk; finishes removals that were begun.
    pub(super) async fn reattach(self: &Arc<Self>) -> Result<()> {
        let directory = self.data_dir.join(PODS);
        let entries = std::fs::read_dir(&directory)
            .map_err(|error| system(format!("cannot read {}", directory.display()))(error.into()))?;
        let mut rejoined = Vec::new();
        for name in entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
            if name.starts_with(LEAVING) {
                self.delete_in_background(directory.join(name));
                continue;
            }
            let record: Option<SandboxRecord> = records::read(&PodDir { path: directory.join(&name) }.sandbox());
            let group = || record.map_or_else(|| self.group.below(&name), |record| self.group.at(&record.cgroup));
            let pod = self.find_or_add(&PodUid(name.clone()), group)?;
            rejoined.push(self.rejoin(pod));
        }
        futures::future::join_all(rejoined).await;
        self.end_strays().await;
        let pods: Vec<_> = self.pods().values().cloned().collect();
        // Of those that are complete; the others publish theirs when they are.
        let records = pods.iter().filter(|pod| pod.link().is_some() && pod.ready().is_some()).filter_map(|pod| {
            let record: SandboxRecord = records::read(&pod.dir.sandbox())?;
            Some((pod.uid.clone(), record.spec.host_ports))
        });
        let republished = self.network.republish(records.collect()).await;
        republished.map_err(|error| system("cannot restore the pods' host ports")(error.into()))
    }

    /// Ends and removes what has a control group or an address of this instance and no directory: nobody else ever will. A
    /// directory is there before these and goes after them, so that only a disk that lost some leaves any.
    async fn end_strays(&self) {
        let known: BTreeSet<_> = self.pods().keys().map(|uid| uid.0.clone()).collect();
        for (name, group) in self.group.pods().into_iter().filter(|(name, _)| !known.contains(name)) {
            tracing::warn!(group = %name, "a control group without a pod; ending what is in it");
            let stray = Pod::new(PodUid(name.clone()), self.data_dir.join(PODS).join(&name), group);
            let ended = stray.end_all().await;
            let removed = ended.and_then(|()| stray.group.remove(CGROUP_PATIENCE));
            removed.unwrap_or_else(|error| tracing::error!(group = %name, %error, "cannot end a control group"));
        }
        for holder in self.network.holders().into_iter().filter(|holder| !known.contains(&holder.0)) {
            let released = self.network.release(&holder).await;
            released.unwrap_or_else(|error| tracing::error!(uid = %holder.0, %error, "cannot release an address"));
        }
    }

    async fn rejoin(self: &Arc<Self>, pod: Arc<Pod>) {
        let record = records::read::<SandboxRecord>(&pod.dir.sandbox());
        let Some(record) = record.filter(|_| !pod.dir.removing().exists()) else {
            if let Err(error) = self.remove_sandbox(&pod.uid).await {
                tracing::error!(uid = %pod.uid.0, %error, "cannot finish the removal of a pod");
            }
            return;
        };
        let _changing = pod.changing.lock().await;
        self.join_or_bury(&pod).await;
        // Another agent may have died between giving something else and writing that down.
        if pod.link().is_some()
            && let Err(error) = pod.group.give(&record.spec.resources)
        {
            tracing::warn!(uid = %pod.uid.0, %error, "a pod cannot be given what it had");
        }
    }

    /// The connection to a shim was lost.
    pub(super) async fn shim_lost(self: Arc<Self>, pod: &Arc<Pod>) {
        let _changing = pod.changing.lock().await;
        // Meanwhile the pod may have been removed, or been given another shim.
        let lost = pod.link().is_some_and(|link| link.is_closed());
        if lost && !pod.is_removed() {
            pod.set_link(None);
            // One that was told to end did so, though the rest of its pod could not be removed yet.
            match pod.dir.removing().exists() {
                true => self.bury(pod).await,
                false => self.join_or_bury(pod).await,
            }
        }
    }

    /// Ends a pod whose shim is there but does not answer, as if the shim had died: the shim is the sandbox, and what
    /// it saw and did not say is lost.
    pub(super) async fn give_up(self: &Arc<Self>, pod: &Arc<Pod>, link: &Arc<Link>) {
        let _changing = pod.changing.lock().await;
        let same = pod.link().is_some_and(|now| Arc::ptr_eq(&now, link));
        if !same || pod.is_removed() {
            return;
        }
        tracing::warn!(uid = %pod.uid.0, shim = link.pid(), "the pod's shim stays silent; ending it with the pod");
        link.hang_up();
        pod.set_link(None);
        self.bury(pod).await;
    }

    /// Connects to a pod's shim. If it is dead, ends what it left and gives every run an end on disk.
    ///
    /// Connecting comes first and reading the disk second: a shim records before it tells, so nothing falls between.
    async fn join_or_bury(self: &Arc<Self>, pod: &Arc<Pod>) {
        if let Err(error) = self.connect(pod).await {
            tracing::warn!(uid = %pod.uid.0, %error, "the pod's shim is gone; ending the pod");
            return self.bury(pod).await;
        }
        self.tell_recorded(pod);
    }

    /// Ends what a shim left, itself included, gives every run an end on disk, and tells of these. A full disk only
    /// delays this.
    async fn bury(self: &Arc<Self>, pod: &Arc<Pod>) {
        if let Err(error) = pod.end_all().await {
            tracing::error!(uid = %pod.uid.0, %error, "cannot end a pod without shim");
        }
        let ended = wall_ms();
        if let Err(error) = pod.record_unseen_ends(ended) {
            tracing::error!(uid = %pod.uid.0, %error, "cannot record the ends of a pod without shim yet");
            // Nobody waits for this, it may take for ever. The next runtime finds the pod without ends, and does the same.
            tokio::spawn(bury_later(Arc::downgrade(self), Arc::downgrade(pod), ended));
        }
        self.tell_recorded(pod);
    }

    pub(super) fn tell_recorded(&self, pod: &Pod) {
        for event in pod.recorded_events() {
            let _ = self.events.send(event);
        }
    }
}

/// Tries again, ever less often, to record the ends of a pod without shim, and tells of them when they are.
async fn bury_later(inner: Weak<Inner>, pod: Weak<Pod>, ended: i64) {
    let mut retries = BURY_AGAIN.start();
    loop {
        tokio::time::sleep(retries.after_failure()).await;
        let (Some(inner), Some(pod)) = (inner.upgrade(), pod.upgrade()) else { return };
        let _changing = pod.changing.lock().await;
        if pod.is_removed() {
            return;
        }
        // Before a pod is given another shim, the ends of all that ran under the former one are recorded.
        if pod.link().is_some() || pod.record_unseen_ends(ended).is_ok() {
            return inner.tell_recorded(&pod);
        }
    }
}
