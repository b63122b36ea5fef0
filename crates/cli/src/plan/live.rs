//! Objects of a cluster as manifests: without what only the server writes.

use anyhow::Result;
use serde_json::{Map, Value};

use crate::cluster::{Cluster, ObjectName};
use crate::pod_end::word;
use crate::verbs::{Call, Resources, path_segment};

/// What has pods, as people write it. Anything else with a slash is a file.
const WORDS: [&str; 24] = [
    "po",
    "pod",
    "pods",
    "deploy",
    "deployment",
    "deployments",
    "deployments.apps",
    "sts",
    "statefulset",
    "statefulsets",
    "statefulsets.apps",
    "ds",
    "daemonset",
    "daemonsets",
    "daemonsets.apps",
    "rs",
    "replicaset",
    "replicasets",
    "job",
    "jobs",
    "jobs.batch",
    "cj",
    "cronjob",
    "cronjobs",
];

/// The object that a word of the command line means, if it is one of a cluster.
pub(super) fn object_name(word: &str) -> Option<ObjectName> {
    word.parse().ok().filter(|name: &ObjectName| WORDS.contains(&name.resource.as_str()))
}

/// An object and what it is called.
type Named = (String, Value);

/// The object and the Services of its namespace.
pub(super) async fn objects(cluster: &Cluster, name: &ObjectName) -> Result<(Named, Vec<Named>)> {
    let resource = Resources::default().find(cluster, &name.resource).await?;
    let shown = resource.object_name(&name.name);
    let call = Call::get(resource.object(&cluster.namespace, &name.name)?, format!("get {shown}"));
    let object = cluster.ask(&call).await?.value;
    let path = format!("/api/v1/namespaces/{}/services", path_segment(&cluster.namespace)?);
    let list = cluster.ask(&Call::get(path, "list services")).await?.value;
    let mut services = list["items"].as_array().cloned().unwrap_or_default();
    for service in &mut services {
        // Items of a list leave out what they are.
        service["apiVersion"] = "v1".into();
        service["kind"] = "Service".into();
    }
    let named = |service: Value| (format!("service/{}", word(&service["metadata"], "name")), service);
    Ok(((shown, object), services.into_iter().map(named).collect()))
}

/// What people write into `metadata`.
const METADATA: [&str; 4] = ["name", "namespace", "labels", "annotations"];

/// The manifest that an object may have been made from.
pub(super) fn manifest(object: &Value) -> Value {
    let mut manifest = Map::new();
    for (key, value) in object.as_object().into_iter().flatten() {
        match key.as_str() {
            "status" => {}
            "metadata" => {
                let kept = value.as_object().into_iter().flatten().filter(|(key, _)| METADATA.contains(&key.as_str()));
                manifest.insert(key.clone(), kept.map(|(key, value)| (key.clone(), value.clone())).collect());
            }
            _ => {
                manifest.insert(key.clone(), value.clone());
            }
        }
    }
    Value::Object(manifest)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;
    use crate::plan::manifest::of_objects;
    use crate::plan::mistakes::Mistakes;

    #[test]
    fn word_of_the_command_line_is_an_object_only_if_its_kind_has_pods() {
        for text in ["deploy/web", "pod/web-1", "statefulset/db", "deployments.apps/web"] {
            assert!(object_name(text).is_some(), "{text}");
        }
        for text in ["app.yaml", "manifests/web.yaml", "web", "svc/web", "./deploy/web", "deploy/"] {
            assert!(object_name(text).is_none(), "{text}");
        }
    }

    #[test]
    fn live_object_is_planned_with_its_services_and_without_what_the_server_wrote() {
        let metadata = json!({ "name": "web", "namespace": "shop", "uid": "1", "resourceVersion": "7", "generation": 2,
            "creationTimestamp": "2026-11-19T20:00:00Z", "managedFields": [{ "manager": "kubectl" }] });
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
            "spec": { "replicas": 2, "selector": { "matchLabels": { "app": "web" } }, "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "app", "image": "debian", "command": ["sh", "-c", "server; echo over"] }] },
            } },
            "status": { "observedGeneration": 2, "replicas": 2 },
        });
        let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80 }], "clusterIP": "10.0.0.1" } });
        let mut mistakes = Mistakes::default();
        let objects = [("deployment.apps/web".to_owned(), deployment), ("service/web".to_owned(), service)];
        let manifests = of_objects(&objects, &mut mistakes);
        assert!(mistakes.is_empty(), "{mistakes:?}");
        assert_eq!((manifests.pods.len(), manifests.services.len()), (1, 1));
        assert_eq!(manifests.pods[0].place.to_string(), "deployment.apps/web");
        let advice = crate::plan::advice_on(&objects[0].1);
        assert!(advice.iter().any(|advice| advice.code == "shell-swallows-signal"), "{advice:?}");
    }
}
