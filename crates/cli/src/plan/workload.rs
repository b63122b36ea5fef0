//! The kinds that have pods: where each keeps its pod, and how the pods it makes stand in for each other.

use api::Registry;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::checked::{Complaint, checked, joined};

/// A kind that has pods.
#[derive(Debug)]
pub(super) struct Template {
    group: &'static str,
    version: &'static str,
    /// Its name.
    pub(super) kind: &'static str,
    /// Where its pod template is; empty for a pod, which is its own.
    pub(super) prefix: &'static str,
    /// Whether it says how many.
    counts: bool,
}

static TEMPLATES: &[Template] = &[
    row("", "Pod", "", false),
    row("apps", "Deployment", "spec.template", true),
    row("apps", "StatefulSet", "spec.template", true),
    row("apps", "DaemonSet", "spec.template", false),
    row("apps", "ReplicaSet", "spec.template", true),
    row("", "ReplicationController", "spec.template", true),
    row("batch", "Job", "spec.template", false),
    row("batch", "CronJob", "spec.jobTemplate.spec.template", false),
];

const fn row(group: &'static str, kind: &'static str, prefix: &'static str, counts: bool) -> Template {
    Template { group, version: "v1", kind, prefix, counts }
}

/// How to find the pod of a kind, if it has one.
pub(super) fn template(api_version: &str, kind: &str) -> Option<&'static Template> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let same = |template: &&Template| template.kind == kind && template.group == group && template.version == version;
    TEMPLATES.iter().find(same)
}

/// The kinds that have pods, in words.
pub(super) fn kinds() -> String {
    let kinds: Vec<&str> = TEMPLATES.iter().map(|template| template.kind).collect();
    format!("{} or List", kinds.join(", "))
}

/// An object that is no workload.
pub(super) enum OtherObject {
    /// A kind that is known, and makes no pods.
    HasNoPods,
    /// A kind of somebody else's.
    Unknown,
    /// A kind that does not exist under that name.
    Mistaken {
        /// What is wrong: `kind` or `apiVersion`.
        field: &'static str,
        /// Why, and what was probably meant.
        message: String,
    },
}

/// Groups that have no dot in their names. Only Kubernetes has such, so that all their kinds are known.
const GROUPS: [&str; 6] = ["", "apps", "batch", "policy", "autoscaling", "extensions"];
/// Kinds of these groups that can be sent to Kubernetes and are not served here.
const UNSERVED: [(&str, &str); 3] = [("", "Binding"), ("policy", "Eviction"), ("autoscaling", "Scale")];

/// What to make of a kind without a template.
pub(super) fn stranger(api_version: &str, kind: &str) -> OtherObject {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    if Registry::built_in().by_kind(group, version, kind).is_some() || UNSERVED.contains(&(group, kind)) {
        return OtherObject::HasNoPods;
    }
    let known = || {
        Registry::built_in()
            .kinds()
            .iter()
            .map(|known| (known.kind.as_str(), known.group.as_str(), known.api_version()))
    };
    let own = GROUPS.contains(&group) || group.ends_with(".k8s.io");
    // `app/v1`, `v2`: nobody else's group has no dot.
    if let Some((_, _, right)) = known().find(|(known, ..)| *known == kind)
        && (own || !group.contains('.'))
    {
        let message = format!("there is no {kind} in {api_version:?}; did you mean {right}?");
        return OtherObject::Mistaken { field: "apiVersion", message };
    }
    let close = known().map(|(known, home, right)| (distance(kind, known), known, home, right)).min();
    match close.filter(|(far, ..)| *far <= 2) {
        Some((_, meant, home, right)) if GROUPS.contains(&group) || group == home => OtherObject::Mistaken {
            field: "kind",
            message: match right == api_version {
                true => format!("there is no kind {kind:?}; did you mean {meant}?"),
                false => format!("there is no kind {kind:?} in {api_version:?}; did you mean {meant} in {right}?"),
            },
        },
        Some(_) | None if GROUPS.contains(&group) => {
            OtherObject::Mistaken { field: "kind", message: format!("there is no kind {kind:?} in {api_version:?}") }
        }
        Some(_) | None if !group.contains('.') => {
            OtherObject::Mistaken { field: "apiVersion", message: format!("there is no group {group:?}") }
        }
        Some(_) | None => OtherObject::Unknown,
    }
}

/// How many letters have to change to make one of the other; their case does not count.
pub(super) fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.to_lowercase(), b.to_lowercase());
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in b.iter().enumerate() {
            let changed = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

impl Template {
    /// `apps/v1`.
    pub(super) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// How many pods there will be, where the manifest says.
    pub(super) fn replicas(&self, object: &Value) -> Option<i64> {
        self.counts.then(|| object["spec"]["replicas"].as_i64().unwrap_or(1))
    }

    /// The pod as the API would store it and the object around it, or everything the API would say instead.
    pub(super) fn read(&self, object: &Value) -> Result<(Value, Pod), Vec<Complaint>> {
        let kind =
            Registry::built_in().by_kind(self.group, self.version, self.kind).expect("kinds with pods are served");
        let (object, mut complaints) = checked(kind, object);
        if self.prefix.is_empty() || !complaints.is_empty() {
            return if complaints.is_empty() { typed(&object).map(|pod| (object, pod)) } else { Err(complaints) };
        }
        let pods = Registry::built_in().by_kind("", "v1", "Pod").expect("pods are served");
        let (pod, more) = checked(pods, &self.pod_of(&object));
        complaints.extend(more.into_iter().map(|(field, text)| (joined(self.prefix, &field), text)));
        if complaints.is_empty() { typed(&pod).map(|pod| (object, pod)) } else { Err(complaints) }
    }

    /// The pod this object makes. It has a name of its own, whose rules are not those of its maker's.
    fn pod_of(&self, object: &Value) -> Value {
        let template = object.pointer(&format!("/{}", self.prefix.replace('.', "/"))).unwrap_or(&Value::Null);
        let metadata = &template["metadata"];
        json!({
            "apiVersion": "v1", "kind": "Pod", "spec": with_claims(&template["spec"], &object["spec"]),
            "metadata": {
                "name": "made-by-its-owner", "namespace": namespace(object),
                "labels": metadata["labels"], "annotations": metadata["annotations"],
            },
        })
    }
}

/// The spec of a pod with the volumes that its maker will add to it: one for each claim template.
fn with_claims(spec: &Value, owner: &Value) -> Value {
    let names = owner["volumeClaimTemplates"].as_array().into_iter().flatten();
    let names: Vec<&str> = names.filter_map(|claim| claim["metadata"]["name"].as_str()).collect();
    let mut spec = spec.clone();
    if names.is_empty() || !spec.is_object() {
        return spec;
    }
    let mut volumes = spec["volumes"].as_array().cloned().unwrap_or_default();
    volumes.retain(|volume| !names.iter().any(|name| volume["name"] == *name));
    volumes.extend(names.iter().map(|name| json!({ "name": name, "persistentVolumeClaim": { "claimName": name } })));
    spec["volumes"] = Value::Array(volumes);
    spec
}

fn typed(pod: &Value) -> Result<Pod, Vec<Complaint>> {
    serde_json::from_value(pod.clone()).map_err(|error| vec![(String::new(), error.to_string())])
}

/// Where whoever says no namespace is.
pub(super) const DEFAULT_NAMESPACE: &str = "default";

/// The namespace an object says it is in.
pub(super) fn namespace(object: &Value) -> String {
    match object["metadata"]["namespace"].as_str() {
        None | Some("") => DEFAULT_NAMESPACE.to_owned(),
        Some(name) => name.to_owned(),
    }
}
