//! The store: what is kept on disk, and the view of it that answers questions.
//!
//! ```text
//!   blobs/sha256/HEX      configuration documents, byte for byte
//!   layers/HEX/fs         an unpacked layer, shared by all images that have it; HEX is its diff id
//!   layers/HEX/layer.json its size
//!   images/HEX.json       an image that is complete; HEX is the digest of its configuration
//!   names/HEX.json        one name and the image it points to; HEX is the digest of the name
//!   ingest/…              what is on its way in; removed by whoever opens the store next
//! ```
//!
//! A file appears by rename, complete and synced, and an image's record comes last: whatever stands in `images` can
//! be run. Everything is below a directory that only root may enter, since layers hold set-user-id programs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::archive;
use super::config::{Document, ImageConfig};
use super::digest::Digest;
use super::error::ImageError;
use super::incoming::{Incoming, IncomingLayer, Limits};
use super::layer::{self, Allowances};
use super::name::ImageName;
use crate::contract::Image;

/// Two changes closer together than this may carry the same time on a coarse clock.
const CLOCK_STEP_MAX: Duration = Duration::from_millis(100);

/// The images of this machine. Clones share one view.
#[derive(Clone, Debug)]
pub struct ImageStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    limits: Limits,
    view: Mutex<Option<(Stamp, Arc<View>)>>,
}

/// An image that can be run.
#[derive(Clone, Debug)]
pub struct StoredImage {
    /// What the node is told of it.
    pub image: Image,
    /// What its configuration says about the process.
    pub config: ImageConfig,
    /// Unpacked layers, topmost first, as overlayfs wants its lower directories. Empty for an image of no layers.
    pub layers: Vec<PathBuf>,
}

#[derive(Serialize, Deserialize)]
struct ImageRecord {
    id: Digest,
    size_bytes: u64,
}

#[derive(Serialize, Deserialize)]
struct NameRecord {
    name: String,
    id: Digest,
}

#[derive(Serialize, Deserialize)]
struct LayerRecord {
    size_bytes: u64,
}

impl ImageStore {
    /// Opens the store in `dir`, making it if need be, with the usual limits.
    pub fn open(dir: &Path) -> Result<Self, ImageError> {
        Self::open_with(dir, Limits::default())
    }

