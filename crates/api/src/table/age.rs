//! Ages for people: two units at most, cut and never rounded (api-deletion 16.4).

use jiff::{SignedDuration, Timestamp};

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// How long ago `then` was; `<unknown>` without one.
pub fn since(then: Option<Timestamp>, now: Timestamp) -> String {
    then.map_or_else(|| "<unknown>".to_owned(), |then| human_duration(now.duration_since(then)))
}

/// A duration the way `kubectl` prints it.
pub(crate) fn human_duration(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    let pair = |big: i64, big_unit: &str, small: i64, small_unit: &str| {
        let (whole, rest) = (seconds / big, seconds % big / small);
        if rest == 0 { format!("{whole}{big_unit}") } else { format!("{whole}{big_unit}{rest}{small_unit}") }
    };
    match seconds {
        ..=-2 => "<invalid>".to_owned(),
        -1 if duration < SignedDuration::from_secs(-1) => "<invalid>".to_owned(),
        -1..=0 => "0s".to_owned(),
        _ if seconds < 2 * MINUTE => format!("{seconds}s"),
        _ if seconds < 10 * MINUTE => pair(MINUTE, "m", 1, "s"),
        _ if seconds < 3 * HOUR => format!("{}m", seconds / MINUTE),
        _ if seconds < 8 * HOUR => pair(HOUR, "h", MINUTE, "m"),
        _ if seconds < 2 * DAY => format!("{}h", seconds / HOUR),
        _ if seconds < 8 * DAY => pair(DAY, "d", HOUR, "h"),
        _ if seconds < 2 * YEAR => format!("{}d", seconds / DAY),
        _ if seconds < 8 * YEAR => pair(YEAR, "y", DAY, "d"),
        _ => format!("{}y", seconds / YEAR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_is_printed_as_kubectl_prints_it() {
        for (seconds, shown) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (9 * MINUTE + 30, "9m30s"),
            (10 * MINUTE, "10m"),
            (179 * MINUTE + 59, "179m"),
            (3 * HOUR, "3h"),
            (7 * HOUR + 5 * MINUTE, "7h5m"),
            (47 * HOUR, "47h"),
            (2 * DAY, "2d"),
            (7 * DAY + 3 * HOUR, "7d3h"),
            (729 * DAY, "729d"),
            (3 * YEAR + 12 * DAY, "3y12d"),
            (2 * YEAR, "2y"),
            (9 * YEAR + 100 * DAY, "9y"),
        ] {
            assert_eq!(human_duration(SignedDuration::from_secs(seconds)), shown, "{seconds}");
        }
        assert_eq!(human_duration(SignedDuration::from_millis(-1500)), "<invalid>");
        assert_eq!(human_duration(SignedDuration::from_millis(119_999)), "119s");
    }
}
