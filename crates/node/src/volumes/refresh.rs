//! Keeps volumes as the API says, for as long as the pod runs: told by watches, never by a clock but a token's own.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::{Sight, follow};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::Api;
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;
use tracing::warn;

use super::content::{Reader, Source, sources, token_seconds};
use crate::hands::{lock, words};
use crate::publisher::SharedFacts;
use crate::translate::container::RunFacts;

/// How often in its life a token is looked at; it is renewed when a fifth of its life is left.
const TOKEN_LOOKS: i64 = 10;

/// Rewrites volumes of the pod in `dir` whenever something they are made of changes. Ends with its task; returns at
/// once if the pod has no such volume.
pub async fn keep_fresh(client: kube::Client, facts: SharedFacts, run: RunFacts, dir: PathBuf) {
    let pod = lock(&facts).pod.clone();
    let volumes: Vec<_> = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()).collect();
    let watched: BTreeSet<Source> = volumes.iter().flat_map(|volume| sources(volume)).collect();
    let renew = volumes
        .iter()
        .filter_map(|volume| token_seconds(volume))
        .min()
        .map(|seconds| Duration::from_secs(u64::try_from(seconds / TOKEN_LOOKS).unwrap_or(1).max(1)));
    if watched.is_empty() && renew.is_none() {
        return;
    }
    let news = Arc::new(News { changed: Notify::new(), pod: Mutex::new(pod.clone()) });
    let _watches: Vec<_> = watched.into_iter().map(|source| Watch::start(&client, &pod, source, &news)).collect();
    loop {
        let renewal = async {
            match renew {
                Some(after) => tokio::time::sleep(after).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = news.changed.notified() => {}
            () = renewal => {}
        }
        let pod = lock(&news.pod).clone();
        let reader = Reader { client: &client, pod: &pod, facts: &run, written: Some(&dir) };
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let path = dir.join(&volume.name);
            let written = match reader.payload(volume).await {
                Ok(Some(payload)) => super::write(&volume.name, payload, path).await,
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            // What the volume held stays: programs rather run on with old files than without any.
            if let Err(error) = written {
                warn!(volume = volume.name, error = words(&error), "a volume could not be brought up to date");
            }
        }
    }
}

/// What the watches have to tell. Changes that nobody has looked at count as one.
struct News {
    changed: Notify,
    /// The pod as its own watch last saw it.
    pod: Mutex<Pod>,
}

/// A watch that ends with its value.
struct Watch(AbortHandle);

impl Watch {
    fn start(client: &kube::Client, pod: &Pod, source: Source, news: &Arc<News>) -> Self {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let (client, news) = (client.clone(), news.clone());
        let watching = match source {
            Source::ConfigMap(name) => {
                tokio::spawn(tell(Api::<ConfigMap>::namespaced(client, namespace), name, news, |_, _| {}))
            }
            Source::Secret(name) => {
                tokio::spawn(tell(Api::<Secret>::namespaced(client, namespace), name, news, |_, _| {}))
            }
            Source::Pod => {
                let (name, uid) = (pod.metadata.name.clone().unwrap_or_default(), pod.metadata.uid.clone());
                tokio::spawn(tell(Api::<Pod>::namespaced(client, namespace), name, news, move |news, seen: Pod| {
                    // Another pod may already have the name.
                    if seen.metadata.uid == uid {
                        *lock(&news.pod) = seen;
                    }
                }))
            }
        };
        Self(watching.abort_handle())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Keeps what was seen, then says that something changed.
async fn tell<K>(api: Api<K>, name: String, news: Arc<News>, keep: impl Fn(&News, K))
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    let (out, mut sights) = mpsc::channel::<Sight<K>>(1);
    let following = follow(api, Some(format!("metadata.name={name}")), out);
    let telling = async {
        while let Some(sight) = sights.recv().await {
            match sight {
                Sight::Listed(found) => found.into_iter().for_each(|seen| keep(&news, seen)),
                Sight::Changed(seen) => keep(&news, seen),
                // What the volume holds stays.
                Sight::Removed(_) => continue,
            }
            news.changed.notify_one();
        }
    };
    tokio::join!(following, telling);
}
