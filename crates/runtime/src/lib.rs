//! Real containers from one binary: images, sandboxes, the shim, the pod network.
//!
//! The node speaks to [`Runtime`]; [`embedded::Embedded`] is the implementation that needs nothing but a
//! kernel. The contract is `runtime-api`'s, so that another implementation can fill it. This crate is the one home of
//! `unsafe`.

mod cgroup;
mod container;
pub mod embedded;
mod ids;
pub mod image;
pub mod memory;
pub mod network;
pub mod shim;
pub mod signals;
mod sys;
mod wire;

pub use embedded::{Embedded, EmbeddedConfig};
pub(crate) use runtime_api as contract;
pub use runtime_api::*;

/// Does what this process was started for, if that is one of the small parts that our own program plays in processes of
/// their own: the shim of a pod, or the one who unpacks a layer.
///
/// To be called first in `main`, before any thread, async runtime or logging exists.
pub fn run_if_asked() -> Option<std::process::ExitCode> {
    shim::run_if_asked().or_else(image::unpack_if_asked)
}
