//! Policy, access and storage kinds in one line each.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::workload::selector_text;
use super::{AGE, Column, NAME, since, text};
use crate::meta;
use crate::rules::value::{list, word};

const fn plain(name: &'static str, description: &'static str) -> Column {
    Column(name, "string", "", 0, description)
}

const fn wide(name: &'static str, description: &'static str) -> Column {
    Column(name, "string", "", 1, description)
}

const BUDGET: [Column; 5] = [
    NAME,
    plain("Min Available", "Pods that must stay."),
    plain("Max Unavailable", "Pods that may be missing."),
    Column("Allowed Disruptions", "integer", "", 0, "Pods that may leave now."),
    AGE,
];
const PRIORITY: [Column; 5] = [
    NAME,
    Column("Value", "integer", "", 0, "The priority itself."),
    Column("Global-Default", "boolean", "", 0, "Whether pods without a class have it."),
    AGE,
    plain("PreemptionPolicy", "Whether its pods may displace others."),
];
const BINDING: [Column; 6] = [
    NAME,
    plain("Role", "What is granted."),
    AGE,
    wide("Users", "The users it is granted to."),
    wide("Groups", "The groups it is granted to."),
    wide("ServiceAccounts", "The service accounts it is granted to."),
];
const VOLUME: [Column; 11] = [
    NAME,
    plain("Capacity", "How much it holds."),
    plain("Access Modes", "How it may be mounted."),
    plain("Reclaim Policy", "What becomes of it after its claim."),
    plain("Status", "Where it stands."),
    plain("Claim", "The claim it is bound to."),
    plain("StorageClass", "Its class."),
    plain("VolumeAttributesClass", "The class of its attributes."),
    plain("Reason", "Why it is where it stands."),
    AGE,
    wide("VolumeMode", "Whether it is a file system."),
];
const CLAIM: [Column; 9] = [
    NAME,
    plain("Status", "Where it stands."),
    plain("Volume", "The volume it is bound to."),
    plain("Capacity", "How much it holds."),
    plain("Access Modes", "How it may be mounted."),
    plain("StorageClass", "Its class."),
    plain("VolumeAttributesClass", "The class of its attributes."),
    AGE,
    wide("VolumeMode", "Whether it is a file system."),
];
const CLASS: [Column; 6] = [
    NAME,
    plain("Provisioner", "Who makes its volumes."),
    plain("ReclaimPolicy", "What becomes of a volume after its claim."),
    plain("VolumeBindingMode", "When a volume is chosen."),
    plain("AllowVolumeExpansion", "Whether volumes may grow."),
    AGE,
];
const QUOTA: [Column; 4] = [
    NAME,
    plain("Request", "What is asked for, of what may be."),
    plain("Limit", "What is allowed, of what may be."),
    AGE,
];
const RUNTIME: [Column; 3] = [NAME, plain("Handler", "What runs its pods."), AGE];
const REVISION: [Column; 4] = [
    NAME,
    plain("Controller", "Whose revision it is."),
    Column("Revision", "integer", "", 0, "Its place in the order."),
    AGE,
];
const TEMPLATE: [Column; 4] = [
    NAME,
    plain("Containers", "Names of the containers in the template."),
    plain("Images", "Images of the containers in the template."),
    plain("Pod Labels", "Labels of its pods."),
];
const AUTOSCALER: [Column; 7] = [
    NAME,
    plain("Reference", "What is scaled."),
    plain("Targets", "What is measured, and what is aimed at."),
    plain("MinPods", "The fewest pods."),
    plain("MaxPods", "The most pods."),
    Column("Replicas", "integer", "", 0, "Pods there are."),
    AGE,
];
const NETWORK_POLICY: [Column; 3] = [NAME, plain("Pod-Selector", "Whose traffic it rules."), AGE];
const INGRESS_CLASS: [Column; 4] =
    [NAME, plain("Controller", "Who serves it."), plain("Parameters", "What the controller is told."), AGE];

fn shown(value: &Value, absent: &str) -> Value {
    match value {
        Value::Null => json!(absent),
        Value::String(word) => json!(word),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => json!(value.to_string()),
    }
}

fn modes(modes: &Value) -> Value {
    let short = |mode: &Value| match text(mode) {
        "ReadWriteOnce" => "RWO",
        "ReadOnlyMany" => "ROX",
        "ReadWriteMany" => "RWX",
        "ReadWriteOncePod" => "RWOP",
        _ => "",
    };
    let words: Vec<&str> = modes.as_array().into_iter().flatten().map(short).collect();
    json!(words.join(","))
}

