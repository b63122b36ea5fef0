//! How plans print durations.

use std::time::Duration;

/// A length as a person would write it: `30s`, `1.5s`, `10m`, `1h30m`.
pub(super) fn length(length: Duration) -> String {
    let (seconds, millis) = (length.as_secs(), length.subsec_millis());
    if seconds < 120 || millis != 0 {
        let fraction = format!("{millis:03}");
        let fraction = fraction.trim_end_matches('0');
        return if fraction.is_empty() { format!("{seconds}s") } else { format!("{seconds}.{fraction}s") };
    }
    let parts = [(seconds / 3600, "h"), (seconds % 3600 / 60, "m"), (seconds % 60, "s")];
    parts.iter().filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count}{unit}")).collect()
}

/// The same, rounded to a tenth of a second: what happened, as opposed to what was written.
pub(super) fn about(exact: Duration) -> String {
    let tenths = (exact.as_millis() + 50) / 100;
    length(Duration::from_millis(u64::try_from(tenths * 100).unwrap_or(u64::MAX)))
}

/// A moment of the timeline, in milliseconds from the delete.
pub(super) fn moment(millis: i64) -> String {
    let tenths = (millis.unsigned_abs() + 50) / 100;
    let sign = if millis < 0 && tenths > 0 { "-" } else { "" };
    if tenths >= 1_200 {
        return sign.to_owned() + &about(Duration::from_millis(tenths * 100));
    }
    format!("{sign}{}.{}s", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_read_well() {
        for (millis, text) in [
            (0, "0s"),
            (500, "0.5s"),
            (30_000, "30s"),
            (90_000, "90s"),
            (120_000, "2m"),
            (5_400_000, "1h30m"),
            (3_601_000, "1h1s"),
        ] {
            assert_eq!(length(Duration::from_millis(millis)), text);
        }
        assert_eq!(about(Duration::from_millis(1_004)), "1s");
        assert_eq!((moment(2_401_004), moment(-120_000)), ("40m1s".into(), "-2m".into()));
        assert_eq!((moment(30_001), moment(-1), moment(-2_500)), ("30.0s".into(), "0.0s".into(), "-2.5s".into()));
    }
}
