//! Archives that hold images: the ones `docker save` writes, and OCI layouts in a tar file or in a folder.
//!
//! The input may be a pipe, and the part that explains the rest may come last, so it is first spooled into a file,
//! without its outer compression. Then one walk over the headers tells where each member lies.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use oci_spec::image::{Descriptor, ImageIndex, ImageManifest};
use serde::Deserialize;

use super::compression;
use super::config::Document;
use super::digest::Digest;
use super::error::ImageError;
use super::incoming::{Allowance, Incoming, IncomingLayer, Metered, Section, Spent};
use super::manifest::{self, DOCUMENT_BYTES_MAX, digest_of, json, platform_here, verify};
use super::room;
use crate::contract::image::ImageName;

/// All headers of an archive, long names included.
const HEADERS_BYTES_MAX: u64 = 256 << 20;
/// How much is written before the disk is looked at again.
const CHECKED_BYTES: usize = 8 << 20;
/// An index may point to an index; no writer nests deeper than two.
const INDEX_DEPTH_MAX: usize = 4;
/// A member may be a link to another; `docker save` once wrote equal layers that way.
const LINK_DEPTH_MAX: usize = 8;

/// Copies an archive into `path`, decompressed.
pub(super) fn spool(source: impl Read, path: &Path, bytes_max: u64) -> Result<Archive, ImageError> {
    let mut file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(ImageError::store("create", path))?;
    let allowance = Allowance::new(bytes_max);
    let input = |error: io::Error| match Spent::in_error(&error) {
        Some(_) => ImageError::TooLarge { what: "the archive".into(), limit_bytes: bytes_max },
        None if error.kind() == io::ErrorKind::Unsupported => ImageError::NotAnArchive { why: error.to_string() },
        None => ImageError::Input { source: error },
    };
    let mut plain = Metered { inner: compression::plain(source).map_err(input)?, allowance: &allowance };
    let mut buffer = vec![0; 256 * 1024];
    let mut unchecked = CHECKED_BYTES;
    loop {
        let count = match plain.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(input(error)),
        };
        unchecked += count;
        if unchecked >= CHECKED_BYTES {
            room::check(path, count as u64, "the archive")?;
            unchecked = 0;
        }
        io::Write::write_all(&mut file, &buffer[..count]).map_err(ImageError::store("write", path))?;
    }
    Archive::walk(file, path)
}

/// An OCI layout that lies in a folder as it is.
pub(super) fn layout(path: &Path) -> Result<Archive, ImageError> {
    match path.join("index.json").exists() {
        true => Ok(Archive { place: MemberLocation::Folder(path.to_owned()) }),
        false => Err(ImageError::NotAnArchive { why: format!("{} holds no index.json", path.display()) }),
    }
}

/// An archive whose members can be read.
pub(super) struct Archive {
    place: MemberLocation,
}

enum MemberLocation {
    /// One file, and where its members lie in it.
    Spooled {
        file: Arc<File>,
        members: HashMap<String, Member>,
    },
    Folder(PathBuf),
}

enum Member {
    File { start: u64, length: u64 },
    Link { to: String },
}

