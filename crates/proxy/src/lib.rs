//! The service proxy: Services and EndpointSlices become packet rules of this node.
//!
//! What should be routed is computed without I/O; how it differs from what the kernel has is computed without I/O too; one
//! netlink transaction makes it so. [`ProxyHandle`] is what the rest of the node talks to.

#![warn(missing_docs)]

mod addresses;
mod driver;
mod handle;
mod health_checks;
mod host_listeners;
mod in_flight;
mod inner_chains;
mod kernel_tables;
mod model;
#[cfg(test)]
mod model_tests;
mod rules;
mod skeleton;
mod stale_flows;
#[cfg(test)]
mod tests;
mod wanted;

pub use self::addresses::{Network, parse_network};
pub use self::driver::{Event, Proxy};
pub use self::handle::{CutMode, PodEndpoint, Protocol, ProxyError, ProxyHandle, Reach};
pub use self::skeleton::Settings;
