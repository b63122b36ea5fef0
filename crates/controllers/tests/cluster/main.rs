//! Controllers against a real server over HTTPS. The tests post nodes and play their agents.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

mod budgets;
mod garbage;
mod harness;
mod lost_pods;
mod scheduling;
mod silence;
