//! The program as a person or systemd starts it.
#![allow(clippy::unwrap_used, unreachable_pub, missing_docs, reason = "tests")]

mod plan;
mod server;
mod service;
mod service_cidr;
mod store;
mod surface;
