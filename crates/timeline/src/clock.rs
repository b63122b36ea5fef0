//! Where moments come from. Whoever needs the time is handed a [`Clock`]; only the machine's own reads the kernel's.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lifecycle::{Moment, Wall};
use rustix::time::{ClockId, clock_gettime};

/// Names the time since the machine started; a moment means nothing without it.
pub fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim_end().to_owned())
}

/// What a clock reads.
pub trait TimeSource: fmt::Debug + Send + Sync + 'static {
    /// Since the machine was booted, time asleep included, so that a deadline passes while the machine sleeps.
    fn since_boot(&self) -> Duration;
    /// The time on the wall.
    fn wall(&self) -> SystemTime;
}

/// Tells the time. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Clock(Arc<dyn TimeSource>);

impl Clock {
    /// The kernel's clocks.
    pub fn of_machine() -> Self {
        Self::of(Machine)
    }

    /// Whatever this source tells.
    pub fn of(source: impl TimeSource) -> Self {
        Self(Arc::new(source))
    }

    /// The moment it is: milliseconds since boot.
    pub fn now(&self) -> Moment {
        Moment::from_millis(u64::try_from(self.0.since_boot().as_millis()).unwrap_or(u64::MAX))
    }

    /// The time on the wall: a label for people.
    pub fn wall_now(&self) -> Wall {
        let millis = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        Wall(match self.0.wall().duration_since(UNIX_EPOCH) {
            Ok(after) => millis(after),
            Err(before) => -millis(before.duration()),
        })
    }

    /// The same, as finely as it is known.
    pub fn system_time(&self) -> SystemTime {
        self.0.wall()
    }
}

/// The kernel's clocks.
#[derive(Debug)]
struct Machine;

impl TimeSource for Machine {
    fn since_boot(&self) -> Duration {
        let time = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).expect("the boot clock starts at zero");
        let nanos = u32::try_from(time.tv_nsec).expect("nanoseconds are below a second");
        Duration::new(seconds, nanos)
    }

    fn wall(&self) -> SystemTime {
        #[expect(clippy::disallowed_methods, reason = "this is the clock")]
        SystemTime::now()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn moments_never_go_back_and_count_from_boot() {
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        // `12345.67 …`: seconds with two digits of hundredths.
        let hundredths: u64 = uptime.split(' ').next().unwrap().replace('.', "").parse().unwrap();
        let earlier = Moment::from_millis(hundredths * 10);
        let clock = Clock::of_machine();
        let (first, second) = (clock.now(), clock.now());
        assert!(earlier <= first && first <= second, "{earlier}, {first}, {second}");
        assert!(first.since(earlier).as_secs() < 60);
    }

    #[test]
    fn boot_id_is_read() {
        assert_eq!(boot_id().unwrap().len(), 36);
    }
}
