//! Pods by what people name: a pod, a Deployment that has some, labels. And the containers in them.

use anyhow::{Result, bail, ensure};
use serde_json::Value;

use super::requests::{Call, path_segment};
use super::resources::Resources;
use super::select;
use crate::cluster::Cluster;

/// The container that is meant if none is named.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// Where a part of a pod is: `log`, `exec`; of the pod itself if it is empty.
pub(crate) fn path(pod: &Value, namespace: &str, part: &str) -> Result<String> {
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or(namespace);
    let part = if part.is_empty() { String::new() } else { format!("/{part}") };
    Ok(format!("/api/v1/namespaces/{}/pods/{}{part}", path_segment(namespace)?, path_segment(select::name(pod))?))
}

/// A pod by its name, or one of those that a Deployment, Service or the like selects: a ready one, the oldest.
pub(crate) async fn one_of(cluster: &Cluster, what: &str) -> Result<Value> {
    let (kind, name) = what.split_once('/').unwrap_or(("pod", what));
    if ["pod", "pods", "po"].contains(&kind) {
        let path = format!("/api/v1/namespaces/{}/pods/{}", path_segment(&cluster.namespace)?, path_segment(name)?);
        return Ok(cluster.ask(&Call::get(path, format!("get pod/{name}"))).await?.value);
    }
    let mut resources = Resources::default();
    let resource = resources.find(cluster, kind).await?;
    let call = Call::get(resource.object(&cluster.namespace, name)?, format!("get {what}"));
    let owner = cluster.ask(&call).await?.value;
    let Some(labels) = labels_of(&owner) else { bail!("{what} selects no pods") };
    let pods = with_labels(cluster, Some(&labels)).await?;
    let best = pods.into_iter().min_by_key(|pod| {
        let is_leaving = !pod["metadata"]["deletionTimestamp"].is_null();
        (is_leaving, !is_ready(pod), pod["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned())
    });
    match best {
        Some(pod) => Ok(pod),
        None => bail!("{what} has no pods now"),
    }
}

/// The pods of the namespace with these labels.
pub(crate) async fn with_labels(cluster: &Cluster, labels: Option<&str>) -> Result<Vec<Value>> {
    let path = format!("/api/v1/namespaces/{}/pods", path_segment(&cluster.namespace)?);
    let list = cluster.ask(&Call::get(path, "list pods").maybe("labelSelector", labels)).await?.value;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

pub(crate) fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// What a workload or Service selects its pods by, as a query.
pub(crate) fn labels_of(owner: &Value) -> Option<String> {
    let selector = &owner["spec"]["selector"];
    let mut parts = Vec::new();
    let is_new = selector["matchLabels"].is_object() || selector["matchExpressions"].is_array();
    let labels = if is_new { selector["matchLabels"].as_object() } else { selector.as_object() };
    for (key, value) in labels.into_iter().flatten() {
        parts.push(format!("{key}={}", value.as_str()?));
    }
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str()?;
        let values: Vec<&str> =
            expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let values = values.join(",");
        parts.push(match expression["operator"].as_str()? {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return None,
        });
    }
    (!parts.is_empty()).then(|| parts.join(","))
}

/// Every container of a pod, in the order in which they start.
pub(crate) fn container_names(pod: &Value) -> Vec<String> {
    let of = |field: &str| pod["spec"][field].as_array().cloned().unwrap_or_default();
    let all = [of("initContainers"), of("containers"), of("ephemeralContainers")].concat();
    all.iter().filter_map(|container| container["name"].as_str().map(str::to_owned)).collect()
}

/// The container that is meant.
pub(crate) fn container(pod: &Value, named: Option<&str>) -> Result<String> {
    let (all, pod_name) = (container_names(pod), select::name(pod));
    if let Some(named) = named {
        ensure!(
            all.iter().any(|name| name == named),
            "pod/{pod_name} has no container {named}; it has {}",
            all.join(", ")
        );
        return Ok(named.to_owned());
    }
    let default = pod["metadata"]["annotations"][DEFAULT_CONTAINER].as_str();
    if let Some(default) = default.filter(|default| all.iter().any(|name| name == default)) {
        return Ok(default.to_owned());
    }
    let main = pod["spec"]["containers"].as_array().and_then(|all| all.first());
    match main.and_then(|container| container["name"].as_str()) {
        Some(name) => {
            if pod["spec"]["containers"].as_array().is_some_and(|all| all.len() > 1) {
                super::get::eprint_line(&format!("container {name} of {}", all.join(", ")));
            }
            Ok(name.to_owned())
        }
        None => bail!("pod/{pod_name} has no container"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn selector_of_a_workload_or_service_becomes_a_query() {
        let deployment = json!({ "spec": { "selector": {
            "matchLabels": { "app": "web" },
            "matchExpressions": [
                { "key": "tier", "operator": "In", "values": ["a", "b"] },
                { "key": "x", "operator": "DoesNotExist" },
            ],
        } } });
        assert_eq!(labels_of(&deployment).unwrap(), "app=web,tier in (a,b),!x");
        assert_eq!(labels_of(&json!({ "spec": { "selector": { "app": "web" } } })).unwrap(), "app=web");
        assert_eq!(labels_of(&json!({ "spec": {} })), None);
    }

    #[test]
    fn container_is_the_named_one_the_default_or_the_first() {
        let mut pod = json!({
            "metadata": { "name": "p" },
            "spec": { "initContainers": [{ "name": "i" }], "containers": [{ "name": "a" }, { "name": "b" }] },
        });
        assert_eq!(container(&pod, None).unwrap(), "a");
        assert_eq!(container(&pod, Some("i")).unwrap(), "i");
        assert!(container(&pod, Some("x")).unwrap_err().to_string().contains("i, a, b"));
        pod["metadata"]["annotations"][DEFAULT_CONTAINER] = "b".into();
        assert_eq!(container(&pod, None).unwrap(), "b");
    }
}