    /// Opens the store in `dir`, taking images up to `limits`.
    pub fn open_with(dir: &Path, limits: Limits) -> Result<Self, ImageError> {
        for part in ["", "blobs/sha256", "layers", "images", "names", "ingest"] {
            let path = dir.join(part);
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&path)
                .map_err(ImageError::store("create", &path))?;
        }
        let store = Self { inner: Arc::new(Inner { dir: dir.to_owned(), limits, view: Mutex::new(None) }) };
        Ingest::sweep(dir)?;
        Ok(store)
    }

    /// Finds an image by its id or by any of its names, full or short.
    pub fn find(&self, name: &str) -> Result<StoredImage, ImageError> {
        let view = self.view()?;
        let id = match name.parse::<Digest>().ok().or_else(|| Digest::from_hex(name)) {
            Some(id) => Some(id),
            None => view.names.get(&name.parse::<ImageName>()?.to_string()).copied(),
        };
        let found = id.and_then(|id| view.images.get(&id));
        found.cloned().ok_or_else(|| ImageError::Absent { name: name.to_owned() })
    }

    /// All images, by id.
    pub fn list(&self) -> Vec<Image> {
        match self.view() {
            Ok(view) => view.images.values().map(|stored| stored.image.clone()).collect(),
            Err(error) => {
                tracing::error!(%error, "cannot list images");
                Vec::new()
            }
        }
    }

    /// Reads an archive of images to its end and keeps what is in it. Blocks; takes as long as unpacking takes.
    ///
    /// Loading an archive again changes nothing. A name that pointed to another image points to this one afterwards.
    pub fn load(&self, reader: impl Read) -> Result<Vec<Image>, ImageError> {
        let ingest = Ingest::begin(&self.inner.dir)?;
        let archive = archive::spool(reader, &ingest.path.join("archive"), self.inner.limits.bytes_max)?;
        self.keep(&ingest, &archive.images()?)
    }

    /// Keeps images wherever they come from: layers first, records last.
    fn keep(&self, ingest: &Ingest, images: &[Incoming]) -> Result<Vec<Image>, ImageError> {
        self.unpack_missing(ingest, images)?;
        let lock = lock(&self.inner.dir)?;
        for image in images {
            self.record(ingest, image)?;
        }
        drop(lock);
        self.forget_view();
        let view = self.view()?;
        let mut told = BTreeSet::new();
        let ids = images.iter().map(|image| image.document.id).filter(|id| told.insert(*id));
        ids.map(|id| {
            let found = view.images.get(&id).map(|stored| stored.image.clone());
            found.ok_or_else(|| ImageError::Absent { name: id.to_string() })
        })
        .collect()
    }

    /// Unpacks the layers that are not here yet, as many at a time as there are processors.
    fn unpack_missing(&self, ingest: &Ingest, images: &[Incoming]) -> Result<(), ImageError> {
        let missing: BTreeMap<Digest, &IncomingLayer> = images
            .iter()
            .flat_map(|image| &image.layers)
            .filter(|layer| !self.layer_dir(layer.diff_id).join("layer.json").exists())
            .map(|layer| (layer.diff_id, layer))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let missing: Vec<&IncomingLayer> = missing.into_values().collect();
        let allowances = Allowances::new(self.inner.limits);
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(layer) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(error) = unpack_one(ingest, layer, &allowances) {
                    // The others need not start what will be thrown away.
                    next.store(missing.len(), Ordering::Relaxed);
                    return Err(error);
                }
            }
            Ok(())
        };
        let workers = std::thread::available_parallelism().map_or(1, usize::from).min(missing.len());
        std::thread::scope(|scope| {
            let started: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            started.into_iter().try_for_each(|worker| worker.join().expect("unpacking does not panic"))
        })?;
        // A layer is thousands of files; one sync of the file system is far cheaper than one of each.
        let whole = File::open(&ingest.path).map_err(ImageError::store("open", &ingest.path))?;
        rustix::fs::syncfs(&whole).map_err(|error| ImageError::store("sync", &ingest.path)(error.into()))?;
        for layer in missing {
            let to = self.layer_dir(layer.diff_id);
            if let Err(error) = fs::rename(ingest.layer(layer.diff_id), &to) {
                // Another load brought the same layer meanwhile.
                if !to.join("layer.json").exists() {
                    return Err(ImageError::store("create", &to)(error));
                }
            }
        }
        sync_dir(&self.inner.dir.join("layers"))
    }

    fn record(&self, ingest: &Ingest, image: &Incoming) -> Result<(), ImageError> {
        let dir = &self.inner.dir;
        let id = image.document.id;
        let known = View::read(dir)?;
        if !known.images.contains_key(&id) {
            ingest.write(&blob_path(dir, id), &image.document.raw)?;
            let mut size_bytes = 0;
            for layer in &image.layers {
                let path = self.layer_dir(layer.diff_id).join("layer.json");
                size_bytes += read_json::<LayerRecord>(&path)?.size_bytes;
            }
            let path = dir.join("images").join(id.hex()).with_extension("json");
            ingest.write_json(&path, &ImageRecord { id, size_bytes })?;
        }
        for name in image.names.iter().map(ToString::to_string) {
            if known.names.get(&name) != Some(&id) {
                let path = dir.join("names").join(Digest::of(name.as_bytes()).hex()).with_extension("json");
                ingest.write_json(&path, &NameRecord { name, id })?;
            }
        }
        Ok(())
    }

    fn layer_dir(&self, diff_id: Digest) -> PathBuf {
        self.inner.dir.join("layers").join(diff_id.hex())
    }

    /// What is on disk, read again only when it changed: another process may load into the same store.
    fn view(&self) -> Result<Arc<View>, ImageError> {
        let stamp = Stamp::of(&self.inner.dir)?;
        let mut kept = self.inner.view.lock().unwrap_or_else(PoisonError::into_inner);
        match kept.as_ref() {
            Some((seen, view)) if *seen == stamp && stamp.is_settled() => Ok(view.clone()),
            _ => {
                let view = Arc::new(View::read(&self.inner.dir)?);
                // A view read right after a change may miss the next one with the same time: it is not kept.
                *kept = stamp.is_settled().then(|| (stamp, view.clone()));
                Ok(view)
            }
        }
    }

    fn forget_view(&self) {
        *self.inner.view.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn unpack_one(ingest: &Ingest, layer: &IncomingLayer, allowances: &Allowances) -> Result<(), ImageError> {
    let dir = ingest.layer(layer.diff_id);
    let files = dir.join("fs");
    fs::DirBuilder::new().mode(0o700).create(&dir).map_err(ImageError::store("create", &dir))?;
    fs::DirBuilder::new().mode(0o755).create(&files).map_err(ImageError::store("create", &files))?;
    let size_bytes = layer::unpack(layer, &files, allowances)?;
    ingest.write_json(&dir.join("layer.json"), &LayerRecord { size_bytes })
}

/// Everything the records say, with what is damaged left out.
#[derive(Debug)]
struct View {
    images: BTreeMap<Digest, StoredImage>,
    names: BTreeMap<String, Digest>,
}

impl View {
    fn read(dir: &Path) -> Result<Self, ImageError> {
        let mut view = Self { images: BTreeMap::new(), names: BTreeMap::new() };
        for record in records::<ImageRecord>(&dir.join("images"))? {
            match stored_image(dir, &record) {
                Ok(stored) => _ = view.images.insert(record.id, stored),
                Err(why) => tracing::warn!(image = %record.id, why, "image is damaged; load it again"),
            }
        }
        for NameRecord { name, id } in records::<NameRecord>(&dir.join("names"))? {
            if let Some(stored) = view.images.get_mut(&id) {
                stored.image.names.push(name.clone());
                stored.image.names.sort();
                view.names.insert(name, id);
            }
        }
        Ok(view)
    }
}

fn stored_image(dir: &Path, record: &ImageRecord) -> Result<StoredImage, String> {
    let raw = fs::read(blob_path(dir, record.id)).map_err(|error| format!("its configuration: {error}"))?;
    let document = Document::read(raw).map_err(|error| error.to_string())?;
    if document.id != record.id {
        return Err("its configuration has another digest".into());
    }
    let layers: Vec<PathBuf> =
        document.diff_ids.iter().rev().map(|layer| dir.join("layers").join(layer.hex()).join("fs")).collect();
    if let Some(missing) = layers.iter().find(|layer| !layer.is_dir()) {
        return Err(format!("layer {} is missing", missing.display()));
    }
    let config = document.config;
    let image = Image {
        id: record.id.to_string(),
        names: Vec::new(),
        size_bytes: record.size_bytes,
        stop_signal: config.stop_signal,
        user: config.user.clone(),
        env: config.env.iter().cloned().collect(),
    };
    Ok(StoredImage { image, config, layers })
}

/// The records in a directory; those that do not read are passed over with a warning.
fn records<T: serde::de::DeserializeOwned>(dir: &Path) -> Result<Vec<T>, ImageError> {
    let read = |error| ImageError::store("read", dir)(error);
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(read)? {
        match read_json(&entry.map_err(read)?.path()) {
            Ok(record) => found.push(record),
            Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "record passed over"),
        }
    }
    Ok(found)
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, ImageError> {
    let raw = fs::read(path).map_err(ImageError::store("read", path))?;
    serde_json::from_slice(&raw).map_err(|error| ImageError::store("read", path)(error.into()))
}

fn blob_path(dir: &Path, digest: Digest) -> PathBuf {
    dir.join("blobs/sha256").join(digest.hex())
}

/// When the records last changed. A rename into a directory changes the time of that directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp {
    images: SystemTime,
    names: SystemTime,
}

