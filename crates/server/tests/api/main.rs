//! The API as a client meets it: every test drives the real service over a real store, in process or over TLS.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, unreachable_pub, reason = "tests")]

mod added_kinds;
mod bounds;
mod certificates;
mod client;
mod deletion;
mod escalation;
mod guarded;
mod harness;
mod kinds;
mod lists;
mod load;
mod namespaces;
mod node_rights;
mod objects;
mod patches;
mod policies;
mod protection;
mod protobuf;
mod proxy;
mod rights;
mod scenarios;
mod security;
mod shared_store;
mod streams;
mod surface;
mod termination_records;
mod transport;
mod ui;
mod upstream;
mod watches;
