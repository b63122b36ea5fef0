//! Cluster DNS: what the names of services and pods lead to, for the pods of one node.
//!
//! ```text
//!  packet ──▶ Request::read ──▶ answer(request, zone, snapshot) ─┬─ Answered ───────────────▶ Reply::write(limit) ──▶ packet
//!                                          ▲                      └─ Forward ──▶ the machine's resolvers ──▶ ┘
//!  API ──▶ follow ──▶ Cluster ──▶ Snapshot ┘
//! ```
//!
//! What is answered from the cluster is a function of a question and a [`Snapshot`]: no socket, no clock.

mod answer;
mod cache;
mod clients;
mod cluster;
mod forward;
mod metrics;
mod packet;
mod records;
mod server;

pub use answer::{Outcome, answer};
pub use packet::{PacketError, Reply, Request, UDP_MAX};
pub use records::{Endpoint, PodRecords, Port, Protocol, Service, ServiceKind, Snapshot, Zone};
pub use server::{Dns, Settings};
