//! Real containers from one binary: images, sandboxes, the shim, the pod network.
//!
//! The node speaks to [`Runtime`]; [`embedded::Embedded`] is the implementation that needs nothing but a
//! kernel. A CRI implementation can fill the same trait. This crate is the one home of `unsafe`.

pub mod contract;

pub use contract::*;
