//! `-o jsonpath='{…}'` and `-o custom-columns=…`: kubectl's template language, as far as scripts use it.
//!
//! Text outside braces stands for itself. Inside: paths (`.a.b`, `['a']`, `[0]`, `[-1]`, `[1:3]`, `[*]`, `..a`), filters
//! (`[?(@.a=="b")]`), quoted text, and `range … end`.

use std::iter::Peekable;
use std::str::Chars;

use anyhow::{Result, bail, ensure};
use serde_json::Value;

/// Deeper is no template of anybody.
const DEPTH_MOST: usize = 16;
/// Longer neither.
const BYTES_MOST: usize = 64 << 10;

/// A parsed template.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Template(Vec<Node>);

#[derive(Clone, PartialEq, Debug)]
enum Node {
    Text(String),
    Path(Path),
    Range(Path, Vec<Node>),
}

#[derive(Clone, PartialEq, Debug)]
struct Path {
    /// `$`: from the top, also inside a range.
    from_top: bool,
    steps: Vec<Step>,
}

#[derive(Clone, PartialEq, Debug)]
enum Step {
    Field(String),
    Index(i64),
    Slice(Option<i64>, Option<i64>),
    All,
    /// A field, wherever below.
    Below(String),
    Filter(Path, Option<(Comparison, Operand)>),
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, PartialEq, Debug)]
enum Operand {
    Value(Value),
    Path(Path),
}

impl Template {
    /// Reads a template; without any brace it is a path, as kubectl takes it.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        ensure!(text.len() <= BYTES_MOST, "the template is too long");
        let text = if text.contains('{') { text.to_owned() } else { format!("{{.{}}}", text.trim_start_matches('.')) };
        let mut parser = Parser { letters: text.chars().peekable() };
        let (nodes, ended) = parser.nodes(0)?;
        ensure!(!ended, "there is an {{end}} without a {{range}}");
        Ok(Self(nodes))
    }

    /// What it makes of a value. What is not there is nothing.
    pub(crate) fn render(&self, value: &Value) -> String {
        let mut out = String::new();
        render(&self.0, value, value, &mut out);
        out
    }

    /// Everything that it finds, for a column.
    pub(crate) fn values(&self, value: &Value) -> Vec<String> {
        let found = self.0.iter().filter_map(|node| match node {
            Node::Path(path) => Some(path.find(value, value)),
            Node::Text(_) | Node::Range(..) => None,
        });
        found.flatten().map(shown).collect()
    }
}

fn render(nodes: &[Node], top: &Value, at: &Value, out: &mut String) {
    for node in nodes {
        match node {
            Node::Text(text) => out.push_str(text),
            Node::Path(path) => {
                let found: Vec<String> = path.find(top, at).into_iter().map(shown).collect();
                out.push_str(&found.join(" "));
            }
            Node::Range(path, nodes) => path.find(top, at).into_iter().for_each(|item| render(nodes, top, item, out)),
        }
    }
}

/// Text as it is, everything else as JSON.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        value @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => value.to_string(),
    }
}

impl Path {
    fn find<'a>(&self, top: &'a Value, at: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![if self.from_top { top } else { at }];
        for step in &self.steps {
            found = found.into_iter().flat_map(|value| step.take(top, value)).collect();
        }
        found
    }
}

impl Step {
    fn take<'a>(&self, top: &'a Value, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Self::Field(name) => value.get(name).into_iter().collect(),
            Self::Index(number) => {
                value.as_array().and_then(|all| all.get(place(*number, all.len())?)).into_iter().collect()
            }
            Self::Slice(from, to) => {
                let all = value.as_array().map_or(&[][..], Vec::as_slice);
                let end = |number: &Option<i64>, default: usize| match number {
                    Some(number) => place(*number, all.len()).unwrap_or(if *number < 0 { 0 } else { all.len() }),
                    None => default,
                };
                let (from, to) = (end(from, 0), end(to, all.len()));
                all.get(from..to.max(from)).unwrap_or_default().iter().collect()
            }
            Self::All => match value {
                Value::Array(all) => all.iter().collect(),
                Value::Object(all) => all.values().collect(),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
            },
            Self::Below(name) => {
                let mut found = Vec::new();
                below(name, value, &mut found);
                found
            }
            Self::Filter(path, test) => {
                let all = value.as_array().map_or(&[][..], Vec::as_slice);
                all.iter().filter(|item| passes(path, test.as_ref(), top, item)).collect()
            }
        }
    }
}

fn place(number: i64, length: usize) -> Option<usize> {
    match usize::try_from(number) {
        Ok(number) => (number < length).then_some(number),
        Err(_) => length.checked_sub(usize::try_from(number.unsigned_abs()).ok()?),
    }
}

