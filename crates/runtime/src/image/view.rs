//! What the records on disk say, and how it is known that they still say so.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::config::{Document, ImageConfig};
use super::digest::Digest;
use super::error::ImageError;
use crate::contract::image::{Image, Origin};

/// Two changes closer together than this may carry the same time on a coarse clock.
const CLOCK_STEP_MAX: Duration = Duration::from_millis(100);

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
pub(super) struct ImageRecord {
    pub(super) id: Digest,
    pub(super) size_bytes: u64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct NameRecord {
    pub(super) name: String,
    pub(super) id: Digest,
    /// Names of before registries were known came from archives.
    #[serde(default)]
    pub(super) origin: Origin,
}

#[derive(Serialize, Deserialize)]
pub(super) struct LayerRecord {
    pub(super) size_bytes: u64,
}

/// What a name stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Named {
    pub(super) id: Digest,
    pub(super) origin: Origin,
}

/// Everything the records say, with what is damaged left out.
#[derive(Debug)]
pub(super) struct View {
    pub(super) images: BTreeMap<Digest, StoredImage>,
    pub(super) names: BTreeMap<String, Named>,
}

impl View {
    pub(super) fn read(dir: &Path) -> Result<Self, ImageError> {
        let mut view = Self { images: BTreeMap::new(), names: BTreeMap::new() };
        for record in records::<ImageRecord>(&dir.join("images"))? {
            match stored_image(dir, &record) {
                Ok(stored) => _ = view.images.insert(record.id, stored),
                Err(why) => tracing::warn!(image = %record.id, why, "image is damaged; pull or load it again"),
            }
        }
        for NameRecord { name, id, origin } in records::<NameRecord>(&dir.join("names"))? {
            if let Some(stored) = view.images.get_mut(&id) {
                stored.image.names.push(name.clone());
                stored.image.names.sort();
                view.names.insert(name, Named { id, origin });
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
    let layers: Vec<PathBuf> = document.diff_ids.iter().rev().map(|layer| layer_dir(dir, *layer).join("fs")).collect();
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
            // Removed by another process since the directory was read.
            Err(ImageError::Store { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "record passed over"),
        }
    }
    Ok(found)
}

pub(super) fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, ImageError> {
    let raw = fs::read(path).map_err(ImageError::store("read", path))?;
    serde_json::from_slice(&raw).map_err(|error| ImageError::store("read", path)(error.into()))
}

pub(super) fn blob_path(dir: &Path, digest: Digest) -> PathBuf {
    dir.join("blobs/sha256").join(digest.hex())
}

pub(super) fn layer_dir(dir: &Path, diff_id: Digest) -> PathBuf {
    dir.join("layers").join(diff_id.hex())
}

pub(super) fn image_record(dir: &Path, id: Digest) -> PathBuf {
    dir.join("images").join(id.hex()).with_extension("json")
}

pub(super) fn name_record(dir: &Path, name: &str) -> PathBuf {
    dir.join("names").join(Digest::of(name.as_bytes()).hex()).with_extension("json")
}

/// When the records last changed. A rename into a directory changes the time of that directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stamp {
    images: SystemTime,
    names: SystemTime,
}

impl Stamp {
    pub(super) fn of(dir: &Path) -> Result<Self, ImageError> {
        let changed = |part: &str| {
            let path = dir.join(part);
            fs::metadata(&path).and_then(|meta| meta.modified()).map_err(ImageError::store("read", path))
        };
        Ok(Self { images: changed("images")?, names: changed("names")? })
    }

    /// Whether the next change is sure to carry another time.
    pub(super) fn is_settled(&self) -> bool {
        let last = self.images.max(self.names);
        SystemTime::now().duration_since(last).is_ok_and(|age| age > CLOCK_STEP_MAX)
    }
}
