//! Pods on their way in: each gets its driver when its manifest is on disk. That is waited for here, and nowhere in the table.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use lifecycle::{Event, PodWorker};
use runtime_api::Runtime;
use timeline::Record;
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use super::{Mode, Pods};
use crate::driver::PodJournal;
use crate::flaws::{self, Flaw};
use crate::record::PodRecord;
use reading::pod_spec;

/// The newest sight of a pod that arrives, and whether it was seen to change; nothing if nobody asks for the pod any more.
type Newest = Option<(Arc<Pod>, bool)>;

/// The pods that arrive. Of each, one thing is done at a time.
#[derive(Default)]
pub(super) struct Arrivals {
    newest: BTreeMap<String, Newest>,
    work: JoinSet<Arrived>,
}

/// What was done for a pod that arrives.
pub(super) enum Arrived {
    /// This manifest is on disk, or could not be written.
    Kept { uid: String, pod: Arc<Pod>, result: io::Result<()> },
    /// Nothing is kept of it any more.
    Forgotten { uid: String },
}

impl Arrivals {
    /// The next thing that was done; nothing if nothing is being done.
    pub(super) async fn next(&mut self) -> Option<Arrived> {
        // What is done catches its panics, and nobody aborts it.
        self.work.join_next().await?.ok()
    }

    /// The newest sight of a pod that arrives.
    pub(super) fn newest(&self, uid: &str) -> Option<&Arc<Pod>> {
        self.newest.get(uid)?.as_ref().map(|(pod, _)| pod)
    }

    /// A pod that arrives looks like this by now. False if it does not arrive.
    pub(super) fn seen(&mut self, uid: &str, pod: &Arc<Pod>, is_live: bool) -> bool {
        let Some(newest) = self.newest.get_mut(uid) else { return false };
        *newest = Some((Arc::clone(pod), is_live));
        true
    }

    /// Nobody asks for this pod any more.
    pub(super) fn give_up(&mut self, uid: &str) {
        if let Some(newest) = self.newest.get_mut(uid) {
            *newest = None;
        }
    }

    /// The API has these objects, and no others.
    pub(super) fn objects(&mut self, listed: &BTreeSet<String>) {
        for (_, newest) in self.newest.iter_mut().filter(|(uid, _)| !listed.contains(*uid)) {
            newest.take_if(|(pod, _)| !api::pod::is_static(&**pod));
        }
    }
}

impl<R: Runtime> Pods<R> {
    /// Takes a pod on: kept on disk and written down before anything is done for it.
    pub(super) fn take_on(&mut self, uid: &str, pod: Arc<Pod>, is_live: bool) {
        if self.arrivals.seen(uid, &pod, is_live) {
            return;
        }
        if let Err(error) = pod_spec(&pod) {
            return self.refuse(pod, &error.to_string());
        }
        self.arrivals.newest.insert(uid.to_owned(), Some((Arc::clone(&pod), is_live)));
        let (manifests, uid) = (self.tools.manifests.clone(), uid.to_owned());
        self.arrivals.work.spawn(async move {
            let result = if flaws::has(Flaw::KeepsNoManifest) {
                debug!(uid, "the manifest is not kept");
                Ok(())
            } else {
                let kept = supervision::catch("pods", manifests.keep(&uid, &pod)).await;
                kept.unwrap_or_else(|panic| Err(io::Error::other(panic)))
            };
            Arrived::Kept { uid, pod, result }
        });
    }

    /// Something was done for a pod that arrives.
    pub(super) async fn arrived(&mut self, arrived: Arrived) {
        let (uid, kept) = match arrived {
            Arrived::Kept { uid, pod, result } => (uid, Some((pod, result))),
            Arrived::Forgotten { uid } => (uid, None),
        };
        let newest = self.arrivals.newest.remove(&uid).flatten();
        // What a file asks for is not begun while the node goes down, which would leave it behind; it is asked for again after that.
        let newest = newest.filter(|(pod, _)| !api::pod::is_static(&**pod) || self.wants_static(&uid));
        match (newest, kept) {
            (Some((newest, is_live)), Some((pod, Ok(())))) => self.adopt(&uid, &pod, newest, is_live).await,
            // A pod that has to go, and of which nothing was begun, needs no manifest: it is not held up by a full disk.
            (Some((newest, is_live)), Some((pod, Err(error))))
                if newest.metadata.deletion_timestamp.is_some() && disk::passes(&error) =>
            {
                info!(uid, %error, "a pod that was deleted leaves without ever having been kept");
                self.adopt(&uid, &pod, newest, is_live).await;
            }
            (Some((newest, _)), Some((_, Err(error)))) => {
                self.refuse(newest, &format!("its manifest cannot be kept: {error}"));
            }
            (Some((newest, is_live)), None) => self.take_on(&uid, newest, is_live),
            (None, Some(_)) => {
                self.arrivals.newest.insert(uid.clone(), None);
                let manifests = self.tools.manifests.clone();
                self.arrivals.work.spawn(async move {
                    if let Ok(Err(error)) = supervision::catch("pods", manifests.forget(&uid)).await {
                        warn!(uid, %error, "the pod's files could not be removed");
                    }
                    Arrived::Forgotten { uid }
                });
            }
            (None, None) => {}
        }
    }

    /// Whether the files ask for this static pod, and the node takes it on.
    pub(super) fn wants_static(&self, uid: &str) -> bool {
        self.mode == Mode::Open && self.desired.contains_key(uid) && !self.drivers.contains_key(uid)
    }

    /// Gives a driver to a pod whose manifest is kept as `pod`, and tells it what was seen since.
    async fn adopt(&mut self, uid: &str, pod: &Arc<Pod>, newest: Arc<Pod>, is_live: bool) {
        let spec = match pod_spec(pod) {
            Ok(spec) => spec,
            Err(error) => return self.refuse(newest, &error.to_string()),
        };
        let name = pod.metadata.name.clone().unwrap_or_default();
        info!(uid, pod = name, "pod accepted");
        drop(self.journal.append(Record::Adopted {
            uid: uid.to_owned(),
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name,
            spec: spec.clone(),
            at: self.tools.clock.now(),
        }));
        let worker = PodWorker::new(spec);
        let (host_ip, start) = (self.tools.host_ip.clone(), Some(self.tools.clock.wall_now()));
        let record = PodRecord::new(Arc::clone(pod), &worker, host_ip, start);
        self.begin(uid, worker, record, false, Vec::new(), (PodJournal::default(), None));
        if api::pod::is_static(&**pod) {
            self.admit(uid, pod).await;
            if !Arc::ptr_eq(pod, &newest) {
                self.update_static(uid, newest).await;
            }
        } else {
            self.changed_or_later(newest, is_live).await;
        }
    }

    /// A pod that cannot be taken on is told so and tried again: nothing waits in silence.
    pub(super) fn refuse(&mut self, pod: Arc<Pod>, why: &str) {
        warn!(pod = pod.metadata.name, why, "pod cannot be accepted; retrying");
        let event = Event::pod_warning("FailedSync", format!("the node cannot take on the pod: {why}"));
        self.tools.recorder.record(&pod, event);
        self.look_again_later(pod);
    }
}
