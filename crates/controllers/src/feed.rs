//! One watch, several readers: every object is read once and shared.

use std::fmt::Debug;
use std::sync::Arc;

use client::{Sight, follow};
use kube::Resource;
use kube::api::Api;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// How many sights may wait for a slow reader before the watch waits too.
const QUEUE: usize = 256;

/// What one reader is told.
pub(crate) type Feed<K> = mpsc::Receiver<Sight<Arc<K>>>;

/// Follows `api` for `readers` readers. The followers are `tasks`.
pub(crate) fn share<K>(api: Api<K>, readers: usize, tasks: &mut JoinSet<()>) -> Vec<Feed<K>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (out, mut told) = mpsc::channel(QUEUE);
    tasks.spawn(follow(api, None, out));
    let (senders, feeds): (Vec<_>, Vec<_>) = (0..readers).map(|_| mpsc::channel(QUEUE)).unzip();
    tasks.spawn(async move {
        while let Some(sight) = told.recv().await {
            let shared = match sight {
                Sight::Listed(all) => Sight::Listed(all.into_iter().map(Arc::new).collect()),
                Sight::Changed(one) => Sight::Changed(Arc::new(one)),
                Sight::Removed(one) => Sight::Removed(Arc::new(one)),
            };
            for sender in &senders {
                let copy = match &shared {
                    Sight::Listed(all) => Sight::Listed(all.clone()),
                    Sight::Changed(one) => Sight::Changed(Arc::clone(one)),
                    Sight::Removed(one) => Sight::Removed(Arc::clone(one)),
                };
                // A reader that has ended takes the others with it: they are parts of one whole.
                if sender.send(copy).await.is_err() {
                    return;
                }
            }
        }
    });
    feeds
}
