//! Times as the wire writes them: RFC 3339, UTC, whole seconds (or six decimals for `MicroTime`).

use jiff::Timestamp;

/// `2026-11-15T18:00:44Z`: what `metav1.Time` looks like. The fraction is cut, never rounded.
pub fn seconds(at: Timestamp) -> String {
    truncated(at).to_string()
}

/// `2026-11-15T18:00:44.123456Z`: what `metav1.MicroTime` looks like.
pub(crate) fn micros(at: Timestamp) -> String {
    format!("{at:.6}")
}

/// Reads either form, and any offset.
pub fn parse(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// The moment as it can be stored: cut to the whole second at or before it.
pub(crate) fn truncated(at: Timestamp) -> Timestamp {
    let second = at.as_nanosecond().div_euclid(1_000_000_000);
    let second = i64::try_from(second).expect("a timestamp's seconds fit in 64 bits");
    Timestamp::from_second(second).expect("the second before a valid timestamp is a valid timestamp")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn seconds_are_cut_and_micros_keep_six_decimals() {
        let at = parse("2026-11-15T18:00:44.987654321Z").unwrap();
        assert_eq!(seconds(at), "2026-11-15T18:00:44Z");
        assert_eq!(micros(at), "2026-11-15T18:00:44.987654Z");
        assert_eq!(micros(truncated(at)), "2026-11-15T18:00:44.000000Z");
    }

    #[test]
    fn an_offset_is_brought_to_utc() {
        assert_eq!(seconds(parse("2026-11-15T19:00:44+01:00").unwrap()), "2026-11-15T18:00:44Z");
        assert!(parse("yesterday").is_none());
    }
}
