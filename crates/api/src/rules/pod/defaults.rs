//! What a pod says when it says nothing (api-surface 18).

use serde_json::{Map, Value, json};

use crate::meta;
use crate::pod::{self, ResourceOptions, View as _, is_pod_level_resource};
use crate::rules::value::{put, text};

/// Defaults of a pod; safe to apply again.
pub(super) fn apply(pod: &mut Value) {
    let spec = meta::child_mut(pod, "spec");
    put(spec, "enableServiceLinks", true);
    apply_to_spec(spec);
    // A negative grace reads as the shortest one; a template says it as it was written, and its pods read it so.
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|s| s < 0) {
        spec.insert("terminationGracePeriodSeconds".to_owned(), json!(1));
    }
    for list in super::CONTAINER_LISTS {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut) {
                requests_from_limits(resources);
            }
        }
    }
    requests_of_the_whole(pod);
}

/// A pod that says something of its resources as a whole asks for as much as its containers do, and where they ask for nothing, for
/// as much as it allows itself.
fn requests_of_the_whole(pod: &mut Value) {
    let said = pod.resources();
    if said.requests.names().chain(said.limits.names()).next().is_none() {
        return;
    }
    let asked = pod::requests(pod, ResourceOptions::CONTAINERS);
    let Some(own) = pod["spec"].get_mut("resources").and_then(Value::as_object_mut) else { return };
    let mut requests = own.get("requests").and_then(Value::as_object).cloned().unwrap_or_default();
    for (name, amount) in asked.iter().filter(|(name, _)| is_pod_level_resource(name)) {
        requests.entry(name).or_insert_with(|| json!(amount.to_string()));
    }
    for (name, limit) in own.get("limits").and_then(Value::as_object).into_iter().flatten() {
        if is_pod_level_resource(name) {
            requests.entry(name).or_insert_with(|| limit.clone());
        }
    }
    if !requests.is_empty() {
        own.insert("requests".to_owned(), Value::Object(requests));
    }
}

/// Defaults that a pod's spec and a template's have in common.
pub(crate) fn apply_to_spec(spec: &mut Map<String, Value>) {
    put(spec, "restartPolicy", "Always");
    put(spec, "dnsPolicy", "ClusterFirst");
    put(spec, "schedulerName", "default-scheduler");
    put(spec, "terminationGracePeriodSeconds", 30);
    put(spec, "securityContext", json!({}));
    let host_network = spec.get("hostNetwork") == Some(&json!(true));
    for list in super::CONTAINER_LISTS {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(container) = container.as_object_mut() {
                container_defaults(container, host_network);
            }
        }
    }
    for volume in spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(volume) = volume.as_object_mut() {
            volume_defaults(volume);
        }
    }
    // The two spellings of the account go together.
    match (text(spec, "serviceAccountName"), text(spec, "serviceAccount")) {
        (name, old) if name.is_empty() && !old.is_empty() => put(spec, "serviceAccountName", old),
        (name, _) if !name.is_empty() => {
            spec.insert("serviceAccount".to_owned(), json!(name));
        }
        _ => {}
    }
}

fn container_defaults(container: &mut Map<String, Value>, host_network: bool) {
    put(container, "resources", json!({}));
    put(container, "terminationMessagePath", "/dev/termination-log");
    put(container, "terminationMessagePolicy", "File");
    let policy = if tag_is_latest(&text(container, "image")) { "Always" } else { "IfNotPresent" };
    put(container, "imagePullPolicy", policy);
    for port in container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(port) = port.as_object_mut() {
            put(port, "protocol", "TCP");
            if host_network && let Some(number) = port.get("containerPort").cloned() {
                put(port, "hostPort", number);
            }
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe).and_then(Value::as_object_mut) {
            put(probe, "timeoutSeconds", 1);
            put(probe, "periodSeconds", 10);
            put(probe, "successThreshold", 1);
            put(probe, "failureThreshold", 3);
            handler_defaults(probe);
        }
    }
    if let Some(lifecycle) = container.get_mut("lifecycle").and_then(Value::as_object_mut) {
        for hook in ["postStart", "preStop"] {
            if let Some(hook) = lifecycle.get_mut(hook).and_then(Value::as_object_mut) {
                handler_defaults(hook);
            }
        }
    }
    for env in container.get_mut("env").and_then(Value::as_array_mut).into_iter().flatten() {
        field_ref_default(env.pointer_mut("/valueFrom/fieldRef"));
    }
}

fn handler_defaults(handler: &mut Map<String, Value>) {
    if let Some(get) = handler.get_mut("httpGet").and_then(Value::as_object_mut) {
        put(get, "path", "/");
        put(get, "scheme", "HTTP");
    }
    if let Some(grpc) = handler.get_mut("grpc").and_then(Value::as_object_mut)
        && !grpc.contains_key("service")
    {
        grpc.insert("service".to_owned(), json!(""));
    }
}

/// A limit without a request asks for as much as it allows.
fn requests_from_limits(resources: &mut Map<String, Value>) {
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { return };
    if limits.is_empty() {
        return;
    }
    let requests = resources.entry("requests").or_insert_with(|| json!({}));
    for (name, quantity) in limits {
        if requests.get(&name).is_none() {
            requests[name] = quantity;
        }
    }
}

fn volume_defaults(volume: &mut Map<String, Value>) {
    if volume.keys().all(|key| key == "name") {
        volume.insert("emptyDir".to_owned(), json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = volume.get_mut(source).and_then(Value::as_object_mut) {
            put(source, "defaultMode", 420);
        }
    }
    if let Some(path) = volume.get_mut("hostPath").and_then(Value::as_object_mut)
        && !path.contains_key("type")
    {
        path.insert("type".to_owned(), json!(""));
    }
    let items = volume.get_mut("downwardAPI").and_then(|d| d.get_mut("items")).and_then(Value::as_array_mut);
    for item in items.into_iter().flatten() {
        field_ref_default(item.get_mut("fieldRef"));
    }
    let sources = volume.get_mut("projected").and_then(|p| p.get_mut("sources")).and_then(Value::as_array_mut);
    for source in sources.into_iter().flatten() {
        if let Some(token) = source.get_mut("serviceAccountToken").and_then(Value::as_object_mut) {
            put(token, "expirationSeconds", 3600);
        }
        for item in source.pointer_mut("/downwardAPI/items").and_then(Value::as_array_mut).into_iter().flatten() {
            field_ref_default(item.get_mut("fieldRef"));
        }
    }
}

fn field_ref_default(field_ref: Option<&mut Value>) {
    if let Some(field_ref) = field_ref.and_then(Value::as_object_mut) {
        put(field_ref, "apiVersion", "v1");
    }
}

/// No tag means `latest`; a digest is never latest.
fn tag_is_latest(image: &str) -> bool {
    if image.contains('@') {
        return false;
    }
    let last = image.rsplit('/').next().unwrap_or(image);
    last.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}
