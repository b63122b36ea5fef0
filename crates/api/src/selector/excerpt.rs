//! The few fields that a selector asks about, read from an object's bytes. Everything else is passed over, which costs a
//! fraction of reading it.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// The object that `json` says, with nothing in it but what is at `paths` (`spec.nodeName`). Empty if `json` is no JSON.
pub fn excerpt<P: AsRef<str>>(json: &[u8], paths: &[P]) -> Value {
    let paths: Vec<Vec<&str>> = paths.iter().map(|path| path.as_ref().split('.').collect()).collect();
    let wanted = WantedPaths(paths.iter().map(Vec::as_slice).collect());
    wanted.deserialize(&mut serde_json::Deserializer::from_slice(json)).unwrap_or_default()
}

/// Where to go from here.
struct WantedPaths<'a>(Vec<&'a [&'a str]>);

impl<'a> WantedPaths<'a> {
    fn below(&self, key: &str) -> Self {
        let rest = |path: &&'a [&'a str]| path.split_first().filter(|(first, _)| **first == key).map(|(_, rest)| rest);
        Self(self.0.iter().filter_map(rest).collect())
    }

    fn is_here(&self) -> bool {
        self.0.iter().any(|path| path.is_empty())
    }
}

impl<'de> DeserializeSeed<'de> for WantedPaths<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// The name of a field, if anything at or below it is wanted. Most are not, and are not even copied.
struct Field<'w, 'a>(&'w WantedPaths<'a>);

impl<'de, 'a> DeserializeSeed<'de> for Field<'_, 'a> {
    type Value = Option<(String, WantedPaths<'a>)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for Field<'_, 'a> {
    type Value = Option<(String, WantedPaths<'a>)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        let below = self.0.below(name);
        Ok((!below.0.is_empty()).then(|| (name.to_owned(), below)))
    }
}

/// A path that leads through anything but an object leads nowhere.
impl<'de> Visitor<'de> for WantedPaths<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut found = Map::new();
        while let Some(field) = fields.next_key_seed(Field(&self))? {
            match field {
                None => _ = fields.next_value::<IgnoredAny>()?,
                Some((name, below)) if below.is_here() => _ = found.insert(name, fields.next_value()?),
                Some((name, below)) => _ = found.insert(name, fields.next_value_seed(below)?),
            }
        }
        Ok(Value::Object(found))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Null)
    }

    fn visit_str<E>(self, _: &str) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::FieldSelector;

    #[test]
    fn excerpt_reads_only_the_selected_fields() {
        let pod = json!({
            "kind": "Pod",
            "metadata": {"labels": {"a": "b", "c": "d"}, "name": "x", "ownerReferences": [{"name": "y"}]},
            "spec": {"containers": [{"name": "spec"}], "hostNetwork": true, "nodeName": "n"},
            "status": {"phase": "Running", "nodeName": "other"},
        });
        let json = pod.to_string();
        let found = excerpt(json.as_bytes(), &["metadata.labels", "spec.nodeName", "spec.hostNetwork", "status.podIP"]);
        let expected = json!({
            "metadata": {"labels": {"a": "b", "c": "d"}},
            "spec": {"hostNetwork": true, "nodeName": "n"},
            "status": {},
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn a_path_through_something_else_leads_nowhere() {
        for odd in ["[1, {}]", "\"text\"", "true", "-1", "1", "1.5", "null"] {
            let json = format!("{{\"spec\": {odd}, \"type\": \"t\"}}");
            assert_eq!(
                excerpt(json.as_bytes(), &["spec.nodeName", "type"]),
                json!({"spec": null, "type": "t"}),
                "{odd}"
            );
        }
        assert_eq!(excerpt(b"{\"type\": ", &["type"]), Value::Null);
    }

    /// Whoever selects by an excerpt selects what it would by the whole, whatever field of whatever kind it asks about.
    #[test]
    fn an_excerpt_is_enough_to_select_by() {
        for kind in crate::Registry::built_in().kinds() {
            for (field, path) in &kind.fields {
                let selector = FieldSelector::parse(kind, &format!("{field}=x")).expect("the kind offers the field");
                for way in path.split('|').filter(|way| !way.is_empty()) {
                    let nested = |text: &str| way.rsplit('.').fold(json!(text), |inner, step| json!({ step: inner }));
                    for text in ["x", "y", ""] {
                        let object = nested(text);
                        let paths: Vec<&str> = selector.paths().collect();
                        let found = excerpt(object.to_string().as_bytes(), &paths);
                        assert_eq!(selector.matches(&found), selector.matches(&object), "{} {field}={text}", kind.kind);
                        assert_eq!(selector.matches(&object), text == "x", "{} {field}={text}", kind.kind);
                    }
                }
            }
        }
    }
}
