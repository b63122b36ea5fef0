//! Pulls images: asks the registry what a name stands for, fetches the layers that are missing, keeps the image.
//!
//! ```text
//!   name ─▶ endpoints × credentials ─▶ index ─▶ manifest ─▶ configuration
//!                                                  └─▶ layers: download ─▶ unpack   (several at a time)
//!                                                                              └─▶ commit: all or nothing
//! ```
//!
//! A pull is its future: dropping it ends it at once. Whoever wants the same image meanwhile takes turns with it, and
//! finds what it found, or goes on where it was dropped. Layers are shared the same way between different images.

mod layers;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use oci_spec::image::{Descriptor, ImageIndex, ImageManifest};
use tokio::sync::{Semaphore, watch};

use super::config::Document as Configuration;
use super::digest::Digest;
use super::error::{ImageError, caught};
use super::ingest::{Ingest, SharedIngest};
use super::manifest::{self, DOCUMENT_BYTES_MAX, digest_of, json, platform_here, verify};
use super::registry::Patience;
use super::registry::error::FetchError;
use super::registry::session::{Document, Session};
use super::registry::settings::{Endpoint, Settings, SettingsError};
use super::registry::transport::Transport;
use super::single_flight::SingleFlight;
use super::store::{Arrival, GATHERED_MOST, ImageStore};
use crate::contract::image::ImageName;
use crate::contract::image::{Credential, Keyring};
use crate::contract::image::{Image, Origin, Pulled};
use layers::{LayerSlot, WantedLayer};

/// Downloads at a time, of all pulls together. More helps nobody: they share one line and one disk.
const DOWNLOADS_MOST: usize = 6;
/// An index may point to an index; no registry nests deeper than two.
const INDEX_DEPTH_MAX: usize = 4;
/// How often a small question is repeated: whoever asked can do better by asking anew later.
const REPEATS_MOST: u32 = 2;
/// The layers of one image; overlayfs takes no more.
const LAYERS_MOST: usize = 500;

/// Why an image was not pulled.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message of each variant tells what its fields are")]
#[expect(private_interfaces, reason = "causes are told in words, not matched on")]
pub enum PullError {
    /// Nobody could tell what the name stands for.
    #[error("failed to resolve reference {name:?}: {refusals}")]
    Resolve { name: String, refusals: Refusals },
    /// A part of the image did not come.
    #[error("failed to pull image {name:?}: failed to copy {what}")]
    Fetch { name: String, what: String, source: FetchError },
    /// The image is not for this machine.
    #[error("failed to pull image {name:?}: no match for platform {wanted} in manifest; it is for {found}")]
    Platform { name: String, wanted: String, found: String },
    /// What came is not an image we can use, or it cannot be kept.
    #[error("failed to pull and unpack image {name:?}")]
    Image { name: String, source: ImageError },
    /// The settings of this machine do not read.
    #[error("the registry settings cannot be used")]
    Settings { source: SettingsError },
    /// Another pull of the same image failed while we waited for it.
    #[error(transparent)]
    Shared(Arc<PullError>),
}

/// What every endpoint said, the last word last.
#[derive(Debug)]
pub struct Refusals(Vec<(Endpoint, String, FetchError)>);

impl fmt::Display for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (endpoint, name, error)) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("; ")?;
            }
            if self.0.len() > 1 {
                write!(f, "{}: ", endpoint.base.trim_end_matches("/v2"))?;
            }
            if matches!(error, FetchError::NotFound | FetchError::Denied { .. }) {
                write!(f, "{name}: ")?;
            }
            f.write_str(&supervision::error_chain(error))?;
        }
        Ok(())
    }
}

/// How far a pull is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Lowest first; empty until the registry has told them.
    pub layers: Vec<LayerProgress>,
}

/// How far a layer is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LayerProgress {
    /// Its digest in the registry.
    pub digest: String,
    /// Its size there.
    pub size_bytes: u64,
    /// How far it is.
    pub state: LayerState,
}

/// How far a layer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LayerState {
    /// Its turn has not come.
    Waiting,
    /// So much of it is here.
    Downloading {
        #[expect(missing_docs, reason = "told above")]
        done_bytes: u64,
    },
    /// It is here and being unpacked.
    Unpacking,
    /// It is unpacked.
    Done,
    /// It was here already.
    Present,
}

/// Pulls images into a store. Clones share turns and connections.
#[derive(Clone)]
pub struct Puller {
    inner: Arc<Inner>,
}

/// What a pull came to, once it has.
type Outcome = Option<Result<Pulled, Arc<PullError>>>;

