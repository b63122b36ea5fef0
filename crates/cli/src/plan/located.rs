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
    Map(Vec<(Spanned<String>, Located)>),
}

impl Located {
    /// The same without lines.
    pub(super) fn value(&self) -> Value {
        match &self.shape {
            Shape::Scalar(value) => value.clone(),
            Shape::List(list) => Value::Array(list.iter().map(Self::value).collect()),
            Shape::Map(map) => {
                let fields: Map<_, _> = map.iter().map(|(key, node)| (key.value.clone(), node.value())).collect();
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

    /// The text of the field of that name, or nothing.
    pub(super) fn text(&self, field: &str) -> &str {
        match self.get(field).map(|node| &node.shape) {
            Some(Shape::Scalar(Value::String(text))) => text,
            Some(_) | None => "",
        }
    }

    /// The line of `spec.containers[0].name`, or of as much of that path as exists.
    pub(super) fn line_of(&self, path: &str) -> u64 {
        let (mut node, mut line) = (self, self.line);
        for step in path.split(['.', '[']).filter(|step| !step.is_empty()) {
            let next = match step.strip_suffix(']') {
                Some(index) => index.parse().ok().and_then(|index: usize| node.items().get(index)).map(|n| (n.line, n)),
                None => node.entry(step),
            };
            let Some((next_line, next)) = next else { break };
            (line, node) = (next_line, next);
        }
        line
    }

    fn entry(&self, field: &str) -> Option<(u64, &Located)> {
        match &self.shape {
            Shape::Map(map) => {
                map.iter().find(|(key, _)| key.value == field).map(|(key, node)| (key.referenced.line(), node))
            }
            Shape::Scalar(_) | Shape::List(_) => None,
        }
    }
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
        while let Some(entry) = map.next_entry()? {
            fields.push(entry);
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
    fn what_is_missing_is_looked_for_where_it_should_be() {
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
