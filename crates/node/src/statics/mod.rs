//! Pods that this node is told to run by files rather than by the API.
//!
//! [`Folder`] watches `manifests/`; [`read`] makes a pod of a file; the table of drivers ([`crate::pods`]) lets pods of
//! one name follow each other; [`mirror`] keeps the reflection that the API shows.

pub mod folder;
pub mod mirror;
pub mod read;

pub use folder::{Folder, ManifestPods};

use k8s_openapi::api::core::v1::Pod;

/// Where a pod comes from: `file` for those of this module.
pub const SOURCE: &str = "kubernetes.io/config.source";
/// The hash of the manifest that a static pod was made of.
pub const HASH: &str = "kubernetes.io/config.hash";
/// When the manifest was read.
pub const SEEN: &str = "kubernetes.io/config.seen";
/// On a mirror pod: the hash of the static pod that it shows.
pub const MIRROR: &str = "kubernetes.io/config.mirror";
/// The name of the manifest's file, so that people find it, and we know it again after a restart.
pub const FILE: &str = "adieu.dev/manifest-file";

fn annotation<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Whether this pod comes from a file. What comes from the API has a version there, whatever its annotations say.
pub fn is_static(pod: &Pod) -> bool {
    pod.metadata.resource_version.is_none() && annotation(pod, SOURCE) == Some("file") && !is_mirror(pod)
}

/// Whether this object only shows a static pod.
pub fn is_mirror(pod: &Pod) -> bool {
    annotation(pod, MIRROR).is_some()
}

/// The name that static pods follow each other under.
pub fn full_name(pod: &Pod) -> String {
    let meta = &pod.metadata;
    format!("{}_{}", meta.name.as_deref().unwrap_or_default(), meta.namespace.as_deref().unwrap_or_default())
}
