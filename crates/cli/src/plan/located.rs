//! A YAML or JSON document that still knows its lines, so that a complaint about a field can say where it stands.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use serde_saphyr::Spanned;

/// One node of a document.
#[derive(Clone, Debug)]
pub(super) struct Located {
    /// The line it begins on, counted from 1.
    pub(super) line: u64,
    shape: Shape,
}

#[derive(Clone, Debug)]
enum Shape {
    Scalar(Value),
    List(Vec<Located>),
    Map(Vec<(u64, String, Located)>),
}

impl Located {
    /// An object that is written nowhere: every line is 0.
    pub(super) fn nowhere(value: &Value) -> Self {
        let shape = match value {
            Value::Array(list) => Shape::List(list.iter().map(Self::nowhere).collect()),
            Value::Object(map) => {
                Shape::Map(map.iter().map(|(key, value)| (0, key.clone(), Self::nowhere(value))).collect())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Shape::Scalar(value.clone()),
        };
        Self { line: 0, shape }
    }

    /// The same without lines.
    pub(super) fn value(&self) -> Value {
        match &self.shape {
            Shape::Scalar(value) => value.clone(),
            Shape::List(list) => Value::Array(list.iter().map(Self::value).collect()),
            Shape::Map(map) => {
                let fields: Map<_, _> = map.iter().map(|(_, key, node)| (key.clone(), node.value())).collect();
                Value::Object(fields)
            }
        }
    }

    /// The items of a list; nothing if it is none.
    pub(super) fn items(&self) -> &[Located] {
        match &self.shape {
            Shape::List(list) => list,
            Shape::Scalar(_) | Shape::Map(_) => &[],
        }
    }

    /// The field of that name.
    pub(super) fn get(&self, field: &str) -> Option<&Located> {
        self.entry(field).map(|(_, node)| node)
    }

    /// Whether it is an object.
    pub(super) fn is_map(&self) -> bool {
        matches!(self.shape, Shape::Map(_))
    }

    /// The text of the field of that name, or nothing.
    pub(super) fn text(&self, field: &str) -> &str {
        match self.get(field).map(|node| &node.shape) {
            Some(Shape::Scalar(Value::String(text))) => text,
            Some(_) | None => "",
        }
    }

    /// The line of `spec.containers[0].name`, or of as much of that path as exists.
    pub(super) fn line_of(&self, path: &str) -> u64 {
        let (mut node, mut line, mut rest) = (self, self.line, path);
        while let Some((step, further)) = next_step(rest, |key| node.get(key).is_some()) {
            let next = match step {
                Step::Index(index) => node.items().get(index).map(|item| (item.line, item)),
                Step::Key(key) => node.entry(key),
            };
            let Some((next_line, next)) = next else { break };
            (line, node, rest) = (next_line, next, further);
        }
        line
    }

    /// The same in a text that has so many lines before it.
    pub(super) fn moved_down(mut self, lines: u64) -> Self {
        self.line += lines;
        self.shape = match self.shape {
            Shape::Scalar(value) => Shape::Scalar(value),
            Shape::List(list) => Shape::List(list.into_iter().map(|item| item.moved_down(lines)).collect()),
            Shape::Map(map) => {
                let moved = |(line, key, node): (u64, String, Self)| (line + lines, key, node.moved_down(lines));
                Shape::Map(map.into_iter().map(moved).collect())
            }
        };
        self
    }

    /// What it is, in a word.
    pub(super) fn shape_word(&self) -> &'static str {
        match &self.shape {
            Shape::Map(_) => "an object",
            Shape::List(_) => "a list",
            Shape::Scalar(Value::String(_)) => "a text",
            Shape::Scalar(_) => "a value",
        }
    }

    fn entry(&self, field: &str) -> Option<(u64, &Located)> {
        match &self.shape {
            Shape::Map(map) => map.iter().find(|(_, key, _)| key == field).map(|(line, _, node)| (*line, node)),
            Shape::Scalar(_) | Shape::List(_) => None,
        }
    }
}

/// One step of a path such as `spec.containers[0].name`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step<'a> {
    /// Into a field.
    Key(&'a str),
    /// Into an item.
    Index(usize),
}

/// The first step of a path and what follows it. Keys may hold dots (`metadata.labels.app.kubernetes.io/name`): of all
/// ways to read one, the longest that exists here is taken.
pub(super) fn next_step<'a>(path: &'a str, exists: impl Fn(&str) -> bool) -> Option<(Step<'a>, &'a str)> {
    let path = path.strip_prefix('.').unwrap_or(path);
    if let Some(rest) = path.strip_prefix('[') {
        let (index, rest) = rest.split_once(']')?;
        return Some((Step::Index(index.parse().ok()?), rest));
    }
    let ends = || path.match_indices(['.', '[']).map(|(at, _)| at).chain([path.len()]).filter(|end| *end > 0);
    let end = ends().filter(|end| exists(&path[..*end])).max().or_else(|| ends().min())?;
    Some((Step::Key(&path[..end]), &path[end..]))
}

impl<'de> Deserialize<'de> for Located {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value: shape, referenced, .. } = Spanned::<Shape>::deserialize(deserializer)?;
        Ok(Self { line: referenced.line(), shape })
    }
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ShapeVisitor)
    }
}

struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = Shape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E: Error>(self) -> Result<Shape, E> {
        Ok(Shape::Scalar(Value::Null))
    }

    fn visit_none<E: Error>(self) -> Result<Shape, E> {
        Ok(Shape::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Shape, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Shape, E> {
        Ok(Shape::Scalar(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Shape, E> {
        Ok(Shape::Scalar(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Shape, E> {
        Ok(Shape::Scalar(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Shape, E> {
        Ok(Shape::Scalar(value.into()))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Shape, E> {
        Ok(Shape::Scalar(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Shape, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = seq.next_element()? {
            list.push(item);
        }
        Ok(Shape::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Shape, A::Error> {
        let mut fields = Vec::new();
        while let Some((key, node)) = map.next_entry::<Spanned<String>, Located>()? {
            fields.push((key.referenced.line(), key.value, node));
        }
        Ok(Shape::Map(fields))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Located;

    const TEXT: &str = "kind: Pod\nspec:\n  containers:\n  - name: app\n    image: web\n  - name: log\n    ports: [{containerPort: 80}]\n";

    fn document() -> Located {
        serde_saphyr::from_str(TEXT).expect("it is YAML")
    }

    #[test]
    fn every_field_knows_its_line() {
        let document = document();
        for (path, line) in [
            ("kind", 1),
            ("spec", 2),
            ("spec.containers", 3),
            ("spec.containers[0]", 4),
            ("spec.containers[0].image", 5),
            ("spec.containers[1].ports[0].containerPort", 7),
        ] {
            assert_eq!(document.line_of(path), line, "{path}");
        }
    }

    #[test]
    fn missing_field_has_the_line_of_its_nearest_parent() {
        assert_eq!(document().line_of("spec.containers[1].lifecycle.preStop"), 6);
        assert_eq!(document().line_of("metadata.name"), 1);
    }

    #[test]
    fn json_is_read_as_well() {
        let document: Located =
            serde_saphyr::from_str("{\n \"kind\": \"Pod\",\n \"n\": [1, true, null]\n}").expect("JSON");
        assert_eq!(document.line_of("n[1]"), 3);
        assert_eq!(document.value(), json!({ "kind": "Pod", "n": [1, true, null] }));
    }
}
