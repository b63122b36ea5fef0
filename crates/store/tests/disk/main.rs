//! The store on a real disk: transactions, watches, crashes, against a model.
#![allow(clippy::unwrap_used, unreachable_pub, missing_docs, reason = "tests")]

mod bounds;
mod common;
mod crash;
mod encryption;
mod maintenance;
mod model;
mod store;
