//! Where moments come from. The only place that reads a clock for the workers.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use lifecycle::{Moment, Wall};
use rustix::time::{ClockId, clock_gettime};

/// Names the time since the machine started; a moment means nothing without it.
pub fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim_end().to_owned())
}

/// The moment it is: milliseconds since boot, time asleep included, so that a deadline passes while the machine sleeps.
pub fn now() -> Moment {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).expect("the boot clock starts at zero");
    let millis = u64::try_from(time.tv_nsec / 1_000_000).expect("nanoseconds are below a second");
    Moment::from_millis(seconds * 1000 + millis)
}

/// The time on the wall: a label for people.
pub fn wall_now() -> Wall {
    let millis = |span: std::time::Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
    Wall(match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(after) => millis(after),
        Err(before) => -millis(before.duration()),
    })
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
        let (first, second) = (now(), now());
        assert!(earlier <= first && first <= second, "{earlier}, {first}, {second}");
        assert!(first.since(earlier).as_secs() < 60);
    }

    #[test]
    fn a_boot_has_a_name() {
        assert_eq!(boot_id().unwrap().len(), 36);
    }
}
