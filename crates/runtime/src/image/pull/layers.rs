//! The layers of an image: downloaded and unpacked several at a time, each once however many pulls want it.

use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use futures::{StreamExt as _, TryStreamExt as _};
use http::StatusCode;
use http::header::CONTENT_RANGE;
use oci_spec::image::ImageManifest;
use tokio::sync::{oneshot, watch};

use super::super::config::Document as Configuration;
use super::super::digest::Digest;
use super::super::download::{Download, Writer, Written};
use super::super::error::ImageError;
use super::super::incoming::{IncomingLayer, Section};
use super::super::ingest::SharedIngest;
use super::super::manifest::digest_of;
use super::super::registry::error::FetchError;
use super::super::registry::session::Session;
use super::super::registry::transport::Answer;
use super::super::single_flight::Slot;
use super::super::unpacker::Allowances;
use super::{Inner, LAYERS_MOST, LayerProgress, LayerState, Progress, PullError, blocking};

/// Layers of one image that are fetched at a time.
const AT_A_TIME: usize = 3;

/// A layer as the manifest and the configuration describe it together.
#[derive(Clone, Copy, Debug)]
pub(super) struct WantedLayer {
    blob: Digest,
    size: u64,
    diff_id: Digest,
}

impl WantedLayer {
    /// The layers of an image, lowest first.
    pub(super) fn of(manifest: &ImageManifest, configuration: &Configuration) -> Result<Vec<Self>, ImageError> {
        let (layers, diff_ids) = (manifest.layers(), &configuration.diff_ids);
        if layers.len() != diff_ids.len() {
            let why = format!("it has {} layers where its configuration has {}", layers.len(), diff_ids.len());
            return Err(ImageError::Broken { why });
        }
        if layers.len() > LAYERS_MOST {
            return Err(ImageError::Broken { why: format!("it has more than {LAYERS_MOST} layers") });
        }
        let pairs = layers.iter().zip(diff_ids);
        pairs
            .map(|(layer, diff_id)| Ok(Self { blob: digest_of(layer)?, size: layer.size(), diff_id: *diff_id }))
            .collect()
    }

    pub(super) fn waiting(&self) -> LayerProgress {
        LayerProgress { digest: self.blob.to_string(), size_bytes: self.size, state: LayerState::Waiting }
    }
}

/// What those who want the same layer leave for each other.
#[derive(Default)]
pub(super) struct LayerSlot {
    /// Unpacked and not yet in the store.
    unpacked: Weak<Unpacked>,
    /// Ends when the threads that worked for a pull that was dropped have let go of the download.
    busy: Option<oneshot::Receiver<()>>,
}

/// A layer that is unpacked, in a place of its own, until a commit takes it into the store.
pub(super) struct Unpacked {
    pub(super) ingest: SharedIngest,
    download: Mutex<Option<Download>>,
    /// Keeps the turn alive, so that others find this here.
    _turn: Arc<Slot<LayerSlot>>,
}

impl Unpacked {
    /// The layer is in the store; its download has served.
    pub(super) fn forget_download(&self) {
        if let Some(download) = self.download.lock().unwrap_or_else(PoisonError::into_inner).take() {
            download.discard();
        }
    }
}

/// Held by every thread that works on a download: the turn stays known, and the next one can wait for the end.
struct Busy {
    _turn: Arc<Slot<LayerSlot>>,
    _tell: oneshot::Sender<()>,
}

/// Whatever ends a pull also ends the threads that unpack for it.
struct GivesUp(Arc<Allowances>);

