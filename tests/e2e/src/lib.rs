//! Real containers, real kernel, stock kubectl: what the end-to-end tests stand on.
//!
//! An [`Instance`] is the shipped binary on a folder of its own; it can be killed at any moment and started again.
//! [`Kubectl`] is somebody else's program. Nothing here reaches into the product.

pub mod browser;
pub mod caller;
pub mod cluster;
pub mod complaints;
pub mod crowd;
pub mod dice;
pub mod instance;
pub mod kubectl;
pub mod leftovers;
pub mod listener;
pub mod logind;
pub mod pace;
pub mod pods;
pub mod session;
pub mod shared;
pub mod stage;
pub mod story;

pub use instance::Instance;
pub use kubectl::Kubectl;
pub use session::Session;
pub use shared::Shared;

use std::path::PathBuf;

/// The workspace's root.
pub fn workspace() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).map(PathBuf::from).unwrap_or(here)
}

/// The program under test: `ADIEU` if set, else the build as it ships.
pub fn adieu() -> PathBuf {
    std::env::var_os("ADIEU").map_or_else(|| workspace().join("target/bin/adieu"), PathBuf::from)
}
