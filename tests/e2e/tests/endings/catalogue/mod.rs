//! The scenario catalogue of node-termination, played with stock kubectl and real containers: each scenario with an effect
//! that can be seen from outside is a story; those of a file are told at the same time on one instance.
#![allow(clippy::unwrap_used, reason = "tests")]

mod beginnings;
mod deletion;
mod grace;
mod hooks;
mod order;
mod probes;
mod requests;
mod restarts;
mod signals;
