//! Keeps volumes as the API says, for as long as the pod runs: told by watches, never by a clock but a token's own.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use client::{Sight, follow};
use futures::future::{AbortHandle, Abortable};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::Api;
use tokio::sync::mpsc;
use tracing::warn;

use super::content::{Reader, Source, sources, token_seconds};
use crate::hands::words;
use crate::publisher::SharedFacts;
use crate::translate::container::RunFacts;

/// A token is renewed when a fifth of its life is left.
const TOKEN_LIFE_USED: (i64, i64) = (4, 5);

/// Rewrites volumes of the pod in `dir` whenever something they are made of changes. Ends with its task; returns at
/// once if the pod has no such volume.
pub async fn keep_fresh(client: kube::Client, facts: SharedFacts, run: RunFacts, dir: PathBuf) {
    let pod = crate::hands::lock(&facts).pod.clone();
    let volumes: Vec<_> = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()).collect();
    let watched: BTreeSet<Source> = volumes.iter().flat_map(|volume| sources(volume)).collect();
    let renew = volumes.iter().filter_map(|volume| token_seconds(volume)).min().map(|seconds| {
        let (used, of) = TOKEN_LIFE_USED;
        Duration::from_secs(u64::try_from(seconds * used / of).unwrap_or(1).max(1))
    });
    if watched.is_empty() && renew.is_none() {
        return;
    }
    let (told, mut changes) = mpsc::channel(1);
    let _watches: Vec<_> =
        watched.into_iter().map(|source| Watch::start(&client, &pod, source, told.clone())).collect();
    loop {
        let renewal = async {
            match renew {
                Some(after) => tokio::time::sleep(after).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            change = changes.recv() => if change.is_none() { return },
            () = renewal => {}
        }
        let pod = crate::hands::lock(&facts).pod.clone();
        let reader = Reader { client: &client, pod: &pod, facts: &run };
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

/// A watch that ends with its value.
struct Watch(AbortHandle);

impl Watch {
    fn start(client: &kube::Client, pod: &Pod, source: Source, told: mpsc::Sender<()>) -> Self {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let (abort, registration) = AbortHandle::new_pair();
        let client = client.clone();
        let watching = match source {
            Source::ConfigMap(name) => tokio::spawn(Abortable::new(
                tell(Api::<ConfigMap>::namespaced(client, namespace), name, told),
                registration,
            )),
            Source::Secret(name) => tokio::spawn(Abortable::new(
                tell(Api::<Secret>::namespaced(client, namespace), name, told),
                registration,
            )),
            Source::Pod => {
                let name = pod.metadata.name.clone().unwrap_or_default();
                tokio::spawn(Abortable::new(tell(Api::<Pod>::namespaced(client, namespace), name, told), registration))
            }
        };
        drop(watching);
        Self(abort)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Says that something changed, once however often it did before anyone looked.
async fn tell<K>(api: Api<K>, name: String, told: mpsc::Sender<()>)
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    let (out, mut sights) = mpsc::channel::<Sight<K>>(1);
    let following = follow(api, Some(format!("metadata.name={name}")), out);
    let telling = async {
        while sights.recv().await.is_some() {
            // A full channel already says it.
            let _ = told.try_send(());
        }
    };
    tokio::join!(following, telling);
}
