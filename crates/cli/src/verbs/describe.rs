//! `adieu describe`: an object in words, with its events. Pods say how they leave; what is not known by name is shown as it is.

use std::fmt::Write as _;
use std::io::Write;

use anyhow::{Result, ensure};
use clap::Args;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};

use super::events::sort;
use super::format::{field, yaml};
use super::get::eprint_line;
use super::requests::{Call, path_segment};
use super::resources::{Resource, Resources};
use super::select::{self, Scope, selections};
use crate::cluster::{Cluster, ClusterArgs};
use crate::table::{age, aligned, labels, plain};

/// So many events are shown, the last ones.
const EVENTS_MOST: usize = 30;
/// What only machines read.
const MACHINES: [&str; 4] = ["managedFields", "uid", "resourceVersion", "generation"];
/// What a client wrote down for itself.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// `adieu describe`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  adieu describe pod web-1
  adieu describe deploy/web node/n1
  adieu describe pods -l app=web")]
pub struct DescribeArgs {
    /// Kinds and names: pod NAME, pod/NAME, nodes
    #[arg(value_name = "WHAT", required = true)]
    pub what: Vec<String>,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// With these labels
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub selector: Option<String>,
    /// In all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// With events
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub show_events: bool,
}

/// Describes them.
pub(crate) async fn run(args: &DescribeArgs, cluster: &Cluster, now: Timestamp, out: &mut dyn Write) -> Result<()> {
    let mut resources = Resources::default();
    let mut texts = Vec::new();
    let mut failed = Vec::new();
    for selection in selections(cluster, &mut resources, &args.what).await? {
        let resource = &selection.resource;
        let objects = if selection.names.is_empty() {
            let namespace = (!args.all_namespaces).then_some(cluster.namespace.as_str());
            let scope = Scope { namespace, labels: args.selector.as_deref(), fields: None };
            select::items(&cluster.ask(&scope.list(resource)?).await?.value, resource)
        } else {
            let mut objects = Vec::new();
            for name in &selection.names {
                let call = Call::get(
                    resource.object(&cluster.namespace, name)?,
                    format!("get {}", resource.object_name(name)),
                );
                match cluster.ask(&call).await {
                    Ok(answer) => objects.push(answer.value),
                    Err(error) => failed.push(format!("{error:#}")),
                }
            }
            objects
        };
        for object in objects {
            let mut text = describe(resource, &object, now)?;
            if resource.plural == "nodes" {
                pods_of_node(cluster, select::name(&object), now, &mut text).await?;
            }
            if args.show_events {
                events(cluster, resource, &object, now, &mut text).await?;
            }
            texts.push(text);
        }
    }
    if texts.is_empty() && failed.is_empty() {
        eprint_line("nothing found");
    }
    out.write_all(texts.join("\n\n").as_bytes())?;
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => plain(text),
        Value::Null => "<none>".to_owned(),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => other.to_string(),
    }
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn since(moment: &Value, now: Timestamp) -> Option<SignedDuration> {
    Some(now.duration_since(moment.as_str()?.parse().ok()?))
}

/// An object in words, without its events.
pub(crate) fn describe(resource: &Resource, object: &Value, now: Timestamp) -> Result<String> {
    let mut out = String::new();
    heading(&mut out, object);
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => pod(&mut out, object, now),
        ("", "nodes") => node(&mut out, object),
        ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets") => workload(&mut out, object)?,
        _ => rest(&mut out, object)?,
    }
    Ok(out)
}

fn heading(out: &mut String, object: &Value) {
    let metadata = &object["metadata"];
    field(out, 0, "Name", select::name(object));
    if let Some(namespace) = metadata["namespace"].as_str() {
        field(out, 0, "Namespace", namespace);
    }
    field(out, 0, "Created", metadata["creationTimestamp"].as_str().unwrap_or("<unknown>"));
    lines(out, "Labels", labels(metadata).split(','));
    let annotations: Vec<String> = metadata["annotations"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, _)| *key != LAST_APPLIED)
        .map(|(key, value)| format!("{key}: {}", text(value)))
        .collect();
    match annotations.is_empty() {
        true => field(out, 0, "Annotations", "<none>"),
        false => lines(out, "Annotations", annotations.iter().map(String::as_str)),
    }
    let owners: Vec<String> = items(&metadata["ownerReferences"])
        .iter()
        .map(|owner| format!("{}/{}", text(&owner["kind"]), text(&owner["name"])))
        .collect();
    if !owners.is_empty() {
        field(out, 0, "Controlled By", &owners.join(", "));
    }
    let finalizers: Vec<String> = items(&metadata["finalizers"]).iter().map(text).collect();
    if !finalizers.is_empty() {
        field(out, 0, "Finalizers", &finalizers.join(", "));
    }
}

