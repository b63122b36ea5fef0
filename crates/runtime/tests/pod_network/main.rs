//! The pod network against a kernel, each test in a network namespace of its own. Needs root.
#![allow(clippy::unwrap_used, unreachable_pub, missing_docs, reason = "tests")]

mod host_ports;
mod network;
mod network_support;
