//! The node's clock in the simulated world.

use std::cell::Cell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use timeline::{Clock, TimeSource};

use crate::stand_in::{self, EPOCH_SECONDS};

/// How long the machine has been up when the world begins, and after each boot.
const BOOT_MS: u64 = 5_000_000;

thread_local! {
    /// When it was last booted.
    static BOOTED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// The machine is booted, this long after the world began.
pub fn boot(at: Duration) {
    BOOTED.set(at);
}

/// What the boot clock shows at this millisecond of the world, if it was booted by then.
pub fn boot_ms_of(ms: u64) -> u64 {
    let booted = u64::try_from(BOOTED.get().as_millis()).unwrap_or(u64::MAX);
    BOOT_MS + ms.saturating_sub(booted)
}

#[derive(Debug)]
struct WorldTime;

impl TimeSource for WorldTime {
    fn since_boot(&self) -> Duration {
        Duration::from_millis(BOOT_MS) + stand_in::elapsed().saturating_sub(BOOTED.get())
    }

    fn wall(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(EPOCH_SECONDS) + stand_in::elapsed()
    }
}

/// Tells the time of this thread's world.
pub fn of_world() -> Clock {
    Clock::of(WorldTime)
}

/// How many milliseconds old this thread's world is.
pub fn now_ms() -> u64 {
    u64::try_from(stand_in::elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// A time on the world's wall, in its milliseconds; negative before it began.
pub fn ms_of_wall(unix_ms: i64) -> i64 {
    unix_ms - i64::try_from(EPOCH_SECONDS * 1000).unwrap_or(i64::MAX)
}

/// And the other way round.
pub fn wall_of_ms(ms: u64) -> i64 {
    i64::try_from(EPOCH_SECONDS * 1000 + ms).unwrap_or(i64::MAX)
}
