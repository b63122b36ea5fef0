//! The end of a pod that a controller has decided on: why is written down, then it is deleted.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};

/// The one pod that is meant: no other under its name.
pub(crate) struct Meant<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
}

/// Writes `status`, if there is anything to say, and deletes the pod with `grace`, or with its own. `false` if it is gone, or
/// another pod has its name.
pub(crate) async fn end(
    client: &kube::Client,
    pod: &Meant<'_>,
    status: Option<Value>,
    grace: Option<u32>,
) -> kube::Result<bool> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), pod.namespace);
    if let Some(status) = status {
        let patch = json!({ "metadata": { "uid": pod.uid }, "status": status });
        let written = pods.patch_status(pod.name, &PatchParams::default(), &Patch::Strategic(patch)).await;
        if !was_there(written)? {
            return Ok(false);
        }
    }
    let preconditions = Some(Preconditions { uid: Some(pod.uid.to_owned()), resource_version: None });
    let params = DeleteParams { grace_period_seconds: grace, preconditions, ..DeleteParams::default() };
    was_there(pods.delete(pod.name, &params).await)
}

fn was_there<T>(outcome: kube::Result<T>) -> kube::Result<bool> {
    match outcome {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
        Err(error) => Err(error),
    }
}
