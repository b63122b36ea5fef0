//! Label selectors: `a=b`, `a!=b`, `a in (x,y)`, `a notin (x,y)`, `a`, `!a`, `a gt 1`, joined by commas.

use serde_json::Value;

use crate::meta;
use crate::rules::names;
use crate::status::Status;

/// A parsed label selector; all requirements must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
    Greater(i64),
    Less(i64),
}

impl LabelSelector {
    /// Reads a selector; bad syntax is 400.
    pub fn parse(text: &str) -> Result<Self, Status> {
        let refused = |cause: String| Status::bad_request(format!("unable to parse requirement: {cause}"));
        let mut parser = Parser { words: words(text), at: 0 };
        let mut requirements = Vec::new();
        while !parser.is_done() {
            requirements.push(parser.requirement().map_err(refused)?);
            if parser.is_done() {
                break;
            }
            parser.expect(",").map_err(refused)?;
            if parser.is_done() {
                return Err(refused("found '', expected: identifier after ','".to_owned()));
            }
        }
        Ok(Self { requirements })
    }

    /// Whether the object's labels satisfy every requirement.
    pub fn matches(&self, object: &Value) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = meta::label(object, &requirement.key);
            match &requirement.test {
                Test::Exists => value.is_some(),
                Test::Absent => value.is_none(),
                Test::In(values) => value.is_some_and(|v| values.iter().any(|w| w == v)),
                // An object without the key is not one of the unwanted.
                Test::NotIn(values) => value.is_none_or(|v| !values.iter().any(|w| w == v)),
                Test::Greater(than) => value.and_then(number).is_some_and(|n| n > *than),
                Test::Less(than) => value.and_then(number).is_some_and(|n| n < *than),
            }
        })
    }

    /// Whether everything matches.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// What must be known of an object to tell.
    pub fn paths(&self) -> impl Iterator<Item = &'static str> {
        (!self.is_empty()).then_some("metadata.labels").into_iter()
    }
}

fn number(text: &str) -> Option<i64> {
    text.parse().ok()
}

/// Words and punctuation; spaces only separate.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let symbol = ["==", "!=", "=", "!", "(", ")", ",", "<", ">"].iter().find(|s| rest.starts_with(**s));
        let length = match symbol {
            Some(symbol) => symbol.len(),
            None => rest.find(|c: char| c.is_whitespace() || "=!(),<>".contains(c)).unwrap_or(rest.len()),
        };
        let length = length.max(first.len_utf8());
        words.push(rest[..length].to_owned());
        rest = rest[length..].trim_start();
    }
    words
}

struct Parser {
    words: Vec<String>,
    at: usize,
}

impl Parser {
    fn is_done(&self) -> bool {
        self.at >= self.words.len()
    }

    fn peek(&self) -> &str {
        self.words.get(self.at).map_or("", String::as_str)
    }

    fn next(&mut self) -> String {
        let word = self.peek().to_owned();
        self.at += 1;
        word
    }

    fn expect(&mut self, symbol: &str) -> Result<(), String> {
        let word = self.next();
        if word == symbol { Ok(()) } else { Err(format!("found '{word}', expected: '{symbol}'")) }
    }

    fn key(&mut self) -> Result<String, String> {
        let word = self.next();
        if word.is_empty() || is_symbol(&word) {
            return Err(format!("found '{word}', expected: identifier"));
        }
        match names::qualified(&word) {
            Some(text) => Err(format!("key: Invalid value: {word:?}: {text}")),
            None => Ok(word),
        }
    }

    fn value(&mut self) -> Result<String, String> {
        if self.is_done() || matches!(self.peek(), "," | ")") {
            return Ok(String::new());
        }
        let word = self.next();
        if is_symbol(&word) {
            return Err(format!("found '{word}', expected: identifier"));
        }
        match names::label_value(&word) {
            Some(text) => Err(format!("values[0]: Invalid value: {word:?}: {text}")),
            None => Ok(word),
        }
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        self.expect("(")?;
        let mut values = vec![self.value()?];
        while self.peek() == "," {
            self.next();
            values.push(self.value()?);
        }
        self.expect(")")?;
        Ok(values)
    }

    fn bound(&mut self) -> Result<i64, String> {
        let word = self.next();
        number(&word).ok_or_else(|| {
            format!("values[0]: Invalid value: {word:?}: for 'Gt', 'Lt' operators, the value must be an integer")
        })
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        if self.peek() == "!" {
            self.next();
            return Ok(Requirement { key: self.key()?, test: Test::Absent });
        }
        let key = self.key()?;
        if self.is_done() || self.peek() == "," {
            return Ok(Requirement { key, test: Test::Exists });
        }
        let test = match self.next().as_str() {
            "=" | "==" => Test::In(vec![self.value()?]),
            "!=" => Test::NotIn(vec![self.value()?]),
            "in" => Test::In(self.values()?),
            "notin" => Test::NotIn(self.values()?),
            ">" | "gt" => Test::Greater(self.bound()?),
            "<" | "lt" => Test::Less(self.bound()?),
            other => return Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
        };
        Ok(Requirement { key, test })
    }
}

fn is_symbol(word: &str) -> bool {
    matches!(word, "=" | "==" | "!=" | "!" | "(" | ")" | "," | "<" | ">")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn each_form_selects_what_it_says() {
        let object = json!({"metadata": {"labels": {"app": "web", "tier": "front", "size": "5"}}});
        for (text, expected) in [
            ("", true),
            ("app=web", true),
            ("app==web,tier=front", true),
            ("app = web , tier=back", false),
            ("app!=web", false),
            ("other!=x", true),
            ("app in (api, web)", true),
            ("app notin (api,db)", true),
            ("other notin (x)", true),
            ("app", true),
            ("!app", false),
            ("!other", true),
            ("other", false),
            ("size gt 4", true),
            ("size<5", false),
            ("other gt 1", false),
            ("app=", false),
            ("other in ()", false),
        ] {
            assert_eq!(LabelSelector::parse(text).unwrap().matches(&object), expected, "{text}");
        }
        assert!(LabelSelector::parse(" ").unwrap().is_empty());
    }

    #[test]
    fn bad_syntax_is_400() {
        for bad in ["a=b,", "=b", "a in x", "a in (x", "-a=b", "a=b c", "a=(", "a gt x", "a ! b", ",a"] {
            assert_eq!(LabelSelector::parse(bad).unwrap_err().code, 400, "{bad}");
        }
    }
}
