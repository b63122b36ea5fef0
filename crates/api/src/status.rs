//! `Status`: every answer that is not an object, with the exact sentences clients and tools look for.
//!
//! Clients branch on `reason` first, then on `code`; people read `message`. The constructors are the catalogue of
//! api-surface 9 and api-deletion 7.2; a message that is written anywhere else is a mistake waiting to drift.

use serde_json::{Map, Value, json};

use crate::kinds::Kind;

/// A refusal (or, from [`Status::success`], the answer to a delete) as the wire knows it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Status {
    /// HTTP status code.
    pub code: u16,
    /// The machine's word for what happened; `""` where upstream has none.
    pub reason: &'static str,
    /// The sentence a person reads.
    pub message: String,
    /// What the refusal is about.
    pub details: Option<Box<Details>>,
    /// A token that continues an expired list at the current state.
    pub metadata_continue: Option<String>,
}

/// What a [`Status`] is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    /// Name of the object.
    pub name: String,
    /// API group, `""` for the core group.
    pub group: String,
    /// The plural resource for most answers, the kind for invalid objects and failed preconditions.
    pub kind: String,
    /// The object's uid; clients that wait recognise a re-created object by it.
    pub uid: String,
    /// The single mistakes.
    pub causes: Vec<Cause>,
    /// Asks clients to come back after this many seconds; also sent as `Retry-After`.
    pub retry_after_seconds: u32,
}

/// One mistake in an object, with the path of the field that holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// `FieldValueRequired`, `FieldValueInvalid`, ...
    pub reason: &'static str,
    /// `Required value: ...`, without the field's path.
    pub message: String,
    /// `spec.containers[0].image`.
    pub field: String,
}

impl Cause {
    fn new(reason: &'static str, field: impl Into<String>, message: String) -> Self {
        Self { reason, message, field: field.into() }
    }

    /// A field that must be there is not.
    pub fn required(field: impl Into<String>, message: &str) -> Self {
        let text = if message.is_empty() { "Required value".to_owned() } else { format!("Required value: {message}") };
        Self::new("FieldValueRequired", field, text)
    }

    /// A value is not acceptable.
    pub fn invalid(field: impl Into<String>, value: impl Into<Value>, message: &str) -> Self {
        Self::new("FieldValueInvalid", field, format!("Invalid value: {}: {message}", shown(&value.into())))
    }

    /// A value names something that is not there.
    pub fn not_found(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new("FieldValueNotFound", field, format!("Not found: {}", shown(&value.into())))
    }

    /// A value that must be unique appears twice.
    pub(crate) fn duplicate(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new("FieldValueDuplicate", field, format!("Duplicate value: {}", shown(&value.into())))
    }

    /// A field must not be set (or changed) here.
    pub fn forbidden(field: impl Into<String>, message: &str) -> Self {
        let text = if message.is_empty() { "Forbidden".to_owned() } else { format!("Forbidden: {message}") };
        Self::new("FieldValueForbidden", field, text)
    }

    /// A value is not one of the known words.
    pub fn not_supported(field: impl Into<String>, value: impl Into<Value>, supported: &[&str]) -> Self {
        let words: Vec<String> = supported.iter().map(|w| format!("{w:?}")).collect();
        let text = format!("Unsupported value: {}: supported values: {}", shown(&value.into()), words.join(", "));
        Self::new("FieldValueNotSupported", field, text)
    }

    /// A value has more bytes than it may.
    pub fn too_long(field: impl Into<String>, limit: usize) -> Self {
        Self::new("FieldValueTooLong", field, format!("Too long: may not be more than {limit} bytes"))
    }

    /// A list has more entries than it may.
    pub(crate) fn too_many(field: impl Into<String>, actual: usize, limit: usize) -> Self {
        Self::new("FieldValueTooMany", field, format!("Too many: {actual}: must have at most {limit} items"))
    }

    /// A value has more levels inside one another than an object may have.
    pub fn too_deep(field: impl Into<String>, limit: usize) -> Self {
        let text = format!("Invalid value: must not be nested deeper than {limit} levels");
        Self::new("FieldValueInvalid", field, text)
    }

    fn line(&self) -> String {
        if self.field.is_empty() { self.message.clone() } else { format!("{}: {}", self.field, self.message) }
    }
}

/// A value the way error texts quote it: strings in quotes, an empty value as `""`.
fn shown(value: &Value) -> String {
    if value.is_null() { "null".to_owned() } else { value.to_string() }
}

/// What bodies may be written in, and what answers are.
const MEDIA_TYPES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
const WRITTEN: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

