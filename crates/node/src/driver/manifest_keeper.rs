//! Keeps the manifest of one pod as its object changes: one write at a time, and of those that wait the newest.

use std::io;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;

use super::inbox::Grant;
use crate::manifest::Manifests;
use crate::record::PodRecord;
use crate::translate::resize::{granted_by, with_granted};

/// What was asked to be kept.
#[derive(Debug)]
struct Order {
    pod: Arc<Pod>,
    /// It is kept so that this can be granted.
    grant: Option<Grant>,
}

/// How a write ended.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) grant: Option<Grant>,
    pub(super) result: io::Result<()>,
}

/// The writer of one pod's manifest.
pub(super) struct ManifestKeeper {
    manifests: Manifests,
    uid: String,
    /// The write that is under way, and what is granted by it.
    writing: Option<(BoxFuture<'static, io::Result<()>>, Option<Grant>)>,
    waiting: Option<Order>,
}

impl ManifestKeeper {
    pub(super) fn new(manifests: Manifests, uid: String) -> Self {
        Self { manifests, uid, writing: None, waiting: None }
    }

    /// Keeps this object, with what is granted to it, after what is being written.
    pub(super) fn keep(&mut self, pod: Arc<Pod>, grant: Option<Grant>, record: &PodRecord) {
        let grant = grant.or_else(|| self.waiting.take().and_then(|order| order.grant));
        self.waiting = Some(Order { pod, grant });
        self.write_next(record);
    }

    /// The end of a write; never if there is none.
    pub(super) async fn next(&mut self) -> Kept {
        let Some((write, _)) = &mut self.writing else { return std::future::pending().await };
        let result = write.await;
        let grant = self.writing.take().and_then(|(_, grant)| grant);
        Kept { grant, result }
    }

    /// The end of a write, unless what could not be granted by it may be by the next.
    pub(super) fn settled(&mut self, kept: Kept) -> Option<Kept> {
        match (&mut self.waiting, kept) {
            (Some(order @ Order { grant: None, .. }), Kept { grant: Some(grant), result: Err(_) }) => {
                order.grant = Some(grant);
                None
            }
            (_, kept) => Some(kept),
        }
    }

    /// Begins what waits, once the record has learned how the last write ended.
    pub(super) fn write_next(&mut self, record: &PodRecord) {
        if self.writing.is_some() {
            return;
        }
        let Some(Order { pod, grant }) = self.waiting.take() else { return };
        let kept = match &grant {
            Some(grant) => with_granted(&pod, &granted_by(&grant.pod)),
            None => record.as_granted(&pod),
        };
        let (manifests, uid) = (self.manifests.clone(), self.uid.clone());
        self.writing = Some((async move { manifests.keep(&uid, &kept).await }.boxed(), grant));
    }

    /// Ends when nothing is being written; what waits is not begun any more.
    pub(super) async fn stop(&mut self) {
        self.waiting = None;
        if let Some((write, _)) = self.writing.take() {
            // Whatever became of it: it is about to be removed.
            let _ = write.await;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use lifecycle::PodWorker;
    use serde_json::json;
    use tokio::sync::oneshot;

    use super::*;
    use crate::files::Files;
    use crate::memory_volumes::MemoryVolumes;
    use reading::pod_spec;

    fn pod(image: &str, cpu: &str) -> Arc<Pod> {
        let app = json!({ "name": "app", "image": image, "resources": { "requests": { "cpu": cpu } } });
        Arc::new(serde_json::from_value(json!({ "metadata": {}, "spec": { "containers": [app] } })).unwrap())
    }

    /// The image and the processor in the manifest.
    fn read(pod: &Pod) -> (String, String) {
        let app = &pod.spec.as_ref().unwrap().containers[0];
        let requests = app.resources.as_ref().unwrap().requests.as_ref().unwrap();
        (app.image.clone().unwrap(), requests["cpu"].0.clone())
    }

    async fn keeper() -> (tempfile::TempDir, Manifests, ManifestKeeper, PodRecord) {
        let dir = tempfile::tempdir().unwrap();
        let memory = MemoryVolumes::of_dir(&dir.path().join("memory")).unwrap();
        let manifests = Manifests::open(dir.path(), memory, Files::Threads).await.unwrap();
        let keeper = ManifestKeeper::new(manifests.clone(), "u".to_owned());
        let first = pod("a", "1");
        let worker = PodWorker::new(pod_spec(&first).unwrap());
        (dir, manifests, keeper, PodRecord::new(first, &worker, String::new(), None))
    }

    fn grant(pod: &Arc<Pod>) -> Option<Grant> {
        Some(Grant { pod: Arc::clone(pod), has_begun: true, is_kept: oneshot::channel().0 })
    }

    #[tokio::test]
    async fn manifest_is_written_once_at_a_time_and_the_newest_last() {
        let (_dir, manifests, mut keeper, record) = keeper().await;
        for image in ["b", "c", "d"] {
            keeper.keep(pod(image, "9"), None, &record);
        }
        let mut written = Vec::new();
        while keeper.writing.is_some() {
            let kept = keeper.next().await;
            assert!(keeper.settled(kept).unwrap().result.is_ok());
            written.push(read(&manifests.recall("u").await.unwrap()));
            keeper.write_next(&record);
        }
        let kept = |image: &str| (image.to_owned(), "1".to_owned());
        assert_eq!(written, [kept("b"), kept("d")], "with what was granted, whatever is asked for");
    }

    #[tokio::test]
    async fn grant_that_could_not_be_kept_is_kept_with_the_next_change() {
        let (dir, manifests, mut keeper, record) = keeper().await;
        // A file where a folder should be.
        let in_the_way = dir.path().join("pods/u");
        std::fs::write(&in_the_way, "").unwrap();
        let asks = pod("a", "2");
        keeper.keep(Arc::clone(&asks), grant(&asks), &record);
        keeper.keep(pod("b", "3"), None, &record);
        let kept = keeper.next().await;
        assert!(kept.result.is_err() && keeper.settled(kept).is_none(), "nothing is settled yet");
        std::fs::remove_file(&in_the_way).unwrap();
        keeper.write_next(&record);
        let kept = keeper.next().await;
        let settled = keeper.settled(kept).unwrap();
        assert!(settled.result.is_ok() && settled.grant.is_some());
        assert_eq!(read(&manifests.recall("u").await.unwrap()), ("b".to_owned(), "2".to_owned()));
        std::fs::remove_dir_all(&in_the_way).unwrap();
        std::fs::write(&in_the_way, "").unwrap();
        keeper.keep(Arc::clone(&asks), grant(&asks), &record);
        let kept = keeper.next().await;
        let settled = keeper.settled(kept).unwrap();
        assert!(settled.result.is_err() && settled.grant.is_some(), "the last one that could not be kept is told");
    }
}
