//! Real containers from one binary: images, sandboxes, the shim, the pod network.
//!
//! The node speaks to [`Runtime`]; [`embedded::Embedded`] is the implementation that needs nothing but a
//! kernel. A CRI implementation can fill the same trait. This crate is the one home of `unsafe`.

mod cgroup;
mod container;
pub mod contract;
mod deletion;
pub mod embedded;
mod ids;
pub mod image;
pub mod network;
pub mod shim;
pub mod signals;
mod spread;
mod sys;
mod wire;

pub use container::capabilities::is_capability;
pub use contract::*;
pub use deletion::delete_tree;
pub use embedded::{DiskUsage, Embedded, EmbeddedConfig, disk_usage};
pub use shim::logs::log_files;
pub use spread::spread_below;
