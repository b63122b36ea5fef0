//! How images leave: never one that is in use, and never a layer that another image, or one on its way in, needs.
//!
//! ```text
//!   lock out those who record images, and those who begin to use one
//!     ask who uses what ──▶ remove names and records ──▶ move layers nobody needs aside
//!   let everyone go on, then delete what was moved aside
//! ```
//!
//! A crash in between leaves layers that no record needs, or a folder of things moved aside: the first are found by
//! the next removal, the second by whoever opens the store next.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::digest::Digest;
use super::download;
use super::error::ImageError;
use super::ingest::{self, Ingest};
use super::store::ImageStore;
use super::view::{LayerRecord, Named, View, blob_path, image_record, layer_dir, name_record, read_json};
use crate::contract::image::{ImageName, Origin, Prune, Removed};

/// One use of an image by a container, running or not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Use {
    /// The image's id.
    pub image: String,
    /// The layer directories the container is stacked from.
    pub layers: Vec<PathBuf>,
    /// Who uses it, in words: `default/web (container app)`.
    pub by: String,
}

/// Tells who uses what; asked while nobody can begin another use.
pub type Users<'a> = &'a dyn Fn() -> io::Result<Vec<Use>>;

impl ImageStore {
    /// Takes a name away, and the image with it if that was its last. An id takes away all its names.
    pub fn remove(&self, name: &str, users: Users<'_>) -> Result<Removed, ImageError> {
        self.remove_by(users, |view, uses| {
            let (id, name) = match name.parse::<Digest>().ok().or_else(|| Digest::from_hex(name)) {
                Some(id) => (id, None),
                None => {
                    let name = name.parse::<ImageName>()?.to_string();
                    let named = view.names.get(&name).ok_or_else(|| ImageError::Absent { name: name.clone() })?;
                    (named.id, Some(name))
                }
            };
            let Some(stored) = view.images.get(&id) else {
                return Err(ImageError::Absent { name: id.to_string() });
            };
            // A digest is no reason to stay: it came with a tag.
            let others = stored.image.names.iter().any(|other| Some(other) != name.as_ref() && !other.contains('@'));
            match (name, others) {
                (Some(name), true) => Ok(Victims { names: vec![name], images: Vec::new() }),
                _ => match uses.get(&id) {
                    Some(by) => Err(ImageError::InUse { name: id.to_string(), by: by.join(", ") }),
                    None => Ok(Victims { names: Vec::new(), images: vec![id] }),
                },
            }
        })
    }

    /// Removes what may go.
    pub fn prune(&self, which: Prune, users: Users<'_>) -> Result<Removed, ImageError> {
        let kept = if which == Prune::Leftovers { download::KEPT } else { Duration::ZERO };
        let abandoned = download::sweep(self.dir(), kept)?;
        let mut removed = self.remove_by(users, |view, uses| {
            let mut images: Vec<(SystemTime, Digest)> = Vec::new();
            for (id, stored) in view.images.iter().filter(|(id, _)| !uses.contains_key(id)) {
                let used = fs::metadata(image_record(self.dir(), *id)).and_then(|meta| meta.modified());
                let used = used.unwrap_or(SystemTime::UNIX_EPOCH);
                // A time in the future is one of a clock that was set back: then, too, it is not known to be old.
                let unused = SystemTime::now().duration_since(used).unwrap_or_default();
                let goes = match which {
                    Prune::Leftovers => false,
                    Prune::Unnamed => stored.image.names.is_empty(),
                    Prune::Unused => true,
                    Prune::Free { unused_for, .. } => unused >= unused_for && !is_loaded(view, *id),
                };
                if goes {
                    images.push((used, *id));
                }
            }
            images.sort();
            if let Prune::Free { bytes, .. } = which {
                let mut freed = abandoned;
                images.retain(|(_, id)| {
                    let still = freed < bytes;
                    // What others share is not gained; the sum errs towards removing too little at a time.
                    freed += view.images.get(id).filter(|_| still).map_or(0, |stored| stored.image.size_bytes);
                    still
                });
            }
            Ok(Victims { names: Vec::new(), images: images.into_iter().map(|(_, id)| id).collect() })
        })?;
        removed.bytes += abandoned;
        Ok(removed)
    }

