//! An object as the API would take it: decoded, defaulted, validated, and everything that is wrong with it at once.
//!
//! The API stops at the first value it cannot read. Here that value is set aside and the rest is read on, so that a
//! person learns of all mistakes in one go.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::located::{Step, next_step};
use super::workload::{distance, namespace};

/// A field, and what is wrong with it.
pub(super) type Complaint = (String, String);

/// More unreadable values than this are not looked for in one object.
const ENOUGH: usize = 50;
const UNKNOWN: &str = "no such field";
/// What only a server writes. It is in every object that was read from one, and a create does not want it.
const SERVERS: [&str; 6] =
    ["resourceVersion", "uid", "managedFields", "deletionTimestamp", "deletionGracePeriodSeconds", "creationTimestamp"];

/// What the API would store, and what it would complain about. The object is of use only if there are no complaints.
pub(super) fn checked(kind: &api::Kind, object: &Value) -> (Value, Vec<Complaint>) {
    let mut sent = object.clone();
    if let Some(sent) = sent.as_object_mut() {
        sent.remove("status");
        if let Some(metadata) = sent.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|field, _| !SERVERS.contains(&field.as_str()));
        }
    }
    let mut complaints: Vec<Complaint> = Vec::new();
    let mut decoded = loop {
        match decode(kind, &sent) {
            Ok(decoded) => break decoded,
            Err(complaint) => {
                let rest = set_aside(kind, &sent, &complaint.0);
                complaints.push(complaint);
                match rest {
                    Some(rest) if complaints.len() < ENOUGH => sent = rest,
                    Some(_) | None => return (Value::Null, complaints),
                }
            }
        }
    };
    let unreadable: Vec<String> = complaints.iter().map(|(field, _)| field.clone()).collect();
    complaints.extend(decoded.warnings.iter().map(|warning| in_words(warning)));
    // Which classes exist is a cluster's to know, and no part of how a pod leaves.
    if let Some(spec) = decoded.value.get_mut("spec").and_then(Value::as_object_mut) {
        spec.retain(|field, _| field != "priorityClassName" && field != "priority");
    }
    let place = namespace(&sent);
    let prepared =
        api::prepare_create(kind, &mut decoded.value, &place, Timestamp::UNIX_EPOCH, String::new(), String::new);
    if let Err(status) = prepared {
        let causes = status.details.map(|details| details.causes).unwrap_or_default();
        if causes.is_empty() {
            complaints.push((String::new(), status.message));
        }
        // What was set aside is wrong only because it was.
        let below = |field: &str, other: &str| {
            field.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let news = causes.into_iter().filter(|cause| !unreadable.iter().any(|known| below(&cause.field, known)));
        complaints.extend(news.map(|cause| (cause.field, cause.message)));
    }
    (decoded.value, complaints)
}

fn decode(kind: &api::Kind, sent: &Value) -> Result<api::Decoded, Complaint> {
    let read = |value: &Value| api::decode_object(kind, None, value.to_string().as_bytes(), api::FieldValidation::Warn);
    read(sent).map_err(|status| {
        let (field, text) = in_words(&status.message);
        if !field.is_empty() {
            return (field, text);
        }
        // Nobody says where it is: it is the one value without which the object can be read.
        let mut fields = Vec::new();
        leaves(sent, "", &mut fields);
        let guilty = fields.into_iter().find(|field| put(sent, field, None).is_some_and(|rest| read(&rest).is_ok()));
        (guilty.unwrap_or_default(), text)
    })
}

/// The object without a value that cannot be read, or with something readable in its place.
fn set_aside(kind: &api::Kind, sent: &Value, field: &str) -> Option<Value> {
    let stand_ins = [None, Some(json!({})), Some(json!("")), Some(json!(0)), Some(json!([]))];
    stand_ins.into_iter().filter_map(|stand_in| put(sent, field, stand_in)).find(|rest| match decode(kind, rest) {
        Ok(_) => true,
        Err((other, _)) => other != field,
    })
}

/// The object with another value for a field, or without it. Items of lists stay, so that the others keep their places.
fn put(object: &Value, field: &str, value: Option<Value>) -> Option<Value> {
    let mut copy = object.clone();
    let (mut node, mut rest) = (&mut copy, field);
    loop {
        let (step, further) = next_step(rest, |key| node.get(key).is_some())?;
        if further.is_empty() {
            match (step, node, value) {
                (Step::Key(key), Value::Object(map), None) => map.remove(key).map(drop)?,
                (Step::Key(key), Value::Object(map), Some(value)) => *map.get_mut(key)? = value,
                (Step::Index(index), Value::Array(list), Some(value)) => *list.get_mut(index)? = value,
                _ => return None,
            }
            return Some(copy);
        }
        node = match step {
            Step::Key(key) => node.get_mut(key)?,
            Step::Index(index) => node.get_mut(index)?,
        };
        rest = further;
    }
}

