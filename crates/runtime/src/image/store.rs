//! The store: what is kept on disk, and the view of it that answers questions.
//!
//! ```text
//!   blobs/sha256/HEX      configuration documents, byte for byte
//!   layers/HEX/fs         an unpacked layer, shared by all images that have it; HEX is its diff id
//!   layers/HEX/layer.json its size
//!   images/HEX.json       an image that is complete; HEX is the digest of its configuration
//!   names/HEX.json        one name and the image it points to; HEX is the digest of the name
//!   downloads/HEX         a layer as far as it has come from its registry; HEX is its digest there
//!   ingest/…              what is on its way in; removed by whoever opens the store next
//! ```
//!
//! A file appears by rename, complete and synced, and an image's record comes last: whatever stands in `images` can
//! be run. Everything is below a directory that only root may enter, since layers hold set-user-id programs.
//! Layers become part of the store in the same step as the record that needs them, so that whoever removes what no
//! record needs (see `garbage`) can never take a layer away from an image on its way in.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use super::archive;
use super::config::Document;
use super::digest::Digest;
use super::download;
use super::error::ImageError;
use super::incoming::{Incoming, IncomingLayer, Limits};
use super::ingest::{self, Ingest};
use super::unpacker::{Allowances, Unpacker};
use super::view::{
    ImageRecord, LayerRecord, NameRecord, Stamp, StoredImage, View, blob_path, image_record, layer_dir, name_record,
    read_json,
};
use crate::contract::image::ImageName;
use crate::contract::image::{Image, Origin};

/// How often an image is gathered again because layers it counted on were removed meanwhile.
pub(super) const GATHERED_MOST: usize = 5;

/// The images of this machine. Clones share one view.
#[derive(Clone, Debug)]
pub struct ImageStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    limits: Limits,
    unpacker: Unpacker,
    view: Mutex<Option<(Stamp, Arc<View>)>>,
}

/// An image that someone is about to use; it is not removed while this lives.
#[derive(Debug)]
pub(crate) struct Using {
    pub(crate) stored: StoredImage,
    _lock: File,
}

/// An image and its names, ready to be recorded.
pub(super) struct Arrival<'a> {
    pub(super) names: &'a [ImageName],
    pub(super) origin: &'a Origin,
    pub(super) document: &'a Document,
}

impl ImageStore {
    /// Opens the store in `dir`, making it if need be, with the usual limits. `program` is one that
    /// [`run_if_asked`](crate::run_if_asked) comes first in: it unpacks layers, in a process of its own.
    pub fn open(dir: &Path, program: &Path) -> Result<Self, ImageError> {
        Self::open_with(dir, program, Limits::default())
    }

