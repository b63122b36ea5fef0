//! The deletion of a pod that a controller has decided on: why is written down first.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};

use crate::feed::revision;

/// The one pod that is meant: no other under its name.
pub(crate) struct PodId<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
}

/// What came of it.
pub(crate) enum Deletion {
    /// It was asked to leave, by a write of this revision; it may be gone by that.
    Asked(Option<u64>),
    /// It was gone, or another pod has its name.
    Gone,
}

/// Writes `status`, if there is anything to say, and deletes the pod with `grace`, or with its own.
pub(crate) async fn delete_pod(
    client: &kube::Client,
    pod: &PodId<'_>,
    status: Option<Value>,
    grace: Option<u32>,
) -> kube::Result<Deletion> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), pod.namespace);
    if let Some(status) = status {
        let patch = json!({ "metadata": { "uid": pod.uid }, "status": status });
        let written = pods.patch_status(pod.name, &PatchParams::default(), &Patch::Strategic(patch)).await;
        if unless_gone(written)?.is_none() {
            return Ok(Deletion::Gone);
        }
    }
    let preconditions = Some(Preconditions { uid: Some(pod.uid.to_owned()), resource_version: None });
    let params = DeleteParams { grace_period_seconds: grace, preconditions, ..DeleteParams::default() };
    Ok(match unless_gone(pods.delete(pod.name, &params).await)? {
        Some(answer) => Deletion::Asked(answer.left().and_then(|pod| revision(pod.resource_version()))),
        None => Deletion::Gone,
    })
}

/// The outcome of a write to one object; `None` if it is gone, or is another by now.
pub(crate) fn unless_gone<T>(outcome: kube::Result<T>) -> kube::Result<Option<T>> {
    match outcome {
        Ok(written) => Ok(Some(written)),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(None),
        Err(error) => Err(error),
    }
}
