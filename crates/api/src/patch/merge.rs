//! Merge patch (RFC 7386): an object laid over the other; `null` deletes, lists are replaced.

use serde_json::Value;

use super::object_in;
use crate::status::Status;

/// Lays the object in `body` over `document`.
pub(super) fn patch(document: &mut Value, body: &[u8]) -> Result<(), Status> {
    json_patch::merge(document, &Value::Object(object_in(body)?));
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_merge_null_deletes_and_lists_are_replaced() {
        let mut document = json!({"labels": {"a": "1", "b": "2"}, "list": [1, 2], "gone": true});
        let change = json!({"labels": {"b": null, "c": "3"}, "list": [3], "gone": null, "absent": null});
        patch(&mut document, change.to_string().as_bytes()).unwrap();
        assert_eq!(document, json!({"labels": {"a": "1", "c": "3"}, "list": [3]}));
    }

    #[test]
    fn only_objects_are_merge_patches() {
        for body in ["[]", "1", "null", "{", ""] {
            assert_eq!(patch(&mut json!({}), body.as_bytes()).unwrap_err().code, 400, "{body}");
        }
    }
}