impl Archive {
    fn walk(file: File, path: &Path) -> Result<Self, ImageError> {
        let length = file.metadata().map_err(ImageError::store("read", path))?.len();
        let file = Arc::new(file);
        let not_a_tar = |error: io::Error| {
            // Of these the words repeat what the file holds, which may be anything.
            let repeats_it = matches!(error.kind(), io::ErrorKind::Other | io::ErrorKind::InvalidData);
            let cause = if repeats_it { String::new() } else { format!(" ({error})") };
            ImageError::NotAnArchive { why: format!("it does not read as tar{cause}") }
        };
        let allowance = Allowance::new(HEADERS_BYTES_MAX);
        let section = Section::new(file.clone(), 0, length);
        let mut tar = tar::Archive::new(Metered { inner: section, allowance: &allowance });
        let mut members = HashMap::new();
        for entry in tar.entries_with_seek().map_err(not_a_tar)? {
            let entry = entry.map_err(not_a_tar)?;
            let Some(name) = tidy(&entry.path_bytes()) else { continue };
            let kind = entry.header().entry_type();
            if kind.is_file() || kind.is_contiguous() {
                members.insert(name, Member::File { start: entry.raw_file_position(), length: entry.size() });
            } else if kind.is_symlink() || kind.is_hard_link() {
                let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                // A symbolic link counts from its own folder, a hard link from the top.
                let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder).as_bytes();
                let from_top = if kind.is_symlink() { [folder, b"/", &target].concat() } else { target };
                if let Some(to) = tidy(&from_top) {
                    members.insert(name, Member::Link { to });
                }
            }
        }
        match members.is_empty() {
            true => Err(ImageError::NotAnArchive { why: "it is empty".into() }),
            false => Ok(Self { place: MemberLocation::Spooled { file, members } }),
        }
    }

    /// Every image for this machine, named as the archive names it.
    pub(super) fn images(&self) -> Result<Vec<Incoming>, ImageError> {
        match &self.place {
            // Newer `docker save` writes both; its manifest.json is the one that lists only what is really there.
            MemberLocation::Spooled { members, .. } if members.contains_key("manifest.json") => self.docker_images(),
            MemberLocation::Spooled { members, .. } if !members.contains_key("index.json") => {
                Err(ImageError::NotAnArchive { why: "no manifest.json and no index.json".into() })
            }
            MemberLocation::Spooled { .. } | MemberLocation::Folder(_) => self.oci_images(),
        }
    }

    fn docker_images(&self) -> Result<Vec<Incoming>, ImageError> {
        let manifests: Vec<DockerManifest> = self.json("manifest.json")?;
        if manifests.is_empty() {
            return Err(ImageError::NotAnArchive { why: "its manifest.json lists no image".into() });
        }
        manifests.into_iter().map(|manifest| self.docker_image(manifest)).collect()
    }

    fn docker_image(&self, manifest: DockerManifest) -> Result<Incoming, ImageError> {
        let raw = self.document(&manifest.config)?;
        // The file is named after its digest by every writer; hold it to that.
        let stem = manifest.config.rsplit('/').next().unwrap_or_default().trim_end_matches(".json");
        if let Some(expected) = Digest::from_hex(stem) {
            verify("the configuration", expected, &raw)?;
        }
        let blobs = manifest.layers.unwrap_or_default().into_iter().map(|path| Ok((None, self.member(&path)?)));
        let names = manifest.repo_tags.unwrap_or_default();
        incoming(
            names.iter().filter_map(|name| readable(name)).collect(),
            raw,
            blobs.collect::<Result<_, ImageError>>()?,
        )
    }

    fn oci_images(&self) -> Result<Vec<Incoming>, ImageError> {
        let index: ImageIndex = self.json("index.json")?;
        let mut images = Vec::new();
        let mut elsewhere = BTreeSet::new();
        for descriptor in index.manifests() {
            if let Some((digest, manifest)) = self.manifest_for_here(descriptor, 0, &mut elsewhere)? {
                images.push(self.oci_image(names_of(descriptor, digest), &manifest)?);
            }
        }
        match (images.is_empty(), elsewhere.is_empty()) {
            (false, _) => Ok(images),
            (true, true) => Err(ImageError::NotAnArchive { why: "its index.json lists no image".into() }),
            (true, false) => Err(wrong_platform(elsewhere)),
        }
    }

    /// Follows indexes to the manifest for this machine; `None` for other machines and for what is not an image.
    fn manifest_for_here(
        &self,
        descriptor: &Descriptor,
        depth: usize,
        elsewhere: &mut BTreeSet<String>,
    ) -> Result<Option<(Digest, ImageManifest)>, ImageError> {
        if let Some(platform) = descriptor.platform() {
            let platform = format!("{}/{}", platform.os(), platform.architecture());
            if platform != platform_here() {
                elsewhere.insert(platform);
                return Ok(None);
            }
        }
        let media_type = descriptor.media_type().to_string();
        let raw = self.blob_document(descriptor)?;
        if manifest::is_index(&media_type) {
            if depth == INDEX_DEPTH_MAX {
                return Err(ImageError::Broken { why: "its indexes are nested too deeply".into() });
            }
            let index: ImageIndex = json(&media_type, &raw)?;
            for inner in index.manifests() {
                if let Some(found) = self.manifest_for_here(inner, depth + 1, elsewhere)? {
                    return Ok(Some(found));
                }
            }
            return Ok(None);
        }
        if !manifest::is_manifest(&media_type) {
            return Ok(None);
        }
        let manifest: ImageManifest = json("a manifest", &raw)?;
        Ok(manifest::is_of_an_image(&manifest).then(|| (Digest::of(&raw), manifest)))
    }

    fn oci_image(&self, names: Vec<ImageName>, manifest: &ImageManifest) -> Result<Incoming, ImageError> {
        let raw = self.blob_document(manifest.config())?;
        let blobs = manifest.layers().iter().map(|layer| {
            let digest = digest_of(layer)?;
            let blob = self.member(&blob_path(digest))?;
            match blob.length() == layer.size() {
                true => Ok((Some(digest), blob)),
                false => Err(ImageError::Broken { why: format!("layer {digest} does not have the size it should") }),
            }
        });
        incoming(names, raw, blobs.collect::<Result<_, ImageError>>()?)
    }

    fn member(&self, name: &str) -> Result<Section, ImageError> {
        let mut tidied = tidy(name.as_bytes());
        match &self.place {
            MemberLocation::Folder(folder) => {
                if let Some(section) = tidied.and_then(|name| open_in(folder, &name)) {
                    return Ok(section);
                }
            }
            MemberLocation::Spooled { file, members } => {
                for _ in 0..LINK_DEPTH_MAX {
                    match tidied.as_deref().and_then(|name| members.get(name)) {
                        Some(&Member::File { start, length }) => {
                            return Ok(Section::new(file.clone(), start, length));
                        }
                        Some(Member::Link { to }) => tidied = Some(to.clone()),
                        None => break,
                    }
                }
            }
        }
        Err(ImageError::Broken { why: format!("it names a member {name:?} that it does not hold") })
    }

    fn document(&self, name: &str) -> Result<Vec<u8>, ImageError> {
        let mut section = self.member(name)?;
        if section.length() > DOCUMENT_BYTES_MAX {
            return Err(ImageError::TooLarge { what: format!("member {name:?}"), limit_bytes: DOCUMENT_BYTES_MAX });
        }
        let mut raw = Vec::new();
        section.read_to_end(&mut raw).map_err(|source| match source.kind() == io::ErrorKind::UnexpectedEof {
            true => ImageError::Broken { why: "it ends too early".into() },
            false => ImageError::Input { source },
        })?;
        Ok(raw)
    }

    fn blob_document(&self, descriptor: &Descriptor) -> Result<Vec<u8>, ImageError> {
        let digest = digest_of(descriptor)?;
        let raw = self.document(&blob_path(digest))?;
        verify("a document", digest, &raw)?;
        Ok(raw)
    }

    fn json<T: serde::de::DeserializeOwned>(&self, name: &str) -> Result<T, ImageError> {
        json(name, &self.document(name)?)
    }
}

