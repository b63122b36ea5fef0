//! Bytes to a plain JSON value, by content type, with every key that appeared twice.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::path::Path;
use super::syntax;
use crate::patch::PatchType;
use crate::status::Status;

/// A body as it was sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Body {
    /// `apiVersion`, or `""`.
    pub api_version: String,
    /// `kind`, or `""`.
    pub kind: String,
    /// The rest.
    pub value: Value,
    /// Paths of keys that appeared more than once; the last one counts.
    pub duplicates: Vec<String>,
    /// Field names are unknown to protobuf, so strict validation does not apply.
    pub is_protobuf: bool,
}

/// Reads a body of any kind; `expected` is the kind for the error text. No content type means JSON.
pub fn read_body(content_type: Option<&str>, body: &[u8], expected: &str) -> Result<Body, Status> {
    let media_type = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let duplicates = RefCell::new(Vec::new());
    let reader = Reader { path: &Path::Root, duplicates: &duplicates, order: None };
    let unrecognized = |cause: String| {
        let shown = syntax::summary(body);
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {expected}): {cause} ({shown})"
        ))
    };
    let no_type = |cause: String| unrecognized(format!("couldn't get version/kind; json parse error: {cause}"));
    let mut value = match media_type.to_ascii_lowercase().as_str() {
        "" | "application/json" | "text/json" => {
            // A byte that is no letter becomes the sign for one, as with every other server of this API.
            let text = String::from_utf8_lossy(body);
            let mut json = serde_json::Deserializer::from_str(&text);
            let value = reader.deserialize(&mut json).and_then(|value| json.end().map(|()| value));
            value.map_err(|error| no_type(syntax::words(body, &error)))?
        }
        "application/yaml" | "text/yaml" => read_yaml(body, reader).map_err(unrecognized)?,
        "application/vnd.kubernetes.protobuf" => {
            let (api_version, kind, value) = crate::protobuf::decode_envelope(body)?;
            return Ok(Body { api_version, kind, value, duplicates: Vec::new(), is_protobuf: true });
        }
        _ => return Err(Status::unsupported_media_type()),
    };
    if value.is_null() {
        value = Value::Object(Map::new());
    }
    if !value.is_object() {
        return Err(no_type(syntax::not_an_object(&value, expected)));
    }
    for key in ["apiVersion", "kind"] {
        if let Some(word) = value.get(key).filter(|word| !word.is_string() && !word.is_null()) {
            let found = syntax::type_of(word);
            return Err(no_type(format!("json: cannot unmarshal {found} into Go struct field .{key} of type string")));
        }
    }
    let (api_version, kind) = take_type(&mut value);
    Ok(Body { api_version, kind, value, duplicates: duplicates.into_inner(), is_protobuf: false })
}

/// Reads what an apply wishes for.
pub(crate) fn read_applied(body: &[u8]) -> Result<Body, Status> {
    let duplicates = RefCell::new(Vec::new());
    let reader = Reader { path: &Path::Root, duplicates: &duplicates, order: None };
    let refused = |cause: String| Status::bad_request(format!("error decoding patch: {cause}"));
    let mut value = read_yaml(body, reader).map_err(refused)?;
    if value.is_null() {
        value = Value::Object(Map::new());
    }
    if !value.is_object() {
        return Err(refused(syntax::not_an_object(&value, syntax::ANY_OBJECT)));
    }
    let (api_version, kind) = take_type(&mut value);
    Ok(Body { api_version, kind, value, duplicates: duplicates.into_inner(), is_protobuf: false })
}

/// The path of every key of a body, in the order in which they stand there. The body has been read before.
pub(super) fn keys_in_order(content_type: Option<&str>, body: &[u8]) -> Vec<String> {
    let (duplicates, order) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
    let reader = Reader { path: &Path::Root, duplicates: &duplicates, order: Some(&order) };
    if content_type.is_some_and(|content_type| content_type.contains("yaml")) {
        let _ = read_yaml(body, reader);
    } else {
        let _ = reader.deserialize(&mut serde_json::Deserializer::from_slice(body));
    }
    order.into_inner()
}

/// The keys that a patch names twice; a JSON patch is a list of steps, whose own keys nobody repeats.
pub(super) fn duplicates(patch_type: PatchType, body: &[u8]) -> Vec<String> {
    let duplicates = RefCell::new(Vec::new());
    let reader = Reader { path: &Path::Root, duplicates: &duplicates, order: None };
    // Whether it can be read at all was seen when it was applied.
    match patch_type {
        PatchType::Merge | PatchType::Strategic => {
            let _ = reader.deserialize(&mut serde_json::Deserializer::from_slice(body));
        }
        PatchType::Apply => {
            let _ = read_yaml(body, reader);
        }
        PatchType::Json => {}
    }
    duplicates.into_inner()
}

/// A value as YAML, for those who asked for it.
pub fn to_yaml(value: &Value) -> Option<String> {
    serde_saphyr::to_string(value).ok()
}

fn read_yaml(body: &[u8], reader: Reader<'_>) -> Result<Value, String> {
    let mut options = serde_saphyr::Options::default();
    // Let both of a pair of equal keys through: the reader reports them, validation decides.
    options.duplicate_keys = serde_saphyr::DuplicateKeyPolicy::LastWins;
    let text = std::str::from_utf8(body).map_err(|_| "yaml: invalid leading UTF-8 octet".to_owned())?;
    serde_saphyr::with_deserializer_from_str_with_options(text, options, |yaml| reader.deserialize(yaml))
        .map_err(|error| yaml_words(&error.to_string()))
}

/// `yaml: line 3: ...`; the parser draws a picture as well, and what was sent is in it.
fn yaml_words(said: &str) -> String {
    let first = said.lines().next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first);
    let place = first.strip_prefix("line ").and_then(|rest| rest.split_once(" column "));
    match place.and_then(|(line, rest)| Some((line, rest.split_once(": ")?.1))) {
        Some((_, cause)) if cause.starts_with("recursive references") => {
            "yaml: anchor value contains itself".to_owned()
        }
        Some((line, cause)) => format!("yaml: line {line}: {cause}"),
        None => format!("yaml: {first}"),
    }
}

/// Takes `apiVersion` and `kind` out of an object: the frame carries them.
pub(super) fn take_type(value: &mut Value) -> (String, String) {
    let mut take = |key: &str| match value.as_object_mut().and_then(|map| map.remove(key)) {
        Some(Value::String(word)) => word,
        Some(_) | None => String::new(),
    };
    (take("apiVersion"), take("kind"))
}

/// Builds a value while noting keys that it has seen before in the same object.
struct Reader<'a> {
    path: &'a Path<'a>,
    duplicates: &'a RefCell<Vec<String>>,
    /// Where the paths of all keys go, for those who want to know what came first.
    order: Option<&'a RefCell<Vec<String>>>,
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let path = self.path.index(list.len());
            match seq.next_element_seed(Reader { path: &path, duplicates: self.duplicates, order: self.order })? {
                Some(value) => list.push(value),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let path = self.path.key(&key);
            if let Some(order) = self.order {
                order.borrow_mut().push(path.to_string());
            }
            if object.contains_key(&key) {
                self.duplicates.borrow_mut().push(path.to_string());
            }
            let value = map.next_value_seed(Reader { path: &path, duplicates: self.duplicates, order: self.order })?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}
