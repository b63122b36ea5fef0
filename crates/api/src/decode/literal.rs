//! What is wrong with a word that should be a time or bytes, in the words that clients know.

/// The parts of a moment, as the layout spells them: how many digits, and the highest number they may make.
const PARTS: [(&str, usize, u32, &str); 11] = [
    ("2006", 4, 9999, "year"),
    ("-", 0, 0, ""),
    ("01", 2, 12, "month"),
    ("-", 0, 0, ""),
    ("02", 2, 31, "day"),
    ("T", 0, 0, ""),
    ("15", 2, 23, "hour"),
    (":", 0, 0, ""),
    ("04", 2, 59, "minute"),
    (":", 0, 0, ""),
    ("05", 2, 59, "second"),
];
const SECONDS: &str = "2006-01-02T15:04:05Z07:00";
const MICROSECONDS: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Why `text` is no moment.
pub(super) fn of_time(text: &str, is_micro: bool) -> String {
    let layout = if is_micro { MICROSECONDS } else { SECONDS };
    let mut rest = text;
    for (word, digits, most, name) in PARTS {
        let Some((head, tail)) = rest.split_at_checked(digits.max(1)) else { return cannot(text, layout, rest, word) };
        let number = head.parse::<u32>().ok().filter(|_| head.bytes().all(|byte| byte.is_ascii_digit()));
        match number {
            _ if digits == 0 && head == word => {}
            Some(number) if digits > 0 && number <= most => {}
            Some(_) if digits > 0 => return format!("parsing time {text:?}: {name} out of range"),
            _ => return cannot(text, layout, rest, word),
        }
        rest = tail;
    }
    let fraction = rest.strip_prefix('.').map(|more| more.trim_start_matches(|letter: char| letter.is_ascii_digit()));
    match fraction {
        Some(more) if more.len() + 1 < rest.len() => rest = more,
        None if is_micro => return cannot(text, layout, rest, ".000000"),
        _ => {}
    }
    // Only a day that its month does not have is left, or a zone.
    match rest {
        "Z" => format!("parsing time {text:?}: day out of range"),
        _ => cannot(text, layout, rest, "Z07:00"),
    }
}

fn cannot(text: &str, layout: &str, rest: &str, word: &str) -> String {
    format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {word:?}")
}

/// Why `text` is no base64; `None` if it is.
pub(super) fn of_bytes(text: &str) -> Option<String> {
    use base64::Engine as _;
    let error = base64::engine::general_purpose::STANDARD.decode(text).err()?;
    let at = match error {
        base64::DecodeError::InvalidByte(at, _) => at,
        base64::DecodeError::InvalidLastSymbol { offset, .. } => offset,
        base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => text.len(),
    };
    Some(format!("illegal base64 data at input byte {at}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_refused_where_it_goes_wrong() {
        let layout = "\"2006-01-02T15:04:05Z07:00\"";
        for (text, rest, word) in [
            ("", "", "2006"),
            ("yesterday", "yesterday", "2006"),
            ("2026/01/02", "/01/02", "-"),
            ("2026-1-2", "1-2", "01"),
            ("2026-01-02 03:04:05Z", " 03:04:05Z", "T"),
            ("2026-01-02T03:04", "", ":"),
            ("2026-01-02T03:04:05", "", "Z07:00"),
            ("2026-01-02T03:04:05.5+0100", "+0100", "Z07:00"),
            ("2026-01-02T03:04:é", "é", "05"),
        ] {
            let said = format!("parsing time {text:?} as {layout}: cannot parse {rest:?} as {word:?}");
            assert_eq!(of_time(text, false), said);
        }
        for (text, part) in [("2026-13-02T03:04:05Z", "month"), ("2026-02-30T03:04:05Z", "day")] {
            assert_eq!(of_time(text, false), format!("parsing time {text:?}: {part} out of range"));
        }
        assert!(of_time("2026-01-02T03:04:05Z", true).ends_with("cannot parse \"Z\" as \".000000\""));
    }

    #[test]
    fn bytes_are_refused_where_they_go_wrong() {
        assert_eq!(of_bytes("aGk="), None);
        assert_eq!(of_bytes("%%%").as_deref(), Some("illegal base64 data at input byte 0"));
        assert_eq!(of_bytes("aG").as_deref(), Some("illegal base64 data at input byte 2"));
    }
}