struct Inner {
    store: ImageStore,
    settings: PathBuf,
    transport: Transport,
    downloads: Semaphore,
    unpacking: Semaphore,
    /// By name and by the credentials of whoever asks: what one is given is not for everyone.
    images: SingleFlight<(ImageName, Vec<Digest>), Outcome>,
    layers: SingleFlight<Digest, LayerSlot>,
}

impl fmt::Debug for Puller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Puller").field("store", &self.inner.store).finish_non_exhaustive()
    }
}

/// What a registry was found to hold under a name.
struct Resolved<'a> {
    session: Session<'a>,
    /// What the name stands for: an index or a manifest.
    digest: Digest,
    /// The document itself; `None` if its digest alone told that the image is here.
    document: Option<Document>,
}

impl Puller {
    /// Pulls into `store`, as the file `settings` says (`registries.yaml`; it need not exist).
    pub fn new(store: ImageStore, settings: PathBuf, patience: Patience) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            inner: Arc::new(Inner {
                store,
                settings,
                transport: Transport::new(patience),
                downloads: Semaphore::new(DOWNLOADS_MOST),
                unpacking: Semaphore::new(processors),
                images: SingleFlight::default(),
                layers: SingleFlight::default(),
            }),
        }
    }

    /// Makes `name` stand here for what it stands for at its registry, and the image behind it present.
    pub async fn pull(
        &self,
        name: &ImageName,
        keyring: &Keyring,
        progress: &watch::Sender<Progress>,
    ) -> Result<Pulled, PullError> {
        let inner = &self.inner;
        let key = (name.clone(), keyring.lookup(name).iter().map(Credential::fingerprint).collect::<Vec<_>>());
        let turn = inner.images.of(key.clone());
        let mut result = turn.lock().await;
        // Whoever had the turn before us heard the registry while we waited: their answer is ours.
        match &*result {
            Some(Ok(pulled)) => return Ok(pulled.clone()),
            Some(Err(error)) => return Err(PullError::Shared(error.clone())),
            None => {}
        }
        let pulled = inner.pull(name, keyring, progress).await;
        inner.images.close(&key, &turn);
        match pulled {
            Ok(pulled) => {
                *result = Some(Ok(pulled.clone()));
                Ok(pulled)
            }
            Err(error) => {
                let error = Arc::new(error);
                *result = Some(Err(error.clone()));
                Err(PullError::Shared(error))
            }
        }
    }
}

impl Inner {
    async fn pull(
        &self,
        name: &ImageName,
        keyring: &Keyring,
        progress: &watch::Sender<Progress>,
    ) -> Result<Pulled, PullError> {
        let settings = Settings::read(&self.settings).map_err(|source| PullError::Settings { source })?;
        let told = name.to_string();
        let broken = |source| PullError::Image { name: told.clone(), source };
        let resolved = self.resolve(&settings, name, keyring).await?;
        let pinned = name.pinned_to(resolved.digest);
        let origin =
            Origin::Registry { credentials: resolved.session.credential.iter().map(Credential::fingerprint).collect() };
        let names = [name.clone(), pinned.clone()];
        let ingest = self.begin().await.map_err(broken)?;
        let Some(document) = resolved.document else {
            if let Some(image) = self.name_again(&names, &origin, &ingest).await.map_err(broken)? {
                return Ok(Pulled { image, reference: pinned.to_string(), is_new: false });
            }
            // It was removed since we looked: the long way after all.
            let document = self.manifest(&resolved.session, name, resolved.digest).await?;
            return self.gather(&resolved.session, name, &names, &origin, document, ingest, progress).await;
        };
        self.gather(&resolved.session, name, &names, &origin, document, ingest, progress).await
    }

