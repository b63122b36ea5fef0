//! Cluster DNS: what the names of services and pods lead to.
//!
//! ```text
//!  packet ──▶ Query::read ──▶ answer(query, snapshot) ──▶ Reply ──▶ Reply::write(limit) ──▶ packet
//! ```
//!
//! Everything here is a function of a question and a [`Snapshot`] of the cluster: no socket, no clock. What is not here yet:
//! whoever listens, follows the API and forwards the names of the world.

mod answer;
mod records;
mod wire;

pub use answer::{Outcome, answer};
pub use records::{Endpoint, Port, Protocol, Service, ServiceKind, Snapshot, Zone};
pub use wire::{Class, Data, Name, Query, Question, Record, RecordType, Reply, ResponseCode, UDP_MAX, WireError};
