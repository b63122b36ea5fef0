//! Every interleaving of a small pod's life, played through the worker exactly as it ships.
//!
//! A [`model::State`] is the real `PodWorker` beside a small [`world`] (what really runs, what was answered, what the
//! API holds). A [`step::Step`] is one thing that may happen next; the checker tries all of them, in every order,
//! within the [`bounds`] of a model. After every step the [`laws`] are asked, and [`flaw`] shows that each of them
//! can be broken. What the deadline should be is reckoned a second time, in [`promise`], and when traffic lets hooks and
//! signals pass in [`passage`].
//!
//! What the world may do: answer late, twice, out of order, or never, though the agent lives; wake the worker late;
//! perform only the first of the effects it was asked for before the agent dies; go on while the agent is away; change
//! its mind about who can take the pod's connections. What it may not do: lose the news of an exit (whoever reaps
//! writes it down first), or let a killed process run on for ever.
//!
//! ```text
//! cargo run --release -p model              the small models, with their states, laws and times
//! cargo run --release -p model -- --large   the large ones, too: minutes, and some gigabytes
//! cargo test -p model                       the small models with pinned counts, and every flaw caught
//! ```
#![forbid(unsafe_code)]

pub mod bounds;
pub mod catalogue;
pub mod check;
pub mod cycle;
pub mod flaw;
pub mod laws;
pub mod model;
pub mod passage;
pub mod process;
pub mod promised_deadline;
pub mod step;
pub mod traffic;
pub mod worker;
pub mod world;
