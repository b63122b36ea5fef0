//! Unknown fields: what was sent, but did not survive the typed view.

use serde_json::Value;

/// Adds `unknown field "a.b[0].c"` for everything in `sent` that `kept` has no place for. A null was never a value,
/// so it is never unknown.
pub(super) fn compare(sent: &Value, kept: &Value, path: &str, complaints: &mut Vec<String>) {
    match (sent, kept) {
        (Value::Object(sent), Value::Object(kept)) => {
            for (key, value) in sent.iter().filter(|(_, value)| !value.is_null()) {
                let path = join(path, key);
                match kept.get(key) {
                    Some(survivor) => compare(value, survivor, &path, complaints),
                    None => complaints.push(format!("unknown field {path:?}")),
                }
            }
        }
        (Value::Array(sent), Value::Array(kept)) => {
            for (index, (value, survivor)) in sent.iter().zip(kept).enumerate() {
                compare(value, survivor, &format!("{path}[{index}]"), complaints);
            }
        }
        // A leaf may be respelled (a time, a quantity); it survived.
        _ => {}
    }
}

/// `spec` + `containers` -> `spec.containers`.
pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
