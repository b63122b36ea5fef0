//! Query parameters, decoded once.

use std::time::Duration;

use api::Status;

/// The decoded parameters of a request, in order. Unknown ones are simply never asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
    /// What the client wrote.
    raw: String,
}

impl Query {
    pub(crate) fn parse(raw: Option<&str>) -> Self {
        let raw = raw.unwrap_or_default();
        let pairs = split(raw).map(|(name, value)| (decode(name, true), decode(value, true))).collect();
        Self { pairs, raw: raw.to_owned() }
    }

    pub(crate) fn pairs(&self) -> &[(String, String)] {
        &self.pairs
    }

    /// The parameters as the client wrote them, each by its decoded name: values that are sent on like this are read as they
    /// were meant, and are no longer than they came.
    pub(crate) fn written(&self) -> impl Iterator<Item = (String, &str)> {
        split(&self.raw).map(|(name, value)| (decode(name, true), value))
    }

    /// The first value of `name`; an empty value counts as absent.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.pairs
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    /// Sets `name`, whatever it was before.
    pub(crate) fn put(&mut self, name: &str, value: String) {
        self.pairs.retain(|(key, _)| key != name);
        self.pairs.push((name.to_owned(), value));
    }

    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Upstream's reading of a boolean: present counts as true unless it is `false` or `0`.
    pub(crate) fn flag(&self, name: &str) -> bool {
        match self.pairs.iter().find(|(key, _)| key == name) {
            Some((_, value)) => !matches!(value.to_ascii_lowercase().as_str(), "false" | "0"),
            None => false,
        }
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<i64>, Status> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let parsed = text.parse().map_err(|_| {
            Status::bad_request(format!("strconv.ParseInt: parsing {}: invalid syntax", format_args!("{text:?}")))
        })?;
        Ok(Some(parsed))
    }
}

fn split(raw: &str) -> impl Iterator<Item = (&str, &str)> {
    raw.split('&').filter(|part| !part.is_empty()).map(|part| part.split_once('=').unwrap_or((part, "")))
}

/// A duration as Go writes it: `30s`, `1m30s`, `500ms`. Never longer than a day.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let mut left = text.strip_prefix('+').unwrap_or(text);
    if left == "0" {
        return Some(Duration::ZERO);
    }
    let mut total = 0.0;
    while !left.is_empty() {
        let digits = left.find(|c: char| !c.is_ascii_digit() && c != '.').filter(|at| *at > 0)?;
        let (number, rest) = left.split_at(digits);
        let unit = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let (unit, rest) = rest.split_at(unit);
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * seconds;
        left = rest;
    }
    (!text.is_empty()).then(|| Duration::from_secs_f64(total.min(86_400.0)))
}

/// Percent-decoding; `plus` also turns `+` into a space, as in query strings but not in paths.
pub(crate) fn decode(text: &str, plus: bool) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%')
            .then(|| bytes.get(at + 1..at + 3))
            .flatten()
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match escaped {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(if plus && bytes[at] == b'+' { b' ' } else { bytes[at] });
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The inverse for query values we send on ourselves.
pub(crate) fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            _ => {
                const HEX: &[u8; 16] = b"0123456789ABCDEF";
                out.push('%');
                out.push(char::from(HEX[usize::from(byte >> 4)]));
                out.push(char::from(HEX[usize::from(byte & 15)]));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn parameters_are_decoded_and_repeatable() {
        let query = Query::parse(Some("command=sh&command=-c&command=echo+a%2Bb&watch=true&limit=500&empty="));
        assert_eq!(query.all("command").collect::<Vec<_>>(), ["sh", "-c", "echo a+b"]);
        assert!(query.flag("watch"));
        assert!(!query.flag("follow"));
        assert_eq!(query.number("limit").unwrap(), Some(500));
        assert_eq!(query.get("empty"), None);
        assert_eq!(decode(&encode("a b&c=ü%"), true), "a b&c=ü%");
    }

    #[test]
    fn a_number_that_is_none_is_refused_in_upstreams_words() {
        let error = Query::parse(Some("limit=abc")).number("limit").unwrap_err();
        assert_eq!(error.code, 400);
        assert!(error.message.contains("strconv.ParseInt: parsing \"abc\": invalid syntax"), "{}", error.message);
    }

    #[test]
    fn durations_are_read_as_go_writes_them() {
        assert_eq!(duration("1m30s"), Some(Duration::from_secs(90)));
        assert_eq!(duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(duration("1.5h"), Some(Duration::from_secs(5400)));
        assert_eq!(duration("0"), Some(Duration::ZERO));
        for wrong in ["", "5", "s", "-1s", "1x", "1s2"] {
            assert_eq!(duration(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn broken_escapes_are_kept_as_they_are() {
        assert_eq!(decode("100%", true), "100%");
        assert_eq!(decode("%zz%4", true), "%zz%4");
    }
}