impl Stamp {
    fn of(dir: &Path) -> Result<Self, ImageError> {
        let changed = |part: &str| {
            let path = dir.join(part);
            fs::metadata(&path).and_then(|meta| meta.modified()).map_err(ImageError::store("read", path))
        };
        Ok(Self { images: changed("images")?, names: changed("names")? })
    }

    /// Whether the next change is sure to carry another time.
    fn is_settled(&self) -> bool {
        let last = self.images.max(self.names);
        SystemTime::now().duration_since(last).is_ok_and(|age| age > CLOCK_STEP_MAX)
    }
}

/// A private place for one load. What is left in it when the load ends, well or not, is removed.
struct Ingest {
    path: PathBuf,
    temporary: AtomicUsize,
    /// Held while the load lives, so that nobody takes the place for a leftover.
    _claim: File,
}

impl Ingest {
    fn begin(dir: &Path) -> Result<Self, ImageError> {
        let _lock = lock(dir)?;
        for number in 0_u32.. {
            let path = dir.join("ingest").join(number.to_string());
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(ImageError::store("create", path)(error)),
                Ok(()) => {
                    let claim = File::open(&path).map_err(ImageError::store("open", &path))?;
                    claim.lock().map_err(ImageError::store("lock", &path))?;
                    return Ok(Self { path, temporary: AtomicUsize::new(0), _claim: claim });
                }
            }
        }
        unreachable!("a directory does not hold four thousand million entries")
    }

    /// Removes what loads that did not live to clean up left behind.
    fn sweep(dir: &Path) -> Result<(), ImageError> {
        let _lock = lock(dir)?;
        let ingest = dir.join("ingest");
        for entry in fs::read_dir(&ingest).map_err(ImageError::store("read", &ingest))? {
            let path = entry.map_err(ImageError::store("read", &ingest))?.path();
            let claim = File::open(&path).map_err(ImageError::store("open", &path))?;
            if claim.try_lock().is_ok() {
                fs::remove_dir_all(&path).map_err(ImageError::store("remove", &path))?;
            }
        }
        Ok(())
    }

    fn layer(&self, diff_id: Digest) -> PathBuf {
        self.path.join(diff_id.hex())
    }

    fn write_json(&self, path: &Path, record: &impl Serialize) -> Result<(), ImageError> {
        let text = serde_json::to_vec(record).map_err(|error| ImageError::store("write", path)(error.into()))?;
        self.write(path, &text)
    }

    /// Makes a file appear at `path`, complete and synced.
    fn write(&self, path: &Path, content: &[u8]) -> Result<(), ImageError> {
        let temporary = self.path.join(format!("file-{}", self.temporary.fetch_add(1, Ordering::Relaxed)));
        let mut file = File::create_new(&temporary).map_err(ImageError::store("create", &temporary))?;
        std::io::Write::write_all(&mut file, content)
            .and_then(|()| file.sync_all())
            .map_err(ImageError::store("write", &temporary))?;
        fs::rename(&temporary, path).map_err(ImageError::store("create", path))?;
        sync_dir(path.parent().unwrap_or(Path::new("/")))
    }
}

impl Drop for Ingest {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "leftovers of a load stay until the store is opened again");
        }
    }
}

/// Keeps everyone else, in this process or another, from changing records until it is dropped.
fn lock(dir: &Path) -> Result<File, ImageError> {
    let path = dir.join("lock");
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(ImageError::store("open", &path))?;
    file.lock().map_err(ImageError::store("lock", &path))?;
    Ok(file)
}

fn sync_dir(path: &Path) -> Result<(), ImageError> {
    File::open(path).and_then(|dir| dir.sync_all()).map_err(ImageError::store("sync", path))
}
