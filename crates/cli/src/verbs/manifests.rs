//! The objects of manifests, for `apply` and `delete -f`.

use std::io;
use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use serde_json::Value;

use super::resources::{Resource, Resources};
use crate::cluster::Cluster;
use crate::plan::manifest_values;

/// Every object of files, folders and standard input, with lists taken apart; every mistake at once.
pub(crate) fn read(files: &[PathBuf]) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for value in manifest_values(files, &mut io::stdin().lock())? {
        flatten(value, &mut objects)?;
    }
    ensure!(!objects.is_empty(), "there is no object in the manifests");
    Ok(objects)
}

fn flatten(value: Value, objects: &mut Vec<Value>) -> Result<()> {
    let is_list = value["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) && value["items"].is_array();
    if !is_list {
        let missing = ["apiVersion", "kind"].into_iter().find(|field| !value[field].is_string());
        if let Some(field) = missing {
            bail!("an object in the manifests has no {field}");
        }
        objects.push(value);
        return Ok(());
    }
    let Value::Object(mut list) = value else { return Ok(()) };
    let Some(Value::Array(items)) = list.remove("items") else { return Ok(()) };
    items.into_iter().try_for_each(|item| flatten(item, objects))
}

/// Which kind it is, where it belongs, and what it is called.
pub(crate) async fn place(
    cluster: &Cluster,
    resources: &mut Resources,
    object: &Value,
) -> Result<(Resource, Option<String>, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let resource = resources.of_kind(cluster, &text(&object["apiVersion"]), &text(&object["kind"])).await?;
    let metadata = &object["metadata"];
    let name = text(&metadata["name"]);
    if name.is_empty() {
        let generated = text(&metadata["generateName"]);
        let hint =
            if generated.is_empty() { "" } else { "; generateName makes a new one each time, which apply cannot do" };
        bail!("a {} in the manifests has no name{hint}", resource.kind);
    }
    let namespace = resource.namespaced.then(|| match text(&metadata["namespace"]) {
        none if none.is_empty() => cluster.namespace.clone(),
        namespace => namespace,
    });
    Ok((resource, namespace, name))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_are_taken_apart_and_what_is_no_object_is_refused() {
        let mut objects = Vec::new();
        let pod = json!({ "apiVersion": "v1", "kind": "Pod" });
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": [pod, { "kind": "PodList", "items": [pod] }] });
        flatten(list, &mut objects).unwrap();
        assert_eq!(objects, [pod.clone(), pod]);
        let refused = flatten(json!({ "kind": "Pod" }), &mut objects).unwrap_err().to_string();
        assert!(refused.contains("apiVersion"), "{refused}");
        assert!(flatten(json!("text"), &mut objects).is_err());
    }
}