/// Every value below `value`, the deepest first.
fn leaves(value: &Value, field: &str, fields: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| leaves(value, &joined(field, key), fields)),
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(index, value)| leaves(value, &format!("{field}[{index}]"), fields));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    if !field.is_empty() {
        fields.push(field.to_owned());
    }
}

/// Fields that people misspell.
const FIELDS: [&str; 35] = [
    "apiVersion",
    "args",
    "command",
    "containerPort",
    "containers",
    "env",
    "exec",
    "httpGet",
    "image",
    "imagePullPolicy",
    "initContainers",
    "initialDelaySeconds",
    "kind",
    "labels",
    "lifecycle",
    "livenessProbe",
    "matchLabels",
    "metadata",
    "periodSeconds",
    "ports",
    "postStart",
    "preStop",
    "readinessProbe",
    "replicas",
    "resources",
    "restartPolicy",
    "restartPolicyRules",
    "seconds",
    "selector",
    "shareProcessNamespace",
    "spec",
    "startupProbe",
    "stopSignal",
    "template",
    "terminationGracePeriodSeconds",
];

/// What a field that does not exist was probably meant to be.
fn meant(field: &str) -> Option<&'static str> {
    let name = field.rsplit('.').next().unwrap_or(field);
    let begun = FIELDS.iter().find(|known| name.len() > 6 && known.starts_with(name));
    let close = FIELDS.iter().map(|known| (distance(name, known), *known)).min();
    begun.copied().or_else(|| close.filter(|(far, known)| *far <= 2 && *far * 3 < known.len()).map(|(_, known)| known))
}

/// Where a field is that stands in the wrong place.
fn place(field: &str) -> &'static str {
    match field {
        "containers"
        | "initContainers"
        | "restartPolicy"
        | "shareProcessNamespace"
        | "terminationGracePeriodSeconds" => "the spec of the pod",
        "postStart" | "preStop" | "stopSignal" => "the lifecycle of a container",
        "exec" | "httpGet" => "a hook or a probe",
        "initialDelaySeconds" | "periodSeconds" => "a probe",
        "matchLabels" => "a selector",
        "replicas" | "selector" | "template" => "the spec of a workload",
        "labels" => "metadata",
        "apiVersion" | "kind" | "metadata" | "spec" => "the top of the object",
        _ => "a container",
    }
}

/// The field in what the API says of a body it could not read, and the rest of the sentence in plain words.
fn in_words(message: &str) -> Complaint {
    // Pod in version "v1" cannot be handled as a Pod: …
    let message = message
        .split_once(" cannot be handled as a ")
        .map_or(message, |(_, rest)| rest.split_once(": ").map_or(rest, |(_, cause)| cause));
    let message = message.strip_prefix("json: ").unwrap_or(message);
    let quoted = |before: &str| Some(message.strip_prefix(before)?.strip_prefix('"')?.strip_suffix('"')?.to_owned());
    if let Some(field) = quoted("unknown field ") {
        return match meant(&field) {
            Some(meant) if field.ends_with(meant) => {
                let message = format!("{UNKNOWN} here; {meant} belongs to {}", place(meant));
                (field, message)
            }
            Some(meant) => (field, format!("{UNKNOWN}; did you mean {meant}?")),
            None => (field, UNKNOWN.to_owned()),
        };
    }
    // cannot unmarshal string into Go struct field Pod.spec.hostNetwork of type bool
    let mismatch = message.strip_prefix("cannot unmarshal ").and_then(|rest| {
        let (found, rest) = rest.split_once(" into Go struct field ")?;
        let (field, wanted) = rest.split_once(" of type ")?;
        let field = field.split_once('.').map_or(field, |(_, field)| field);
        let hint = match (found, wanted) {
            ("bool", "string") => ": a bare y, yes, no, on, off, true or false is no text in YAML, quote it",
            ("string", "[]string") => ": write a list, one word each, such as [\"sleep\", \"100\"]",
            (_, "int64") if field.ends_with("Seconds") => ": write whole seconds, such as 30",
            _ => "",
        };
        Some((field.to_owned(), format!("is of type {found}, must be {wanted}{hint}")))
    });
    // spec.containers[0].resources.limits.cpu: quantities must match the regular expression …
    let quantity = || {
        let (field, _) = message.split_once(": quantities must ")?;
        Some((field.to_owned(), "is no quantity, such as 250m, 0.5 or 512Mi".to_owned()))
    };
    mismatch.or_else(quantity).unwrap_or_else(|| (String::new(), message.to_owned()))
}

/// `spec.template` + `spec.containers` -> `spec.template.spec.containers`.
pub(super) fn joined(prefix: &str, field: &str) -> String {
    match (prefix, field) {
        ("", field) => field.to_owned(),
        (prefix, "") => prefix.to_owned(),
        (prefix, field) => format!("{prefix}.{field}"),
    }
}
