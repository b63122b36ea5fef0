//! The one deadline that every step of a termination draws on.
//!
//! The `lifecycle` crate's most important arithmetic; node-termination 3.3 to 3.5.

use core::time::Duration;

use crate::Moment;

/// A grace period pinned to the moment of its first request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GraceBudget {
    asked_at: Moment,
    grace: Duration,
}

impl GraceBudget {
    /// A budget that starts now.
    pub fn starting(asked_at: Moment, grace: Duration) -> Self {
        Self { asked_at, grace }
    }
    /// When it is spent.
    pub fn deadline(&self) -> Moment {
        self.asked_at + self.grace
    }
}
