//! Whether the owner of a leaving pod makes another: its scale says so. Without an answer it is believed that it does.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use kube::Api;

use super::routes::controller;

/// Who is asked about the owners of pods.
pub(crate) trait Owners: Send + Sync + 'static {
    /// Whether the pod's owner is there and wants pods. `None` if nobody says.
    fn wants_pods(&self, pod: &Pod) -> BoxFuture<'static, Option<bool>>;
}

impl Owners for kube::Client {
    fn wants_pods(&self, pod: &Pod) -> BoxFuture<'static, Option<bool>> {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let Some((kind, name)) = controller(pod).map(|(kind, name)| (kind.to_owned(), name.to_owned())) else {
            return futures::future::ready(Some(false)).boxed();
        };
        let client = self.clone();
        async move {
            let scale = match kind.as_str() {
                "ReplicaSet" => Api::<ReplicaSet>::namespaced(client, &namespace).get_scale(&name).await,
                "ReplicationController" => {
                    Api::<ReplicationController>::namespaced(client, &namespace).get_scale(&name).await
                }
                _ => return Some(false),
            };
            match scale {
                Ok(scale) => Some(scale.spec.and_then(|spec| spec.replicas).unwrap_or(0) > 0),
                Err(kube::Error::Api(answer)) if answer.code == 404 => Some(false),
                Err(error) => {
                    tracing::debug!(%error, "the owner of a pod does not say whether it wants another");
                    None
                }
            }
        }
        .boxed()
    }
}
