//! A registry to pull from, what stands in front of it, and who is let in.

#![allow(clippy::unwrap_used, unreachable_pub, dead_code, reason = "shared by several tests")]
#![allow(missing_docs, reason = "tests")]

mod certificates;
pub mod proxy;
mod registry;
pub mod tokens;

pub use certificates::certificates;
pub use registry::{Options, PASSWORD, Registry, USER};
