//! NetworkPolicies: who may reach the pods of this node, and whom they may reach, as packet rules.
//!
//! ```text
//!  policies ─┐                     ┌ wanted: chains, sets, elements ─ difference ─▶ one transaction
//!  namespaces ├▶ model: per change ┤
//!  pods ─────┘                     └ judge: the same question answered from the objects alone
//!  a pod's link ── admit ─▶ in force? ─▶ its containers may start
//! ```
//!
//! What follows from the objects is computed without I/O, and so is how it differs from what the kernel has. The tables are other
//! ones than those of Services, with an owner of their own: neither waits for the other. A pod that nobody has admitted can neither
//! send nor receive; what is in the kernel stays there while nobody runs.

#![warn(missing_docs)]

mod denied;
mod driver;
mod facts;
mod flows;
mod handle;
#[cfg(test)]
mod interpreter;
mod judge;
mod kernel;
mod model;
mod owner;
mod policy;
mod ranges;
mod render;
mod selector;
mod skeleton;
#[cfg(test)]
mod tests;
mod wanted;

pub use self::driver::{Event, Holders, Policies};
pub use self::facts::{PodFacts, cluster_dns};
pub use self::handle::{IN_FORCE_WITHIN, PolicyError, PolicyHandle};
pub use self::policy::{ITEMS_MAX, RULES_MAX};
pub use self::skeleton::Settings;
