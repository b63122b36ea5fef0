//! Unknown fields: what was sent, but did not survive the typed view.

use serde_json::Value;

use super::path::Path;

/// Adds `unknown field "a.b[0].c"` for everything in `sent` that `kept` has no place for. A null was never a value,
/// so it is never unknown.
pub(super) fn compare(sent: &Value, kept: &Value, path: &Path<'_>, complaints: &mut Vec<String>) {
    match (sent, kept) {
        (Value::Object(sent), Value::Object(kept)) => {
            for (key, value) in sent.iter().filter(|(_, value)| !value.is_null()) {
                let path = path.key(key);
                match kept.get(key) {
                    Some(survivor) => compare(value, survivor, &path, complaints),
                    None => complaints.push(format!("unknown field {:?}", path.to_string())),
                }
            }
        }
        (Value::Array(sent), Value::Array(kept)) => {
            for (index, (value, survivor)) in sent.iter().zip(kept).enumerate() {
                compare(value, survivor, &path.index(index), complaints);
            }
        }
        // A leaf may be respelled (a time, a quantity); it survived.
        _ => {}
    }
}
