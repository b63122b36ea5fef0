//! Who may be evicted when the node is short of something, how long they have, and what they are told.

use alloc::format;
use alloc::string::String;
use core::time::Duration;

use crate::{KillCause, LEAST_GRACE};

/// A pod of this priority or a higher one is critical.
pub const CRITICAL: i32 = 2_000_000_000;
/// What a soft threshold grants at most if nobody said.
const SOFT_MOST: Duration = Duration::from_secs(60);

/// Why a pod is evicted.
#[allow(missing_docs, reason = "a variant's sentence names its fields")]
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Pressure {
    /// A hard threshold was passed.
    Hard { resource: String, detail: String },
    /// A soft threshold was passed for too long. `most` is the configured longest grace in seconds; a negative one
    /// leaves it to the pod.
    Soft { resource: String, detail: String, most: Option<i64> },
    /// The pod itself used more than it may; `what` says of what.
    Limit { what: String },
}

impl Pressure {
    /// Whether a pod may be chosen: static and critical ones may not.
    pub fn may_evict(is_static: bool, priority: i32) -> bool {
        !is_static && priority < CRITICAL
    }

    /// How long a pod with this grace has.
    pub fn grace(&self, pods: Duration) -> Duration {
        let most = match self {
            Self::Hard { .. } | Self::Limit { .. } => LEAST_GRACE,
            Self::Soft { most: None, .. } => SOFT_MOST,
            Self::Soft { most: Some(seconds), .. } => u64::try_from(*seconds).map_or(pods, Duration::from_secs),
        };
        most.min(pods).max(LEAST_GRACE)
    }

    /// What to tell the pod's worker.
    pub fn cause(&self) -> KillCause {
        match self {
            Self::Hard { resource, detail } | Self::Soft { resource, detail, .. } => {
                KillCause::Evicted { message: format!("The node was low on resource: {resource}. {detail}") }
            }
            Self::Limit { what } => KillCause::OverLimit { message: format!("{what} ") },
        }
    }
}

/// `Threshold quantity: …` for the detail of a pressure, if both are known.
pub fn threshold_message(threshold: &str, available: &str) -> String {
    format!("Threshold quantity: {threshold}, available: {available}. ")
}

/// `Container … was using …` for the detail of a pressure.
pub fn offender_message(container: &str, used: &str, request: &str, resource: &str) -> String {
    format!("Container {container} was using {used}, request is {request}, has larger consumption of {resource}. ")
}
