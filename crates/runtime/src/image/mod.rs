//! Images that are present on this machine: read from archives, verified, unpacked once, found by name.
//!
//! ```text
//!   archive (docker or OCI, maybe gzip) ──▶ spool ──▶ catalog ──▶ layers unpacked and verified ──▶ records
//! ```
//!
//! A pull from a registry is to end in the same place: it produces `Incoming` images whose blobs come
//! from the network instead of from a spooled archive, and everything to the right of "catalog" stays as it is.
//! Nothing here mounts anything: a [`StoredImage`] lists directories, and the sandbox stacks them.

mod archive;
mod compression;
mod config;
mod digest;
mod error;
mod incoming;
mod layer;
mod name;
mod store;
mod tree;

pub use config::ImageConfig;
pub use digest::Digest;
pub use error::ImageError;
pub use incoming::Limits;
pub use name::ImageName;
pub use store::{ImageStore, StoredImage};
