//! Why an image could not be kept, found or removed. Each says what to do about it where something can be done.

use std::io;
use std::path::PathBuf;

use super::digest::Digest;
use super::pull::PullError;
use crate::contract::RuntimeError;
use crate::contract::image::InvalidImageName;

/// Why an image could not be kept, found or removed.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message of each variant tells what its fields are")]
pub enum ImageError {
    /// The name cannot be read.
    #[error("image name {name:?} is not valid: {why}")]
    Name { name: String, why: String },
    /// No image here goes by that name.
    #[error(
        "image {name:?} is not present; pull it with `adieu image pull {name}` or load it with `adieu image load FILE`"
    )]
    Absent { name: String },
    /// The input is not an archive that holds images.
    #[error(
        "this is not an image archive: {why}; make one with \"docker save\" or \"skopeo copy … docker-archive:FILE\""
    )]
    NotAnArchive { why: String },
    /// The archive is one of images, but cannot be used.
    #[error("the image archive is broken: {why}; write it again, or fetch it again if it was copied")]
    Broken { why: String },
    /// The archive has images for other machines only.
    #[error("the archive holds no image for {wanted}, only for {found}; save it with `--platform {wanted}`")]
    Platform { wanted: String, found: String },
    /// Content does not match the address it goes by.
    #[error("{what} does not match its digest: expected {expected}, got {got}; fetch or write it again")]
    Mismatch { what: String, expected: Digest, got: Digest },
    /// A layer tries something that no honest layer does. Nothing was written outside the store.
    #[error("layer {layer} is refused: entry {path:?} {why}; do not run this image")]
    Hostile { layer: Digest, path: String, why: String },
    /// A layer cannot be read.
    #[error("layer {layer} cannot be unpacked: {why}")]
    Layer { layer: Digest, why: String },
    /// The process that unpacks a layer came to no end of its own.
    #[error("layer {layer} cannot be unpacked: the process that unpacks it {why}")]
    Unpacker { layer: Digest, why: String },
    /// The disk is to keep some room for what runs.
    #[error("there is no room for {what}: {} would have less than {reserve_bytes} bytes or a twentieth of its inodes left; \
             remove images with `adieu image prune`, or give it a larger disk", path.display())]
    NoRoom { what: String, path: PathBuf, reserve_bytes: u64 },
    /// Larger than the store takes.
    #[error("{what} is larger than {limit_bytes} bytes, the most this store takes; raise its limit if you trust it")]
    TooLarge { what: String, limit_bytes: u64 },
    /// A container needs it.
    #[error("image {name} is in use by {by}")]
    InUse { name: String, by: String },
    /// Nobody can tell who uses which image.
    #[error("cannot find out which images are in use; nothing was removed")]
    Uses { source: io::Error },
    /// Reading the archive from where it comes from failed.
    #[error("cannot read the image archive")]
    Input { source: io::Error },
    /// Reading or writing below the store failed.
    #[error("cannot {doing} {}", path.display())]
    Store { doing: &'static str, path: PathBuf, source: io::Error },
    /// A mistake of ours, which this image or the disk has brought to light.
    #[error("the work on the image broke")]
    Broke { source: Box<dyn std::error::Error + Send + Sync> },
}

/// Does work on images that may bring a mistake of ours to light: then only that work ends.
pub(super) fn caught<T>(work: impl FnOnce() -> Result<T, ImageError>) -> Result<T, ImageError> {
    supervision::catch_blocking("images", work).unwrap_or_else(|panic| Err(ImageError::Broke { source: panic.into() }))
}

impl ImageError {
    /// Turns a failed system call below the store into an error that says what was being done.
    pub(super) fn store(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Store { doing, path, source }
    }
}

impl From<InvalidImageName> for ImageError {
    fn from(InvalidImageName { name, why }: InvalidImageName) -> Self {
        Self::Name { name, why }
    }
}

impl From<PullError> for RuntimeError {
    fn from(error: PullError) -> Self {
        Self::Pull(error.into())
    }
}

impl From<ImageError> for RuntimeError {
    fn from(error: ImageError) -> Self {
        match error {
            ImageError::Name { name, why } => Self::ImageName { name, why },
            ImageError::Absent { name } => Self::ImageAbsent { name },
            ImageError::NotAnArchive { .. }
            | ImageError::Broken { .. }
            | ImageError::Platform { .. }
            | ImageError::Mismatch { .. }
            | ImageError::Hostile { .. }
            | ImageError::Layer { .. }
            | ImageError::Unpacker { .. }
            | ImageError::NoRoom { .. }
            | ImageError::TooLarge { .. }
            | ImageError::InUse { .. }
            | ImageError::Uses { .. }
            | ImageError::Input { .. }
            | ImageError::Broke { .. }
            | ImageError::Store { .. } => Self::System { doing: "cannot use the image".into(), source: error.into() },
        }
    }
}
