//! When the node is short of something, a pod has to go: who, how gently, and what everyone is told.
//!
//! Before that, images that nobody uses make room ([`Collector`]).
//!
//! [`Threshold`]s say when, [`signals`] look, [`rank`] chooses, and [`Monitor`] does it, one pod at a time. The kernel does
//! not tell when a disk fills up, so it is looked at in intervals: cheap reads, off every pod's path.

pub mod collection;
pub mod monitor;
pub mod rank;
pub mod signals;
pub mod threshold;

pub use collection::{Collector, ImageCollection};
pub use monitor::{Eviction, Monitor};
pub use threshold::{EvictionConfig, Threshold, ThresholdError};