impl Status {
    /// A status without details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, metadata_continue: None }
    }

    fn about(mut self, kind: &Kind, name: &str) -> Self {
        self.details = Some(Box::new(Details {
            name: name.to_owned(),
            group: kind.group.to_owned(),
            kind: kind.plural.to_owned(),
            ..Details::default()
        }));
        self
    }

    /// Adds one cause to the details.
    #[must_use]
    pub(crate) fn with_cause(mut self, cause: Cause) -> Self {
        self.details.get_or_insert_default().causes.push(cause);
        self
    }

    /// Asks the client to retry after `seconds`.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    /// The value of the `Retry-After` header, sent only when there is one.
    pub fn retry_after(&self) -> Option<u32> {
        self.details.as_ref().map(|d| d.retry_after_seconds).filter(|s| *s > 0)
    }

    /// 404: no such object.
    pub fn not_found(kind: &Kind, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} {name:?} not found", kind.resource())).about(kind, name)
    }

    /// 404: no such path, or no such kind.
    pub fn no_such_path() -> Self {
        let mut status = Self::new(404, "NotFound", "the server could not find the requested resource");
        status.details = Some(Box::default());
        status
    }

    /// 409: the name is taken, perhaps by an object that is leaving.
    pub fn already_exists(kind: &Kind, name: &str, being_deleted: bool) -> Self {
        let prefix = if being_deleted { "object is being deleted: " } else { "" };
        let message = format!("{prefix}{} {name:?} already exists", kind.resource());
        Self::new(409, "AlreadyExists", message).about(kind, name)
    }

    /// 409: every generated name was taken.
    pub fn no_free_name(kind: &Kind, name: &str) -> Self {
        let message = format!(
            "{} {name:?} already exists, the server was not able to generate a unique name for the object",
            kind.resource()
        );
        Self::new(409, "AlreadyExists", message).about(kind, name).with_retry_after(1)
    }

    /// 409: somebody else wrote the object since it was read.
    pub fn conflict_modified(kind: &Kind, name: &str) -> Self {
        let message = "the object has been modified; please apply your changes to the latest version and try again";
        let mut status = Self::conflict(&kind.resource(), name, message);
        status = status.about(kind, name);
        status
    }

    /// 409 with the usual opening; `kind_word` is the resource, or the kind where upstream says the kind.
    pub fn conflict(kind_word: &str, name: &str, message: &str) -> Self {
        let text = format!("Operation cannot be fulfilled on {kind_word} {name:?}: {message}");
        let mut status = Self::new(409, "Conflict", text);
        status.details =
            Some(Box::new(Details { name: name.to_owned(), kind: kind_word.to_owned(), ..Details::default() }));
        status
    }

    /// 409 where upstream says the kind: `Deployment.apps`.
    pub fn conflict_of(kind: &Kind, name: &str, message: &str) -> Self {
        let word = if kind.group.is_empty() { kind.kind.to_owned() } else { format!("{}.{}", kind.kind, kind.group) };
        let mut status = Self::conflict(&word, name, message);
        status.details = Some(Box::new(Details {
            name: name.to_owned(),
            group: kind.group.to_owned(),
            kind: kind.kind.to_owned(),
            ..Details::default()
        }));
        status
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 422: the object breaks rules; all of them are listed.
    pub fn invalid(kind: &Kind, name: &str, causes: Vec<Cause>) -> Self {
        Self::invalid_of(&kind.kind, &kind.group, name, causes)
    }

    /// 422 for something that is not a kind of ours (delete options, patches).
    pub fn invalid_of(kind: &str, group: &str, name: &str, causes: Vec<Cause>) -> Self {
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let lines: Vec<String> = causes.iter().map(Cause::line).collect();
        let list = match lines.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut status = Self::new(422, "Invalid", format!("{qualified} {name:?} is invalid: {list}"));
        status.details = Some(Box::new(Details {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
            causes,
            ..Details::default()
        }));
        status
    }

    /// 403; `name` may be empty (a list, or a create).
    pub fn forbidden(kind: &Kind, name: &str, message: &str) -> Self {
        let resource = kind.resource();
        let text = if name.is_empty() {
            format!("{resource} is forbidden: {message}")
        } else {
            format!("{resource} {name:?} is forbidden: {message}")
        };
        Self::new(403, "Forbidden", text).about(kind, name)
    }

    /// 403: nothing new may be made in a namespace that is leaving.
    pub fn namespace_terminating(kind: &Kind, name: &str, namespace: &str) -> Self {
        let message = format!("unable to create new content in namespace {namespace} because it is being terminated");
        Self::forbidden(kind, name, &message).with_cause(Cause {
            reason: "NamespaceTerminating",
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_owned(),
        })
    }

    /// 403 for a path that is not a resource.
    pub fn forbidden_path(user: &str, verb: &str, path: &str) -> Self {
        let mut status = Self::new(403, "Forbidden", format!("forbidden: User {user:?} cannot {verb} path {path:?}"));
        status.details = Some(Box::default());
        status
    }

    /// 401.
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 405.
    pub fn method_not_allowed() -> Self {
        let mut status =
            Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource");
        status.details = Some(Box::default());
        status
    }

    /// 406: nothing the client accepts can be written.
    pub fn not_acceptable() -> Self {
        Self::new(406, "NotAcceptable", format!("only the following media types are accepted: {WRITTEN}"))
    }

    /// 415: the body is in a format we do not read.
    pub(crate) fn unsupported_media_type() -> Self {
        let message =
            format!("the body of the request was in an unknown format - accepted media types include: {MEDIA_TYPES}");
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// 415 for a patch whose content type names no patch.
    pub fn unsupported_patch_type() -> Self {
        Self::new(415, "UnsupportedMediaType", "415: Unsupported Media Type")
    }

    /// 410: the asked-for revision has been forgotten.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 413.
    pub fn too_large(limit: usize) -> Self {
        Self::new(413, "RequestEntityTooLarge", format!("Request entity too large: limit is {limit}"))
    }

    /// 413: the object would be larger than the store takes.
    pub fn object_too_large(kind: &Kind, name: &str, size: usize, limit: usize) -> Self {
        let object = format!("{} {name:?}", kind.resource());
        let text = format!("Request entity too large: {object} would be stored as {size} bytes, limit is {limit}");
        Self::new(413, "RequestEntityTooLarge", text).about(kind, name)
    }

    /// 500: what is stored is no object, and all that can be done with it is to delete it.
    pub fn unreadable(kind: &Kind, name: &str, reason: &str) -> Self {
        let object = format!("{} {name:?}", kind.resource());
        let text = format!("{object} cannot be read from the store: {reason}; it can only be deleted");
        Self::new(500, "StorageReadError", text).about(kind, name)
    }

    /// 414: what is asked for does not fit into the address that it has to be passed on with.
    pub fn uri_too_long(limit: usize) -> Self {
        let message = format!("the request URI is too long: what it asks for has to fit into {limit} bytes");
        Self::new(414, "URITooLong", message)
    }

    /// 504: the asked-for revision lies in the future.
    pub fn too_large_resource_version(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        Self::new(504, "Timeout", message)
            .with_cause(Cause {
                reason: "ResourceVersionTooLarge",
                message: "Too large resource version".to_owned(),
                field: String::new(),
            })
            .with_retry_after(1)
    }

    /// 504: the request took longer than it may.
    pub fn timeout(message: &str) -> Self {
        Self::new(504, "Timeout", format!("Timeout: {message}"))
    }

    /// 429; a `retry_after` of 0 sends no header, so that clients do not retry behind the user's back.
    pub fn too_many_requests(message: impl Into<String>, retry_after: u32) -> Self {
        Self::new(429, "TooManyRequests", message).with_retry_after(retry_after)
    }

    /// 500.
    pub fn internal(message: &str) -> Self {
        let mut status = Self::new(500, "InternalError", format!("Internal error occurred: {message}"));
        status.details = Some(Box::default());
        status
    }

    /// 200: the answer to a delete of a kind that does not return its objects.
    pub fn success(kind: &Kind, name: &str, uid: &str) -> Self {
        let mut status = Self::new(200, "", "").about(kind, name);
        if let Some(details) = &mut status.details {
            uid.clone_into(&mut details.uid);
        }
        status
    }

    /// The wire form.
    pub fn to_json(&self) -> Value {
        let success = self.code < 300;
        let mut metadata = Map::new();
        if let Some(token) = &self.metadata_continue {
            metadata.insert("continue".to_owned(), json!(token));
        }
        let mut out = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": metadata,
            "status": if success { "Success" } else { "Failure" },
        });
        if !self.message.is_empty() {
            out["message"] = json!(self.message);
        }
        if !self.reason.is_empty() {
            out["reason"] = json!(self.reason);
        }
        if let Some(details) = &self.details {
            out["details"] = details.to_json();
        }
        // Upstream leaves the code out of the Status that answers a plain delete, and out of nothing else.
        if self.code != 200 {
            out["code"] = json!(self.code);
        }
        out
    }
}