impl Drop for GivesUp {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

impl Inner {
    /// Makes every layer present: in the store, or unpacked and in the answer.
    pub(super) async fn layers(
        &self,
        session: &Session<'_>,
        image: &str,
        wanted: &[WantedLayer],
        progress: &watch::Sender<Progress>,
    ) -> Result<Vec<Arc<Unpacked>>, PullError> {
        let allowances = Allowances::new(self.store.limits()).map_err(|error| PullError::Image {
            name: image.to_owned(),
            source: ImageError::store("watch", self.store.dir())(error),
        })?;
        let allowances = Arc::new(allowances);
        let _threads_end_with_us = GivesUp(allowances.clone());
        let wanted: Vec<(usize, WantedLayer)> = wanted.iter().copied().enumerate().collect();
        let all = futures::stream::iter(wanted).map(|(number, layer)| {
            let allowances = allowances.clone();
            let tell = move |state| {
                progress.send_modify(|progress| {
                    progress.layers.get_mut(number).into_iter().for_each(|layer| layer.state = state);
                });
            };
            async move { self.layer(session, image, layer, allowances, &tell).await }
        });
        let found: Vec<Option<Arc<Unpacked>>> = all.buffer_unordered(AT_A_TIME).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// `None` if the layer is in the store.
    async fn layer(
        &self,
        session: &Session<'_>,
        image: &str,
        wanted: WantedLayer,
        allowances: Arc<Allowances>,
        tell: &(impl Fn(LayerState) + Sync),
    ) -> Result<Option<Arc<Unpacked>>, PullError> {
        let broken = |source| PullError::Image { name: image.to_owned(), source };
        let turn = self.layers.of(wanted.diff_id);
        let mut mine = turn.lock().await;
        if self.store.has_layer(wanted.diff_id) {
            tell(LayerState::Present);
            return Ok(None);
        }
        // What was unpacked may have been taken into the store, and removed from there since.
        if let Some(unpacked) = mine.unpacked.upgrade().filter(|found| found.ingest.has_layer(wanted.diff_id)) {
            tell(LayerState::Done);
            return Ok(Some(unpacked));
        }
        if let Some(busy) = mine.busy.take() {
            // Its sender is dropped, never used: either way it is over.
            let _ = busy.await;
        }
        let (told, busy) = oneshot::channel();
        mine.busy = Some(busy);
        let busy = Arc::new(Busy { _turn: turn.clone(), _tell: told });
        let ingest = self.begin().await.map_err(broken)?;
        let download = self.download(session, image, wanted, &ingest, busy.clone(), tell).await?;
        tell(LayerState::Unpacking);
        let permit = self.unpacking.acquire().await.expect("never closed");
        let file: Arc<File> = Arc::new(
            download.file.try_clone().map_err(|error| broken(ImageError::store("open", ingest.path.clone())(error)))?,
        );
        let blob = Section::new(file, 0, wanted.size);
        // Its digest was checked as it came, and what is unpacked is checked against the diff id.
        let layer = IncomingLayer { diff_id: wanted.diff_id, blob_digest: None, blob };
        let (store, place) = (self.store.clone(), ingest.clone());
        let download = blocking(move || {
            let _busy = busy;
            store.unpack_one(&place, &layer, &allowances).map(|()| download)
        })
        .await
        .map_err(broken)?;
        drop(permit);
        let unpacked = Arc::new(Unpacked { ingest, download: Mutex::new(Some(download)), _turn: turn.clone() });
        tell(LayerState::Done);
        mine.unpacked = Arc::downgrade(&unpacked);
        Ok(Some(unpacked))
    }

    /// Brings the whole blob here, verified.
    async fn download(
        &self,
        session: &Session<'_>,
        image: &str,
        wanted: WantedLayer,
        ingest: &SharedIngest,
        busy: Arc<Busy>,
        tell: &(impl Fn(LayerState) + Sync),
    ) -> Result<Download, PullError> {
        let broken = |source| PullError::Image { name: image.to_owned(), source };
        let limit_bytes = self.store.limits().bytes_max;
        if wanted.size > limit_bytes {
            return Err(broken(ImageError::TooLarge { what: format!("layer {}", wanted.blob), limit_bytes }));
        }
        let _permit = self.downloads.acquire().await.expect("never closed");
        // What an earlier pull left may be damaged; then everything is fetched once more, from the start.
        let mut from_scratch = false;
        loop {
            let (store, private) = (self.store.clone(), ingest.clone());
            let opened = blocking(move || Download::open(store.dir(), &private.path, wanted.blob)).await;
            let opened = opened.map_err(broken)?;
            let started = Writer::start(opened, wanted.size, (busy.clone(), ingest.clone())).await;
            let (writer, mut have) = started.map_err(broken)?;
            let resumed = have > 0 && !from_scratch;
            if from_scratch && have > 0 {
                writer.start_over().await;
                have = 0;
            }
            let fetched = self.fetch(session, wanted, &writer, have, tell).await;
            let Written { download, digest, length, .. } = writer.finish().await.map_err(broken)?;
            fetched.map_err(|source| PullError::Fetch {
                name: image.to_owned(),
                what: format!("layer {}", wanted.blob),
                source,
            })?;
            if digest == wanted.blob && length == wanted.size {
                return Ok(download);
            }
            download.discard();
            if !resumed {
                let what = format!("layer {}", wanted.blob);
                return Err(broken(ImageError::Mismatch { what, expected: wanted.blob, got: digest }));
            }
            tracing::debug!(layer = %wanted.blob, "the beginning of a download is damaged; fetching it again");
            from_scratch = true;
        }
    }

    /// Fetches the rest of a blob, going on where a broken connection left off.
    async fn fetch(
        &self,
        session: &Session<'_>,
        wanted: WantedLayer,
        writer: &Writer,
        mut have: u64,
        tell: &(impl Fn(LayerState) + Sync),
    ) -> Result<(), FetchError> {
        let patience = self.transport.patience;
        let mut repeat = 0;
        tell(LayerState::Downloading { done_bytes: have });
        while have < wanted.size {
            let before = have;
            let Err(error) = fetch_some(session, wanted, writer, &mut have, tell).await else { continue };
            if have > before {
                repeat = 0;
            }
            if repeat == patience.repeats || !error.is_transient(true) {
                return Err(error);
            }
            tracing::debug!(error = &error as &dyn std::error::Error, have, "going on with a download");
            tokio::time::sleep(patience.pause_before(repeat, error.retry_after())).await;
            repeat += 1;
        }
        Ok(())
    }
}

async fn fetch_some(
    session: &Session<'_>,
    wanted: WantedLayer,
    writer: &Writer,
    have: &mut u64,
    tell: &(impl Fn(LayerState) + Sync),
) -> Result<(), FetchError> {
    let mut answer = session.blob(wanted.blob, *have).await?;
    // A registry that cannot go on in the middle sends everything, or refuses.
    if *have > 0 && !goes_on_at(&answer, *have) {
        *have = 0;
        if !writer.start_over().await {
            *have = wanted.size;
            return Ok(());
        }
        if answer.status != StatusCode::OK {
            answer = session.blob(wanted.blob, 0).await?;
        }
    }
    if !matches!(answer.status, StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
        return Err(answer.unusable(format!("it is {}", answer.status)));
    }
    while let Some(bytes) = answer.next().await? {
        if *have + bytes.len() as u64 > wanted.size {
            return Err(answer.unusable(format!("it is longer than the {} bytes it should be", wanted.size)));
        }
        *have += bytes.len() as u64;
        if !writer.write(bytes).await {
            // The disk refused; the writer knows why, and nothing more is asked for.
            *have = wanted.size;
            return Ok(());
        }
        tell(LayerState::Downloading { done_bytes: *have });
    }
    match *have == wanted.size {
        true => Ok(()),
        false => Err(answer.short(*have, wanted.size)),
    }
}

fn goes_on_at(answer: &Answer, from: u64) -> bool {
    let range = answer.headers.get(CONTENT_RANGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let start =
        range.strip_prefix("bytes ").and_then(|rest| rest.split('-').next()).and_then(|start| start.parse().ok());
    answer.status == StatusCode::PARTIAL_CONTENT && start == Some(from)
}