    /// Fetches what is missing of the image behind `document`, and keeps it.
    #[expect(clippy::too_many_arguments, reason = "one call, told apart from its beginning only to fit on a screen")]
    async fn gather(
        &self,
        session: &Session<'_>,
        name: &ImageName,
        names: &[ImageName],
        origin: &Origin,
        document: Document,
        ingest: SharedIngest,
        progress: &watch::Sender<Progress>,
    ) -> Result<Pulled, PullError> {
        let told = name.to_string();
        let broken = |source| PullError::Image { name: told.clone(), source };
        let manifest = self.manifest_for_here(session, name, document).await?;
        let configuration = self.configuration(session, name, manifest.config()).await?;
        let wanted = WantedLayer::of(&manifest, &configuration).map_err(broken)?;
        progress.send_replace(Progress { layers: wanted.iter().map(WantedLayer::waiting).collect() });
        let reference = names.last().unwrap_or(name).to_string();
        for _ in 0..GATHERED_MOST {
            let unpacked = self.layers(session, &told, &wanted, progress).await?;
            let kept = {
                let (store, ingest) = (self.store.clone(), ingest.clone());
                let (names, origin, document) = (names.to_vec(), origin.clone(), configuration.clone());
                let places: Vec<_> = unpacked.iter().map(|layer| layer.ingest.clone()).collect();
                blocking(move || {
                    let places: Vec<&Ingest> = std::iter::once(&ingest).chain(&places).map(|place| &**place).collect();
                    store.commit(&places, &[Arrival { names: &names, origin: &origin, document: &document }])
                })
                .await
                .map_err(broken)?
            };
            if let Some(image) = kept.and_then(|kept| kept.into_iter().next()) {
                for layer in unpacked {
                    layer.forget_download();
                }
                return Ok(Pulled { image, reference, is_new: true });
            }
        }
        Err(broken(ImageError::Broken { why: "its layers are removed as fast as they are unpacked".into() }))
    }

    async fn begin(&self) -> Result<SharedIngest, ImageError> {
        let store = self.store.clone();
        blocking(move || Ingest::begin(store.dir()).map(SharedIngest::new)).await
    }

