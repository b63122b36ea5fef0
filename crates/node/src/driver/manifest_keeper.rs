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