/// A field with a value on each line.
fn lines<'a>(out: &mut String, name: &str, values: impl Iterator<Item = &'a str>) {
    for (number, value) in values.enumerate() {
        match number {
            0 => field(out, 0, name, value),
            _ => _ = writeln!(out, "{:20} {value}", ""),
        }
    }
}

fn pod(out: &mut String, pod: &Value, now: Timestamp) {
    let (metadata, spec, status) = (&pod["metadata"], &pod["spec"], &pod["status"]);
    field(out, 0, "Node", &format!("{}/{}", text(&spec["nodeName"]), text(&status["hostIP"])));
    field(out, 0, "Service Account", &text(&spec["serviceAccountName"]));
    if let Some(priority) = spec["priority"].as_i64().filter(|priority| *priority != 0) {
        field(out, 0, "Priority", &format!("{priority} ({})", text(&spec["priorityClassName"])));
    }
    match leaving(metadata, now) {
        Some(leaving) => field(out, 0, "Status", &format!("Terminating ({leaving})")),
        None => field(out, 0, "Status", &text(&status["phase"])),
    }
    for (name, value) in [("Reason", &status["reason"]), ("Message", &status["message"])] {
        if !value.is_null() {
            field(out, 0, name, &text(value));
        }
    }
    let grace = metadata["deletionGracePeriodSeconds"].as_i64().or(spec["terminationGracePeriodSeconds"].as_i64());
    field(out, 0, "Grace Period", &grace.map_or_else(|| "30s".to_owned(), |grace| format!("{grace}s")));
    field(out, 0, "IP", &text(&status["podIP"]));
    field(out, 0, "QoS Class", &text(&status["qosClass"]));
    for (title, specs, statuses) in [
        ("Init Containers", "initContainers", "initContainerStatuses"),
        ("Containers", "containers", "containerStatuses"),
        ("Ephemeral Containers", "ephemeralContainers", "ephemeralContainerStatuses"),
    ] {
        if items(&spec[specs]).is_empty() {
            continue;
        }
        let _ = writeln!(out, "{title}:");
        for spec in items(&spec[specs]) {
            let status = items(&status[statuses]).iter().find(|status| status["name"] == spec["name"]);
            container(out, spec, status.unwrap_or(&Value::Null));
        }
    }
    conditions(out, status);
    if !items(&spec["volumes"]).is_empty() {
        let _ = writeln!(out, "Volumes:");
        for volume in items(&spec["volumes"]) {
            let sources = volume.as_object().into_iter().flatten().find(|(key, _)| *key != "name");
            let source = sources.map_or_else(String::new, |(kind, source)| format!("{kind} {}", short(source)));
            field(out, 2, &text(&volume["name"]), &source);
        }
    }
}

/// How much of a pod's grace is left, once it was asked to leave. Kubernetes dates the deletion at the end of the grace.
fn leaving(metadata: &Value, now: Timestamp) -> Option<String> {
    let over = since(&metadata["deletionTimestamp"], now)?;
    Some(match over.is_negative() {
        true => format!("{} of its grace left", age(-over)),
        false => format!("its grace was over {} ago", age(over)),
    })
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    plain(&text.chars().take(100).collect::<String>())
}

