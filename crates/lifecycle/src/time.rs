//! Time as the rules see it: moments to reckon with, and wall-clock labels to show.

use core::fmt;
use core::ops::{Add, Sub};
use core::time::Duration;

/// A point on the machine's boot clock, in milliseconds. Never read here, only told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Moment(u64);

impl Moment {
    /// The moment `millis` milliseconds after boot.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }
    /// Milliseconds since boot.
    pub const fn as_millis(self) -> u64 {
        self.0
    }
    /// How long after `earlier` this is; zero if it is not after it.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
    /// The moment `by` before this one, or the boot itself if that is later.
    pub fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(by.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;
    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Moment {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// A wall-clock label: milliseconds since 1970, shown to people and never reckoned with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Wall(pub i64);
