//! What is wrong with bytes that are no JSON, in the words that clients know.
//!
//! The parser that reads bodies is another; this one looks again at what that one has refused, and only to say why.

use serde_json::Value;

/// Why `body` is no JSON; `None` if it is.
pub(crate) fn complaint(body: &[u8]) -> Option<String> {
    let mut scan = Scan { body, at: 0 };
    let outcome = scan.value("looking for beginning of value").and_then(|()| {
        scan.skip_space();
        match scan.body.get(scan.at) {
            Some(_) => Err(scan.unexpected("after top-level value")),
            None => Ok(()),
        }
    });
    outcome.err()
}

/// The same for what the parser refused; where it is stricter than the language, in its own words.
pub(crate) fn words(body: &[u8], error: &serde_json::Error) -> String {
    complaint(body).unwrap_or_else(|| {
        let said = error.to_string();
        said.rsplit_once(" at line ").map_or(said.as_str(), |(words, _)| words).to_owned()
    })
}

/// What a value is called where another was expected.
pub(crate) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The type of an object that may be of any kind.
pub(crate) const ANY_OBJECT: &str = "map[string]interface {}";

/// The sentence about a value that should be an object of type `expected`.
pub(crate) fn not_an_object(value: &Value, expected: &str) -> String {
    format!("json: cannot unmarshal {} into Go value of type {expected}", type_of(value))
}

struct Scan<'a> {
    body: &'a [u8],
    at: usize,
}

impl Scan<'_> {
    fn skip_space(&mut self) {
        while matches!(self.body.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    /// The sentence about the byte that is next, or about there being none.
    fn unexpected(&self, place: &str) -> String {
        let shown = match self.body.get(self.at) {
            None => return "unexpected end of JSON input".to_owned(),
            Some(b'\'') => r"'\''".to_owned(),
            Some(b'"') => "'\"'".to_owned(),
            Some(b'\\') => r"'\\'".to_owned(),
            Some(b'\n') => r"'\n'".to_owned(),
            Some(b'\r') => r"'\r'".to_owned(),
            Some(b'\t') => r"'\t'".to_owned(),
            Some(byte) if byte.is_ascii_control() => format!("'\\x{byte:02x}'"),
            Some(byte) => format!("'{}'", char::from(*byte)),
        };
        format!("invalid character {shown} {place}")
    }

    fn next_is(&mut self, byte: u8) -> bool {
        let is = self.body.get(self.at) == Some(&byte);
        self.at += usize::from(is);
        is
    }

    /// One value and what is in it. Nesting is kept on a list of our own: a body may be all brackets.
    fn value(&mut self, place: &str) -> Result<(), String> {
        let mut open = Vec::new();
        let mut place = place;
        loop {
            self.skip_space();
            match self.body.get(self.at) {
                Some(b'{') => {
                    self.at += 1;
                    self.skip_space();
                    if !self.next_is(b'}') {
                        open.push(b'}');
                        self.key()?;
                        place = "looking for beginning of value";
                        continue;
                    }
                }
                Some(b'[') => {
                    self.at += 1;
                    self.skip_space();
                    if !self.next_is(b']') {
                        open.push(b']');
                        place = "looking for beginning of value";
                        continue;
                    }
                }
                Some(b'"') => self.string()?,
                Some(b'-' | b'0'..=b'9') => self.number()?,
                Some(b't') => self.literal("true")?,
                Some(b'f') => self.literal("false")?,
                Some(b'n') => self.literal("null")?,
                _ => return Err(self.unexpected(place)),
            }
            // A value has ended, and with it perhaps what it stands in.
            loop {
                let Some(close) = open.last().copied() else { return Ok(()) };
                self.skip_space();
                if self.next_is(close) {
                    open.pop();
                    continue;
                }
                if !self.next_is(b',') {
                    let place = if close == b'}' { "after object key:value pair" } else { "after array element" };
                    return Err(self.unexpected(place));
                }
                if close == b'}' {
                    self.skip_space();
                    self.key()?;
                }
                break;
            }
            place = "looking for beginning of value";
        }
    }

    fn key(&mut self) -> Result<(), String> {
        if self.body.get(self.at) != Some(&b'"') {
            return Err(self.unexpected("looking for beginning of object key string"));
        }
        self.string()?;
        self.skip_space();
        if self.next_is(b':') { Ok(()) } else { Err(self.unexpected("after object key")) }
    }

    fn string(&mut self) -> Result<(), String> {
        self.at += 1;
        loop {
            match self.body.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    match self.body.get(self.at) {
                        Some(b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"') => self.at += 1,
                        Some(b'u') => {
                            self.at += 1;
                            for _ in 0..4 {
                                if !self.body.get(self.at).is_some_and(u8::is_ascii_hexdigit) {
                                    return Err(self.unexpected("in \\u hexadecimal character escape"));
                                }
                                self.at += 1;
                            }
                        }
                        _ => return Err(self.unexpected("in string escape code")),
                    }
                }
                Some(byte) if *byte >= 0x20 => self.at += 1,
                _ => return Err(self.unexpected("in string literal")),
            }
        }
    }

    fn digits(&mut self, place: &str) -> Result<(), String> {
        if !self.body.get(self.at).is_some_and(u8::is_ascii_digit) {
            return Err(self.unexpected(place));
        }
        while self.body.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), String> {
        self.next_is(b'-');
        // Nothing follows a zero in front.
        if !self.next_is(b'0') {
            self.digits("in numeric literal")?;
        }
        if self.next_is(b'.') {
            self.digits("after decimal point in numeric literal")?;
        }
        if self.next_is(b'e') || self.next_is(b'E') {
            let _ = self.next_is(b'+') || self.next_is(b'-');
            self.digits("in exponent of numeric literal")?;
        }
        Ok(())
    }

    fn literal(&mut self, word: &str) -> Result<(), String> {
        for letter in word.bytes() {
            if !self.next_is(letter) {
                let place = format!("in literal {word} (expecting '{}')", char::from(letter));
                return Err(self.unexpected(&place));
            }
        }
        Ok(())
    }
}

