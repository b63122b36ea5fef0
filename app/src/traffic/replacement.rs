//! Whether the owner of a leaving pod makes another: its scale says so. Without an answer it is believed that it does.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use kube::Api;

use super::routes::controller;

/// The label by which a Deployment tells its sets apart, which ends their names.
const HASH: &str = "pod-template-hash";

/// Who is asked about the owners of pods.
pub(crate) trait Owners: Send + Sync + 'static {
    /// Whether another pod takes the place of this one; `None` if nobody says.
    fn replaces(&self, pod: &Pod) -> BoxFuture<'static, Option<bool>>;
}

impl Owners for kube::Client {
    fn replaces(&self, pod: &Pod) -> BoxFuture<'static, Option<bool>> {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let Some((kind, name)) = controller(pod).map(|(kind, name)| (kind.to_owned(), name.to_owned())) else {
            return futures::future::ready(Some(false)).boxed();
        };
        let deployment = deployment(pod, &name);
        let client = self.clone();
        async move {
            let is_wanted = match kind.as_str() {
                "ReplicaSet" => wants_pods(&scale(
                    Api::<ReplicaSet>::namespaced(client.clone(), &namespace).get_scale(&name).await,
                )?),
                "ReplicationController" => wants_pods(&scale(
                    Api::<ReplicationController>::namespaced(client.clone(), &namespace).get_scale(&name).await,
                )?),
                _ => false,
            };
            match deployment {
                Some(name) if !is_wanted => {
                    let deployments = Api::<Deployment>::namespaced(client, &namespace);
                    Some(has_other_version(&scale(deployments.get_scale(&name).await)?))
                }
                _ => Some(is_wanted),
            }
        }
        .boxed()
    }
}

/// The Deployment whose set this is, by its name.
fn deployment(pod: &Pod, set: &str) -> Option<String> {
    let hash = pod.metadata.labels.as_ref()?.get(HASH)?;
    Some(set.strip_suffix(hash.as_str())?.strip_suffix('-')?.to_owned())
}

/// What an owner says; the scale of one that is gone is empty.
fn scale(answer: kube::Result<Scale>) -> Option<Scale> {
    match answer {
        Ok(scale) => Some(scale),
        Err(kube::Error::Api(answer)) if answer.code == 404 => Some(Scale::default()),
        Err(error) => {
            tracing::debug!(%error, "the owner of a pod does not say whether it wants another");
            None
        }
    }
}

fn wants_pods(scale: &Scale) -> bool {
    scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0) > 0
}

/// Whether a Deployment has pods of another version when it wants none of this one: during a rollout they are there before, and may not
/// be on every list yet. With `Recreate` it has none until this one is gone.
fn has_other_version(scale: &Scale) -> bool {
    wants_pods(scale) && scale.status.as_ref().is_some_and(|status| status.replicas > 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn deployment_replaces_its_last_old_pod_if_it_has_others_already() {
        let scale = |wanted: i32, there: i32| {
            serde_json::from_value::<Scale>(json!({ "spec": { "replicas": wanted }, "status": { "replicas": there } }))
                .unwrap()
        };
        assert!(has_other_version(&scale(3, 1)), "a rolling update");
        assert!(!has_other_version(&scale(3, 0)), "they come when this one is gone");
        assert!(!has_other_version(&scale(0, 1)), "it is scaled to zero");
        assert!(!has_other_version(&Scale::default()), "it is gone");
    }

    #[test]
    fn deployment_of_a_pod_is_found_by_the_name_of_its_set() {
        let mut pod = Pod::default();
        assert_eq!(deployment(&pod, "web-5d8f"), None);
        pod.metadata.labels = Some([(HASH.to_owned(), "5d8f".to_owned())].into());
        assert_eq!(deployment(&pod, "web-shop-5d8f").as_deref(), Some("web-shop"));
        assert_eq!(deployment(&pod, "web-77aa"), None);
    }
}