fn container(out: &mut String, spec: &Value, status: &Value) {
    let _ = writeln!(out, "  {}:", text(&spec["name"]));
    let words = |field: &str| items(&spec[field]).iter().map(text).collect::<Vec<_>>().join(" ");
    field(out, 4, "Image", &text(&spec["image"]));
    if let Some(id) = status["imageID"].as_str() {
        field(out, 4, "Image ID", id);
    }
    let ports: Vec<String> = items(&spec["ports"])
        .iter()
        .map(|port| format!("{}/{}", text(&port["containerPort"]), port["protocol"].as_str().unwrap_or("TCP")))
        .collect();
    if !ports.is_empty() {
        field(out, 4, "Ports", &ports.join(", "));
    }
    for (name, key) in [("Command", "command"), ("Args", "args")] {
        if !items(&spec[key]).is_empty() {
            field(out, 4, name, &words(key));
        }
    }
    state(out, "State", &status["state"]);
    if status["lastState"].as_object().is_some_and(|last| !last.is_empty()) {
        state(out, "Last State", &status["lastState"]);
    }
    field(out, 4, "Ready", if status["ready"] == true { "True" } else { "False" });
    field(out, 4, "Restart Count", &status["restartCount"].as_i64().unwrap_or(0).to_string());
    for kind in ["limits", "requests"] {
        let amounts = spec["resources"][kind].as_object().into_iter().flatten();
        let amounts: Vec<String> = amounts.map(|(name, amount)| format!("{name}={}", text(amount))).collect();
        if !amounts.is_empty() {
            field(out, 4, if kind == "limits" { "Limits" } else { "Requests" }, &amounts.join(", "));
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if spec[probe].is_object() {
            field(out, 4, &capital(probe), &short(&spec[probe]));
        }
    }
    for hook in ["postStart", "preStop"] {
        if spec["lifecycle"][hook].is_object() {
            field(out, 4, &capital(hook), &short(&spec["lifecycle"][hook]));
        }
    }
    let mounts: Vec<String> = items(&spec["volumeMounts"])
        .iter()
        .map(|mount| {
            let how = if mount["readOnly"] == true { " (read-only)" } else { "" };
            format!("{} from {}{how}", text(&mount["mountPath"]), text(&mount["name"]))
        })
        .collect();
    if !mounts.is_empty() {
        field(out, 4, "Mounts", &mounts.join(", "));
    }
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn state(out: &mut String, name: &str, state: &Value) {
    let Some((kind, about)) = state.as_object().and_then(|state| state.iter().next()) else {
        return field(out, 4, name, "Waiting");
    };
    field(out, 4, name, &capital(kind));
    for (label, key) in [
        ("Reason", "reason"),
        ("Message", "message"),
        ("Signal", "signal"),
        ("Exit Code", "exitCode"),
        ("Started", "startedAt"),
        ("Finished", "finishedAt"),
    ] {
        if !about[key].is_null() {
            field(out, 6, label, &text(&about[key]));
        }
    }
}

fn conditions(out: &mut String, status: &Value) {
    let conditions = items(&status["conditions"]);
    if conditions.is_empty() {
        return;
    }
    let _ = writeln!(out, "Conditions:");
    let mut rows = vec![["  Type", "Status", "Reason", "Message"].map(str::to_owned).to_vec()];
    let or_nothing = |value: &Value| value.as_str().map(plain).unwrap_or_default();
    rows.extend(conditions.iter().map(|condition| {
        let kind = format!("  {}", text(&condition["type"]));
        vec![kind, text(&condition["status"]), or_nothing(&condition["reason"]), or_nothing(&condition["message"])]
    }));
    out.push_str(&aligned(&rows));
}

fn node(out: &mut String, node: &Value) {
    let (spec, status) = (&node["spec"], &node["status"]);
    field(out, 0, "Unschedulable", if spec["unschedulable"] == true { "true" } else { "false" });
    let taints: Vec<String> = items(&spec["taints"])
        .iter()
        .map(|taint| {
            format!(
                "{}={}:{}",
                text(&taint["key"]),
                taint["value"].as_str().unwrap_or_default(),
                text(&taint["effect"])
            )
        })
        .collect();
    field(out, 0, "Taints", if taints.is_empty() { "<none>" } else { "" });
    taints.iter().for_each(|taint| _ = writeln!(out, "  {taint}"));
    conditions(out, status);
    let _ = writeln!(out, "Addresses:");
    for address in items(&status["addresses"]) {
        field(out, 2, &text(&address["type"]), &text(&address["address"]));
    }
    for (title, key) in [("Capacity", "capacity"), ("Allocatable", "allocatable"), ("System Info", "nodeInfo")] {
        let _ = writeln!(out, "{title}:");
        for (name, value) in status[key].as_object().into_iter().flatten().filter(|(_, value)| !value.is_object()) {
            field(out, 2, name, &text(value));
        }
    }
}

async fn pods_of_node(cluster: &Cluster, node: &str, now: Timestamp, out: &mut String) -> Result<()> {
    let call = Call::get("/api/v1/pods", format!("list the pods of node/{node}"));
    let list = cluster.ask(&call.query("fieldSelector", format!("spec.nodeName={node}"))).await?.value;
    let pods = items(&list["items"]);
    let _ = writeln!(out, "Pods:                ({})", pods.len());
    if pods.is_empty() {
        return Ok(());
    }
    let mut rows = vec![["  Namespace", "Name", "Status", "Age"].map(str::to_owned).to_vec()];
    rows.extend(pods.iter().map(|pod| {
        let metadata = &pod["metadata"];
        let status = leaving(metadata, now)
            .map_or_else(|| text(&pod["status"]["phase"]), |left| format!("Terminating ({left})"));
        let age = since(&metadata["creationTimestamp"], now).map(age).unwrap_or_default();
        vec![format!("  {}", text(&metadata["namespace"])), text(&metadata["name"]), status, age]
    }));
    out.push_str(&aligned(&rows));
    Ok(())
}

fn workload(out: &mut String, object: &Value) -> Result<()> {
    let (spec, status) = (&object["spec"], &object["status"]);
    field(out, 0, "Selector", &super::pods::labels_of(object).unwrap_or_else(|| "<none>".to_owned()));
    let count = |key: &str| status[key].as_i64().unwrap_or(0);
    let replicas = match object["kind"].as_str() {
        Some("DaemonSet") => format!(
            "{} wanted, {} updated, {} ready, {} available",
            count("desiredNumberScheduled"),
            count("updatedNumberScheduled"),
            count("numberReady"),
            count("numberAvailable")
        ),
        Some("ReplicaSet") => {
            format!("{} wanted, {} there, {} ready", spec["replicas"], count("replicas"), count("readyReplicas"))
        }
        _ => format!(
            "{} wanted, {} updated, {} there, {} ready, {} available",
            spec["replicas"].as_i64().unwrap_or(1),
            count("updatedReplicas"),
            count("replicas"),
            count("readyReplicas"),
            count("availableReplicas")
        ),
    };
    field(out, 0, "Replicas", &replicas);
    for key in ["strategy", "updateStrategy"] {
        if spec[key].is_object() {
            field(out, 0, "Strategy", &short(&spec[key]));
        }
    }
    let _ = writeln!(out, "Pod Template:");
    field(out, 2, "Labels", &labels(&spec["template"]["metadata"]));
    for key in ["initContainers", "containers"] {
        for container in items(&spec["template"]["spec"][key]) {
            field(out, 2, &text(&container["name"]), &text(&container["image"]));
        }
    }
    let grace = spec["template"]["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
    field(out, 2, "Grace Period", &format!("{grace}s"));
    conditions(out, status);
    Ok(())
}

/// Everything else that the object holds.
fn rest(out: &mut String, object: &Value) -> Result<()> {
    let hidden = |key: &str| matches!(key, "apiVersion" | "kind" | "metadata") || MACHINES.contains(&key);
    let fields: Map<String, Value> = object
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, _)| !hidden(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let mut fields = Value::Object(fields);
    // What is secret is counted, not shown.
    if object["kind"] == "Secret" {
        for key in ["data", "stringData"] {
            for value in fields[key].as_object_mut().into_iter().flatten().map(|(_, value)| value) {
                *value = format!("{} characters in base64", value.as_str().map_or(0, str::len)).into();
            }
        }
    }
    if fields.as_object().is_some_and(|fields| !fields.is_empty()) {
        out.push_str(&yaml(&fields)?);
    }
    Ok(())
}

async fn events(
    cluster: &Cluster,
    resource: &Resource,
    object: &Value,
    now: Timestamp,
    out: &mut String,
) -> Result<()> {
    let metadata = &object["metadata"];
    // Those of nodes and the like are kept in the namespace `default`.
    let namespace = path_segment(metadata["namespace"].as_str().unwrap_or("default"))?;
    let mut fields = format!("involvedObject.kind={},involvedObject.name={}", resource.kind, select::name(object));
    if let Some(uid) = metadata["uid"].as_str().filter(|_| resource.namespaced) {
        fields.push_str(&format!(",involvedObject.uid={uid}"));
    }
    let call =
        Call::get(format!("/api/v1/namespaces/{namespace}/events"), "list events").query("fieldSelector", fields);
    // Who may not read events may still read the object.
    let Ok(Some(mut answer)) = cluster.find(&call).await else { return Ok(()) };
    let mut events = answer.value["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
    sort(&mut events);
    if events.is_empty() {
        field(out, 0, "Events", "<none>");
        return Ok(());
    }
    let _ = writeln!(out, "Events:");
    let mut rows = vec![["  Type", "Reason", "Age", "From", "Message"].map(str::to_owned).to_vec()];
    for event in &events[events.len().saturating_sub(EVENTS_MOST)..] {
        let last = if event["lastTimestamp"].is_null() { &event["eventTime"] } else { &event["lastTimestamp"] };
        let mut seen = since(last, now).map(age).unwrap_or_default();
        if let Some(count) = event["count"].as_i64().filter(|count| *count > 1) {
            seen.push_str(&format!(" (x{count})"));
        }
        let from = event["source"]["component"].as_str().or(event["reportingComponent"].as_str()).unwrap_or_default();
        rows.push(vec![
            format!("  {}", text(&event["type"])),
            text(&event["reason"]),
            seen,
            plain(from),
            text(&event["message"]),
        ]);
    }
    out.push_str(&aligned(&rows));
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    fn described(plural: &str, group: &str, object: &Value) -> String {
        let resource = Resource {
            group: group.to_owned(),
            version: "v1".to_owned(),
            plural: plural.to_owned(),
            kind: object["kind"].as_str().unwrap_or_default().to_owned(),
            namespaced: true,
        };
        describe(&resource, object, "2026-01-01T00:01:00Z".parse().unwrap()).unwrap()
    }

    #[test]
    fn leaving_pod_is_described_with_the_grace_it_has_left() {
        let mut pod = json!({
            "kind": "Pod",
            "metadata": { "name": "web", "deletionTimestamp": "2026-01-01T00:01:20Z", "deletionGracePeriodSeconds": 30 },
            "spec": { "containers": [{ "name": "app", "image": "x", "lifecycle": { "preStop": { "sleep": { "seconds": 5 } } } }] },
            "status": { "phase": "Running", "containerStatuses": [
                { "name": "app", "state": { "terminated": { "exitCode": 137, "reason": "Error" } } }] },
        });
        let text = described("pods", "", &pod);
        assert!(text.contains("Terminating (20s of its grace left)"), "{text}");
        assert!(text.contains("Grace Period:        30s") && text.contains("Exit Code:     137"), "{text}");
        assert!(text.contains(r#"{"sleep":{"seconds":5}}"#), "{text}");
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:30Z".into();
        assert!(described("pods", "", &pod).contains("its grace was over 30s ago"));
    }

    #[test]
    fn secret_is_described_without_what_it_holds() {
        let secret = json!({ "kind": "Secret", "metadata": { "name": "s" }, "data": { "key": "c2VjcmV0" } });
        let text = described("secrets", "", &secret);
        assert!(text.contains("key: 8 characters in base64") && !text.contains("c2VjcmV0"), "{text}");
    }

    #[test]
    fn object_of_any_shape_is_described() {
        for (plural, group) in [("pods", ""), ("nodes", ""), ("deployments", "apps"), ("cows", "farm.io")] {
            for object in [
                json!({}),
                json!({ "metadata": 1, "spec": [], "status": "x" }),
                json!({ "spec": { "containers": [1, {}] } }),
            ] {
                assert!(!described(plural, group, &object).is_empty());
            }
        }
    }
}
