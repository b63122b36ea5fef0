//! The kinds that have pods: where each keeps its pod, and what is wrong with what was written there.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::manifest::{joined, namespace, word};

/// A kind that has pods.
#[derive(Debug)]
pub(super) struct Template {
    api_version: &'static str,
    /// Its name.
    pub(super) kind: &'static str,
    /// Where its pod template is; empty for a pod, which is its own.
    pub(super) prefix: &'static str,
    /// Where it says how many, if it does.
    count: Option<&'static str>,
    /// What `restartPolicy` may be.
    restart: &'static [&'static str],
    /// Reads it by its published type and answers what survived.
    typed: fn(Value) -> Result<Value, serde_json::Error>,
}

/// A field, and what is wrong with it.
type Complaint = (String, String);

const ANY: &[&str] = &["Always", "OnFailure", "Never"];
const ALWAYS: &[&str] = &["Always"];
const UNTIL_DONE: &[&str] = &["OnFailure", "Never"];

static TEMPLATES: &[Template] = &[
    Template {
        api_version: "v1",
        kind: "Pod",
        prefix: "",
        count: None,
        restart: ANY,
        // A pod is read below, by `api` itself.
        typed: Ok,
    },
    row::<ReplicationController>("v1", "ReplicationController", "spec.template", Some("replicas"), ALWAYS),
    row::<Deployment>("apps/v1", "Deployment", "spec.template", Some("replicas"), ALWAYS),
    row::<ReplicaSet>("apps/v1", "ReplicaSet", "spec.template", Some("replicas"), ALWAYS),
    row::<StatefulSet>("apps/v1", "StatefulSet", "spec.template", Some("replicas"), ALWAYS),
    row::<DaemonSet>("apps/v1", "DaemonSet", "spec.template", None, ALWAYS),
    row::<Job>("batch/v1", "Job", "spec.template", None, UNTIL_DONE),
    row::<CronJob>("batch/v1", "CronJob", "spec.jobTemplate.spec.template", None, UNTIL_DONE),
];

const fn row<T: DeserializeOwned + Serialize>(
    api_version: &'static str,
    kind: &'static str,
    prefix: &'static str,
    count: Option<&'static str>,
    restart: &'static [&'static str],
) -> Template {
    Template { api_version, kind, prefix, count, restart, typed: survivors::<T> }
}

fn survivors<T: DeserializeOwned + Serialize>(value: Value) -> Result<Value, serde_json::Error> {
    serde_json::to_value(T::deserialize(value)?)
}

/// How to find the pod of a kind, if it has one.
pub(super) fn template(api_version: &str, kind: &str) -> Option<&'static Template> {
    TEMPLATES.iter().find(|template| template.api_version == api_version && template.kind == kind)
}

impl Template {
    /// How many pods there will be, where the manifest says.
    pub(super) fn replicas(&self, object: &Value) -> Option<i64> {
        self.count.map(|count| object["spec"][count].as_i64().unwrap_or(1))
    }

    /// What is wrong around the pod: fields that do not exist or are of another type, a policy the kind refuses.
    pub(super) fn complaints(&self, object: &Value) -> Vec<Complaint> {
        let mut complaints = Vec::new();
        if word(&object["metadata"]["name"]).is_empty() && word(&object["metadata"]["generateName"]).is_empty() {
            complaints.push(("metadata.name".to_owned(), "required".to_owned()));
        }
        let around = self.around(object);
        match (self.typed)(around.clone()) {
            Ok(kept) => unknown(&around, &kept, "", &mut complaints),
            Err(error) => complaints.push((self.culprit(&around), error.to_string())),
        }
        let policy = word(&object.at(self.prefix)["spec"]["restartPolicy"]);
        let policy = if policy.is_empty() { "Always" } else { policy };
        if !self.restart.contains(&policy) {
            let text = format!("{policy} is not for a {}; use {}", self.kind, self.restart.join(" or "));
            complaints.push((joined(self.prefix, "spec.restartPolicy"), text));
        }
        complaints
    }