    fn remove_by(
        &self,
        users: Users<'_>,
        choose: impl FnOnce(&View, &BTreeMap<Digest, Vec<String>>) -> Result<Victims, ImageError>,
    ) -> Result<Removed, ImageError> {
        let dir = self.dir();
        let aside = Ingest::begin(dir)?;
        let records = ingest::lock(dir)?;
        let no_new_uses = ingest::lock_removal(dir)?;
        let view = View::read(dir)?;
        let mut uses: BTreeMap<Digest, Vec<String>> = BTreeMap::new();
        let mut layers_in_use = BTreeSet::new();
        let mut found = users().map_err(|source| ImageError::Uses { source })?;
        found.sort_by(|left, right| left.by.cmp(&right.by));
        for found in found {
            if let Ok(id) = found.image.parse() {
                uses.entry(id).or_default().push(found.by);
            }
            layers_in_use.extend(found.layers.iter().filter_map(|path| layer_at(path)));
        }
        let victims = choose(&view, &uses)?;
        let mut removed = Removed::default();
        for name in &victims.names {
            remove_file(&name_record(dir, name))?;
            removed.names.push(name.clone());
        }
        for id in &victims.images {
            let names = view.images.get(id).map(|stored| stored.image.names.clone()).unwrap_or_default();
            for name in &names {
                remove_file(&name_record(dir, name))?;
            }
            remove_file(&image_record(dir, *id))?;
            remove_file(&blob_path(dir, *id))?;
            removed.names.extend(names);
            removed.images.push(id.to_string());
        }
        ingest::sync_dir(&dir.join("names"))?;
        ingest::sync_dir(&dir.join("images"))?;
        let gone: BTreeSet<&Digest> = victims.images.iter().collect();
        let needed = view.images.iter().filter(|(id, _)| !gone.contains(id)).flat_map(|(_, stored)| &stored.layers);
        let needed: BTreeSet<Digest> = needed.filter_map(|path| layer_at(path)).chain(layers_in_use).collect();
        for diff_id in layers_in(dir)? {
            if needed.contains(&diff_id) {
                continue;
            }
            let layer = layer_dir(dir, diff_id);
            removed.bytes += read_json::<LayerRecord>(&layer.join("layer.json")).map_or(0, |record| record.size_bytes);
            fs::rename(&layer, aside.layer(diff_id)).map_err(ImageError::store("remove", &layer))?;
        }
        ingest::sync_dir(&dir.join("layers"))?;
        self.forget_view();
        drop((no_new_uses, records));
        // Deleting thousands of files takes its time; nobody has to wait for it.
        drop(aside);
        Ok(removed)
    }
}

/// What is to go.
struct Victims {
    names: Vec<String>,
    images: Vec<Digest>,
}

/// Whether someone with access to this machine brought it, under a name that it still has. A digest is none: it came with a
/// tag.
fn is_loaded(view: &View, id: Digest) -> bool {
    let is_their_tag =
        |(name, named): (&String, &Named)| named.id == id && named.origin == Origin::Archive && !name.contains('@');
    view.names.iter().any(is_their_tag)
}

/// The layer behind `…/layers/HEX/fs`, by whichever way the store was reached.
fn layer_at(path: &Path) -> Option<Digest> {
    path.parent()?.file_name()?.to_str().and_then(Digest::from_hex)
}

fn layers_in(dir: &Path) -> Result<Vec<Digest>, ImageError> {
    let layers = dir.join("layers");
    let mut found = Vec::new();
    for entry in fs::read_dir(&layers).map_err(ImageError::store("read", &layers))? {
        let entry = entry.map_err(ImageError::store("read", &layers))?;
        found.extend(entry.file_name().to_str().and_then(Digest::from_hex));
    }
    Ok(found)
}

/// Removes a file; one that is not there is as good as removed.
fn remove_file(path: &Path) -> Result<(), ImageError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(ImageError::store("remove", path)(error)),
        _ => Ok(()),
    }
}
