//! When the node is short of something, a pod has to go: who, how gently, and what everyone is told.
//!
//! Before that, images that nobody uses make room ([`Collector`]).
//!
//! [`Threshold`]s say when, [`signals`] look, [`rank`] chooses, and [`Monitor`] does it, one pod at a time. The kernel tells
//! memory pressure ([`psi`]), but not when a disk fills up, so all is looked at in intervals, too: cheap reads, off every
//! pod's path. [`StorageLimits`] lets those go who store more than they said, whatever the node has left.

pub mod collection;
pub mod limits;
pub mod monitor;
pub mod psi;
pub mod rank;
pub mod signals;
pub mod threshold;

pub use collection::{Collector, ImageCollection};
pub use limits::StorageLimits;
pub use monitor::{Eviction, Monitor};
pub use threshold::{EvictionConfig, Threshold, ThresholdError};
