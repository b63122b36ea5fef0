//! Watches of what volumes are made of: one for each object, however many pods use it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use client::{WatchUpdate, follow};
use futures::future::select_all;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::{Api, ResourceExt};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use super::content::{Source, sources};
use crate::effects::lock;

/// The watches of a node.
pub struct Watches {
    client: kube::Client,
    running: Mutex<BTreeMap<Key, Weak<Watch>>>,
}

/// What is watched; a pod is watched under its UID by itself alone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    namespace: String,
    source: Source,
    pod: Option<(String, String)>,
}

/// A watch of one object; ends with the last pod that uses it.
struct Watch {
    /// Changes whenever something is seen.
    seen: watch::Receiver<Seen>,
    task: AbortHandle,
}

/// The pod as it was last seen, if that is what is watched; other objects are read by whoever is told of them.
type Seen = Option<Arc<Pod>>;

impl Watches {
    /// Watches by `client`; none runs yet.
    pub fn new(client: kube::Client) -> Self {
        Self { client, running: Mutex::default() }
    }

    /// What happens from now on to the objects that the volumes of `pod` are made of.
    pub fn changes(&self, pod: &Pod) -> Changes {
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let mut watched: Vec<Source> = volumes.flat_map(sources).collect();
        watched.sort();
        watched.dedup();
        let watches: Vec<_> = watched.into_iter().map(|source| self.watch(pod, source)).collect();
        // Looked at before anything is read: whatever comes after is a change.
        let told = watches.iter().map(|watch| watch.seen.clone()).collect();
        Changes { told, _watches: watches }
    }

    fn watch(&self, pod: &Pod, source: Source) -> Arc<Watch> {
        let key = Key {
            namespace: pod.namespace().unwrap_or_default(),
            pod: matches!(source, Source::Pod).then(|| (pod.name_any(), pod.uid().unwrap_or_default())),
            source,
        };
        let mut running = lock(&self.running);
        if let Some(watch) = running.get(&key).and_then(Weak::upgrade) {
            return watch;
        }
        running.retain(|_, watch| watch.strong_count() > 0);
        let watch = Arc::new(Watch::start(&self.client, &key));
        running.insert(key, Arc::downgrade(&watch));
        watch
    }
}

impl Watch {
    fn start(client: &kube::Client, key: &Key) -> Self {
        let (tell, seen) = watch::channel(Seen::default());
        let (client, namespace) = (client.clone(), key.namespace.as_str());
        let task = match (&key.source, key.pod.clone()) {
            (Source::ConfigMap(name), _) => {
                tokio::spawn(look(Api::<ConfigMap>::namespaced(client, namespace), name.clone(), tell, |_| Some(None)))
            }
            (Source::Secret(name), _) => {
                tokio::spawn(look(Api::<Secret>::namespaced(client, namespace), name.clone(), tell, |_| Some(None)))
            }
            (Source::Pod, pod) => {
                let (name, uid) = pod.unwrap_or_default();
                tokio::spawn(look(Api::<Pod>::namespaced(client, namespace), name, tell, move |seen: Pod| {
                    // Another pod may already have the name.
                    (seen.uid().as_ref() == Some(&uid)).then(|| Some(Arc::new(seen)))
                }))
            }
        };
        Self { seen, task: task.abort_handle() }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Tells of everything seen that `keep` wants told.
async fn look<K>(api: Api<K>, name: String, tell: watch::Sender<Seen>, keep: impl Fn(K) -> Option<Seen>)
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    let (out, mut updates) = mpsc::channel::<WatchUpdate<K>>(1);
    let following = follow(api, Some(format!("metadata.name={name}")), out);
    let telling = async {
        while let Some(update) = updates.recv().await {
            let found = match update {
                WatchUpdate::Listed(found) => found.into_iter().next(),
                WatchUpdate::Changed(found) => Some(found),
                // What the volume holds stays.
                WatchUpdate::Removed(_) => None,
            };
            if let Some(seen) = found.and_then(&keep) {
                tell.send_replace(seen);
            }
        }
    };
    tokio::join!(following, telling);
}

/// What happens to the objects that one pod's volumes are made of.
pub struct Changes {
    told: Vec<watch::Receiver<Seen>>,
    _watches: Vec<Arc<Watch>>,
}

impl Changes {
    /// Whether nothing can ever happen.
    pub(super) fn is_empty(&self) -> bool {
        self.told.is_empty()
    }

    /// Waits until something happens; many things that nobody has looked at count as one.
    pub(super) async fn next(&mut self) {
        match self.told.as_mut_slice() {
            [] => std::future::pending().await,
            told => drop(select_all(told.iter_mut().map(|told| Box::pin(told.changed()))).await),
        }
        self.told.iter_mut().for_each(watch::Receiver::mark_unchanged);
    }

    /// The pod as its own watch last saw it.
    pub(super) fn pod(&self) -> Option<Arc<Pod>> {
        self.told.iter().find_map(|told| told.borrow().clone())
    }
}
