//! Pods that this node is told to run by files rather than by the API.
//!
//! [`Folder`] watches `manifests/`; [`read`] makes a pod of a file; the table of drivers ([`crate::pods`]) lets pods of
//! one name follow each other; [`mirror`] keeps the reflection that the API shows.

pub mod folder;
pub mod mirror;
pub mod read;

pub use folder::{Folder, ManifestPods};

use k8s_openapi::api::core::v1::Pod;

/// The hash of the manifest that a static pod was made of.
pub const HASH: &str = "kubernetes.io/config.hash";
/// When the manifest was read.
pub const SEEN: &str = "kubernetes.io/config.seen";
/// The name of the manifest's file, so that people find it, and we know it again after a restart.
pub const FILE: &str = "adieu.dev/manifest-file";

/// The name that static pods follow each other under.
pub fn full_name(pod: &Pod) -> String {
    let meta = &pod.metadata;
    format!("{}_{}", meta.name.as_deref().unwrap_or_default(), meta.namespace.as_deref().unwrap_or_default())
}