impl Details {
    fn to_json(&self) -> Value {
        let mut out = Map::new();
        for (key, value) in [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)] {
            if !value.is_empty() {
                out.insert(key.to_owned(), json!(value));
            }
        }
        if !self.causes.is_empty() {
            out.insert("causes".to_owned(), self.causes.iter().map(Cause::to_json).collect());
        }
        if self.retry_after_seconds > 0 {
            out.insert("retryAfterSeconds".to_owned(), json!(self.retry_after_seconds));
        }
        Value::Object(out)
    }
}

impl Cause {
    fn to_json(&self) -> Value {
        let mut out = json!({ "reason": self.reason, "message": self.message });
        if !self.field.is_empty() {
            out["field"] = json!(self.field);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::built_in;

    fn pods() -> &'static Kind {
        built_in("", "v1", "pods").unwrap()
    }

    fn leases() -> &'static Kind {
        built_in("coordination.k8s.io", "v1", "leases").unwrap()
    }

    /// [AD-11] [AD-12]
    #[test]
    fn a_missing_object_is_named_with_its_resource() {
        assert_eq!(
            Status::not_found(pods(), "p1").to_json(),
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "pods \"p1\" not found", "reason": "NotFound",
                "details": {"name": "p1", "kind": "pods"}, "code": 404,
            })
        );
        let lease = Status::not_found(leases(), "l").to_json();
        assert_eq!(lease["message"], "leases.coordination.k8s.io \"l\" not found");
        assert_eq!(lease["details"], json!({"name": "l", "group": "coordination.k8s.io", "kind": "leases"}));
    }

    /// [AD-39]
    #[test]
    fn a_taken_name_says_whether_its_holder_is_leaving() {
        let status = Status::already_exists(pods(), "p4", true);
        assert_eq!(status.message, "object is being deleted: pods \"p4\" already exists");
        assert_eq!((status.code, status.reason), (409, "AlreadyExists"));
        assert_eq!(Status::already_exists(pods(), "p4", false).message, "pods \"p4\" already exists");
    }

    /// [AD-71] (the sentence)
    #[test]
    fn a_terminating_namespace_is_a_cause() {
        let status = Status::namespace_terminating(pods(), "p", "nsa").to_json();
        assert_eq!(
            status["message"],
            "pods \"p\" is forbidden: unable to create new content in namespace nsa because it is being terminated"
        );
        assert_eq!(
            status["details"]["causes"],
            json!([{"reason": "NamespaceTerminating", "message": "namespace nsa is being terminated",
                    "field": "metadata.namespace"}])
        );
    }

    /// [AD-41] (the answer)
    #[test]
    fn a_plain_delete_answers_the_uid_and_no_code() {
        let kind = built_in("", "v1", "configmaps").unwrap();
        assert_eq!(
            Status::success(kind, "c", "u").to_json(),
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                "details": {"name": "c", "kind": "configmaps", "uid": "u"},
            })
        );
    }

    #[test]
    fn a_retry_header_is_sent_only_when_there_is_something_to_wait_for() {
        assert_eq!(Status::too_many_requests("busy", 0).retry_after(), None);
        assert_eq!(Status::too_many_requests("busy", 10).retry_after(), Some(10));
        let future = Status::too_large_resource_version(900, 866);
        assert_eq!(future.message, "Timeout: Too large resource version: 900, current: 866");
        assert_eq!(future.retry_after(), Some(1));
    }

    #[test]
    fn an_expired_list_can_carry_a_token() {
        let mut status = Status::expired("The resourceVersion for the provided list is too old.");
        status.metadata_continue = Some("t".to_owned());
        assert_eq!(status.to_json()["metadata"], json!({"continue": "t"}));
    }

    #[test]
    fn causes_speak_like_upstream() {
        assert_eq!(Cause::required("a", "").message, "Required value");
        assert_eq!(Cause::required("a", "why").message, "Required value: why");
        assert_eq!(Cause::invalid("a", "x", "odd").message, "Invalid value: \"x\": odd");
        assert_eq!(Cause::duplicate("a", "x").message, "Duplicate value: \"x\"");
        assert_eq!(
            Cause::not_supported("a", "x", &["A", "B"]).message,
            "Unsupported value: \"x\": supported values: \"A\", \"B\""
        );
        assert_eq!(Cause::too_long("a", 5).message, "Too long: may not be more than 5 bytes");
    }
}
