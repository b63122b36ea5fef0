//! Images: read from archives or pulled from registries, verified, unpacked once, found by name, removed when unused.
//!
//! ```text
//!   archive (docker or OCI, maybe gzip) ──▶ spool ──▶ catalog ──┐
//!   OCI layout in a folder ───────────────▶ catalog ────────────┼─▶ layers unpacked and verified ──▶ records
//!   registry ──▶ manifest ──▶ downloads, several at a time ─────┘
//! ```
//!
//! Nothing here mounts anything: a [`StoredImage`] lists directories, and the sandbox stacks them.
//! Read next: `store` (what is on disk), `pull` (how an image comes), `garbage` (how it goes), `registry` (HTTP).

mod archive;
mod compression;
mod config;
mod digest;
mod download;
mod error;
mod garbage;
mod incoming;
mod ingest;
mod layer;
mod manifest;
mod pull;
mod registry;
mod room;
mod single_flight;
mod store;
mod tree;
mod unpacker;
mod unpacking_process;
mod view;

pub use config::ImageConfig;
pub use error::ImageError;
pub use garbage::{Use, Users};
pub use incoming::Limits;
pub use pull::{LayerProgress, LayerState, Progress, PullError, Puller};
pub use registry::Patience;
pub use registry::resolver::Resolver;
pub use runtime_api::image::{
    Credential, Digest, Image, ImageName, Keyring, KeyringError, Origin, Prune, Pulled, Removed,
};
pub use store::ImageStore;
pub(crate) use unpacking_process::run_if_asked as unpack_if_asked;
pub use view::StoredImage;
