//! What the node does for pods while they live: probes, settings, limits, pressure, capacity.
#![allow(clippy::unwrap_used, unreachable_pub, missing_docs, reason = "tests")]

mod descriptors;
mod dns;
mod drill;
mod examples;
mod full_disk;
mod hostile;
mod inside;
mod load;
mod local_user;
mod log_reader;
mod network_policy;
mod node_resources;
mod pressure;
mod probes;
mod resize;
mod services;
mod settings;
mod shop;
mod traffic;
mod volumes;