fn below<'a>(name: &str, value: &'a Value, found: &mut Vec<&'a Value>) {
    // The server bounds the depth of what it stores, and so does whoever reads its answers.
    match value {
        Value::Object(fields) => {
            found.extend(fields.get(name));
            fields.values().for_each(|value| below(name, value, found));
        }
        Value::Array(all) => all.iter().for_each(|value| below(name, value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn passes(path: &Path, test: Option<&(Comparison, Operand)>, top: &Value, item: &Value) -> bool {
    let found = path.find(top, item);
    let Some((comparison, operand)) = test else { return !found.is_empty() };
    let Some(left) = found.first() else { return false };
    let right = match operand {
        Operand::Value(value) => value,
        Operand::Path(path) => match path.find(top, item).first() {
            Some(value) => value,
            None => return false,
        },
    };
    let order = match (left.as_f64(), right.as_f64()) {
        (Some(left), Some(right)) => left.partial_cmp(&right),
        _ => Some(shown(left).cmp(&shown(right))),
    };
    order.is_some_and(|order| match comparison {
        Comparison::Equal => order.is_eq(),
        Comparison::NotEqual => order.is_ne(),
        Comparison::Less => order.is_lt(),
        Comparison::LessOrEqual => order.is_le(),
        Comparison::Greater => order.is_gt(),
        Comparison::GreaterOrEqual => order.is_ge(),
    })
}

struct Parser<'a> {
    letters: Peekable<Chars<'a>>,
}

impl Parser<'_> {
    /// Nodes up to the end of the text, or to an `end`; which of both it was comes with them.
    fn nodes(&mut self, depth: usize) -> Result<(Vec<Node>, bool)> {
        ensure!(depth < DEPTH_MOST, "the template is nested too deeply");
        let mut nodes = Vec::new();
        let mut text = String::new();
        while let Some(letter) = self.letters.next() {
            if letter != '{' {
                text.push(letter);
                continue;
            }
            if !text.is_empty() {
                nodes.push(Node::Text(std::mem::take(&mut text)));
            }
            self.blanks();
            match self.letters.peek() {
                Some('"' | '\'') => nodes.push(Node::Text(self.quoted()?)),
                Some('.' | '[' | '$' | '@') => nodes.push(Node::Path(self.path(depth)?)),
                Some('}') => {}
                _ => match self.word().as_str() {
                    "range" => {
                        self.blanks();
                        let path = self.path(depth)?;
                        self.close()?;
                        let (inner, ended) = self.nodes(depth + 1)?;
                        ensure!(ended, "there is a {{range}} without an {{end}}");
                        nodes.push(Node::Range(path, inner));
                        continue;
                    }
                    "end" => {
                        self.close()?;
                        return Ok((nodes, true));
                    }
                    word => bail!("{word:?} means nothing in a template; paths begin with a dot"),
                },
            }
            self.close()?;
        }
        if !text.is_empty() {
            nodes.push(Node::Text(text));
        }
        Ok((nodes, false))
    }

    fn close(&mut self) -> Result<()> {
        self.blanks();
        ensure!(self.letters.next() == Some('}'), "a {{ is not closed by a }}");
        Ok(())
    }

    fn blanks(&mut self) {
        while self.letters.next_if(|letter| letter.is_whitespace()).is_some() {}
    }

    fn take(&mut self, wanted: char) -> bool {
        self.letters.next_if_eq(&wanted).is_some()
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(letter) = self.letters.next_if(|letter| letter.is_alphanumeric() || "-_/".contains(*letter)) {
            word.push(letter);
        }
        word
    }

    fn quoted(&mut self) -> Result<String> {
        let quote = self.letters.next();
        let mut text = String::new();
        while let Some(letter) = self.letters.next() {
            match letter {
                letter if Some(letter) == quote => return Ok(text),
                '\\' => match self.letters.next() {
                    Some('n') => text.push('\n'),
                    Some('t') => text.push('\t'),
                    Some('r') => text.push('\r'),
                    Some(letter) => text.push(letter),
                    None => break,
                },
                letter => text.push(letter),
            }
        }
        bail!("a quote is not closed")
    }

    fn path(&mut self, depth: usize) -> Result<Path> {
        ensure!(depth < DEPTH_MOST, "the template is nested too deeply");
        let from_top = self.take('$');
        self.take('@');
        let mut steps = Vec::new();
        loop {
            if self.take('.') {
                let below = self.take('.');
                if self.take('*') {
                    steps.push(Step::All);
                    continue;
                }
                let name = self.field();
                match (name.is_empty(), below) {
                    // A lone dot is the object itself.
                    (true, false) => {}
                    (true, true) => bail!("after .. there must be a name"),
                    (false, false) => steps.push(Step::Field(name)),
                    (false, true) => steps.push(Step::Below(name)),
                }
            } else if self.take('[') {
                steps.push(self.bracket(depth)?);
            } else {
                return Ok(Path { from_top, steps });
            }
        }
    }

    /// A name, in which `\.` is a dot.
    fn field(&mut self) -> String {
        let mut name = String::new();
        while let Some(letter) = self.letters.next_if(|letter| !".[]{}()=!<> \t\n".contains(*letter)) {
            match letter {
                '\\' => name.extend(self.letters.next()),
                letter => name.push(letter),
            }
        }
        name
    }

    fn bracket(&mut self, depth: usize) -> Result<Step> {
        self.blanks();
        let step = match self.letters.peek() {
            Some('*') => {
                self.letters.next();
                Step::All
            }
            Some('\'' | '"') => Step::Field(self.quoted()?),
            Some('?') => {
                self.letters.next();
                self.filter(depth)?
            }
            _ => {
                let from = self.number()?;
                match (self.take(':'), from) {
                    (true, from) => Step::Slice(from, self.number()?),
                    (false, Some(number)) => Step::Index(number),
                    (false, None) => bail!("in brackets there must be a number, a name in quotes, * or ?(…)"),
                }
            }
        };
        self.blanks();
        ensure!(self.take(']'), "a [ is not closed by a ]");
        Ok(step)
    }

    fn number(&mut self) -> Result<Option<i64>> {
        let mut digits = String::new();
        while let Some(letter) = self.letters.next_if(|letter| letter.is_ascii_digit() || *letter == '-') {
            digits.push(letter);
        }
        if digits.is_empty() {
            return Ok(None);
        }
        match digits.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => bail!("{digits:?} is no number"),
        }
    }

    fn filter(&mut self, depth: usize) -> Result<Step> {
        ensure!(self.take('('), "after ? there must be a (");
        self.blanks();
        let path = self.path(depth + 1)?;
        self.blanks();
        if self.take(')') {
            return Ok(Step::Filter(path, None));
        }
        let mut sign = String::new();
        while let Some(letter) = self.letters.next_if(|letter| "=!<>".contains(*letter)) {
            sign.push(letter);
        }
        let comparison = match sign.as_str() {
            "==" => Comparison::Equal,
            "!=" => Comparison::NotEqual,
            "<" => Comparison::Less,
            "<=" => Comparison::LessOrEqual,
            ">" => Comparison::Greater,
            ">=" => Comparison::GreaterOrEqual,
            sign => bail!("{sign:?} compares nothing; use ==, !=, <, <=, > or >="),
        };
        self.blanks();
        let operand = match self.letters.peek() {
            Some('"' | '\'') => Operand::Value(Value::String(self.quoted()?)),
            Some('@' | '$' | '.') => Operand::Path(self.path(depth + 1)?),
            _ => {
                let mut word = String::new();
                while let Some(letter) = self.letters.next_if(|letter| !letter.is_whitespace() && *letter != ')') {
                    word.push(letter);
                }
                Operand::Value(serde_json::from_str(&word).unwrap_or(Value::String(word)))
            }
        };
        self.blanks();
        ensure!(self.take(')'), "a ( is not closed by a )");
        Ok(Step::Filter(path, Some((comparison, operand))))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    fn rendered(template: &str) -> String {
        let value = json!({
            "kind": "List",
            "items": [
                { "metadata": { "name": "a", "labels": { "x.io/y": "1" } }, "n": 1, "c": [{ "t": "Ready", "s": "True" }] },
                { "metadata": { "name": "b" }, "n": 2, "c": [{ "t": "Other", "s": "x" }, { "t": "Ready", "s": "False" }] },
            ],
        });
        Template::parse(template).unwrap().render(&value)
    }

    #[test]
    fn template_renders_what_kubectl_documents() {
        for (template, expected) in [
            ("{.kind}", "List"),
            ("kind", "List"),
            (".kind", "List"),
            ("{.items[*].metadata.name}", "a b"),
            ("{.items[0].metadata.name} and {.items[-1].metadata.name}", "a and b"),
            ("{.items[0:1].n}{.items[5].n}", "1"),
            (r"{.items[0].metadata.labels.x\.io/y}", "1"),
            ("{.items[0].metadata.labels['x.io/y']}", "1"),
            (r#"{range .items[*]}{.metadata.name}{"\t"}{.n}{"\n"}{end}"#, "a\t1\nb\t2\n"),
            (r#"{.items[?(@.n>1)].metadata.name}"#, "b"),
            (r#"{.items[*].c[?(@.t=="Ready")].s}"#, "True False"),
            (r#"{range .items[*]}{$.kind}/{.metadata.name} {end}"#, "List/a List/b "),
            ("{..name}", "a b"),
            ("{.nothing.here}", ""),
            ("{.items[0].metadata.labels}", r#"{"x.io/y":"1"}"#),
        ] {
            assert_eq!(rendered(template), expected, "{template}");
        }
    }

    #[test]
    fn template_that_cannot_be_read_is_refused_whatever_it_is() {
        for template in [
            "{.a",
            "{range .a}",
            "{end}",
            "{.a[}",
            "{.a[x]}",
            "{.a[?(@.b=1)]}",
            "{foo}",
            "{'a}",
            "{.a[1",
            "{.a[?(",
            "{..",
        ] {
            assert!(Template::parse(template).is_err(), "{template}");
        }
        assert!(Template::parse(&"{range .a}".repeat(1000)).is_err());
        assert!(Template::parse(&format!("{{.a{}", "[?(@".repeat(1000))).is_err());
        assert!(Template::parse(&"x".repeat(BYTES_MOST + 1)).is_err());
    }
}
