//! Small questions that rules ask of JSON values, and the one answer to "was it left out?".

use serde_json::{Map, Value};

/// A list below `value`, empty if it is not there.
pub(crate) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

/// A word below `value`, empty if it is not there.
pub(crate) fn word<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Sets what is absent (or the empty string, which upstream cannot tell from absent).
pub(crate) fn put(map: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    let absent = map.get(key).is_none_or(|v| v.is_null() || v == "");
    if absent {
        map.insert(key.to_owned(), value.into());
    }
}

/// A word in `map`, empty if it is not there.
pub(crate) fn text(map: &Map<String, Value>, key: &str) -> String {
    map.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The objects in a list below `map`, to be changed.
pub(crate) fn each_mut<'a>(
    map: &'a mut Map<String, Value>,
    key: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    map.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// The object below `map`, made if it is missing.
pub(crate) fn child<'a>(map: &'a mut Map<String, Value>, key: &str) -> &'a mut Map<String, Value> {
    let slot = map.entry(key).or_insert_with(|| Value::Object(Map::new()));
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    slot.as_object_mut().expect("made an object above")
}
