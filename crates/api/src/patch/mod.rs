//! The four ways to change an object by saying only what changes.
//!
//! [`patch`] is for the three that carry a change (`json`, `merge`, `strategic`); [`apply`] is for the one that
//! carries a wish and remembers who wished it. All are pure: an object and a body in, an object out. What comes out has
//! not been checked: [`crate::normalise`] and [`crate::prepare_update`] follow.

mod apply;
mod json;
mod list;
mod merge;
mod strategic;

use serde_json::Value;

pub use apply::{ApplyOptions, apply, only_applied_again};

use crate::decode::syntax;
use crate::kinds::Kind;
use crate::status::{Details, Status};

/// What the content type of a PATCH asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchType {
    /// A list of operations (RFC 6902).
    Json,
    /// An object laid over the other, `null` deletes (RFC 7386).
    Merge,
    /// The same with lists merged by their keys, and directives.
    Strategic,
    /// Server-side apply.
    Apply,
}

impl PatchType {
    /// Reads a content type, parameters aside; `None` is a 415.
    pub fn from_content_type(content_type: &str) -> Option<Self> {
        let media_type = content_type.split(';').next().unwrap_or_default().trim();
        match media_type.to_ascii_lowercase().as_str() {
            "application/json-patch+json" => Some(Self::Json),
            "application/merge-patch+json" => Some(Self::Merge),
            "application/strategic-merge-patch+json" => Some(Self::Strategic),
            "application/apply-patch+yaml" => Some(Self::Apply),
            _ => None,
        }
    }
}

/// `current` with a JSON, merge or strategic patch applied.
///
/// The result carries `kind` and `apiVersion`, because a patch may test or (in vain) change them;
/// [`crate::normalise`] checks and removes them.
pub fn patch(kind: &Kind, patch_type: PatchType, current: &Value, body: &[u8]) -> Result<Value, Status> {
    let mut document = current.clone();
    if let Some(object) = document.as_object_mut() {
        object.insert("apiVersion".to_owned(), kind.api_version().into());
        object.insert("kind".to_owned(), kind.kind.as_str().into());
    }
    match patch_type {
        PatchType::Json => json::patch(&mut document, body)?,
        PatchType::Merge => merge::patch(&mut document, body)?,
        // How lists of an added kind are to be merged is published nowhere.
        PatchType::Strategic if kind.is_added() => return Err(Status::unsupported_patch_type()),
        PatchType::Strategic => strategic::patch(kind.message, &mut document, body)?,
        PatchType::Apply => return Err(Status::unsupported_patch_type()),
    }
    if !document.is_object() {
        return Err(unprocessable());
    }
    Ok(document)
}

/// 422: the patch is well formed, and does not fit the object.
fn unprocessable() -> Status {
    let text = "the server rejected our request due to an error in our request";
    Status { details: Some(Box::new(Details::default())), ..Status::new(422, "Invalid", text) }
}

/// The object a merge or strategic patch consists of.
fn object_in(body: &[u8]) -> Result<serde_json::Map<String, Value>, Status> {
    let refused = |cause: String| Status::bad_request(format!("error decoding patch: {cause}"));
    match serde_json::from_slice(body) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => Err(refused(syntax::not_an_object(&other, syntax::ANY_OBJECT))),
        Err(error) => Err(refused(syntax::words(body, &error))),
    }
}

#[cfg(test)]
mod tests {
    use super::PatchType;

    #[test]
    fn content_types_name_patches() {
        let read = PatchType::from_content_type;
        assert_eq!(read("application/json-patch+json"), Some(PatchType::Json));
        assert_eq!(read("application/merge-patch+json; charset=utf-8"), Some(PatchType::Merge));
        assert_eq!(read("Application/Strategic-Merge-Patch+JSON"), Some(PatchType::Strategic));
        assert_eq!(read("application/apply-patch+yaml"), Some(PatchType::Apply));
        assert_eq!(read("application/apply-patch+cbor"), None);
        assert_eq!(read("application/json"), None);
    }
}
