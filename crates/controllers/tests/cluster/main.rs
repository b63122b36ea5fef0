//! Controllers against a real server over HTTPS. The tests post nodes and play their agents.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

mod autoscalers;
mod budgets;
mod daemon_sets;
mod deployments;
mod endpoints;
mod garbage;
mod harness;
mod jobs;
mod lost_pods;
mod replicas;
mod scheduling;
mod silence;
mod stateful_sets;
mod volumes;