    /// Asks every endpoint, with every credential we have for it, until one tells what the name stands for.
    async fn resolve<'a>(
        &'a self,
        settings: &'a Settings,
        name: &ImageName,
        keyring: &Keyring,
    ) -> Result<Resolved<'a>, PullError> {
        let known = self.known_digest(name);
        let mut refusals = Vec::new();
        for endpoint in settings.endpoints(name.registry()) {
            let mut credentials = match endpoint.mirror_of {
                // A mirror is someone else: it gets what was meant for it, not what was meant for the registry.
                Some(_) => keyring.lookup_at(&endpoint.host, name.repository()),
                None => keyring.lookup(name),
            };
            let own = settings
                .credential(&endpoint.host)
                .or_else(|| settings.credential(name.registry()).filter(|_| endpoint.mirror_of.is_none()));
            credentials.extend(own.filter(|own| !credentials.contains(own)).cloned());
            let mut tries: Vec<_> = credentials.into_iter().map(Some).collect();
            if tries.is_empty() {
                tries.push(None);
            }
            for credential in tries {
                let session = Session::new(&self.transport, settings, endpoint.clone(), name.repository(), credential);
                match self.ask(&session, name, known).await {
                    Ok((digest, document)) => return Ok(Resolved { session, digest, document }),
                    Err(error) => {
                        let refused = error.is_refusal();
                        refusals.push((endpoint.clone(), name.to_string(), error));
                        if !refused {
                            break;
                        }
                    }
                }
            }
        }
        Err(PullError::Resolve { name: name.to_string(), refusals: Refusals(refusals) })
    }

    /// What the name stands for at one endpoint. An image that is here is recognised by its digest alone.
    async fn ask(
        &self,
        session: &Session<'_>,
        name: &ImageName,
        known: Option<Digest>,
    ) -> Result<(Digest, Option<Document>), FetchError> {
        let reference = name.reference();
        if let Some(known) = known {
            let told = self.patiently(|| session.digest(&reference)).await?;
            if told == Some(known) {
                return Ok((known, None));
            }
        }
        let document = self.patiently(|| session.manifest(&reference)).await?;
        match name.digest() {
            Some(digest) if digest != document.digest => Err(FetchError::Answer {
                url: session.endpoint.base.clone(),
                why: format!("its manifest has the digest {}, not the one it was asked for", document.digest),
            }),
            _ => Ok((document.digest, Some(document))),
        }
    }

    /// The digest that the registry last told for a name whose image is here.
    fn known_digest(&self, name: &ImageName) -> Option<Digest> {
        let image = self.store.find(&name.to_string()).ok()?.image;
        let names = image.names.iter().filter_map(|other| other.parse::<ImageName>().ok());
        let mut digests = names.filter(|other| other.is_same_repository(name)).filter_map(|other| other.digest());
        match name.digest() {
            Some(digest) => digests.find(|known| *known == digest),
            None => digests.next(),
        }
    }

    /// Notes that the registry still gives the name to whoever asked; `None` if the image is not here after all.
    async fn name_again(
        &self,
        names: &[ImageName; 2],
        origin: &Origin,
        ingest: &SharedIngest,
    ) -> Result<Option<Image>, ImageError> {
        let (store, ingest) = (self.store.clone(), ingest.clone());
        let (names, origin) = (names.clone(), origin.clone());
        blocking(move || {
            let Ok(raw) = store.configuration(&names[1].to_string()) else { return Ok(None) };
            let document = Configuration::read(raw)?;
            let kept = store.commit(&[&ingest], &[Arrival { names: &names, origin: &origin, document: &document }])?;
            Ok(kept.and_then(|kept| kept.into_iter().next()))
        })
        .await
    }

    async fn manifest(&self, session: &Session<'_>, name: &ImageName, digest: Digest) -> Result<Document, PullError> {
        let reference = digest.to_string();
        let fetched = self.patiently(|| session.manifest(&reference)).await;
        let document = fetched.map_err(|source| PullError::Fetch {
            name: name.to_string(),
            what: format!("manifest {digest}"),
            source,
        })?;
        verify("a manifest", digest, &document.raw)
            .map_err(|source| PullError::Image { name: name.to_string(), source })?;
        Ok(document)
    }

    /// Follows indexes to the manifest for this machine.
    async fn manifest_for_here(
        &self,
        session: &Session<'_>,
        name: &ImageName,
        mut document: Document,
    ) -> Result<ImageManifest, PullError> {
        let told = name.to_string();
        let broken = |source| PullError::Image { name: told.clone(), source };
        for _ in 0..INDEX_DEPTH_MAX {
            if manifest::is_manifest(&document.media_type) {
                let manifest: ImageManifest = json("its manifest", &document.raw).map_err(broken)?;
                let why = || format!("it is not a container image but {}", manifest.config().media_type());
                return match manifest::is_of_an_image(&manifest) {
                    true => Ok(manifest),
                    false => Err(broken(ImageError::Broken { why: why() })),
                };
            }
            if !manifest::is_index(&document.media_type) {
                let why = format!("its manifest is of a kind that is not supported ({})", document.media_type);
                return Err(broken(ImageError::Broken { why }));
            }
            let index: ImageIndex = json("its index", &document.raw).map_err(broken)?;
            let chosen = manifest::choose(index.manifests()).map_err(|found| PullError::Platform {
                name: told.clone(),
                wanted: platform_here(),
                found: if found.is_empty() { "none".to_owned() } else { found.join(", ") },
            })?;
            let (digest, media_type) = (digest_of(chosen).map_err(broken)?, chosen.media_type().to_string());
            document = self.manifest(session, name, digest).await?;
            // The index is verified, the header of an answer is not.
            document.media_type = media_type;
        }
        Err(broken(ImageError::Broken { why: "its indexes are nested too deeply".into() }))
    }

    async fn configuration(
        &self,
        session: &Session<'_>,
        name: &ImageName,
        descriptor: &Descriptor,
    ) -> Result<Configuration, PullError> {
        let told = name.to_string();
        let broken = |source| PullError::Image { name: told.clone(), source };
        let digest = digest_of(descriptor).map_err(broken)?;
        let size = descriptor.size();
        if size > DOCUMENT_BYTES_MAX {
            let what = "its configuration".to_owned();
            return Err(broken(ImageError::TooLarge { what, limit_bytes: DOCUMENT_BYTES_MAX }));
        }
        let fetch = || async move { session.blob(digest, 0).await?.all(size).await };
        let fetched = self.patiently(fetch).await;
        let raw = fetched.map_err(|source| {
            let what = format!("config {digest}");
            PullError::Fetch { name: told.clone(), what, source }
        })?;
        verify("its configuration", digest, &raw).map_err(broken)?;
        let configuration = Configuration::read(raw).map_err(broken)?;
        match configuration.platform == platform_here() {
            true => Ok(configuration),
            false => Err(PullError::Platform { name: told, wanted: platform_here(), found: configuration.platform }),
        }
    }

    /// Repeats what fails for a moment, with longer and longer pauses.
    async fn patiently<T, F>(&self, mut attempt: impl FnMut() -> F) -> Result<T, FetchError>
    where
        F: Future<Output = Result<T, FetchError>>,
    {
        let patience = self.transport.patience;
        let mut repeat = 0;
        loop {
            match attempt().await {
                Err(error) if repeat < patience.repeats.min(REPEATS_MOST) && error.is_transient(false) => {
                    tracing::debug!(error = &error as &dyn std::error::Error, repeat, "asking the registry again");
                    tokio::time::sleep(patience.pause_before(repeat, error.retry_after())).await;
                    repeat += 1;
                }
                done => return done,
            }
        }
    }
}

/// Runs blocking work off the async threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ImageError> + Send + 'static,
) -> Result<T, ImageError> {
    let done = tokio::task::spawn_blocking(|| caught(work)).await;
    done.unwrap_or_else(|gone| Err(ImageError::Broke { source: gone.into() }))
}
