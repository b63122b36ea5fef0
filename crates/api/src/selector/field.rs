//! Field selectors: `metadata.name=x`, `status.phase!=Running`, joined by commas, over the few fields a kind offers.

use std::borrow::Cow;

use serde_json::Value;

use crate::kinds::Kind;
use crate::status::Status;

/// A parsed field selector; all terms must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    /// Where to read, `|` between alternatives of which the first that is not empty counts.
    path: Cow<'static, str>,
    value: String,
    equal: bool,
}

impl FieldSelector {
    /// Reads a selector for `kind`; a field it does not offer is 400.
    pub fn parse(kind: &Kind, text: &str) -> Result<Self, Status> {
        let mut terms = Vec::new();
        for part in split(text) {
            let (field, value, equal) = if let Some((field, value)) = part.split_once("!=") {
                (field, value, false)
            } else if let Some((field, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (field, value, true)
            } else {
                return Err(Status::bad_request(format!(
                    "invalid field selector: {text:?}; can't understand '{part}'"
                )));
            };
            let path = path_of(kind, field.trim()).ok_or_else(|| unknown(kind, field.trim()))?;
            terms.push(Term { path, value: unescape(value), equal });
        }
        Ok(Self { terms })
    }

    /// Whether the object's fields satisfy every term. An absent field reads as `""`, an absent flag as `false`.
    pub fn matches(&self, object: &Value) -> bool {
        self.terms.iter().all(|term| (read(object, &term.path) == term.value) == term.equal)
    }

    /// Whether everything matches.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// What must be known of an object to tell.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.terms.iter().flat_map(|term| term.path.split('|'))
    }

    /// The one name that can match, if the selector says so.
    pub fn name(&self) -> Option<&str> {
        self.only("metadata.name")
    }

    /// The one node whose pods can match, if the selector says so.
    pub fn node_name(&self) -> Option<&str> {
        self.only("spec.nodeName")
    }

    fn only(&self, path: &str) -> Option<&str> {
        self.terms.iter().find(|t| t.equal && t.path == path).map(|t| t.value.as_str())
    }
}

fn path_of(kind: &Kind, field: &str) -> Option<Cow<'static, str>> {
    match field {
        "metadata.name" => Some("metadata.name".into()),
        "metadata.namespace" if kind.namespaced => Some("metadata.namespace".into()),
        _ => kind.fields.iter().find(|(name, _)| *name == field).map(|(_, path)| path.clone()),
    }
}

fn unknown(kind: &Kind, field: &str) -> Status {
    let always: &[&str] = if kind.namespaced { &["metadata.name", "metadata.namespace"] } else { &["metadata.name"] };
    // Upstream has two sentences: a kind with fields of its own does not list them.
    if !kind.fields.is_empty() {
        return Status::bad_request(format!("field label not supported: {field}"));
    }
    let known: Vec<String> = always.iter().map(|name| format!("{name:?}")).collect();
    Status::bad_request(format!("{field:?} is not a known field selector: only {}", known.join(", ")))
}

/// Fields whose absence means `false`, not the empty word.
const FLAGS: [&str; 2] = ["spec.unschedulable", "spec.hostNetwork"];

/// Fields whose absence means none.
const COUNTS: [&str; 2] = ["status.replicas", "status.succeeded"];

fn read(object: &Value, path: &str) -> String {
    for alternative in path.split('|') {
        let mut value = object;
        for step in alternative.split('.') {
            value = &value[step];
        }
        match value {
            Value::String(text) if !text.is_empty() => return text.clone(),
            Value::Bool(flag) => return flag.to_string(),
            Value::Number(number) => return number.to_string(),
            Value::Null | Value::String(_) | Value::Array(_) | Value::Object(_) => {}
        }
    }
    match path {
        path if FLAGS.contains(&path) => "false".to_owned(),
        path if COUNTS.contains(&path) => "0".to_owned(),
        _ => String::new(),
    }
}

/// Splits at commas that are not escaped.
fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        if c == ',' && !escaped {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(c);
        }
        escaped = c == '\\' && !escaped;
    }
    parts.retain(|part| !part.trim().is_empty());
    parts
}

fn unescape(value: &str) -> String {
    let mut out = String::new();
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.extend(chars.next()),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;
    use crate::built_in;

    #[test]
    fn fields_select_and_absent_reads_as_empty() {
        let pods = built_in("", "v1", "pods").unwrap();
        let pod = json!({
            "metadata": {"name": "a", "namespace": "n"}, "spec": {"nodeName": "w1"}, "status": {"phase": "Running"},
        });
        for (text, expected) in [
            ("", true),
            ("metadata.name=a", true),
            ("metadata.name==a,metadata.namespace=n", true),
            ("spec.nodeName=w1,status.phase!=Succeeded,status.phase!=Failed", true),
            ("spec.host=w2", false),
            ("status.podIP=", true),
            ("spec.hostNetwork=false", true),
            ("metadata.name!=a", false),
        ] {
            assert_eq!(FieldSelector::parse(pods, text).unwrap().matches(&pod), expected, "{text}");
        }
        let selector = FieldSelector::parse(pods, "metadata.name=a").unwrap();
        assert_eq!(selector.name(), Some("a"));
        assert_eq!(FieldSelector::parse(pods, "metadata.name!=a").unwrap().name(), None);
        assert_eq!(FieldSelector::parse(pods, "spec.host=w1").unwrap().node_name(), Some("w1"));
        // A comma that is escaped is part of a value, not the start of another term.
        let one_term =
            FieldSelector::parse(pods, r"spec.schedulerName!=x\,spec.nodeName=w1,status.phase!=\,metadata.name=a");
        let one_term = one_term.unwrap();
        assert_eq!((one_term.name(), one_term.node_name()), (None, None));
        assert!(one_term.matches(&pod));
    }

    #[test]
    fn an_event_is_found_by_its_source_or_its_reporter() {
        let events = built_in("", "v1", "events").unwrap();
        let selector = FieldSelector::parse(events, "involvedObject.name=p,source=node").unwrap();
        let told = |rest: Value| json!({"involvedObject": {"name": "p"}, "source": rest["source"], "reportingComponent": rest["by"]});
        assert!(selector.matches(&told(json!({"source": {"component": "node"}}))));
        assert!(selector.matches(&told(json!({"by": "node"}))));
        assert!(!selector.matches(&told(json!({"by": "other"}))));
    }

    #[test]
    fn unknown_fields_and_odd_syntax_are_400() {
        let config_maps = built_in("", "v1", "configmaps").unwrap();
        let error = FieldSelector::parse(config_maps, "data.a=b").unwrap_err();
        assert_eq!(
            error.message,
            r#""data.a" is not a known field selector: only "metadata.name", "metadata.namespace""#
        );
        assert_eq!(FieldSelector::parse(config_maps, "metadata.name").unwrap_err().code, 400);
        let pods = built_in("", "v1", "pods").unwrap();
        assert_eq!(FieldSelector::parse(pods, "a.b=c").unwrap_err().message, "field label not supported: a.b");
    }
}
