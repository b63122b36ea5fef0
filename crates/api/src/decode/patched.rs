//! What a patch made of an object: checked like a body, refused in the words of a patch.

use std::fmt::Write as _;

use serde_json::Value;

use super::{Decoded, FieldValidation, body};
use crate::kinds::Kind;
use crate::patch::PatchType;
use crate::status::{Cause, Status};

/// An object that a patch produced: unknown fields go, the rest becomes canonical. `patch` is what was sent, whose
/// repeated keys count as much as fields that nobody knows. `make` applies it; it is asked again only for the words of a
/// refusal, so that what is fine is copied for nobody.
pub fn normalise_patched(
    kind: &Kind,
    make: impl Fn() -> Result<Value, Status>,
    patch_type: PatchType,
    patch: &[u8],
    validation: FieldValidation,
) -> Result<Decoded, Status> {
    let repeated = match validation {
        FieldValidation::Ignore => Vec::new(),
        FieldValidation::Warn | FieldValidation::Strict => body::duplicates(patch_type, patch),
    };
    let complaints = repeated.iter().map(|path| format!("duplicate field {path:?}")).collect();
    super::check_patched(kind, make()?, complaints, validation, |cause| {
        // A strategic patch is shown as it was sent, the others by what they would have made.
        let shown = match (patch_type, serde_json::from_slice::<Value>(patch)) {
            (PatchType::Strategic, Ok(patch)) => printed(&patch),
            (PatchType::Strategic | PatchType::Json | PatchType::Merge | PatchType::Apply, _) => {
                let mut made = make().unwrap_or_default();
                body::take_type(&mut made);
                made.to_string()
            }
        };
        Status::invalid_of("", "", "", vec![Cause::invalid("patch", shown, cause)])
    })
}

/// A value as upstream prints it: `map[a:[1 2] b:<nil>]`.
fn printed(value: &Value) -> String {
    let mut out = String::new();
    print(value, &mut out);
    out
}

fn print(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::String(text) => out.push_str(text),
        Value::Bool(_) | Value::Number(_) => {
            let _ = write!(out, "{value}");
        }
        Value::Array(list) => {
            out.push('[');
            for (at, item) in list.iter().enumerate() {
                if at > 0 {
                    out.push(' ');
                }
                print(item, out);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            out.push_str("map[");
            for (at, (name, field)) in fields.iter().enumerate() {
                if at > 0 {
                    out.push(' ');
                }
                out.push_str(name);
                out.push(':');
                print(field, out);
            }
            out.push(']');
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;
    use crate::kinds::built_in;

    fn refuse(patch_type: PatchType, patch: &str, made: &Value) -> String {
        let maps = built_in("", "v1", "configmaps").unwrap();
        let strict = FieldValidation::Strict;
        normalise_patched(maps, || Ok(made.clone()), patch_type, patch.as_bytes(), strict).unwrap_err().message
    }

    #[test]
    fn a_strategic_patch_is_shown_as_it_was_sent() {
        let patch = r#"{"datta":{"a":[1,true,"x"],"b":null}}"#;
        let message = refuse(PatchType::Strategic, patch, &json!({"metadata": {"name": "m"}, "datta": {}}));
        let value = r#"patch: Invalid value: "map[datta:map[a:[1 true x] b:<nil>]]""#;
        assert_eq!(message, format!(r#" "" is invalid: {value}: strict decoding error: unknown field "datta""#));
        let message = refuse(PatchType::Merge, patch, &json!({"datta": {}}));
        assert!(message.contains(r#"patch: Invalid value: "{\"datta\":{}}": strict"#), "{message}");
    }

    #[test]
    fn duplicate_keys_of_a_patch_are_reported() {
        let patch = r#"{"data":{"a":"1","a":"2"}}"#;
        let made = json!({"data": {"a": "2"}});
        let message = refuse(PatchType::Merge, patch, &made);
        assert!(message.ends_with(r#"strict decoding error: duplicate field "data.a""#), "{message}");
        let maps = built_in("", "v1", "configmaps").unwrap();
        let (make, warn) = (|| Ok(made.clone()), FieldValidation::Warn);
        let warned = normalise_patched(maps, make, PatchType::Merge, patch.as_bytes(), warn).unwrap();
        assert_eq!(warned.warnings, [r#"duplicate field "data.a""#]);
    }
}
