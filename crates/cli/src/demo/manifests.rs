//! What the demo asks the platform to run: nothing in it helps the pods to leave well. No hooks, no annotations, no sleeps.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};

use super::app::PORT;
use super::image::{NAME, PROGRAM};

/// What the Deployment and its Service are called.
pub(super) const WEB: &str = "web";
/// How many pods it has.
pub(super) const REPLICAS: i32 = 4;
/// A pod that does not leave when it is asked to.
pub(super) const STUBBORN: &str = "stubborn";
/// Where the requests come from.
pub(super) const CLIENT: &str = "client";

fn container(words: &[&str]) -> Value {
    let command: Vec<&str> = [PROGRAM, "demo-app"].iter().chain(words).copied().collect();
    json!({ "name": "app", "image": NAME, "imagePullPolicy": "Never", "command": command })
}

/// The Service.
pub(super) fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": WEB },
        "spec": { "selector": { "app": WEB }, "ports": [{ "port": 80, "targetPort": PORT }] },
    })
}

/// The web servers behind it.
pub(super) fn deployment() -> Value {
    let mut server = container(&["serve"]);
    server["ports"] = json!([{ "containerPort": PORT }]);
    server["readinessProbe"] = json!({ "tcpSocket": { "port": PORT }, "periodSeconds": 1 });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": WEB },
        "spec": {
            "replicas": REPLICAS, "selector": { "matchLabels": { "app": WEB } },
            "template": { "metadata": { "labels": { "app": WEB } }, "spec": { "containers": [server] } },
        },
    })
}

/// Makes the Deployment replace every pod.
pub(super) fn next_version() -> Value {
    json!({ "spec": { "template": { "metadata": { "labels": { "version": "2" } } } } })
}

/// The pod that ignores TERM.
pub(super) fn stubborn() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": STUBBORN },
        "spec": { "terminationGracePeriodSeconds": 5, "containers": [container(&["serve", "--ignore-term"])] },
    })
}

/// The pod that sends requests to `address`, and keeps its counts in the folder `counts` of this machine.
pub(super) fn client(address: SocketAddr, counts: &Path) -> Value {
    let mut client = container(&["load", &address.to_string(), "/counts"]);
    client["volumeMounts"] = json!([{ "name": "counts", "mountPath": "/counts" }]);
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": CLIENT },
        "spec": {
            "containers": [client],
            "volumes": [{ "name": "counts", "hostPath": { "path": counts, "type": "Directory" } }],
        },
    })
}
