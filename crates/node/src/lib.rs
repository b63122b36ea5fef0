//! One driver per pod: feeds `lifecycle` with facts, performs the effects it answers.
//!
//! The node decides nothing about a pod's life. It listens (the API's watch, the runtime's exits, the
//! clock), tells the pod's [`lifecycle::PodWorker`], writes down what was said ([`timeline::Journal`]) and
//! acts. Reading order: [`driver`] (the loop), [`hands`] (what it does), [`pods`] (who gets a driver),
//! [`publisher`] (what others see), [`translate`] (between the API's words and the rules').

pub mod containers;
pub mod driver;
pub mod events;
pub mod files;
pub mod flaws;
pub mod hands;
pub mod heartbeat;
pub mod images;
mod last_words;
pub mod machine;
pub mod manifest;
pub mod memory;
pub mod node;
pub mod pods;
pub mod pressure;
pub mod probes;
pub mod probing;
pub mod publisher;
pub mod room;
pub mod services;
pub mod statics;
pub mod streams;
pub mod sysctls;
pub mod traffic;
pub mod translate;
pub mod usage;
pub mod volumes;

pub use files::Files;
pub use machine::Machine;
pub use memory::Memory;
pub use node::{Node, NodeConfig, NodeError};
pub use pods::{FLUSH, Farewell};
pub use traffic::{NoTraffic, Traffic};

use jiff::Timestamp;
use timeline::Clock;

/// The time on the wall, as the API writes it.
pub(crate) fn timestamp(clock: &Clock) -> Timestamp {
    Timestamp::try_from(clock.system_time()).unwrap_or(Timestamp::UNIX_EPOCH)
}
