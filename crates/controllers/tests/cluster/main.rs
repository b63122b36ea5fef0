//! Controllers against a real server over HTTPS. The tests post nodes and play their agents.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

mod budgets;
mod endpoints;
mod garbage;
mod harness;
mod lost_pods;
mod replicas;
mod scheduling;
mod silence;
mod volumes;
