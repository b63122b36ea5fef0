//! How many pods the controllers of some pods are asked for.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use kube::discovery;

use super::known::{Known, PodFacts};
use super::plan::Expected;

/// The workloads whose number of pods is followed. Others are asked for when they are met.
pub(super) fn followed() -> Vec<ApiResource> {
    let kinds =
        [("", "ReplicationController"), ("apps", "ReplicaSet"), ("apps", "Deployment"), ("apps", "StatefulSet")];
    kinds.iter().map(|(group, kind)| ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind))).collect()
}

/// The sum over the controllers of `pods`, each counted once. A pod without a controller counts for nothing.
pub(super) async fn expected(client: &kube::Client, known: &Known, pods: &[&PodFacts]) -> kube::Result<Expected> {
    let mut counted: BTreeMap<String, i64> = BTreeMap::new();
    for pod in pods {
        let Some(owner) = &pod.controller else { continue };
        let decider = decider(known, owner);
        if counted.contains_key(&decider.uid) {
            continue;
        }
        let replicas = match known.workloads.get(&*decider.uid) {
            Some(workload) => workload.replicas,
            None => match ask(client, decider, &pod.namespace).await? {
                Ok(replicas) => replicas,
                Err(why) => return Ok(Expected::Unknown(why)),
            },
        };
        counted.insert(decider.uid.clone(), replicas);
    }
    Ok(Expected::Pods(counted.values().sum()))
}

/// A replica set that a deployment made does not decide for itself.
fn decider<'a>(known: &'a Known, owner: &'a OwnerReference) -> &'a OwnerReference {
    known.workloads.get(&*owner.uid).and_then(|workload| workload.controller.as_ref()).unwrap_or(owner)
}

/// The `scale` of something that is not followed; the inner error says why it has none.
async fn ask(client: &kube::Client, owner: &OwnerReference, namespace: &str) -> kube::Result<Result<i64, String>> {
    let (group, version) = owner.api_version.rsplit_once('/').unwrap_or(("", &owner.api_version));
    let kind = GroupVersionKind::gvk(group, version, &owner.kind);
    let resource = match discovery::pinned_kind(client, &kind).await {
        Ok((resource, _)) => resource,
        Err(kube::Error::Api(status)) if status.code != 404 => return Err(kube::Error::Api(status)),
        Err(_) => return Ok(Err(format!("{}/{} is not served", owner.api_version, owner.kind))),
    };
    let name = if group.is_empty() { resource.plural.clone() } else { format!("{}.{group}", resource.plural) };
    let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    match objects.get_subresource("scale", &owner.name).await {
        Ok(scale) => Ok(Ok(scale.data["spec"]["replicas"].as_i64().unwrap_or(0))),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Err(match objects.get_opt(&owner.name).await? {
            Some(_) => format!("{name} does not implement the scale subresource"),
            None => format!("{name} {:?} not found", owner.name),
        })),
        Err(error) => Err(error),
    }
}