    /// Opens the store in `dir`, taking images up to `limits`.
    pub fn open_with(dir: &Path, program: &Path, limits: Limits) -> Result<Self, ImageError> {
        for part in ["", "blobs/sha256", "layers", "images", "names", "downloads", "ingest"] {
            let path = dir.join(part);
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&path)
                .map_err(ImageError::store("create", &path))?;
        }
        let unpacker = Unpacker::new(program);
        let store = Self { inner: Arc::new(Inner { dir: dir.to_owned(), limits, unpacker, view: Mutex::new(None) }) };
        Ingest::sweep(dir)?;
        download::sweep(dir, download::KEPT)?;
        Ok(store)
    }

    /// Finds an image by its id or by any of its names, full or short.
    pub fn find(&self, name: &str) -> Result<StoredImage, ImageError> {
        self.find_with_origin(name).map(|(stored, _)| stored)
    }

    /// Finds an image as [`Self::find`] does, and where it came from. What is named by its id is nobody's secret.
    pub fn find_with_origin(&self, name: &str) -> Result<(StoredImage, Origin), ImageError> {
        let view = self.view()?;
        let (id, origin) = match name.parse::<Digest>().ok().or_else(|| Digest::from_hex(name)) {
            Some(id) => (Some(id), Origin::Archive),
            None => match view.names.get(&name.parse::<ImageName>()?.to_string()) {
                Some(named) => (Some(named.id), named.origin.clone()),
                None => (None, Origin::Archive),
            },
        };
        let found = id.and_then(|id| view.images.get(&id));
        found.map(|stored| (stored.clone(), origin)).ok_or_else(|| ImageError::Absent { name: name.to_owned() })
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

    /// The configuration document of an image, as it was written.
    pub fn configuration(&self, name: &str) -> Result<Vec<u8>, ImageError> {
        let id = self
            .find(name)?
            .image
            .id
            .parse::<Digest>()
            .map_err(|error| ImageError::Broken { why: error.to_string() })?;
        let path = blob_path(self.dir(), id);
        fs::read(&path).map_err(ImageError::store("read", path))
    }

    /// Reads an archive of images to its end and keeps what is in it. Blocks; takes as long as unpacking takes.
    ///
    /// Loading an archive again changes nothing. A name that pointed to another image points to this one afterwards.
    pub fn load(&self, reader: impl Read) -> Result<Vec<Image>, ImageError> {
        let ingest = Ingest::begin(self.dir())?;
        let archive = archive::spool(reader, &ingest.path.join("archive"), self.inner.limits.bytes_max)?;
        self.keep(&ingest, &archive.images()?)
    }

    /// Keeps the images of an OCI layout in a directory, as [`Self::load`] does those of an archive.
    pub fn load_layout(&self, layout: &Path) -> Result<Vec<Image>, ImageError> {
        let ingest = Ingest::begin(self.dir())?;
        self.keep(&ingest, &archive::layout(layout)?.images()?)
    }

    /// Finds an image and keeps it from being removed until the answer is dropped.
    pub(crate) fn begin_use(&self, name: &str) -> Result<Using, ImageError> {
        let lock = ingest::lock_uses(self.dir())?;
        let stored = self.find(name)?;
        if let Ok(id) = stored.image.id.parse() {
            // Whoever looks for what nobody needs goes by this time; the image runs without it.
            let touched =
                File::open(image_record(self.dir(), id)).and_then(|file| file.set_modified(SystemTime::now()));
            touched.unwrap_or_else(|error| tracing::warn!(%error, "the use of an image is not noted"));
        }
        Ok(Using { stored, _lock: lock })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.inner.dir
    }

    pub(super) fn limits(&self) -> Limits {
        self.inner.limits
    }

    pub(super) fn has_layer(&self, diff_id: Digest) -> bool {
        layer_dir(self.dir(), diff_id).join("layer.json").exists()
    }

    /// Keeps images of an archive: layers first, records last.
    fn keep(&self, ingest: &Ingest, images: &[Incoming]) -> Result<Vec<Image>, ImageError> {
        let arrivals: Vec<_> = images
            .iter()
            .map(|image| Arrival { names: &image.names, origin: &Origin::Archive, document: &image.document })
            .collect();
        for _ in 0..GATHERED_MOST {
            self.unpack_missing(ingest, images)?;
            if let Some(kept) = self.commit(&[ingest], &arrivals)? {
                return Ok(kept);
            }
        }
        Err(ImageError::Broken { why: "its layers are removed as fast as they are unpacked".into() })
    }

    /// Makes unpacked layers part of the store and records the images that need them. `None` if a layer that was in
    /// the store was removed since: gather again.
    pub(super) fn commit(
        &self,
        ingests: &[&Ingest],
        arrivals: &[Arrival<'_>],
    ) -> Result<Option<Vec<Image>>, ImageError> {
        let Some(first) = ingests.first() else { return Ok(None) };
        first.sync()?;
        let lock = ingest::lock(self.dir())?;
        let needed: BTreeSet<Digest> = arrivals.iter().flat_map(|arrival| arrival.document.diff_ids.clone()).collect();
        let mut moves = Vec::new();
        for diff_id in needed.into_iter().filter(|diff_id| !self.has_layer(*diff_id)) {
            match ingests.iter().find(|ingest| ingest.has_layer(diff_id)) {
                Some(ingest) => moves.push((ingest.layer(diff_id), layer_dir(self.dir(), diff_id))),
                None => return Ok(None),
            }
        }
        for (from, to) in moves {
            fs::rename(from, &to).map_err(ImageError::store("create", &to))?;
        }
        ingest::sync_dir(&self.dir().join("layers"))?;
        for arrival in arrivals {
            self.record(first, arrival)?;
        }
        self.forget_view();
        // Still locked: a moment later someone may remove it again.
        let view = View::read(self.dir())?;
        drop(lock);
        let mut told = BTreeSet::new();
        let ids = arrivals.iter().map(|arrival| arrival.document.id).filter(|id| told.insert(*id));
        let kept = ids.map(|id| {
            let found = view.images.get(&id).map(|stored| stored.image.clone());
            found.ok_or_else(|| ImageError::Absent { name: id.to_string() })
        });
        kept.collect::<Result<_, _>>().map(Some)
    }

    /// Unpacks the layers that are not here yet, as many at a time as there are processors.
    fn unpack_missing(&self, ingest: &Ingest, images: &[Incoming]) -> Result<(), ImageError> {
        let missing: BTreeMap<Digest, &IncomingLayer> = images
            .iter()
            .flat_map(|image| &image.layers)
            .filter(|layer| !self.has_layer(layer.diff_id) && !ingest.has_layer(layer.diff_id))
            .map(|layer| (layer.diff_id, layer))
            .collect();
        let missing: Vec<&IncomingLayer> = missing.into_values().collect();
        let allowances = Allowances::new(self.inner.limits).map_err(ImageError::store("watch", self.dir()))?;
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(layer) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(error) = self.unpack_one(ingest, layer, &allowances) {
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
            started.into_iter().try_for_each(|worker| match worker.join() {
                Ok(unpacked) => unpacked,
                Err(_) => Err(ImageError::Broke { source: "a layer could not be unpacked".into() }),
            })
        })
    }

    /// Unpacks one layer into its place below `ingest`. Its record tells that it is whole.
    pub(super) fn unpack_one(
        &self,
        ingest: &Ingest,
        layer: &IncomingLayer,
        allowances: &Allowances,
    ) -> Result<(), ImageError> {
        let dir = ingest.layer(layer.diff_id);
        let files = dir.join("fs");
        fs::DirBuilder::new().mode(0o700).create(&dir).map_err(ImageError::store("create", &dir))?;
        fs::DirBuilder::new().mode(0o755).create(&files).map_err(ImageError::store("create", &files))?;
        let size_bytes = self.inner.unpacker.unpack(layer, &files, allowances)?;
        ingest.write_json(&dir.join("layer.json"), &LayerRecord { size_bytes })
    }

    fn record(&self, ingest: &Ingest, arrival: &Arrival<'_>) -> Result<(), ImageError> {
        let dir = self.dir();
        let id = arrival.document.id;
        let known = View::read(dir)?;
        if !known.images.contains_key(&id) {
            ingest.write(&blob_path(dir, id), &arrival.document.raw)?;
            let mut size_bytes = 0;
            for diff_id in &arrival.document.diff_ids {
                size_bytes += read_json::<LayerRecord>(&layer_dir(dir, *diff_id).join("layer.json"))?.size_bytes;
            }
            ingest.write_json(&image_record(dir, id), &ImageRecord { id, size_bytes })?;
        }
        for name in arrival.names.iter().map(ToString::to_string) {
            let before = known.names.get(&name).filter(|named| named.id == id);
            let origin = match before {
                Some(named) => arrival.origin.clone().joined(&named.origin),
                None => arrival.origin.clone(),
            };
            if before.is_none_or(|named| named.origin != origin) {
                ingest.write_json(&name_record(dir, &name), &NameRecord { name, id, origin })?;
            }
        }
        Ok(())
    }

    /// What is on disk, read again only when it changed: another process may load into the same store.
    pub(super) fn view(&self) -> Result<Arc<View>, ImageError> {
        let stamp = Stamp::of(self.dir())?;
        let mut kept = self.inner.view.lock().unwrap_or_else(PoisonError::into_inner);
        match kept.as_ref() {
            Some((seen, view)) if *seen == stamp && stamp.is_settled() => Ok(view.clone()),
            _ => {
                let view = Arc::new(View::read(self.dir())?);
                // A view read right after a change may miss the next one with the same time: it is not kept.
                *kept = stamp.is_settled().then(|| (stamp, view.clone()));
                Ok(view)
            }
        }
    }

    pub(super) fn forget_view(&self) {
        *self.inner.view.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
