//! The service proxy: Services and EndpointSlices become packet rules of this node.
//!
//! What should be routed is computed without I/O; how it differs from what the kernel has is computed without I/O too; one
//! netlink transaction makes it so. [`ProxyHandle`] is what the rest of the node talks to.

#![warn(missing_docs)]

mod driver;
mod handle;
mod model;
#[cfg(test)]
mod model_tests;
mod rules;
#[cfg(test)]
mod tests;

pub use self::driver::Proxy;
pub use self::handle::{CutMode, PodEndpoint, Protocol, ProxyError, ProxyHandle, Reach};
pub use self::rules::Settings;
