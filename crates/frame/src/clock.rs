//! What time it is: handed in, so that whoever runs a controller can let it pass as it likes.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// Who waits for longer than this looks again on the way: the two clocks drift apart, and people set one of them.
const FAR: Duration = Duration::from_secs(24 * 3600);

/// One moment, by both clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Now {
    /// On a clock that only goes forward.
    pub instant: Instant,
    /// On the wall, for what is stored.
    pub timestamp: Timestamp,
}

impl Now {
    /// When a stored deadline is reached, or a moment on the way to it.
    pub fn at(&self, deadline: Timestamp) -> Instant {
        let left = Duration::try_from(deadline.duration_since(self.timestamp)).unwrap_or_default();
        self.instant + left.min(FAR)
    }
}

/// Tells the time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    /// Where the wall's time began, if it goes by tokio's.
    began: Option<Now>,
}

impl Clock {
    /// The machine's.
    pub fn system() -> Self {
        Self::default()
    }

    /// One whose wall shows `timestamp` now and goes by tokio's time, paused or not.
    pub fn simulated(timestamp: Timestamp) -> Self {
        Self { began: Some(Now { instant: Instant::now(), timestamp }) }
    }

    /// What time it is.
    pub fn now(&self) -> Now {
        let instant = Instant::now();
        let timestamp = match self.began {
            #[expect(clippy::disallowed_methods, reason = "this is the clock")]
            None => Timestamp::now(),
            Some(began) => {
                began.timestamp.saturating_add(instant.duration_since(began.instant)).unwrap_or(Timestamp::MAX)
            }
        };
        Now { instant, timestamp }
    }
}
