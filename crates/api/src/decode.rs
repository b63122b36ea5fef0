//! Request bodies: JSON, YAML or protobuf in, one canonical JSON value out.
//!
//! A body is read into a plain value first ([`body`]); the typed view of its kind then says what survives. Whatever
//! was sent and did not survive is an unknown field ([`unknown`]). The survivors are what is stored: times in their
//! one spelling, quantities canonical, empty metadata maps gone, `kind` and `apiVersion` left to the frame.

use serde_json::Value;

use crate::kinds::{Kind, group_version};
use crate::quantity;
use crate::status::{Cause, Status};

mod body;
mod delete_options;
mod unknown;

pub use body::{Body, read_body};
pub use delete_options::decode_delete_options;
pub(crate) use delete_options::from_value as delete_options_from;

/// What to do about fields we do not know and keys that appear twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldValidation {
    /// Drop them silently.
    Ignore,
    /// Drop them with a warning: the server's default.
    #[default]
    Warn,
    /// Refuse the request.
    Strict,
}

impl FieldValidation {
    /// Reads the query parameter; absent or empty is the default.
    pub fn parse(word: Option<&str>) -> Result<Self, Status> {
        match word.unwrap_or_default() {
            "Ignore" => Ok(Self::Ignore),
            "" | "Warn" => Ok(Self::Warn),
            "Strict" => Ok(Self::Strict),
            other => {
                let cause = Cause::not_supported("fieldValidation", other, &["", "Ignore", "Strict", "Warn"]);
                Err(Status::invalid_of("CreateOptions", "meta.k8s.io", "", vec![cause]))
            }
        }
    }
}

/// A body that was understood.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The object, without `kind` and `apiVersion`.
    pub value: Value,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
}

/// Reads the object of `kind` from a request body.
pub fn decode_object(
    kind: &Kind,
    content_type: Option<&str>,
    body: &[u8],
    validation: FieldValidation,
) -> Result<Decoded, Status> {
    let sent = read_body(content_type, body, kind.kind)?;
    check_type(kind, &sent.api_version, &sent.kind)?;
    let (value, mut complaints) =
        canonical(kind, &sent.value).map_err(|cause| Status::bad_request(cannot_be_handled(kind, &cause)))?;
    // Protobuf knows no names, so there is nothing to complain about.
    if sent.is_protobuf {
        return Ok(Decoded { value, warnings: Vec::new() });
    }
    complaints.splice(0..0, sent.duplicates.iter().map(|path| format!("duplicate field {path:?}")));
    match validation {
        FieldValidation::Strict if !complaints.is_empty() => {
            Err(Status::bad_request(cannot_be_handled(kind, &strict_error(&complaints))))
        }
        FieldValidation::Ignore => Ok(Decoded { value, warnings: Vec::new() }),
        FieldValidation::Strict | FieldValidation::Warn => Ok(Decoded { value, warnings: complaints }),
    }
}

/// The same for an object that a patch produced: unknown fields go, the rest becomes canonical.
pub fn normalise(kind: &Kind, value: Value, validation: FieldValidation) -> Result<Decoded, Status> {
    let mut sent = value;
    let (api_version, name) = body::take_type(&mut sent);
    check_type(kind, &api_version, &name)?;
    let refused =
        |cause: String| Status::invalid_of("", "", "", vec![Cause::invalid("patch", sent.to_string(), &cause)]);
    let (value, complaints) = canonical(kind, &sent).map_err(refused)?;
    match validation {
        FieldValidation::Strict if !complaints.is_empty() => Err(refused(strict_error(&complaints))),
        FieldValidation::Ignore => Ok(Decoded { value, warnings: Vec::new() }),
        FieldValidation::Strict | FieldValidation::Warn => Ok(Decoded { value, warnings: complaints }),
    }
}

fn strict_error(complaints: &[String]) -> String {
    format!("strict decoding error: {}", complaints.join(", "))
}

fn cannot_be_handled(kind: &Kind, cause: &str) -> String {
    format!("{0} in version {1:?} cannot be handled as a {0}: {cause}", kind.kind, kind.version)
}