    /// The pod as the API would store it, or what the API would say instead.
    pub(super) fn pod(&self, object: &Value) -> Result<Pod, Vec<Complaint>> {
        let here = |complaint: Complaint| (joined(self.prefix, &complaint.0), complaint.1);
        let pod = self.pod_value(object);
        let kind = api::by_kind("", "v1", "Pod").expect("pods are served");
        let body = pod.to_string();
        let decoded = api::decode_object(kind, None, body.as_bytes(), api::FieldValidation::Warn)
            .map_err(|status| vec![here(decoding(&status.message))])?;
        if !decoded.warnings.is_empty() {
            return Err(decoded.warnings.iter().map(|warning| here(decoding(warning))).collect());
        }
        let mut value = decoded.value;
        // Which classes exist is a cluster's to know, and no part of how a pod leaves.
        if let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut) {
            spec.retain(|field, _| field != "priorityClassName" && field != "priority");
        }
        let place = namespace(&pod);
        api::prepare_create(kind, &mut value, &place, Timestamp::UNIX_EPOCH, String::new(), String::new).map_err(
            |status| match status.details {
                Some(details) if !details.causes.is_empty() => {
                    details.causes.into_iter().map(|cause| here((cause.field, cause.message))).collect()
                }
                Some(_) | None => vec![here((String::new(), status.message))],
            },
        )?;
        serde_json::from_value(value).map_err(|error| vec![here((String::new(), error.to_string()))])
    }

    /// The pod this object makes: its template under its own name.
    fn pod_value(&self, object: &Value) -> Value {
        let mut pod = object.at(self.prefix).clone();
        if !self.prefix.is_empty() {
            let metadata = &object["metadata"];
            let owner = if word(&metadata["name"]).is_empty() { &metadata["generateName"] } else { &metadata["name"] };
            if let Some(pod) = pod.as_object_mut() {
                let named = pod.entry("metadata").or_insert_with(|| json!({}));
                named["name"] = owner.clone();
                named["namespace"] = namespace(object).into();
                pod.insert("apiVersion".to_owned(), "v1".into());
                pod.insert("kind".to_owned(), "Pod".into());
            } else {
                pod = json!({ "metadata": { "name": owner } });
            }
        }
        pod
    }

    /// The object without its pod template, which is read separately.
    fn around(&self, object: &Value) -> Value {
        let mut around = object.clone();
        if let Some(template) = around.pointer_mut(&format!("/{}", self.prefix.replace('.', "/")))
            && !self.prefix.is_empty()
        {
            *template = json!({});
        }
        around
    }

    /// The one field without which the object can be read.
    fn culprit(&self, object: &Value) -> String {
        let mut paths = Vec::new();
        leaves(object, "", "", &mut paths);
        let reads_without = |pointer: &str| {
            let mut without = object.clone();
            if let Some(leaf) = without.pointer_mut(pointer) {
                *leaf = Value::Null;
            }
            (self.typed)(without).is_ok()
        };
        paths.into_iter().find(|(pointer, _)| reads_without(pointer)).map_or_else(String::new, |(_, field)| field)
    }
}

/// `spec.template` of an object.
trait At {
    fn at(&self, path: &str) -> &Value;
}

impl At for Value {
    fn at(&self, path: &str) -> &Value {
        path.split('.').filter(|step| !step.is_empty()).fold(self, |value, step| &value[step])
    }
}

/// Every leaf and branch below `value`, as a pointer and as people write it, the deepest first.
fn leaves(value: &Value, pointer: &str, field: &str, paths: &mut Vec<(String, String)>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                leaves(value, &format!("{pointer}/{key}"), &joined(field, key), paths);
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                leaves(value, &format!("{pointer}/{index}"), &format!("{field}[{index}]"), paths);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    paths.push((pointer.to_owned(), field.to_owned()));
}

/// Whatever was sent and has no place in what survived.
fn unknown(sent: &Value, kept: &Value, field: &str, complaints: &mut Vec<Complaint>) {
    match (sent, kept) {
        (Value::Object(sent), Value::Object(kept)) => {
            for (key, value) in sent.iter().filter(|(_, value)| !value.is_null() && **value != json!({})) {
                let field = joined(field, key);
                match kept.get(key) {
                    Some(survivor) => unknown(value, survivor, &field, complaints),
                    None => complaints.push((field, UNKNOWN.to_owned())),
                }
            }
        }
        (Value::Array(sent), Value::Array(kept)) => {
            for (index, (value, survivor)) in sent.iter().zip(kept).enumerate() {
                unknown(value, survivor, &format!("{field}[{index}]"), complaints);
            }
        }
        // A leaf may be respelled; it survived.
        _ => {}
    }
}

const UNKNOWN: &str = "no such field";

/// The field in what `api` says of a body it could not read, and the rest of the sentence.
fn decoding(message: &str) -> Complaint {
    let message = message.rsplit_once(": json: ").map_or(message, |(_, cause)| cause);
    if let Some(field) = quoted(message, "unknown field ") {
        return (field, UNKNOWN.to_owned());
    }
    // cannot unmarshal string into Go struct field Pod.spec.hostNetwork of type bool
    let mismatch = message.strip_prefix("cannot unmarshal ").and_then(|rest| {
        let (found, rest) = rest.split_once(" into Go struct field ")?;
        let (field, wanted) = rest.split_once(" of type ")?;
        let field = field.split_once('.').map_or(field, |(_, field)| field);
        Some((field.to_owned(), format!("is of type {found}, must be {wanted}")))
    });
    mismatch.unwrap_or_else(|| (String::new(), message.to_owned()))
}

fn quoted(message: &str, before: &str) -> Option<String> {
    let field = message.strip_prefix(before)?.strip_prefix('"')?.strip_suffix('"')?;
    Some(field.to_owned())
}
