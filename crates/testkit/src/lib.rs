//! Stories about pods, told in simulated time against the real rules.
//!
//! [`given_pod`] describes a pod and how its containers behave, `when_…` says what happens to it, and `then_…` checks
//! how the story went. The clock jumps from one event to the next, so a grace of an hour passes in microseconds.
//! Everything the worker asks for is carried out by a small simulated [`world`]; every input is recorded, and a
//! restart of the agent rebuilds the worker from that record before it meets the runtime again.
//!
//! This crate knows no kernel and no API: it proves what is decided, not how it is done.

pub mod dice;
pub mod given;
pub mod golden;
pub mod laws;
pub mod rows;
pub mod script;
pub mod story;
pub mod timeline_text;
pub mod world;

pub use dice::Dice;
pub use given::{Given, When, given_pod};
pub use laws::Laws;
pub use script::{HookScript, ImageScript, Script, TrafficScript, exits_on_term, fails_on_term};
pub use story::Story;

use std::time::Duration;

/// That many seconds.
pub const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// That many milliseconds.
pub const fn millis(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}