/// A body may leave out `kind` and `apiVersion`; what it says must be true.
fn check_type(kind: &Kind, api_version: &str, name: &str) -> Result<(), Status> {
    let expected = kind.api_version();
    let api_version = if api_version.is_empty() { &expected } else { api_version };
    let name = if name.is_empty() { kind.kind } else { name };
    if api_version == expected && name == kind.kind {
        return Ok(());
    }
    let version = api_version.rsplit('/').next().unwrap_or(api_version);
    let known = crate::KINDS.iter().any(|k| k.kind == name && k.api_version() == api_version);
    let cause = if known {
        format!("converting ({version}.{name}) to ({}.{}): unknown conversion", group_word(kind), kind.kind)
    } else if api_version != expected && name == kind.kind {
        format!("the API version in the data ({api_version}) does not match the expected API version ({expected})")
    } else {
        format!("no kind {name:?} is registered for version {api_version:?}")
    };
    let word = kind.kind;
    Err(Status::bad_request(format!("{name} in version {version:?} cannot be handled as a {word}: {cause}")))
}

fn group_word(kind: &Kind) -> &str {
    kind.group.split('.').next().filter(|g| !g.is_empty()).unwrap_or("core")
}

/// What survives the typed view, canonical, and what was sent in vain.
fn canonical(kind: &Kind, sent: &Value) -> Result<(Value, Vec<String>), String> {
    let mut sent = if sent.is_null() { Value::Object(serde_json::Map::new()) } else { sent.clone() };
    // Before the typed view: a client may write `cpu: 1`, the type wants a string.
    for pattern in kind.quantities {
        quantity::canonicalise_at(&mut sent, pattern)?;
    }
    let mut kept = kind.rules.typed(sent.clone()).map_err(|error| type_error(kind, &sent, &error))?;
    body::take_type(&mut kept);
    let mut complaints = Vec::new();
    unknown::compare(&sent, &kept, "", &mut complaints);
    drop_empty(&mut kept);
    Ok((kept, complaints))
}

/// `metadata` maps and lists that hold nothing are the same as none, and lists elsewhere too: upstream leaves them
/// out when it writes, so an object must not change by being read back.
fn drop_empty(object: &mut Value) {
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.retain(|key, value| {
            let empty = match &*value {
                Value::Object(map) => map.is_empty(),
                Value::Array(list) => list.is_empty() && key != "managedFields",
                Value::String(text) => text.is_empty(),
                Value::Null | Value::Bool(_) | Value::Number(_) => false,
            };
            !empty
        });
    }
    for part in ["spec", "status"] {
        if let Some(value) = object.get_mut(part) {
            drop_empty_lists(value);
        }
    }
}

fn drop_empty_lists(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, child| key == "containers" || child.as_array().is_none_or(|list| !list.is_empty()));
            map.values_mut().for_each(drop_empty_lists);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_empty_lists),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Finds the field that the typed view stumbled over, by leaving one out at a time.
fn type_error(kind: &Kind, sent: &Value, error: &serde_json::Error) -> String {
    let mut path: Vec<String> = Vec::new();
    let mut here = String::new();
    while let Some((key, pointer)) = children(sent, &here).into_iter().find(|(_, pointer)| {
        let mut without = sent.clone();
        if let Some(slot) = without.pointer_mut(pointer) {
            *slot = Value::Null;
        }
        kind.rules.typed(without).is_ok()
    }) {
        path.push(key);
        here = pointer;
    }
    let path = path.concat();
    let path = path.trim_start_matches('.');
    if path.is_empty() { format!("json: {error}") } else { format!("json: {path}: {error}") }
}

fn children(root: &Value, at: &str) -> Vec<(String, String)> {
    match root.pointer(at) {
        Some(Value::Object(map)) => {
            map.keys().map(|k| (format!(".{k}"), format!("{at}/{}", k.replace('~', "~0").replace('/', "~1")))).collect()
        }
        Some(Value::Array(list)) => (0..list.len()).map(|i| (format!("[{i}]"), format!("{at}/{i}"))).collect(),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | None => Vec::new(),
    }
}

/// `apps/v1` into group and version.
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// The other way round.
pub fn join_api_version(group: &str, version: &str) -> String {
    group_version(group, version)
}

#[cfg(test)]
mod tests;
