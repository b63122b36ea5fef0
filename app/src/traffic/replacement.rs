//! Whether the owner of a leaving pod makes another: its scale says so. Without an answer it is believed that it does.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use kube::Api;

use super::routes::controller;

/// The label by which a Deployment tells its sets apart, which ends their names.
const HASH: &str = "pod-template-hash";

/// Who replaces a pod that leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Replacement {
    /// Its owner makes another.
    Owner,
    /// Its owner does not, but the Deployment above has, or makes, pods of another version: during a rollout they are there before, and
    /// may not be on every list yet; with `Recreate` they come afterwards.
    OtherVersion,
    /// Nobody does.
    Nobody,
}

/// Who is asked about the owners of pods.
pub(crate) trait Owners: Send + Sync + 'static {
    /// Who replaces the pod; `None` if nobody says.
    fn replacement(&self, pod: &Pod) -> BoxFuture<'static, Option<Replacement>>;
}

impl Owners for kube::Client {
    fn replacement(&self, pod: &Pod) -> BoxFuture<'static, Option<Replacement>> {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let Some((kind, name)) = controller(pod).map(|(kind, name)| (kind.to_owned(), name.to_owned())) else {
            return futures::future::ready(Some(Replacement::Nobody)).boxed();
        };
        let deployment = deployment(pod, &name);
        let client = self.clone();
        async move {
            let is_wanted = match kind.as_str() {
                "ReplicaSet" => {
                    wants_pods(Api::<ReplicaSet>::namespaced(client.clone(), &namespace).get_scale(&name).await)?
                }
                "ReplicationController" => wants_pods(
                    Api::<ReplicationController>::namespaced(client.clone(), &namespace).get_scale(&name).await,
                )?,
                _ => false,
            };
            match deployment {
                _ if is_wanted => Some(Replacement::Owner),
                Some(name) => {
                    let deployments = Api::<Deployment>::namespaced(client, &namespace);
                    let is_wanted = wants_pods(deployments.get_scale(&name).await)?;
                    Some(if is_wanted { Replacement::OtherVersion } else { Replacement::Nobody })
                }
                None => Some(Replacement::Nobody),
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

fn wants_pods(scale: kube::Result<k8s_openapi::api::autoscaling::v1::Scale>) -> Option<bool> {
    match scale {
        Ok(scale) => Some(scale.spec.and_then(|spec| spec.replicas).unwrap_or(0) > 0),
        Err(kube::Error::Api(answer)) if answer.code == 404 => Some(false),
        Err(error) => {
            tracing::debug!(%error, "the owner of a pod does not say whether it wants another");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deployment_of_a_pod_is_found_by_the_name_of_its_set() {
        let mut pod = Pod::default();
        assert_eq!(deployment(&pod, "web-5d8f"), None);
        pod.metadata.labels = Some([(HASH.to_owned(), "5d8f".to_owned())].into());
        assert_eq!(deployment(&pod, "web-shop-5d8f").as_deref(), Some("web-shop"));
        assert_eq!(deployment(&pod, "web-77aa"), None);
    }
}