fn phase(object: &Value) -> Value {
    let leaving = meta::deletion_timestamp(object).is_some();
    json!(if leaving { "Terminating" } else { text(&object["status"]["phase"]) })
}

fn subjects(binding: &Value, kind: &str) -> Value {
    let all = list(binding, "subjects").iter().filter(|subject| subject["kind"] == kind);
    let words: Vec<String> = all
        .map(|subject| match kind {
            "ServiceAccount" => format!("{}/{}", word(subject, "namespace"), word(subject, "name")),
            _ => word(subject, "name").to_owned(),
        })
        .collect();
    json!(words.join(", "))
}

fn quota(object: &Value, limits: bool) -> Value {
    let status = &object["status"];
    let hard = status["hard"].as_object().or_else(|| object["spec"]["hard"].as_object());
    let words: Vec<String> = hard
        .into_iter()
        .flatten()
        .filter(|(name, _)| name.starts_with("limits.") == limits)
        .map(|(name, hard)| {
            format!("{name}: {}/{}", shown(&status["used"][name], "0").as_str().unwrap_or("0"), text(hard))
        })
        .collect();
    json!(words.join(", "))
}

fn controller(object: &Value) -> Value {
    let owners = list(&object["metadata"], "ownerReferences");
    let owner = owners.iter().find(|owner| owner["controller"] == json!(true));
    let name = |owner: &Value| {
        let group = word(owner, "apiVersion").split_once('/').map(|(group, _)| format!(".{group}"));
        format!("{}{}/{}", word(owner, "kind").to_lowercase(), group.unwrap_or_default(), word(owner, "name"))
    };
    json!(owner.map_or_else(|| "<none>".to_owned(), name))
}

/// The cells of `object`, if its collection is one of these.
pub(super) fn cells(collection: &str, object: &Value, now: Timestamp) -> Option<Vec<Value>> {
    let name = json!(meta::name(object));
    let age = json!(since(meta::creation_timestamp(object), now));
    let spec = &object["spec"];
    Some(match collection {
        "poddisruptionbudgets.policy" => {
            let allowed = json!(object["status"]["disruptionsAllowed"].as_i64().unwrap_or(0));
            vec![name, shown(&spec["minAvailable"], "N/A"), shown(&spec["maxUnavailable"], "N/A"), allowed, age]
        }
        "priorityclasses.scheduling.k8s.io" => vec![
            name,
            object["value"].clone(),
            json!(object["globalDefault"] == json!(true)),
            age,
            json!(word(object, "preemptionPolicy")),
        ],
        "rolebindings.rbac.authorization.k8s.io" | "clusterrolebindings.rbac.authorization.k8s.io" => {
            let role = format!("{}/{}", word(&object["roleRef"], "kind"), word(&object["roleRef"], "name"));
            let of = |kind| subjects(object, kind);
            vec![name, json!(role), age, of("User"), of("Group"), of("ServiceAccount")]
        }
        "persistentvolumes" => {
            let claim = &spec["claimRef"];
            let claim = match word(claim, "name") {
                "" => String::new(),
                name => format!("{}/{name}", word(claim, "namespace")),
            };
            vec![
                name,
                shown(&spec["capacity"]["storage"], ""),
                modes(&spec["accessModes"]),
                json!(word(spec, "persistentVolumeReclaimPolicy")),
                phase(object),
                json!(claim),
                json!(word(spec, "storageClassName")),
                shown(&spec["volumeAttributesClassName"], "<unset>"),
                json!(text(&object["status"]["reason"])),
                age,
                shown(&spec["volumeMode"], "<unset>"),
            ]
        }
        "persistentvolumeclaims" => {
            let bound = !word(spec, "volumeName").is_empty();
            let status = &object["status"];
            vec![
                name,
                phase(object),
                json!(word(spec, "volumeName")),
                if bound { shown(&status["capacity"]["storage"], "") } else { json!("") },
                if bound { modes(&status["accessModes"]) } else { json!("") },
                json!(word(spec, "storageClassName")),
                shown(&spec["volumeAttributesClassName"], "<unset>"),
                age,
                shown(&spec["volumeMode"], "<unset>"),
            ]
        }
        "storageclasses.storage.k8s.io" => {
            let default = meta::annotations(object)
                .any(|(key, value)| key == "storageclass.kubernetes.io/is-default-class" && value == "true");
            let name = if default { json!(format!("{} (default)", meta::name(object))) } else { name };
            vec![
                name,
                json!(word(object, "provisioner")),
                json!(word(object, "reclaimPolicy")),
                json!(word(object, "volumeBindingMode")),
                json!(object["allowVolumeExpansion"] == json!(true)),
                age,
            ]
        }
        "resourcequotas" => vec![name, quota(object, false), quota(object, true), age],
        "runtimeclasses.node.k8s.io" => vec![name, json!(word(object, "handler")), age],
        "controllerrevisions.apps" => vec![name, controller(object), object["revision"].clone(), age],
        "podtemplates" => {
            let template = &object["template"];
            let of = |key: &str| {
                let words: Vec<&str> = list(&template["spec"], "containers").iter().map(|c| word(c, key)).collect();
                json!(words.join(","))
            };
            let labels = selector_text(&json!({ "matchLabels": template["metadata"]["labels"] }));
            vec![name, of("name"), of("image"), json!(labels)]
        }
        "horizontalpodautoscalers.autoscaling" => {
            let target = &spec["scaleTargetRef"];
            vec![
                name,
                json!(format!("{}/{}", word(target, "kind"), word(target, "name"))),
                json!(targets(object)),
                shown(&spec["minReplicas"], "<unset>"),
                shown(&spec["maxReplicas"], ""),
                json!(object["status"]["currentReplicas"].as_i64().unwrap_or(0)),
                age,
            ]
        }
        "networkpolicies.networking.k8s.io" => vec![name, json!(selector_text(&spec["podSelector"])), age],
        "ingressclasses.networking.k8s.io" => {
            let parameters = &spec["parameters"];
            let shown = match word(parameters, "kind") {
                "" => "<none>".to_owned(),
                kind => format!("{kind}/{}", word(parameters, "name")),
            };
            vec![name, json!(word(spec, "controller")), json!(shown), age]
        }
        _ => return None,
    })
}

