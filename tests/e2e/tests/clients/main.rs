//! What other people's programs see: stock kubectl of three generations, the Python client, registries, joined nodes.
#![allow(clippy::unwrap_used, unreachable_pub, missing_docs, reason = "tests")]

mod cluster;
mod controllers;
mod debug;
mod demo;
mod deployments;
mod images;
mod jobs;
mod kubectl;
mod nested;
mod panics;
mod proxy;
mod python;
mod records;
mod refusals;
mod rights;
mod sessions;
mod stateful_sets;
mod streams;
mod verbs;
