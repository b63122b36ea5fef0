//! Request bodies: JSON, YAML or protobuf in, one canonical JSON value out.
//!
//! A body is read into a plain value first ([`read_body`]); the typed view of its kind then says what survives. Whatever
//! was sent and did not survive is an unknown field. The survivors are what is stored: times in their
//! one spelling, quantities canonical, empty metadata maps gone, `kind` and `apiVersion` left to the frame.

use serde_json::Value;

use crate::kinds::{Kind, Registry};
use crate::status::{Cause, Status};
use path::Path;

mod body;
mod canonical;
mod delete_options;
mod literal;
mod mismatch;
mod patched;
mod path;
pub(crate) mod syntax;
mod unknown;

pub(crate) use body::read_applied;
pub use body::{Body, read_body, to_yaml};
pub use delete_options::decode_delete_options;
pub(crate) use delete_options::from_value as delete_options_from;
pub use patched::normalise_patched;

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
    let sent = read_body(content_type, body, &kind.kind)?;
    check_type(kind, &sent.api_version, &sent.kind)?;
    let (value, mut complaints) =
        survivors(kind, sent.value).map_err(|cause| Status::bad_request(cannot_be_handled(kind, &cause)))?;
    // Protobuf knows no names, so there is nothing to complain about.
    if sent.is_protobuf {
        return Ok(Decoded { value, warnings: Vec::new() });
    }
    if validation != FieldValidation::Ignore {
        let unknown = std::mem::take(&mut complaints);
        complaints = in_order(&sent.duplicates, unknown, || body::keys_in_order(content_type, body));
    }
    match validation {
        FieldValidation::Strict if !complaints.is_empty() => {
            Err(Status::bad_request(cannot_be_handled(kind, &strict_error(&complaints))))
        }
        FieldValidation::Ignore => Ok(Decoded { value, warnings: Vec::new() }),
        FieldValidation::Strict | FieldValidation::Warn => Ok(Decoded { value, warnings: complaints }),
    }
}

/// The same for an object that was not sent as it is: unknown fields go, the rest becomes canonical.
pub(crate) fn normalise(kind: &Kind, value: &Value, validation: FieldValidation) -> Result<Decoded, Status> {
    check_patched(kind, value.clone(), Vec::new(), validation, |cause| {
        Status::invalid_of("", "", "", vec![Cause::invalid("patch", value.to_string(), cause)])
    })
}

/// The one check of what is not a body: `refused` tells, given the cause, what the client hears.
fn check_patched(
    kind: &Kind,
    mut value: Value,
    mut complaints: Vec<String>,
    validation: FieldValidation,
    refused: impl Fn(&str) -> Status,
) -> Result<Decoded, Status> {
    let (api_version, name) = body::take_type(&mut value);
    check_type(kind, &api_version, &name)?;
    let (value, unknown) = survivors(kind, value).map_err(|cause| refused(&cause))?;
    complaints.extend(unknown);
    match validation {
        FieldValidation::Strict if !complaints.is_empty() => Err(refused(&strict_error(&complaints))),
        FieldValidation::Ignore => Ok(Decoded { value, warnings: Vec::new() }),
        FieldValidation::Strict | FieldValidation::Warn => Ok(Decoded { value, warnings: complaints }),
    }
}

/// Repeated and unknown fields as they stand in the body: a repeated one where it comes again.
fn in_order(duplicates: &[String], unknown: Vec<String>, order: impl FnOnce() -> Vec<String>) -> Vec<String> {
    let duplicates = duplicates.iter().map(|path| format!("duplicate field {path:?}"));
    if unknown.is_empty() || duplicates.len() == 0 {
        return duplicates.chain(unknown).collect();
    }
    let (mut left, mut ordered) = (duplicates.chain(unknown).collect::<Vec<_>>(), Vec::new());
    let mut seen = std::collections::HashSet::new();
    for path in order() {
        let word = if seen.contains(&path) { "duplicate" } else { "unknown" };
        let complaint = format!("{word} field {path:?}");
        seen.insert(path);
        if let Some(at) = left.iter().position(|each| *each == complaint) {
            ordered.push(left.remove(at));
        }
    }
    ordered.extend(left);
    ordered
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
    let api_version = if api_version.is_empty() { expected } else { api_version };
    let name = if name.is_empty() { kind.kind.as_str() } else { name };
    if api_version == expected && name == kind.kind {
        return Ok(());
    }
    let version = api_version.rsplit('/').next().unwrap_or(api_version);
    // Upstream converts among built-in kinds alone, and knows no others here.
    let known = Registry::built_in().kinds().iter().any(|k| k.kind == name && k.api_version() == api_version);
    let cause = if known {
        format!("converting ({version}.{name}) to ({}.{}): unknown conversion", group_word(kind), kind.kind)
    } else if api_version != expected && name == kind.kind {
        format!("the API version in the data ({api_version}) does not match the expected API version ({expected})")
    } else {
        format!("no kind {name:?} is registered for version {api_version:?}")
    };
    let word = &kind.kind;
    Err(Status::bad_request(format!("{name} in version {version:?} cannot be handled as a {word}: {cause}")))
}

fn group_word(kind: &Kind) -> &str {
    kind.group.split('.').next().filter(|g| !g.is_empty()).unwrap_or("core")
}

/// Whether every field of `value` is of its type; it may lack others. Answers the first that is not, and why.
pub(crate) fn check_types(kind: &Kind, value: &Value) -> Result<(), String> {
    survivors(kind, value.clone()).map(|_| ())
}

/// What survives the typed view, canonical, and what was sent in vain.
fn survivors(kind: &Kind, sent: Value) -> Result<(Value, Vec<String>), String> {
    let mut sent = if sent.is_null() { Value::Object(serde_json::Map::new()) } else { sent };
    let message = kind.message;
    // Before the typed view: a client may write `cpu: 1`, the type wants a string.
    if let (Some(message), Some(object)) = (message, sent.as_object_mut()) {
        canonical::rewrite(message, object, &Path::Root)?;
    }
    let mut kept = kind.rules.typed(&sent).map_err(|error| {
        let expected = mismatch::Expected::of(&error);
        let found = message.zip(sent.as_object());
        let found = found.and_then(|(message, object)| expected.find(message, object, &Path::Root));
        found.unwrap_or_else(|| {
            // Nothing that the schema tells is wrong with an object: then in the words of the typed view.
            if sent.is_object() { error.to_string() } else { syntax::not_an_object(&sent, &kind.kind) }
        })
    })?;
    body::take_type(&mut kept);
    let mut complaints = Vec::new();
    unknown::compare(&sent, &kept, &Path::Root, &mut complaints);
    Ok((kept, complaints))
}

#[cfg(test)]
mod tests;