/// What is measured now against what is aimed at, metric by metric.
fn targets(scaler: &Value) -> String {
    let now = list(&scaler["status"], "currentMetrics");
    let one = |(index, metric): (usize, &Value)| match word(metric, "type") {
        "Resource" => {
            let (resource, now) = (&metric["resource"], now.get(index).map(|now| &now["resource"]["current"]));
            let percent = |value: &Value| value["averageUtilization"].as_i64().map(|percent| format!("{percent}%"));
            let amount = |value: &Value| Some(text(&value["averageValue"]).to_owned()).filter(|text| !text.is_empty());
            let (goal, now) = match percent(&resource["target"]) {
                Some(goal) => (goal, now.and_then(percent)),
                None => (amount(&resource["target"]).unwrap_or_default(), now.and_then(amount)),
            };
            format!("{}: {}/{goal}", word(resource, "name"), now.as_deref().unwrap_or("<unknown>"))
        }
        other => format!("{other}: <unknown>"),
    };
    let all: Vec<String> = list(&scaler["spec"], "metrics").iter().enumerate().map(one).collect();
    if all.is_empty() { "<none>".to_owned() } else { all.join(", ") }
}

/// The columns of a collection, if it is one of these.
pub(super) fn columns(collection: &str) -> Option<&'static [Column]> {
    Some(match collection {
        "poddisruptionbudgets.policy" => &BUDGET,
        "priorityclasses.scheduling.k8s.io" => &PRIORITY,
        "rolebindings.rbac.authorization.k8s.io" | "clusterrolebindings.rbac.authorization.k8s.io" => &BINDING,
        "persistentvolumes" => &VOLUME,
        "persistentvolumeclaims" => &CLAIM,
        "storageclasses.storage.k8s.io" => &CLASS,
        "resourcequotas" => &QUOTA,
        "runtimeclasses.node.k8s.io" => &RUNTIME,
        "controllerrevisions.apps" => &REVISION,
        "podtemplates" => &TEMPLATE,
        "horizontalpodautoscalers.autoscaling" => &AUTOSCALER,
        "networkpolicies.networking.k8s.io" => &NETWORK_POLICY,
        "ingressclasses.networking.k8s.io" => &INGRESS_CLASS,
        _ => return None,
    })
}
