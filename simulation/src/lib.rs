//! The whole node agent in a world that is told its time: one seed, one story, the same trace every time.
//!
//! ```text
//!   seed ─▶ scenario (plain text) ─▶ world: store, server, node as they ship ─▶ trace ─▶ laws
//!                                      │  wire: slow, loses requests, answers, watches
//!                                      │  fake runtime: containers are scripts
//!                                      │  disk: files in memory, real formats, real recovery
//!                                      └─ every await on the way is a seam; at any seam the agent may die
//! ```
//!
//! A crash is the drop of a tokio runtime; what survives it is [`machine`]'s. Nothing here looks into the node.

pub mod clock;
pub mod dice;
pub mod disk;
pub mod faults;
pub mod flaws;
pub mod laws;
pub mod machine;
pub mod plane;
pub mod player;
pub mod runtime;
pub mod scenario;
pub mod shrink;
pub mod stand_in;
pub mod sweep;
pub mod trace;
pub mod users;
pub mod wire;
pub mod witness;
pub mod workload;
pub mod world;
