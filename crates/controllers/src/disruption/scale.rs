//! How many pods a workload is asked for, of which nothing else is known.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use kube::discovery;

/// The workloads whose number of pods is followed, and what their sources are called. Others are asked for when they are met.
pub(super) fn followed() -> [(&'static str, ApiResource); 4] {
    let kind = |group: &str, kind: &str| ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
    [
        ("replicationcontrollers", kind("", "ReplicationController")),
        ("replicasets", kind("apps", "ReplicaSet")),
        ("deployments", kind("apps", "Deployment")),
        ("statefulsets", kind("apps", "StatefulSet")),
    ]
}

/// The `scale` of something that is not followed; the inner error says why it has none.
pub(super) async fn ask(
    client: &kube::Client,
    owner: &OwnerReference,
    namespace: &str,
) -> kube::Result<Result<i64, String>> {
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
