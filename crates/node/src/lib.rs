//! One driver per pod: feeds `lifecycle` with facts, performs the effects it answers.
//!
//! The node decides nothing about a pod's life. It listens (the API's watch, the runtime's exits, the
//! clock), tells the pod's [`lifecycle::PodWorker`], writes down what was said ([`timeline::Journal`]) and
//! acts. Reading order: [`driver`] (the loop), [`record`] (what is known of a pod), [`effects`] (what is done), [`pods`] (who gets a
//! driver), [`publisher`] (what others see), [`translate`] (between the API's words and the rules').

pub mod containers;
pub mod driver;
pub mod effects;
pub mod events;
pub mod files;
pub mod flaws;
pub mod heartbeat;
pub mod images;
pub mod machine;
pub mod manifest;
pub mod memory_volumes;
pub mod node;
pub mod node_resources;
pub mod pods;
pub mod pressure;
pub mod probes;
pub mod probing;
pub mod publisher;
pub mod record;
pub mod services;
pub mod statics;
pub mod streams;
pub mod sysctls;
mod termination_message;
pub mod terminations;
pub mod traffic;
pub mod translate;
pub mod usage;
pub mod volumes;

pub use files::Files;
pub use machine::Machine;
pub use memory_volumes::MemoryVolumes;
pub use node::{Node, NodeConfig, NodeError};
pub use pods::{FLUSH, ShutdownGrace};
pub use traffic::{NoTraffic, Traffic};

use jiff::Timestamp;
use timeline::Clock;

/// The time on the wall, as the API writes it.
pub(crate) fn timestamp(clock: &Clock) -> Timestamp {
    Timestamp::try_from(clock.system_time()).unwrap_or(Timestamp::UNIX_EPOCH)
}