/// A regular file of a layout. Anything else there (a pipe would never end) counts as absent.
fn open_in(folder: &Path, name: &str) -> Option<Section> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = File::options().read(true).custom_flags(flags).open(folder.join(name)).ok()?;
    let found = file.metadata().ok().filter(|meta| meta.is_file())?;
    Some(Section::new(Arc::new(file), 0, found.len()))
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerManifest {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Option<Vec<String>>,
}

/// Joins a configuration with its layers, and holds it to this machine.
fn incoming(
    names: Vec<ImageName>,
    raw_config: Vec<u8>,
    blobs: Vec<(Option<Digest>, Section)>,
) -> Result<Incoming, ImageError> {
    let document = Document::read(raw_config)?;
    if document.platform != platform_here() {
        return Err(wrong_platform([document.platform]));
    }
    if document.diff_ids.len() != blobs.len() {
        let why = format!("it has {} layers where its configuration has {}", blobs.len(), document.diff_ids.len());
        return Err(ImageError::Broken { why });
    }
    let layers = document.diff_ids.iter().zip(blobs);
    let layers = layers.map(|(&diff_id, (blob_digest, blob))| IncomingLayer { diff_id, blob_digest, blob }).collect();
    Ok(Incoming { names, document, layers })
}

/// What the writer called an entry of the index, and the same pinned to its digest.
fn names_of(descriptor: &Descriptor, digest: Digest) -> Vec<ImageName> {
    let annotation = |key: &str| descriptor.annotations().as_ref().and_then(|all| all.get(key));
    // The second annotation is often a whole name, yet some writers put a lone tag there; `latest` is surely one.
    let name = annotation("io.containerd.image.name")
        .or_else(|| annotation("org.opencontainers.image.ref.name").filter(|name| name.as_str() != "latest"))
        .and_then(|name| readable(name));
    name.iter().flat_map(|name| [name.clone(), name.pinned_to(digest)]).collect()
}

/// A name that does not read costs the image that name, not its place: it can still be found by its id.
fn readable(name: &str) -> Option<ImageName> {
    name.parse()
        .inspect_err(|error| tracing::warn!(%error, "the archive gives an image a name that is passed over"))
        .ok()
}

fn wrong_platform(found: impl IntoIterator<Item = String>) -> ImageError {
    let found = found.into_iter().collect::<Vec<_>>().join(", ");
    ImageError::Platform { wanted: platform_here(), found }
}

fn blob_path(digest: Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

/// A member's path without dots; `None` for the top itself and for what lies above it. Only a key, never a real path.
fn tidy(path: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(path);
    let mut parts = Vec::new();
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop()?,
            part => parts.push(part),
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}
