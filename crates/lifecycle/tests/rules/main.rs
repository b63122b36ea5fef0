//! The rules of a pod's life, told as scenarios in simulated time. `quiet` is a program of its own: it counts allocations.
#![allow(clippy::unwrap_used, unreachable_pub, missing_docs, reason = "tests")]

mod answers;
mod boots;
mod changes;
mod evidence;
mod found;
mod grace;
mod hooks;
mod images;
mod leaving;
mod living;
mod node;
mod notices;
mod ordering;
mod requests;
mod restart_of_the_agent;
mod restart_rules;
mod small_print;
mod stories;
mod storm;
mod traffic;