/// What a body begins with, for people who wonder what they sent.
pub(super) fn summary(body: &[u8]) -> String {
    const MOST: usize = 30;
    let start = &body[..body.len().min(MOST)];
    let shown = match body.first() {
        None => return "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(start).into_owned(),
        Some(_) => start.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    if body.len() > MOST { format!("{shown} ...") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decode_error_has_one_message_for_each_mistake() {
        let end = "unexpected end of JSON input";
        for (body, said) in [
            ("", end),
            (" \n", end),
            ("{", end),
            ("{\"a\"", end),
            ("{\"a\":[1,", end),
            ("\"a", end),
            ("-", end),
            ("tru", end),
            ("hello", "invalid character 'h' looking for beginning of value"),
            ("{} x", "invalid character 'x' after top-level value"),
            ("{a:1}", "invalid character 'a' looking for beginning of object key string"),
            ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 \"b\":2}", "invalid character '\"' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("{\"a\":\"\n\"}", "invalid character '\\n' in string literal"),
            ("\"\\x\"", "invalid character 'x' in string escape code"),
            ("\"\\u12g4\"", "invalid character 'g' in \\u hexadecimal character escape"),
            ("-a", "invalid character 'a' in numeric literal"),
            ("1.a", "invalid character 'a' after decimal point in numeric literal"),
            ("1e+a", "invalid character 'a' in exponent of numeric literal"),
            ("01", "invalid character '1' after top-level value"),
            ("nul1", "invalid character '1' in literal null (expecting 'l')"),
            ("\0", "invalid character '\\x00' looking for beginning of value"),
        ] {
            assert_eq!(complaint(body.as_bytes()).as_deref(), Some(said), "{body:?}");
        }
        for body in ["{}", "[[],{},{\"a\":[null,true,false,-0.5e-7,\"\\u00e9\\n\"]}]", " 1 ", "\"é\""] {
            assert_eq!(complaint(body.as_bytes()), None, "{body}");
        }
        assert_eq!(complaint("[".repeat(1 << 20).as_bytes()).as_deref(), Some(end));
    }

    #[test]
    fn a_long_body_is_shown_by_its_beginning() {
        assert_eq!(summary(b""), "<empty>");
        assert_eq!(summary(b"{\"a\""), "{\"a\"");
        assert_eq!(summary(b"hi"), "6869");
        assert_eq!(summary(&[b'{'; 40]), format!("{} ...", "{".repeat(30)));
    }
}
