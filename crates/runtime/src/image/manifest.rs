//! Manifests and indexes: which of them this machine can use, and whether they are what they are called.

use oci_spec::image::{Descriptor, ImageManifest, MediaType};

use super::digest::Digest;
use super::error::ImageError;

/// Manifests, indexes and configurations are read into memory; no honest one comes near this.
pub(super) const DOCUMENT_BYTES_MAX: u64 = 16 << 20;

pub(super) const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
pub(super) const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
pub(super) const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(super) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";

pub(super) fn is_index(media_type: &str) -> bool {
    media_type == OCI_INDEX || media_type == DOCKER_LIST
}

pub(super) fn is_manifest(media_type: &str) -> bool {
    media_type == OCI_MANIFEST || media_type == DOCKER_MANIFEST
}

/// Whether a manifest is of an image: charts, signatures and the like have manifests too.
pub(super) fn is_of_an_image(manifest: &ImageManifest) -> bool {
    let config_type = manifest.config().media_type().to_string();
    config_type == MediaType::ImageConfig.to_string() || config_type == DOCKER_CONFIG
}

/// `linux/amd64` and the like, in the words of image indexes.
pub(super) fn platform_here() -> String {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("linux/{architecture}")
}

/// Picks the manifest for this machine from an index, or tells the platforms it has instead.
///
/// A variant is a promise about newer instructions that nobody checked against this processor, so the entry without
/// one, or with the least, comes first.
pub(super) fn choose(manifests: &[Descriptor]) -> Result<&Descriptor, Vec<String>> {
    let mut fitting: Vec<(&str, &Descriptor)> = Vec::new();
    let mut elsewhere = Vec::new();
    for descriptor in manifests {
        let media_type = descriptor.media_type().to_string();
        if !is_index(&media_type) && !is_manifest(&media_type) {
            continue;
        }
        let (platform, variant) = match descriptor.platform() {
            Some(found) => {
                let variant = found.variant().as_deref().unwrap_or_default();
                (format!("{}/{}", found.os(), found.architecture()), variant)
            }
            None => (platform_here(), ""),
        };
        if platform == platform_here() {
            fitting.push((variant, descriptor));
        } else if platform != "unknown/unknown" {
            elsewhere.push(if variant.is_empty() { platform } else { format!("{platform}/{variant}") });
        }
    }
    fitting.sort_by_key(|(variant, _)| *variant);
    fitting.first().map(|(_, descriptor)| *descriptor).ok_or(elsewhere)
}

pub(super) fn digest_of(descriptor: &Descriptor) -> Result<Digest, ImageError> {
    descriptor.digest().to_string().parse::<Digest>().map_err(|error| ImageError::Broken { why: error.to_string() })
}

pub(super) fn verify(what: &str, expected: Digest, raw: &[u8]) -> Result<(), ImageError> {
    let got = Digest::of(raw);
    match got == expected {
        true => Ok(()),
        false => Err(ImageError::Mismatch { what: what.to_owned(), expected, got }),
    }
}

pub(super) fn json<T: serde::de::DeserializeOwned>(what: &str, raw: &[u8]) -> Result<T, ImageError> {
    serde_json::from_slice(raw)
        .map_err(|error| ImageError::Broken { why: format!("{what} does not read as it should ({error})") })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use oci_spec::image::ImageIndex;
    use serde_json::json;

    use super::*;

    fn index(platforms: &[(&str, Option<&str>)]) -> ImageIndex {
        let manifests: Vec<_> = platforms
            .iter()
            .enumerate()
            .map(|(number, (platform, variant))| {
                let (os, architecture) = platform.split_once('/').unwrap();
                json!({ "mediaType": OCI_MANIFEST, "size": number, "digest": Digest::of(&[]).to_string(),
                    "platform": { "os": os, "architecture": architecture, "variant": variant } })
            })
            .collect();
        serde_json::from_value(json!({ "schemaVersion": 2, "manifests": manifests })).unwrap()
    }

    #[test]
    fn the_plainest_image_for_this_machine_is_chosen() {
        let chosen = |platforms: &[(&str, Option<&str>)]| choose(index(platforms).manifests()).map(Descriptor::size);
        let here = platform_here();
        assert_eq!(chosen(&[("linux/s390x", None), (&here, Some("v3")), (&here, None)]), Ok(2));
        assert_eq!(chosen(&[(&here, Some("v3")), (&here, Some("v2"))]), Ok(1));
        assert_eq!(
            chosen(&[("linux/arm", Some("v7")), ("windows/amd64", None), ("unknown/unknown", None)]),
            Err(vec!["linux/arm/v7".to_owned(), "windows/amd64".to_owned()])
        );
    }
}
